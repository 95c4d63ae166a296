"""exp, sigmoid and SiLU in vectors: how exact, special values, other types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from fuse_epilogue.kernels.cpu.for_llvm import for_llvm
from fuse_epilogue.kernels.cpu.vector_math import with_vector_functions
from oracles import compile_together

FORMULAS = {
    "exp": "T.exp(x[vi])",
    "sigmoid": "T.sigmoid(x[vi])",
    "silu": "x[vi] * T.sigmoid(x[vi])",
}


@pytest.fixture(scope="module")
def functions() -> Any:
    made = {}
    for name, formula in FORMULAS.items():
        for dtype in ("float32", "float16", "bfloat16") if name != "exp" else ("float32",):
            value = formula if dtype == "float32" else f"T.Cast('{dtype}', {formula})"
            lines = f"""
@T.prim_func(s_tir=True)
def f(xx: T.handle, yy: T.handle):
    n = T.int64()
    x = T.match_buffer(xx, (n,))
    y = T.match_buffer(yy, (n,), "{dtype}")
    for i in range(n):
        with T.sblock("b"):
            vi = T.axis.spatial(n, i)
            y[vi] = {value}
"""
            written = tvm.script.from_source(lines, {"T": T})
            func = for_llvm(written)
            assert not any(call in func.script() for call in ("T.exp(", "T.sigmoid("))
            made[f"{name}_{dtype}"] = func
            if dtype == "float32":
                made[f"{name} as written_{dtype}"] = written  # TVM's own code for it
    built = compile_together(made, opt_level=2)

    def run(name: str, x: np.ndarray, dtype: str = "float32") -> np.ndarray:
        result = tvm.runtime.tensor(np.zeros(x.shape, dtype))
        built[f"{name}_{dtype}"](tvm.runtime.tensor(x.astype("float32")), result)
        return np.asarray(result.numpy())

    return run


def points() -> np.ndarray:
    """Everything from where exp is 0 to where it is infinite, and around every n * ln 2 / 2."""
    near = np.arange(-305, 260) * np.log(2) / 2
    steps = [np.nextafter(near.astype("float32"), np.float32(end)) for end in (-np.inf, np.inf)]
    tiny = 10.0 ** np.arange(-45, 0)
    everything = [np.linspace(-110, 92, 1_000_000), near, *steps, tiny, -tiny]
    return np.concatenate(everything).astype("float32")


def units(value: np.ndarray) -> np.ndarray:
    """The distance of neighbours in float32 at the exact value; denormal ones included."""
    largest = np.nextafter(np.finfo("float32").max, np.float32(0))
    return np.spacing(np.minimum(np.abs(value), largest).astype("float32")).astype("float64")


def test_exp_is_within_two_units(functions: Any) -> None:
    x = points()
    exact = np.exp(x.astype("float64"))
    limit = float(np.finfo("float32").max)
    finite = exact <= limit
    actual = functions("exp", x).astype("float64")
    assert (np.abs(actual - exact)[finite] <= 2 * units(exact)[finite]).all()
    # Beyond the largest number by more than the error, there is only infinity.
    assert np.isinf(actual[exact > limit + 2 * units(np.array([limit]))[0]]).all()


# exp(-x) is a float down to -88.72283; below, it is infinite.
LEAST = -88.7228


def test_sigmoid_is_within_six_units(functions: Any) -> None:
    """The two of exp, and a rounding each of the sum and the quotient, doubled by a carry."""
    x = points()
    x = x[x >= LEAST]
    exact = 1 / (1 + np.exp(-x.astype("float64")))
    actual = functions("sigmoid", x).astype("float64")
    assert (np.abs(actual - exact) <= 6 * units(exact)).all()


def test_silu_is_within_six_units(functions: Any) -> None:
    """As sigmoid, also where exp(-x) is above 2**127: that is twice a power that is a float."""
    x = np.concatenate([points(), np.linspace(LEAST, -88, 5000).astype("float32")])
    x = x[(x >= LEAST) & (x < 80)]
    exact = x.astype("float64") / (1 + np.exp(-x.astype("float64")))
    off = np.abs(functions("silu", x).astype("float64") - exact) / units(exact)
    assert off.max() <= 6


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_where_the_exponential_is_infinite_the_result_is_zero(functions: Any, name: str) -> None:
    """As in TVM's own code: 0 and -0.0, although the exact results are floats down to -104."""
    beyond = np.array([-88.723, -104, -1000, -3e38], "float32")
    x = np.concatenate([np.linspace(-120, -88.723, 5000).astype("float32"), beyond])
    x = x[x < -88.7229]
    actual = functions(name, x)
    assert (actual == 0).all() and np.signbit(actual).all() == (name == "silu")
    np.testing.assert_array_equal(
        actual.view("int32"), functions(f"{name} as written", x).view("int32")
    )


