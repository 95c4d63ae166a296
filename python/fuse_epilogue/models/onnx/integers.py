"""Arithmetic of quantised numbers in ONNX models: how integers are scaled, shifted and rounded.

An integer `q` is the number ``(q - zero) * scale``. A number `v` becomes the integer
``clip(round(v / scale) + zero)``; halves are rounded to even numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .graph import Facts, Writer

#: A constant, or the name of a value.
Value = np.ndarray | str
#: Types of quantised factors, and all types of quantised numbers that are computed with here.
BYTES = ("int8", "uint8")
INTEGERS = (*BYTES, "int16", "uint16", "int32")

_FOLDED = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@dataclass(frozen=True)
class Quantised:
    """Integers and the numbers that they are.

    - `value`: the integers.
    - `scale`, `zero`: one for all integers, or one for each place along `axis`.
    - `dtype`: type of the integers.
    - `axis`: None if there is one scale.
    """

    value: Value
    scale: Value
    zero: Value
    dtype: str
    axis: int | None = None

    @property
    def reach(self) -> int:
        """The greatest absolute value of an integer without its zero point."""
        ends = np.iinfo(self.dtype)
        if isinstance(self.zero, str):
            return int(ends.max) - int(ends.min)
        least, greatest = int(self.zero.min()), int(self.zero.max())
        return max(int(ends.max) - least, greatest - int(ends.min))

    def is_zero(self) -> bool:
        """Return whether every zero point is 0."""
        return not isinstance(self.zero, str) and not self.zero.any()

    def same(self, other: Quantised) -> bool:
        """Return whether equal integers of both are equal numbers."""
        if (self.dtype, self.axis) != (other.dtype, other.axis):
            return False
        return _equal(self.scale, other.scale) and _equal(self.zero, other.zero)

    def of(self, value: Value) -> Quantised:
        """Return other integers with the same scale."""
        return replace(self, value=value)


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return np.array_equal(one, other)


def one_for_all(array: np.ndarray) -> np.ndarray:
    """Return an array, as a number if it has one element."""
    return array.reshape(()) if array.size == 1 else array


class Reader:
    """Reads quantised values with their scales from the inputs of nodes."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        #: Constants that were computed since.
        self.computed: dict[str, np.ndarray] = {}

    def value(self, name: str) -> Value:
        """Return a constant as an array, any other value by its name."""
        found = self.computed.get(name)
        if found is None:
            found = self.facts.array(name)
        return name if found is None else found

    def rank(self, value: Value) -> int | None:
        """Return the number of dimensions of a value, None if it is not known."""
        if not isinstance(value, str):
            return value.ndim
        shape = self.facts.shape(value)
        return None if shape is None else len(shape)

    def dtype(self, value: Value) -> str | None:
        """Return the type of a value, None if it is not known."""
        if not isinstance(value, str):
            return str(value.dtype)
        try:
            return str(self.facts.dtype(value))
        except KeyError:
            return None

    def quantised(self, inputs: Any, axis: int, dtype: str | None = None) -> Quantised | None:
        """Return a value with its scale and its zero point.

        - `inputs` (Sequence[str]): names of the value, its scale and, if it has one, its zero
          point.
        - `axis`: axis of the scales, if there are several.
        - `dtype`: type of the integers; by default that of the zero point, or else of the value.
        - Returns: None if a type or a size is not known, or if the scale is not of float32.
        """
        value, scale = self.value(inputs[0]), self._parameter(inputs[1])
        zero = self._parameter(inputs[2]) if len(inputs) > 2 and inputs[2] else None
        dtype = dtype or self.dtype(value if zero is None else zero)
        if scale is None or dtype not in INTEGERS or self.dtype(scale) != "float32":
            return None
        if zero is None:
            if len(inputs) > 2 and inputs[2]:
                return None
            zero = np.zeros((), dtype)
        several = [each for each in (scale, zero) if self._is_several(each)]
        if not several:
            return Quantised(value, scale, zero, dtype)
        rank = self.rank(value)
        if rank is None or not -rank <= axis < rank:
            return None
        return Quantised(value, scale, zero, dtype, axis % rank)

    def _parameter(self, name: str) -> Value | None:
        """Return a scale or a zero point, None for one that has another shape than it may have."""
        value = self.value(name)
        if not isinstance(value, str):
            value = one_for_all(value)
            return value if value.ndim < 2 else None
        shape = self.facts.shape(value)
        return value if shape in ((), (1,)) else None

    def _is_several(self, value: Value) -> bool:
        return not isinstance(value, str) and value.ndim > 0


class Integers(Writer):
    """Writes arithmetic of quantised numbers; of constants, it is done at once."""

    def name_of(self, value: Value) -> str:
        """Return the name of a value."""
        return value if isinstance(value, str) else self.constant(value, value.dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value in another type."""
        import onnx

        if not isinstance(value, str):
            return value.astype(dtype)
        return self.add("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def compute(self, operator: str, a: Value, b: Value) -> Value:
        """Return a sum, difference, product or quotient."""
        if not isinstance(a, str) and not isinstance(b, str):
            # Integers wrap around.
            with np.errstate(over="ignore"):
                return np.asarray(_FOLDED[operator](a, b))
        return self.add(operator, self.name_of(a), self.name_of(b))

    def along(self, value: Value, axis: int | None, rank: int | None) -> Value:
        """Return numbers for each place along an axis in the shape in which they broadcast.

        TVM's conversion of layouts knows only operands that have all dimensions.
        """
        if axis is None or rank is None or (not isinstance(value, str) and value.ndim != 1):
            return value
        shape = [*[1] * axis, -1, *[1] * (rank - 1 - axis)]
        if not isinstance(value, str):
            return value.reshape(shape)
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def widened(self, q: Quantised, rank: int | None = None) -> Value:
        """Return integers without their zero points, in 32 bits.

        - `rank`: number of dimensions, if there are several zero points.
        """
        wide = self.cast(q.value, "int32")
        if q.is_zero():
            return wide
        zero = self.along(self.cast(q.zero, "int32"), q.axis, rank)
        return self.compute("Sub", wide, zero)

    def dequantised(self, q: Quantised, rank: int | None = None) -> Value:
        """Return numbers in float32; `rank` as for :meth:`widened`."""
        scale = self.along(q.scale, q.axis, rank)
        return self.compute("Mul", self.cast(self.widened(q, rank), "float32"), scale)

    def quantised(self, value: Value, to: Quantised) -> str:
        """Return numbers of float32 as integers with a scale."""
        inputs = [self.name_of(each) for each in (value, to.scale, to.zero)]
        axis = {} if to.axis is None else {"axis": to.axis}
        return self.add("QuantizeLinear", *inputs, **axis)

    def rounded(self, steps: Value, to: Quantised) -> str:
        """Return numbers of float32, which were divided by the scale, as integers."""
        return self.quantised(steps, replace(to, scale=np.ones((), np.float32)))
