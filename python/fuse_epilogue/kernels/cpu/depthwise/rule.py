"""The rule for depthwise convolutions on a CPU."""

from __future__ import annotations

from tvm import s_tir
from tvm.target import Target

from ....recognize.depthwise import DepthwiseConv
from ....rewrites.step import rewrite
from ....targets import vector_bits
from ....tir.types import bits_of
from ....workloads.arguments import whole
from ...choice import Choice, not_fused
from ...depthwise_rule import DepthwiseRule, with_followers
from .contiguous_conv import streams
from .forms import ELEMENTS, ROWS, TILES, WORDS, Form, written
from .row_limits import why_not_rows
from .streaming import has_streaming_stores, is_large
from .words import VNNI, why_not_words, word_lanes


class DepthwiseConv1d(DepthwiseRule):
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

    kind, label = "llvm", "LLVM"

    def __init__(self, unroll: int = 2, lanes: int | None = None) -> None:
        self.unroll = whole("unroll", unroll)
        self.lanes = None if lanes is None else whole("lanes", lanes)
        if self.lanes is not None and self.lanes & (self.lanes - 1):
            raise ValueError(f"lanes must be a power of two: {lanes!r}")

    def _choose(
        self, sch: s_tir.Schedule, conv: object, found: DepthwiseConv, target: Target
    ) -> Choice:
        lanes = self.lanes or _lanes(target, str(found.out.ty.dtype))
        choice = self._rows(sch, conv, lanes, target)
        if choice.schedule is None:
            choice = self._loops(sch, conv, lanes, choice.why)
        if (made := choice.schedule) is not None:
            rewrite(made, made.get_sblock("root"), "vector_functions")
        return choice

    def _rows(self, sch: s_tir.Schedule, conv: object, lanes: int, target: Target) -> Choice:
        fused = with_followers(sch.copy(), conv)
        if isinstance(fused, str):
            return Choice("", fused)
        why = why_not_rows(fused, lanes)
        if why is not None:
            return Choice("", why)
        large = is_large(fused.buffer) and has_streaming_stores(target)
        form = Form(ROWS, lanes, stream=large and streams(fused, lanes))
        words = 0 if self.lanes else word_lanes(fused, target)
        wide = words * VNNI.count
        if words and not (why_not_rows(fused, wide) or why_not_words(fused, words)):
            form = Form(WORDS, words, stream=large and streams(fused, wide))
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
    return max(1, vector_bits(target) // bits_of(dtype))
