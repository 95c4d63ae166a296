"""Products of matrices on a GPU, by TVM's primitives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from ...recognize.product import Operand
from ...rewrites.epilogue import Epilogue
from ...rewrites.step import rewrite
from .depthwise.loops import bind_elements, place_of, unroll
from .fusing import fuse_as_one


def scheduled(
    sch: s_tir.Schedule,
    reduction: Any,
    epilogue: Epilogue,
    operands: tuple[Operand, Operand],
    lanes: int,
    element_threads: int,
    point: Mapping[str, int],
) -> s_tir.Schedule:
    """Schedule a product by TVM's primitives.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`.
    - `reduction` (SBlockRV): its only reduction.
    - `epilogue`: the work after it.
    - `operands`: the two matrices.
    - `lanes`: elements of a result that a thread stores at once.
    - `element_threads`: threads of a block of a kernel of its own for what follows.
    - `point`: tile sizes and ways, see
      :class:`fuse_epilogue.planner.problems.cuda.product.CudaProduct`.
    """
    mode = point["fusion"]
    name = sch.get(reduction).name_hint
    read = sch.get(reduction).reads
    sources = [read[operand.place].source for operand in operands]
    split = epilogue.is_split(mode)
    store = tail = None
    if not split:
        tail = fuse_as_one(sch, name, mode)
        # Sums in memory that others see would be stored in every step.
        store = sch.cache_write(name, 0, "local")
    reduction = sch.get_sblock(name)
    m, n, k = sch.get_loops(reduction)
    m0, m1, m2 = sch.split(m, [None, point["threads_m"], point["rows"]])
    n0, n1, n2 = sch.split(n, [None, point["threads_n"], point["columns"]])
    k0, k1 = sch.split(k, [None, point["step"]])
    sch.reorder(m0, n0, m1, n1, k0, k1, m2, n2)
    if store is None:
        store = fuse_as_one(sch, name, mode)
        sch.set_scope(reduction, 0, "local")
    else:
        sch.reverse_compute_at(store, n1, preserve_unit_loops=True)
    _stored(sch, store, lanes)
    sch.bind(sch.fuse(m0, n0), "blockIdx.x")
    sch.bind(sch.fuse(m1, n1), "threadIdx.x")
    threads = point["threads_m"] * point["threads_n"]
    for source in sources:
        place = place_of(sch, reduction, source)
        # What follows may read the whole matrix again: the tile is for the reduction alone.
        tile = sch.cache_read(reduction, place, "shared", [reduction])
        _shared(sch, tile, k0, threads, point)
    for loop in (m2, n2):
        unroll(sch, loop)
    sch.decompose_reduction(reduction, k0)
    if point["buffers"] > 1:
        _pipelined(sch, k0, point["buffers"])
    if tail is not None:
        bind_elements(sch, tail, element_threads)
    return sch


def _shared(
    sch: s_tir.Schedule, tile: Any, step: Any, threads: int, point: Mapping[str, int]
) -> None:
    """Load a tile of a step, all threads together."""
    sch.compute_at(tile, step, preserve_unit_loops=True)
    rows, columns = sch.get_loops(tile)[-2:]
    if point["buffers"] > 1:
        columns, _ = sch.split(columns, [None, point["vector"]])
        rewrite(sch, tile, "cuda_copies")
        loads, thread = sch.split(sch.fuse(rows, columns), [None, threads])
    else:
        loads, thread, vector = sch.split(sch.fuse(rows, columns), [None, threads, point["vector"]])
        if point["vector"] > 1:
            sch.vectorize(vector)
    sch.bind(thread, "threadIdx.x")
    unroll(sch, loads)


def _pipelined(sch: s_tir.Schedule, step: Any, buffers: int) -> None:
    """Begin to load the tiles of a step while those of the steps before it are used.

    What TVM makes of it: a buffer of its own for each step that is under way, the first loads in
    front of the loop, and after those of a step the wait for the ones that are used now.
    """
    sch.annotate(step, "software_pipeline_stage", [0, 0, buffers - 1])
    sch.annotate(step, "software_pipeline_order", [0, 1, 2])
    sch.annotate(step, "software_pipeline_async_stages", [0])


def _stored(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    """Compute and store the finished tile of a thread in vectors."""
    rows, columns = sch.get_loops(block)[-2:]
    if lanes > 1:
        columns, lane = sch.split(columns, [None, lanes])
        sch.vectorize(lane)
    for loop in (rows, columns):
        unroll(sch, loop)
