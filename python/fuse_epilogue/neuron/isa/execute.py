"""The semantics of the instructions, on arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import Refused
from .arithmetic import BITWISE, FUNCTIONS, REDUCERS, combine, native, store, widened
from .shapes import axes

Arguments = Mapping[str, Any]


def like(value: Any, dst: np.ndarray) -> Any:
    """Give an operand the destination's shape, or one that numpy broadcasts to it."""
    if not isinstance(value, np.ndarray) or value.shape == dst.shape:
        return value
    if value.size == dst.size:
        return value.reshape(dst.shape)
    return value.reshape((dst.shape[0],) + (1,) * (dst.ndim - 1))


def column(value: Any, rows: int) -> Any:
    """Return an operand of one number for each partition as a matrix of one column."""
    return widened(value).reshape(rows, 1) if isinstance(value, np.ndarray) else widened(value)


def ordered(name: str, left: Any, right: Any, reverse: bool) -> Any:
    """Return ``left op right``, or with the operands exchanged."""
    return combine(name, right, left) if reverse else combine(name, left, right)


def wide(tiles: Iterable[Any]) -> bool:
    """Tell whether all tiles are of integers of 32 bits, of which float32 does not have all."""
    return all(str(tile.dtype) in ("int32", "uint32") for tile in tiles)


def run_copy(dst: np.ndarray, args: Arguments) -> None:
    """Copy; the same type bit for bit."""
    src = args["src"].reshape(dst.shape)
    if src.dtype == dst.dtype:
        dst[...] = src
    else:
        store(dst, src if dst.dtype.kind in "iu" and src.dtype.kind in "iu" else widened(src))


def run_memset(dst: np.ndarray, args: Arguments) -> None:
    """Fill."""
    value = args["value"]
    if dst.dtype.kind in "iu":
        dst[...] = int(value)
    else:
        store(dst, np.float32(value))


def run_tensor_tensor(dst: np.ndarray, args: Arguments) -> None:
    """Combine two tiles: GpSimd does it natively for integers of 32 bits."""
    left, right = like(args["data1"], dst), like(args["data2"], dst)
    if args["engine"] == "gpsimd" and args["op"] not in BITWISE and wide((dst, left, right)):
        store(dst, native(args["op"], left, right, dst.dtype))
    else:
        store(dst, combine(args["op"], left, right))


def run_two_ops(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``(data op0 operand0) op1 operand1``, the second if there is one."""
    first, second = like(args["operand0"], dst), like(args["operand1"], dst)
    value = ordered(args["op0"], like(args["data"], dst), first, args["reverse0"])
    if args["op1"] is not None:
        value = ordered(args["op1"], value, second, args["reverse1"])
    store(dst, value)


def run_activation(dst: np.ndarray, args: Arguments) -> np.ndarray:
    """Compute ``op(data * scale + bias)``, and return it as it is before it is rounded."""
    value = widened(like(args["data"], dst)) * widened(like(args["scale"], dst))
    if args["bias"] is not None:
        value = value + widened(like(args["bias"], dst))
    value = activated(args["op"], value)
    store(dst, value)
    return value


def activated(op: str, value: np.ndarray) -> np.ndarray:
    """Return a function of values.

    - Raises Refused: a sine of an angle beyond pi: the scalar engine returns something else for it.
    """
    if op == "sin" and (np.abs(value) > np.float32(np.pi)).any():
        raise Refused(
            "operand-types",
            "nl.sin of the scalar engine takes angles from -pi to pi: nl.sin(tile) of the language "
            "reduces them",
        )
    return np.asarray(FUNCTIONS[op](value))


def run_reduce(dst: np.ndarray, args: Arguments) -> None:
    """Reduce in float32."""
    value = REDUCERS[args["op"]](widened(args["data"]), axis=axes(args))
    store(dst, (-value if args["negate"] else value).reshape(dst.shape))


def run_matmul(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``stationary.T @ moving`` in float32."""
    pairs = 2 if args["perf_mode"] == "double_row" else 1
    left, right = (
        widened(args[name]).reshape(args[name].shape[0] * pairs, -1)
        for name in ("stationary", "moving")
    )
    product = (left.T @ right).reshape(dst.shape)
    store(dst, widened(dst) + product if args["accumulate"] else product)


def run_transpose(dst: np.ndarray, args: Arguments) -> None:
    """Transpose bit for bit."""
    if dst.dtype != args["data"].dtype:
        raise Refused("transpose", "dst has another type than data")
    data = args["data"]
    dst[...] = data.reshape(data.shape[0], -1).T.reshape(dst.shape)
