"""A plan: the schedule that was chosen for a function, as data, with the reasons.

plan = fuse_epilogue.plan(func, target)
print(plan.explain())
built = tvm.compile(plan.apply(func).mod, target=target)      # or fuse_epilogue.compile
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx
from tvm.target import Target

from ..neuron import emit
from ..neuron.machine import MACHINES, Machine
from . import explain as reasons
from .cost import Weights
from .machine import Cpu, cpu
from .measure import compiled
from .problems import trainium
from .problems.conv import find_conv
from .problems.problem import Problem
from .problems.product import find_product
from .problems.rows import find_rows
from .profile import Profile, profile_of
from .search import EXHAUSTIVE, Candidate, Found, search
from .space import Point

#: What finds a problem of each kind in a function for a processor, or for Trainium, in order.
Finders = dict[str, Callable[[tirx.PrimFunc, Any], Problem | None]]
FINDERS: Finders = {
    "product": find_product,
    "rows": find_rows,
    "conv": find_conv,
}

TRAINIUM: Finders = {"conv": trainium.find_conv}
TRAINIUM_FINITE: Finders = {"conv": lambda func, core: trainium.find_conv(func, core, True)}

#: Of the JSON of a plan; another one is refused.
VERSION = 1


@dataclass(frozen=True)
class Plan:
    """How a function is scheduled.

    Attributes
    ----------
    kind : str
        Of the problem: a key of :data:`FINDERS`.
    sizes : dict[str, int]
        Of the function it was made for.
    dtype : str
        Of what goes in.
    machine : Cpu or fuse_epilogue.neuron.machine.Machine
    weights : Weights
        Of the cost, on this machine.
    found : Found
        What the search found; ``found.best`` is the plan.
    finite : bool
        Whether it takes data and weights to be finite; of Trainium only.
    """

    kind: str
    sizes: dict[str, int]
    dtype: str
    machine: Cpu | Machine
    weights: Weights
    found: Found
    finite: bool = False

    @property
    def point(self) -> Point:
        """The values of the variables."""
        return self.found.best.point

    @property
    def cost(self) -> float:
        """Seconds, as the model predicts them."""
        return self.found.best.cost

    def problem(self, func: tirx.PrimFunc) -> Problem:
        """Return the problem that a function is.

        Raises
        ------
        ValueError
            It is none of the kind and the sizes that this plan is for.
        """
        problem = _finders(self.machine, self.finite)[self.kind](func, self.machine)
        if problem is None:
            raise ValueError(f"this plan is for a problem of kind '{self.kind}'; plan anew")
        if (problem.sizes, problem.dtype) != (self.sizes, self.dtype):
            raise ValueError(
                f"this plan is for {self.sizes} of {self.dtype}, not for {problem.sizes} of "
                f"{problem.dtype}; plan anew"
            )
        return problem

    def apply(self, func: tirx.PrimFunc | s_tir.Schedule) -> s_tir.Schedule:
        """Return a function scheduled by this plan, as "main".

        Parameters
        ----------
        func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
            Not scheduled. Of a schedule, its "main" is taken; it stays as it is.

        Raises
        ------
        ValueError
            The plan is for another function.
        """
        if isinstance(func, s_tir.Schedule):
            func = func.mod["main"]
        return self.problem(func).apply(self.point)

    def explain(self, func: tirx.PrimFunc | None = None) -> str:
        """Return why, as text; with the function, also what would change the choice."""
        return reasons.text(self, None if func is None else self.problem(func))

    def table(self) -> str:
        """Return the candidates and what each term costs, as a table in Markdown."""
        return reasons.table(self)

    def to_json(self) -> str:
        """Return the plan as JSON.

        Raises
        ------
        ValueError
            It is for a machine of Trainium's kind that is none of those known by name.
        """
        machine: Any = None
        if isinstance(self.machine, Cpu):
            machine = asdict(self.machine)
        elif MACHINES.get(self.machine.name) == self.machine:
            machine = self.machine.name
        else:
            raise ValueError(f"only plans for {', '.join(MACHINES)} are written, by name")
        data = asdict(replace(self, machine=None))  # type: ignore[arg-type]
        return json.dumps({"version": VERSION, **data, "machine": machine}, indent=2)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Return the plan that :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            The text is none, or of another version.
        """
        try:
            data = json.loads(text)
            if data.pop("version") != VERSION:
                raise ValueError(f"the plan is not of version {VERSION}; plan anew")
            found = data["found"]
            found["ranked"] = tuple(Candidate(**each) for each in found["ranked"])
            found["by_fusion"] = {k: Candidate(**v) for k, v in found["by_fusion"].items()}
            machine = data["machine"]
            by_name = isinstance(machine, str)
            data["machine"] = MACHINES[machine] if by_name else Cpu.from_json(json.dumps(machine))
            data["weights"] = Weights(**data["weights"])
            return Plan(**{**data, "found": Found(**found)})
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not the JSON of a plan: {error!r}") from error

    @cached_property
    def fused(self) -> bool:
        """Whether what follows the reduction is computed inside of its loops."""
        return self.point.get("fusion", 0) != 0


