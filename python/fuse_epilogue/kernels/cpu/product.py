"""Products of matrices on a processor, by TVM's primitives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from ...recognize.product import Operand
from ...rewrites.epilogue import NONE, Epilogue, fuse, in_vectors, unfused
from ...tir.nest import child_names


def scheduled(
    sch: s_tir.Schedule, reduction: Any, epilogue: Epilogue, b: Operand, point: Mapping[str, int]
) -> s_tir.Schedule:
    """Schedule a product by TVM's primitives.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`.
    - `reduction` (SBlockRV): its only reduction.
    - `epilogue`: the work after it.
    - `b`: the right matrix.
    - `point`: tile sizes and ways, see
      :class:`fuse_epilogue.planner.problems.cpu.product.ProductProblem`.
    """
    mode, parallel = point["fusion"], point["threads"] > 1
    root = child_names(sch.mod["main"])
    name, followers = root[0], root[1:]
    width = point["vectors"] * point["lanes"]
    split = epilogue.is_split(mode)
    copy = store = None
    if point["pack"]:
        copy = sch.cache_read(reduction, b.place, "global")
        place = b.transposed
        sch.transform_layout(
            copy,
            ("write", 0),
            (lambda n, k: [n // width, k, n % width])
            if place
            else (lambda k, n: [n // width, k, n % width]),
        )
        copy_name = sch.get(copy).name_hint
    if not split:
        fuse(sch, name, mode)
        # Sums in memory that others see would be stored in every step.
        store = sch.cache_write(name, 0, "local")
    reduction = sch.get_sblock(name)
    m, n, k = sch.get_loops(reduction)
    m0, m1, m3 = sch.split(m, [None, point["block_rows"] // point["rows"], point["rows"]])
    n0, n1, n3, lane = sch.split(
        n, [None, point["block_columns"] // width, point["vectors"], point["lanes"]]
    )
    k0, k1 = sch.split(k, [None, point["unroll"]])
    tiles = [m1, n1] if point["order"] == 0 else [n1, m1]
    sch.reorder(m0, n0, *tiles, k0, k1, m3, n3, lane)
    if store is not None:
        sch.reverse_compute_at(store, tiles[-1], preserve_unit_loops=True)
        columns = sch.get_loops(store)[-1]
        _unrolled(sch, [*sch.get_loops(store)[-2:-1], *sch.split(columns, [None, point["lanes"]])])
    _unrolled(sch, [k1, m3, n3, lane])
    if split:
        fuse(sch, name, mode)
    outer = sch.fuse(m0, n0)
    if parallel:
        sch.parallel(outer)
    sch.decompose_reduction(reduction, k0)
    if mode == NONE and followers:
        in_vectors(sch, unfused(sch, followers), point["lanes"], parallel)
    if copy is not None:
        copied = sch.get_sblock(copy_name)
        if b.transposed:
            in_vectors(sch, copied, 1, parallel)
        else:
            _panels_of(sch, copied, width, point["lanes"], parallel)
    return sch


def _unrolled(sch: s_tir.Schedule, loops: list[Any]) -> None:
    """Unroll loops, and make the last one a vector."""
    *written, lane = loops
    for loop in written:
        sch.unroll(loop)
    sch.vectorize(lane)


def _panels_of(sch: s_tir.Schedule, block: Any, width: int, lanes: int, parallel: bool) -> None:
    """Schedule a block that writes panels of columns, one after the other."""
    rows, columns = sch.get_loops(block)
    panel, vectors, lane = sch.split(columns, [None, width // lanes, lanes])
    sch.reorder(panel, rows, vectors, lane)
    sch.unroll(vectors)
    sch.vectorize(lane)
    if parallel:
        sch.parallel(panel)
