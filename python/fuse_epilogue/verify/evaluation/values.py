"""Pieces of generated source: values and buffers."""

from __future__ import annotations

from .scalars import ScalarType


class Value:
    """A piece of Python source that computes a value.

    Attributes
    ----------
    code : str
        The source; an operand of anything without further brackets.
    type : ScalarType
        Type of the value.
    low, high : int
        Bounds of an integer, at most the range of its type.
    static : bool
        Whether it is a Python integer that no data can change.
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

    Attributes
    ----------
    name : str
        Name for messages.
    code : str
        The list.
    type : ScalarType
        Type of the elements.
    shape : list[Value]
        Extents, static.
    keys : list[int]
        For each extent the handle of the variable it is, or 0.
    strides : list[str]
        Source of the distance between neighbours along each axis, in elements.
    owned : bool
        Whether the function allocates it.
    offsets : list[Value] or None
        Where a matched region starts in `source`.
    source : Buffer or None
        The buffer that a matched region is part of.
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
