"""The rule for products of matrices on Trainium."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ...rewrites.step import rewrite
from ...tir.nest import child_names
from ..choice import Choice, not_fused
from .product_blocks import COLUMN, PART, ROW
from .read_product import Product, Side, find_product
from .rule import NeuronRule
from .tiles import BANK, BANK_BYTES, PARTITIONS, best, mark, split

#: Dimensions of a tile that is the same for all products of a batch.
_OWN = 2
#: Elements of a row that stays on the chip, for all partitions.
LONGEST_ROW = 8192


#: Parts of SBUF for what stays of the matrices. The rest is for what passes through.
RIGHT_PART, LEFT_PART = 0.4, 0.25
#: Tiles of rows and of columns in a block. More than four banks of PSUM leave no room for
#: transposing matrices and for the next block.
BLOCKS = ((2, 2), (4, 1), (2, 1), (1, 2), (1, 1))
#: Tiles of k in a chunk.
CHUNK = 4
_NO_PRODUCT = (
    "it is not one product of matrices, or a batch of them with rows that are contiguous, "
    "summed in float32"
)
#: Products up to which each tiling is predicted; of more, only the first tilings are.
FEW_PRODUCTS = 256


class Matmul(NeuronRule):
    """Schedules a product of two matrices or a batch of them, its bias and its activation.

    The product is found by what it computes: ``y[m, n] = f(sum_k a[m, k] * b[k, n])`` of any sizes,
    for each value of further axes,
    with the matrices stored either way, in float32, or in 16 bits and summed in float32. The sums
    are in PSUM; a bias is added as they leave it. Of several tilings the one is taken for which
    the latency model predicts the shortest time.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> func = workloads.matmul(256, 1024, 512, activation="relu")
    >>> kernel = neuron.emit(schedules.neuron.Matmul().apply(func, "trn1"))
    >>> kernel.check("trn1").instructions["nc_matmul"]
    16
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            product = find_product(func)
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        if product is None:
            return Choice("", _NO_PRODUCT)
        return best(core, ((str(t), scheduled(product, t)) for t in tilings(product, core)))


@dataclass(frozen=True)
class Tiling:
    """Tiles of a product.

    ::

        for blocks of rows of the left matrix:
            (left)
            for blocks of columns of the right matrix:
                for chunks of k:
                    (left, right)
                    for tiles of k, rows and columns:  product

    - `tiles`: tiles of rows in a block.
    - `width`: tiles of columns in a block; the sums of a block are in PSUM together.
    - `chunk`: tiles of k in a chunk.
    - `left_stays`: whether a block of rows is loaded once, with all of k.
    - `right_stays`: whether all of the right matrix stays: it is loaded while the first block is
      computed.
    - `engine`: name of the last step; the usual one if empty.
    - `by_dma`: whether transfers transpose matrices, not the tensor engine.
    """

    tiles: int
    width: int
    chunk: int
    left_stays: bool
    right_stays: bool
    engine: str = ""
    by_dma: bool = False

    def __str__(self) -> str:
        """Say it in words."""
        stays = [name for name in ("left", "right") if getattr(self, f"{name}_stays")]
        kept = f", the {' and the '.join(stays)} matrix stays" if stays else ""
        return f"blocks of {self.tiles} x {self.width} tiles{kept}"


def tilings(product: Product, target: Machine) -> list[Tiling]:
    """Return the tilings worth trying, a good one first."""
    m, n, k = (product.size(letter) for letter in "mnk")
    deep = math.ceil(k / PARTITIONS)
    bytes_right, bytes_left = (ITEMSIZE[s.dtype] * deep for s in (product.right, product.left))
    engine = last_engine(product)
    found = []
    for tiles, width in BLOCKS:
        if tiles >= 2 * math.ceil(m / PARTITIONS) or width >= 2 * math.ceil(n / BANK):
            continue
        left = bytes_left * min(tiles * PARTITIONS, m) <= LEFT_PART * target.sbuf_bytes
        right = bytes_right * n <= RIGHT_PART * target.sbuf_bytes
        for stays in (True, False) if right and m > tiles * PARTITIONS else (False,):
            found.append(Tiling(tiles, width, CHUNK, left, stays, engine))
    products = product.count * math.ceil(m / PARTITIONS) * math.ceil(n / BANK) * deep
    return found if products <= FEW_PRODUCTS else found[:2]


