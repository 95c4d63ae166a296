"""Reductions of the rows of a matrix on a GPU, by TVM's primitives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from ...rewrites.epilogue import Epilogue
from ...tir.walk import uses
from .depthwise.loops import bind_elements, place_of, unroll
from .fusing import fuse_as_one


def scheduled(
    sch: s_tir.Schedule, reduction: Any, epilogue: Epilogue, threads: int, point: Mapping[str, int]
) -> s_tir.Schedule:
    """Schedule a reduction of rows by TVM's primitives.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`.
    - `reduction` (SBlockRV): its only reduction.
    - `epilogue`: the work after it.
    - `threads`: threads of a block of a kernel of its own for what follows.
    - `point`: tile sizes and ways, see
      :class:`fuse_epilogue.planner.problems.cuda.row_reduction.CudaRows`.
    """
    # Whether something is computed on finished results in the same kernel.
    split = epilogue.is_split(point["fusion"])
    make = _across_threads if point["lanes"] > 1 else _in_a_thread
    apart = make(sch, sch.get(reduction).name_hint, point, split)
    if apart is not None:
        bind_elements(sch, apart, threads)
    return sch


def _in_a_thread(sch: s_tir.Schedule, name: str, point: Mapping[str, int], split: bool) -> Any:
    """Reduce each row in a thread; return what is left for a kernel of its own."""
    tail = None
    x = _data(sch, name)
    if not split:
        tail = fuse_as_one(sch, name, point["fusion"])
        store = sch.cache_write(name, 0, "local")
    reduction = sch.get_sblock(name)
    m, n = sch.get_loops(reduction)
    m0, m1 = sch.split(m, [None, point["rows"]])
    n0, n1, vector = sch.split(n, [None, point["unroll"], point["vector"]])
    if split:
        fuse_as_one(sch, name, point["fusion"])
        sch.set_scope(reduction, 0, "local")
    else:
        sch.reverse_compute_at(store, m1, preserve_unit_loops=True)
    sch.bind(m0, "blockIdx.x")
    sch.bind(m1, "threadIdx.x")
    _loaded_first(sch, reduction, place_of(sch, reduction, x), n1, point["vector"])
    unroll(sch, n1)
    unroll(sch, vector)
    sch.decompose_reduction(reduction, n0)
    return tail


def _across_threads(sch: s_tir.Schedule, name: str, point: Mapping[str, int], split: bool) -> Any:
    """Reduce each row in several threads, and what they have across them; return the same."""
    x = _data(sch, name)
    _, n = sch.get_loops(sch.get_sblock(name))
    _, lane, _ = sch.split(n, [None, point["lanes"], point["vector"]])
    partial = sch.rfactor(lane, 0)
    reduction = sch.get_sblock(name)
    m, lane = sch.get_loops(reduction)
    sch.compute_at(partial, m, preserve_unit_loops=True)
    own, _, n0, vector = sch.get_loops(partial)[-4:]
    n0, n1 = sch.split(n0, [None, point["unroll"]])
    m0, m1 = sch.split(m, [None, point["rows"]])
    tail = fuse_as_one(sch, name, point["fusion"])
    sch.bind(m0, "blockIdx.x")
    sch.bind(m1, "threadIdx.y")
    for loop in (own, lane):
        sch.bind(loop, "threadIdx.x")
    sch.set_scope(partial, 0, "local")
    if split:
        # Binding takes an absorbed start into a block of its own between the reduction and the
        # tail, which would need a buffer of its own.
        for block in sch.get_producers(tail):
            if sch.get(block).name_hint != name:
                sch.compute_inline(block)
        sch.set_scope(reduction, 0, "local")
        # Every thread has the result; the first one stores it.
        _, first = sch.split(sch.add_unit_loop(tail), [None, point["lanes"]])
        sch.bind(first, "threadIdx.x")
        tail = None
    _loaded_first(sch, partial, place_of(sch, partial, x), n1, point["vector"])
    unroll(sch, n1)
    unroll(sch, vector)
    sch.decompose_reduction(partial, n0)
    return tail


def _data(sch: s_tir.Schedule, name: str) -> Any:
    """Return the buffer that is reduced; T.init may read others, and those come first."""
    block = sch.get(sch.get_sblock(name))
    return next(read.source for read in block.reads if uses(block.body, read.source))


def _loaded_first(sch: s_tir.Schedule, reduction: Any, place: int, step: Any, vector: int) -> None:
    """Load what a step needs into registers before it is used, as a vector."""
    loaded = sch.cache_read(reduction, place, "local", [reduction])
    sch.compute_at(loaded, step)
    elements = sch.get_loops(loaded)[-1]
    if vector > 1:
        elements, lane = sch.split(elements, [None, vector])
        sch.vectorize(lane)
    unroll(sch, elements)
