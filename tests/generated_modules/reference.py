"""Computes a module with NumPy, with a bound on what rounding may do, in whatever order.

Sums, products with factors and their differences may run in another order under
``numerics="reassociate"``. Take a result of ``n`` roundings of terms whose magnitudes sum up to
``magnitude``: it is off by at most ``n u / (1 - n u) * magnitude`` in every order, where ``u``
is the rounding unit of the type. Functions that are not linear are applied to finished values:
what they are given may be off, and each passes it on by no more than its Lipschitz constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .spec import EXACT_LIMIT, Module, Node, is_float

#: Relative rounding of a type, twice as much for float64: the reference rounds as well.
UNIT = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-52}
#: Half of the smallest number of a type.
TINY = {"float16": 2.0**-25, "float32": 2.0**-150, "float64": 2.0**-1075}

#: How far the functions of a library may be off, in rounding units, of results up to 1: TVM's
#: rational approximation of tanh and ONNX Runtime's of erf are off by 8 at most.
LIBRARY_UNITS = 16


@dataclass(frozen=True)
class Bounded:
    """A value, and how far a computed one may be off.

    - `value`: in float64, or int64.
    - `magnitude`: sum of the magnitudes of what is summed up in it.
    - `passed_on`: how far it may be off by what was off before.
    - `roundings`: of each term, since the last function that is not linear.
    """

    value: np.ndarray
    magnitude: np.ndarray
    passed_on: np.ndarray
    roundings: float

    def error(self, dtype: str) -> np.ndarray:
        """Return how far an element may be off."""
        if not is_float(dtype):
            return np.zeros_like(self.magnitude)
        share = (self.roundings + 1) * UNIT[dtype]
        share = share / (1 - share)
        return self.passed_on * (1 + share) + share * self.magnitude


@dataclass(frozen=True)
class Expected:
    """What an output must be.

    - `error`: zero where the result is exact.
    """

    value: np.ndarray
    error: np.ndarray


def expected(module: Module, arrays: Sequence[np.ndarray]) -> list[Expected]:
    """Return what the outputs of a module are on whole numbers."""
    values: list[Bounded] = [_given(array) for array in arrays]
    exact = [True] * len(arrays)
    dtypes = [each.value.dtype for each in module.parameters]
    for node in module.nodes:
        args = [values[number] for number in node.args]
        known = [dtypes[number] for number in node.args]
        result = compute(node, args, known)
        whole = node.value.exact and all(exact[number] for number in node.args)
        limit = EXACT_LIMIT[node.value.dtype]
        whole = whole and bool((result.magnitude <= limit).all())
        if node.value.exact and whole:
            zero = np.zeros_like(result.magnitude)
            result = Bounded(result.value, result.magnitude, zero, result.roundings)
        values.append(result)
        exact.append(whole)
        dtypes.append(node.value.dtype)
    results = []
    for number in module.outputs:
        value, dtype = values[number], dtypes[number]
        error = np.zeros_like(value.magnitude) if exact[number] else value.error(dtype)
        results.append(Expected(value.value, error))
    return results


def _given(array: np.ndarray) -> Bounded:
    value = array.astype("float64" if array.dtype.kind == "f" else "int64")
    magnitude = np.abs(value).astype("float64")
    return Bounded(value, magnitude, np.zeros_like(magnitude), 0.0)


def compute(node: Node, args: list[Bounded], dtypes: list[str]) -> Bounded:
    """Return the result of an operator.

    - `dtypes`: of the arguments.
    """
    name = node.op
    if name in _MOVES:
        return _moved(node, args)
    if name in ("matmul", "conv", "sum", "mean", "avg_pool", "prod"):
        # What was rounded in another type than this one rounds in is off by it already.
        finished = [
            arg if dtype == node.value.dtype else _settled(arg.value, arg.error(dtype))
            for arg, dtype in zip(args, dtypes, strict=True)
        ]
        return _linear_reduction(node, finished)
    if name.endswith("_literal"):
        literal = _constant(node.attrs["literal"], node.value.dtype)
        pair = [literal, args[0]] if node.attrs["left"] else [args[0], literal]
        return _binary(name.removesuffix("_literal"), pair, node.value.dtype, node.value.dtype)
    if name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        return _binary(name, args, node.value.dtype, dtypes[0])
    if name.startswith("guarded_"):
        return _guarded(node, args)
    return _finished(node, args, dtypes)


def _constant(literal: float, dtype: str) -> Bounded:
    value = np.asarray(literal, dtype)
    return _given(value)


# ---- Linear --------------------------------------------------------------------------------------


def _binary(name: str, args: list[Bounded], dtype: str, dtype_in: str) -> Bounded:
    a, b = args
    n = max(a.roundings, b.roundings) + 1
    if name in ("add", "subtract"):
        value = a.value + b.value if name == "add" else a.value - b.value
        return Bounded(value, a.magnitude + b.magnitude, a.passed_on + b.passed_on, n)
    if name == "multiply":
        return _product(a, b, a.value * b.value, dtype)
    if name == "divide":  # by whole numbers that are not zero
        inverse = 1 / b.magnitude
        passed = a.passed_on * inverse + _tiny(dtype) * (n + 1)
        return Bounded(a.value / b.value, a.magnitude * inverse, passed, n)
    value = np.maximum(a.value, b.value) if name == "maximum" else np.minimum(a.value, b.value)
    return _settled(value, np.maximum(a.error(dtype_in), b.error(dtype_in)))


def _product(a: Bounded, b: Bounded, value: np.ndarray, dtype: str) -> Bounded:
    n = a.roundings + b.roundings + 1
    crossed = a.passed_on * b.magnitude + b.passed_on * a.magnitude + a.passed_on * b.passed_on
    return Bounded(value, a.magnitude * b.magnitude, crossed + _tiny(dtype) * (n + 1), n)


def _tiny(dtype: str) -> float:
    return TINY.get(dtype, 0.0)


def _linear_reduction(node: Node, args: list[Bounded]) -> Bounded:
    x, attrs, dtype = args[0], node.attrs, node.value.dtype
    if node.op in ("sum", "mean", "prod"):
        axes = tuple(attrs["axes"])
        count = math.prod(x.value.shape[axis] for axis in axes)
        keep = {"axis": axes, "keepdims": attrs["keepdims"]}
        if node.op == "prod":
            value, magnitude = np.prod(x.value, **keep), np.prod(x.magnitude, **keep)
            above = np.prod(x.magnitude + x.passed_on, **keep)
            passed = above - magnitude + count * _tiny(dtype)
            return Bounded(value, magnitude, passed, count * (x.roundings + 1))
        share = 1.0 if node.op == "sum" else 1 / count
        value = np.sum(x.value, **keep)
        return Bounded(
            value if node.op == "sum" else value / count,
            np.sum(x.magnitude, **keep) * share,
            np.sum(x.passed_on, **keep) * share + count * _tiny(dtype),
            x.roundings + count + 2,
        )
    if node.op == "avg_pool":
        windows = [_windows(part, attrs, 0) for part in (x.value, x.magnitude, x.passed_on)]
        ones = _windows(np.ones(x.value.shape), attrs, 0).sum(0)
        count = math.prod(attrs["kernel"])
        divisor = count if attrs["include"] else ones
        value, magnitude, passed = (window.sum(0) / divisor for window in windows)
        return Bounded(value, magnitude, passed + count * _tiny(dtype), x.roundings + count + 2)
    y = args[1]
    function = _matmul if node.op == "matmul" else _conv
    terms = x.value.shape[-1] if node.op == "matmul" else math.prod(y.value.shape[1:])
    magnitude = function(x.magnitude, y.magnitude, attrs)
    above = function(x.magnitude + x.passed_on, y.magnitude + y.passed_on, attrs)
    return Bounded(
        function(x.value, y.value, attrs),
        magnitude,
        above - magnitude + 2 * terms * _tiny(dtype) + above * 2.0**-45,
        x.roundings + y.roundings + terms + 2,
    )


def _matmul(x: np.ndarray, y: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    return np.asarray(x @ (np.swapaxes(y, -1, -2) if attrs["transposed"] else y))


def _windows(
    x: np.ndarray, attrs: dict[str, Any], fill: float, dilation: Sequence[int] | None = None
) -> np.ndarray:
    """Return what each place of the kernel reads, along a first axis."""
    kernel, strides, padding = attrs["kernel"], attrs["strides"], attrs["padding"]
    dilation = dilation or [1] * len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=fill)
    places = []
    for place in np.ndindex(*kernel):
        index: list[slice] = [slice(None), slice(None)]
        for axis, (at, k) in enumerate(zip(place, kernel, strict=True)):
            count = (padded.shape[axis + 2] - dilation[axis] * (k - 1) - 1) // strides[axis] + 1
            start = at * dilation[axis]
            stop = start + (count - 1) * strides[axis] + 1
            index.append(slice(start, stop, strides[axis]))
        places.append(padded[tuple(index)])
    return np.stack(places)


def _conv(x: np.ndarray, weight: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    groups, kernel = attrs["groups"], list(weight.shape[2:])
    windows = _windows(x, {**attrs, "kernel": kernel}, 0, attrs["dilation"])
    places = windows.shape[0]
    outs, inner = weight.shape[0] // groups, weight.shape[1]
    split = windows.reshape(places, x.shape[0], groups, inner, *windows.shape[3:])
    filters = weight.reshape(groups, outs, inner, places)
    result = np.einsum("pngi...,goip->ngo...", split, filters)
    return result.reshape(x.shape[0], groups * outs, *windows.shape[3:])


# ---- On finished values --------------------------------------------------------------------------


def _settled(value: np.ndarray, error: np.ndarray) -> Bounded:
    """Return a value that starts a new chain of roundings."""
    error = np.broadcast_to(error, value.shape)
    return Bounded(value, np.abs(value) + error, error, 0.0)


def _finished(node: Node, args: list[Bounded], dtypes: list[str]) -> Bounded:
    name, attrs, dtype = node.op, node.attrs, node.value.dtype
    x = args[0]
    error = x.error(dtypes[0])
    if name in ("max", "min"):
        keep = {"axis": tuple(attrs["axes"]), "keepdims": attrs["keepdims"]}
        return _settled(getattr(np, name)(x.value, **keep), np.max(error, **keep))
    if name == "max_pool":
        lowest = -np.inf if x.value.dtype.kind == "f" else np.iinfo("int64").min
        value = _windows(x.value, attrs, lowest).max(0)
        return _settled(value, _windows(error, attrs, 0).max(0))
    if name == "where":
        return _selected(args[0].value != 0, args[1], args[2])
    if name in ("greater", "less_equal"):
        function = np.greater if name == "greater" else np.less_equal
        value = function(x.value, args[1].value).astype("int64")
        return _settled(value, np.zeros(value.shape))
    if name == "cast":
        value = x.value.astype("float64" if is_float(dtype) else "int64")
        rounded = UNIT[dtype] * (np.abs(value) + error) + TINY[dtype] if is_float(dtype) else 0.0
        return _settled(value, error + rounded)
    if name == "right_shift":
        return _settled(x.value >> attrs["bits"], error)
    if name in ("relu", "clip", "abs", "negative"):
        value = {
            "relu": lambda v: np.maximum(v, 0),
            "clip": lambda v: np.clip(v, attrs.get("low"), attrs.get("high")),
            "abs": np.abs,
            "negative": np.negative,
        }[name](x.value)
        # A sign is part of a sum as any other factor.
        return (
            Bounded(value, x.magnitude, x.passed_on, x.roundings + 1)
            if (name == "negative")
            else _settled(value, error)
        )
    return _activation(name, x.value, error, dtype)


def _activation(name: str, x: np.ndarray, error: np.ndarray, dtype: str) -> Bounded:
    library = LIBRARY_UNITS * UNIT[dtype]
    tiny = 4 * TINY[dtype]
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
    if name == "sigmoid":
        return _settled(sigmoid, error / 4 + library * sigmoid + library + tiny)
    if name == "tanh":
        return _settled(np.tanh(x), error + library + tiny)
    # x * f(x): f is off by the library's error, and its slope is at most 1.13 with that of x.
    if name == "silu":
        value = x * sigmoid
    else:
        value = 0.5 * x * (1 + np.vectorize(math.erf, otypes=["float64"])(x / math.sqrt(2)))
    return _settled(value, 1.2 * error + library * (np.abs(x) + error) + tiny)


# ---- Guards --------------------------------------------------------------------------------------


def _guarded(node: Node, args: list[Bounded]) -> Bounded:
    attrs, dtype = node.attrs, node.value.dtype
    x = args[0]
    if node.op == "guarded_where":
        divisor = args[1].value
        quotient = x.value // np.where(divisor != 0, divisor, 1)
        value = np.where(divisor != 0, quotient, args[2].value)
        return _settled(value, np.zeros(value.shape))
    extent = x.value.shape[attrs["axis"]]
    if node.op == "guarded_divide":
        divisor = args[1].value
        defined = divisor != 0
        safe = np.where(defined, divisor, 1)
        line = np.sign(safe) * (1000 // np.abs(safe))
    elif node.op == "guarded_gather":
        index, table = args[1].value, args[2].value
        defined = (index >= 0) & (index < len(table))
        line = table[np.where(defined, index, 0)]
    else:
        defined = np.arange(extent) < attrs["length"]
        line = np.resize(args[1].value, extent)
    shape = [1] * x.value.ndim
    shape[attrs["axis"]] = extent
    defined, line = defined.reshape(shape), line.reshape(shape)
    other = _given(line)
    if attrs["combine"] in ("max", "min"):
        function = np.maximum if attrs["combine"] == "max" else np.minimum
        inside = _settled(function(x.value, line), x.error(dtype))
    else:
        pair = [_given(line), x] if attrs["combine"] == "rsubtract" else [x, _given(line)]
        name = "add" if attrs["combine"] == "add" else "subtract"
        inside = _binary(name, pair, dtype, dtype)
    zero = _given(np.zeros_like(x.value))
    return _selected(defined, inside, zero if attrs["otherwise"] == "zero" else x)


def _selected(condition: np.ndarray, a: Bounded, b: Bounded) -> Bounded:
    """Return one of two values, neither of which is finished: what follows may move into both."""
    return Bounded(
        np.where(condition, a.value, b.value),
        np.where(condition, a.magnitude, b.magnitude),
        np.where(condition, a.passed_on, b.passed_on),
        max(a.roundings, b.roundings),
    )


# ---- Moves ---------------------------------------------------------------------------------------

_MOVES = ("take", "reshape", "permute", "concat", "split", "slice", "pad")


def _moved(node: Node, args: list[Bounded]) -> Bounded:
    def part(name: str) -> np.ndarray:
        if node.op == "take":
            return np.take(getattr(args[0], name), args[1].value, node.attrs["axis"])
        return _move(node, [getattr(arg, name) for arg in args])

    most = max(arg.roundings for arg in args)
    return Bounded(part("value"), part("magnitude"), part("passed_on"), most)


def _move(node: Node, args: list[np.ndarray]) -> np.ndarray:
    x, attrs = args[0], node.attrs
    axis = attrs.get("axis", 0)
    if node.op == "reshape":
        return x.reshape(attrs["to"])
    if node.op == "permute":
        return x.transpose(attrs["order"])
    if node.op == "concat":
        return np.concatenate(args, axis)
    if node.op == "split":
        return np.split(x, attrs["parts"], axis)[attrs["part"]]
    if node.op == "slice":
        index = [slice(None)] * x.ndim
        index[axis] = slice(attrs["begin"], attrs["end"], attrs["step"])
        return x[tuple(index)]
    widths = [(0, 0)] * x.ndim
    widths[axis] = attrs["before"], attrs["after"]
    return np.pad(x, widths)
