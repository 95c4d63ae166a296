"""Reads a contraction as a convolution that the transforms are for, or says why it is not one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from .....recognize.accesses import Linear, Operand
from .....recognize.contraction import Contraction, read_contraction
from .....recognize.stages import Program
from .....tir.walk import same

#: Weights of a filter along one dimension.
WIDTH = 3


@dataclass(frozen=True)
class Dimension:
    """A dimension of the image.

    - `axis`, `tap`: places of the axis of the result and of the reduced one; a window is their sum.
    - `results`: extent of the axis.
    - `begin`, `end`: sums of both at which the image is loaded; outside of them, it is 0.
    """

    axis: int
    tap: int
    results: int
    begin: int
    end: int


@dataclass(frozen=True)
class Layer:
    """A convolution with filters of 3 x 3 and stride 1, on an image whose channels are innermost.

    - `contraction`: with all axes as they are.
    - `images`, `filters`: places of the other axes of the result.
    - `channels`: place of the other reduced axis.
    - `parameter`: index of the weights among the function's parameters.
    """

    contraction: Contraction
    rows: Dimension
    columns: Dimension
    images: int
    filters: int
    channels: int
    parameter: int

    @property
    def image(self) -> Linear:
        """Offset in the image; the factor of a dimension's axis is that of a sum with its tap."""
        (access,) = self.contraction.a.accesses.values()
        return access

    @property
    def weights(self) -> Linear:
        """Offset in the weights."""
        (access,) = self.contraction.b.accesses.values()
        return access

    def extent(self, place: int) -> int:
        """Return the extent of an axis."""
        return self.contraction.extents[place]


def read_layer(program: Program, constants: frozenset[int]) -> Layer | str:
    """Return a function as such a convolution.

    - `constants`: indices of the parameters that are constants at every call.
    - Returns: reason why it is not one; empty if the function has no windows at all.
    """
    found = read_contraction(program, merge=False)
    if found is None:
        return ""
    reasons = []
    # A product is written in either order.
    for contraction in (found, found.swapped()):
        layer = _layer(contraction, constants)
        if isinstance(layer, Layer):
            return layer
        reasons.append(layer)
    return next(filter(None, reasons), "")


def _layer(found: Contraction, constants: frozenset[int]) -> Layer | str:
    if len(found.a.accesses) != 1 or len(found.b.accesses) != 1 or not _has_windows(found):
        return ""
    count = len(found.axes)
    taps = [p for p in range(count, len(found.extents)) if found.extents[p] > 1]
    if any(found.a.has(p) and found.b.has(p) for p in range(count)):
        return "its channels are in groups"
    if count != 4 or len(found.extents) != 7:
        return "it is not a convolution in two dimensions"
    if sum(found.extents[p] == WIDTH for p in taps) < 2:
        return "its filters are not 3 x 3"
    if sum(found.extents[p] > 1 and not found.b.has(p) for p in range(count)) < 2:
        return "its result has one row or column"
    pair = next(_dimensions(found), None)
    if pair is None:
        return "its stride or its dilation is not 1"
    rows, columns = pair
    (channels,) = {4, 5, 6} - {rows.tap, columns.tap}
    others = sorted({0, 1, 2, 3} - {rows.axis, columns.axis}, key=found.b.has)
    layer = Layer(found, rows, columns, others[0], others[1], channels, -1)
    return _checked(layer, constants)


def _checked(layer: Layer, constants: frozenset[int]) -> Layer | str:
    found = layer.contraction
    loads = [found.a.value, found.b.value]
    types = {str(operand.value.ty.dtype) for operand in (found.a, found.b)} | {found.dtype}
    if types != {"float32"} or found.a.only_load() is None or found.b.only_load() is None:
        return "its operands are not float32 in memory"
    parameter = next(
        (p for p, each in enumerate(found.program.params) if same(each, loads[1].source)), -1
    )
    if parameter not in constants:
        return "its weights are not constant"
    innermost = ((layer.image, layer.channels), (found.stored, layer.filters))
    if any(linear.factors[p] != 1 and layer.extent(p) > 1 for linear, p in innermost):
        return "its channels are not innermost"
    if found.before or not found.vectors or found.b.bounds:
        return "its image, weights or epilogue is not in vectors"
    return Layer(
        *(found, layer.rows, layer.columns, layer.images, layer.filters, layer.channels, parameter)
    )


def _has_windows(found: Contraction) -> bool:
    """Whether values of an axis of the result are between those of a reduced axis of several."""
    count = len(found.axes)
    (access,) = found.a.accesses.values()
    factors = access.factors
    return any(
        0 < factors[p] < factors[tap] * found.extents[tap]
        and factors[tap] < factors[p] * found.extents[p]
        and not found.b.has(p)
        for tap in range(count, len(found.extents))
        for p in range(count)
        if found.extents[tap] > 1 and found.extents[p] > 1
    )


def _dimensions(found: Contraction) -> Iterator[tuple[Dimension, Dimension]]:
    """Yield the pairs of dimensions, with the one of the longer step first."""
    (access,) = found.a.accesses.values()
    pairs = [
        (p, tap)
        for p in range(4)
        for tap in range(4, 7)
        if found.extents[tap] == WIDTH and access.factors[p] == access.factors[tap] > 0
    ]
    for rows, columns in permutations(pairs, 2):
        distinct = rows[0] != columns[0] and rows[1] != columns[1]
        if distinct and access.factors[rows[0]] >= access.factors[columns[0]]:
            made = [_dimension(found, found.a, *each) for each in (rows, columns)]
            known = {bound.axis for bound in found.a.bounds} <= {rows[0], columns[0]}
            if known and made[0] is not None and made[1] is not None:
                yield made[0], made[1]


def _dimension(found: Contraction, image: Operand, axis: int, tap: int) -> Dimension | None:
    results = found.extents[axis]
    begin, end = 0, results + WIDTH - 1
    for bound in image.bounds:
        if bound.axis != axis:
            continue
        if bound.tap != tap or bound.index.factors[axis] != 1 or bound.index.factors[tap] != 1:
            return None
        begin = max(begin, -bound.index.constant)
        end = min(end, bound.size - bound.index.constant)
    return Dimension(axis, tap, results, begin, end)
