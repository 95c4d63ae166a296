"""The report of the pass over cascades, by function and cascade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir

from .._printed import Printed
from .functions import FunctionOutcome, read_report
from .report import counted

#: The module's attribute that holds the report, and that of each changed function with its part.
MODULE_ATTR = "fuse_epilogue.cascades"


@dataclass(frozen=True, repr=False)
class CascadeOutcome(Printed):
    """The outcome for one cascade of a function.

    Attributes
    ----------
    reductions : tuple[str, ...]
        The names of its reductions, in program order.
    rules : tuple[str, ...]
        The law of each: "head", "defer", "roll", "mix", "basis" or "select".
    fused : bool
    moved : tuple[str, ...]
        Blocks that are computed in the loop now, for each block of keys.
    second_pass : tuple[str, ...]
        Blocks that read the results, and therefore run after the loop.
    code : str
        Why it, or a further reduction, is not fused: a key of :data:`fuse_epilogue.REFUSALS`, or
        "not-chosen" where the policy is against it; empty if nothing is left.
    text : str
        The report of the primitive, a line for each reduction.
    """

    reductions: tuple[str, ...]
    rules: tuple[str, ...]
    fused: bool
    moved: tuple[str, ...]
    second_pass: tuple[str, ...]
    code: str
    text: str

    def __str__(self) -> str:
        """Return the reductions, whether they were fused, and the report of the primitive."""
        verdict = "fused" if self.fused else f"not fused [{self.code}]"
        lines = [f"    {line}" for line in self.text.splitlines()]
        return "\n".join([f"{' -> '.join(self.reductions)}: {verdict}", *lines])


@dataclass(frozen=True, repr=False)
class FunctionCascades(FunctionOutcome):
    """The cascades of one function, and what became of them.

    Attributes
    ----------
    name : str
        Name of its global variable.
    cascades : tuple[CascadeOutcome, ...]
        In program order; a chain that the primitive refuses is one as well. Empty if no reduction
        reads another one's result.
    left_alone : str
        "scheduled", "opaque", "external" or "failed" (an error of ours) where the function was not
        looked into; empty otherwise.
    reason : str
        Why it was left alone, as a sentence.
    """

    name: str
    cascades: tuple[CascadeOutcome, ...] = ()
    left_alone: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """Return the name, and what became of each cascade."""
        head = f"{counted(len(self.cascades), 'cascade')} fused"
        return self._text(head, self.cascades, "cascade")


def cascades_of(mod: ir.IRModule) -> tuple[FunctionCascades, ...] | None:
    """Return what :class:`FuseCascadedReductions` did to a module, None if it has not run.

    Parameters
    ----------
    mod : tvm.ir.IRModule

    Returns
    -------
    tuple[FunctionCascades, ...] or None
        One for each function but those of Relax, in the order of the module.

    Raises
    ------
    ValueError
        The module's attribute is not what the pass writes.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue.transform import cascades_of
    >>> cascades_of(tvm.IRModule()) is None
    True
    """
    return read_report(mod, MODULE_ATTR, function_from)


def function_from(saved: dict[str, Any]) -> FunctionCascades:
    """Return what became of a function from the data of its JSON."""

    def as_tuples(each: dict[str, Any]) -> dict[str, Any]:
        return {k: tuple(v) if isinstance(v, list) else v for k, v in each.items()}

    cascades = tuple(CascadeOutcome(**as_tuples(each)) for each in saved["cascades"])
    return FunctionCascades(**{**saved, "cascades": cascades})
