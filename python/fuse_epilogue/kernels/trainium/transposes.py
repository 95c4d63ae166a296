"""The rule for transpositions on Trainium: through the tensor engine.

    for blocks of 512 x 512:
        load 4 tiles of 128 rows                         contiguous pieces of up to 512 elements
        for 128 columns of each, which become rows:
            4 transpositions into one bank of PSUM
            copy it to SBUF, store it                    contiguous pieces again

A transfer that reads along one axis and writes along the other moves element by element, each as
long as hundreds of bytes.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from ...neuron.machine import Machine
from ...recognize.stages import Stage, read_program
from ..choice import Choice
from .rule import TransposingRule
from .tiles import PARTITIONS, best, is_fixed, mark, split

#: Rows and columns of a block: what a bank of PSUM holds in float32.
_BLOCK = 512


class Transpose(TransposingRule):
    """Schedules permutations of axes that move the last one.

    ``y[.., n, m] = x[.., m, n]``, of any sizes that are multiples of 128 or below that, and any
    order of the other axes. On trn1 the tensor engine transposes by multiplying with the identity:
    0 times an infinity or NaN spoils other elements there.

    Parameters
    ----------
    finite : bool
        All data is finite; needed on trn1 only.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue import neuron, schedules
    >>> x = te.placeholder((256, 512), "float32")
    >>> func = te.create_prim_func([x, topi.transpose(x)])
    >>> kernel = neuron.emit(schedules.neuron.Transpose().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        found = find_transposition(func)
        if isinstance(found, str):
            return Choice("", found)
        refused = self._refused(core)
        if refused is not None:
            return refused
        form = f"blocks of {_BLOCK} x {_BLOCK} through the tensor engine"
        return best(core, [(form, scheduled(func, *found))])


def find_transposition(func: tirx.PrimFunc) -> tuple[str, list[int]] | str:
    """Return the block of a transposition, and the order of axes in what it reads.

    - `func`: not scheduled.
    - Returns: for each axis of what is read, its place in the result; or the reason if the function
      is something else.
    """
    program = read_program(func) if is_fixed(func) else None
    if program is None or len(program.stages) != 1 or program.stages[0].reduced:
        return "it is not one block of floats that moves every element once"
    stage = program.stages[0]
    if not isinstance(stage.value, TensorLoad):
        return "it computes something besides moving elements"
    places = [_place(stage, index) for index in stage.value.indices]
    if sorted(places) != list(range(len(stage.axes))):
        return "it does not read a permutation of the axes it stores"
    if places[-1] == len(stage.axes) - 1:
        return "the last axis stays the last: its rows are copied as they are"
    for axis in (stage.axes[places[-1]], stage.axes[-1]):
        if axis.extent > PARTITIONS and axis.extent % PARTITIONS:
            return f"an axis of {axis.extent} is neither below 128 nor a multiple of it"
    return stage.name, places


def _place(stage: Stage, index: Any) -> int:
    found = [place for place, axis in enumerate(stage.axes) if index.same_as(axis.var)]
    return found[0] if found else -1


def scheduled(func: tirx.PrimFunc, name: str, places: list[int]) -> s_tir.Schedule:
    """Schedule a transposition, for :func:`fuse_epilogue.neuron.emit`.

    - `name`: its block.
    - `places`: for each axis of what is read, its place in the result.
    """
    sch = s_tir.Schedule(func)
    transposed = sch.get_sblock(name)
    rows = sch.cache_read(transposed, 0, "trn.sbuf")
    stored = sch.cache_write(transposed, 0, "trn.sbuf")
    evicted = sch.cache_write(transposed, 0, "trn.psum")
    n, m = _last_two(sch, stored, places[-1], -1)
    sizes = [int(sch.get(loop).extent) for loop in (n, m)]
    n_block, n_tile, n = sch.split(n, [None, *_cut(sizes[0])])
    m_block, m = sch.split(m, [None, math.prod(_cut(sizes[1]))])
    sch.reorder(n_block, m_block, n_tile, n, m)
    mark(sch, n, m)
    sch.compute_at(evicted, n_tile, preserve_unit_loops=True)
    mark(sch, *_last_two(sch, evicted, places[-1], -1, len(places)))
    sch.compute_at(transposed, n_tile, preserve_unit_loops=True)
    row, column = _last_two(sch, transposed, places[-1], -1, len(places))
    part, column = split(sch, column, PARTITIONS)
    sch.reorder(part, row, column)
    mark(sch, row, column)
    sch.compute_at(rows, m_block, preserve_unit_loops=True)
    row, column = _last_two(sch, rows, places.index(len(places) - 1), -1, len(places))
    part, row = split(sch, row, PARTITIONS)
    sch.reorder(part, row, column)
    mark(sch, row, column)
    return sch


def _cut(size: int) -> tuple[int, int]:
    """Return how many tiles of an axis are in a block, and how long one is."""
    if size <= PARTITIONS:
        return 1, size
    tiles = size // PARTITIONS
    return max(n for n in range(1, _BLOCK // PARTITIONS + 1) if tiles % n == 0), PARTITIONS


def _last_two(sch: s_tir.Schedule, block: Any, a: int, b: int, count: int = 0) -> list[Any]:
    """Put two of a block's innermost loops last, and return them."""
    loops = sch.get_loops(block)[-count:]
    pair = [loops[a], loops[b]]
    others = [loop for place, loop in enumerate(loops) if place not in (a, b % len(loops))]
    sch.reorder(*others, *pair)
    return pair
