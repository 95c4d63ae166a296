"""Writes kernels that move rows of a table by an array of places.

TIR has no loads whose places lie in another memory, so that there is no schedule to emit them from.
"""

from __future__ import annotations

import math

from ..kernel import Kernel
from ..trace import ITEMSIZE
from .layout import PARTITIONS
from .text import Text
from .write import HEADER

#: Type of places.
PLACE = "int32"
#: Bytes of a row that are moved at once: several tiles fit into SBUF.
_MOST_BYTES = 32 * 1024

Shape = tuple[int, ...]


def emit_gather(
    name: str, table: Shape, places: Shape, result: Shape, dtype: str, *, is_table_first: bool
) -> Kernel:
    """Return the kernel that moves rows of a table to a result.

    - `table`, `places`, `result`: shapes of the arrays.
    - `dtype`: type of the table and of the result; places are int32.
    - `is_table_first`: whether the kernel takes the table before the places.

    >>> kernel = emit_gather("rows", (50, 64), (10,), (10, 64), "float32", is_table_first=True)
    >>> kernel.parameters
    ('table', 'places')
    """
    inputs = {"table": (table, dtype), "places": (places or (1,), PLACE)}
    order = ("table", "places") if is_table_first else ("places", "table")
    rows, width = math.prod(places), math.prod(table[1:])
    text = Text()
    with text.inside(f"def {name}({', '.join(order)}):"):
        text.add(f'"""Rows of table[{_sizes(table)}] {dtype} by places[{_sizes(places)}]."""')
        text.add(f"y = nl.ndarray({result}, nl.{dtype}, buffer=nl.shared_hbm)")
        whole, rest = divmod(rows, PARTITIONS)
        if whole:
            with text.inside(f"for tile in range({whole}):"):
                _tile(text, PARTITIONS, width, dtype, f"tile * {PARTITIONS}")
        if rest:
            _tile(text, rest, width, dtype, str(whole * PARTITIONS))
        text.add("return y")
    return Kernel(HEADER + "\n".join(text.lines) + "\n", {each: inputs[each] for each in order})


def _tile(text: Text, rows: int, width: int, dtype: str, first: str) -> None:
    """Write what moves up to 128 rows: one indirect transfer has a descriptor for each row."""
    text.add(f"at = nl.ndarray(({rows}, 1), nl.{PLACE}, buffer=nl.sbuf)")
    text.add(f"nisa.dma_copy(at, places.ap([[1, {rows}], [1, 1]], offset={first}))")
    most = _MOST_BYTES // ITEMSIZE[dtype]
    for column in range(0, width, most):
        size = min(most, width - column)
        source = f"table.ap([[{width}, {rows}], [1, {size}]], offset={column}, vector_offset=at,"
        start = f"({first}) * {width} + {column}" if " " in first else int(first) * width + column
        text.add(f"rows = nl.ndarray(({rows}, {size}), nl.{dtype}, buffer=nl.sbuf)")
        text.add(f"nisa.dma_copy(rows, {source} indirect_dim=0))")
        target = f"y.ap([[{width}, {rows}], [1, {size}]], offset={start})"
        text.add(f"nisa.dma_copy({target}, rows)")


def _sizes(shape: Shape) -> str:
    return ", ".join(map(str, shape))
