"""Functions of ``nl`` that return a tile: ``nl.add(x, y)``, ``nl.exp(x)``, ``nl.full(...)``.

Each allocates a tile in SBUF and runs one instruction. Source of names, parameters and default
types: ``nki.language`` of the AWS Neuron documentation 2.33, where they are experimental.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Refused
from ..isa import INSTRUCTIONS
from ..isa.arithmetic import BINARY, FUNCTIONS, UNARY
from ..tile import Tile
from ..trace import DTYPES, ITEMSIZE, DType
from .objects import Builtin, Symbol

if TYPE_CHECKING:
    from ..walk import Walk

#: Operations in which the operands cannot change places.
_ORDERED = ("subtract", "divide", "power", "less", "less_equal", "greater", "greater_equal")
_SHIFTS = ("left_shift", "right_shift")
#: Functions that are instructions of their own.
_ALONE = ("reciprocal",)
FLOAT = DTYPES["float32"]
#: The largest float32 below pi.
_PI = 3.1415925


def computed(walk: Walk, op: Symbol, args: list[Any], named: dict[str, Any]) -> Tile:
    """Return the tile of ``nl.op(x, y, dtype=None)`` or ``nl.op(x, dtype=None)``.

    - Raises Refused: no operand is a tile, or the operation is only for instructions.
    """
    two = op.name in BINARY and op.name not in UNARY
    names = ("x", "y", "dtype") if two else ("x", "dtype")
    values = dict(zip(names, args, strict=False))
    if values.keys() & named.keys() or named.keys() - {*names} or len(args) > len(names):
        raise Refused("language", f"{op}(...) takes {', '.join(names)}")
    values.update(named)
    x, y, dtype = values.get("x"), values.get("y"), values.get("dtype")
    if two:
        return binary(walk, op.name, x, y, dtype)
    if op.name not in FUNCTIONS or not isinstance(x, Tile):
        raise Refused("language", f"{op}(...) of {type(x).__name__} is not supported here")
    if op.name == "sin":
        return unary(walk, "sin", within_pi(walk, x), dtype or x.dtype)
    return unary(walk, op.name, x, dtype)


def unary(walk: Walk, op: str, x: Tile, dtype: Any = None) -> Tile:
    """Return the tile of ``op(x)``."""
    made = _like(walk, x, dtype)
    if op in _ALONE:
        walk.instruction(INSTRUCTIONS[op], [], {"dst": made, "data": x})
    else:
        given = {"dst": made, "op": Symbol("op", op), "data": x}
        walk.instruction(INSTRUCTIONS["activation"], [], given)
    return made


def within_pi(walk: Walk, x: Tile, ahead: float = 0.0) -> Tile:
    """Return ``x + ahead`` as an angle from -pi to pi, as the scalar engine's sine needs it."""
    angle = binary(walk, "add", x, math.pi + ahead, FLOAT)
    angle = binary(walk, "mod", angle, 2 * math.pi, FLOAT)
    angle = binary(walk, "subtract", angle, math.pi, FLOAT)
    return binary(walk, "minimum", binary(walk, "maximum", angle, -_PI), _PI)


