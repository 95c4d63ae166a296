"""The report of the pass, by function and reduction: as data, as JSON and as text."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tvm import ir

from .. import _html
from .._arguments import Numerics
from .._printed import Printed
from ..report import FusionReport, FusionStep, Refusal
from .functions import FunctionOutcome, attribute
from .policy import PolicyName

#: The module's attribute that holds the report, and that of each fused function with its own part.
MODULE_ATTR = "fuse_epilogue.report"
FUNCTION_ATTR = "fuse_epilogue.fused"

#: Of the JSON; another one is refused.
VERSION = 1

#: Codes of the pass, besides those of :data:`fuse_epilogue.REFUSALS`.
NOT_CHOSEN = "not-chosen"
FAILED = "failed"


def counted(count: int, noun: str) -> str:
    """Return a number with a noun in its singular or plural.

    >>> counted(1, "reduction"), counted(2, "reduction")
    ('1 reduction', '2 reductions')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, repr=False)
class ReductionReport(Printed):
    """The outcome for one reduction.

    Attributes
    ----------
    reduction : str
        The name of its block.
    fused : bool
    fusion : FusionReport
        Report of the primitive; where `fused` is false and this is fusable, of the fusion that was
        not made. Without a certificate.
    bytes_saved : int or None
        Bytes of the intermediates that are gone or no longer held in full; None if a size is a
        symbol. An intermediate is written once and read at least once: at least twice as many
        bytes need not move.
    decision : str
        Why it was fused, or not; empty where the primitive refuses.
    bytes_removed : int or None
        Those of `bytes_saved` that are of intermediates that are gone; None as there.
    """

    reduction: str
    fused: bool
    fusion: FusionReport
    bytes_saved: int | None
    decision: str
    bytes_removed: int | None = 0

    @property
    def code(self) -> str:
        """Reasons why it, or one of its epilogues, is not fused; empty if nothing is left.

        A key of :data:`fuse_epilogue.REFUSALS`, or ``"not-chosen"``: the policy is against it.
        """
        if self.fusion.fusable and not self.fused:
            return NOT_CHOSEN
        return self.fusion.stopped.code if self.fusion.stopped is not None else ""

    @property
    def tails(self) -> tuple[str, ...]:
        """Expressions that the fused epilogues compute once for each finished element ``x``."""
        return tuple(step.tail for step in self.fusion.steps if step.tail) if self.fused else ()

    @property
    def absorbed(self) -> tuple[str, ...]:
        """Terms that moved into ``T.init``."""
        steps = self.fusion.steps if self.fused else ()
        return tuple(step.absorbed for step in steps if step.absorbed)

    def __str__(self) -> str:
        """Return the sentences of the fusion, and the reason for the decision."""
        text = "\n".join(self.fusion.sentences)
        if self.fusion.fusable and not self.fused:
            text = "\n".join(f"({line})" for line in text.splitlines())
            return f"Not fused [{NOT_CHOSEN}]: {self.decision}.\n{text}"
        return f"{text}\nFused: {self.decision}." if self.fused else text


