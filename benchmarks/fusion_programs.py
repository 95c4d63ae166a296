"""The programs that `fusion.py` times: a reduction, its epilogues, and the tiling all share.

A family is one kind of program at one tiling; its programs differ in the epilogue and in the
length of the reduction. The tilings are those of hand-written CPU code with vectors of 16 floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule

VECTOR = 16  # floats in a vector

BIAS, RELU, SILU = "+ bias", "+ bias + ReLU", "+ bias + SiLU"

# The blocks of each epilogue, in order. The bias is read twice in the SiLU, as compilers of whole
# networks write it.
BLOCKS = {BIAS: ("bias",), RELU: ("bias", "relu"), SILU: ("bias", "sigmoid", "multiply")}

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Tiling:
    """How a tiled reduction's loops are to be used.

    `depth` is the number of loops around one tile of the output, the place where an epilogue is
    wanted. `first` is the outermost reduction loop: the init has to stand before it. `unrolled`
    says whether the loops within the tile are.
    """

    depth: int
    first: Any
    unrolled: bool


@dataclass(frozen=True)
class Program:
    """A reduction and its epilogue, how it is tiled, and what it computes.

    `reference` takes the inputs and gives the output; where `exact`, in float32 without rounding
    when the inputs are small whole numbers.
    """

    epilogue: str
    label: str
    reduction: str
    shapes: tuple[tuple[int, ...], ...]
    function: tvm.tirx.PrimFunc
    tile: Callable[[Schedule], Tiling]
    reference: Callable[[Arrays], np.ndarray]
    exact: bool = True

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the epilogue's blocks, in order."""
        return BLOCKS[self.epilogue]


@dataclass(frozen=True)
class Family:
    """Programs at one tiling.

    `reasons` says why fusing may gain nothing, by epilogue and rival; `remark` what else to know.
    """

    key: str
    title: str
    loops: str
    programs: tuple[Program, ...]
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    remark: str = ""


# ---- What is computed ----------------------------------------------------------------------------


def with_epilogue(epilogue: str, finished: te.Tensor, bias: Callable[..., Any]) -> te.Tensor:
    """Add the blocks of an epilogue behind the finished reduction; `bias` takes its indices."""
    shape = finished.shape
    biased = te.compute(shape, lambda *at: finished(*at) + bias(*at), name="bias")
    if epilogue == RELU:
        return te.compute(shape, lambda *at: te.max(biased(*at), 0.0), name="relu")
    if epilogue == SILU:
        gate = te.compute(shape, lambda *at: te.sigmoid(biased(*at)), name="sigmoid")
        return te.compute(shape, lambda *at: biased(*at) * gate(*at), name="multiply")
    return biased


def apply_epilogue(epilogue: str, biased: np.ndarray) -> np.ndarray:
    """Compute with numpy what an epilogue does after its bias."""
    if epilogue == RELU:
        return np.maximum(biased, 0)
    if epilogue == SILU:
        return biased / (1 + np.exp(-biased))
    return biased


def matmul(
    rows: int,
    columns: int,
    depth: int,
    epilogue: str,
    tile: Callable[[Schedule], Tiling],
    label: str = "",
) -> Program:
    """Describe ``epilogue(A @ B + bias)``, with a bias for every column."""
    a = te.placeholder((rows, depth), name="A")
    b = te.placeholder((depth, columns), name="B")
    c = te.placeholder((columns,), name="C")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul"
    )
    result = with_epilogue(epilogue, product, lambda i, j: c[j])
    return Program(
        epilogue=epilogue,
        label=label or f"K = {depth}",
        reduction="matmul",
        shapes=((rows, depth), (depth, columns), (columns,)),
        function=te.create_prim_func([a, b, c, result]),
        tile=tile,
        reference=lambda x: apply_epilogue(epilogue, x[0] @ x[1] + x[2]),
    )


