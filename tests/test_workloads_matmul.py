"""The product of matrices computes what numpy says, fused or not, whatever its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from depthwise import Options, covering
from fuse_epilogue.workloads import matmul
from fused_block import blocks
from oracles import Arrays, compile_together, parameters
from test_workloads_errors import NAME, SIZES, SYMBOL, message
from tiers import tiered
from workload_runs import assert_right, built_with_fused, call, drawn, widened

CHOICES = {
    "m": [1, 2, 7],
    "n": [1, 3, 16],
    "k": [1, 2, 33],
    "dtype": ["float32", "float16", "bfloat16", "int8"],
    "bias": [True, False],
    "activation": [None, "relu", "silu", "gelu"],
    "bias_axis": ["n", "m"],
    "transpose_a": [False, True],
    "transpose_b": [False, True],
}
BASE: Options = {"m": 4, "n": 5, "k": 6}


def possible(options: Options) -> bool:
    is_int = options["dtype"] == "int8"
    unbiased = not options["bias"] and options["bias_axis"] == "m"
    return not unbiased and not (is_int and options["activation"] in ("silu", "gelu"))


CASES = covering(CHOICES, possible)


def name_of(options: Options) -> str:
    return "-".join(map(str, options.values()))


def check(built: Any, options: Options, kind: str, **sizes: int) -> None:
    """Run on data of a kind; `sizes` are those of the symbolic ones."""
    arrays = drawn(matmul(**options), kind, sizes, name_of(options))
    total, magnitude = product(options, arrays)
    depth = arrays["a"].shape[0 if options.get("transpose_a") else 1]
    # The product, the additions of the terms and of the bias.
    roundings = depth + 1
    y = call(built, arrays)
    what = f"{name_of(options)} {kind} {sizes}"
    assert_right(y, total, magnitude, roundings, options.get("activation"), kind, what)


def product(options: Options, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """The sum with its bias, and that of the magnitudes of its terms."""
    found = []
    for of in (np.asarray, np.abs):
        wide = {name: of(array) for name, array in widened(arrays).items()}
        a = wide["a"].T if options.get("transpose_a") else wide["a"]
        b = wide["b"].T if options.get("transpose_b") else wide["b"]
        total = np.einsum("mk,kn->mn", a, b)
        if "bias" in wide:
            rows = options.get("bias_axis") == "m"
            total = total + (wide["bias"][:, None] if rows else wide["bias"][None, :])
        found.append(total)
    return found[0], found[1]


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    return built_with_fused({f"case{i}": matmul(**case) for i, case in enumerate(CASES)}, "matmul")


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_computes_the_product(built: dict[str, Any], index: int) -> None:
    """On exact data bit for bit; on normal data, within what any order of the additions gives."""
    for name in (f"case{index}", f"case{index} fused"):
        for kind in ("exact", "normal"):
            check(built[name], CASES[index], kind)


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_is_fused_as_a_whole(index: int) -> None:
    """The bias moves into T.init, one tail is left of the rest, and nothing else remains."""
    options = CASES[index]
    sch = Schedule(matmul(**options))
    rounded = options["dtype"] in ("float16", "bfloat16")
    tail = "cast" if rounded else options["activation"]
    if not options["bias"] and tail is None:
        return  # nothing follows the product
    report = sch.fuse_reduction_epilogue("matmul")
    assert report.stopped is None
    assert list(blocks(sch.mod["main"])) == ["matmul", *[tail] * (tail is not None)]
    if options["bias"]:
        assert report.steps[0].epilogue == "bias"
        axis = options["bias_axis"]
        bias = f"bias[{'0' if options[axis] == 1 else f'v_{axis}'}]"
        assert report.steps[0].absorbed == (f'T.Cast("float32", {bias})' if rounded else bias)


RUNS = [{"m": 1, "n": 1, "k": 1}, {"m": 3, "n": 8, "k": 2}, {"m": 5, "n": 2, "k": 40}]


def test_symbolic_sizes() -> None:
    """One function serves all M, N and K: each alone, all of them."""
    given = {}
    for more in (
        {"activation": "silu"},
        {"dtype": "int8", "bias_axis": "m", "transpose_a": True},
        {"dtype": "bfloat16", "transpose_b": True, "activation": "relu"},
    ):
        for names in (["m"], ["n"], ["k"], ["m", "n", "k"]):
            options = {**BASE, **more, **{name: name for name in names}}
            given[name_of(options)] = (options, names)
    funcs = {f"case{i}": matmul(**options) for i, (options, _) in enumerate(given.values())}
    built = built_with_fused(funcs, "matmul")
    for i, (options, names) in enumerate(given.values()):
        for name in (f"case{i}", f"case{i} fused"):
            for sizes in RUNS:
                own = {size: sizes[size] for size in names}
                check(built[name], options, "exact", **own)
                check(built[name], options, "normal", **own)


def test_one_name_is_one_size() -> None:
    func = matmul("size", 3, "size")
    first, second = func.params[0].ty.shape
    assert first.same_as(second)
    options = {"m": "size", "n": 3, "k": "size"}
    check(compile_together({"main": func})["main"], options, "exact", size=7)


def test_runs_as_a_plain_compile_makes_it() -> None:
    """TVM's default options, checks of the arguments included."""
    for sizes in ({}, {"m": "m"}):
        options = {**BASE, "activation": "silu", **sizes}
        built = tvm.compile(matmul(**options), target="llvm")["main"]
        check(built, options, "normal", **{name: 9 for name in sizes})


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["matmul", "bias"]),
        ({"bias": False}, ["matmul"]),
        ({"bias": False, "dtype": "float16"}, ["matmul", "cast"]),
        ({"dtype": "int8", "activation": "relu"}, ["matmul", "bias", "relu"]),
        ({"activation": "silu"}, ["matmul", "bias", "sigmoid", "silu"]),
        (
            {"activation": "silu", "dtype": "bfloat16"},
            ["matmul", "bias", "sigmoid", "silu", "cast"],
        ),
    ],
)
def test_blocks(more: Options, names: list[str]) -> None:
    func = matmul(**{**BASE, **more})
    assert list(blocks(func)) == names
    assert func.attrs["global_symbol"] == "main"
    assert func.attrs["tirx.noalias"]
    bias = ["bias"] * more.get("bias", True)
    assert [param.name for param in func.params] == ["a", "b", *bias, "y"]


