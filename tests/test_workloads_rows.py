"""Rows of a matrix, reduced or element by element, as numpy says, whatever the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from depthwise import Options, covering
from fuse_epilogue.workloads import elementwise, row_reduce
from fused_block import blocks
from oracles import Arrays, compile_together, parameters
from test_workloads_errors import NAME, SIZES, SYMBOL, message
from tiers import tiered
from workload_runs import assert_right, built_with_fused, call, drawn, widened

Make = Callable[..., Any]

SHARED = {
    "m": [1, 2, 7],
    "n": [1, 3, 33],
    "scale": [True, False],
    "bias": [True, False],
    "activation": [None, "relu", "silu", "gelu"],
}
REDUCED = {**SHARED, "op": ["sum", "max"], "dtype": ["float32", "float16", "bfloat16", "int8"]}
BENT = {**SHARED, "residual": [True, False], "dtype": ["float32", "float16", "bfloat16"]}
BASE: Options = {"m": 4, "n": 5}


def reducible(options: Options) -> bool:
    return options["dtype"] != "int8" or options["activation"] not in ("silu", "gelu")


def computes(options: Options) -> bool:
    return any(options[name] for name in ("scale", "bias", "residual", "activation"))


REDUCE_CASES = covering(REDUCED, reducible)
BENT_CASES = covering(BENT, computes)


def name_of(options: Options) -> str:
    return "-".join(map(str, options.values()))


def check(built: Any, make: Make, options: Options, kind: str, **sizes: int) -> None:
    """Run on data of a kind; `sizes` are those of the symbolic ones."""
    what = f"{make.__name__} {name_of(options)} {kind} {sizes}"
    arrays = drawn(make(**options), kind, sizes, what)
    y = call(built, arrays)
    total, magnitude = (summed(options, arrays, of) for of in (np.asarray, np.abs))
    # The additions of a sum, and at most one product and two additions behind it.
    roundings = 3 + (arrays["x"].shape[1] - 1) * (options.get("op") == "sum")
    assert_right(y, total, magnitude, roundings, options.get("activation"), kind, what)


def summed(options: Options, arrays: Arrays, of: Any) -> np.ndarray:
    """What the activation is taken of, in terms that `of` has changed."""
    wide = {name: of(array) for name, array in widened(arrays).items()}
    total = wide["x"]
    if "op" in options:
        total = {"sum": np.sum, "max": np.max}[options["op"]](total, axis=1)

    def along(name: str) -> np.ndarray:
        return wide[name] if total.ndim == 1 else wide[name][:, None]

    if "scale" in wide:
        total = total * along("scale")
    if "bias" in wide:
        total = total + along("bias")
    return total + wide["residual"] if "residual" in wide else total


@pytest.fixture(scope="module")
def reducing() -> dict[str, Any]:
    funcs = {f"case{i}": row_reduce(**case) for i, case in enumerate(REDUCE_CASES)}
    return built_with_fused(funcs, "reduce")


@pytest.fixture(scope="module")
def bending() -> dict[str, Any]:
    return compile_together(
        {f"case{i}": elementwise(**case) for i, case in enumerate(BENT_CASES)}, opt_level=0
    )


@pytest.mark.parametrize("index", tiered(REDUCE_CASES, name_of))
def test_reduces_rows(reducing: dict[str, Any], index: int) -> None:
    """On exact data bit for bit; on normal data, within what any order of the additions gives."""
    for name in (f"case{index}", f"case{index} fused"):
        for kind in ("exact", "normal"):
            check(reducing[name], row_reduce, REDUCE_CASES[index], kind)


@pytest.mark.parametrize("index", tiered(BENT_CASES, name_of))
def test_computes_element_by_element(bending: dict[str, Any], index: int) -> None:
    for kind in ("exact", "normal"):
        check(bending[f"case{index}"], elementwise, BENT_CASES[index], kind)


def test_symbolic_sizes() -> None:
    """One function serves all M and N: each alone, and both."""
    names = (["m"], ["n"], ["m", "n"])
    for make, given in (
        (row_reduce, {"op": "max", "scale": True, "activation": "relu", "dtype": "float16"}),
        (row_reduce, {"op": "sum", "bias": True, "dtype": "int8"}),
        (elementwise, {"scale": True, "residual": True, "activation": "silu"}),
    ):
        cases = [{**BASE, **given, **{name: name for name in some}} for some in names]
        built = compile_together({f"case{i}": make(**case) for i, case in enumerate(cases)})
        for i, some in enumerate(names):
            for sizes in ({"m": 1, "n": 1}, {"m": 9, "n": 2}, {"m": 2, "n": 40}):
                own = {name: sizes[name] for name in some}
                for kind in ("exact", "normal"):
                    check(built[f"case{i}"], make, cases[i], kind, **own)


@pytest.mark.parametrize("make", [row_reduce, elementwise])
def test_one_name_is_one_size(make: Make) -> None:
    options = {"m": "size", "n": "size", **({"op": "sum"} if make is row_reduce else {})}
    func = make(**options)
    first, second = func.params[0].ty.shape
    assert first.same_as(second)
    check(compile_together({"main": func})["main"], make, options, "exact", size=6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_maximum_of_infinities(dtype: str) -> None:
    """Nothing is less than the start: a row of negative infinities has one as its maximum."""
    built = compile_together({"main": row_reduce(3, 4, op="max", dtype=dtype)})["main"]
    x = np.full((3, 4), -np.inf, dtype)
    x[1, 2], x[2, 0] = -3, np.inf
    y = call(built, {"x": x, "y": np.zeros(3, dtype)})
    np.testing.assert_array_equal(y.astype("float32"), [-np.inf, -3, np.inf])


def test_the_maximum_of_the_least_bytes() -> None:
    built = compile_together({"main": row_reduce(2, 3, op="max", dtype="int8")})["main"]
    x = np.full((2, 3), -128, "int8")
    np.testing.assert_array_equal(call(built, {"x": x, "y": np.zeros(2, "int32")}), [-128, -128])


@pytest.mark.parametrize(
    ("options", "left", "sentence"),
    [
        ({"bias": True}, ["reduce"], "'reduce' absorbed bias[v_m] from 'bias' into T.init"),
        (
            {"bias": True, "activation": "relu"},
            ["reduce", "relu"],
            "'reduce' absorbed bias[v_m] from 'bias' into T.init",
        ),
        ({"scale": True}, ["reduce", "scale"], "'scale' computes x * scale[v_m] once"),
        (
            {"op": "max", "scale": True, "bias": True},
            ["reduce", "bias"],
            "'bias' computes x * scale[v_m] + bias[v_m] once",
        ),
        ({"dtype": "bfloat16"}, ["reduce", "cast"], "'cast' computes T.Cast(\"bfloat16\", x) once"),
    ],
)
def test_what_is_fused(options: Options, left: list[str], sentence: str) -> None:
    sch = Schedule(row_reduce(**BASE, **options))
    report = sch.fuse_reduction_epilogue("reduce")
    assert report.stopped is None
    assert sentence in str(report)
    assert list(blocks(sch.mod["main"])) == left


@pytest.mark.parametrize(
    ("make", "options", "names"),
    [
        (row_reduce, {}, ["reduce"]),
        (row_reduce, {"dtype": "int8", "bias": True}, ["reduce", "bias"]),
        (
            row_reduce,
            {"dtype": "float16", "scale": True, "bias": True, "activation": "silu"},
            ["reduce", "scale", "bias", "sigmoid", "silu", "cast"],
        ),
        (elementwise, {}, ["bias"]),
        (elementwise, {"bias": False, "activation": "relu", "dtype": "float16"}, ["relu", "cast"]),
        (
            elementwise,
            {"scale": True, "residual": True, "activation": "silu"},
            ["scale", "bias", "residual", "sigmoid", "silu"],
        ),
    ],
)
def test_blocks(make: Make, options: Options, names: list[str]) -> None:
    func = make(**BASE, **options)
    assert list(blocks(func)) == names
    assert func.attrs["global_symbol"] == "main"
    assert func.attrs["tirx.noalias"]
    given = [name for name in ("scale", "bias", "residual") if name in names]
    assert [param.name for param in func.params] == ["x", *given, "y"]
    tvm.ir.assert_structural_equal(tvm.script.from_source(func.script()), func)


def test_parameters() -> None:
    """The shapes and types that the documentation says."""
    for dtype, result in {"float32": "float32", "bfloat16": "bfloat16", "int8": "int32"}.items():
        found = parameters(row_reduce(**BASE, dtype=dtype, scale=True, bias=True), {})
        assert [p.dtype for p in found] == [dtype, result, result, result]
        assert [p.shape for p in found] == [(4, 5), (4,), (4,), (4,)]
    found = parameters(elementwise(**BASE, dtype="float16", scale=True, residual=True), {})
    assert {p.dtype for p in found} == {"float16"}
    assert [p.shape for p in found] == [(4, 5), (4,), (4,), (4, 5), (4, 5)]


@pytest.mark.parametrize("make", [row_reduce, elementwise])
def test_a_large_buffer_has_wide_indices(make: Make) -> None:
    """At the border: 2**31 elements of x need 64 bits, one row less does not."""
    for m, dtype in ((2**16, "int64"), (2**16 - 1, "int32")):
        func = make(m, 2**15)
        assert {str(dim.ty.dtype) for p in func.params for dim in p.ty.shape} == {dtype}


FLOATS = "'float32', 'float16', 'bfloat16'"
BOTH: list[tuple[str, Any, str]] = [
    *((size, value, SYMBOL) for size in ("m", "n") for value in SIZES),
    *((size, name, NAME) for size in ("m", "n") for name in ("", "2w", "a b", "for")),
    *((x, value, "one of False, True") for x in ("scale", "bias") for value in (1, 0, None, "m")),
    *(("activation", v, "one of None, 'relu', 'silu', 'gelu'") for v in ("tanh", "ReLU", False, 0)),
]
WRONG: list[tuple[Make, str, Any, str]] = [
    *((make, *case) for make in (row_reduce, elementwise) for case in BOTH),
    *((row_reduce, "op", value, "one of 'sum', 'max'") for value in ("min", "SUM", None)),
    *((row_reduce, "dtype", v, f"one of {FLOATS}, 'int8'") for v in ("float64", None, np.float32)),
    *((elementwise, "dtype", v, f"one of {FLOATS}") for v in ("int8", "float64", None)),
    *((elementwise, "residual", value, "one of False, True") for value in (1, None)),
]


@pytest.mark.parametrize(("make", "argument", "value", "expected"), WRONG)
def test_impossible_arguments(make: Make, argument: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=message(argument, value, expected)):
        make(**{**BASE, argument: value})


def test_arguments_that_do_not_go_together() -> None:
    expected = r"^activation must be one of None, 'relu' for dtype = 'int8': 'silu'$"
    with pytest.raises(ValueError, match=expected):
        row_reduce(**BASE, dtype="int8", activation="silu")
    expected = r"^scale, bias or residual must be True, or activation not None: there is nothing"
    with pytest.raises(ValueError, match=expected):
        elementwise(**BASE, bias=False)
