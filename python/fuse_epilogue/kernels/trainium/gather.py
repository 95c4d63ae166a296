"""Kernels for Trainium that gather rows of a table by their indices, as an embedding does.

for tiles of 128 places:
    load them, one for each partition
    load the rows that they name       one indirect transfer: a descriptor for each row
    store the rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...neuron.emit.gather import emit_gather
from ...neuron.kernel import Kernel
from ...neuron.trace import ITEMSIZE
from ...recognize.inlining import inlined
from ...recognize.stages import read_program
from ...tir.walk import handle, same

#: Types of places.
_PLACES = ("int32", "int64")


@dataclass(frozen=True)
class Gather:
    """A function ``y[i, j] = table[places[i], j]``; i and j stand for any axes.

    - `table`, `places`, `result` (tvm.tirx.Buffer): its parameters.
    - `is_table_first`: whether the table comes before the places.
    """

    table: Any
    places: Any
    result: Any
    is_table_first: bool

    def kernel(self, name: str) -> Kernel:
        """Return the kernel, which takes places as int32."""
        return emit_gather(
            name,
            _shape(self.table),
            _shape(self.places),
            _shape(self.result),
            str(self.table.ty.dtype),
            is_table_first=self.is_table_first,
        )


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in buffer.ty.shape)


def find_gather(func: tirx.PrimFunc) -> Gather | None:
    """Return the rows that a function takes, None if it does something else.

    - `func`: not scheduled.
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
    while isinstance(first, prim.Cast) and str(first.ty.dtype) in _PLACES:
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
    is_first = same(func.params[0], table)
    return Gather(table, places, result, is_first)
