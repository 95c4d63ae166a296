"""Contractions of integers of up to 16 bits: products of pairs along a reduced axis.

    pairs[...] = the rows' operand in 16 bits, copied so that the reduced axis is innermost
    packed[...] = the vector operand in 16 bits, two values of the reduced axis in 32 bits
    sums[lane] += pairs[k, 0] * packed[k, 0, lane] + pairs[k, 1] * packed[k, 1, lane]

x86 has that as one instruction, vpmaddwd. Its sums of two products wrap around at 2^32 as the sums
of the function do: it is exact for all values of 16 bits. The instruction on bytes, vpmaddubsw, is
not used: it saturates at 16 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim

from ....recognize.accesses import Linear, Operand
from ....recognize.contraction import Contraction
from ....recognize.integer_ranges import type_range, value_range
from ....recognize.stages import Axis, Stage, Store
from ....tir.walk import handle, substitute
from ..loops import FlatViews, index
from .vectors import at, typed

#: Values of the reduced axis that one instruction sums.
PAIR = 2
#: Types whose values fit in 16 bits with a sign.
LEAST, MOST = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True)
class Dimension:
    """A dimension of a copy: axes whose steps in the source are multiples of one.

    Attributes
    ----------
    step : int
        Elements of the source.
    places : tuple[int, ...]
        The axes: one, or those of a window.
    extent : int
    """

    step: int
    places: tuple[int, ...]
    extent: int


@dataclass(frozen=True)
class Pairs:
    """The pairs of a contraction.

    Attributes
    ----------
    original : Contraction
        As it was read: the axis has all of its values.
    axis : int
        The reduced axis that is counted in pairs.
    main : Linear
        Offset of the rows' operand in its source.
    dimensions : tuple[Dimension, ...]
        Dimensions of the copy, that of `axis` last; none if the operand is in 16 bits and in order.
    buffer : tvm.tirx.Buffer
        The rows' operand in 16 bits.
    """

    original: Contraction
    axis: int
    main: Linear
    dimensions: tuple[Dimension, ...]
    buffer: Any

    @property
    def extent(self) -> int:
        """Number of values of the axis."""
        return self.original.extents[self.axis]

    @property
    def copied(self) -> int:
        """Number of elements that are copied."""
        return math.prod(map(int, self.buffer.shape)) if self.dimensions else 0

    def copy(self, views: FlatViews) -> Stage | None:
        """Return the stage that copies the rows' operand, None if there is no copy."""
        if not self.dimensions:
            return None
        axes = tuple(
            Axis(tirx.Var(f"d{place}", "int64"), int(extent))
            for place, extent in enumerate(self.buffer.shape)
        )
        value = self._element(axes, views)
        last = self.dimensions[-1].extent
        if axes[-1].extent != last:
            zero = tirx.const(0, "int16")
            value = tirx.if_then_else(axes[-1].var < index(last), value, zero)
        return Stage("pairs", axes, (), (Store(self.buffer, value),), tuple(range(len(axes))))

    def _element(self, axes: tuple[Axis, ...], views: FlatViews) -> Any:
        """Return an element of the copy in its axes."""
        contraction, operand = self.original, self.original.a
        values: dict[int, Any] = {}
        offset: Any = index(0)
        for each, own in zip(self.dimensions, axes, strict=True):
            offset = offset + own.var * index(each.step)
            if len(each.places) == 1:
                values[each.places[0]] = own.var

        def load(node: Any) -> Any:
            linear = operand.accesses[handle(node)]
            if linear.factors == self.main.factors:
                return tirx.BufferLoad(views.of(node.source), [offset + index(linear.constant)])
            return tirx.BufferLoad(views.of(node.source), [at(linear, values)])

        if isinstance(operand.value, TensorLoad):
            return load(operand.value).astype("int16")
        value = tvm_ffi.structural_map(operand.value, (TensorLoad, load))
        every = (*contraction.axes, *contraction.reduced)
        table = {every[p].var: typed(number, every[p].var) for p, number in values.items()}
        table.update({var: typed(0, var) for var in contraction.zeros})
        return substitute(value, table).astype("int16")