def last_engine(product: Product) -> str:
    """Return the engine that is best for the last step: the scalar one if it can, else ""."""
    plain = product.kinds() <= {"m"}
    return "scalar" if plain or product.adds_first else ""


def scheduled(product: Product, tiling: Tiling) -> s_tir.Schedule:
    """Schedule a product.

    - `product`: the product to schedule.
    - `tiling`: how.
    - Returns: for :func:`fuse_epilogue.neuron.emit`.
    """
    sch = product.sch.copy()
    write(sch, product, by_dma=tiling.by_dma)
    cut(sch, product, tiling)
    return sch


def write(sch: s_tir.Schedule, product: Product, alone: bool = False, by_dma: bool = False) -> None:
    """Rewrite a product.

    - `sch`: as that of `product`; or, if it is `alone`, one that has its block and others.
    - `alone`: whether the other blocks stay as they are.
    - `by_dma`: whether transfers transpose matrices.
    """
    step = "neuron_product_by_dma" if by_dma else "neuron_product"
    rewrite(sch, sch.get_sblock(product.block), step, alone=alone)


def cut(sch: s_tir.Schedule, product: Product, tiling: Tiling) -> None:
    """Cut a product into tiles, in a schedule as `write` left it."""
    out = sch.get_sblock("out")
    sch.set_scope(out, 0, "trn.sbuf")
    stored = sch.get_sblock("stored")
    wide = columns(product, tiling)
    *batch, m, n = sch.get_loops(stored)
    blocks, rows, row = _split_twice(sch, m, tiling.tiles, PARTITIONS)
    tiles, column = split(sch, n, wide)
    sch.reorder(blocks, tiles, rows, row, column)
    mark(sch, row, column)
    sch.compute_at(out, rows, preserve_unit_loops=True)
    # Bank by bank: the last results wait for their own sums only.
    row, column = sch.get_loops(out)[-2:]
    bank, column = split(sch, column, BANK)
    sch.reorder(bank, row, column)
    mark(sch, row, column)
    if "biased" in child_names(sch.mod["main"]):
        biased = sch.get_sblock("biased")
        sch.set_scope(biased, 0, "trn.sbuf")
        sch.compute_at(biased, rows, preserve_unit_loops=True)
        mark(sch, *sch.get_loops(biased)[-2:])
    if tiling.engine:
        sch.annotate(out, "nki_engine", tiling.engine)
    chunks = _product(sch, tiles, tiling)
    for side, at in (
        (product.left, blocks if tiling.left_stays else chunks),
        (product.right, chunks),
    ):
        _side(sch, side, at, product, tiling)
    stay = _others(sch, tiles, rows)
    if tiling.right_stays:
        stay.append(f"{product.right.name}_tile")
    for name in stay:
        # Of a batch, what is the same for all its products is loaded for the first one.
        block = sch.get_sblock(name)
        same = len(sch.get(block).writes[0].source.ty.shape) == _OWN
        for loop in range(0 if same else len(batch), len(batch) + 1):
            rewrite(sch, block, "neuron_once", loop=loop)


def columns(product: Product, tiling: Tiling) -> int:
    """Return the columns of a block, so that no tile of it lies in two banks of PSUM."""
    size = product.size("n")
    if tiling.tiles == 1 or size >= BANK * tiling.width:
        return min(size, BANK * tiling.width)
    return size // BANK * BANK or 1 << (size.bit_length() - 1)


def _split_twice(sch: s_tir.Schedule, loop: Any, count: int, size: int) -> list[Any]:
    outer, inner = split(sch, loop, size)
    return [*split(sch, outer, count), inner]


def _others(sch: s_tir.Schedule, tiles: Any, rows: Any) -> list[str]:
    """Schedule the loading of what the results depend on besides; return what stays."""
    stay = []
    for name in child_names(sch.mod["main"]):
        kind = name.rsplit("_", 1)[-1]
        if kind not in (ROW, COLUMN, PART):
            continue
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, "trn.sbuf")
        sch.compute_at(block, tiles if kind == ROW else rows, preserve_unit_loops=True)
        loops = sch.get_loops(block)
        mark(sch, *(loops[-1:] if kind == COLUMN else loops[-2:]))
        if kind == ROW:
            size = math.prod(int(n) for n in sch.get(block).writes[0].source.ty.shape[1:])
            if size <= LONGEST_ROW:
                stay.append(name)
    return stay


