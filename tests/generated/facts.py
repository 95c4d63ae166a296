"""What can be counted in a program, and the questions that the rules of the truth ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from .expressions import CHOICES, DIVISIONS, SHIFTS, children, uses, walk
from .layouts import ALL_READS, ALL_WRITES
from .monoids import ROWS
from .spec import Epilogue, Expr, Program, Step, bits, is_float


class Facts:
    """A program, and what is counted once for all rules.

    Parameters
    ----------
    program : Program
    done : sequence of Step
        The schedule steps that TVM accepted.
    """

    def __init__(self, program: Program, done: Sequence[Step] = ()) -> None:
        self.program = program
        self.reduction = program.reduction
        self.done = done
        self.steps = frozenset(step.kind for step in done)
        # Factoring is about the reduction, whatever block the step names.
        self.reduction_steps = frozenset(
            step.kind for step in done if step.block < 0 or step.kind == "rfactor"
        )

    def epilogue(self, number: int) -> Epilogue:
        """Return an epilogue."""
        return self.program.epilogues[number]

    @cached_property
    def stages(self) -> list[np.ndarray]:
        """For each stage the number of the reduction's element that each of its elements holds.

        -1 stands for none.
        """
        spatial = self.reduction.spatial
        first = scatter(self.reduction.layout, spatial, np.arange(int(np.prod(spatial))))
        found = [first]
        for number, epilogue in enumerate(self.program.epilogues):
            ids = self.read_ids(number, epilogue.stage, found)
            axes = ALL_READS[epilogue.read].axes(found[epilogue.stage].shape)
            found.append(scatter(epilogue.write, axes, ids.ravel()))
        return found

    def read_ids(
        self, number: int, stage: int, stages: list[np.ndarray] | None = None
    ) -> np.ndarray:
        """Return for each point of an epilogue the reduction's element that it reads in a stage.

        -1 stands for none.
        """
        stages = self.stages if stages is None else stages
        epilogue = self.epilogue(number)
        dims = stages[epilogue.stage].shape
        row = ALL_READS[epilogue.read]
        axes = np.indices(row.axes(dims))
        element = [np.broadcast_to(i, axes.shape[1:]) for i in row.index(dims, tuple(axes))]
        source = stages[stage]
        inside = np.ones(axes.shape[1:], bool)
        for index, extent in zip(element, source.shape, strict=True):
            inside &= (index >= 0) & (index < extent)
        clipped = tuple(
            np.clip(index, 0, extent - 1)
            for index, extent in zip(element, source.shape, strict=True)
        )
        return np.where(inside, source[clipped], -1)

    def hazard(self, kind: str, target: int, first: int, last: int) -> bool:
        """Whether a hazard of that kind and target stands at a place from first to last."""
        return any(
            h.kind == kind and h.target == target and first <= h.at <= last
            for h in self.program.hazards
        )

    def any_hazard(self, kind: str) -> bool:
        """Whether there is a hazard of that kind."""
        return any(h.kind == kind for h in self.program.hazards)


def scatter(write: str, axes: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Store a value for each point of a box where a write map puts it."""
    row = ALL_WRITES[write]
    points = np.indices(tuple(axes))
    stage = np.full(row.dims(tuple(axes)), -1)
    element = [
        np.broadcast_to(i, points.shape[1:]) for i in row.element(tuple(axes), tuple(points))
    ]
    stage[tuple(element)] = values.reshape(points.shape[1:])
    return stage


# ---- Questions that rules ask --------------------------------------------------------------------


def reads_after_repeated(facts: Facts, number: int) -> bool:
    """Whether an epilogue reads what one before it reads again and again."""
    reads = [{each.stage, each.other} - {-1} for each in facts.program.epilogues[: number + 1]]
    return any(
        each.fault == "repeated" and own & reads[number]
        for each, own in zip(facts.program.epilogues[:number], reads, strict=False)
    )


def reads_outside(facts: Facts, number: int) -> bool:
    ids = facts.read_ids(number, facts.epilogue(number).stage)
    return bool((ids < 0).any())