def in_pairs(contraction: Contraction) -> tuple[Contraction, Pairs] | None:
    """Return a contraction with a reduced axis that is counted in pairs.

    Parameters
    ----------
    contraction : Contraction

    Returns
    -------
    tuple[Contraction, Pairs] or None
        None if an operand is not known to fit in 16 bits, the sums are not of 32, an operand has
        bounds, or the rows' operand cannot be copied in such an order.
    """
    if contraction.dtype != "int32" or contraction.a.bounds or contraction.b.bounds:
        return None
    a, b = contraction.a.value, contraction.b.value
    if not _is_widened(b) or not _fits(a) or not _fits(b):
        return None
    found = _pairs(contraction)
    if found is None:
        return None
    copy, access = found
    count = len(contraction.axes)
    reduced = list(contraction.reduced)
    old = reduced[copy.axis - count]
    reduced[copy.axis - count] = Axis(old.var, -(-old.extent // PAIR))
    element = tirx.BufferLoad(copy.buffer, [index(0)] * len(copy.buffer.shape))
    rows = Operand(element, {handle(element): access})
    return replace(contraction, reduced=tuple(reduced), a=rows), copy


def _fits(value: Any) -> bool:
    """Return whether every value of an expression fits in 16 bits with a sign."""
    found = value_range(value)
    return found is not None and found[0] >= LEAST and found[1] <= MOST


def _is_widened(value: Any) -> bool:
    """Return whether an expression is a load, in a wider type that has the same value."""
    while isinstance(value, prim.Cast):
        inner = value_range(value.value)
        whole = type_range(str(value.ty.dtype))
        if inner is None or whole is None or inner[0] < whole[0] or inner[1] > whole[1]:
            return False
        value = value.value
    return isinstance(value, TensorLoad)


def _pairs(contraction: Contraction) -> tuple[Pairs, Linear] | None:
    """Return the pairs, and the access to them in pairs of the axis."""
    operand, count = contraction.a, len(contraction.axes)
    main = max(operand.accesses.values(), key=lambda each: sum(map(abs, each.factors)))
    reduced = [p for p in range(count, len(contraction.extents)) if main.factors[p]]
    axis = min(reduced, key=lambda place: abs(main.factors[place]), default=None)
    dimensions = _dimensions(contraction, main)
    if axis is None or dimensions is None:
        return None
    (paired,) = [each for each in dimensions if axis in each.places]
    alone = {each.places[0] for each in dimensions if len(each.places) == 1} - {axis}
    for linear in operand.accesses.values():
        # A load beside the main one, such as a zero point, has at most a value for each row.
        others = {place for place, factor in enumerate(linear.factors) if factor}
        if linear.factors != main.factors and not others <= alone:
            return None
    odd = contraction.extents[axis] % PAIR
    load = operand.only_load()
    if load is not None and str(load.source.dtype) == "int16" and main.factors[axis] == 1:
        if not odd and _is_widened(operand.value):
            return Pairs(contraction, axis, main, (), load.source), _doubled(main, axis)
    if main.factors[axis] != paired.step:
        return None
    order = (*(each for each in dimensions if each is not paired), paired)
    shape = [each.extent for each in order]
    shape[-1] += odd
    factors = [0] * len(main.factors)
    stride = 1
    for each, extent in zip(reversed(order), reversed(shape), strict=True):
        for place in each.places:
            factors[place] = main.factors[place] // each.step * stride
        stride *= extent
    buffer = tirx.decl_buffer(list(map(index, shape)), "int16", "pairs", layout=None)
    access = _doubled(Linear(tuple(factors), 0), axis)
    return Pairs(contraction, axis, main, order, buffer), access


def _doubled(linear: Linear, axis: int) -> Linear:
    """Return a linear offset with an axis that is counted in pairs."""
    factors = list(linear.factors)
    factors[axis] *= PAIR
    return replace(linear, factors=tuple(factors))


def _dimensions(contraction: Contraction, access: Linear) -> list[Dimension] | None:
    """Return the dimensions that an access goes through, from the longest step to the shortest.

    Axes whose values fall between each other's are one dimension: a window.
    """
    extents = contraction.extents
    used = [place for place, factor in enumerate(access.factors) if factor]
    if any(access.factors[place] < 0 for place in used):
        return None
    groups: list[list[int]] = []
    span = 0
    for place in sorted(used, key=lambda p: access.factors[p]):
        if access.factors[place] >= span:
            groups.append([place])
        else:
            groups[-1].append(place)
        span += (extents[place] - 1) * access.factors[place] + (0 if span else 1)
    made = []
    for group in reversed(groups):
        step = math.gcd(*(access.factors[p] for p in group))
        reach = sum((extents[p] - 1) * access.factors[p] for p in group) // step
        made.append(Dimension(step, tuple(group), reach + 1))
    return made
