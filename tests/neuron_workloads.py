"""Random small workloads for kernels: the function, data for it, and what is right in float64."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from depthwise import zeros
from fuse_epilogue import workloads
from oracles import Arrays, parameters
from workload_runs import assert_right

Pair = tuple[np.ndarray, np.ndarray]
Options = dict[str, Any]

FLOATS = ("float32", "float32", "bfloat16", "float16")
ACTIVATIONS = (None, None, "relu", "silu")


@dataclass(frozen=True)
class Workload:
    """A function to schedule.

    - `label`: the call that makes it.
    - `func`: unscheduled; its last parameter is the result.
    - `total`: from the inputs as float64: what the activation is taken of, and the magnitude of its
      terms.
    - `roundings`: how many in float32 a term goes through at most.
    - `activation`: taken of the total.
    - `rounds`: whether every step is rounded to the type of the inputs: then only integers are
      judged.
    - `compares`: whether it takes a maximum of inputs, which NaN has not.
    """

    label: str
    func: PrimFunc
    total: Callable[[Arrays], Pair]
    roundings: int
    activation: str | None
    rounds: bool = False
    compares: bool = False

    def inputs(self, kind: str) -> Arrays:
        """Data: small integers ("exact"), normals, or infinities and NaN among them ("nasty")."""
        rng = np.random.default_rng(zlib.crc32(f"{self.label} {kind}".encode()))
        found: Arrays = {}
        for param in parameters(self.func, {})[:-1]:
            shape = param.shape or ()
            if kind == "exact":
                values = rng.integers(-4, 5, shape).astype("float64")
            else:
                values = rng.standard_normal(shape)
            if kind == "nasty":
                special = [np.inf, -np.inf, *[np.nan] * (not self.compares), 0.0]
                values = np.where(rng.random(shape) < 0.05, rng.choice(special, shape), values)
            found[param.name] = values.astype(param.dtype)
        return found

    def judge(self, y: np.ndarray, inputs: Arrays, kind: str, what: str) -> None:
        """Compare a result with float64.

        On integers it has to be the same number: every sum is exact, and what is computed of it is
        rounded once (SiLU by the bound of `depthwise.bent_interval`). Signs of zeros do not count:
        a sum need not begin with 0 + x. Elsewhere the bound is `roundings` units of the last place
        of the sum of the magnitudes. ReLU of NaN is NaN or 0, nobody says which.
        """
        result = parameters(self.func, {})[-1]
        assert y.dtype == result.dtype, f"{what}: type {y.dtype}, not {result.dtype}"
        assert y.shape == result.shape, f"{what}: shape {y.shape}, not {result.shape}"
        wide = {name: array.astype("float64") for name, array in inputs.items()}
        with np.errstate(all="ignore"):
            total, magnitude = self.total(wide)
            if self.activation == "relu":
                unknown = np.isnan(total)
                bent = y.astype("float64")[unknown]
                assert ((bent == 0) | np.isnan(bent)).all(), f"{what}: ReLU of NaN is {bent}"
                total, y = np.where(unknown, 0, total), np.where(unknown, y.dtype.type(0), y)
            assert_right(y, total, magnitude, self.roundings, self.activation, kind, what)


def depthwise(rng: random.Random) -> Workload:
    """Draw a depthwise convolution, one in four as Relax writes it."""
    relax = rng.random() < 0.25
    options: Options = {
        "padding": rng.choice(["same", "same", "valid", "causal", (0, 2), (3, 1)]),
        "stride": rng.choice([1, 1, 1, 1, 2, 3]),
        "dilation": rng.choice([1, 1, 1, 2]),
        "dtype": rng.choice(FLOATS),
        "bias": rng.random() < 0.7,
        "activation": rng.choice(ACTIVATIONS),
    }
    n, c = rng.randint(1, 3), rng.choice([1, 3, 7, 32, 96, 128, 130, 200, 256])
    f = rng.randint(1, 5)
    w = rng.randint(1 + options["dilation"] * (f - 1), 24)
    rounds = relax and options["dtype"] != "float32"
    if rounds and options["activation"] == "silu":
        options["activation"] = "relu"
    make = workloads.relax_depthwise_conv1d if relax else workloads.depthwise_conv1d
    stride, dilation, padding = options["stride"], options["dilation"], options["padding"]
    ends = zeros(padding, w, f, stride, dilation)

    def total(arrays: Arrays) -> Pair:
        x, weight, *rest = arrays.values()
        padded = np.pad(x, [(0, 0), (0, 0), ends])
        windows = np.lib.stride_tricks.sliding_window_view(padded, dilation * (f - 1) + 1, axis=2)
        terms = windows[:, :, ::stride, ::dilation] * weight.reshape(1, c, 1, f)
        return _with_bias(terms.sum(axis=3), np.abs(terms).sum(axis=3), rest, (1, c, 1))

    return Workload(
        f"{make.__name__}({n}, {c}, {w}, {f}, {_written(options)})",
        make(n, c, w, f, **options),
        total,
        f + 1,
        options["activation"],
        rounds,
    )


def matmul(rng: random.Random) -> Workload:
    """Draw a product of matrices."""
    options: Options = {
        "dtype": rng.choice(FLOATS),
        "bias": rng.random() < 0.8,
        "activation": rng.choice(ACTIVATIONS),
        "transpose_a": rng.random() < 0.5,
        "transpose_b": rng.random() < 0.5,
    }
    if options["bias"]:
        options["bias_axis"] = rng.choice("mn")
    m, n, k = (rng.choice([1, 5, 16, 33, 64, 130, 140]) for _ in range(3))

    def total(arrays: Arrays) -> Pair:
        a, b, *rest = arrays.values()
        a = a.T if options["transpose_a"] else a
        b = b.T if options["transpose_b"] else b
        # In full: an infinity times 0 has to become NaN, whatever a library makes of it.
        products = a[:, :, None] * b[None, :, :]
        shape = (m, 1) if options.get("bias_axis") == "m" else (1, n)
        return _with_bias(products.sum(axis=1), np.abs(products).sum(axis=1), rest, shape)

    label = f"matmul({m}, {n}, {k}, {_written(options)})"
    func = workloads.matmul(m, n, k, **options)
    return Workload(label, func, total, k + 2, options["activation"])


def row_reduce(rng: random.Random) -> Workload:
    """Draw a reduction of rows."""
    options: Options = {
        "op": rng.choice(["sum", "max"]),
        "dtype": rng.choice(FLOATS),
        "scale": rng.random() < 0.4,
        "bias": rng.random() < 0.5,
        "activation": rng.choice(ACTIVATIONS),
    }
    m, n = rng.choice([1, 6, 60, 128, 130, 200]), rng.choice([1, 2, 12, 33, 48])
    sums = options["op"] == "sum"

    def total(arrays: Arrays) -> Pair:
        x, *rest = arrays.values()
        value = x.sum(axis=1) if sums else x.max(axis=1)
        size = np.abs(x).sum(axis=1) if sums else np.abs(value)
        if options["scale"]:
            factor = rest.pop(0)
            value, size = value * factor, size * np.abs(factor)
        return _with_bias(value, size, rest, (m,))

    label = f"row_reduce({m}, {n}, {_written(options)})"
    func = workloads.row_reduce(m, n, **options)
    activation = options["activation"]
    return Workload(label, func, total, n + 2, activation, compares=not sums)


def elementwise(rng: random.Random) -> Workload:
    """Draw work without a reduction."""
    options: Options = {
        "dtype": rng.choice(FLOATS),
        "scale": rng.random() < 0.5,
        "bias": rng.random() < 0.7,
        "residual": rng.random() < 0.5,
        "activation": rng.choice(ACTIVATIONS),
    }
    if not any(options[name] for name in ("scale", "bias", "residual", "activation")):
        options["bias"] = True
    m, n = rng.choice([1, 6, 60, 128, 130, 200]), rng.choice([1, 2, 12, 33, 48])

    def total(arrays: Arrays) -> Pair:
        value = arrays["x"]
        if options["scale"]:
            value = value * arrays["scale"][:, None]
        size = np.abs(value)
        rest = [arrays["bias"][:, None]] if options["bias"] else []
        rest += [arrays["residual"]] if options["residual"] else []
        for each in rest:
            value, size = value + each, size + np.abs(each)
        return value, size

    label = f"elementwise({m}, {n}, {_written(options)})"
    func = workloads.elementwise(m, n, **options)
    return Workload(label, func, total, 3, options["activation"])


def _with_bias(
    total: np.ndarray, magnitude: np.ndarray, rest: list[np.ndarray], shape: tuple[int, ...]
) -> Pair:
    for bias in rest:
        total = total + bias.reshape(shape)
        magnitude = magnitude + np.abs(bias.reshape(shape))
    return total, magnitude


def _written(options: Options) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
