"""The rule for depthwise convolutions on a CPU."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from ....recognize.depthwise import find_depthwise_conv
from ....rewrites.fused import find_fused_conv, fuse_followers
from ....rewrites.prepare import prepare, why_not_prepared
from ....rewrites.step import rewrite
from ....targets import vector_bits
from ....workloads.arguments import whole
from ...choice import NO_CONVOLUTION, NO_TAIL, Choice, not_fused
from .contiguous_conv import streams
from .forms import ELEMENTS, ROWS, TILES, Form, written
from .row_limits import why_not_rows
from .streaming import has_streaming_stores, is_large


class DepthwiseConv1d(ScheduleRule):
    """Schedules a depthwise convolution along one dimension and all that follows it, for LLVM.

    The convolution is found by what it computes: padding, bias, activation, casts and a slice of
    the result around it become part of one pass over memory. Any sizes, symbolic ones included.
    exp and sigmoid of float32 are computed in vectors, within a few units in the last place of what
    the C library returns: see :mod:`fuse_epilogue.kernels.cpu.vector_math`.

    Parameters
    ----------
    unroll : int
        Vectors of the result that are computed together where that is not left to LLVM, from 1.
    lanes : int, optional
        Elements of a vector, a power of two; as many as a register of the target holds if None.

    Raises
    ------
    ValueError
        `unroll` or `lanes` is not such a number.

    Example
    -------
    >>> import tvm
    >>> from tvm.s_tir import dlight as dl
    >>> from fuse_epilogue.schedules.cpu import DepthwiseConv1d
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> mod = tvm.IRModule({"main": depthwise_conv1d(8, 512, 2048, 3)})
    >>> with tvm.target.Target("llvm"):
    ...     mod = dl.ApplyDefaultSchedule(DepthwiseConv1d())(mod)
    """

    def __init__(self, unroll: int = 2, lanes: int | None = None) -> None:
        self.unroll = whole("unroll", unroll)
        self.lanes = None if lanes is None else whole("lanes", lanes)
        if self.lanes is not None and self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes must be a power of two: {lanes!r}")

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

        Returns
        -------
        tvm.s_tir.Schedule or None
            A new one.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.schedules.cpu import DepthwiseConv1d
        >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3)
        >>> target = tvm.target.Target("llvm")
        >>> DepthwiseConv1d().apply(conv, target) is None
        False
        >>> DepthwiseConv1d().apply(workloads.matmul(8, 8, 8), target) is None
        True
        """
        return self.choose(func, target).schedule

    def choose(self, func: tirx.PrimFunc, target: Target) -> Choice:
        """Return how a function is scheduled for LLVM, and why not better.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
        target : tvm.target.Target

        Returns
        -------
        fuse_epilogue.kernels.choice.Choice
            Its `schedule` is None where :meth:`apply` returns None, and its `why` says the reason.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.schedules.cpu import DepthwiseConv1d
        >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3)
        >>> target = tvm.target.Target("llvm")
        >>> print(DepthwiseConv1d().choose(workloads.matmul(8, 8, 8), target))
        not scheduled: its reduction is not a convolution of each channel with its own filter
        """
        if target.kind.name != "llvm":
            return Choice("", f"this rule is for LLVM, not for '{target.kind.name}'")
        prepared = prepare(func)
        if prepared is None:
            return Choice("", why_not_prepared(func))
        sch, conv = prepared
        found = find_depthwise_conv(sch.get(conv))
        if found is None:
            return Choice("", NO_CONVOLUTION)
        lanes = self.lanes or _lanes(target, str(found.out.ty.dtype))
        choice = self._rows(sch, conv, lanes, target)
        if choice.schedule is None:
            choice = self._loops(sch, conv, lanes, choice.why)
        if choice.schedule is not None:
            made = choice.schedule
            rewrite(made, made.get_sblock("root"), "vector_functions")
        return choice

    def _rows(self, sch: s_tir.Schedule, conv: object, lanes: int, target: Target) -> Choice:
        fusing = sch.copy()
        try:
            fuse_followers(fusing, conv)
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        fused = find_fused_conv(fusing, conv)
        if fused is None:
            return Choice("", NO_TAIL)
        why = why_not_rows(fused, lanes)
        if why is not None:
            return Choice("", why)
        large = is_large(fused.buffer) and has_streaming_stores(target)
        form = Form(ROWS, lanes, stream=large and streams(fused, lanes))
        return Choice(form.name, schedule=written(sch.copy(), conv, form))

    def _loops(self, sch: s_tir.Schedule, conv: object, lanes: int, why: str) -> Choice:
        why = f"not in rows: {why}"
        try:
            tiles = written(sch.copy(), conv, Form(TILES, lanes, self.unroll))
            return Choice(TILES, why, tiles)
        except s_tir.ScheduleError:
            pass
        try:
            elements = written(sch, conv, Form(ELEMENTS))
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        why = f"{why}; not in tiles: one of TVM's primitives refuses the loops"
        return Choice(ELEMENTS, why, elements)


def _lanes(target: Target, dtype: str) -> int:
    """Return how many sums fit into a vector register of the target."""
    return max(1, vector_bits(target) // int(tvm.DataType(dtype).bits))
