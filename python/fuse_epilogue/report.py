"""What a fusion did, or why it was refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from . import _core

#: Every refusal code, with one explanation each: what it means and the way out.
REFUSALS: Mapping[str, str] = MappingProxyType(
    {str(code): str(meaning) for code, meaning in _core.Refusals()}
)

# A refusal's text has its code in brackets, at the start of its last line.
_CODE = re.compile(r"(?:Error message: |ScheduleError: |\(not rendered\) )\[([a-z-]+)\] ?")


@dataclass(frozen=True)
class Refusal:
    """Why a consumer was not fused.

    Attributes
    ----------
    code : str
        A key of :data:`REFUSALS`.
    block : str
        The name of the block the reason is about.
    message : str
        What failed, what it means, what to do instead.
    """

    code: str
    block: str
    message: str


@dataclass(frozen=True)
class FusionStep:
    """One epilogue that was fused.

    Attributes
    ----------
    epilogue : str
        The name of the block that is gone.
    absorbed : str
        The term that moved into ``T.init``, in the reduction's variables; empty for a plain copy.
    removed : str
        The name of the intermediate buffer that is gone.
    """

    epilogue: str
    absorbed: str
    removed: str


@dataclass(frozen=True)
class FusionReport:
    """What one call of ``fuse_reduction_epilogue`` did.

    Attributes
    ----------
    reduction : str
        The name of the reduction block.
    output : str
        The name of the buffer that the reduction writes now.
    steps : tuple[FusionStep, ...]
        The epilogues fused, in order; at least one.
    stopped : Refusal or None
        Why the next consumer stays a block of its own; None if there is no next consumer.

    Example
    -------
    >>> report = FusionReport("matmul", "D", (FusionStep("add", "C[vi, vj]", "temp"),), None)
    >>> print(report)
    'matmul' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone.
    """

    reduction: str
    output: str
    steps: tuple[FusionStep, ...]
    stopped: Refusal | None

    def __str__(self) -> str:
        """One line per fusion, and one for what was left and why."""
        lines = []
        for step in self.steps:
            what = (
                f"absorbed {step.absorbed} from '{step.epilogue}' into T.init"
                if step.absorbed
                else f"took over the copy '{step.epilogue}'"
            )
            lines.append(f"'{self.reduction}' {what}; '{step.removed}' is gone.")
        if self.stopped is not None:
            lines.append(f"Left as it is [{self.stopped.code}]: {self.stopped.message}")
        return "\n".join(lines)


def report_from_core(raw: Any) -> FusionReport:  # noqa: ANN401 - a map of the ffi
    """Build the report from what the core returns.

    Parameters
    ----------
    raw : tvm_ffi.Map
        Keys reduction, output, steps (triples) and stopped (a triple or None).

    Returns
    -------
    FusionReport
    """
    stopped = raw["stopped"]
    return FusionReport(
        reduction=str(raw["reduction"]),
        output=str(raw["output"]),
        steps=tuple(FusionStep(*map(str, step)) for step in raw["steps"]),
        stopped=None if stopped is None else Refusal(*map(str, stopped)),
    )


def refusal_code(error: BaseException) -> str | None:
    """Return the code of a refusal, or None for any other error.

    Parameters
    ----------
    error : BaseException
        Usually the :class:`tvm.s_tir.ScheduleError` that ``fuse_reduction_epilogue`` raised.

    Returns
    -------
    str or None
        A key of :data:`REFUSALS`.

    Example
    -------
    >>> refusal_code(ValueError("something else")) is None
    True
    """
    last_line = str(error).rstrip("\n").rpartition("\n")[2]
    match = _CODE.match(last_line)
    return match.group(1) if match and match.group(1) in REFUSALS else None