def depthwise_conv(images: int, channels: int, width: int, taps: int, epilogue: str) -> Program:
    """Describe a depthwise convolution over an input that is padded already, and its epilogue."""
    x = te.placeholder((images, channels, width + taps - 1), name="X")
    weight = te.placeholder((channels, taps), name="W")
    c = te.placeholder((channels,), name="C")
    tap = te.reduce_axis((0, taps), name="f")
    conv = te.compute(
        (images, channels, width),
        lambda n, ch, w: te.sum(x[n, ch, w + tap] * weight[ch, tap], axis=tap),
        name="conv",
    )
    result = with_epilogue(epilogue, conv, lambda n, ch, w: c[ch])

    def reference(arrays: Arrays) -> np.ndarray:
        data, weights, bias = arrays
        total = np.broadcast_to(bias[:, None], (images, channels, width))
        for f in range(taps):
            total = total + data[:, :, f : f + width] * weights[:, f, None]
        return apply_epilogue(epilogue, total)

    return Program(
        epilogue=epilogue,
        label=f"F = {taps}",
        reduction="conv",
        shapes=((images, channels, width + taps - 1), (channels, taps), (channels,)),
        function=te.create_prim_func([x, weight, c, result]),
        tile=conv_tile,
        reference=reference,
        exact=epilogue != SILU,
    )


# ---- How it is tiled -----------------------------------------------------------------------------


def register_tile(sch: Schedule) -> Tiling:
    """Tile a matmul: 4 rows of 4 vectors, for which the sums have room in registers."""
    i, j, k = sch.get_loops("matmul")
    i_0, i_1 = sch.split(i, [None, 4])
    j_0, j_1, j_vec = sch.split(j, [None, 4, VECTOR])
    sch.reorder(i_0, j_0, k, i_1, j_1, j_vec)
    sch.parallel(i_0)
    sch.unroll(i_1)
    sch.unroll(j_1)
    sch.vectorize(j_vec)
    return Tiling(depth=2, first=k, unrolled=True)


def whole_rows(sch: Schedule) -> Tiling:
    """Add multiples of the rows of B to a whole row of the output."""
    i, j, k = sch.get_loops("matmul")
    j_0, j_vec = sch.split(j, [None, VECTOR])
    sch.reorder(i, k, j_0, j_vec)
    sch.parallel(i)
    sch.vectorize(j_vec)
    return Tiling(depth=1, first=k, unrolled=False)


def row_pieces(sch: Schedule) -> Tiling:
    """Do the same with 8 vectors of a row at a time."""
    i, j, k = sch.get_loops("matmul")
    j_0, j_1, j_vec = sch.split(j, [None, 8, VECTOR])
    sch.reorder(i, j_0, k, j_1, j_vec)
    sch.parallel(i)
    sch.unroll(j_1)
    sch.vectorize(j_vec)
    return Tiling(depth=2, first=k, unrolled=True)


def split_outside(parts: int) -> Callable[[Schedule], Tiling]:
    """Return a tiling with k in that many parts around the register tile."""

    def tile(sch: Schedule) -> Tiling:
        i, j, k = sch.get_loops("matmul")
        k_0, k_1 = sch.split(k, [parts, None])
        i_0, i_1 = sch.split(i, [None, 4])
        j_0, j_1, j_vec = sch.split(j, [None, 4, VECTOR])
        sch.reorder(k_0, i_0, j_0, k_1, i_1, j_1, j_vec)
        sch.parallel(i_0)
        sch.unroll(i_1)
        sch.unroll(j_1)
        sch.vectorize(j_vec)
        return Tiling(depth=3, first=k_0, unrolled=True)

    return tile


def conv_tile(sch: Schedule) -> Tiling:
    """Tile a depthwise convolution: 8 vectors of a row at a time."""
    n, channel, w, tap = sch.get_loops("conv")
    w_0, w_1, w_vec = sch.split(w, [None, 8, VECTOR])
    rows = sch.fuse(n, channel)
    sch.reorder(rows, w_0, tap, w_1, w_vec)
    sch.parallel(rows)
    sch.unroll(tap)
    sch.unroll(w_1)
    sch.vectorize(w_vec)
    return Tiling(depth=2, first=tap, unrolled=True)


# ---- The families --------------------------------------------------------------------------------

UNFUSED, HAND, OURS = "unfused", "by hand", "ours"

