"""Plans of convolutions with transforms: which ones, and how many tiles at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from .....recognize.accesses import Linear, Operand
from .....recognize.contraction import Contraction
from .....recognize.stages import Axis
from .....tir.walk import handle
from ...costs import MEMORY_BYTES_PER_CYCLE, together
from ...loops import index
from ..plan import L2_BYTES, Machine, Plan, loop_cycles, moving_cycles, plans_of
from .layer import Layer
from .transforms import TRANSFORMS, Transform

#: Elements between the rows of matrices beyond their size: without them, the lines of one element
#: in all matrices would be in few sets of a cache.
GAP = 16
#: Most tiles of a block.
MOST_TILES = 64
#: Cycles in which a vector of a tile is transformed, of the image and of the products, by
#: :attr:`.Transform.outputs`: measured on AMD Zen 5.
IMAGE_CYCLES, OUTPUT_CYCLES = {2: 55.0, 4: 140.0}, {2: 40.0, 4: 120.0}
#: Share of the tiles that may be computed twice, to fill the last block.
MOST_WASTE = 0.15


@dataclass(frozen=True)
class WinogradPlan:
    """A way to compute a convolution.

    - `tiles`: tiles of a block.
    - `products`: plan of the products of a block's tiles and the filters: matrices, tiles, filters.
    - `cycles`: predicted, on one core.
    """

    layer: Layer
    transform: Transform
    tiles: int
    blocks: int
    products: Plan
    cycles: float


def tiles_of(layer: Layer, transform: Transform) -> int:
    """Return the number of tiles of all images."""
    rows, columns = (-(-d.results // transform.outputs) for d in (layer.rows, layer.columns))
    return layer.extent(layer.images) * rows * columns


def choose(layer: Layer, machine: Machine) -> list[WinogradPlan]:
    """Return the fastest plan by prediction of each transform, fastest first."""
    found = [
        min(_plans(layer, transform, machine), key=lambda plan: plan.cycles)
        for transform in TRANSFORMS
    ]
    return sorted(found, key=lambda plan: plan.cycles)


def _plans(layer: Layer, transform: Transform, machine: Machine) -> Iterator[WinogradPlan]:
    total = tiles_of(layer, transform)
    most = min(MOST_TILES, total)
    for tiles in range(1, most + 1):
        blocks = -(-total // tiles)
        if tiles < most and blocks * tiles > (1 + MOST_WASTE) * total:
            continue
        products = min(
            _products(layer, transform, tiles, machine),
            key=lambda plan: loop_cycles(plan, far=True),
        )
        cycles = _cycles(layer, transform, tiles, blocks, products, machine)
        yield WinogradPlan(layer, transform, tiles, blocks, products, cycles)


def _product_cycles(products: Plan) -> float:
    # Each block of tiles needs all transformed filters again, which the last cache holds at best.
    return loop_cycles(products, far=True)


def _products(layer: Layer, transform: Transform, tiles: int, machine: Machine) -> Iterator[Plan]:
    """Yield the ways to multiply the transformed tiles by the transformed filters."""
    contraction = product_of(layer, transform, tiles, machine.lanes)
    for plan in plans_of(contraction, machine, (False, True)):
        if plan.vector == 2:
            yield plan


def product_of(layer: Layer, transform: Transform, tiles: int, lanes: int) -> Contraction:
    """Return the products of a block as a contraction: matrices, tiles, filters; channels.

    Rows of the image's matrices and of the products' begin at a whole vector.
    """
    channels, filters = layer.extent(layer.channels), layer.extent(layer.filters)
    of_image, of_sums = (-(-size // lanes) * lanes for size in (channels, filters))
    count = transform.products
    image, weights, sums = (
        tirx.decl_buffer((index(count * size),), "float32", name)
        for name, size in (
            ("transformed", tiles * of_image + GAP),
            ("weights", channels * filters),
            ("products", tiles * of_sums + GAP),
        )
    )
    loads = [tirx.BufferLoad(each, [index(0)]) for each in (image, weights, sums)]
    names = (("matrix", count), ("tile", tiles), ("filter", filters))
    return Contraction(
        layer.contraction.program,
        (),
        tuple(Axis(tirx.Var(name, "int64"), extent) for name, extent in names),
        (Axis(tirx.Var("channel", "int64"), channels),),
        _operand(loads[0], (tiles * of_image + GAP, of_image, 0, 1)),
        _operand(loads[1], (channels * filters, 0, 1, filters)),
        sums,
        sums,
        Linear((tiles * of_sums + GAP, of_sums, 1, 0), 0),
        Operand(loads[2], {}),
    )


def _operand(load: Any, factors: tuple[int, ...]) -> Operand:

    return Operand(load, {handle(load): Linear(factors, 0)})


def _cycles(
    layer: Layer, transform: Transform, tiles: int, blocks: int, products: Plan, machine: Machine
) -> float:
    channels, filters = layer.extent(layer.channels), layer.extent(layer.filters)
    vectors = (-(-channels // machine.lanes), -(-filters // machine.lanes))
    outputs = transform.outputs
    block = _product_cycles(products)
    block += tiles * vectors[0] * IMAGE_CYCLES[outputs]
    block += tiles * vectors[1] * OUTPUT_CYCLES[outputs]
    between = 4 * tiles * transform.products * sum(vectors) * machine.lanes
    if between > L2_BYTES:
        block += 2 * between / MEMORY_BYTES_PER_CYCLE
    # Threads take a block at a time.
    rounds = -(-blocks // machine.threads) * machine.threads
    axes = layer.contraction.axes
    results = 4 * math.prod(axis.extent for axis in axes)
    return together(rounds * block, moving_cycles(layer.contraction.a.bytes + results))
