"""Writes the loops of a contraction: panels, outer axes, tiles of rows, products.

for panel:                              panels of the vector operand
    for outer axes:
        for tile:                       tiles of one size
            sums[rows, vectors] = 0     registers
            for taps: for k: sums[i, v] += a[i, k] * b[k, v]
            y[...] = epilogue(sums)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from ....recognize.accesses import Operand
from ....tir.types import bits_of
from ..costs import CLOCK_HZ, threads_for
from ..loops import FlatViews, fetch, index, loop, sequence
from .dot_products import add_dot_products, same_word
from .operands import value_at
from .panels import Layout, Panel, panels_of
from .plan import Plan, loop_cycles
from .taps import Env, limits, tap_order, unrolled
from .tiles import Group, inside, row_values
from .vectors import as_index, at, lanes_loop, pieces_of
from .words import Words

#: Bytes of a buffer up to which LLVM keeps it in registers.
REGISTER_BYTES = 1024
#: Elements of a line of the caches.
LINE = 16
#: Bytes of the packed operand from which it is far away when a kernel begins.
FAR_BYTES = 1 << 18
#: Bytes of the rows' operand up to which it is read again for each panel: of an image whose
#: channels have filters of their own, and of any other operand.
IMAGE_BYTES, OPERAND_BYTES = 3 << 19, 1 << 19
#: Bytes up to which panels stay in the second cache, and steps from which that pays.
PANELS_BYTES, LEAST_DEPTH_INSIDE = 1 << 19, 32
#: Steps of the innermost reduced axis that are written out.
UNROLLED = 8
#: The same where products are added to sums by an instruction of its own. Sums of integers may be
#: taken in any order: of more steps, LLVM first adds up the products, which then need more
#: registers than there are (8: 94 GF/s, 2: 111).
UNROLLED_PRODUCTS = 2
#: Values of a tap up to which they are written out.
WRITTEN_OUT = 4


class Sums:
    """The sums of a tile, in buffers that are short enough for LLVM to keep them in registers.

    A buffer holds some rows of one vector, one after the other.

    - `rows`, `width`: sums of a tile.
    - `lanes`: sums of a vector.
    """

    def __init__(self, dtype: str, rows: int, width: int, lanes: int) -> None:
        """Declare the buffers."""
        self.lanes = lanes
        self.rows = max(1, REGISTER_BYTES * 8 // (lanes * bits_of(dtype)))
        self.buffers = [
            [
                tirx.decl_buffer((index(min(self.rows, rows - row) * lanes),), dtype, "sums")
                for row in range(0, rows, self.rows)
            ]
            for _ in range(0, width, lanes)
        ]

    def at(self, row: int, start: int) -> tuple[Any, int]:
        """Return the buffer of a sum, and the sum's place there."""
        vector, lane = divmod(start, self.lanes)
        part, row = divmod(row, self.rows)
        return self.buffers[vector][part], row * self.lanes + lane

    def allocated(self) -> list[Any]:
        """Return the statements that allocate the buffers."""
        return [tirx.AllocBuffer(part) for parts in self.buffers for part in parts]


@dataclass(frozen=True)
class Tile:
    """Values that all statements of a register tile share.

    - `number`: number of the panel.
    - `pieces`: start and lanes of each vector.
    - `ahead`: where the lines begin that the tile fetches, one in each step; None for no lines.
    """

    group: Group
    panel: Panel
    number: Any
    pieces: list[tuple[int, int]]
    sums: Sums
    ahead: Any


