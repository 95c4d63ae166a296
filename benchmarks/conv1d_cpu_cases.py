"""What `conv1d_cpu.py` measures: shapes and types, their data, and what numpy says of the results.

Numbers are whole and small: every sum is exact in every type, in any order, and a result that is
not the exact one is wrong. Only two kinds of results have a choice: those of SiLU, as exponentials
are rounded, and the quotients of int8, where both neighbours of a half are right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Arrays = dict[str, np.ndarray]  # x [N, C, W], weight [C, F], bias [C]

WARM, COLD = "warm", "cold"
SHIFT = 7  # int8: results are divided by two to the power of that
LARGEST = 3  # of all numbers of the other types: 16 * 3 * 3 + 3 has fewer bits than a bfloat16

# Of the exponential, the addition, the division and the product, in units of the last place.
SILU_ROUNDINGS = 8
# Where exp(-x) overflows in float32, SiLU becomes 0 instead of up to 89 * exp(-88.7).
SILU_UNDERFLOW = 1e-36


@dataclass(frozen=True)
class Case:
    """A depthwise convolution with a bias and an activation, in NCW, as wide behind as before."""

    name: str
    n: int
    c: int
    w: int
    f: int
    dtype: str = "float32"
    causal: bool = False
    activation: str = "relu"
    states: tuple[str, ...] = (WARM,)

    @property
    def key(self) -> str:
        """Its name and type."""
        return f"{self.name}-{self.dtype}"

    @property
    def label(self) -> str:
        """Its shape and type."""
        return f"({self.n}, {self.c}, {self.w}, {self.f}) {self.dtype}"

    @property
    def zeros(self) -> tuple[int, int]:
        """How many there are on the left and on the right of a row."""
        total = self.f - 1
        left = total if self.causal else total // 2
        return left, total - left

    @property
    def nbytes(self) -> int:
        """What x takes, and y."""
        return self.n * self.c * self.w * np.dtype(self.dtype).itemsize

    @property
    def bias_dtype(self) -> str:
        """The bias has the type of the accumulator where that is an integer."""
        return "int32" if self.dtype == "int8" else self.dtype

    @property
    def options(self) -> dict[str, Any]:
        """What `workloads.depthwise_conv1d` takes, except for the sizes."""
        padding = "causal" if self.causal else "same"
        chosen = {"padding": padding, "dtype": self.dtype, "activation": self.activation}
        return chosen | ({"shift": SHIFT} if self.dtype == "int8" else {})


def of_type(dtype: str) -> tuple[Case, ...]:
    """The main shape in a type, and one more."""
    more = (
        Case("short", 16, 256, 128, 7, dtype)
        if dtype == "int8"
        else Case("mamba", 1, 5120, 4096, 4, dtype, causal=True, activation="silu")
    )
    return Case("main", 8, 512, 2048, 3, dtype), more


CASES = (
    Case("main", 8, 512, 2048, 3, states=(WARM, COLD)),
    Case("l2", 1, 64, 1024, 3),
    Case("thin", 1, 64, 2048, 3),
    Case("mamba", 1, 5120, 4096, 4, causal=True, activation="silu"),
    Case("short", 16, 256, 128, 7),
    Case("patches", 4, 768, 197, 3),
    Case("audio", 2, 96, 16000, 16),
    *of_type("float16"),
    *of_type("bfloat16"),
    *of_type("int8"),
)


def operands(case: Case) -> Arrays:
    """Draw whole numbers: small ones, or from the whole range of int8 and as large a bias."""
    draw = np.random.default_rng(0)
    low, high = (-128, 128) if case.dtype == "int8" else (-LARGEST, LARGEST + 1)
    most = 1000 if case.dtype == "int8" else LARGEST
    return {
        "x": draw.integers(low, high, (case.n, case.c, case.w)).astype(case.dtype),
        "weight": draw.integers(low, high, (case.c, case.f)).astype(case.dtype),
        "bias": draw.integers(-most, most + 1, case.c).astype(case.bias_dtype),
    }


def right_results(case: Case, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest right results, in float32, as [N, C, W]."""
    x, weight, bias = (arrays[name].astype("float32") for name in ("x", "weight", "bias"))
    padded = np.pad(x, [(0, 0), (0, 0), case.zeros])
    total = np.zeros_like(x) + bias[:, None]
    for j in range(case.f):  # exact: all sums are below 2**24
        total += padded[:, :, j : j + case.w] * weight[:, j, None]
    if case.activation == "silu":
        with np.errstate(over="ignore"):
            exact = total / (1 + np.exp(-total.astype("float64")))
        last_places = SILU_ROUNDINGS * float(np.finfo("float32").eps)
        if case.dtype != "float32":  # one rounding, by half a unit of the last place at most
            last_places += float(ml_dtypes.finfo(case.dtype).eps) / 2
        off = np.abs(exact) * last_places + SILU_UNDERFLOW
        if case.dtype == "float16":
            off += float(ml_dtypes.finfo("float16").smallest_subnormal)
        return (exact - off).astype("float32"), (exact + off).astype("float32")
    np.maximum(total, 0, out=total)
    if case.dtype == "int8":
        quotient = total / 2.0**SHIFT
        low, high = np.ceil(quotient - 0.5), np.floor(quotient + 0.5)
        return np.clip(low, -128, 127), np.clip(high, -128, 127)
    return total, total


def check(case: Case, name: str, y: np.ndarray, right: tuple[np.ndarray, np.ndarray]) -> None:
    """Make sure that a version has computed what numpy has."""
    low, high = right
    if y.shape != low.shape:
        raise AssertionError(f"{case.label}: '{name}' computes the shape {y.shape}")
    y = y.astype("float32")
    wrong = int(np.count_nonzero(~((low <= y) & (y <= high))))
    if wrong:
        raise AssertionError(f"{case.label}: '{name}' computes nonsense, {wrong} of {y.size} times")
