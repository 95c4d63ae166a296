"""Functions of ``nl`` that are several instructions: ``nl.softmax(x)``, ``nl.mean(x, axis)``.

Source of names, parameters and default types: ``nki.language`` of the AWS Neuron documentation
2.33, where they are experimental. It does not say which instructions they become: those chosen here
compute what it says, and what is predicted for a kernel with such functions depends on the choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Refused
from ..isa import INSTRUCTIONS
from ..tile import Tile
from ..tile_views import expand_dim
from ..trace import DTYPES, ITEMSIZE, DType
from .objects import Builtin, Symbol
from .tile_functions import FLOAT, binary, unary, within_pi

if TYPE_CHECKING:
    from ..walk import Walk

_BYTE = DTYPES["uint8"]


def _emit(walk: Walk, name: str, **given: Any) -> None:
    walk.instruction(INSTRUCTIONS[name], [], given)


def _tile(value: Any, what: str = "x") -> Tile:
    if not isinstance(value, Tile) or value.space == "hbm":
        raise Refused("memory", f"{what} is a tile on the chip: nl.load a tensor before")
    return value


def _new(walk: Walk, shape: tuple[int, ...], dtype: Any, memory: str = "sbuf") -> Tile:
    if not isinstance(dtype, DType):
        raise Refused("language", "dtype must be a type such as nl.float32")
    return walk.allocate("", shape, dtype, memory)


def _axes(x: Tile, axis: Any) -> tuple[int, ...]:
    """Return axes counted from the first."""
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if any(type(each) is not int for each in given):
        raise Refused("language", "axis is an integer, or a tuple or list of these")
    return tuple(each % len(x.shape) for each in given)


def _reduced(walk: Walk, op: str, x: Tile, axis: Any, dtype: Any, keepdims: bool) -> Tile:
    axes = _axes(x, axis)
    sizes = list(enumerate(x.shape))
    shape = tuple(1 if at in axes else n for at, n in sizes if keepdims or at not in axes)
    made = _new(walk, shape if len(shape) > 1 else (*shape, 1), dtype)
    op_of = Symbol("op", op)
    _emit(walk, "tensor_reduce", dst=made, op=op_of, data=x, axis=axes, keepdims=bool(keepdims))
    return made


def _reduction(op: str) -> Callable[..., Tile]:
    def run(walk: Walk, x: Any, axis: Any, dtype: Any = None, keepdims: Any = False) -> Tile:
        return _reduced(walk, op, _tile(x), axis, dtype or x.dtype, keepdims)

    return run


def _mean(walk: Walk, x: Any, axis: Any, dtype: Any = None, keepdims: Any = False) -> Tile:
    total = _reduced(walk, "add", _tile(x), axis, FLOAT, keepdims)
    count = math.prod(x.shape[each] for each in _axes(x, axis))
    return binary(walk, "multiply", total, 1.0 / count, dtype or x.dtype)


def _var(walk: Walk, x: Any, axis: Any, dtype: Any = None, keepdims: Any = False) -> Tile:
    """Return the variance, always with the axes that it is taken over."""
    apart = binary(walk, "subtract", _tile(x), _mean(walk, x, axis, FLOAT, True), FLOAT)
    return _mean(walk, unary(walk, "square", apart), axis, dtype or x.dtype, True)


def _all(walk: Walk, x: Any, axis: Any, dtype: Any = None) -> Tile:
    held = binary(walk, "not_equal", _tile(x), 0.0, FLOAT)
    return _reduced(walk, "minimum", held, axis, dtype or x.dtype, False)


def _softmax(walk: Walk, x: Any, axis: Any = -1, dtype: Any = None) -> Tile:
    largest = _reduced(walk, "maximum", _tile(x), axis, FLOAT, True)
    shares = unary(walk, "exp", binary(walk, "subtract", x, largest, FLOAT))
    total = _reduced(walk, "add", shares, axis, FLOAT, True)
    return binary(walk, "multiply", shares, unary(walk, "reciprocal", total), dtype or x.dtype)


def _rms_norm(
    walk: Walk,
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: Any = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> Tile:
    kind = compute_dtype or FLOAT
    squares = binary(walk, "multiply", _tile(x), x, kind)
    total = _reduced(walk, "add", squares, axis, FLOAT, True)
    root = unary(
        walk, "rsqrt", binary(walk, "add", binary(walk, "multiply", total, 1 / n), epsilon)
    )
    return binary(walk, "multiply", binary(walk, "multiply", x, root, kind), w, dtype or x.dtype)


def _where(walk: Walk, condition: Any, x: Any, y: Any, dtype: Any = None) -> Tile:
    shape = _tile(condition, "condition").shape
    tiles = [value for value in (x, y) if isinstance(value, Tile)]
    made = _new(walk, shape, dtype or (tiles[0].dtype if tiles else FLOAT))
    held = binary(walk, "not_equal", condition, 0, _BYTE)
    if isinstance(y, Tile):
        _emit(walk, "tensor_copy", dst=made, src=y.broadcast_to(shape))
    else:
        _emit(walk, "memset", dst=made, value=y)
    if isinstance(x, Tile):
        x = x.broadcast_to(shape)
        if x.dtype != made.dtype:
            cast = _new(walk, shape, made.dtype)
            _emit(walk, "tensor_copy", dst=cast, src=x)
            x = cast
    _emit(walk, "tensor_copy_predicated", dst=made, src=x, predicate=held)
    return made


def _expand_dims(walk: Walk, x: Any, axis: Any) -> Tile:
    return expand_dim(
        _tile(x), axis if type(axis) is int and axis >= 0 else len(x.shape) + 1 + axis
    )


def _broadcast_to(walk: Walk, x: Any, shape: Any, dtype: Any = None) -> Tile:
    """Return a view, or a new tile where partitions are repeated: 32 with each instruction."""
    shape, own = tuple(shape), _tile(x).shape
    if len(shape) == len(own) and own[0] == 1 and shape[0] > 1:
        made = _new(walk, (shape[0], *own[1:]), x.dtype)
        for first in range(0, shape[0], 32):
            part = made.index((slice(first, min(first + 32, shape[0])),))
            _emit(walk, "nc_stream_shuffle", dst=part, src=x, shuffle_mask=[0] * 32)
        x = made
    view = x.broadcast_to(shape)
    return view if dtype in (None, x.dtype) else unary(walk, "copy", view, dtype)


def _transpose(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    """Return a tile in PSUM."""
    if len(_tile(x).shape) != 2:
        raise Refused("shapes", f"nl.transpose takes a tile of two dimensions, not {x.shape}")
    made = _new(walk, (x.shape[1], x.shape[0]), x.dtype, "psum")
    _emit(walk, "nc_transpose", dst=made, data=x)
    return made if dtype in (None, x.dtype) else unary(walk, "copy", made, dtype)


def _matmul(walk: Walk, x: Any, y: Any, transpose_x: Any = False) -> Tile:
    """Return a product in PSUM."""
    left = _tile(x)
    if not transpose_x:
        transposed = _transpose(walk, x)
        left = _new(walk, transposed.shape, x.dtype)
        _emit(walk, "tensor_copy", dst=left, src=transposed)
    shape = (math.prod(left.shape[1:]), *_tile(y, "y").shape[1:])
    made = _new(walk, shape, FLOAT, "psum")
    _emit(walk, "nc_matmul", dst=made, stationary=left, moving=y)
    return made


def _load_transpose2d(walk: Walk, src: Any, dtype: Any = None) -> Tile:
    """Load rows and transpose them on the tensor engine, 128 at a time."""
    if not isinstance(src, Tile) or src.space != "hbm" or len(src.shape) != 2:
        raise Refused("memory", "nl.load_transpose2d takes a tensor of two dimensions in HBM")
    rows, columns = src.shape
    made = _new(walk, (columns, rows), dtype or src.dtype)
    for first in range(0, rows, 128):
        part = slice(first, min(first + 128, rows))
        loaded = _new(walk, (part.stop - first, columns), src.dtype)
        _emit(walk, "dma_copy", dst=loaded, src=src.index((part,)))
        transposed = _transpose(walk, loaded)
        _emit(walk, "tensor_copy", dst=made.index((slice(None), part)), src=transposed)
    return made


def _gather_flattened(
    walk: Walk, data: Any, indices: Any, axis: Any = 0, dtype: Any = None
) -> Tile:
    made = _new(walk, _tile(indices, "indices").shape, _tile(data, "data").dtype)
    _emit(walk, "nc_n_gather", dst=made, data=data, indices=indices)
    return made if dtype in (None, made.dtype) else unary(walk, "copy", made, dtype)


def _logical_not(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    return binary(walk, "equal", _tile(x), 0.0, dtype)


def _invert(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    bits = 8 * ITEMSIZE[_tile(x).dtype]
    return binary(walk, "bitwise_xor", x, 2**bits - 1 if x.dtype[0] == "u" else -1, dtype)


def _cos(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    return unary(walk, "sin", within_pi(walk, _tile(x), math.pi / 2), dtype or x.dtype)


def _tan(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    sine = unary(walk, "sin", within_pi(walk, _tile(x)))
    return binary(walk, "divide", sine, _cos(walk, x, FLOAT), dtype or x.dtype)


def _floor(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    return binary(walk, "subtract", _tile(x), binary(walk, "mod", x, 1.0, FLOAT), dtype or x.dtype)


def _ceil(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    below = _floor(walk, binary(walk, "multiply", _tile(x), -1.0, FLOAT))
    return binary(walk, "multiply", below, -1.0, dtype or x.dtype)


def _fmod(walk: Walk, x: Any, y: Any, dtype: Any = None) -> Tile:
    """Return a remainder with the sign of x."""
    by = unary(walk, "abs", y) if isinstance(y, Tile) else abs(y)
    rest = binary(walk, "mod", unary(walk, "abs", _tile(x), FLOAT), by, FLOAT)
    return binary(walk, "multiply", rest, unary(walk, "sign", x, FLOAT), dtype or x.dtype)


def _trunc(walk: Walk, x: Any, dtype: Any = None) -> Tile:
    return binary(walk, "subtract", _tile(x), _fmod(walk, x, 1.0, FLOAT), dtype or x.dtype)


#: The functions by name.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _reduction("add"),
    "max": _reduction("maximum"),
    "min": _reduction("minimum"),
    "prod": _reduction("multiply"),
    "mean": _mean,
    "var": _var,
    "all": _all,
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "where": _where,
    "expand_dims": _expand_dims,
    "broadcast_to": _broadcast_to,
    "transpose": _transpose,
    "matmul": _matmul,
    "load_transpose2d": _load_transpose2d,
    "gather_flattened": _gather_flattened,
    "logical_not": _logical_not,
    "invert": _invert,
    "cos": _cos,
    "tan": _tan,
    "floor": _floor,
    "ceil": _ceil,
    "trunc": _trunc,
    "fmod": _fmod,
}
COMPOSED = {name: Builtin(f"nl.{name}", run) for name, run in _FUNCTIONS.items()}
