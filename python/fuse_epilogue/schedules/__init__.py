"""Schedules for whole functions: chosen by the planner, or by rules in the style of TVM's dlight.

- :func:`apply` schedules a function for a target; :func:`host` is the target of this machine.
- :func:`explain` says how, and why so.

The planner, :func:`fuse_epilogue.plan`, comes first: what it knows it schedules by what it costs on
the machine. What it does not know, such as sizes that are symbols, goes to the rules:

- :class:`fuse_epilogue.schedules.cpu.DepthwiseConv1d` is the rule for LLVM.
- :class:`fuse_epilogue.schedules.cuda.DepthwiseConv1d` is the rule for CUDA.
- :mod:`fuse_epilogue.schedules.neuron` has the rules for Trainium.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import tvm
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.target import Target

from .._arguments import prim_func
from .._printed import last_line
from ..kernels.choice import Choice
from ..kernels.cpu import stream
from ..kernels.cpu.stream import lanes
from ..kernels.scheduled import Scheduled
from ..neuron.machine import MACHINES, Machine
from ..planner import Plan, plan
from ..rewrites.step import rewrite
from ..targets import as_target, host, named
from ..transform.kinds import Work, streams_on_gpu
from . import cpu, cuda, neuron

__all__ = ["Rule", "apply", "cpu", "cuda", "explain", "host", "neuron"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


class Rule(Protocol):
    """A rule that schedules one kind of function, as all classes of the packages below are.

    Example
    -------
    >>> from fuse_epilogue import schedules
    >>> rules: list[schedules.Rule] = [schedules.neuron.Matmul(), schedules.neuron.Transpose()]
    """

    def apply(
        self, func: tirx.PrimFunc, target: Any, tunable: bool = False
    ) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None if the rule does not know it.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
            Not scheduled; for Trainium, with constant sizes.
        target : tvm.target.Target or str
            ``"trn1"``, ``"trn2"`` or ``"trn3"`` for Trainium. The rules for LLVM and CUDA return
            None for a target of another kind.
        tunable : bool
            Not used: nothing is left to tune.

        Returns
        -------
        tvm.s_tir.Schedule or None
            A new one. Its trace replays on the function, from JSON as well.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import schedules, workloads
        >>> rule, target = schedules.cpu.DepthwiseConv1d(), tvm.target.Target("llvm")
        >>> rule.apply(workloads.depthwise_conv1d(8, 512, 2048, 3), target) is None
        False
        >>> rule.apply(workloads.matmul(8, 8, 8), target) is None
        True
        """

    def choose(self, func: tirx.PrimFunc, target: Any) -> Choice:
        """Return how a function is scheduled, and why not in a better way.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
        target : tvm.target.Target or str
            As for :meth:`apply`.

        Returns
        -------
        fuse_epilogue.kernels.choice.Choice
            Its `schedule` is None where :meth:`apply` returns None, and its `why` says the reason.

        Example
        -------
        >>> import tvm
        >>> from fuse_epilogue import schedules, workloads
        >>> rule = schedules.cuda.DepthwiseConv1d()
        >>> target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
        >>> print(rule.choose(workloads.matmul(8, 8, 8), target))
        not scheduled: its reduction is not a convolution of each channel with its own filter
        """


def neuron_rules(finite: bool = False, round_shares: bool = False) -> tuple[Rule, ...]:
    """Return the rules for Trainium, in the order in which they are tried.

    - `finite`: whether all data is finite: the tensor engine may then do what would spoil other
      elements.
    - `round_shares`: whether attention may round its shares to the type of the values.
    """
    return (
        neuron.DepthwiseConv1d(finite=finite),
        neuron.Matmul(),
        neuron.Transpose(finite=finite),
        neuron.Movement(finite=finite),
        neuron.RowReduce(),
        neuron.Elementwise(),
        neuron.Attention(finite=finite, round_shares=round_shares),
        neuron.Conv2d(finite=finite),
        neuron.Windows2d(),
        neuron.RowStages(),
        neuron.StreamUpdate(),
        neuron.StreamConv(),
    )


