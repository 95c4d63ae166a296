"""The rule for depthwise convolutions on a CPU."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from ..convolution import find_depthwise_conv
from ..fused import find_fused_conv, fuse_followers
from ..prepare import prepare
from .functions import with_vector_functions
from .loops import in_loops, one_by_one
from .rows import can_be_rows, in_rows


class DepthwiseConv1d(ScheduleRule):
    """Schedules a depthwise convolution along one dimension and all that follows it, for LLVM.

    The convolution is found by what it computes: padding, bias, activation, casts and a slice of
    the result around it become part of one pass over memory. Any sizes, symbolic ones included.
    exp and sigmoid of float32 are computed in vectors, within a few units in the last place of what
    the C library returns: see :mod:`fuse_epilogue.schedules.cpu.functions`.

    Parameters
    ----------
    unroll : int
        Vectors of the result that are computed together.
    lanes : int, optional
        Elements of a vector, a power of two; as many as a register of the target holds if None.

    Example
    -------
    >>> from tvm.s_tir import dlight as dl
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> mod = tvm.IRModule({"main": depthwise_conv1d(8, 512, 2048, 3)})
    >>> with tvm.target.Target("llvm"):
    ...     mod = dl.ApplyDefaultSchedule(DepthwiseConv1d())(mod)
    """

    def __init__(self, unroll: int = 2, lanes: int | None = None) -> None:
        self.unroll = unroll
        self.lanes = lanes

    def apply(
        self, func: tirx.PrimFunc, target: Target, tunable: bool = False
    ) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None if it is not such a convolution.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
        target : tvm.target.Target
            None is returned for a target whose kind is not "llvm".
        tunable : bool
            Not used: nothing is left to tune.
        """
        prepared = prepare(func) if target.kind.name == "llvm" else None
        if prepared is None:
            return None
        sch, conv = prepared
        found = find_depthwise_conv(sch.get(conv))
        if found is None:
            return None
        lanes = self.lanes or _lanes(target, str(found.out.ty.dtype))
        scheduled = self._rows(sch.copy(), conv, lanes, target)
        if scheduled is None:
            try:
                scheduled = in_loops(sch.copy(), conv, found, lanes, self.unroll).mod["main"]
            except s_tir.ScheduleError:
                try:
                    scheduled = one_by_one(sch, conv, found).mod["main"]
                except s_tir.ScheduleError:
                    return None
        return s_tir.Schedule(with_vector_functions(scheduled))

    def _rows(
        self, sch: s_tir.Schedule, conv: object, lanes: int, target: Target
    ) -> tirx.PrimFunc | None:
        try:
            fuse_followers(sch, conv)
        except s_tir.ScheduleError:
            return None
        fused = find_fused_conv(sch, conv)
        if fused is None or lanes < 2 or not can_be_rows(fused):
            return None
        return in_rows(sch.mod["main"], fused, lanes, self.unroll, target)


def _lanes(target: Target, dtype: str) -> int:
    """Return how many sums fit into a vector register of the target."""
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    if has("sse2", target):
        # TVM says 512 bits for all of x86; code for a target without a processor has 128.
        bits = 512 if has("avx512f", target) else 256 if has("avx", target) else 128
    else:
        bits = int(tvm.get_global_func("target.llvm_get_vector_width")(target))
    return max(1, bits // int(tvm.DataType(dtype).bits))
