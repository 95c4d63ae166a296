"""Reports of fusions and of refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from . import _core, _html
from ._arguments import Numerics
from ._printed import Printed
from .certificate import Certificate, certificate_from_core

#: Every refusal code, with one explanation each: what it means and the way out.
REFUSALS: Mapping[str, str] = MappingProxyType(
    {str(code): str(meaning) for code, meaning in _core.Refusals()}
)

# A refusal's text has its code in brackets, at the start of its last line.
_CODE = re.compile(r"(?:Error message: |ScheduleError: |\(not rendered\) )\[([a-z-]+)\] ?")


@dataclass(frozen=True, repr=False)
class Refusal(Printed):
    """The reason why a consumer was not fused.

    Attributes
    ----------
    code : str
        A key of :data:`REFUSALS`.
    block : str
        The name of the block the reason is about.
    message : str
        The obstacle, its meaning, and the way out.
    """

    code: str
    block: str
    message: str

    def __str__(self) -> str:
        """Return the code and the message."""
        return f"[{self.code}] {self.message}"


@dataclass(frozen=True, repr=False)
class FusionStep(Printed):
    """One epilogue that was fused.

    Attributes
    ----------
    epilogue : str
        The name of its block.
    absorbed : str
        The term that moved into ``T.init``, in the reduction's variables; empty if none did.
    distributed : str
        Function of ``x`` that is applied to every term of the reduction; empty if none is.
    tail : str
        Expression computed once for each finished element ``x``, in a block of the same name after
        the reduction loops; empty if the block is gone.
    removed : str
        The name of the intermediate buffer that is gone; empty if none is.
    reason : str
        Why the tail is not absorbed; empty without a tail.
    merged_into : str
        The name of the later epilogue whose tail this one has become part of; empty if none.
    """

    epilogue: str
    absorbed: str
    distributed: str
    tail: str
    removed: str
    reason: str
    merged_into: str = ""

    def __str__(self) -> str:
        """Return the epilogue, and what became of it."""
        did = [
            f"{self.absorbed} absorbed" if self.absorbed else "",
            f"{self.distributed} of every term" if self.distributed else "",
            f"{self.tail} once for each finished x" if self.tail else "",
            f"part of '{self.merged_into}'" if self.merged_into else "",
            f"'{self.removed}' is gone" if self.removed else "",
        ]
        return f"'{self.epilogue}': " + "; ".join(text for text in did if text)


@dataclass(frozen=True, repr=False)
class FusionReport(Printed):
    """The result of one call of ``fuse_reduction_epilogue``, or its prediction by ``analyze``.

    Attributes
    ----------
    fusable : bool
        Whether anything is fused; false only in a report of ``analyze``.
    reduction : str
        The name of the reduction block; empty if nothing is fused.
    output : str
        The name of the buffer that the reduction accumulates in now.
    numerics : str
        ``"reassociate"`` or ``"exact"``, as the call asked for.
    steps : tuple[FusionStep, ...]
        The epilogues fused, in order.
    kept : tuple[str, ...]
        Intermediate buffers that stay alive in full, because another block, or the caller, reads
        them.
    stopped : Refusal or None
        Why the next consumer stays a block of its own; None if there is no next consumer.
    certificate : Certificate or None
        What was proved, for :func:`fuse_epilogue.verify.check`; None if nothing is fused.

    Example
    -------
    >>> from fuse_epilogue import FusionReport, FusionStep
    >>> step = FusionStep("add", "C[vi, vj]", "", "", "temp", "")
    >>> print(FusionReport(True, "matmul", "D", "exact", (step,), (), None, None))
    'matmul' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone. (numerics: exact)
    """

    fusable: bool
    reduction: str
    output: str
    numerics: Numerics
    steps: tuple[FusionStep, ...]
    kept: tuple[str, ...]
    stopped: Refusal | None
    certificate: Certificate | None

    def __str__(self) -> str:
        """Return :attr:`sentences`, the first with the mode of numerics."""
        first, *others = self.sentences
        return "\n".join((f"{first} (numerics: {self.numerics})", *others))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One line for each fusion, and one for what was left and why."""
        lines = [self._sentence(step) for step in self.steps]
        lines += [
            f"'{name}' stays alive in full: a block outside of the fusion, or the caller, reads it."
            for name in self.kept
        ]
        if self.stopped is not None:
            verdict = "Left as it is" if self.fusable else "Not fusable"
            lines.append(f"{verdict} [{self.stopped.code}]: {self.stopped.message}")
        return tuple(lines)

    def _repr_html_(self) -> str:
        """Return the steps as a table, for notebooks."""
        rows = [
            (each.epilogue, each.absorbed, each.distributed, each.tail, each.removed, each.reason)
            for each in self.steps
        ]
        if self.stopped is not None:
            rows.append((self.stopped.block, "", "", "", "", str(self.stopped)))
        heads = ("epilogue", "absorbed", "every term", "tail", "buffer removed", "reason")
        return _html.table(heads, rows, self.reduction)

    def _sentence(self, step: FusionStep) -> str:
        reduction, epilogue = f"'{self.reduction}'", f"'{step.epilogue}'"
        did = []
        if step.absorbed:
            did.append(f"{reduction} absorbed {step.absorbed} from {epilogue} into T.init")
        if step.distributed:
            did.append(f"{reduction} combines {step.distributed} of {epilogue} for every term x")
        if step.tail:
            did.append(f"{epilogue} computes {step.tail} once for each finished x: {step.reason}")
        if step.merged_into:
            did.append(f"{epilogue} is part of '{step.merged_into}' now")
        if not did:
            did.append(f"{reduction} took over the copy {epilogue}")
        if step.removed:
            did.append(f"'{step.removed}' is gone")
        return "; ".join(did) + "."


def report_from_core(raw: Any) -> FusionReport:  # noqa: ANN401 - a map of the ffi
    """Build the report from what the core returns.

    - `raw` (tvm_ffi.Map): texts for every attribute of :class:`FusionReport`, and the certificate's
      map or None.
    """
    stopped, certificate = raw["stopped"], raw["certificate"]
    return FusionReport(
        fusable=len(raw["steps"]) > 0,
        reduction=str(raw["reduction"]),
        output=str(raw["output"]),
        numerics=cast(Numerics, str(raw["numerics"])),
        steps=tuple(FusionStep(*map(str, step)) for step in raw["steps"]),
        kept=tuple(map(str, raw["kept"])),
        stopped=None if stopped is None else Refusal(*map(str, stopped)),
        certificate=None if certificate is None else certificate_from_core(certificate),
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
    >>> import tvm
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(64, 64, 16, bias=False))
    >>> try:
    ...     sch.fuse_reduction_epilogue("matmul")
    ... except tvm.s_tir.ScheduleError as error:
    ...     print(fuse_epilogue.refusal_code(error))
    no-consumer
    """
    last_line = str(error).rstrip("\n").rpartition("\n")[2]
    match = _CODE.match(last_line)
    return match.group(1) if match and match.group(1) in REFUSALS else None
