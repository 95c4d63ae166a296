"""What a model was compiled to: a table by function, as text, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from .. import _html

_STYLE = "body{font:14px sans-serif}td,th{padding:2px 8px;text-align:left}"
_HEADS = ("function", "kind", "fusion", "calls", "predicted", "measured", "share")


@dataclass(frozen=True)
class FunctionReport:
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
        Seconds that all its calls of a run take by the cost model; 0 if nothing predicts it.
    measured_s : float or None
        Seconds that all its calls of a run took; None if not measured.
    why : str
        Reason why nothing scheduled it; empty otherwise.
    """

    name: str
    kind: str
    fusion: str
    calls: int
    predicted_s: float
    measured_s: float | None = None
    why: str = ""


@dataclass(frozen=True)
class ModelReport:
    """The functions of a compiled model, in the order of their first calls.

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
        """Whether every function was measured."""
        return bool(self.functions) and all(f.measured_s is not None for f in self.functions)

    @property
    def total_s(self) -> float:
        """Seconds of one run: measured if it was measured, predicted otherwise."""
        return sum(self._seconds(each) for each in self.functions)

    def share(self, function: FunctionReport) -> float | None:
        """Return what part of a run's time a function takes.

        None if that is not known: nothing is measured, and not every function is predicted.

        Parameters
        ----------
        function : FunctionReport
            One of :attr:`functions`.

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
        if not self.measured and not all(each.predicted_s for each in self.functions):
            return None
        return self._seconds(function) / self.total_s if self.total_s else None

    def with_measured(self, seconds: Mapping[str, float]) -> ModelReport:
        """Return the report with measured times.

        Parameters
        ----------
        seconds : Mapping[str, float]
            By the name of a function, of all its calls in one run.

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
            replace(each, measured_s=seconds.get(each.name, 0.0)) for each in self.functions
        )
        return replace(self, functions=functions)

    def _seconds(self, function: FunctionReport) -> float:
        return (function.measured_s or 0.0) if self.measured else function.predicted_s

    def __str__(self) -> str:
        """Return the table as text, with the reasons of functions that are not scheduled."""
        rows = [_HEADS, *(self._row(each) for each in self.functions)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        reasons = [f"{each.name}: {each.why}" for each in self.functions if each.why]
        return "\n".join([*lines, *([""] if reasons else []), *reasons])

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = [(*self._row(each), each.why) for each in self.functions]
        return _html.table((*_HEADS, "reason"), rows)

    def to_html(self) -> str:
        """Return the report as a page.

        Returns
        -------
        str

        Example
        -------
        >>> from fuse_epilogue.models import ModelReport
        >>> ModelReport(target="llvm").to_html().startswith("<!DOCTYPE html>")
        True
        """
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Report</title>'
            f"<style>{_STYLE}</style></head><body><p>{escape(self.target)}, {threads}</p>"
            f"{self._repr_html_()}</body></html>\n"
        )

    def _row(self, each: FunctionReport) -> Sequence[str]:
        share = self.share(each)
        return (
            each.name,
            each.kind,
            each.fusion,
            str(each.calls),
            _microseconds(each.predicted_s or None),
            _microseconds(each.measured_s),
            "" if share is None else f"{share:.1%}",
        )

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
            functions = tuple(FunctionReport(**each) for each in data.pop("functions"))
            return cls(functions, **data)
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"not the JSON of a model report: {error}") from error


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f} us"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the columns of a row: texts at the left, numbers at the right."""
    return [
        text.ljust(width) if place < 3 else text.rjust(width)
        for place, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
