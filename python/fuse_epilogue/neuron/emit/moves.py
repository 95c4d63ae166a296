"""Writes instructions that move things, and operands as text."""

from __future__ import annotations

from dataclasses import replace

from .linear import Interval, Linear
from .names import Names
from .patterns import number
from .program import Number, Operand
from .text import Text
from .views import Area, at_start, written

Ranges = dict[str, Interval]


class Moves:
    """Writes instructions of one kernel.

    - `names`: those that are taken.
    - `ranges`: the values of all terms.
    - `text`: where to write.
    - `widened`: tensors that have a copy in float32.
    - `wanted` (set[str]): tensors that need one: their columns are operands.
    - `masks` (set[str]): tiles that hold comparisons.
    """

    def __init__(self, names: Names, ranges: Ranges, text: Text, widened: frozenset[str]) -> None:
        self.names = names
        self.ranges = ranges
        self.text = text
        self.widened = widened
        self.wanted: set[str] = set()
        self.masks: set[str] = set()
        self._wide: dict[str, str] = {}
        self._ones: dict[str, tuple[str, int]] = {}

    # ---- Constants ---------------------------------------------------------------------------

    def ones(self, dtype: str, size: int, axes: tuple[str, ...]) -> Operand:
        """Return a row of ones in one partition, along an axis if there is one."""
        name, known = self._ones.get(dtype, ("", 0))
        name = name or self.names.unique("ones")
        self._ones[dtype] = (name, max(known, size))
        along = Linear({axis: 1 for axis in axes})
        # The size of the row is known at the end: nothing is "all of it" before.
        return Operand(name, "sbuf", dtype, (1, 0), (Linear(), along))

    def constants(self) -> list[str]:
        """Return the lines that make the rows of ones."""
        lines = []
        for dtype, (name, size) in self._ones.items():
            lines.append(f"    {name} = nl.ndarray((1, {size}), nl.{dtype}, buffer=nl.sbuf)")
            lines.append(f"    nisa.memset({name}, 1.0)")
        return lines

    # ---- Instructions ------------------------------------------------------------------------

    def dma(self, target: Operand, value: Operand, area: Area, block: str) -> None:
        """Write a transfer."""
        kept = area.kept(self.ranges)
        self.text.call(
            "nisa.dma_copy",
            [self.view(target, area, kept, block), self.view(value, area, kept, block)],
        )
        self._widen(target, area, kept, block)

    def load_transposed(
        self,
        target: Operand,
        value: Operand,
        area: Area,
        columns: tuple[str, ...],
        block: str,
    ) -> None:
        """Write a transfer that transposes: the last of `columns` counts the rows that are read."""
        assert area.partition is not None
        *between, row = columns
        transposed = replace(area, partition=row, free=(*between, area.partition))
        gone = tuple(name for name in area.free if name not in columns)
        self.text.call(
            "nisa.dma_transpose",
            [
                written(at_start(target, area, gone), area, columns, block),
                written(at_start(value, area, gone), transposed, transposed.free, block),
            ],
        )

    def transpose(
        self, target: Operand, value: Operand, area: Area, columns: tuple[str, ...], block: str
    ) -> None:
        """Write a transposition: `columns` counts the partitions of what is read, if several."""
        assert area.partition is not None
        transposed = replace(area, partition=(*columns, None)[0], free=(area.partition,))
        gone = tuple(name for name in area.free if name not in columns)
        self.text.call(
            "nisa.nc_transpose",
            [
                written(at_start(target, area, gone), area, columns, block),
                written(at_start(value, area, gone), transposed, transposed.free, block),
            ],
        )

    def diagonal(self, target: Operand, on: Number, off: Number, area: Area, block: str) -> None:
        """Write one number on the diagonal of a square, another one elsewhere."""
        (column,) = area.free
        here = self.view(target, area, (column,), block)
        self.text.call("nisa.memset", [here, number(on.value)])
        self.text.call(
            "nisa.affine_select",
            [
                here,
                f"pattern=[[-1, {area.size(column)}]]",
                "channel_multiplier=1",
                f"on_true_tile={here}",
                f"on_false_value={number(off.value)}",
                "cmp_op=nl.equal",
                "offset=0",
            ],
        )

    def select(
        self, target: Operand, condition: Linear, otherwise: Number, area: Area, block: str
    ) -> None:
        """Write a number where a condition of the place, ``condition >= 0``, does not hold."""
        kept = area.kept(self.ranges)
        here = self.view(target, area, kept, block)
        pattern = ", ".join(f"[{condition.of(n)}, {area.size(n)}]" for n in kept) or "[0, 1]"
        offset = condition
        for name in area.order:
            offset = offset.put(name, area.box[name][0])
        rows = 0 if area.partition is None else condition.of(area.partition)
        self.text.call(
            "nisa.affine_select",
            [
                here,
                f"pattern=[{pattern}]",
                f"channel_multiplier={rows}",
                f"on_true_tile={here}",
                f"on_false_value={number(otherwise.value)}",
                "cmp_op=nl.greater_equal",
                f"offset={offset}",
            ],
        )

    # ---- Matrices ----------------------------------------------------------------------------

    def matmul(
        self,
        target: str,
        stationary: str,
        moving: str,
        accumulate: str,
    ) -> None:
        """Write a product of matrices."""
        self.text.call("nisa.nc_matmul", [target, stationary, moving, f"accumulate={accumulate}"])

    # ---- Operands ----------------------------------------------------------------------------

    def tile(self, dtype: str, area: Area, free: tuple[str, ...]) -> Operand:
        """Allocate a tile with an element for each iteration of an area."""
        name = self.names.unique("part")
        shape, index = [1], [Linear()]
        if area.partition is not None:
            shape, index = [self._extent(area, area.partition)], [Linear({area.partition: 1})]
        for each in free:
            shape.append(self._extent(area, each))
            index.append(Linear({each: 1}))
        if len(shape) == 1:
            shape.append(1)
            index.append(Linear())
        sizes = ", ".join(map(str, shape))
        self.text.add(f"{name} = nl.ndarray(({sizes}), nl.{dtype}, buffer=nl.sbuf)")
        if name in self.widened:
            wide = self.wide(name)
            self.text.add(f"{wide} = nl.ndarray(({sizes}), nl.float32, buffer=nl.sbuf)")
        return Operand(name, "sbuf", dtype, tuple(shape), tuple(index))

    def wide(self, name: str) -> str:
        """Return the name of a tensor's copy in float32."""
        if name not in self._wide:
            self._wide[name] = self.names.unique(f"{name}_f32")
        return self._wide[name]

    def _extent(self, area: Area, name: str) -> int:
        return area.box[name][1].bounds(self.ranges)[1]

    def view(self, operand: Operand, area: Area, kept: tuple[str, ...], block: str) -> str:
        """Write an operand with an element for each iteration."""
        gone = tuple(name for name in area.free if name not in kept)
        return written(at_start(operand, area, gone), area, kept, block)

    def _column(self, operand: Operand, area: Area, block: str) -> str:
        """Write one value for each partition, in float32."""
        if operand.dtype != "float32":
            self.wanted.add(operand.name)
            operand = replace(operand, name=self.wide(operand.name), dtype="float32")
        return written(at_start(operand, area, area.free), area, (), block)

    def _widen(self, target: Operand, area: Area, kept: tuple[str, ...], block: str) -> None:
        """Write the copy in float32 of a tensor whose columns are operands."""
        if target.name not in self.widened:
            return
        wide = replace(target, name=self.wide(target.name), dtype="float32")
        self.text.call(
            "nisa.tensor_copy",
            [self.view(wide, area, kept, block), self.view(target, area, kept, block)],
        )
