"""Kernels for Trainium that gather rows of a table by their indices, as an embedding does.

for tiles of 128 places:
    load them, one for each partition
    load the rows that they name       one indirect transfer: a descriptor for each row
    store the rows

TIR has no loads whose places lie in another memory, so the text is written here, not emitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...neuron.kernel import Kernel
from ...neuron.trace import ITEMSIZE
from ...recognize.stages import inlined, read_program
from ...tir.walk import handle
from .tiles import PARTITIONS

#: Types of places, and the one that kernels take them in.
_PLACES, _PLACE = ("int32", "int64"), "int32"
#: Bytes of a row that are moved at once: several tiles fit into SBUF.
_MOST_BYTES = 32 * 1024


@dataclass(frozen=True)
class Gather:
    """A function ``y[i, j] = table[places[i], j]``; i and j stand for any axes.

    Attributes
    ----------
    table, places, result : tvm.tirx.Buffer
        Its parameters.
    is_table_first : bool
        Whether the table comes before the places.
    """

    table: Any
    places: Any
    result: Any
    is_table_first: bool

    def kernel(self, name: str) -> Kernel:
        """Return the kernel, which takes places as int32.

        Parameters
        ----------
        name : str
        """
        dtype = str(self.table.ty.dtype)
        rows, width = math.prod(_shape(self.places)), math.prod(_shape(self.table)[1:])
        inputs = {
            "table": (_shape(self.table), dtype),
            "places": (_shape(self.places) or (1,), _PLACE),
        }
        order = ("table", "places") if self.is_table_first else ("places", "table")
        said = f"table[{_sizes(self.table)}] {dtype} by places[{_sizes(self.places)}]"
        lines = [
            "import nki",
            "import nki.isa as nisa",
            "import nki.language as nl",
            "",
            "",
            "@nki.jit",
            f"def {name}({', '.join(order)}):",
            f'    """Rows of {said}."""',
            f"    y = nl.ndarray({_tuple(_shape(self.result))}, nl.{dtype}, buffer=nl.shared_hbm)",
        ]
        whole, rest = divmod(rows, PARTITIONS)
        if whole:
            lines.append(f"    for tile in range({whole}):")
            lines += _tile(PARTITIONS, width, dtype, f"tile * {PARTITIONS}", "        ")
        if rest:
            lines += _tile(rest, width, dtype, str(whole * PARTITIONS), "    ")
        lines.append("    return y")
        return Kernel("\n".join(lines) + "\n", {each: inputs[each] for each in order})


def _tile(rows: int, width: int, dtype: str, first: str, indent: str) -> list[str]:
    """Return the lines that move up to 128 rows."""
    lines = [
        f"at = nl.ndarray(({rows}, 1), nl.{_PLACE}, buffer=nl.sbuf)",
        f"nisa.dma_copy(at, places.ap([[1, {rows}], [1, 1]], offset={first}))",
    ]
    most = _MOST_BYTES // ITEMSIZE[dtype]
    for column in range(0, width, most):
        size = min(most, width - column)
        source = f"table.ap([[{width}, {rows}], [1, {size}]], offset={column}, vector_offset=at,"
        start = f"({first}) * {width} + {column}" if " " in first else int(first) * width + column
        lines += [
            f"rows = nl.ndarray(({rows}, {size}), nl.{dtype}, buffer=nl.sbuf)",
            f"nisa.dma_copy(rows, {source} indirect_dim=0))",
            f"nisa.dma_copy(y.ap([[{width}, {rows}], [1, {size}]], offset={start}), rows)",
        ]
    return [indent + line for line in lines]


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in buffer.ty.shape)


def _sizes(buffer: Any) -> str:
    return ", ".join(map(str, _shape(buffer)))


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def find_gather(func: tirx.PrimFunc) -> Gather | None:
    """Return the rows that a function takes, None if it does something else.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.

    Example
    -------
    >>> from tvm import te, topi
    >>> table = te.placeholder((50, 64), "float32", "table")
    >>> places = te.placeholder((10,), "int64", "places")
    >>> func = te.create_prim_func([table, places, topi.take(table, places, 0, mode="fast")])
    >>> find_gather(func).kernel("embedding").check().loaded_bytes
    2600
    """
    program = read_program(func)
    program = None if program is None else inlined(program)
    if program is None or len(program.stages) != 1 or program.stages[0].reduced:
        return None
    stage = program.stages[0]
    value = stage.value
    if not isinstance(value, TensorLoad) or not program.is_param(value.source):
        return None
    first, *others = value.indices
    while isinstance(first, prim.Cast):
        first = first.value
    if not isinstance(first, TensorLoad) or not program.is_param(first.source):
        return None
    # All axes, each once and in their order: those of the places come first.
    order = [handle(index) for index in (*first.indices, *others)]
    if order != [handle(axis.var) for axis in stage.axes]:
        return None
    table, places, result = value.source, first.source, stage.output
    if str(places.ty.dtype) not in _PLACES or str(table.ty.dtype) not in ITEMSIZE:
        return None
    if str(result.ty.dtype) != str(table.ty.dtype) or not others:
        return None
    is_first = handle(func.params[0]) == handle(table)
    return Gather(table, places, result, is_first)
