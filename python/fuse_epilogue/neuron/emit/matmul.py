"""Products of matrices: the tensor engine sums over partitions into PSUM.

    d[m, n] = d[m, n] + a[k, m] * b[k, n]      k counts partitions of a and b, m those of d

What the sum starts with is 0, or a row: ``d[m, n] = bias[n]`` is itself a product, of a row of ones
with the row of biases, and so is ``d[m, n] = bias[m]``. PSUM must not be written before by another
engine: the first product overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..language.grammar import TILE_SIZE
from .areas import Areas
from .elementwise import Elementwise
from .layouts import factors
from .linear import Linear
from .program import Leaf, Number, Operand
from .refusals import EmitError
from .terms import Terms
from .text import Text
from .views import Area

#: Columns of the moving operand, at most.
MOVING = TILE_SIZE["gemm_moving_fmax"]


@dataclass(frozen=True)
class _Loops:
    """The loops of a product: over rows and columns of the result, and the one of its sums."""

    rows: str | None
    columns: tuple[str, ...]
    depth: str


class Matmul:
    """Writes the products of one block."""

    def __init__(self, terms: Terms, elementwise: Elementwise, text: Text) -> None:
        self.terms = terms
        self.elementwise = elementwise
        self.text = text

    def write(self, leaf: Leaf, areas: Areas) -> None:
        """Write a block.

        - Raises EmitError: the block is not a product that the engine computes.
        """
        block = f"block '{leaf.block}'"
        loops = _Loops(
            rows=next((a.name for a in leaf.axes if a.role == "lhs_F"), None),
            columns=tuple(a.name for a in leaf.axes if a.role in ("rhs_F", "F")),
            depth=next(a.name for a in leaf.axes if a.role == "P"),
        )
        rows, columns = loops.rows, loops.columns
        found = factors(leaf.update)
        assert found is not None
        if leaf.engine not in (None, "tensor"):
            raise EmitError("engine", block, f"the {leaf.engine} engine does not multiply matrices")
        left, right = (self.terms.operand(each.tensor, each.index, block) for each in found)
        swapped = rows is not None and right.uses(rows)
        if swapped or any(left.uses(name) for name in columns):
            left, right = right, left
        target = self.terms.operand(leaf.update.tensor, leaf.update.index, block)
        # TIR does not write a loop over one row into an index.
        indexing = (*columns, *([rows] if rows and self.elementwise.ranges[rows][1] else []))
        wrong = _why_not(target, left, right, loops, indexing)
        if wrong:
            raise EmitError("matmul", block, wrong)
        place = areas.place(leaf.update.conditions)
        if place is None:
            return
        size = 1
        for name in columns:
            size *= place.area.size(name).bounds(self.elementwise.ranges)[1]
        if size > MOVING:
            raise EmitError("matmul", block, f"{size} columns at once, at most {MOVING}")
        area = place.area
        into = replace(area, partition=rows, free=columns)
        kept = tuple(n for n in area.kept(self.elementwise.ranges) if n in columns)
        result = self.elementwise.view(target, into, kept, leaf.block)
        across = replace(area, free=(rows,) if rows else ())
        stationary = self.elementwise.view(left, across, across.free, leaf.block)
        moving = self.elementwise.view(right, replace(area, free=columns), kept, leaf.block)
        first = [name for name in leaf.first if name != loops.depth]
        started = self._start(leaf, result, into, kept, rows, first)
        accumulate = "True" if started else f"({' + '.join(first)} > 0)" if first else "False"
        with self.text.when(place.guards):
            self.elementwise.matmul(result, stationary, moving, accumulate)

    def _start(
        self,
        leaf: Leaf,
        result: str,
        into: Area,
        kept: tuple[str, ...],
        rows: str | None,
        first: list[str],
    ) -> bool:
        """Write the product that starts the sum, unless it starts with 0."""
        block = f"block '{leaf.block}'"
        if leaf.init is None:
            raise EmitError("matmul", block, "its sum begins in another block, without T.init")
        if any(each not in leaf.update.conditions for each in leaf.init.conditions):
            raise EmitError("matmul", block, "its sum does not begin with its first products")
        at_first = leaf.update.conditions
        for name in leaf.first:
            at_first = tuple(each.put(name, Linear()) for each in at_first)
        held = [each for each in at_first if each not in leaf.init.conditions]
        if any(each.bounds(self.elementwise.ranges)[0] < 0 for each in held):
            raise EmitError("matmul", block, "a condition leaves out some of its first products")
        value = self.terms.term(leaf.init.value, block)
        if isinstance(value, Number) and value.value == 0:
            return False
        if not isinstance(value, Operand) or value.space != "sbuf":
            raise EmitError("matmul", block, "starts with something else than 0 or a row in SBUF")
        # Both factors lie in one partition: a row of ones over what the value does not depend on.
        flat = replace(into, partition=None)
        stands = rows is not None and value.uses(rows)
        across = kept if stands else (rows,) if rows else ()
        if len(across) > 1:
            raise EmitError("matmul", block, "starts with a row over several loops")
        size = into.size(across[0]).bounds(self.elementwise.ranges)[1] if across else 1
        ones = self.elementwise.ones(value.dtype, size, across)
        row = (rows,) if stands and rows else kept
        pair = (
            self.elementwise.view(
                value, replace(flat, free=row if stands else into.free), row, leaf.block
            ),
            self.elementwise.view(ones, replace(flat, free=across), across, leaf.block),
        )
        with self.text.when([f"{name} == 0" for name in first]):
            self.elementwise.matmul(result, *(pair if stands else pair[::-1]), "False")
        return True


def _why_not(
    target: Operand, left: Operand, right: Operand, loops: _Loops, indexing: Sequence[str]
) -> str | None:
    """Return why the tensor engine does not compute a product; None if it does.

    - `indexing`: loops that the index of the target has to name.
    """
    for each in (right, left):
        if each.space != "sbuf":
            return f"'{each.name}' is in {each.space.upper()}, operands are in SBUF"
    if target.space != "psum":
        return f"'{target.name}' is in {target.space.upper()}, not in PSUM"
    if target.dtype != "float32":
        return f"sums in {target.dtype}, not in float32"
    if (left.dtype == "float32") != (right.dtype == "float32"):
        return f"multiplies {left.dtype} with {right.dtype}"
    if target.uses(loops.depth):
        return f"loop '{loops.depth}' is not summed over"
    if (loops.rows and right.uses(loops.rows)) or any(map(left.uses, loops.columns)):
        return "an operand depends on the loops of both"
    if not all(map(target.uses, indexing)):
        return f"'{target.name}' does not depend on all of its loops"
    return None
