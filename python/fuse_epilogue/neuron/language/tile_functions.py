"""Functions of ``nl`` that return a tile: ``nl.add(x, y)``, ``nl.exp(x)``, ``nl.full(...)``.

Each allocates a tile in SBUF and runs one instruction. Source of names, parameters and default
types: ``nki.language`` of the AWS Neuron documentation 2.33, where they are experimental.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Refused
from ..isa import INSTRUCTIONS
from ..isa.arithmetic import BINARY, FUNCTIONS
from ..tile import Tile
from ..trace import DType
from .objects import Builtin, Symbol

if TYPE_CHECKING:
    from ..walk import Walk

#: Operations in which the operands cannot change places.
_ORDERED = ("subtract", "divide", "power", "less", "less_equal", "greater", "greater_equal")
_SHIFTS = ("left_shift", "right_shift")
#: Functions that are instructions of their own.
_ALONE = ("reciprocal",)


def computed(walk: Walk, op: Symbol, args: list[Any], named: dict[str, Any]) -> Tile:
    """Return the tile of ``nl.op(x, y, dtype=None)`` or ``nl.op(x, dtype=None)``.

    - Raises Refused: no operand is a tile, or the operation is only for instructions.
    """
    values = (
        dict(zip(("x", "y", "dtype"), args, strict=False))
        if op.name in BINARY
        else {**dict(zip(("x", "dtype"), args, strict=False))}
    )
    if values.keys() & named.keys() or named.keys() - {"x", "y", "dtype"} or len(args) > 3:
        raise Refused("language", f"{op}(...) takes x{', y' * (op.name in BINARY)}, dtype")
    values.update(named)
    x, y, dtype = values.get("x"), values.get("y"), values.get("dtype")
    if op.name in BINARY:
        return _binary(walk, op, x, y, dtype)
    if op.name not in FUNCTIONS or not isinstance(x, Tile):
        raise Refused("language", f"{op}(...) of {type(x).__name__} is not supported here")
    made = _like(walk, x, dtype)
    if op.name in _ALONE:
        walk.instruction(INSTRUCTIONS[op.name], [], {"dst": made, "data": x})
    else:
        walk.instruction(INSTRUCTIONS["activation"], [], {"dst": made, "op": op, "data": x})
    return made


def negative(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    """Return the tile of ``nl.negative(x, dtype=None)``."""
    if not isinstance(x, Tile):
        raise Refused("language", "nl.negative(...) takes a tile")
    return _binary(walk, Symbol("op", "multiply"), x, -1.0, dtype)


def _binary(walk: Walk, op: Symbol, x: Any, y: Any, dtype: Any) -> Tile:
    if isinstance(x, Tile) and isinstance(y, Tile):
        if x.shape == y.shape:
            made = _like(walk, x, dtype)
            given = {"dst": made, "data1": x, "data2": y, "op": op}
            walk.instruction(INSTRUCTIONS["tensor_tensor"], [], given)
            return made
        if not (len(y.shape) == 2 and y.shape == (x.shape[0], 1)):
            raise Refused("shapes", f"{op}(...) of {x.shape} and {y.shape} is not supported here")
    data, scalar = (x, y) if isinstance(x, Tile) else (y, x)
    if not isinstance(data, Tile) or scalar is None or op.name in _SHIFTS and data is y:
        raise Refused("language", f"{op}(...) needs x and y, at least one of them a tile")
    made = _like(walk, data, dtype)
    given = {"dst": made, "data": data, "op0": op, "operand0": scalar}
    if data is y and op.name in _ORDERED:
        given["reverse0"] = True
    walk.instruction(INSTRUCTIONS["tensor_scalar"], [], given)
    return made


def _like(walk: Walk, tile: Tile, dtype: Any) -> Tile:
    if tile.space == "hbm":
        raise Refused("memory", "functions of nl compute in SBUF: nl.load the tensor before")
    if dtype is not None and not isinstance(dtype, DType):
        raise Refused("language", "dtype is a type such as nl.float32")
    return walk.allocate("", tile.shape, dtype or tile.dtype, "sbuf")


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
