"""Base of the rules for depthwise convolutions on TVM's targets, with dlight's interface."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from ..recognize.depthwise import DepthwiseConv, find_depthwise_conv
from ..rewrites.fused_conv import FusedConv, find_fused_conv, fuse_followers
from ..rewrites.prepare import prepare, why_not_prepared
from .choice import NO_CONVOLUTION, NO_TAIL, Choice, not_fused


class DepthwiseRule(ScheduleRule):
    """Schedules a depthwise convolution for one kind of target.

    - `kind`, `label`: the kind of target, as TVM and as a message calls it.
    """

    kind: ClassVar[str]
    label: ClassVar[str]

    def apply(
        self, func: tirx.PrimFunc, target: Target, tunable: bool = False
    ) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None if it is not such a convolution.

        - `func`: not scheduled.
        - `target`: of another kind, there is no schedule.
        - `tunable`: not used: nothing is left to tune.
        """
        return self.choose(func, target).schedule

    def choose(self, func: tirx.PrimFunc, target: Target) -> Choice:
        """Return how a function is scheduled, and why not better."""
        if target.kind.name != self.kind:
            return Choice("", f"this rule is for {self.label}, not for '{target.kind.name}'")
        prepared = prepare(func)
        if prepared is None:
            return Choice("", why_not_prepared(func))
        sch, conv = prepared
        found = find_depthwise_conv(sch.get(conv))
        return (
            Choice("", NO_CONVOLUTION) if found is None else self._choose(sch, conv, found, target)
        )

    @abstractmethod
    def _choose(
        self, sch: s_tir.Schedule, conv: object, found: DepthwiseConv, target: Target
    ) -> Choice:
        """Return how a convolution is scheduled; the schedule is used up."""


def with_followers(sch: s_tir.Schedule, conv: object) -> FusedConv | str:
    """Fuse all that follows a convolution; return the result, or why that is not possible."""
    try:
        fuse_followers(sch, conv)
    except s_tir.ScheduleError as error:
        return not_fused(error)
    return find_fused_conv(sch, conv) or NO_TAIL
