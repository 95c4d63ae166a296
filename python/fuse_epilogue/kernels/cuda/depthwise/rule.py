"""The rule for depthwise convolutions on a GPU."""

from __future__ import annotations

from dataclasses import replace

from tvm import s_tir
from tvm.target import Target

from ....recognize.depthwise import DepthwiseConv
from ....rewrites.fused_conv import FusedConv
from ....tir.nest import child_names
from ...choice import Choice
from ...depthwise_rule import DepthwiseRule, with_followers
from .channels import find_channels, in_channels
from .contiguous_conv import find_rows, in_rows
from .elements import in_elements
from .loops import in_loops
from .narrow import with_wrapping


class DepthwiseConv1d(DepthwiseRule):
    """Schedules a depthwise convolution along one dimension and all that follows it, for CUDA.

    The convolution is found by what it computes: padding, bias, activation, casts and a slice of
    the result around it become part of one pass over memory. Any sizes, symbolic ones included.

    Where what follows cannot become part of that pass, each block that is left has a kernel of its
    own: :func:`fuse_epilogue.schedules.explain` says so, and why.

    Example
    -------
    >>> import tvm
    >>> from tvm.s_tir import dlight as dl
    >>> from fuse_epilogue.schedules.cuda import DepthwiseConv1d
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> mod = tvm.IRModule({"main": depthwise_conv1d(8, 512, 2048, 3)})
    >>> with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
    ...     mod = dl.ApplyDefaultSchedule(DepthwiseConv1d())(mod)
    """

    kind, label = "cuda", "CUDA"

    def _choose(
        self, sch: s_tir.Schedule, conv: object, found: DepthwiseConv, target: Target
    ) -> Choice:
        choice = _in_registers(sch.copy(), conv)
        if choice.schedule is None:
            choice = _in_kernels(sch, conv, choice.why)
        if choice.schedule is None:
            return choice
        wrapped = with_wrapping(choice.schedule.mod["main"])
        return replace(choice, schedule=s_tir.Schedule(wrapped))


def _in_kernels(sch: s_tir.Schedule, conv: object, why: str) -> Choice:
    """Choose a kernel for each block; `why` says why one kernel cannot compute all in registers."""
    try:
        in_loops(sch, conv)
    except s_tir.ScheduleError:
        return Choice(
            "",
            "a block after its reduction has loops that cannot be parallel, or that are not those "
            "of its axes",
        )
    kernels = len(child_names(sch.mod["main"]))
    form = "one kernel" if kernels == 1 else f"{kernels} kernels, one for each block"
    return Choice(form, f"not in registers: {why}", sch)


def _in_registers(sch: s_tir.Schedule, conv: object) -> Choice:
    """Choose a function whose threads hold windows of x in registers."""
    fused = with_followers(sch, conv)
    if isinstance(fused, str):
        return Choice("", fused)
    if reads_result(fused):
        return Choice("", "it reads what it writes")
    main = sch.mod["main"]
    rows = find_rows(fused)
    if rows is not None:
        made = in_rows(main, fused, rows)
        return Choice("rows, in vectors", schedule=s_tir.Schedule(made))
    channels = find_channels(fused)
    vectors = None if channels is None else in_channels(main, fused, channels)
    if vectors is not None:
        return Choice("vectors of channels", schedule=s_tir.Schedule(vectors))
    elements = in_elements(main, fused)
    return Choice("a thread for each element", schedule=s_tir.Schedule(elements))


def reads_result(fused: FusedConv) -> bool:
    """Whether a thread would read what another one may have written."""
    return any(load.source.same_as(fused.buffer) for load in fused.reads)
