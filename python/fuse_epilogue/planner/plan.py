"""A plan: the schedule that was chosen for a function, as data, with the reasons.

plan = fuse_epilogue.plan(func, target)
print(plan.explain())
built = tvm.compile(plan.apply(func).mod, target=target)      # or fuse_epilogue.compile
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tvm import s_tir, tirx
from tvm.target import Target

from ..neuron import emit
from ..neuron.machine import MACHINES, Machine
from . import explain as reasons
from . import picture as drawing
from .cost import Weights
from .gpu import Gpu
from .kinds import described, finders_for, machine_of
from .machine import Cpu
from .measure import compiled, compiled_for_gpu
from .problems.problem import Problem
from .profile import UNKNOWN, Profile
from .search import EXHAUSTIVE, Candidate, Found, search
from .space import Point

#: Of the JSON of a plan; another one is refused.
VERSION = 1


@dataclass(frozen=True)
class Plan:
    """How a function is scheduled.

    Attributes
    ----------
    kind : str
        Of the problem: a key of :data:`.kinds.FINDERS`.
    sizes : dict[str, int]
        Of the function it was made for.
    dtype : str
        Of what goes in.
    machine : Cpu, Gpu or fuse_epilogue.neuron.machine.Machine
    weights : Weights
        Of the cost, on this machine.
    found : Found
        What the search found; ``found.best`` is the plan.
    finite : bool
        Whether it takes data and weights to be finite; of Trainium only.
    resolution : float
        The share below which a difference of two costs means nothing; see
        :attr:`.profile.Profile.resolution`.
    known : Problem or None
        What it was made for, where this process made it; JSON does not hold it.
    """

    kind: str
    sizes: dict[str, int]
    dtype: str
    machine: Cpu | Gpu | Machine
    weights: Weights
    found: Found
    finite: bool = False
    resolution: float = UNKNOWN
    known: Problem | None = field(default=None, repr=False, compare=False)

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
        if self.known is not None and self.known.func.same_as(func):
            return self.known
        problem = finders_for(self.machine, self.finite)[self.kind](func, self.machine)
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
        """Return why, as text.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc, optional
            What the plan is for. Needed by a plan that was read from JSON: without it, what binds
            and what another size would change are left out.

        Raises
        ------
        ValueError
            The plan is for another function.
        """
        return reasons.text(self, self.known if func is None else self.problem(func))

    def table(self) -> str:
        """Return the candidates and what each term costs, as a table in Markdown."""
        return reasons.table(self, self.known)

    def picture(
        self, path: str | Path, func: tirx.PrimFunc | None = None, *, width: int = 1000
    ) -> None:
        """Draw the candidates: a roofline, and what each term of their cost is.

        Parameters
        ----------
        path : str or Path
            Of the SVG to write.
        func : tvm.tirx.PrimFunc, optional
            As for :meth:`explain`; without it, there is no roofline.
        width : int
            Pixels; below 760 one part is under the other.

        Raises
        ------
        ValueError
            The path does not end in ".svg", the width is below 360, or the plan is for another
            function.
        """
        drawing.draw(self, self.known if func is None else self.problem(func), path, width)

    def to_json(self) -> str:
        """Return the plan as JSON.

        Raises
        ------
        ValueError
            It is for a machine of Trainium's kind that is none of those known by name.
        """
        machine: Any = None
        if isinstance(self.machine, Cpu | Gpu):
            machine = asdict(self.machine)
        elif MACHINES.get(self.machine.name) == self.machine:
            machine = self.machine.name
        else:
            raise ValueError(f"only plans for {', '.join(MACHINES)} are written, by name")
        data = asdict(replace(self, machine=None, known=None))  # type: ignore[arg-type]
        del data["known"]
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
            data["machine"] = machine_of(machine)
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
    target: Target | Gpu | Machine | str | dict[str, Any],
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
    target : tvm.target.Target, Gpu, Machine, str or dict
        Of kind "llvm"; :func:`fuse_epilogue.schedules.host` is this machine. Of kind "cuda", see
        :func:`.gpu.gpu`: what a kernel costs there is predicted from NVIDIA's documents, and was
        measured on no GPU. Or ``"trn1"`` or
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
    machine, weights, resolution = described(target, profile)
    finders = finders_for(machine, finite)
    for kind, find in finders.items():
        problem = find(func, machine)
        if problem is not None:
            found = search(problem, weights, limit)
            sizes, dtype = problem.sizes, problem.dtype
            return Plan(
                kind, sizes, dtype, machine, weights, found, finite, resolution, known=problem
            )
    known = ", ".join(finders)
    raise ValueError(
        f"the planner does not know this function; it knows {known}, each with one reduction, "
        "fixed sizes and nothing scheduled: schedule it by hand, or with fuse_epilogue.schedules"
    )


def compile(  # noqa: A001 - as tvm.compile
    func: tirx.PrimFunc,
    target: Target | Gpu | Machine | str | dict[str, Any],
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
    RuntimeError
        For a GPU: this TVM has no CUDA.
    """
    chosen = plan(func, target, profile=profile)
    sch = chosen.apply(func)
    if isinstance(chosen.machine, Machine):
        return emit(sch)
    if isinstance(target, Gpu):
        target = target.target
    target = target if isinstance(target, Target) else Target(target)
    return (compiled_for_gpu if target.kind.name == "cuda" else compiled)(sch, target)
