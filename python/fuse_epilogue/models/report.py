"""The report of a compiled model: a table of its functions, as text, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from .. import _html
from .._printed import Printed
from ..kernels.scheduled import Way
from ..transform.kinds import DEFAULT, VIEW

#: Kinds of functions without a kernel, for people.
_KINDS = {DEFAULT: "TVM's own loops", VIEW: "a view, or a copy where it is a result of the model"}
_STYLE = "body{font:14px sans-serif}td,th{padding:2px 8px;text-align:left}"
_HEADS = (
    *("function", "sizes", "kind", "fusion", "calls", "timed", "predicted", "from", "to"),
    *("measured", "share"),
)
#: Columns of text, which are aligned at the left; the others hold numbers.
_TEXTS = ("function", "kind", "fusion", "sizes")


@dataclass(frozen=True, repr=False)
class FunctionReport(Printed):
    """One function of a compiled model.

    Attributes
    ----------
    name : str
    kind : str
        Kind of kernel; "default" if the function keeps the loops that TVM gives it.
    fusion : str
        What became of the epilogue of its reduction: "none", "tail" or "absorbed".
    calls : int
        Calls of it in one run of the model.
    predicted_s : float
        Seconds that all its calls of a run take by the cost model, or by the clock if `trials` is
        not 0; 0 if nothing predicts it.
    measured_s : float or None
        Seconds that all its calls of a run took; None if not measured.
    why : str
        Reason why nothing scheduled it, or why it is computed directly where Winograd's algorithms
        are allowed; empty otherwise.
    trials : int
        Number of ways to compute it that were timed to choose one; 0 if it was chosen by
        prediction.
    sizes : str
        The sizes that it is for, such as "batch = 8", in a model with sizes that have names; empty
        for what serves all other sizes.
    least_s, most_s : float
        Bounds of `predicted_s`, for Trainium; 0 otherwise.
    ways : tuple[Way, ...]
        For one call, the way that was chosen to compute it, and after it those that were considered
        instead, the fastest first; empty if its kind has no description.
    """

    name: str
    kind: str
    fusion: str
    calls: int
    predicted_s: float
    measured_s: float | None = None
    why: str = ""
    trials: int = 0
    sizes: str = ""
    least_s: float = 0.0
    most_s: float = 0.0
    ways: tuple[Way, ...] = ()

    def explain(self) -> str:
        """Return how it is computed, and why so.

        Returns
        -------
        str
            Its kind and predicted time, the chosen way with its parts, and those that were
            considered instead.

        Example
        -------
        >>> from fuse_epilogue.models import FunctionReport
        >>> report = FunctionReport("f", "default", "none", 1, 0.0, why="its loops have no blocks")
        >>> print(report.explain())
        f: TVM's own loops
          its loops have no blocks
        """
        own = self.kind == DEFAULT
        lines = [f"{self.name}: {_KINDS.get(self.kind, self.kind)}"]
        if not own and self.predicted_s:
            by = f"the fastest of {self.trials} that were timed" if self.trials else "predicted"
            lines[0] += f", {_microseconds(self.predicted_s / max(1, self.calls))} {by}"
        if self.why:
            lines.append(f"  {self.why}")
        if self.ways:
            chosen, *others = self.ways
            parts = ", ".join(f"{n} {_microseconds(s)}" for n, s in chosen.parts.items())
            lines.append(f"  chosen: {chosen.text}{f' ({parts})' if parts else ''}")
            for each in others:
                more = f"{each.seconds / chosen.seconds - 1:+.0%}" if chosen.seconds else ""
                lines.append(f"  instead: {_microseconds(each.seconds)} ({more}): {each.text}")
        return "\n".join(lines)

    def __str__(self) -> str:
        """Return the kind of kernel, the calls and their time, in one line."""
        did = [
            f"{self.name}: {self.kind}",
            f"epilogue: {self.fusion}",
            f"{self.calls:,} call{'' if self.calls == 1 else 's'}",
        ]
        if self.measured_s is not None:
            did.append(f"{_microseconds(self.measured_s)} measured")
        elif self.predicted_s:
            by = "timed" if self.trials else "predicted"
            did.append(f"{_microseconds(self.predicted_s)} {by}")
        if self.sizes:
            did.append(f"for {self.sizes}")
        return ", ".join(did) + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, repr=False)
class ModelReport(Printed):
    """The functions of a compiled model, in the order of their first calls.

    A model that was compiled for several sizes has the functions for each. Totals and shares
    are of one run: with the sizes that are measured, or else with those that come first.

    Attributes
    ----------
    functions : tuple[FunctionReport, ...]
    target : str
    threads : int
    """

    functions: tuple[FunctionReport, ...] = field(default_factory=tuple)
    target: str = ""
    threads: int = 1

    @property
    def measured(self) -> bool:
        """Whether a run was measured."""
        return any(each.measured_s is not None for each in self.functions)

    @property
    def total_s(self) -> float:
        """Seconds of one run: measured if it was measured, predicted otherwise."""
        return sum(self._seconds(each) for each in self._run())

    @property
    def range_s(self) -> tuple[float, float]:
        """Bounds of the predicted seconds of one run, for Trainium; 0 otherwise."""
        run = self._run()
        return sum(each.least_s for each in run), sum(each.most_s for each in run)

    def _run(self, like: FunctionReport | None = None) -> list[FunctionReport]:
        """Return the functions of one run: with the sizes of a function."""
        if like is None:
            like = next((f for f in self.functions if f.measured_s is not None), None)
        if like is None and self.functions:
            like = self.functions[0]
        return [each for each in self.functions if like is not None and each.sizes == like.sizes]

    def share(self, function: FunctionReport) -> float | None:
        """Return what part of a run's time a function takes.

        None if that is not known: nothing is measured, and not every function is predicted.

        Parameters
        ----------
        function : FunctionReport
            One of `functions`.

        Returns
        -------
        float or None

        Example
        -------
        >>> from fuse_epilogue.models import FunctionReport, ModelReport
        >>> report = ModelReport((
        ...     FunctionReport("a", "contraction", "tail", 1, 3e-6),
        ...     FunctionReport("b", "softmax", "none", 2, 1e-6),
        ... ))
        >>> report.share(report.functions[0])
        0.75
        """
        run = self._run(function)
        if any(each.measured_s is None for each in run):
            if not all(each.predicted_s or each.kind == VIEW for each in run):
                return None
        total = sum(map(self._seconds, run))
        return self._seconds(function) / total if total else None

    def with_measured(self, seconds: Mapping[str, float], sizes: str = "") -> ModelReport:
        """Return the report with measured times.

        Parameters
        ----------
        seconds : Mapping[str, float]
            By the name of a function, of all its calls in one run.
        sizes : str
            Which functions ran: :attr:`FunctionReport.sizes`.

        Returns
        -------
        ModelReport

        Example
        -------
        >>> from fuse_epilogue.models import FunctionReport, ModelReport
        >>> report = ModelReport((FunctionReport("a", "contraction", "tail", 1, 3e-6),))
        >>> report.with_measured({"a": 4e-6}).total_s
        4e-06
        """
        functions = tuple(
            replace(each, measured_s=seconds.get(each.name, 0.0) if each.sizes == sizes else None)
            for each in self.functions
        )
        return replace(self, functions=functions)

    def _seconds(self, function: FunctionReport) -> float:
        return function.predicted_s if function.measured_s is None else function.measured_s

    def __str__(self) -> str:
        """Return the table as text, with the reasons of functions that are not scheduled."""
        rows = [self._heads(), *(self._row(each) for each in self.functions)]
        texts = [head in _TEXTS for head in rows[0]]
        widths = [max(len(row[place]) for row in rows) for place in range(len(texts))]
        lines = ["  ".join(_aligned(row, widths, texts)).rstrip() for row in rows]
        reasons = [f"{each.name}: {each.why}" for each in self.functions if each.why]
        return "\n".join([*lines, *([""] if reasons else []), *reasons])

    def explain(self) -> str:
        """Return how each function is computed, and why so.

        Returns
        -------
        str
            :meth:`FunctionReport.explain` of every function, in order.

        Example
        -------
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(64, 64, 64)}))
        >>> "chosen: tiles of" in model.report.explain()
        True
        """
        return "\n".join(each.explain() for each in self.functions)

    def __repr__(self) -> str:
        """Return how many functions there are, and for what."""
        count = f"{len(self.functions)} function{'' if len(self.functions) == 1 else 's'}"
        return f"<ModelReport: {count} for {self._setting()}>"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = [(*self._row(each), each.why) for each in self.functions]
        return _html.table((*self._heads(), "reason"), rows)

    def to_html(self) -> str:
        """Return the report as a page of HTML.

        Returns
        -------
        str

        Example
        -------
        >>> from fuse_epilogue.models import ModelReport
        >>> ModelReport(target="llvm").to_html().startswith("<!DOCTYPE html>")
        True
        """
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Report</title>'
            f"<style>{_STYLE}</style></head><body><p>{escape(self._setting())}</p>"
            f"{self._repr_html_()}</body></html>\n"
        )

    def _setting(self) -> str:
        """Return the target and the number of threads, for people."""
        return f"{self.target}, {self.threads} thread{'s' if self.threads > 1 else ''}"

    def _heads(self) -> list[str]:
        """Return the heads of the columns that say something."""
        hidden = set()
        if not any(each.sizes for each in self.functions):
            hidden.add("sizes")
        if not any(each.trials for each in self.functions):
            hidden.add("timed")
        if not any(each.most_s for each in self.functions):
            hidden |= {"from", "to"}
        return [head for head in _HEADS if head not in hidden]

    def _row(self, each: FunctionReport) -> list[str]:
        share = self.share(each)
        columns = {
            "function": each.name,
            "sizes": each.sizes,
            "kind": each.kind,
            "fusion": each.fusion,
            "calls": str(each.calls),
            "timed": f"{each.trials} ways" if each.trials else "",
            "predicted": _microseconds(each.predicted_s or None),
            "from": _microseconds(each.least_s or None),
            "to": _microseconds(each.most_s or None),
            "measured": _microseconds(each.measured_s),
            "share": "" if share is None else f"{share:.1%}",
        }
        return [columns[head] for head in self._heads()]

    def to_json(self) -> str:
        """Return the report as JSON, which :meth:`from_json` reads.

        Returns
        -------
        str

        Example
        -------
        >>> from fuse_epilogue.models import ModelReport
        >>> ModelReport(target="llvm").to_json()
        '{"functions": [], "target": "llvm", "threads": 1}'
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ModelReport:
        """Return the report that a text from :meth:`to_json` holds.

        Parameters
        ----------
        text : str

        Returns
        -------
        ModelReport

        Raises
        ------
        ValueError
            The text is not such a report.

        Example
        -------
        >>> from fuse_epilogue.models import ModelReport
        >>> ModelReport.from_json(ModelReport(threads=2).to_json()).threads
        2
        """
        try:
            data: dict[str, Any] = json.loads(text)
            functions = tuple(
                FunctionReport(**{**each, "ways": tuple(Way(**way) for way in each["ways"])})
                for each in data.pop("functions")
            )
            return cls(functions, **data)
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"not the JSON of a model report: {error}") from error


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f} us"


def _aligned(row: Sequence[str], widths: Sequence[int], texts: Sequence[bool]) -> list[str]:
    """Return the columns of a row: texts at the left, numbers at the right."""
    return [
        cell.ljust(width) if is_text else cell.rjust(width)
        for cell, width, is_text in zip(row, widths, texts, strict=True)
    ]