def plan(
    func: tirx.PrimFunc,
    target: Target | Machine | str | dict[str, Any],
    *,
    profile: Profile | None = None,
    limit: int = EXHAUSTIVE,
    finite: bool = False,
) -> Plan:
    """Choose a schedule for a function by what it costs on a machine.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled, with numbers for its sizes.
    target : tvm.target.Target, Machine, str or dict
        Of kind "llvm"; :func:`fuse_epilogue.schedules.host` is this machine. Or ``"trn1"`` or
        ``"trn2"``, for :func:`fuse_epilogue.neuron.emit`.
    profile : Profile, optional
        The machine's description and weights, as ``python -m fuse_epilogue.planner calibrate``
        measures them. The one that comes with this package for the processor of the target if
        None, or else the plain description.
    limit : int
        Points up to which a space is searched in full.
    finite : bool
        For Trainium: whether data and weights are finite, so that its tensor engine may sum taps.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError
        `func` is not a PrimFunc.
    ValueError
        The target is of another kind, the function is of no kind that the planner knows, or no
        point is feasible.

    Example
    -------
    >>> from fuse_epilogue import schedules, workloads
    >>> chosen = plan(workloads.matmul(64, 64, 64, activation="relu"), schedules.host(1))
    >>> chosen.fused
    True
    """
    if not isinstance(func, tirx.PrimFunc):
        raise TypeError(f"func must be a PrimFunc, not {type(func).__name__}")
    machine, weights = _described(target, profile)
    finders = _finders(machine, finite)
    for kind, find in finders.items():
        problem = find(func, machine)
        if problem is not None:
            found = search(problem, weights, limit)
            return Plan(kind, problem.sizes, problem.dtype, machine, weights, found, finite)
    known = ", ".join(finders)
    raise ValueError(
        f"the planner does not know this function; it knows {known}, each with one reduction, "
        "fixed sizes and nothing scheduled: schedule it by hand, or with fuse_epilogue.schedules"
    )


def _described(target: Any, profile: Profile | None) -> tuple[Cpu | Machine, Weights]:
    """Return the machine that a target names, and the weights of the cost on it."""
    if isinstance(target, str) and target in MACHINES:
        target = MACHINES[target]
    if isinstance(target, Machine):
        return target, Weights()
    machine = cpu(target)
    profile = profile if profile is not None else profile_of(machine)
    return (machine, Weights()) if profile is None else (profile.on(machine), profile.weights)


def _finders(machine: Cpu | Machine, finite: bool) -> Finders:
    if isinstance(machine, Cpu):
        return FINDERS
    return TRAINIUM_FINITE if finite else TRAINIUM


def compile(  # noqa: A001 - as tvm.compile
    func: tirx.PrimFunc,
    target: Target | Machine | str | dict[str, Any],
    *,
    profile: Profile | None = None,
) -> Any:
    """Plan a function and compile it; exp and sigmoid of float32 are computed in vectors.

    Parameters
    ----------
    func, target, profile
        As for :func:`plan`.

    Returns
    -------
    tvm.runtime.Executable or fuse_epilogue.neuron.kernel.Kernel
        Its "main" is the function; for Trainium, the kernel.

    Raises
    ------
    TypeError, ValueError
        As :func:`plan`.
    """
    chosen = plan(func, target, profile=profile)
    sch = chosen.apply(func)
    if isinstance(chosen.machine, Machine):
        return emit(sch)
    return compiled(sch, target if isinstance(target, Target) else Target(target))
