"""Functions in vectors: errors in units in the last place, special values, and no calls left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from fuse_epilogue.kernels.cpu import vector_math
from fuse_epilogue.kernels.cpu.for_llvm import for_llvm
from fuse_epilogue.kernels.cpu.loops import index, loop
from fuse_epilogue.schedules import host

LANES, BLOCK = 8, 8192
INF, NAN = math.inf, math.nan


def one(value: float) -> Any:
    return tirx.const(value, "float32")


def erf_gelu(x: Any) -> Any:
    return x * (one(0.5) + tirx.erf(x * one(math.sqrt(0.5))) * one(0.5))


def tanh_gelu(x: Any) -> Any:
    inner = one(math.sqrt(2 / math.pi)) * x * (one(1) + one(0.044715) * x * x)
    return one(0.5) * x * (one(1) + tirx.tanh(inner))


def softplus(x: Any) -> Any:
    return tirx.Select(one(20) < x, x, tirx.log(one(1) + tirx.exp(x)))


RULES: dict[str, Callable[[Any], Any]] = {
    "exp2": tirx.exp2,
    "exp up to zero": vector_math.exp_up_to_zero,
    "tanh": tirx.tanh,
    "erf": tirx.erf,
    "log": tirx.log,
    "log1p": tirx.log1p,
    "sin": tirx.sin,
    "cos": tirx.cos,
    "nearbyint": tirx.nearbyint,
    "sqrt": tirx.sqrt,
    "rsqrt": tirx.rsqrt,
    "erf_gelu": erf_gelu,
    "tanh_gelu": tanh_gelu,
    "softplus": softplus,
    **{f"pow {y}": lambda x, y=y: tirx.pow(x, one(y)) for y in (-2, -1, -0.5, 0.5, 1, 2, 3, 4)},
}


def vectorized(rule: Callable[[Any], Any]) -> Any:
    x = tirx.decl_buffer((index(BLOCK),), "float32", "x")
    y = tirx.decl_buffer((index(BLOCK),), "float32", "y")

    def lanes(v: Any) -> Any:
        def store(lane: Any) -> Any:
            at = v * index(LANES) + lane
            return tirx.BufferStore(y, rule(x[at]), [at])

        return loop("lane", 0, LANES, store, tirx.ForKind.VECTORIZED)

    return for_llvm(tirx.PrimFunc([x, y], loop("v", 0, BLOCK // LANES, lanes)))


@pytest.fixture(scope="module")
def compiled() -> Any:
    names = {name: f"f{place}" for place, name in enumerate(RULES)}
    mod = tvm.IRModule(
        {
            names[name]: vectorized(rule).with_attr("global_symbol", names[name])
            for name, rule in RULES.items()
        }
    )
    with tvm.transform.PassContext(opt_level=2):
        built = tvm.compile(mod, host(1))
    return built, names


@pytest.fixture(scope="module")
def functions(compiled: Any) -> Callable[[str, Any], np.ndarray]:
    built, names = compiled

    def run(name: str, values: Any) -> np.ndarray:
        x = np.asarray(values, "float32")
        found = np.zeros(0, "float32")
        for begin in range(0, len(x), BLOCK):
            part = np.zeros(BLOCK, "float32")
            part[: len(x) - begin] = x[begin : begin + BLOCK]
            result = tvm.runtime.tensor(np.zeros_like(part))
            built[names[name]](tvm.runtime.tensor(part), result)
            found = np.append(found, result.numpy())
        return found[: len(x)]

    return run


def sample(low: float, high: float) -> np.ndarray:
    """Points of an interval: evenly spaced, and evenly spaced in their bits, of both signs."""
    even = np.linspace(low, high, 400_000)
    bits = np.arange(0, 0x7F800000, 2503, dtype="int32").view("float32")
    scattered = np.concatenate([bits, -bits])
    inside = scattered[(scattered >= low) & (scattered <= high)]
    x = np.concatenate([even.astype("float32"), inside])
    return x[(x >= low) & (x <= high)]


def units(value: np.ndarray) -> np.ndarray:
    """The distance of neighbours in float32 at the exact value; denormal ones included."""
    largest = np.nextafter(np.finfo("float32").max, np.float32(0))
    return np.spacing(np.minimum(np.abs(value), largest).astype("float32")).astype("float64")


def exact_erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=["float64"])(x)


LARGEST = float(np.finfo("float32").max)
TINIEST = float(np.finfo("float32").smallest_subnormal)

# Name, exact function, interval, and the bound in units in the last place.
RELATIVE = [
    ("exp2", np.exp2, (-150, 127.999), 2),
    ("exp up to zero", np.exp, (-20, 0), 3),
    ("exp up to zero", np.exp, (-87.3, -20), 5),
    ("tanh", np.tanh, (-20, 20), 8),
    ("erf", exact_erf, (-6, 6), 8),
    ("log", np.log, (TINIEST, LARGEST), 2),
    ("log1p", np.log1p, (-0.99999994, LARGEST), 4),
    *((f.__name__, f, (-x, x), 2) for f in (np.sin, np.cos) for x in (100, LARGEST)),
    ("sqrt", np.sqrt, (0, LARGEST), 1),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (1e-38, LARGEST), 2),
    ("pow 2", np.square, (1e-18, 1e19), 1),
    ("pow 3", lambda x: x**3, (1e-12, 6e12), 2),
    ("pow 4", lambda x: x**4, (1e-9, 4e9), 2),
    ("pow 0.5", np.sqrt, (0, LARGEST), 1),
    ("pow -0.5", lambda x: x**-0.5, (1e-38, LARGEST), 2),
    ("pow -1", lambda x: 1 / x, (1e-38, 8e37), 1),
    ("pow -2", lambda x: x**-2.0, (1e-19, 9e18), 2),
]


@pytest.mark.parametrize(
    ("name", "exact", "interval", "bound"),
    RELATIVE,
    ids=[f"{row[0]} in {row[2]}" for row in RELATIVE],
)
def test_errors_in_units_in_the_last_place(
    functions: Any, name: str, exact: Any, interval: tuple[float, float], bound: float
) -> None:
    x = sample(*interval)
    x = x[::7] if exact is exact_erf else x
    with np.errstate(divide="ignore"):
        expected = exact(x.astype("float64"))
    off = np.abs(functions(name, x).astype("float64") - expected) / units(expected)
    assert off.max() <= bound, (off.max(), x[off.argmax()])


# Bits of the numbers whose distance from a multiple of pi / 2 is smallest, and some of other sizes.
NEAR_QUARTERS = (
    *(0x6F79BE45, 0x50A3E87F, 0x5123E87F, 0x6A1976F1, 0x53B146A6, 0x65898498, 0x77584625),
    *(0x4C2332E9, 0x6C55DA58, 0x642E0733, 0x7B9675C0, 0x40490FDB, 0x3FC90FDB),
)


@pytest.mark.parametrize(("name", "exact"), [("sin", math.sin), ("cos", math.cos)])
def test_errors_next_to_quarters_of_a_turn(functions: Any, name: str, exact: Any) -> None:
    x = np.array(NEAR_QUARTERS, "int32").view("float32")
    expected = np.array([exact(value) for value in x])
    off = np.abs(functions(name, x).astype("float64") - expected) / units(expected)
    assert off.max() <= 2, (off.max(), x[off.argmax()])


# Relative errors of these are unbounded where they cancel: GELU at the left, softplus at the left.
ABSOLUTE = [
    ("erf_gelu", lambda x: x * (0.5 + 0.5 * exact_erf(x * math.sqrt(0.5))), (-8, 8), 1.5e-6),
    (
        "tanh_gelu",
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        (-8, 8),
        1.5e-6,
    ),
    ("softplus", lambda x: np.logaddexp(0, x), (-30, 30), 2e-6),
    # Below -87.3 it goes to zero early.
    ("exp up to zero", np.exp, (-200, -87.3), 1.2e-38),
]


@pytest.mark.parametrize(
    ("name", "exact", "interval", "bound"),
    ABSOLUTE,
    ids=[f"{row[0]} in {row[2]}" for row in ABSOLUTE],
)
def test_absolute_errors(
    functions: Any, name: str, exact: Any, interval: tuple[float, float], bound: float
) -> None:
    x = np.linspace(*interval, 100_000).astype("float32")
    off = np.abs(functions(name, x).astype("float64") - exact(x.astype("float64")))
    assert off.max() <= bound, (off.max(), x[off.argmax()])


SPECIAL = {
    "exp2": ([NAN, INF, -INF, 0.0, -0.0, 3e38, -3e38], [NAN, INF, 0, 1, 1, INF, 0]),
    "exp up to zero": ([NAN, -INF, 0.0, -0.0, -3e38], [NAN, 0, 1, 1, 0]),
    "tanh": (
        [NAN, INF, -INF, 0.0, -0.0, 3e38, TINIEST, -TINIEST],
        [NAN, 1, -1, 0, -0.0, 1, TINIEST, -TINIEST],
    ),
    "erf": ([NAN, INF, -INF, 0.0, -0.0, 3e38, -3e38], [NAN, 1, -1, 0, -0.0, 1, -1]),
    "log": ([NAN, INF, -INF, 0.0, -0.0, -1, 1, -TINIEST], [NAN, INF, NAN, -INF, -INF, NAN, 0, NAN]),
    "log1p": ([NAN, INF, -INF, 0.0, -0.0, -1, -2], [NAN, INF, NAN, 0, -0.0, -INF, NAN]),
    "sin": (
        [NAN, INF, -INF, 0.0, -0.0, TINIEST, -TINIEST],
        [NAN, NAN, NAN, 0, -0.0, TINIEST, -TINIEST],
    ),
    "cos": ([NAN, INF, -INF, 0.0, -0.0, TINIEST], [NAN, NAN, NAN, 1, 1, 1]),
    "nearbyint": (
        [NAN, INF, -INF, -0.0, 0.5, 1.5, -2.5, 0.49999997, 3e38, 8388609],
        [NAN, INF, -INF, -0.0, 0, 2, -2, 0, 3e38, 8388609],
    ),
    "sqrt": ([NAN, INF, -INF, 0.0, -0.0, -1], [NAN, INF, NAN, 0, -0.0, NAN]),
    "rsqrt": ([NAN, INF, -INF, 0.0, -0.0, -1], [NAN, 0, NAN, INF, -INF, NAN]),
    "erf_gelu": ([NAN, INF, -INF, 0.0, -0.0], [NAN, INF, NAN, 0, -0.0]),
    "tanh_gelu": ([NAN, INF, -INF, 0.0, -0.0], [NAN, INF, NAN, 0, -0.0]),
    "softplus": ([NAN, INF, -INF, -200], [NAN, INF, 0, 0]),
    "pow 0.5": ([NAN, INF, -INF, 0.0, -0.0, -1], [NAN, INF, INF, 0, 0, NAN]),
    "pow -0.5": ([NAN, INF, -INF, 0.0, -0.0, -1], [NAN, 0, 0, INF, INF, NAN]),
    "pow -1": ([NAN, INF, -INF, 0.0, -0.0], [NAN, 0, -0.0, INF, -INF]),
    "pow -2": ([NAN, INF, -INF, 0.0, -0.0], [NAN, 0, 0, INF, INF]),
    "pow 3": ([NAN, INF, -INF, 0.0, -0.0], [NAN, INF, -INF, 0, -0.0]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(functions: Any, name: str) -> None:
    x, expected = SPECIAL[name]
    actual = functions(name, x)
    np.testing.assert_array_equal(actual, np.array(expected, "float32"))
    sign = np.signbit(actual) == np.signbit(np.array(expected, "float32"))
    assert (sign | np.isnan(actual)).all()


def test_no_lane_calls_the_c_library(compiled: Any) -> None:
    assembly = compiled[0].mod.inspect_source("asm")
    for called in ("expf", "exp2f", "tanhf", "erff", "logf", "log1pf", "powf", "sinf", "cosf"):
        assert called not in assembly
    # Nor is one rounded alone.
    for single in ("roundss", "roundsd", "rndscaless", "rndscalesd"):
        assert single not in assembly


def test_a_power_of_another_exponent_is_left_alone() -> None:
    x, y = tirx.Var("x", "float32"), tirx.Var("y", "float32")
    for exponent in (y, one(2.5)):
        power = tirx.pow(x, exponent)
        assert tvm_ffi.structural_equal(vector_math.with_vector_functions(power), power)
