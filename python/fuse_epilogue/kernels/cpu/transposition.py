"""Eight vectors of eight lanes, transposed in registers.

Three steps of shuffles: pairs of elements, pairs of 64 bits, halves of 128 bits. LLVM makes the
unpack, shuffle and permute instructions of AVX of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import prim

#: Rows and columns of a block.
EDGE = 8
# The lanes of the low and the high result of each step, of two vectors one after the other.
_STEPS = (
    ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
# The vectors that a step takes in pairs: neighbours, those two apart, those four apart.
_DISTANCES = (1, 2, 4)


def transposed_block(vectors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the statements that transpose a block, and the vectors after them.

    - `vectors`: eight vectors of eight lanes of 32 bits: the rows.
    - `statements`: bindings of variables, to be followed by what uses them.
    - `columns`: vector `j` has lane `j` of each row.
    """
    statements: list[Any] = []

    def bound(value: Any) -> Any:
        var = tirx.Var("part", value.ty)
        statements.append(tirx.Bind(var, value))
        return var

    rows = [bound(vector) for vector in vectors]
    for lanes, distance in zip(_STEPS, _DISTANCES, strict=True):
        results: list[Any] = [None] * EDGE
        for first in range(EDGE):
            if first & distance:
                continue
            pair = [rows[first], rows[first + distance]]
            for place, order in zip((first, first + distance), lanes, strict=True):
                results[place] = bound(tirx.Shuffle(pair, [prim.IntImm("int32", i) for i in order]))
        rows = results
    # Column j is where each step put bit k of j: neighbours by bit 1, pairs by bit 0.
    return statements, [rows[_place(column)] for column in range(EDGE)]


def _place(column: int) -> int:
    """Return where the steps leave a column.

    The first step splits lanes by their second bit, the next by their first, the last by their
    third: they leave it at the vector with the first two bits exchanged.
    """
    return (column & 4) | ((column & 1) << 1) | ((column & 2) >> 1)
