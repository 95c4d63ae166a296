"""The rule for depthwise convolutions on a GPU."""

from __future__ import annotations

from dataclasses import replace

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from ....recognize.depthwise import find_depthwise_conv
from ....rewrites.fused import FusedConv, find_fused_conv, fuse_followers
from ....rewrites.prepare import prepare, why_not_prepared
from ....tir.nest import child_names
from ...choice import NO_CONVOLUTION, NO_TAIL, Choice, not_fused
from .channels import find_channels, in_channels
from .contiguous_conv import find_rows, in_rows
from .elements import in_elements
from .loops import in_loops
from .narrow import with_wrapping


class DepthwiseConv1d(ScheduleRule):
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

    def apply(
        self, func: tirx.PrimFunc, target: Target, tunable: bool = False
    ) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None if it is not such a convolution.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
        target : tvm.target.Target
            None is returned for a target whose kind is not "cuda".
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
        >>> from fuse_epilogue.schedules.cuda import DepthwiseConv1d
        >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3)
        >>> target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
        >>> DepthwiseConv1d().apply(conv, target) is None
        False
        >>> DepthwiseConv1d().apply(workloads.matmul(8, 8, 8), target) is None
        True
        """
        return self.choose(func, target).schedule

    def choose(self, func: tirx.PrimFunc, target: Target) -> Choice:
        """Return how a function is scheduled for CUDA, and why it has several kernels if it has.

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
        >>> from fuse_epilogue.schedules.cuda import DepthwiseConv1d
        >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3)
        >>> target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
        >>> print(DepthwiseConv1d().choose(workloads.matmul(8, 8, 8), target))
        not scheduled: its reduction is not a convolution of each channel with its own filter
        """
        choice = self._choose(func, target)
        if choice.schedule is None:
            return choice
        wrapped = with_wrapping(choice.schedule.mod["main"])
        return replace(choice, schedule=s_tir.Schedule(wrapped))

    def _choose(self, func: tirx.PrimFunc, target: Target) -> Choice:
        if target.kind.name != "cuda":
            return Choice("", f"this rule is for CUDA, not for '{target.kind.name}'")
        prepared = prepare(func)
        if prepared is None:
            return Choice("", why_not_prepared(func))
        sch, conv = prepared
        if find_depthwise_conv(sch.get(conv)) is None:
            return Choice("", NO_CONVOLUTION)
        choice = self._in_registers(sch.copy(), conv)
        if choice.schedule is not None:
            return choice
        try:
            in_loops(sch, conv)
        except s_tir.ScheduleError:
            return Choice(
                "",
                "a block after its reduction has loops that cannot be parallel, or that are not "
                "those of its axes",
            )
        kernels = len(child_names(sch.mod["main"]))
        form = "one kernel" if kernels == 1 else f"{kernels} kernels, one for each block"
        return Choice(form, f"not in registers: {choice.why}", sch)

    def _in_registers(self, sch: s_tir.Schedule, conv: object) -> Choice:
        """Choose a function whose threads hold windows of x in registers."""
        try:
            fuse_followers(sch, conv)
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        fused = find_fused_conv(sch, conv)
        if fused is None:
            return Choice("", NO_TAIL)
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