def test_parameters() -> None:
    """The shapes and types that the documentation says."""
    for dtype, result in {
        "float32": "float32",
        "float16": "float16",
        "bfloat16": "bfloat16",
        "int8": "int32",
    }.items():
        found = parameters(matmul(**BASE, dtype=dtype), {})
        assert [p.dtype for p in found] == [dtype, dtype, result, result]
        assert [p.shape for p in found] == [(4, 6), (6, 5), (5,), (4, 5)]
    turned = matmul(**BASE, transpose_a=True, transpose_b=True, bias_axis="m")
    assert [p.shape for p in parameters(turned, {})] == [(6, 4), (5, 6), (4,), (4, 5)]


def test_is_what_its_text_says() -> None:
    """The printed function, parsed, is the same: nothing in it that TVMScript does not have."""
    for options in ({**BASE, "dtype": "bfloat16", "activation": "silu"}, {**BASE, "m": "m"}):
        func = matmul(**options)
        tvm.ir.assert_structural_equal(tvm.script.from_source(func.script()), func)


@pytest.mark.parametrize("sizes", [(2**16, 1, 2**15), (1, 2**16, 2**15), (2**16, 2**15, 1)])
def test_a_large_buffer_has_wide_indices(sizes: tuple[int, int, int]) -> None:
    """At the border, of a, of b and of y: 2**31 elements need 64 bits, fewer do not."""
    for less, dtype in ((0, "int64"), (1, "int32")):
        func = matmul(*[size - less * (size > 1) for size in sizes])
        assert {str(dim.ty.dtype) for p in func.params for dim in p.ty.shape} == {dtype}


BOOL = "one of False, True"
WRONG: list[tuple[str, Any, str]] = [
    *((size, value, SYMBOL) for size in ("m", "n", "k") for value in SIZES),
    *((size, name, NAME) for size in ("m", "n", "k") for name in ("", "2w", "a b", "for")),
    *(
        ("dtype", value, "one of 'float32', 'float16', 'bfloat16', 'int8'")
        for value in ("float64", "", None, np.float32)
    ),
    *(("activation", v, "one of None, 'relu', 'silu', 'gelu'") for v in ("tanh", "ReLU", False, 0)),
    *(("bias_axis", value, "one of 'n', 'm'") for value in ("k", "N", None, 0)),
    *((x, v, BOOL) for x in ("bias", "transpose_a", "transpose_b") for v in (1, 0, None, "n")),
]


@pytest.mark.parametrize(("argument", "value", "expected"), WRONG)
def test_impossible_arguments(argument: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=message(argument, value, expected)):
        matmul(**{**BASE, argument: value})


def test_arguments_that_do_not_go_together() -> None:
    expected = r"^activation must be one of None, 'relu' for dtype = 'int8': 'silu'$"
    with pytest.raises(ValueError, match=expected):
        matmul(**BASE, dtype="int8", activation="silu")
    expected = r"^bias_axis is for bias = True only; leave it out for bias = False: 'm'$"
    with pytest.raises(ValueError, match=expected):
        matmul(**BASE, bias=False, bias_axis="m")
