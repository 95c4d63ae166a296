"""Schedules for whole functions: rules in the style of TVM's dlight, built on fusing epilogues.

- :func:`apply` schedules a function for a target; :func:`host` is the target of this machine.
- :func:`explain` says how, and what is against a better form.
- :class:`fuse_epilogue.schedules.cpu.DepthwiseConv1d` is the rule for LLVM.
- :class:`fuse_epilogue.schedules.cuda.DepthwiseConv1d` is the rule for CUDA.
- :mod:`fuse_epilogue.schedules.neuron` has the rules for Trainium.
"""

from __future__ import annotations

from typing import Any, Protocol

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.target import Target

from ..neuron.machine import MACHINES, Machine
from . import cpu, cuda, neuron
from .choice import Choice
from .targets import host

__all__ = ["apply", "cpu", "cuda", "explain", "host", "neuron"]


class Rule(Protocol):
    """What schedules one kind of function."""

    def apply(self, func: tirx.PrimFunc, target: Any, tunable: bool) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None."""

    def choose(self, func: tirx.PrimFunc, target: Any) -> Choice:
        """Return how a function is scheduled, and why not better."""


#: The rules for Trainium, and for a kind of TVM's targets, tried in order.
NEURON: tuple[Rule, ...] = (
    neuron.DepthwiseConv1d(),
    neuron.Matmul(),
    neuron.RowReduce(),
    neuron.Elementwise(),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "cuda": (cuda.DepthwiseConv1d(),),
    "llvm": (cpu.DepthwiseConv1d(),),
}


def apply(func: tirx.PrimFunc, target: Target | Machine | str | dict) -> ir.IRModule:
    """Schedule a function with the first rule that knows it.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        One reduction with elementwise work around it, not scheduled.
    target : tvm.target.Target, Machine, str or dict
        What it is for; the same target goes to ``tvm.compile``. A plain "llvm" is a processor with
        vectors of 128 bits: take :func:`host` for this machine. ``"trn1"`` and ``"trn2"``: for
        :func:`fuse_epilogue.neuron.emit`.

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
    target, rules = _rules(func, target)
    for rule in rules:
        sch = rule.apply(func, target, False)
        if sch is not None:
            return tvm.IRModule({"main": sch.mod["main"].with_attr("tirx.is_scheduled", True)})
    names = ", ".join(type(rule).__name__ for rule in rules)
    reasons = "; ".join(dict.fromkeys(rule.choose(func, target).why for rule in rules))
    kind = target.name if isinstance(target, Machine) else target.kind.name
    raise ValueError(f"no schedule for '{kind}' knows this function (known: {names}): {reasons}")


def explain(func: tirx.PrimFunc, target: Target | Machine | str | dict) -> str:
    """Say how :func:`apply` schedules a function, and what is against a better form.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
    target : tvm.target.Target, Machine, str or dict
        As for :func:`apply`.

    Returns
    -------
    str
        A line for each rule that was tried, the last for the one that knows the function.

    Raises
    ------
    TypeError
        `func` is not a PrimFunc.
    ValueError
        There are no rules for this kind of target.

    Example
    -------
    >>> from fuse_epilogue import schedules, workloads
    >>> print(schedules.explain(workloads.depthwise_conv1d(8, 512, 2048, 3, stride=2), "llvm"))
    DepthwiseConv1d: tiles of loops; not in rows: its stride is 2, not 1
    """
    target, rules = _rules(func, target)
    lines = []
    for rule in rules:
        choice = rule.choose(func, target)
        lines.append(f"{type(rule).__name__}: {choice}")
        if choice.func is not None:
            break
    return "\n".join(lines)


def _rules(
    func: tirx.PrimFunc, target: Target | Machine | str | dict
) -> tuple[Any, tuple[Rule, ...]]:
    """Return a target as TVM knows it, or a machine, and the rules for it."""
    if not isinstance(func, tirx.PrimFunc):
        raise TypeError(f"func must be a PrimFunc, not {type(func).__name__}")
    if isinstance(target, str) and target in MACHINES:
        target = MACHINES[target]
    if isinstance(target, Machine):
        for param in func.params:
            for extent in getattr(param.ty, "shape", ()):
                if not isinstance(extent, prim.IntImm):
                    raise ValueError(
                        f"'{param.name}' has a size of {extent}: for Trainium sizes are numbers, "
                        "make the function with numbers"
                    )
        return target, NEURON
    target = target if isinstance(target, Target) else Target(target)
    kind = target.kind.name
    if kind not in RULES:
        known = ", ".join(sorted([*RULES, *MACHINES]))
        raise ValueError(f"there is no schedule for target kind '{kind}', only for {known}")
    return target, RULES[kind]
