"""The plan of a contraction: the axis of vectors, the axes of rows, and the size of a tile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ....recognize.contraction import Contraction
from ....tir.types import bits_of
from ..costs import (
    MEMORY_BYTES_PER_CYCLE,
    NODE_CYCLES,
    added,
    bytes_per_cycle,
    pieces,
    together,
    work,
)
from .dot_products import Instruction
from .tiles import Group, groups, row_values, share_inside
from .words import Words, in_words

#: Rows of the tallest tile. With 14 rows of two vectors of 512 bits, too few registers are left for
#: broadcasts (convolution of 3 channels, 7 x 7: 174 GF/s with 12 rows, 140 with 14).
MOST_ROWS = 12
#: Cycles of a fused multiply-add, two of which begin in a cycle.
LATENCY = 4.0
#: Instructions in flight (Intel's Skylake; newer cores have more): while the last products of a
#: short tile wait for its sums, those of the next tiles begin.
WINDOW = 224
#: Cycles of a tile beyond its products, for addresses and loops, and for a vector of sums, of which
#: one is stored in a cycle.
TILE_CYCLES, SUM_CYCLES = 8.0, 1.0
#: Cycles in which an element of the rows' operand is copied in the type of an instruction.
COPY_CYCLES = 0.25
#: Cycles in which the kernel itself packs an element of the vector operand.
PACK_CYCLES = 2.0
#: Sums of the shortest vector of an instruction on words.
LEAST_WORD_LANES = 4
#: Bytes in a cycle of a panel that is in the second cache.
L2_BYTES_PER_CYCLE = 32.0
#: Powers by which the times of products and of loads add, from the second cache and from the first.
#: Loads begin ahead and cost nothing until no time is left: on AMD's Zen 5, tiles of 4 x 6 vectors,
#: which use up the rate of the second cache, take 1.05 to 1.16 times as long as those of 6 x 4,
#: which need two thirds of it and take about as long as 9 x 3, which need less than half. Tiles of
#: 12 x 2, with 14 loads for 24 products, take up to 1.05 times as long as 6 x 4, with 10.
NEAR_POWER, LOADS_POWER = 10, 6
#: Bytes of the rows' operand from which it is assumed to come from far away a second time.
NEAR_BYTES = 1 << 18
#: Bytes of a panel up to which it is assumed to stay in the first cache, and in the second.
L1_BYTES, L2_BYTES = 1 << 15, 3 << 18
#: Cycles in which a line comes from the second cache, where each read needs one.
L2_CYCLES = 2.0
#: Cycles in which one result is stored whose line the other results of its tile evict: 12 to 14 on
#: AMD's Zen 5 (32 to 64 channels, 1,024 places, two taps).
EVICTED_CYCLES = 12.0
#: Bytes after which the sets of the first cache begin again, and lines of a set: the fewest of x86
#: (AMD Zen 3 and 4; Zen 5 and Intel's servers have 12).
L1_PAGE, L1_WAYS = 4096, 8


@dataclass(frozen=True)
class Machine:
    """Properties of a processor that a kernel needs.

    - `lanes`: 32-bit numbers of a vector.
    - `registers`: vector registers.
    - `instructions`: those that add up products of short integers, each with the sums in its
      longest vector.
    """

    lanes: int
    registers: int
    threads: int
    instructions: tuple[tuple[Instruction, int], ...] = ()


class Cost(NamedTuple):
    """Predicted cycles of a way to compute a contraction, on one core.

    - `products`: cycles of the loops over products and results.
    - `packing`: cycles in which the kernel itself packs an operand.
    - `copying`: cycles of padded or converted copies of an operand.
    - `moving`: cycles of moving operands and results, most of which overlap with the others.
    """

    products: float = 0.0
    packing: float = 0.0
    copying: float = 0.0
    moving: float = 0.0

    @property
    def cycles(self) -> float:
        """Cycles of all four together."""
        return together(self.products + self.packing + self.copying, self.moving)


@dataclass(frozen=True)
class Plan:
    """A way to compute a contraction.

    - `contraction`: `b` is the operand with the vector; `a` has the rows.
    - `vector`: the axis of the vector.
    - `rows`: the axes of the rows, none for a tile of one row.
    - `outer`: the other axes of the result, which are loops.
    - `vectors`: number of vectors of a tile.
    - `packing`: "constant", "kernel" (the kernel packs) or "none".
    - `cost`: predicted.
    - `words`: where an instruction sums products of words, along an axis that is counted in words.
    """

    contraction: Contraction
    vector: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]
    groups: tuple[Group, ...]
    vectors: int
    lanes: int
    packing: str
    cost: Cost
    words: Words | None = None

    @property
    def cycles(self) -> float:
        """Predicted cycles on one core."""
        return self.cost.cycles

    @property
    def width(self) -> int:
        """Elements of a tile along the vector."""
        return self.vectors * self.lanes


def choose(contraction: Contraction, machine: Machine, constants: tuple[bool, bool]) -> list[Plan]:
    """Return the ways that are predicted to be the fastest: the best of each choice of axes.

    The best two of the first choice, and the best of each other one, fastest first.

    - `constants`: whether each operand is constant at every call.
    """
    found = sorted(
        _with_place(contraction, machine, constants),
        # Where all wait for memory, wide tiles wait less: a product of one row with 4096 x 4096
        # bytes takes 318 us with one vector and 226 with eight.
        key=lambda pair: (pair[1].cycles, -pair[1].vectors),
    )
    kept: list[Plan] = []
    seen: set[Any] = set()
    for number, (place, plan) in enumerate(found):
        instruction = None if plan.words is None else plan.words.instruction.name
        axes = (place, plan.vector, plan.rows, plan.packing, instruction)
        if axes not in seen or number == 1:
            kept.append(plan)
        seen.add(axes)
    return kept


def all_plans(
    contraction: Contraction, machine: Machine, constants: tuple[bool, bool]
) -> Iterator[Plan]:
    """Yield every way, as :func:`choose` compares them."""
    for _, plan in _with_place(contraction, machine, constants):
        yield plan


def _with_place(
    contraction: Contraction, machine: Machine, constants: tuple[bool, bool]
) -> Iterator[tuple[int, Plan]]:
    """Yield every way with the place of the operand that has the rows."""
    both = (contraction, constants), (contraction.swapped(), constants[::-1])
    for place, (one, constant) in enumerate(both):
        for plan in (*plans_of(one, machine, constant), *_word_plans(one, machine, constant)):
            yield place, plan


def _word_plans(
    contraction: Contraction, machine: Machine, constant: tuple[bool, bool]
) -> Iterator[Plan]:
    for instruction, lanes in machine.instructions:
        found = in_words(contraction, instruction)
        if found is not None:
            yield from plans_of(found[0], replace(machine, lanes=lanes), constant, found[1])


def plans_of(
    contraction: Contraction,
    machine: Machine,
    constant: tuple[bool, bool],
    words: Words | None = None,
) -> Iterator[Plan]:
    """Yield the ways in which `b` is the operand with the vector.

    - `constant`: whether `a` and `b` are constant at every call.
    - `words`: words of the contraction, if one of its axes is counted in words.
    """
    if contraction.b.only_load() is None or contraction.b.bounds:
        return
    in_b = contraction.places(in_a=False, in_b=True)
    batch = contraction.places(in_a=True, in_b=True) if words is None else []
    bound_axes = {bound.axis for bound in contraction.a.bounds}
    for vector in in_b or batch:
        if vector in bound_axes:
            continue
        for rows in _row_axes(contraction, vector):
            outer = tuple(
                axis for axis in range(len(contraction.axes)) if axis != vector and axis not in rows
            )
            yield from _tiles(contraction, machine, constant, vector, rows, outer, words)


def _row_axes(contraction: Contraction, vector: int) -> list[tuple[int, ...]]:
    """Return the axes that may be the rows of tiles."""
    axes = [axis for axis in contraction.places(in_a=True, in_b=False) if axis != vector]
    if not axes:
        return [()]
    found: list[tuple[int, ...]] = [(axes[-1],)]
    for begin in range(len(axes) - 1):
        together = tuple(axes[begin:])
        bounded = any(bound.axis in together for bound in contraction.a.bounds)
        if not bounded:
            found.append(together)
    return found


def _tiles(
    contraction: Contraction,
    machine: Machine,
    constant: tuple[bool, bool],
    vector: int,
    rows: tuple[int, ...],
    outer: tuple[int, ...],
    words: Words | None,
) -> Iterator[Plan]:
    extent = contraction.extents[vector]
    bytes_of_sum = bits_of(contraction.dtype) // 8
    lanes = machine.lanes * 4 // bytes_of_sum
    while lanes > (1 if words is None else LEAST_WORD_LANES) and lanes >= 2 * extent:
        lanes //= 2
    total = math.prod(contraction.extents[axis] for axis in rows)
    shared = contraction.a.has(vector)
    seen = set()
    for vectors in (1, 2, 3, 4, 6, 8):
        if vectors > 1 and (vectors - 1) * lanes >= extent:
            continue
        for most in range(1, min(MOST_ROWS, total) + 1):
            if _registers(most, vectors, words, shared) > machine.registers:
                continue
            count = -(-total // most)
            if (count, vectors) in seen:
                continue
            seen.add((count, vectors))
            cut = groups(contraction, rows, most)
            if cut is None:
                continue
            packing = "constant" if constant[1] else "kernel"
            if words is None:
                packing = _packing(contraction, vector, total, constant[1])
            plan = Plan(
                contraction, vector, rows, outer, tuple(cut), vectors, lanes, packing, Cost(), words
            )
            yield replace(plan, cost=_cost(plan, constant))


def _registers(rows: int, vectors: int, words: Words | None, shared: bool) -> int:
    """Return how many registers a tile takes.

    - `shared`: whether the operand of the rows has the axis of the vectors, too.
    """
    sums = rows * vectors
    if shared:
        # Windows overlap: LLVM keeps what it has loaded for the next taps.
        return 2 * sums + vectors
    if words is not None:
        # Products are in a register of their own before they are added.
        return sums + vectors + (1 if words.instruction.adds else 2)
    return sums + 1 + (vectors if rows > 1 else 0)


def _packing(contraction: Contraction, vector: int, rows: int, constant: bool) -> str:
    if constant:
        return "constant"
    (access,) = contraction.b.accesses.values()
    if access.factors[vector] == 1:
        return "none" if rows < 48 or _b_bytes(contraction) <= 1 << 16 else "kernel"
    return "kernel"


def _b_bytes(contraction: Contraction) -> int:
    """Return the bytes of the vector operand for one value of the axes that both share."""
    size = math.prod(
        extent for place, extent in enumerate(contraction.extents) if contraction.b.has(place)
    )
    for axis in contraction.places(in_a=True, in_b=True):
        size //= contraction.extents[axis]
    return size * 4


def loop_cycles(plan: Plan, far: bool = False) -> float:
    """Return the predicted cycles of the loops on one core.

    - `far`: whether each panel comes from far away while the loops wait for it.
    """
    contraction, lanes = plan.contraction, plan.lanes
    extents = contraction.extents
    steps = math.prod(axis.extent for axis in contraction.reduced)
    full, rest = divmod(extents[plan.vector], plan.width)
    # Without the zeros of a packed operand, the last vector is loaded and computed in parts.
    whole = plan.packing != "none" and not contraction.a.has(plan.vector)
    parts = -(-rest // lanes) if whole else pieces(rest, lanes)
    panels = [(plan.vectors, full), (parts, 1)] if rest else [(plan.vectors, full)]
    again = math.prod(extents[axis] for axis in plan.outer if not contraction.b.has(axis))
    one_row_of_panels = 0.0
    for wide, number in panels:
        panel = 4 * steps * wide * lanes
        from_far = panel / MEMORY_BYTES_PER_CYCLE
        near = panel / L2_BYTES_PER_CYCLE if panel <= L2_BYTES else from_far
        of_panel = 0.0
        for group in plan.groups:
            tiles = again * group.count
            products, results = _tile_cycles(plan, group, wide)
            # Only the first tile waits for a panel that stays in the first cache.
            waiting = 1 if panel <= L1_BYTES else tiles
            of_group = waiting * added(products, near, NEAR_POWER)
            of_group += (tiles - waiting) * products + tiles * results
            of_panel += max(of_group, from_far) if far else of_group
        one_row_of_panels += number * of_panel
    return one_row_of_panels * math.prod(
        extents[axis] for axis in plan.outer if contraction.b.has(axis)
    )


def _tile_cycles(plan: Plan, group: Group, wide: int) -> tuple[float, float]:
    """Return the cycles of a tile: of its products, and beyond them."""
    contraction, words = plan.contraction, plan.words
    steps = math.prod(axis.extent for axis in contraction.reduced)
    loads = group.rows * (wide if contraction.a.has(plan.vector) else 1) + wide
    step = added(group.rows * wide / 2, loads / 2, LOADS_POWER)
    if _evicts(contraction, plan.rows, max(each.rows for each in plan.groups)):
        step = max(step, L2_CYCLES * group.rows)
    # Tiles that are in flight together wait at the same time.
    latency = LATENCY / max(1.0, WINDOW / (steps * (group.rows * wide + loads)))
    if contraction.dtype == "float32" or contraction.dtype == "float64":
        step = max(step, latency)
    elif words is not None:
        step = max(step, latency) if words.instruction.adds else step
    else:
        # Products of 32 bits are two operations, and operands are widened.
        step = 3 * step
    one_by_one = contraction.stored.factors[plan.vector] != 1
    results = group.rows * wide * (plan.lanes if one_by_one else 1)
    of_result = SUM_CYCLES + NODE_CYCLES * work(contraction.epilogue.value)
    if one_by_one and _share_sets(contraction.stored.factors[plan.vector], wide * plan.lanes):
        of_result += EVICTED_CYCLES
    return steps * _share_inside(plan, group) * step, TILE_CYCLES + results * of_result


def _share_inside(plan: Plan, group: Group) -> float:
    """Return about which share of the products of a tile is computed: others are left out."""
    contraction, extents = plan.contraction, plan.contraction.extents
    outer = [bound for bound in contraction.a.bounds if bound.axis not in plan.rows]
    share = math.prod(
        share_inside(bound, extents, range(extents[bound.axis]) if bound.axis >= 0 else (0,))
        for bound in outer
    )
    if group.border:
        inner = [bound for bound in contraction.a.bounds if bound.axis in plan.rows]
        rows = range(group.start, group.start + group.rows)
        values = [row_values(extents, plan.rows, row) for row in rows]
        for bound in inner:
            share *= share_inside(bound, extents, [each[bound.axis] for each in values])
    return share


def _cost(plan: Plan, constant: tuple[bool, bool]) -> Cost:
    """Return the predicted cycles on one core."""
    contraction = plan.contraction
    size = _b_elements(contraction)
    packing = PACK_CYCLES * size if plan.packing == "kernel" else 0.0
    # A padded copy is written and read again.
    copied = 4 * sum(math.prod(stage.shape) for stage in contraction.before)
    copying = 3 * copied / bytes_per_cycle(2 * copied)
    copying += 0.0 if plan.words is None else plan.words.copied * COPY_CYCLES
    # An operand that is small stays near while it is read for the other panels.
    rows_bytes = contraction.a.bytes
    several_panels = (
        not contraction.a.has(plan.vector) and contraction.extents[plan.vector] > plan.width
    )
    times = 2 if several_panels and rows_bytes >= NEAR_BYTES else 1
    result_bytes = 4 * math.prod(axis.extent for axis in contraction.axes)
    # Windows that overlap share elements, which are moved once.
    b_bytes = 4 * size if plan.packing != "none" else min(4 * size, contraction.b.bytes)
    moved = (times * rows_bytes, b_bytes)
    far = sum(size for size, each in zip(moved, constant, strict=True) if each)
    moving = moving_cycles(sum(moved) - far + result_bytes, far)
    return Cost(loop_cycles(plan), packing, copying, moving)


def _b_elements(contraction: Contraction) -> int:
    """Return the number of elements of the vector operand, as if its windows did not overlap."""
    extents = contraction.extents
    return math.prod(extent for p, extent in enumerate(extents) if contraction.b.has(p))


def moving_cycles(given: float, constant: float = 0.0) -> float:
    """Return the cycles of moving operands and results.

    - `given`: number of bytes of arguments and results. In a model, the function before has just
      written them, and the next one reads them: they are in the nearest cache that they fit into.
    - `constant`: number of bytes of constants, which are far away: a model has others, too.
    """
    return given / bytes_per_cycle(given) + constant / MEMORY_BYTES_PER_CYCLE


def _evicts(contraction: Contraction, rows: tuple[int, ...], count: int) -> bool:
    """Return whether the rows of a tile evict each other's lines from the first cache.

    Each line holds several values along the reduced axis, and is needed until the last of them has
    been read. Rows whose distance is a multiple of a page are all in one set of the cache.
    """
    if not rows:
        return False
    accesses = contraction.a.accesses.values()
    return any(_share_sets(access.factors[rows[-1]], count) for access in accesses)


def _share_sets(distance: int, count: int) -> bool:
    """Return whether as many lines are too many for their sets of the first cache.

    - `distance`: number of elements from one line to the next.
    """
    return count > L1_PAGE // math.gcd(4 * abs(distance), L1_PAGE) * L1_WAYS