class Kernel:
    """The loops of one plan.

    - `views`: for the buffers.
    - `packed` (Buffer or None): the packed operand.
    - `threads`: number of threads that there are.
    """

    def __init__(self, plan: Plan, views: FlatViews, packed: Any, threads: int) -> None:
        """Order the reduced axes."""
        self.plan = plan
        self.contraction = plan.contraction
        self.extents = plan.contraction.extents
        self.views = views
        self.packed = packed
        self.threads = threads
        self.taps = tap_order(plan)
        self.layout = Layout.of(plan, self.taps)
        row_bounds = [b for b in self.contraction.a.bounds if b.axis in plan.rows]
        self.row_bounds = tuple(row_bounds)
        self.outer_bounds = tuple(b for b in self.contraction.a.bounds if b not in row_bounds)

    def loops(self) -> list[Any]:
        """Return one nest for each width of panels and size of tiles."""
        return [
            self._nest(panel, group) for panel in panels_of(self.plan) for group in self.plan.groups
        ]

    def _nest(self, panel: Panel, group: Group) -> Any:
        plan = self.plan
        levels: list[tuple[Any, int, str]] = [
            (axis, self.extents[axis], self.contraction.axis_name(axis)) for axis in plan.outer
        ]
        shared = [level for level in levels if self.contraction.b.has(level[0])]
        alone = [level for level in levels if not self.contraction.b.has(level[0])]
        levels = [*shared, ("panel", panel.count, "panel"), *alone, ("tile", group.count, "tile")]
        if self._panels_inside():
            levels.append(levels.pop(len(shared)))
        levels = [level for level in levels if level[1] > 1]
        chosen = self._parallel(levels, panel, group)
        if chosen is not None:
            levels.remove(chosen)
            levels.insert(0, chosen)

        def nested(env: dict[Any, Any], left: Sequence[tuple[Any, int, str]]) -> Any:
            if not left:
                number = env.get("panel", 0)
                tile = env.get("tile", 0)
                values = {key: value for key, value in env.items() if isinstance(key, int)}
                done: Any = 0
                for key, extent, _ in (*alone, ("tile", group.count, "")):
                    done = done * extent + env.get(key, 0)
                ahead = self._ahead(values, panel, number, done)
                return self._tile(values, panel, number, group, tile, ahead)
            key, extent, name = left[0]
            kind = tirx.ForKind.PARALLEL if left[0] is chosen else tirx.ForKind.SERIAL
            return loop(name, 0, extent, lambda var: nested({**env, key: var}, left[1:]), kind)

        return nested({}, levels)

    def _panels_inside(self) -> bool:
        """Return whether the loop over panels is the innermost one.

        With panels outside, a panel stays in the first cache, and the other operand and the result
        are gone through again for each one: in pieces of a row, from far away if they are large.
        With panels inside, all of them must stay in the second cache.
        """
        size = 4 * self.contraction.a.elements
        if self.contraction.a.has(self.plan.vector):
            return size > IMAGE_BYTES
        panels = 4 * self.layout.depth * self.layout.row
        deep = self.layout.depth >= LEAST_DEPTH_INSIDE
        return deep and size > OPERAND_BYTES and panels <= PANELS_BYTES

    def _ahead(self, env: Env, panel: Panel, number: Any, done: Any) -> Any:
        """Return where the part of the next panel begins that a tile fetches, None for no part.

        Each of the first tiles of a panel fetches a line in each step, while it computes: the next
        panel, which comes from far away, is near when it is needed.
        """
        parts = panel.width // LINE
        if self.packed is None or parts == 0 or 4 * self.layout.size < FAR_BYTES:
            return None
        part = done % parts if isinstance(done, int) else tirx.floormod(done, index(parts))
        first = self.layout.offset({**env, **dict.fromkeys(self.taps, 0)}, panel, number + 1)
        place = as_index(first + part * (self.layout.depth * LINE))
        return tirx.min(place, index(self.layout.size - self.layout.depth * LINE))

    def _seconds(self, panel: Panel, group: Group) -> float:
        """Return the predicted seconds of a nest on one thread: its share of all results."""
        rows = sum(each.rows * each.count for each in self.plan.groups)
        columns = panel.valid * panel.count / self.extents[self.plan.vector]
        share = columns * group.rows * group.count / rows
        return share * loop_cycles(self.plan) / CLOCK_HZ

    def _parallel(self, levels: Sequence[tuple[Any, int, str]], panel: Panel, group: Group) -> Any:
        """Return the loop that threads share, None if the work is too little."""
        threads = self.threads
        if threads < 2 or threads_for(self._seconds(panel, group), threads) < 2:
            return None
        able = [level for level in levels if level[1] >= threads]

        def waste(level: tuple[Any, int, str]) -> float:
            rounded = -(-level[1] // threads) * threads
            return max(0.1, rounded / level[1] - 1)

        return min(able, key=waste, default=None)

    def _tile(
        self, env: Env, panel: Panel, number: Any, group: Group, place: Any, ahead: Any
    ) -> Any:
        """Return the statements of one tile: sums begin, products, the epilogue."""
        rows = self._rows(group, place)
        lanes = self.plan.lanes
        tail = panel.valid != panel.width
        # What the panel's zeros are multiplied by must exist, too.
        narrow = tail and (self.packed is None or self.contraction.a.has(self.plan.vector))
        pieces = pieces_of(panel.valid if narrow else panel.width, lanes)
        sums = Sums(self.contraction.dtype, max(1, len(rows)), panel.width, lanes)
        tile = Tile(group, panel, number, pieces, sums, ahead)

        corrections = self.layout.correction(env, panel, number)

        def begin(row: int, start: int) -> Callable[[Any], Any]:
            buffer, first = sums.at(row, start)

            def value(lane: Any) -> Any:
                if corrections is None:
                    return tirx.const(0, self.contraction.dtype)
                return tirx.BufferLoad(self.packed, [as_index(corrections + start) + lane])

            return lambda lane: tirx.BufferStore(buffer, value(lane), [lane + first])

        begins = [
            lanes_loop(width, begin(i, start)) for i in range(len(rows)) for start, width in pieces
        ]
        products = self._taps(env, list(enumerate(rows)), tile, self.taps)
        stores = self._stores(env, rows, panel, number, sums)
        return sequence([*sums.allocated(), *begins, products, *stores])

    def _rows(self, group: Group, tile: Any) -> list[Env]:
        """Return the values of the row axes, for each row of a tile."""
        axes = self.plan.rows
        if not axes:
            return [{}]
        static = group.count == 1
        found: list[Env] = []
        for i in range(group.rows):
            if static:
                found.append(dict(row_values(self.extents, axes, group.start + i)))
                continue
            row = tile * group.rows + index(group.start + i)
            values: Env = {}
            for axis in reversed(axes[1:]):
                values[axis] = tirx.floormod(row, index(self.extents[axis]))
                row = tirx.floordiv(row, index(self.extents[axis]))
            values[axes[0]] = row
            found.append(values)
        return found

    def _taps(
        self, env: Env, rows: list[tuple[int, Env]], tile: Tile, left: tuple[int, ...]
    ) -> Any:
        """Return the products of the reduced axes that are left."""
        if not left:
            return self._products(env, rows, tile)
        axis, rest = left[0], left[1:]
        extent = self.extents[axis]

        def body(value: Any, kept: list[tuple[int, Env]] = rows) -> Any:
            return self._taps({**env, axis: value}, kept, tile, rest)

        bounds = [b for b in self.row_bounds if b.tap == axis] if tile.group.border else []
        if bounds:
            statements = []
            for tap in range(extent):
                kept = [
                    (i, row) for i, row in rows if all(inside(b, row[b.axis], tap) for b in bounds)
                ]
                if kept:
                    statements.append(body(tap, kept))
            return sequence(statements) if statements else tirx.Evaluate(index(0))
        outer = [b for b in self.outer_bounds if b.tap == axis]
        if outer:
            begin, end = limits(outer, extent, env)
            return loop("tap", begin, end - begin, body)
        if rest:
            if extent <= WRITTEN_OUT and self.extents[rest[-1]] >= UNROLLED:
                return sequence([body(tap) for tap in range(extent)])
            return loop("tap", 0, extent, body)
        if self.plan.words is not None and not self.plan.words.instruction.adds:
            return unrolled(extent, body, UNROLLED_PRODUCTS)
        return unrolled(extent, body, UNROLLED // 2 if tile.group.border else UNROLLED)

    def _products(self, env: Env, rows: list[tuple[int, Env]], tile: Tile) -> Any:
        statements = []
        if tile.ahead is not None:
            line = tile.ahead + as_index(self.layout.step(env) * LINE)
            statements.append(fetch(tirx.BufferLoad(self.packed, [line]), cache=2))
        for i, row in rows:
            for start, width in tile.pieces:
                if self.plan.words is None:
                    product = self._product({**env, **row}, tile, i, start)
                    statements.append(lanes_loop(width, product))
                else:
                    words, full = self.plan.words, {**env, **row}
                    statements.append(self._dot_products(words, full, tile, i, start, width))
        return sequence(statements)

    def _product(self, env: Env, tile: Tile, row: int, start: int) -> Callable[[Any], Any]:
        """Return what adds a product to the sum in a lane of a vector of a row."""
        panel, number = tile.panel, tile.number
        buffer, place = tile.sums.at(row, start)

        def product(lane: Any) -> Any:
            full = self._at_lane(env, panel, number, start, lane)
            a = self._value(self.contraction.a, full)
            b = self._vector(full, panel, number, lane + start)
            at_lane = [lane + place]
            return tirx.BufferStore(buffer, tirx.BufferLoad(buffer, at_lane) + a * b, at_lane)

        return product

    def _dot_products(
        self, words: Words, env: Env, tile: Tile, row: int, start: int, width: int
    ) -> Any:
        """Return the statement that adds the products of a word to each sum of a vector."""
        place = as_index(self.layout.offset(env, tile.panel, tile.number) + start)
        a = self._word(words, env, width)
        b = tirx.BufferLoad(self.packed, [tirx.Ramp(place, index(1), width)])
        first, second = (a, b) if words.rows_first else (b, a)
        sums = tile.sums.at(row, start)
        return add_dot_products(words.instruction, sums, first, second, width)

    def _at_lane(self, env: Env, panel: Panel, number: Any, start: int, lane: Any) -> Env:
        """Return the values of all axes in a lane of a vector."""
        element = number * panel.width + (lane + (panel.start + start))
        return {**env, self.plan.vector: element}

    def _word(self, words: Words, env: Env, lanes: int) -> Any:
        """Return a word of the rows' operand, in each lane of a vector."""
        (access,) = self.contraction.a.accesses.values()
        buffer = self.views.of(words.buffer)
        return same_word(buffer, at(access, env), words.instruction, lanes)

    def _vector(self, env: Env, panel: Panel, number: Any, element: Any) -> Any:
        """Return an element of the vector operand."""
        operand = self.contraction.b
        if self.packed is None:
            return self._value(operand, env)
        place = self.layout.offset(env, panel, number) + element
        loaded = tirx.BufferLoad(self.packed, [as_index(place)])
        return tvm_ffi.structural_map(operand.value, (TensorLoad, lambda _: loaded))

    def _value(self, operand: Operand, env: Env, sums: Any = None) -> Any:
        return value_at(self.contraction, operand, env, self.views, sums)

    def _stores(
        self, env: Env, rows: list[Env], panel: Panel, number: Any, sums: Sums
    ) -> list[Any]:
        """Return the epilogue of a tile."""
        contraction, vector = self.contraction, self.plan.vector
        contiguous = contraction.stored.factors[vector] == 1 and contraction.vectors
        statements = []
        for i, row in enumerate(rows):
            for start, width in pieces_of(panel.valid, self.plan.lanes):
                store = self._store({**env, **row}, panel, number, start, sums.at(i, start))
                if contiguous:
                    statements.append(lanes_loop(width, store))
                else:
                    statements += [store(index(lane)) for lane in range(width)]
        return statements

    def _store(
        self, env: Env, panel: Panel, number: Any, start: int, sums: tuple[Any, int]
    ) -> Callable[[Any], Any]:
        """Return what stores the result of a sum in a lane of a vector."""
        contraction, (buffer, place) = self.contraction, sums
        out = self.views.of(contraction.out)

        def store(lane: Any) -> Any:
            full = self._at_lane(env, panel, number, start, lane)
            value = self._value(contraction.epilogue, full, tirx.BufferLoad(buffer, [lane + place]))
            return tirx.BufferStore(out, value, [at(contraction.stored, full)])

        return store