NEURON = neuron_rules()
#: The rules for a kind of TVM's targets, tried in order.
RULES: dict[str, tuple[Rule, ...]] = {
    "cuda": (cuda.DepthwiseConv1d(),),
    "llvm": (cpu.DepthwiseConv1d(),),
}


def apply(
    func: tirx.PrimFunc | s_tir.Schedule, target: Target | Machine | str | dict
) -> ir.IRModule:
    """Schedule a function by a plan, or with the first rule that knows it.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        One reduction with elementwise work around it, not scheduled. For processors: a product of
        matrices or rows reduced to a number each, with fixed sizes, or a depthwise convolution of
        any sizes. A schedule means the function that it works on.
    target : tvm.target.Target, Machine, str or dict
        Target of the schedule; the same target goes to ``tvm.compile``. A plain "llvm" is a
        processor with vectors of 128 bits: ``"host"``, or :func:`host`, is this machine, and
        ``"h100"`` a GPU by its name. Its "num-cores" is
        how many cores a plan uses; without it, as many as TVM's parallel loops run on.
        ``"trn1"``, ``"trn2"`` and ``"trn3"``: for :func:`fuse_epilogue.neuron.emit`.

    Returns
    -------
    tvm.ir.IRModule
        With the scheduled function as "main".

    Raises
    ------
    TypeError
        `func` is neither a PrimFunc nor a Schedule.
    ValueError
        The function is scheduled, there are no schedules for this kind of target, or neither the
        planner nor a rule knows the function; the message says what each knows.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import schedules, workloads
    >>> conv = workloads.depthwise_conv1d(8, 512, 2048, 3, activation="relu")
    >>> target = schedules.host()
    >>> built = tvm.compile(schedules.apply(conv, target), target=target)
    """
    func = prim_func("func", func)
    target, rules = _rules(func, target)
    streamed = _streamed(func, target)
    if streamed is not None:
        return tvm.IRModule({"main": streamed.func.with_attr("tirx.is_scheduled", True)})
    _, sch, against = _planned(func, target)
    for rule in rules:
        if sch is None:
            sch = rule.apply(func, target, False)
    if sch is not None:
        return tvm.IRModule({"main": sch.mod["main"].with_attr("tirx.is_scheduled", True)})
    names = ", ".join(type(rule).__name__ for rule in rules)
    reasons = dict.fromkeys((*(rule.choose(func, target).why for rule in rules), against))
    kind = target.name if isinstance(target, Machine) else target.kind.name
    raise ValueError(
        f"no schedule for '{kind}' knows this function (known: {names}): {'; '.join(reasons)}"
    )


def explain(func: tirx.PrimFunc | s_tir.Schedule, target: Target | Machine | str | dict) -> str:
    """Say how :func:`apply` schedules a function, and why so.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
    target : tvm.target.Target, Machine, str or dict
        As for :func:`apply`.

    Returns
    -------
    str
        "kernel: " and its kind for a function on streams: one with states or packed sequences.
        Otherwise, the first line begins with "plan: " where the planner schedules the function, and
        the plan's reasons follow. Where it begins with "no plan: ", it says why. A line for each
        rule that was tried follows, the last for the one that knows the function.

    Raises
    ------
    TypeError
        `func` is neither a PrimFunc nor a Schedule.
    ValueError
        The function is scheduled, or there are no schedules for this kind of target.

    Example
    -------
    >>> from fuse_epilogue import schedules, workloads
    >>> conv = workloads.depthwise_conv1d(8, 512, "w", 3)
    >>> print(schedules.explain(conv, "llvm").splitlines()[-1])
    DepthwiseConv1d: tiles of loops; not in rows: the length of its rows is not known before it runs
    """
    func = prim_func("func", func)
    target, rules = _rules(func, target)
    streamed = _streamed(func, target)
    if streamed is not None:
        return f"kernel: {streamed.kind}"
    chosen, _, against = _planned(func, target)
    if chosen is not None:
        problem = chosen.problem(func)
        choice = "; ".join((problem.space.describe(chosen.point), *getattr(problem, "missing", ())))
        reasons = (f"  {line}".rstrip() for line in chosen.explain(func).splitlines())
        return "\n".join((f"plan: {chosen.kind}: {choice}", *reasons))
    lines = [f"no plan: {against}"]
    for rule in rules:
        tried = rule.choose(func, target)
        lines.append(f"{type(rule).__name__}: {tried}")
        if tried.schedule is not None:
            break
    return "\n".join(lines)


