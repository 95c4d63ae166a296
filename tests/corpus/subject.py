"""A program of the corpus on its way through the steps: what several of them need is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tvm import s_tir
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from fused_block import loops
from oracles import Builds, accumulator, parameters
from programs import Case

# In these the schedule has done what an exact call could do.
IN_PLACE = {
    "conv2d_to_channels_first",
    *("tail_reduction_outermost", "tail_reduction_outermost_of_columns"),
    *("tail_spatial_loops_fused_inside", "tail_epilogue_in_the_row"),
    *(
        f"{prefix}{steps}"
        for prefix in ("", "tail_")
        for steps in (
            "reduction_axis_outside",
            "epilogue_at_element",
            "epilogue_at_middle_tile",
            "epilogue_at_middle_tile_unevenly",
            "reduction_at_element",
        )
    ),
}


@dataclass(frozen=True)
class Fused:
    """A call of the primitive: the function before, the schedule after, and the report."""

    before: PrimFunc
    sch: Schedule
    report: Any

    @property
    def after(self) -> PrimFunc:
        """The function after the call, if nothing else has been done on the schedule since."""
        return self.sch.mod["main"]


@dataclass(frozen=True)
class Pair:
    """A call with two arguments: the functions before and after, and the report."""

    before: PrimFunc
    after: PrimFunc
    report: Any


class Subject:
    """One program, and what is made of it. Everything here is to be looked at only.

    - `case`: the program.
    - `number`: its place among all programs of its kind, for what is done to a sample of them.
    """

    def __init__(self, case: Case, number: int) -> None:
        self.case = case
        self.number = number
        self.builds: Builds | None = None

    @cached_property
    def before(self) -> PrimFunc:
        """The function after the preparatory steps."""
        return self.case.scheduled().mod["main"]

    @cached_property
    def fused(self) -> Fused:
        """All epilogues fused by a call with the reduction alone."""
        return fuse(self.case)

    @cached_property
    def pairs(self) -> tuple[Schedule, list[Pair]]:
        """The epilogues fused one after the other, by name, by calls with two arguments."""
        sch = self.case.scheduled()
        calls = []
        for epilogue in self.case.epilogues:
            before = sch.mod["main"]
            report = sch.fuse_reduction_epilogue(self.case.reduction, epilogue, **self.case.options)
            calls.append(Pair(before, sch.mod["main"], report))
        return sch, calls

    @cached_property
    def exact(self) -> Fused:
        """The same program fused with ``numerics="exact"``."""
        return fuse(replace(self.case, numerics="exact"))

    @cached_property
    def decomposed(self) -> dict[int, Schedule]:
        """The fused program decomposed at each loop that allows it, by the loop's number.

        Without debug_mask: TVM's decompose_reduction does not pass its own verification of the
        flags where it cannot prove that the init covers what the update reads. Afterwards they are
        right.
        """
        sch = Schedule(self.fused.sch.mod)
        found = {}
        for position in range(len(loops(sch, self.case.reduction))):
            copy = sch.copy()
            loop = loops(copy, self.case.reduction)[position]
            try:
                copy.decompose_reduction(copy.get_sblock(self.case.reduction), loop)
            except s_tir.ScheduleError:
                continue
            found[position] = copy
        return found

    @cached_property
    def decomposed_once(self) -> PrimFunc | None:
        """One of `decomposed`: the loops take turns from program to program."""
        schedules = list(self.decomposed.values())
        return schedules[self.number % len(schedules)].mod["main"] if schedules else None

    @cached_property
    def accumulator(self) -> str:
        """The type that the reduction accumulates in."""
        return accumulator(self.case)

    @cached_property
    def floating(self) -> bool:
        """Whether some parameter is floating."""
        types = {param.dtype for param in parameters(self.case.func, self.case.sizes[0])}
        return any("float" in dtype for dtype in types)

    @cached_property
    def to_be_exact(self) -> bool:
        """Whether an exact call fuses what this program's own call, which reassociates, does."""
        return (
            self.floating
            and self.case.numerics != "exact"
            and not self.case.distribute
            and self.case.name not in IN_PLACE
        )

    def build(self, name: str) -> Any:
        """A compiled function of this program: of `groups.FORMS`."""
        assert self.builds is not None
        assert f"{self.case.name}{name}" in self.builds, f"{self.case.name} has not been fused"
        return self.builds[f"{self.case.name}{name}"]


def fuse(case: Case) -> Fused:
    """Fuse all epilogues of `case` by a call with the reduction alone."""
    sch = case.scheduled()
    before = sch.mod["main"]
    return Fused(before, sch, sch.fuse_reduction_epilogue(case.reduction, **case.options))


@dataclass(frozen=True)
class Step:
    """A question, and of which programs it is asked."""

    name: str
    check: Callable[[Subject], None]
    asked_of: Callable[[Subject], bool]


def always(subject: Subject) -> bool:
    """Ask of every program."""
    return True


def every(distance: int) -> Callable[[Subject], bool]:
    """Ask of a sample of the programs."""
    return lambda subject: subject.number % distance == 0


class Steps:
    """Steps in the order of their definition."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def step(
        self, asked_of: Callable[[Subject], bool] = always
    ) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
        """Add a function as a step, named like the function."""

        def add(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
            self.steps.append(Step(check.__name__.replace("_", " "), check, asked_of))
            return check

        return add

    def take(self, subject: Subject, subtests: Any) -> None:
        """Ask everything that is asked of this program, each as a test of its own."""
        taken = 0
        for step in self.steps:
            if step.asked_of(subject):
                taken += 1
                with subtests.test(step.name):
                    step.check(subject)
        assert taken


def joined(parts: Iterable[Steps]) -> Steps:
    """All steps of several modules."""
    together = Steps()
    for part in parts:
        together.steps.extend(part.steps)
    return together