def misses_elements(facts: Facts, number: int) -> bool:
    ids = facts.read_ids(number, facts.epilogue(number).stage)
    return len(np.unique(ids[ids >= 0])) < int(np.prod(facts.reduction.spatial))


def reads_twice(facts: Facts, number: int) -> bool:
    ids = facts.read_ids(number, facts.epilogue(number).stage)
    return len(np.unique(ids)) < ids.size


def reads_two_elements(facts: Facts, number: int) -> bool:
    epilogue = facts.epilogue(number)
    if uses(epilogue.expr, "next"):
        return True
    if epilogue.other < 0:
        return False
    x, y = (facts.read_ids(number, stage) for stage in (epilogue.stage, epilogue.other))
    return bool((x != y).any())


def stores_together(facts: Facts, number: int) -> bool:
    epilogue = facts.epilogue(number)
    ids = facts.read_ids(number, epilogue.stage)
    axes = ids.shape
    stage = scatter(epilogue.write, axes, np.arange(int(np.prod(axes))))
    return len(np.unique(stage[stage >= 0])) < ids.size


def has_fault(*faults: str) -> Callable[[Facts, int], bool]:
    return lambda facts, number: facts.epilogue(number).fault in faults


def reduction_has(*faults: str) -> Callable[[Facts, int], bool]:
    return lambda facts, number: facts.reduction.fault in faults


def touched_by_view(facts: Facts, number: int) -> bool:
    """Whether a view is made of the reduction's result, of what is read, or of the output."""
    return any(
        epilogue.fault == "matched" and (n == number or epilogue.stage in (0, number + 1))
        for n, epilogue in enumerate(facts.program.epilogues)
    )


# Steps that put a copy, or another memory, between the reduction and its epilogues.
_MAY_FAULT = {*DIVISIONS, *SHIFTS, "table", "short", "cast"}
_COPYING = frozenset(("cache_read", "cache_write", "set_scope", "rfactor"))


def _absorbs(facts: Facts, number: int) -> str:
    """Whether the reduction would absorb something of an epilogue: "yes", "no" or "maybe"."""
    program, reduction = facts.program, facts.reduction
    dtype = reduction.accumulator
    narrow = is_float(dtype) and bits(dtype) < 32
    if is_float(dtype) and program.numerics == "exact":
        return "no"
    if narrow and ROWS[reduction.monoid].rounds:
        # A large bias would swallow the small terms: it is a tail.
        return "no"
    expr = facts.epilogue(number).expr
    stage = facts.epilogue(number).stage
    exact = not facts.steps & _COPYING
    # The accumulator is the stage that the epilogue reads only if all before are plain copies.
    while stage > 0:
        before = facts.epilogue(stage - 1)
        if before.expr != ("x",) or before.dtype != dtype:
            # What the epilogue before absorbed counts for that one; or it leaves a tail.
            return "no" if narrow else "maybe"
        if before.parameter or not _only_reader(facts, stage, number):
            return "no" if exact else "maybe"
        number, stage = stage - 1, before.stage
    if reduction.parameter or not _only_reader(facts, 0, number):
        return "no" if exact else "maybe"
    if reduction.fault == "" and reduction.init == "identity" and expr == ("x",):
        return "maybe"
    found = absorbs(reduction.monoid, expr, program.distribute)
    if found == "yes" and _decides_about_faults(expr):
        return "maybe"
    if ROWS[reduction.monoid].clashes and reduction.init not in ("identity", "literal"):
        # It may be an infinity, as what is absorbed may be.
        return "maybe" if found == "yes" else found
    # What might overflow on the way is left as a tail.
    wide = not is_float(dtype) and bits(dtype) >= 32 and reduction.monoid in ("sum", "product")
    if wide and (uses(expr, "sub") or reduction.update == "subtracted" or _has_huge(expr)):
        return "maybe" if found == "yes" else found
    return found if exact or found == "no" else "maybe"


