"""What says that a depthwise convolution is right: numpy, on windows of a padded array.

Everything is computed in float64 or int64 and turned into an interval of results: the exact one,
plus and minus what rounding in the accumulator may do. Rounding to the type of the result keeps the
order of numbers, so that a right result lies between the rounded ends, and is the correctly rounded
one where the two are the same.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a type of numpy
import numpy as np
import tvm
import tvm_ffi

# Bytes on both sides of a result that nobody may write, and what is in them.
MARGIN, UNTOUCHED = 4096, 0x5A
# What generated code relies on.
ALIGNMENT = 64

Arrays = dict[str, np.ndarray]
Options = dict[str, Any]

FLOAT32 = float(np.finfo("float32").eps)
# exp(-x) overflows in float32 from x = -88.8 on, and SiLU becomes 0 where it is -88.8 * exp(-88.8).
SILU_UNDERFLOW = 89 * np.exp(-88.7)
# Of exp, the addition, the division and the product, in units of the last place.
SILU_ROUNDINGS = 8
#: Of the error function, of numbers up to 1.
GELU_ROUNDINGS = 8


def zeros(padding: Any, w: int, f: int, stride: int, dilation: int) -> tuple[int, int]:
    """Zeros on the left and right, counted one by one for "same"."""
    if padding == "valid":
        return 0, 0
    if padding == "causal":
        return dilation * (f - 1), 0
    if padding == "same":
        total = 0
        while len(range(0, w + total - dilation * (f - 1), stride)) < -(-w // stride):
            total += 1
        return total // 2, total - total // 2
    return tuple(padding)


def operands(
    options: Options, kind: str, rng: np.random.Generator, n: int, c: int, w: int, f: int
) -> Arrays:
    """Inputs for a convolution, x as [N, C, W].

    On ``exact`` data every sum is exact in the accumulator, while the 16-bit types still round at
    the end. ``normal`` and ``nasty`` are as elsewhere; integers are always from the whole range.
    """
    dtype = options["dtype"]
    shapes = {"x": (n, c, w), "weight": (c, f), "bias": (c,)}
    if dtype == "int8":
        made = {
            name: rng.choice([-128, -127, -1, 0, 1, 127, *rng.integers(-128, 128, 9)], size=shape)
            for name, shape in shapes.items()
        }
        made["bias"] = made["bias"] * rng.choice([1, 1 << 8, 1 << 22], size=c)
        return {k: v.astype("int32" if k == "bias" else "int8") for k, v in made.items()}
    if kind == "exact":
        made = {name: rng.integers(-48, 49, shape) / 8 for name, shape in shapes.items()}
    else:
        made = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    if kind == "nasty":
        special = [0.0, -0.0, np.inf, -np.inf, np.nan]
        for name, value in list(made.items()):
            drawn = rng.choice(special, value.shape)
            made[name] = np.where(rng.random(value.shape) < 0.1, drawn, value)
    return {k: v.astype(dtype) for k, v in made.items()}


def interval(options: Options, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest right result, as [N, C, W'] in the type of the result."""
    dtype, stride, dilation = options["dtype"], options["stride"], options["dilation"]
    wide = np.dtype("int64" if dtype == "int8" else "float64")
    x, weight, bias = (inputs[name].astype(wide) for name in ("x", "weight", "bias"))
    f = weight.shape[1]
    padding = zeros(options["padding"], x.shape[2], f, stride, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), padding])
    windows = np.lib.stride_tricks.sliding_window_view(padded, dilation * (f - 1) + 1, axis=2)
    terms = windows[:, :, ::stride, ::dilation] * weight[:, None, :]
    if options["bias"]:
        added = np.broadcast_to(bias[:, None, None], (*terms.shape[:3], 1))
        terms = np.concatenate([terms, added], axis=3)
    total = terms.sum(axis=3)
    if dtype == "int8":
        result = _requantised(_bent(options["activation"], total), options["shift"])
        return result, result

    exact = options.get("kind") == "exact"
    off = 0.0 if exact else (f + 1) * FLOAT32 * np.abs(terms).sum(axis=3)
    return bent_interval(total, off, options["activation"], dtype)