# ---- Rounded to 16 bits --------------------------------------------------------------------------

# Below, exp(-x) is above 2**127.5 and the result is zero.
LAST = -88.37


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_rounded_results_are_within_051_units(functions: Any, name: str, dtype: str) -> None:
    info = ml_dtypes.finfo(dtype)
    x = points()
    x = np.concatenate([x, np.linspace(LAST, -85, 20000).astype("float32")])
    x = x[(x > LAST) & (np.abs(x) < (float(info.max) if name == "silu" else 1e9))]
    wide = x.astype("float64")
    exact = (wide if name == "silu" else 1) / (1 + np.exp(-wide))
    _, exponents = np.frexp(exact)
    unit = np.ldexp(float(info.eps), np.maximum(exponents - 1, info.minexp))
    actual = functions(name, x, dtype).astype("float64")
    assert (np.abs(actual - exact) / unit).max() <= 0.51


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounded_results_beyond(functions: Any, dtype: str) -> None:
    """Zero, but for SiLU with its sign, where the exact result is less than 1e-36."""
    x = np.array([LAST - 0.01, -88.72, -89.0, -1000.0, -3e38], "float32")
    for name in ("sigmoid", "silu"):
        actual = functions(name, x, dtype).astype("float64")
        assert (actual == 0).all() and np.signbit(actual).all() == (name == "silu")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounded_special_values(functions: Any, dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], "float32")
    sigmoid, silu = (functions(name, x, dtype).astype("float32") for name in ("sigmoid", "silu"))
    np.testing.assert_array_equal(sigmoid, np.array([np.nan, 1, 0, 0.5, 0.5], "float32"))
    np.testing.assert_array_equal(silu, np.array([np.nan, np.inf, np.nan, 0, -0.0], "float32"))
    assert list(np.signbit(silu[3:])) == [False, True]


def test_only_what_is_rounded_at_once_is_cheaper() -> None:
    """A cancellation behind it would show what was left out."""
    x = tvm.tirx.decl_buffer((4,), "float32", "x")
    sigmoid = tvm.tirx.sigmoid(x[0])
    cheap = with_vector_functions(sigmoid.astype("float16"))
    difference = with_vector_functions((sigmoid - tvm.tirx.const(0.5, "float32")).astype("float16"))
    full = with_vector_functions(sigmoid)
    assert len(str(cheap)) < len(str(full)) < len(str(difference))


# ---- Special values, other types -----------------------------------------------------------------


def test_special_values(functions: Any) -> None:
    tiny = np.finfo("float32").smallest_subnormal
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 1e38, -1e38], "float32")
    exp = [np.nan, np.inf, 0, 1, 1, 1, 1, np.inf, 0]
    sigmoid = [np.nan, 1, 0, 0.5, 0.5, 0.5, 0.5, 1, 0]
    np.testing.assert_array_equal(functions("exp", x), np.array(exp, "float32"))
    np.testing.assert_array_equal(functions("sigmoid", x), np.array(sigmoid, "float32"))
    silu = [np.nan, np.inf, np.nan, 0, -0.0, tiny / 2, -tiny / 2, 1e38, -0.0]
    np.testing.assert_array_equal(functions("silu", x), np.array(silu, "float32"))
    assert not np.signbit(functions("exp", x)[1:]).any()


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_are_left_alone(dtype: str) -> None:
    x = tvm.tirx.decl_buffer((4,), dtype, "x")
    store = tvm.tirx.BufferStore(x, tvm.tirx.exp(x[0]), [0])
    func = tvm.tirx.PrimFunc([x], store)
    tvm.ir.assert_structural_equal(for_llvm(func), func)


# ---- Of 16 bits ----------------------------------------------------------------------------------


def test_operands_of_bfloat16_are_widened_before_they_are_variables() -> None:
    """TVM would cast the integer that it stores a bfloat16 as."""

    @T.prim_func(s_tir=True)
    def f(x: T.Buffer((32,), "bfloat16"), y: T.Buffer((32,), "float32")) -> None:
        for i in range(32):
            with T.sblock("b"):
                vi = T.axis.spatial(32, i)
                y[vi] = T.exp(T.Cast("float32", x[vi]))

    values = np.linspace(-3, 3, 32).astype(ml_dtypes.bfloat16)
    result = tvm.runtime.tensor(np.zeros(32, "float32"))
    compile_together({"f": for_llvm(f)}, opt_level=2)["f"](tvm.runtime.tensor(values), result)
    np.testing.assert_allclose(result.numpy(), np.exp(values.astype("float32")), rtol=1e-6)
