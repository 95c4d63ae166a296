"""The rule for depthwise convolutions on a GPU."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from ..convolution import find_depthwise_conv
from ..fused import FusedConv, find_fused_conv, fuse_followers
from ..prepare import prepare
from .channels import find_channels, in_channels
from .elements import in_elements
from .loops import in_loops
from .rows import find_rows, in_rows


class DepthwiseConv1d(ScheduleRule):
    """Schedules a depthwise convolution along one dimension and all that follows it, for CUDA.

    The convolution is found by what it computes: padding, bias, activation, casts and a slice of
    the result around it become part of one pass over memory. Any sizes, symbolic ones included.

    Example
    -------
    >>> import tvm
    >>> from tvm.s_tir import dlight as dl
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
        """
        prepared = prepare(func) if target.kind.name == "cuda" else None
        if prepared is None:
            return None
        sch, conv = prepared
        if find_depthwise_conv(sch.get(conv)) is None:
            return None
        in_registers = self._in_registers(sch.copy(), conv)
        if in_registers is not None:
            return s_tir.Schedule(in_registers)
        try:
            in_loops(sch, conv)
        except s_tir.ScheduleError:
            return None
        return sch

    def _in_registers(self, sch: s_tir.Schedule, conv: object) -> tirx.PrimFunc | None:
        """Return a function whose threads hold windows of x in registers, if there is such."""
        try:
            fuse_followers(sch, conv)
        except s_tir.ScheduleError:
            return None
        fused = find_fused_conv(sch, conv)
        if fused is None or _reads_result(fused):
            return None
        rows = find_rows(fused)
        if rows is not None:
            return in_rows(sch.mod["main"], fused, rows)
        channels = find_channels(fused)
        made = None if channels is None else in_channels(sch.mod["main"], fused, channels)
        return made or in_elements(sch.mod["main"], fused)


def _reads_result(fused: FusedConv) -> bool:
    """Whether a thread would read what another one may have written."""
    return any(load.source.same_as(fused.buffer) for load in fused.reads)