def bent_interval(
    total: np.ndarray, off: np.ndarray | float, activation: str | None, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of an activation of what is `off` a total in float32 at most, in a floating type."""
    off = _finite(np.asarray(off))
    ends = [total - off, total + off]
    bent = [_bent(activation, end) for end in [total, *ends]]
    low, high = np.minimum.reduce(bent), np.maximum.reduce(bent)
    if activation == "silu":
        largest = _finite(np.maximum(np.abs(low), np.abs(high)))
        # Between its ends SiLU may dip, by not more than its slope allows, which is at most 1.1.
        more = SILU_ROUNDINGS * FLOAT32 * largest + SILU_UNDERFLOW + 1.1 * 2 * off
        low, high = low - more, high + more
    if activation == "gelu":
        # The error function is off by some roundings of 1, and negative arguments cancel it.
        more = GELU_ROUNDINGS * FLOAT32 * _finite(np.abs(total)) + 1.2 * 2 * off
        low, high = low - more, high + more
    # By way of float32, as the accumulator is; one rounding where the number is a float32.
    return low.astype("float32").astype(dtype), high.astype("float32").astype(dtype)


def _finite(bound: np.ndarray) -> np.ndarray:
    """A bound for a finite result; an infinity and a NaN are exact."""
    return np.where(np.isfinite(bound), bound, 0)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in float64."""
    return np.vectorize(math.erf, otypes=["float64"])(x)


def _bent(activation: str | None, x: np.ndarray) -> np.ndarray:
    if activation == "relu":
        return np.where(x > 0, x, 0)  # of a NaN as well: TVM compiles max(a, b) as a > b ? a : b
    if activation == "silu":
        return x / (1 + np.exp(-x))
    if activation == "gelu":
        return x * (1 + erf(x / np.sqrt(2))) / 2
    return x


def _requantised(x: np.ndarray, shift: int) -> np.ndarray:
    """Divide by a power of two, round halves up, saturate."""
    return np.clip(np.floor(x / 2.0**shift + (0.5 if shift else 0)), -128, 127).astype("int8")


def in_layout(array: np.ndarray, layout: str) -> np.ndarray:
    """An array [N, C, W], or one in that layout as [N, C, W]."""
    return np.ascontiguousarray(array.transpose(0, 2, 1) if layout == "NWC" else array)


def call(built: Any, options: Options, inputs: Arrays, columns: int) -> np.ndarray:
    """Run a compiled workload with parameters x, weight, bias and y; returns y as [N, C, W']."""
    n, c, _ = inputs["x"].shape
    layout = options["layout"]
    x = in_layout(inputs["x"], layout)
    y = in_layout(_garbage((n, c, columns), options["dtype"]), layout)
    arrays = [x, inputs["weight"], *[inputs["bias"]] * options["bias"], y]
    # Copied by TVM: generated code relies on its alignment, which numpy does not promise.
    arguments = [tvm.runtime.tensor(array) for array in arrays[:-1]]
    # Not so y, which is in the middle of more memory: from there by its bytes, as numpy hands over
    # no bfloat16.
    around = np.full(y.nbytes + 2 * MARGIN + ALIGNMENT, UNTOUCHED, "uint8")
    first = MARGIN + -around.ctypes.data % ALIGNMENT
    inside = np.s_[first : first + y.nbytes]
    result = tvm_ffi.from_dlpack(around[inside])._create_view(y.shape, options["dtype"], 0)
    result.copyfrom(y)
    built(*arguments, result)
    written = np.delete(around, inside) != UNTOUCHED
    assert not written.any(), f"{written.sum()} bytes outside of y were written"
    return in_layout(result.numpy(), layout)


def _garbage(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """What no result is, so that an element left unwritten is noticed; at random for int8."""
    if dtype == "int8":
        return np.random.default_rng(5).integers(-128, 128, shape).astype("int8")
    return np.full(shape, -1e4, dtype)


def assert_between(actual: np.ndarray, low: np.ndarray, high: np.ndarray, what: str) -> None:
    """Every element lies in its interval; NaN where an end is NaN."""
    assert actual.shape == low.shape, f"{what}: shape {actual.shape}, not {low.shape}"
    assert actual.dtype == low.dtype, f"{what}: type {actual.dtype}, not {low.dtype}"
    if actual.dtype != np.int8:
        actual, low, high = (value.astype("float64") for value in (actual, low, high))
    wrong = ~((actual >= low) & (actual <= high) | (np.isnan(actual) & np.isnan(low)))
    if wrong.any():
        first = tuple(map(int, np.argwhere(wrong)[0]))
        raise AssertionError(
            f"{what}: {wrong.sum()} of {wrong.size} elements are wrong; {list(first)} is "
            f"{actual[first]}, not from {low[first]} to {high[first]}"
        )


def covering(
    choices: Mapping[str, Sequence[Any]], allowed: Callable[[Options], bool], seed: int = 1
) -> list[Options]:
    """Combinations of choices in which every two values that are possible together meet.

    - `choices`: names and their values.
    - `allowed`: whether a combination is possible.
    """
    rng = random.Random(seed)
    pairs = [
        ((a, i), (b, j))
        for a, b in itertools.combinations(choices, 2)
        for i in range(len(choices[a]))
        for j in range(len(choices[b]))
    ]
    rng.shuffle(pairs)
    missing = dict.fromkeys(pairs)
    found: list[Options] = []
    for pair in pairs:
        if pair not in missing:
            continue
        best: dict[str, int] = {}
        covered: list[Any] = []
        tried = 0
        for _ in range(100):
            if tried == 10:
                break
            drawn = {name: rng.randrange(len(values)) for name, values in choices.items()}
            drawn.update(pair)
            if not allowed({name: choices[name][i] for name, i in drawn.items()}):
                continue
            tried += 1
            new = [p for p in itertools.combinations(drawn.items(), 2) if p in missing]
            if len(new) > len(covered):
                best, covered = drawn, new
        for p in covered:
            del missing[p]
        if best:
            found.append({name: choices[name][i] for name, i in best.items()})
    return found