def _streamed(func: tirx.PrimFunc, target: Target | Machine) -> Scheduled | None:
    """Return a function on streams scheduled for its machine, None if it is not one."""
    if not isinstance(target, Target):
        return None
    if target.kind.name == "cuda":
        return next(streams_on_gpu(Work(func, target, 1, frozenset())), None)

    def core(convolution: tirx.PrimFunc) -> Scheduled | None:
        try:
            return Scheduled(apply(convolution, target)["main"], "depthwise convolution")
        except ValueError:
            return None

    threads = int(target.attrs.get("num-cores", 1))
    found = stream.schedule(func, threads, core)

    def sums(part: tirx.PrimFunc, _constants: Any) -> Scheduled | None:
        # The gradient of the weights of one image reads as a convolution with few results.
        in_lanes = lanes.schedule(part, threads, long=True)
        return in_lanes or core(part) or lanes.schedule(part, threads)

    if found is None:
        found = stream.schedule_sums(func, sums)
    return None if found is None else replace(found, func=cpu.for_llvm(found.func))


def _planned(
    func: tirx.PrimFunc, target: Target | Machine
) -> tuple[Plan | None, s_tir.Schedule | None, str]:
    """Return the plan for a function and its schedule, or why there is none."""
    try:
        chosen = plan(func, target)
        sch = chosen.apply(func)
    except ValueError as error:
        return None, None, str(error)
    except s_tir.ScheduleError as error:
        # Of a function that is of a known kind in all but its data flow.
        return None, None, f"TVM refuses its loops: {last_line(error)}"
    if isinstance(target, Target) and target.kind.name == "llvm":
        rewrite(sch, sch.get_sblock("root"), "vector_functions")
    return chosen, sch, ""


def _rules(
    func: tirx.PrimFunc, target: Target | Machine | str | dict
) -> tuple[Any, tuple[Rule, ...]]:
    """Return a target as TVM knows it, or a machine, and the rules for it."""
    if func.attrs is not None and func.attrs.get("tirx.is_scheduled"):
        raise ValueError(
            "func is already scheduled ('tirx.is_scheduled'): pass the unscheduled function"
        )
    target = named(target)
    if isinstance(target, str) and target in MACHINES:
        target = MACHINES[target]
    if isinstance(target, Machine):
        _check_sizes(func)
        return target, NEURON
    target = as_target(target)
    kind = target.kind.name
    if kind not in RULES:
        known = ", ".join(sorted([*RULES, *MACHINES]))
        raise ValueError(f"there is no schedule for target kind '{kind}', only for {known}")
    return target, RULES[kind]


def _check_sizes(func: tirx.PrimFunc) -> None:
    """Refuse sizes that kernels for Trainium cannot have."""
    for param in func.params:
        for extent in getattr(param.ty, "shape", ()):
            if not isinstance(extent, prim.IntImm):
                raise ValueError(
                    f"'{param.name}' has a size of {extent}: for Trainium sizes are numbers, "
                    "make the function with numbers"
                )
            if int(extent) < 1:
                raise ValueError(
                    f"'{param.name}' has a size of {extent}: there is nothing to schedule, "
                    "use sizes of 1 or more"
                )