def _decides_about_faults(expr: Expr) -> bool:
    """Whether a first operand of "and" or "or" decides whether one is evaluated that may fault."""
    return any(
        node[0] in ("and", "or") and any(each[0] in _MAY_FAULT for each in walk(node[2]))
        for node in walk(expr)
    )


def _has_huge(expr: Expr) -> bool:
    return any(node[0] == "lit" and abs(node[2]) > 1000 for node in walk(expr))


def _only_reader(facts: Facts, stage: int, number: int) -> bool:
    others = any(
        stage in (e.stage, e.other) for n, e in enumerate(facts.program.epilogues) if n != number
    )
    kinds = ("total", "nested reader") if stage == 0 else ()
    return not others and not any(facts.any_hazard(kind) for kind in kinds)


def absorbs(monoid: str, expr: Expr, distribute: bool) -> str:
    """Whether the innermost operation on x is one that a reduction absorbs or distributes.

    Returns
    -------
    str
        "yes", "no", or "maybe" where the contract leaves it open.
    """
    parents = _parents(expr)
    if not parents:
        return "no"
    if len(set(parents)) > 1:
        return "maybe"
    (parent,) = set(parents)
    name, operands = parent[0], children(parent)
    with_x = [uses(operand, "x", "y") for operand in operands]
    if all(with_x):
        return "maybe" if name in (ROWS[monoid].operation, "sub") else "no"
    if _guarded(expr):
        # Only if the operand is defined without its guard; it need not be found out.
        return "maybe"
    if name == ROWS[monoid].operation:
        return "yes"
    if monoid == "sum" and name == "sub":
        return "yes" if with_x[0] else "maybe"
    if monoid == "sum":
        return "maybe" if name in ("mul", "div") and distribute else "no"
    if monoid == "product":
        return "maybe" if name == "div" else "no"
    return "maybe"


def _guarded(expr: Expr) -> bool:
    """Whether x is under a guard, with something else."""
    if expr[0] in (*CHOICES, "and", "or"):
        arms = children(expr)[1:]
        if any(uses(arm, "x", "y") and len(arm) > 1 for arm in arms):
            return True
    return any(_guarded(child) for child in children(expr))


def _parents(expr: Expr) -> list[Expr]:
    """Return the nodes that have x or y as an operand."""
    found = [expr] if any(child[0] in ("x", "y") for child in children(expr)) else []
    for child in children(expr):
        found += _parents(child)
    return found


def stands_in_place(facts: Facts) -> bool:
    """Whether epilogues stand already where tails would be, or may do so."""
    reduction = facts.reduction
    behind_all = reduction.order[0] >= len(reduction.spatial)
    return bool(behind_all or facts.reduction_steps & _REORDERING or facts.steps & PLACING)


def in_place(facts: Facts, number: int) -> bool:
    """Whether an epilogue stands already where its tail would be, or may do so."""
    return stands_in_place(facts) and (number > 0 or _absorbs(facts, number) != "yes")


_REORDERING = frozenset(("reorder", "fuse", "vectorize", "rfactor"))
PLACING = frozenset(("reverse_compute_at", "compute_at"))


def factors_split_loops(facts: Facts, number: int) -> bool:
    """Whether the reduction is factored after one of its loops was split, or may have been."""
    if "rfactor" not in facts.steps:
        return False
    # Under a common loop the epilogue's loops are the reduction's.
    return "split" in facts.reduction_steps or (
        "split" in facts.steps and bool(facts.steps & PLACING)
    )


def mixes_loops(facts: Facts, number: int) -> bool:
    """Whether a loop belongs to spatial and reduction axes, or may do so."""
    if "fuse" not in facts.reduction_steps:
        return False
    steps = [step for step in facts.done if step.block < 0]
    if len(steps) > 1:
        return True
    order, rank = facts.reduction.order, len(facts.reduction.spatial)
    first = steps[0].numbers[0] % (len(order) - 1)
    return (order[first] < rank) != (order[first + 1] < rank)
