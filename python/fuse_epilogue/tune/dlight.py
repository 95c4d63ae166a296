"""A rule of TVM's dlight that fuses a function before other rules of dlight schedule it."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.target import Target

from .._arguments import Numerics, check_numerics
from .rule import absorb


class DlightFuse(dlight.ScheduleRule):
    """Fuse the epilogues that a function's reductions absorb, then apply the first rule that fits.

    Parameters
    ----------
    *rules : tvm.s_tir.dlight.ScheduleRule
        Tried in order, on the fused function and then on the function as it is. Without any, a
        function with something to absorb is fused and left at that.
    numerics : {"reassociate", "exact"}
        As of ``sch.fuse_reduction_epilogue``.

    Raises
    ------
    ValueError
        `numerics` is neither of its two values.

    Example
    -------
    >>> import tvm
    >>> from tvm.s_tir import dlight
    >>> from fuse_epilogue import tune, workloads
    >>> rules = [dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.Fallback()]
    >>> mod = tvm.IRModule({"main": workloads.matmul(16, 16, 16)})
    >>> with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
    ...     mod = dlight.ApplyDefaultSchedule(tune.DlightFuse(*rules), *rules)(mod)
    """

    def __init__(self, *rules: dlight.ScheduleRule, numerics: Numerics = "reassociate") -> None:
        check_numerics(numerics)
        self.rules = rules
        self.numerics = numerics

    def apply(
        self, func: tirx.PrimFunc, target: Target, tunable: bool
    ) -> None | s_tir.Schedule | list[s_tir.Schedule]:
        """Schedule one function.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
        target : tvm.target.Target
        tunable : bool
            Whether a search is to choose.

        Returns
        -------
        None, Schedule or list[Schedule]
            None if no rule fits. If tunable, the spaces of the function as it is and of the fused
            one; each has a trace that begins with the function as it is, the fusion included.
            Otherwise the schedule of the fused function, if its rule could do it, else the other.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import tune, workloads
        >>> func, target = workloads.matmul(16, 16, 16), tvm.target.Target("llvm")
        >>> tune.DlightFuse().apply(func, target, False).mod["main"] == func
        False
        """
        fused = s_tir.Schedule(func)
        blocks = _reductions(fused)
        changed = [block for block in blocks if absorb(fused, block, self.numerics)]
        spaces = self._on_fused(fused, target, tunable) if changed else []
        if spaces and not tunable:
            return spaces[0]
        plain = self._first(func, target, tunable)
        spaces = plain + spaces
        if not spaces:
            return None
        return spaces if tunable else spaces[0]

    def _on_fused(
        self, fused: s_tir.Schedule, target: Target, tunable: bool
    ) -> list[s_tir.Schedule]:
        """Return the schedules of the rules, with the fusion at the start of their traces."""
        if not self.rules:
            return [fused]
        try:
            inner = self._first(fused.mod["main"], target, tunable)
        except s_tir.ScheduleError:
            # A rule that takes an init for a constant, with a primitive that is refused here.
            return []
        whole = []
        for sch in inner:
            both = fused.copy()
            try:
                sch.trace.apply_to_schedule(both, remove_postproc=False)
            except s_tir.ScheduleError:
                continue
            # Not so if the rule has changed the function by other means than its schedule.
            if tvm_ffi.structural_equal(both.mod["main"].body, sch.mod["main"].body):
                whole.append(both)
        return whole

    def _first(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> list[s_tir.Schedule]:
        for rule in self.rules:
            if not rule.is_target_available(target):
                continue
            found: Any = rule.apply(func, target, tunable)
            if found is not None:
                return [found] if isinstance(found, s_tir.Schedule) else list(found)
        return []


def _reductions(sch: s_tir.Schedule) -> list[Any]:
    """Return the blocks of a function that have an init."""
    root = sch.get_sblock("root")
    return [block for block in sch.get_child_blocks(root) if sch.get(block).init is not None]
