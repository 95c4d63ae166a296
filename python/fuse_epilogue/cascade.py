"""Fusing reductions that read each other's results: softmax, norms, attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from . import _core
from ._arguments import Numerics, at_least_one
from ._log import logger
from ._printed import Printed, as_line
from .cascade_certificate import CascadeCertificate, CascadeStage, certificate_from_core
from .report import Refusal
from .schedule import BlockRV, _as_block_rv, _exact, _take_back, as_schedule


@dataclass(frozen=True, repr=False)
class CascadeReport(Printed):
    """The result of one call of ``fuse_cascaded_reductions``, or its prediction.

    Attributes
    ----------
    fusable : bool
        Whether anything is fused; false only in a report of ``analyze_cascade``.
    numerics : str
        ``"reassociate"`` or ``"exact"``, as the call asked for.
    gone : tuple[str, ...]
        Elementwise blocks between the reductions that no block needs any more.
    second_pass : tuple[str, ...]
        Blocks that read the results, and therefore run after the fused loop.
    stopped : Refusal or None
        Why a reduction that reads the results is not part of the cascade.
    certificate : CascadeCertificate or None
        The claims that were proved; None if nothing is fused.
    """

    fusable: bool
    numerics: Numerics
    gone: tuple[str, ...]
    second_pass: tuple[str, ...]
    stopped: Refusal | None
    certificate: CascadeCertificate | None

    def __str__(self) -> str:
        """One line for each reduction, the first with the mode of numerics, and what was left."""
        lines = []
        if self.certificate is not None:
            lines = [_sentence(stage, self.certificate) for stage in self.certificate.stages]
        lines += [f"'{name}' reads the results in a second pass." for name in self.second_pass]
        if self.stopped is not None:
            verdict = "Left as it is" if self.fusable else "Not fusable"
            lines.append(f"{verdict} [{self.stopped.code}]: {self.stopped.message}")
        first, *others = lines
        return "\n".join((f"{first} (numerics: {self.numerics})", *others))


def fuse_cascaded_reductions(
    self: Schedule,
    block: BlockRV | str,
    loop: Any = None,  # noqa: ANN401 - TVM's LoopRV, which type checkers take for anything
    *,
    factor: int | None = None,
    parts: int | None = None,
    numerics: Numerics = "reassociate",
) -> CascadeReport:
    """Make one loop of reductions that read each other's results by rows.

    A softmax takes a maximum over each row, then a sum of exp(x - maximum) over the same row. In
    one loop over blocks of the row, the sum is corrected by exp(old - new) where the maximum has
    changed; what divides by the sum waits until it is complete::

        for i, k:                                    for i, b in T.grid(M, N / F):
            m[i] = max(m[i], x[i, k])                    # T.init: m[i] = lowest; s[i] = 0
        for i, k:                                        m_next = max(m[i], x[i, b * F : b * F + F])
            e[i, k] = exp(x[i, k] - m[i])        ->      s_next = s[i] * exp(m[i] - m_next)
        for i, k:                                                 + sum(exp(x[i, ...] - m_next))
            s[i] += e[i, k]                              m[i] = m_next; s[i] = s_next

    The loop is one reduction block of TVM with several outputs, and blocks inside of it. It can be
    split, reordered, tiled and decomposed; blocks that compute its inputs can move into its loop
    with ``compute_at``. Blocks that read the results by elements run after it.

    The call proves that the result stays the same, or refuses. A refused call leaves the module,
    the trace and every random variable as they were. It takes the function's parameters not to
    overlap, as TVM's own primitives do.

    Parameters
    ----------
    block : SBlockRV or str
        A reduction of the cascade, or a block between two of them.
    loop : LoopRV, optional
        Reduction loop of one of the reductions: its axis is cut into blocks, and other reduction
        axes lie inside of a block. The outermost one without it.
    factor : int, optional
        Number of keys (values of that axis) in a block, at least 1; results are corrected once for
        each block. 64, or the axis' extent, or that of a part, if that is less.
    parts : int, optional
        Number of parts that the blocks are divided into, at least 1. Each part has a state of its
        own, and its loop is a spatial one, which may be parallel or bound to threads; reductions
        over the parts follow it. One part, and nothing to merge, without it.
    numerics : {"reassociate", "exact"}
        ``"reassociate"`` allows what corrections and deferred factors change of floats: with B
        blocks the error of a sum of exponentials grows by about B roundings, and a deferred
        division rounds once instead of once for each term. The first reduction of a cascade keeps
        every bit, unless there are parts. In a row with a NaN, what is compared with a maximum may
        differ, and with parts the maximum, too.
        ``"exact"`` accepts reductions of integers only after the first one, and in parts.

    Returns
    -------
    CascadeReport
        The reductions, how each was fused, and why another one was not.

    Raises
    ------
    tvm.s_tir.ScheduleError
        The fusion is refused; :func:`fuse_epilogue.refusal_code` tells the reason's code.
    TypeError
        ``block`` is neither a name nor a block random variable, ``loop`` is not a loop
        random variable, ``factor`` or ``parts`` is not an int, or ``numerics`` is not a str.
    ValueError
        ``factor`` or ``parts`` is less than 1, or ``numerics`` is neither of its two values.

    Example
    -------
    >>> import tvm
    >>> from tvm import te, topi
    >>> import fuse_epilogue
    >>> x = te.placeholder((4, 128), name="x")
    >>> sch = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
    >>> print(sch.fuse_cascaded_reductions("T_softmax_expsum"))
    'T_softmax_maxelem' is computed in blocks of 64 keys. (numerics: reassociate)
    'T_softmax_expsum' is corrected in each block by T.exp(...).
    'T_softmax_exp' reads the results in a second pass.
    'T_softmax_norm' reads the results in a second pass.
    """
    exact, keys, several = _exact(numerics), check_factor(factor), check_parts(parts)
    named: list[Any] = []
    try:
        block_rv = _as_block_rv(self, block, "block", named, "fuse_cascaded_reductions")
        report = report_from_core(
            _core.FuseCascadedReductions(self, block_rv, _loop(loop), exact, keys, several)
        )
        logger.info("fused %s", report)
        return report
    except BaseException:
        _take_back(self, named)
        raise


def analyze_cascade(
    sch: Schedule | tirx.PrimFunc,
    block: BlockRV | str,
    loop: Any = None,  # noqa: ANN401 - TVM's LoopRV, which type checkers take for anything
    *,
    factor: int | None = None,
    parts: int | None = None,
    numerics: Numerics = "reassociate",
) -> CascadeReport:
    """Tell what ``sch.fuse_cascaded_reductions`` would do, without doing it.

    The module, the trace and the random variables stay as they are.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule or tvm.tirx.PrimFunc
        The schedule, or the function, to ask about.
    block, loop, factor, parts, numerics
        As of :func:`fuse_cascaded_reductions`.

    Returns
    -------
    CascadeReport
        The report that the call would return; where it would raise, ``fusable`` is false and
        ``stopped`` says why.

    Raises
    ------
    tvm.s_tir.ScheduleError
        There is no block of that name.
    TypeError, ValueError
        As of :func:`fuse_cascaded_reductions`.

    Example
    -------
    >>> import tvm
    >>> from tvm import te, topi
    >>> import fuse_epilogue
    >>> x = te.placeholder((4, 128), name="x")
    >>> func = te.create_prim_func([x, topi.nn.softmax(x)])
    >>> fuse_epilogue.analyze_cascade(func, "T_softmax_expsum").fusable
    True
    """
    exact, keys, several = _exact(numerics), check_factor(factor), check_parts(parts)
    sch = as_schedule(sch)
    named: list[Any] = []
    try:
        block_rv = _as_block_rv(sch, block, "block", named, "analyze_cascade")
        return report_from_core(
            _core.AnalyzeCascadedReductions(sch, block_rv, _loop(loop), exact, keys, several)
        )
    finally:
        _take_back(sch, named)


def report_from_core(raw: Any) -> CascadeReport:  # noqa: ANN401 - a map of the ffi
    """Build the report from what the core returns.

    - `raw` (tvm_ffi.Map): texts and, under ``"certificate"``, an entry for every attribute of
      :class:`CascadeCertificate`.
    """
    stopped = raw["stopped"]
    fusable = "certificate" in raw
    return CascadeReport(
        fusable=fusable,
        numerics=cast(Numerics, str(raw["numerics"])),
        gone=tuple(map(str, raw["gone"])) if fusable else (),
        second_pass=tuple(map(str, raw["after"])) if fusable else (),
        stopped=None if stopped is None else Refusal(*map(str, stopped)),
        certificate=certificate_from_core(raw["certificate"], raw["removed"]) if fusable else None,
    )


def _sentence(stage: CascadeStage, certificate: CascadeCertificate) -> str:
    name = f"'{stage.name}'"
    did = []
    if stage.rule == "head":
        parts = f", in {certificate.parts} parts" if certificate.parts > 1 else ""
        did.append(f"{name} is computed in blocks of {certificate.factor} keys{parts}")
    if stage.quotient is not None:
        did.append(f"{name} is corrected in each block by {as_line(stage.quotient)}")
    elif stage.rule == "basis":
        did.append(f"{name} becomes {as_line(stage.correction)} before each block")
    if stage.tail is not None:
        did.append(f"{name} computes {as_line(stage.tail)} at the end")
    return "; ".join(did) + "."


def check_factor(factor: int | None) -> int:
    """Return a number of keys in a block for the core, 0 if none is given.

    - Raises TypeError: `factor` is not an int.
    - Raises ValueError: `factor` is less than 1.
    """
    return 0 if factor is None else at_least_one("factor", factor)


def check_parts(parts: int | None) -> int:
    """Return a number of parts for the core, 1 if none is given.

    - Raises TypeError: `parts` is not an int.
    - Raises ValueError: `parts` is less than 1.
    """
    return 1 if parts is None else at_least_one("parts", parts)


def _loop(loop: Any) -> Any:  # noqa: ANN401 - what the user passed
    if loop is None or isinstance(loop, LoopRV):
        return loop
    raise TypeError(f"loop must be an SLoopRV of the schedule, not {type(loop).__name__}")


Schedule.fuse_cascaded_reductions = fuse_cascaded_reductions