def _product(sch: s_tir.Schedule, at: Any, tiling: Tiling) -> Any:
    """Schedule the product; return the loop over chunks of k."""
    block = sch.get_sblock("product")
    sch.set_scope(block, 0, "trn.psum")
    sch.compute_at(block, at, preserve_unit_loops=True)
    m, column, k = sch.get_loops(block)[-3:]
    tile, row = split(sch, m, PARTITIONS)
    bank, column = split(sch, column, BANK)
    chunks, depth, inner = _split_twice(sch, k, tiling.chunk, PARTITIONS)
    # All of a chunk for one bank after the other: the sums of the first ones are there early.
    sch.reorder(chunks, tile, bank, depth, inner, row, column)
    for loop, role in ((inner, "P"), (row, "lhs_F"), (column, "rhs_F")):
        sch.annotate(loop, "nki_dim", role)
    return chunks


def _transposed_at_once(side: Side, k: int, chunk: int) -> int:
    """Return how many tiles of k are transposed into one bank of PSUM, all of them full."""
    if k % PARTITIONS or k % chunk:
        return 1
    count = BANK_BYTES // ITEMSIZE[side.dtype] // PARTITIONS
    while chunk % (count * PARTITIONS):
        count //= 2
    return count


def _loaded_at_once(side: Side, product: Product, tiling: Tiling) -> int:
    """Return how many tiles of k one transfer loads.

    A chunk, if it is transposed on the way: the pieces in memory are longer. Two tiles of 16 bits
    where describing a transfer takes longer than moving one of them; more would delay the first
    product.
    """
    if side.transposed:
        return tiling.chunk if product.size("k") % (tiling.chunk * PARTITIONS) == 0 else 1
    whole = product.size("k") % (2 * PARTITIONS) == 0 and tiling.chunk % 2 == 0
    row = ITEMSIZE[side.dtype] * (
        columns(product, tiling) if side is product.right else tiling.tiles * PARTITIONS
    )
    return 2 if whole and ITEMSIZE[side.dtype] < ITEMSIZE["float32"] and row < 2048 else 1


def _side(sch: s_tir.Schedule, side: Side, at: Any, product: Product, tiling: Tiling) -> None:
    """Schedule how a matrix comes on the chip."""
    tile = sch.get_sblock(f"{side.name}_tile")
    sch.set_scope(tile, 0, "trn.sbuf")
    sch.compute_at(tile, at, preserve_unit_loops=True)
    depth, row = sch.get_loops(tile)[-2:]
    if not side.transposed or tiling.by_dma:
        together = _loaded_at_once(side, product, tiling)
        _, several, partition = _split_twice(sch, depth, together, PARTITIONS)
        if together > 1:
            sch.reorder(partition, several, row)
        mark(sch, partition, *([several] if together > 1 else []), row)
        if side.transposed:
            sch.annotate(tile, "nki_engine", "dma")
        return
    count = _transposed_at_once(side, product.size("k"), int(sch.get(depth).extent))
    outer, depth, partition = _split_twice(sch, depth, count, PARTITIONS)
    rows, row = split(sch, row, PARTITIONS)
    sch.reorder(rows, outer, partition, depth, row)
    mark(sch, partition, depth, row)
    # Its clock is faster than that of the vector engine, and it computes at most the results.
    sch.annotate(tile, "nki_engine", "scalar")
    transposed = sch.get_sblock(f"{side.name}_turned")
    sch.set_scope(transposed, 0, "trn.psum")
    sch.compute_at(transposed, outer, preserve_unit_loops=True)
    depth, row = sch.get_loops(transposed)[-2:]
    outer_depth, partition = split(sch, depth, PARTITIONS)
    mark(sch, partition, row)
    natural = sch.get_sblock(f"{side.name}_rows")
    sch.set_scope(natural, 0, "trn.sbuf")
    sch.compute_at(natural, outer, preserve_unit_loops=True)
    row, depth = sch.get_loops(natural)[-2:]
    mark(sch, row, depth)