def negative(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    """Return the tile of ``nl.negative(x, dtype=None)``."""
    if not isinstance(x, Tile):
        raise Refused("language", "nl.negative(...) takes a tile")
    return binary(walk, "multiply", x, -1.0, dtype)


def binary(walk: Walk, op: str, x: Any, y: Any, dtype: Any = None) -> Tile:
    """Return the tile of ``x op y``; dimensions of size 1 are broadcast, not the partitions."""
    if isinstance(x, Tile) and isinstance(y, Tile):
        shape = _common(op, x.shape, y.shape)
        made = _like(walk, y if _wider(y, x) else x, dtype, shape)
        if _column(y) and x.shape == shape and x is not y:
            return _with_column(walk, made, op, x, y, False)
        if _column(x) and y.shape == shape and x is not y and op not in _SHIFTS:
            return _with_column(walk, made, op, y, x, True)
        given = {"dst": made, "op": Symbol("op", op)}
        given |= {"data1": x.broadcast_to(shape), "data2": y.broadcast_to(shape)}
        walk.instruction(INSTRUCTIONS["tensor_tensor"], [], given)
        return made
    data, scalar = (x, y) if isinstance(x, Tile) else (y, x)
    if not isinstance(data, Tile) or scalar is None or op in _SHIFTS and data is y:
        raise Refused("language", f"nl.{op}(...) needs x and y, at least one of them a tile")
    return _with_column(walk, _like(walk, data, dtype), op, data, scalar, data is y)


def _with_column(walk: Walk, made: Tile, op: str, data: Tile, scalar: Any, swapped: bool) -> Tile:
    """Combine a tile with a number, or with one for each partition."""
    given = {"dst": made, "data": data, "op0": Symbol("op", op), "operand0": scalar}
    if swapped and op in _ORDERED:
        given["reverse0"] = True
    walk.instruction(INSTRUCTIONS["tensor_scalar"], [], given)
    return made


def _column(tile: Tile) -> bool:
    """Tell whether a tile is one number for each partition, of the type that these have."""
    return len(tile.shape) == 2 and tile.shape[1] == 1 and tile.dtype == "float32"


def _wider(one: Tile, other: Tile) -> bool:
    """Tell whether a type has more precision than another."""
    ranks = [("float" in it.dtype, ITEMSIZE[it.dtype]) for it in (one, other)]
    return ranks[0] > ranks[1]


def _common(op: str, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two shapes are broadcast to."""
    fits = len(one) == len(two) and one[0] == two[0]
    if not fits or any(a != b and 1 not in (a, b) for a, b in zip(one, two, strict=True)):
        raise Refused(
            "shapes",
            f"nl.{op}(...) of {one} and {two}: free dimensions of size 1 are broadcast, partitions "
            "by nl.broadcast_to",
        )
    return tuple(map(max, zip(one, two, strict=True)))


def _like(walk: Walk, tile: Tile, dtype: Any, shape: tuple[int, ...] | None = None) -> Tile:
    if tile.space == "hbm":
        raise Refused("memory", "functions of nl compute in SBUF: nl.load the tensor before")
    if dtype is not None and not isinstance(dtype, DType):
        raise Refused("language", "dtype must be a type such as nl.float32")
    return walk.allocate("", shape or tile.shape, dtype or tile.dtype, "sbuf")


def filled(number: float, name: str, ndarray: Callable[..., Tile]) -> Builtin:
    """Return ``nl.zeros`` or ``nl.ones``, by the function that allocates a tensor."""

    def run(walk: Walk, shape: Any, dtype: Any, buffer: Any = None, name: str = "") -> Tile:
        return _fill(walk, ndarray(walk, shape, dtype, buffer, name), number)

    return Builtin(f"nl.{name}", run)


def full(ndarray: Callable[..., Tile]) -> Builtin:
    """Return ``nl.full``, by the function that allocates a tensor."""

    def run(
        walk: Walk, shape: Any, fill_value: Any, dtype: Any, buffer: Any = None, name: str = ""
    ) -> Tile:
        return _fill(walk, ndarray(walk, shape, dtype, buffer, name), fill_value)

    return Builtin("nl.full", run)


def like(fills: bool, ndarray: Callable[..., Tile]) -> Builtin:
    """Return ``nl.zeros_like``, or ``nl.empty_like`` which does not fill."""

    def run(walk: Walk, x: Any, dtype: Any = None, buffer: Any = None, name: str = "") -> Tile:
        if not isinstance(x, Tile):
            raise Refused("language", "a tile is needed")
        memory = Symbol("memory", x.memory) if buffer is None else buffer
        made = ndarray(walk, x.shape, dtype or x.dtype, memory, name)
        return _fill(walk, made, 0) if fills else made

    return Builtin("nl.zeros_like" if fills else "nl.empty_like", run)


def _fill(walk: Walk, tile: Tile, number: Any) -> Tile:
    if tile.space == "hbm":
        raise Refused(
            "language", "only tensors on the chip are filled here: fill HBM by nisa.dma_copy"
        )
    walk.instruction(INSTRUCTIONS["memset"], [tile, number], {})
    return tile
