"""Reductions of the rows of a matrix on a processor, by TVM's primitives."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import s_tir

from ...rewrites.epilogue import NONE, fuse, in_vectors, unfused
from ...tir.nest import child_names


def scheduled(sch: s_tir.Schedule, lanes: int, point: Mapping[str, int]) -> s_tir.Schedule:
    """Schedule a reduction of rows.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; the reduction comes first.
    - `lanes`: elements of a vector of the machine, for what follows the reduction unfused.
    - `point`: tile sizes and ways, see
      :class:`fuse_epilogue.planner.problems.cpu.row_reduction.RowsProblem`.
    """
    names = child_names(sch.mod["main"])
    make = _in_vectors if point["lanes"] > 1 else _one_by_one
    make(sch, names[0], point)
    if point["fusion"] == NONE and names[1:]:
        in_vectors(sch, unfused(sch, names[1:]), lanes, parallel=False)
    return sch


def _one_by_one(sch: s_tir.Schedule, name: str, point: Mapping[str, int]) -> None:
    """Reduce tiles of rows, without vectors."""
    reduction = sch.get_sblock(name)
    m, n = sch.get_loops(reduction)
    m0, m1 = sch.split(m, [None, point["rows"]])
    n0, n1 = sch.split(n, [None, point["unroll"]])
    sch.reorder(m0, n0, n1, m1)
    sch.unroll(n1)
    sch.unroll(m1)
    fuse(sch, name, point["fusion"])
    if point["threads"] > 1:
        sch.parallel(m0)
    sch.decompose_reduction(reduction, n0)


def _in_vectors(sch: s_tir.Schedule, name: str, point: Mapping[str, int]) -> None:
    """Reduce row after row, in vectors of partial results."""
    reduction = sch.get_sblock(name)
    m, n = sch.get_loops(reduction)
    _, width = sch.split(n, [None, point["vectors"] * point["lanes"]])
    partial = sch.rfactor(width, 1)
    m, width = sch.get_loops(sch.get_sblock(name))
    sch.compute_at(partial, m, preserve_unit_loops=True)
    inner, _, n0 = sch.get_loops(partial)[-3:]
    sch.reorder(n0, inner)
    n0, n1 = sch.split(n0, [None, point["unroll"]])
    vectors, lane = sch.split(inner, [None, point["lanes"]])
    for loop in (n1, vectors, width):
        sch.unroll(loop)
    sch.vectorize(lane)
    fuse(sch, name, point["fusion"])
    if point["threads"] > 1:
        sch.parallel(m)
    sch.decompose_reduction(partial, n0)