ARITHMETIC = "the arithmetic takes so long that the pass saved does not count"
PASSES = (
    "the arithmetic, and a pass over the sums for every part of k, take so long that one pass less "
    "does not count"
)
REGISTERS = "placed by hand as well, the epilogue finds the sums in registers"
AGAIN = "what follows the bias goes over the row again, as the epilogue placed by hand does"
LATE = (
    "a sum is finished after the last part of k only, so that what follows the bias remains a pass "
    "of its own, where the bias costs nothing"
)
REPEATED = (
    "Placed by hand at the tile, the epilogue runs once for every part of k, on sums that are not "
    "finished; the last run gives the result."
)


def families() -> tuple[Family, ...]:
    """Build all families; the functions in them are not scheduled yet."""
    large, small = (4096, 4096), (256, 512)
    both = (BIAS, RELU)
    tile_loops = "i_0 (parallel), j_0, k, i_1 (4), j_1 (4), j_vec (16)"
    row_loops = "i (parallel), k, j_0, j_vec (16)"
    split_loops = f"k_0, i_0 (parallel), j_0, k_1, {tile_loops.partition('k, ')[2]}"
    in_registers = {(e, UNFUSED): ARITHMETIC for e in both} | {(e, HAND): REGISTERS for e in both}
    in_rows = {(e, UNFUSED): ARITHMETIC for e in both} | {
        (BIAS, HAND): ARITHMETIC,
        (RELU, HAND): AGAIN,
    }
    splitting = {(BIAS, UNFUSED): PASSES, (RELU, UNFUSED): LATE}

    def each(
        shape: tuple[int, int], depths: Sequence[int], tile: Callable[[Schedule], Tiling]
    ) -> tuple[Program, ...]:
        return tuple(matmul(*shape, depth, e, tile) for e in both for depth in depths)

    def split(shape: tuple[int, int]) -> tuple[Program, ...]:
        return tuple(
            matmul(*shape, depth, e, split_outside(parts), label=f"K = {parts} x {depth // parts}")
            for e in both
            for depth, parts in ((8, 2), (16, 2), (64, 2), (64, 8), (256, 2), (256, 8))
        )

    return (
        Family(
            "tile_large",
            "matmul 4096 x 4096 in register tiles",
            tile_loops,
            each(large, (1, 2, 4, 8, 16, 32, 64), register_tile),
            in_registers,
        ),
        Family(
            "tile_small",
            "matmul 256 x 512 in register tiles (the output fits into a cache)",
            tile_loops,
            each(small, (1, 4, 16, 64, 256, 512, 1024), register_tile),
            in_registers,
        ),
        Family(
            "row",
            "matmul 4096 x 4096 by rows (a row of sums takes 16 KiB)",
            row_loops,
            each(large, (1, 2, 4, 8, 16, 64), whole_rows),
            in_rows,
        ),
        Family(
            "row_long",
            "matmul 128 x 131072 by rows (a row of sums takes 512 KiB)",
            row_loops,
            each((128, 131072), (1, 2, 4, 8, 16), whole_rows),
            in_rows,
        ),
        Family(
            "row_pieces",
            "matmul 4096 x 4096 by pieces of rows",
            "i (parallel), j_0, k, j_1 (8), j_vec (16)",
            each(large, (1, 4, 16, 64), row_pieces),
            in_registers,
        ),
        Family(
            "split_large",
            "matmul 4096 x 4096 in register tiles, k split outside",
            split_loops,
            split(large),
            splitting,
            REPEATED,
        ),
        Family(
            "split_small",
            "matmul 256 x 512 in register tiles, k split outside",
            split_loops,
            split(small),
            splitting,
            REPEATED,
        ),
        Family(
            "conv",
            "depthwise conv1d 8 x 512 x 4096",
            "n and c (parallel), w_0, f (unrolled), w_1 (8), w_vec (16)",
            tuple(depthwise_conv(8, 512, 4096, 4, e) for e in (BIAS, RELU, SILU)),
            {(e, HAND): REGISTERS for e in (BIAS, RELU, SILU)}
            | {(SILU, UNFUSED): "the exponentials take so long that the pass saved does not count"},
        ),
    )