@dataclass(frozen=True, repr=False)
class FunctionReport(FunctionOutcome):
    """The outcome for one function.

    Attributes
    ----------
    name : str
        Name of its global variable.
    reductions : tuple[ReductionReport, ...]
        In program order; empty if it has none, or is left alone.
    left_alone : str
        "scheduled", "opaque", "external" or "failed" (an error of ours) where the function was not
        looked into; empty otherwise.
    reason : str
        Why it was left alone, as a sentence.
    """

    name: str
    reductions: tuple[ReductionReport, ...] = ()
    left_alone: str = ""
    reason: str = ""

    @property
    def fused(self) -> bool:
        """Whether anything of it was fused."""
        return any(each.fused for each in self.reductions)

    @property
    def bytes_saved(self) -> int:
        """Bytes that its fused reductions save; those of symbolic sizes are not counted."""
        return sum(each.bytes_saved or 0 for each in self.reductions if each.fused)

    def __str__(self) -> str:
        """Return the name, and what became of each reduction."""
        saved = f", {self.bytes_saved:,} bytes of intermediates saved" if self.fused else ""
        return self._text(f"{len(self.reductions)} fused{saved}", self.reductions, "reduction")


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """The result of the pass for a module.

    Attributes
    ----------
    policy : str
    numerics : str
    distribute : bool
        As the pass was asked for.
    functions : tuple[FunctionReport, ...]
        Reports of every function but those of Relax, in the module's order.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import transform, workloads
    >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 16)})
    >>> report = transform.report_of(transform.FuseReductionEpilogue()(mod))
    >>> report.found, report.fused, report.refused, report.bytes_saved
    (1, 1, {}, 16128)
    """

    policy: PolicyName
    numerics: Numerics
    distribute: bool
    functions: tuple[FunctionReport, ...]

    @property
    def _reductions(self) -> list[ReductionReport]:
        return [each for function in self.functions for each in function.reductions]

    @property
    def found(self) -> int:
        """Number of reductions."""
        return len(self._reductions)

    @property
    def fused(self) -> int:
        """Number of reductions that were fused."""
        return sum(each.fused for each in self._reductions)

    @property
    def refused(self) -> dict[str, int]:
        """Numbers of reductions that were not fused, by code, in alphabetical order."""
        codes = Counter(each.code for each in self._reductions if not each.fused)
        return dict(sorted(codes.items()))

    @property
    def bytes_saved(self) -> int:
        """Bytes that all fused reductions save; those of symbolic sizes are not counted."""
        return sum(function.bytes_saved for function in self.functions)

    def __str__(self) -> str:
        """Return a line for the module, and the functions with a reduction or left alone."""
        refused = ", ".join(f"{count} {code}" for code, count in self.refused.items())
        lines = [
            f"{counted(self.found, 'reduction')} in {counted(len(self.functions), 'function')}, "
            f"{self.fused} fused (numerics: {self.numerics}), "
            f"{self.bytes_saved:,} bytes of intermediates saved"
            + (f"; not fused: {refused}" if refused else "")
        ]
        shown = [each for each in self.functions if each.reductions or each.left_alone]
        return "\n".join([*lines, *map(str, shown), *([self.hint] if self.hint else [])])

    @property
    def hint(self) -> str:
        """Advice for functions that were fused, whose loops are all serial; empty without them."""
        names = [each.name for each in self.functions if each.fused]
        if not names:
            return ""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return (
            f"Hint: the loops of {names[0]}{more} are not scheduled, and take most of the time: "
            "fusing alone gains little there, or loses. Schedule them too, with "
            "fuse_epilogue.compile, fuse_epilogue.schedules.apply or a pass of TVM's."
        )

    def _repr_html_(self) -> str:
        """Return a row for each reduction, for notebooks."""
        rows = [
            (
                function.name,
                each.reduction,
                "yes" if each.fused else "no",
                ", ".join(each.absorbed),
                ", ".join(each.tails),
                "" if each.bytes_saved is None else f"{each.bytes_saved:,}",
                each.code,
            )
            for function in self.functions
            for each in function.reductions
        ]
        heads = ("function", "reduction", "fused", "absorbed", "tails", "bytes saved", "refusal")
        return _html.table(heads, rows, str(self).splitlines()[0])

    def to_json(self) -> str:
        """Return the report as JSON.

        Returns
        -------
        str
            For :meth:`from_json`; the module's attribute is the same text.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import transform, workloads
        >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 16)})
        >>> report = transform.report_of(transform.FuseReductionEpilogue()(mod))
        >>> import json
        >>> json.loads(report.to_json())["policy"]
        'planner'
        """
        head = {"version": VERSION, **vars(self)}
        del head["functions"]
        # Every text is written once: the attribute of a function holds the same.
        functions = ", ".join(map(_function_json, self.functions))
        return f'{json.dumps(head)[:-1]}, "functions": [{functions}]}}'

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that :meth:`to_json` wrote.

        Parameters
        ----------
        text : str

        Returns
        -------
        Report

        Raises
        ------
        ValueError
            The text is not valid JSON for a report, or has another version.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import transform, workloads
        >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 16)})
        >>> report = transform.report_of(transform.FuseReductionEpilogue()(mod))
        >>> transform.Report.from_json(report.to_json()) == report
        True
        """
        try:
            data = json.loads(text)
            if data.pop("version") != VERSION:
                raise ValueError(f"the report is not of version {VERSION}; run the pass again")
            functions = tuple(
                FunctionReport(**{**each, "reductions": reductions_from(each["reductions"])})
                for each in data.pop("functions")
            )
            return Report(**data, functions=functions)
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not the JSON of a report: {error!r}") from error


def reductions_from(data: Any) -> tuple[ReductionReport, ...]:
    """Return reductions from what their JSON holds."""
    return tuple(ReductionReport(**{**each, "fusion": _fusion(each["fusion"])}) for each in data)


def reductions_to_json(reductions: tuple[ReductionReport, ...]) -> str:
    """Return reductions as JSON, for the function's own attribute."""
    return json.dumps([_data(each) for each in reductions])


def _data(each: ReductionReport) -> dict[str, Any]:
    """Return what JSON knows; ``dataclasses.asdict`` would copy every text."""
    stopped = each.fusion.stopped
    fusion = {
        **vars(each.fusion),
        "steps": [vars(step) for step in each.fusion.steps],
        "stopped": stopped and vars(stopped),
    }
    return {**vars(each), "fusion": fusion}


def _function_json(function: FunctionReport) -> str:
    data = {**vars(function), "reductions": None}
    text = json.dumps(data)
    reductions = reductions_to_json(function.reductions)
    return text.replace('"reductions": null', f'"reductions": {reductions}', 1)


def _fusion(data: dict[str, Any]) -> FusionReport:
    stopped = data["stopped"]
    return FusionReport(
        **{
            **data,
            "steps": tuple(FusionStep(**step) for step in data["steps"]),
            "kept": tuple(data["kept"]),
            "stopped": None if stopped is None else Refusal(**stopped),
        }
    )


def report_of(mod: ir.IRModule) -> Report:
    """Return the report that the pass attached to a module.

    The report is the module's attribute ``"fuse_epilogue.report"``: it stays through further
    passes, and through ``tvm.ir.save_json`` and ``load_json``.

    Parameters
    ----------
    mod : tvm.ir.IRModule

    Returns
    -------
    Report

    Raises
    ------
    TypeError
        `mod` is not a module.
    ValueError
        The module has no report.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import transform, workloads
    >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 16)})
    >>> transform.report_of(transform.FuseReductionEpilogue("never")(mod)).refused
    {'not-chosen': 1}
    """
    if not isinstance(mod, ir.IRModule):
        raise TypeError(f"mod must be an IRModule, not {type(mod).__name__}")
    text = attribute(mod, MODULE_ATTR)
    if text is None:
        raise ValueError(
            "the module has no report of a fusion; run fuse_epilogue.transform."
            "FuseReductionEpilogue() on it, or ask the module that it returned"
        )
    return Report.from_json(text)
