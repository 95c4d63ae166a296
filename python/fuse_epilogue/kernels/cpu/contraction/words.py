"""Contractions of short integers: dot products of words of 32 bits along a reduced axis.

    words[...] = the rows' operand in 8 or 16 bits, copied so that the reduced axis is innermost
    packed[...] = the vector operand in 8 or 16 bits, two or four values of that axis in 32 bits
    sums[lane] += words[k, 0] * packed[k, 0, lane] + words[k, 1] * packed[k, 1, lane] + ...

x86 has that as one instruction, for words of two values (vpmaddwd) or, on recent processors, of
four (vpdpbusd). Sums wrap around at 2^32 as the sums of the function do: the result is exact for
all values. vpdpbusd takes unsigned values on one side and signed ones on the other. Where both
sides are signed, 128 is added to the rows' operand, and the sums begin with -128 times the sums of
the vector operand, which are packed beside it.
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
from .dot_products import Instruction
from .vectors import at, typed

#: What is added to signed values of 8 bits to have unsigned ones.
SHIFT = 128


@dataclass(frozen=True)
class Dimension:
    """A dimension of a copy: axes whose steps in the source are multiples of one.

    - `step`: elements of the source.
    - `places`: the axes: one, or those of a window.
    """

    step: int
    places: tuple[int, ...]
    extent: int


@dataclass(frozen=True)
class Words:
    """The words of a contraction.

    - `original`: as it was read: the axis has all of its values.
    - `rows_first`: whether the rows' operand is the first factor of the instruction.
    - `shift`: number that is added to the rows' operand.
    - `axis`: the reduced axis that is counted in words.
    - `main`: offset of the rows' operand in its source.
    - `dimensions`: dimensions of the copy, that of `axis` last; none if the operand has the type
      and order.
    - `buffer` (tvm.tirx.Buffer): the rows' operand in the type of the instruction.
    """

    original: Contraction
    instruction: Instruction
    rows_first: bool
    shift: int
    axis: int
    main: Linear
    dimensions: tuple[Dimension, ...]
    buffer: Any

    @property
    def count(self) -> int:
        """Number of values in a word."""
        return self.instruction.count

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
            zero = tirx.const(0, str(self.buffer.dtype))
            value = tirx.if_then_else(axes[-1].var < index(last), value, zero)
        return Stage("words", axes, (), (Store(self.buffer, value),))

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
            return self._narrowed(load(operand.value))
        value = tvm_ffi.structural_map(operand.value, (TensorLoad, load))
        every = (*contraction.axes, *contraction.reduced)
        table = {every[p].var: typed(number, every[p].var) for p, number in values.items()}
        table.update({var: typed(0, var) for var in contraction.zeros})
        return self._narrowed(substitute(value, table))

    def _narrowed(self, value: Any) -> Any:
        """Return a value in the type of the copy."""
        dtype = str(self.buffer.dtype)
        narrow = value.astype(dtype)
        # Of 8 bits, adding 128 is the same as the other sign bit.
        return narrow ^ tirx.const(self.shift, dtype) if self.shift else narrow


def in_words(
    contraction: Contraction, instruction: Instruction
) -> tuple[Contraction, Words] | None:
    """Return a contraction with a reduced axis that is counted in words.

    - Returns: None if an operand is not known to fit in the types of the instruction, the sums are
      not of 32 bits, an operand has bounds, or the rows' operand cannot be copied in such an order.
    """
    if contraction.dtype != "int32" or contraction.a.bounds or contraction.b.bounds:
        return None
    roles = _roles(contraction.a.value, contraction.b.value, instruction)
    words = None if roles is None else _words(contraction, instruction, *roles)
    if words is None:
        return None
    count = len(contraction.axes)
    reduced = list(contraction.reduced)
    old = reduced[words.axis - count]
    reduced[words.axis - count] = Axis(old.var, -(-old.extent // words.count))
    element = tirx.BufferLoad(words.buffer, [index(0)] * len(words.buffer.shape))
    rows = Operand(element, {handle(element): _access(words)})
    return replace(contraction, reduced=tuple(reduced), a=rows), words


def _roles(rows: Any, vector: Any, instruction: Instruction) -> tuple[bool, int] | None:
    """Return whether the rows are the first factor, and what is added to them; None if unfit."""
    first, second = instruction.factors
    if not _is_widened(vector):
        return None
    if _fits(rows, first) and _fits(vector, second):
        return True, 0
    if _fits(rows, second) and _fits(vector, first):
        return False, 0
    signed = first == "uint8" and _fits(rows, "int8") and _fits(vector, second)
    return (True, SHIFT) if signed else None


def _fits(value: Any, dtype: str) -> bool:
    """Return whether every value of an expression fits in a type."""
    found, whole = value_range(value), type_range(dtype)
    return found is not None and whole is not None and _within(found, whole)


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _is_widened(value: Any) -> bool:
    """Return whether an expression is a load, in a wider type that has the same value."""
    while isinstance(value, prim.Cast):
        inner = value_range(value.value)
        whole = type_range(str(value.ty.dtype))
        if inner is None or whole is None or not _within(inner, whole):
            return False
        value = value.value
    return isinstance(value, TensorLoad)


def _words(
    contraction: Contraction, instruction: Instruction, rows_first: bool, shift: int
) -> Words | None:
    """Return the words of a contraction, None if its rows' operand is not in a fit order."""
    operand, count = contraction.a, len(contraction.axes)
    main = max(operand.accesses.values(), key=lambda each: sum(map(abs, each.factors)))
    reduced = [p for p in range(count, len(contraction.extents)) if main.factors[p]]
    axis = min(reduced, key=lambda place: abs(main.factors[place]), default=None)
    dimensions = _dimensions(contraction, main)
    if axis is None or dimensions is None:
        return None
    (innermost,) = [each for each in dimensions if axis in each.places]
    alone = {each.places[0] for each in dimensions if len(each.places) == 1} - {axis}
    for linear in operand.accesses.values():
        # A load beside the main one, such as a zero point, has at most a value for each row.
        others = {place for place, factor in enumerate(linear.factors) if factor}
        if linear.factors != main.factors and not others <= alone:
            return None
    dtype = instruction.factors[0 if rows_first else 1]
    missing = -contraction.extents[axis] % instruction.count

    def words(order: tuple[Dimension, ...], buffer: Any) -> Words:
        return Words(contraction, instruction, rows_first, shift, axis, main, order, buffer)

    load = operand.only_load()
    if load is not None and str(load.source.dtype) == dtype and main.factors[axis] == 1:
        if not missing and not shift and _is_widened(operand.value):
            return words((), load.source)
    if main.factors[axis] != innermost.step:
        return None
    order = (*(each for each in dimensions if each is not innermost), innermost)
    shape = [each.extent for each in order]
    shape[-1] += missing
    return words(order, tirx.decl_buffer(list(map(index, shape)), dtype, "words", layout=None))


def _access(words: Words) -> Linear:
    """Return the access to the rows' operand in which the axis is counted in words."""
    if words.dimensions:
        factors = [0] * len(words.main.factors)
        stride = 1
        for each, extent in zip(
            reversed(words.dimensions), reversed(words.buffer.shape), strict=True
        ):
            for place in each.places:
                factors[place] = words.main.factors[place] // each.step * stride
            stride *= int(extent)
        constant = 0
    else:
        factors, constant = list(words.main.factors), words.main.constant
    factors[words.axis] *= words.count
    return Linear(tuple(factors), constant)


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
