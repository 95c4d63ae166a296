"""Pieces of generated source: values and buffers."""

from __future__ import annotations

from .scalars import ScalarType


class Value:
    """A piece of Python source that computes a value.

    - `code`: the source; an operand of anything without further brackets.
    - `type`: type of the value.
    - `low`, `high`: bounds of an integer, at most the range of its type.
    - `static`: whether it is a Python integer that no data can change.
    """

    __slots__ = ("code", "high", "low", "static", "type")

    def __init__(
        self,
        code: str,
        type: ScalarType,
        static: bool = False,
        low: int | None = None,
        high: int | None = None,
    ) -> None:
        self.code = code
        self.type = type
        self.static = static
        self.low = type.low if low is None else low
        self.high = type.high if high is None else high


class Buffer:
    """A buffer as the generated program sees it: a list of elements, in row-major order.

    - `name`: name for messages.
    - `code`: the list.
    - `type`: type of the elements.
    - `shape`: extents, static.
    - `keys`: for each extent the handle of the variable it is, or 0.
    - `strides` (list[str]): source of the distance between neighbours along each axis, in elements.
    - `owned` (bool): whether the function allocates it.
    - `offsets`: where a matched region starts in `source`.
    - `source`: the buffer that a matched region is part of.
    """

    __slots__ = ("code", "keys", "name", "offsets", "owned", "shape", "source", "strides", "type")

    def __init__(
        self, name: str, code: str, type: ScalarType, shape: list[Value], keys: list[int]
    ) -> None:
        self.name = name
        self.code = code
        self.type = type
        self.shape = shape
        self.keys = keys
        self.strides = _strides(shape)
        self.owned = False
        self.offsets: list[Value] | None = None
        self.source: Buffer | None = None


def _strides(shape: list[Value]) -> list[str]:
    strides: list[str] = []
    product = "1"
    for extent in reversed(shape):
        strides.append(product)
        if extent.low == extent.high and product.isdigit():
            product = str(int(product) * extent.low)
        else:
            product = f"({product}*{extent.code})" if product != "1" else extent.code
    strides.reverse()
    return strides
