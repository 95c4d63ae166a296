"""Checks that operands fit together: shapes and constants, before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Refused
from ..tile import Tile
from .arithmetic import BITWISE, UNARY, holds

Arguments = Mapping[str, Any]


def significant(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop dimensions of size 1."""
    return tuple([n for n in shape if n != 1])


def same(name: str, tile: Tile, dst: Tile) -> None:
    """Refuse a tile that does not have an element for each of the destination's."""
    if tile.shape == dst.shape:
        return
    one, two = tile.shape, dst.shape
    if one[0] != two[0] or math.prod(one[1:]) != math.prod(two[1:]):
        raise Refused("shapes", f"{name} has shape {one}, dst {two}: nothing is broadcast")


def free_like(name: str, tile: Tile, dst: Tile) -> None:
    """Refuse a tile that does not have as many elements in a partition."""
    if math.prod(tile.shape[1:]) != math.prod(dst.shape[1:]):
        raise Refused("shapes", f"{name} has shape {tile.shape}, dst {dst.shape}")


def vector(name: str, value: Any, dst: Tile) -> None:
    """Refuse a tile that is not one value for each partition."""
    if isinstance(value, Tile) and (
        value.shape[0] != dst.shape[0] or math.prod(value.shape[1:]) != 1
    ):
        raise Refused(
            "per-partition-operand",
            f"{name} is a number or a tile of shape ({dst.shape[0]}, 1), not {value.shape}",
        )


def _bits(args: Arguments) -> None:
    """Refuse bit-wise operations with constants that their type does not have."""
    for key, other in (("op0", "operand0"), ("op1", "operand1")):
        op, value = args[key], args[other]
        if op not in BITWISE:
            continue
        if key == "op1" and args["op0"] not in BITWISE:
            raise Refused(
                "operand-types",
                f"nl.{op} takes integers of one type, nl.{args['op0']} gives floats",
            )
        if isinstance(value, Tile):
            continue
        dtype = args["data"].dtype
        # Constants stay integers; 1.0 is not one of them.
        if "int" not in dtype or not isinstance(value, int):
            raise Refused("operand-types", f"nl.{op} takes integers, not {value} with {dtype}")
        if not holds(dtype, value):
            raise Refused("operand-types", f"nl.{op}: {value} is not a value of {dtype}")


def fit_memset(args: Arguments) -> None:
    """Check a value: integers are stored as they are."""
    value, dtype = args["value"], args["dst"].dtype
    if "int" in dtype and not holds(dtype, value):
        raise Refused("operand-types", f"{value} is not a value of {dtype}")


def elementwise(*tiles: str, vectors: tuple[str, ...] = ()) -> Callable[[Arguments], None]:
    """Return a check that all tiles have the destination's shape."""

    def fit(args: Arguments) -> None:
        dst = args["dst"]
        for name in tiles:
            same(name, args[name], dst)
        for name in vectors:
            vector(name, args[name], dst)

    return fit


def fit_dma(args: Arguments) -> None:
    """Check a transfer: as many elements, which go in their order."""
    dst, src = args["dst"], args["src"]
    if math.prod(dst.shape) != math.prod(src.shape):
        raise Refused("shapes", f"src has shape {src.shape}, dst {dst.shape}")


def fit_exchange(args: Arguments) -> None:
    """Check an exchange: tiles of the same shape and type."""
    dst, src = args["dst"], args["src"]
    if significant(dst.shape) != significant(src.shape) or dst.dtype != src.dtype:
        raise Refused("shapes", f"src is {src.shape} {src.dtype}, dst {dst.shape} {dst.dtype}")


def second_operands(args: Arguments) -> None:
    """Check that each operation has its operand; those of one operand, and bypass, need none."""
    for at in "01":
        op, operand = args.get("op" + at), args.get("operand" + at)
        if op is None and operand is None or op in UNARY or op == "bypass":
            continue
        if op is None or operand is None:
            raise Refused("language", f"op{at} and operand{at} are given together")


def fit_tensor_scalar(args: Arguments) -> None:
    """Check one or two operations with constants or columns."""
    second_operands(args)
    same("data", args["data"], args["dst"])
    vector("operand0", args["operand0"], args["dst"])
    vector("operand1", args["operand1"], args["dst"])
    _bits(args)


def fit_two_tiles(args: Arguments) -> None:
    """Check two operations, the first with a constant or a column, the second with a tile."""
    same("data", args["data"], args["dst"])
    same("operand1", args["operand1"], args["dst"])
    vector("operand0", args["operand0"], args["dst"])
    _bits(args)


def axes(args: Arguments) -> tuple[int, ...]:
    """Return the axes of a reduction."""
    axis = args["axis"]
    return axis if isinstance(axis, tuple) else (axis,)


def fit_reduce(args: Arguments) -> None:
    """Check a reduction over the last free dimensions."""
    data, dst = args["data"], args["dst"]
    rank, over = len(data.shape), axes(args)
    if not over or over != tuple(range(rank - len(over), rank)) or over[0] < 1:
        raise Refused(
            "reduce-axes",
            f"axis {args['axis']}: only the last free dimensions of {data.shape} can be reduced, "
            f"as axis={rank - 1}" + (f" or axis=({rank - 2}, {rank - 1})" if rank > 2 else ""),
        )
    kept = data.shape[: over[0]]
    expected = kept + (1,) * len(over) if args["keepdims"] else kept
    if dst.shape[0] != expected[0] or significant(dst.shape[1:]) != significant(expected[1:]):
        raise Refused("shapes", f"dst has shape {dst.shape}, the reduction {expected}")


def fit_matmul(args: Arguments) -> None:
    """Check a product of matrices; free dimensions are taken as one."""
    dst, left, right = args["dst"], args["stationary"], args["moving"]
    pairs = 2 if args.get("perf_mode") == "double_row" else 1
    if pairs == 2 and not left.shape[1] == right.shape[1] == 2:
        raise Refused(
            "shapes",
            f"stationary {left.shape}, moving {right.shape}: with double_row, the first free "
            "dimension is 2, and is summed over",
        )
    if left.shape[0] != right.shape[0]:
        raise Refused(
            "shapes",
            f"stationary has {left.shape[0]} partitions and moving {right.shape[0]}: "
            "partitions are what is summed over",
        )
    expected = (math.prod(left.shape[1:]) // pairs, math.prod(right.shape[1:]) // pairs)
    if (dst.shape[0], math.prod(dst.shape[1:])) != expected:
        raise Refused("shapes", f"dst has shape {dst.shape}, stationary.T @ moving {expected}")


def fit_transpose(args: Arguments) -> None:
    """Check a transposition; free dimensions are taken as one."""
    dst, data = args["dst"], args["data"]
    expected = (math.prod(data.shape[1:]), data.shape[0])
    if (dst.shape[0], math.prod(dst.shape[1:])) != expected:
        raise Refused("shapes", f"dst has shape {dst.shape}, data {data.shape} of {expected}")
