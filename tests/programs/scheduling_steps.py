"""Steps that schedule a product and its epilogue before they are fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.s_tir import Schedule


def _split(sch: Schedule, block: str, *factors: int) -> list[Any]:
    """Split the leading loops of `block`, each by its inner factor; outer and inner in turn."""
    loops = sch.get_loops(sch.get_sblock(block))
    return [
        part
        for loop, factor in zip(loops, factors, strict=False)
        for part in sch.split(loop, [None, factor])
    ]


def tile_reduction(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 5)
    sch.reorder(i0, j0, k0, i1, j1, k1)


def tile_reduction_unevenly(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 5, 8, 4)
    sch.reorder(i0, j0, k0, i1, j1, k1)


def split_reduction_axis_unevenly(sch: Schedule) -> None:
    k = sch.get_loops(sch.get_sblock("mm"))[2]
    sch.split(k, [None, 3])


def reduction_axis_outside(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_sblock("mm"))
    sch.reorder(k, j, i)


def tile_epilogue(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "add", 4, 4)
    sch.reorder(j0, i0, j1, i1)


def tile_epilogue_unevenly(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "add", 5, 7)
    sch.reorder(i0, j0, i1, j1)


def fuse_epilogue_loops(sch: Schedule) -> None:
    sch.fuse(*sch.get_loops(sch.get_sblock("add")))


def fuse_and_split_epilogue_loops(sch: Schedule) -> None:
    fused = sch.fuse(*sch.get_loops(sch.get_sblock("add")))
    outer, inner = sch.split(fused, [None, 20])
    sch.parallel(outer)
    sch.vectorize(inner)


def fuse_reduction_loops(sch: Schedule) -> None:
    i, j, _ = sch.get_loops(sch.get_sblock("mm"))
    sch.fuse(i, j)


def everything_tiled(sch: Schedule) -> None:
    tile_reduction_unevenly(sch)
    tile_epilogue(sch)


def vectorize_parallel_unroll(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 5)
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    sch.unroll(k1)
    i, j = sch.get_loops(sch.get_sblock("add"))
    sch.parallel(i)
    sch.vectorize(j)


def bind_to_threads(sch: Schedule) -> None:
    for block in ("mm", "add"):
        i, j = sch.get_loops(sch.get_sblock(block))[:2]
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")


def bind_fused_tiles(sch: Schedule) -> None:
    for block in ("mm", "add"):
        i, j = sch.get_loops(sch.get_sblock(block))[:2]
        outer, inner = sch.split(sch.fuse(i, j), [None, 25])
        sch.bind(outer, "blockIdx.x")
        sch.bind(inner, "threadIdx.x")


def epilogue_at_row(sch: Schedule) -> None:
    i = sch.get_loops(sch.get_sblock("mm"))[0]
    sch.reverse_compute_at(sch.get_sblock("add"), i)


def epilogue_at_element(sch: Schedule) -> None:
    j = sch.get_loops(sch.get_sblock("mm"))[1]
    sch.reverse_compute_at(sch.get_sblock("add"), j)


def epilogue_at_outer_tile(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 5)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), i0)


def epilogue_at_middle_tile(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 5)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), j0)


def epilogue_at_middle_tile_unevenly(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 5, 8, 4)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), j0)


def epilogue_at_bound_tile(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "mm", 4, 4)
    sch.reorder(i0, j0, i1, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    sch.reverse_compute_at(sch.get_sblock("add"), i1)
    sch.parallel(sch.get_loops(sch.get_sblock("add"))[-1])


def reduction_at_row(sch: Schedule) -> None:
    i = sch.get_loops(sch.get_sblock("add"))[0]
    sch.compute_at(sch.get_sblock("mm"), i)


def reduction_at_element(sch: Schedule) -> None:
    j = sch.get_loops(sch.get_sblock("add"))[1]
    sch.compute_at(sch.get_sblock("mm"), j)


def reduction_at_tile_of_epilogue(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "add", 4, 4)
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at(sch.get_sblock("mm"), j0)
    sch.vectorize(sch.get_loops(sch.get_sblock("add"))[-1])


def reduction_at_uneven_tile_of_epilogue(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "add", 5, 7)
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at(sch.get_sblock("mm"), j0)


def factored_reduction(sch: Schedule) -> None:
    k = sch.get_loops(sch.get_sblock("mm"))[2]
    k0, _ = sch.split(k, [5, 2])
    sch.rfactor(k0, 2)


def cached_inputs(sch: Schedule) -> None:
    sch.cache_read(sch.get_sblock("mm"), 0, "global")
    # The copy of C stands first in the function: a bias that is made before the reduction.
    sch.cache_read(sch.get_sblock("add"), 1, "global")
    sch.compute_at(sch.get_sblock("A_global"), sch.get_loops(sch.get_sblock("mm"))[0])


def cached_output(sch: Schedule) -> None:
    sch.cache_write(sch.get_sblock("mm"), 0, "global")


def transposed_intermediate(sch: Schedule) -> None:
    sch.transform_layout("mm", ("write", 0), lambda i, j: (j, i))


def packed_intermediate(sch: Schedule) -> None:
    sch.transform_layout("mm", ("write", 0), lambda i, j: (i // 4, j, i % 4))


def annotated(sch: Schedule) -> None:
    sch.annotate(sch.get_sblock("mm"), "some.note", 1)
    sch.annotate(sch.get_sblock("add"), "some.note", 2)
    sch.annotate(sch.get_loops(sch.get_sblock("mm"))[0], "pragma_unroll_explicit", 0)


def all_three_at_row(sch: Schedule) -> None:
    i = sch.get_loops(sch.get_sblock("mm"))[0]
    sch.reverse_compute_at(sch.get_sblock("add"), i)
    sch.reverse_compute_at(sch.get_sblock("relu"), i)


def all_three_at_tile(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 5)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), j0)
    sch.reverse_compute_at(sch.get_sblock("relu"), j0)


def all_three_at_uneven_tile(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 5, 8, 4)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), j0)
    sch.reverse_compute_at(sch.get_sblock("relu"), j0)


def packed_sum_with_bias(sch: Schedule) -> None:
    sch.transform_layout("add", ("write", 0), lambda i, j: (j // 4, i, j % 4))


def producers_at_relu(sch: Schedule) -> None:
    i = sch.get_loops(sch.get_sblock("relu"))[0]
    sch.compute_at(sch.get_sblock("add"), i)
    sch.compute_at(sch.get_sblock("mm"), i)


def tile_symbolic(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 4)
    sch.reorder(i0, j0, k0, i1, j1, k1)


def tile_symbolic_epilogue(sch: Schedule) -> None:
    i0, i1, j0, j1 = _split(sch, "add", 4, 4)
    sch.reorder(i0, j0, i1, j1)


def tile_symbolic_shared(sch: Schedule) -> None:
    i0, i1, j0, j1, k0, k1 = _split(sch, "mm", 4, 4, 4)
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.reverse_compute_at(sch.get_sblock("add"), i0)


# The refusing twin of each schedule.
TWINS: dict[Callable[[Schedule], None], str] = {
    tile_reduction: "partial_sums_in_the_tile",
    tile_reduction_unevenly: "early_end_of_the_reduction",
    split_reduction_axis_unevenly: "early_end_of_the_reduction",
    reduction_axis_outside: "reversed_reduction",
    tile_epilogue: "half_of_the_rows",
    tile_epilogue_unevenly: "half_of_the_rows",
    fuse_epilogue_loops: "unused_epilogue_loop",
    fuse_and_split_epilogue_loops: "unused_epilogue_loop",
    fuse_reduction_loops: "unused_reduction_loop",
    everything_tiled: "early_end_of_the_reduction",
    vectorize_parallel_unroll: "vectorized_reduction",
    bind_to_threads: "thread_bound_reduction",
    bind_fused_tiles: "thread_bound_reduction",
    epilogue_at_row: "partial_sums_at_the_reduction_loop",
    epilogue_at_element: "partial_sums_at_the_reduction_loop",
    epilogue_at_outer_tile: "partial_sums_in_the_tile",
    epilogue_at_middle_tile: "partial_sums_in_the_tile",
    epilogue_at_middle_tile_unevenly: "partial_sums_in_the_tile",
    epilogue_at_bound_tile: "thread_bound_reduction",
    reduction_at_row: "previous_row_in_a_shared_loop",
    reduction_at_element: "previous_row_in_a_shared_loop",
    reduction_at_tile_of_epilogue: "previous_row_in_a_shared_loop",
    reduction_at_uneven_tile_of_epilogue: "previous_row_in_a_shared_loop",
    factored_reduction: "decomposed_reduction",
    transposed_intermediate: "diagonal_read",
    packed_intermediate: "overlapping_split",
    annotated: "decomposed_reduction",
}


# Those that say nothing about the number of epilogues or about what they compute.
PLACED_FIRST = tuple(steps for steps in TWINS if steps is not factored_reduction)


# Those that bind loops around the reduction to threads.
BOUND_FIRST = (bind_to_threads, bind_fused_tiles, epilogue_at_bound_tile)
