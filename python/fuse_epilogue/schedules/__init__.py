"""Schedules for whole functions: rules in the style of TVM's dlight, built on fusing epilogues.

- :func:`apply` schedules a function for a target; :func:`host` is the target of this machine.
- :class:`fuse_epilogue.schedules.cpu.DepthwiseConv1d` is the rule for LLVM.
- :class:`fuse_epilogue.schedules.cuda.DepthwiseConv1d` is the rule for CUDA.
"""

from __future__ import annotations

import tvm
from tvm import ir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from . import cpu, cuda
from .targets import host

__all__ = ["apply", "cpu", "cuda", "host"]

#: The rules for a kind of target, tried in order.
RULES: dict[str, tuple[ScheduleRule, ...]] = {
    "cuda": (cuda.DepthwiseConv1d(),),
    "llvm": (cpu.DepthwiseConv1d(),),
}


def apply(func: tirx.PrimFunc, target: Target | str | dict) -> ir.IRModule:
    """Schedule a function with the first rule that knows it.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        One reduction with elementwise work around it, not scheduled.
    target : tvm.target.Target, str or dict
        What it is for; the same target goes to ``tvm.compile``. A plain "llvm" is a processor with
        vectors of 128 bits: take :func:`host` for this machine.

    Returns
    -------
    tvm.ir.IRModule
        With the scheduled function as "main".

    Raises
    ------
    TypeError
        `func` is not a PrimFunc.
    ValueError
        There are no rules for this kind of target, or no rule knows the function.

    Example
    -------
    >>> from fuse_epilogue import schedules, workloads
    >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3, activation="relu")
    >>> target = schedules.host()
    >>> built = tvm.compile(schedules.apply(conv, target), target=target)
    """
    if not isinstance(func, tirx.PrimFunc):
        raise TypeError(f"func must be a PrimFunc, not {type(func).__name__}")
    target = target if isinstance(target, Target) else Target(target)
    kind = target.kind.name
    if kind not in RULES:
        known = ", ".join(sorted(RULES))
        raise ValueError(f"there is no schedule for target kind '{kind}', only for {known}")
    for rule in RULES[kind]:
        sch = rule.apply(func, target, False)
        if sch is not None:
            return tvm.IRModule({"main": sch.mod["main"].with_attr("tirx.is_scheduled", True)})
    names = ", ".join(type(rule).__name__ for rule in RULES[kind])
    raise ValueError(
        f"no schedule for '{kind}' knows this function (known: {names}): it must have exactly one "
        "reduction, a convolution of each channel with its own filter, not scheduled, and before "
        "it only blocks that can be inlined"
    )
