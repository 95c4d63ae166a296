"""The schedule primitive as a method of :class:`tvm.s_tir.Schedule`."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV, _ffi_api

from . import _core
from .report import FusionReport, report_from_core


def fuse_reduction_epilogue(
    self: Schedule,
    block: SBlockRV | str | None = None,
    epilogue_block: SBlockRV | str | None = None,
    *,
    reduction_block: SBlockRV | str | None = None,
) -> FusionReport:
    """Fuse a reduction with the elementwise blocks that follow it.

    What is added to the finished sum becomes the value the sum starts from, and the intermediate
    buffer disappears::

        temp[i, j] = 0                                 D[i, j] = C[i, j]
        temp[i, j] += A[i, k] * B[j, k]        ->      D[i, j] += A[i, k] * B[j, k]
        D[i, j] = temp[i, j] + C[i, j]

    The call proves that the result stays the same, or refuses. Integers stay equal bit for bit;
    floating sums are reassociated: the bias is the first term instead of the last. A refused call
    leaves the module, the trace and every random variable as they were.

    Parameters
    ----------
    block : SBlockRV or str
        The reduction block, or an elementwise block that reads its result. All consumers that
        follow one another are fused, up to the first that cannot be.
    epilogue_block : SBlockRV or str, optional
        The only epilogue to fuse; ``block`` is the reduction then.
    reduction_block : SBlockRV or str, optional
        Another name for ``block``, as TVM's own primitive calls it.

    Returns
    -------
    FusionReport
        What was absorbed, and why the next consumer was not.

    Raises
    ------
    tvm.s_tir.ScheduleError
        The fusion is refused; :func:`fuse_epilogue.refusal_code` tells the reason's code.
    TypeError
        No block is given, or it is neither a name nor a block random variable.

    Example
    -------
    >>> sch = tvm.s_tir.Schedule(matmul_bias)                   # doctest: +SKIP
    >>> print(sch.fuse_reduction_epilogue("matmul"))            # doctest: +SKIP
    'matmul' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone.
    """
    if (block is None) == (reduction_block is None):
        raise TypeError(
            "fuse_reduction_epilogue takes one reduction: pass either block or reduction_block"
        )
    first = block if block is not None else reduction_block
    named: list[SBlockRV] = []  # random variables made here, to be taken back on a refusal
    try:
        first_rv = _as_block_rv(self, first, "block", named)
        second_rv = None
        if epilogue_block is not None:
            second_rv = _as_block_rv(self, epilogue_block, "epilogue_block", named)
        return report_from_core(_core.FuseReductionEpilogue(self, first_rv, second_rv))
    except BaseException:
        for block_rv in reversed(named):
            if self.trace is not None:
                self.trace.pop()
            self.remove_rv(block_rv)
        raise


def _as_block_rv(
    sch: Schedule,
    block: Any,  # noqa: ANN401 - whatever the user passed
    argument: str,
    named: list[SBlockRV],
) -> SBlockRV:
    if isinstance(block, SBlockRV):
        return block
    if isinstance(block, str):
        named.append(sch.get_sblock(block))
        return named[-1]
    raise TypeError(
        f"fuse_reduction_epilogue: {argument} must be a block's name or an SBlockRV, "
        f"not {type(block).__name__}"
    )


def _install() -> None:
    Schedule.fuse_reduction_epilogue = fuse_reduction_epilogue
    # TVM's primitives that move or rename an init, made safe for one that is not a constant.
    _ffi_api.ScheduleDecomposeReduction = _core.DecomposeReduction
    for instruction, guarded in _core.Guarded().items():
        setattr(_ffi_api, f"Schedule{instruction}", guarded)


_install()
