"""The depthwise convolution in TIR computes what numpy says, whatever its arguments."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.s_tir import Schedule

from depthwise import (
    Options,
    assert_between,
    call,
    covering,
    interval,
    operands,
    zeros,
)
from fuse_epilogue.workloads import depthwise_conv1d
from fused_block import blocks
from oracles import compile_together
from tiers import tiered

CHOICES = {
    "n": [1, 3],
    "c": [1, 5],
    "w": [1, 2, 7, 16, 33],
    "f": list(range(1, 17)),
    "padding": ["same", "valid", "causal", (2, 0), (0, 3), (5, 4)],
    "stride": [1, 2, 3],
    "dilation": [1, 2, 3],
    "dtype": ["float32", "float16", "bfloat16", "int8"],
    "bias": [True, False],
    "activation": [None, "relu", "silu"],
    "layout": ["NCW", "NWC"],
    "shift": [0, 1, 7, 31],
}
SIZES = ("n", "c", "w", "f")
FUNCTIONS_PER_MODULE = 25


def columns(options: Options) -> int:
    """How many columns the result has: how many windows fit."""
    sizes = [options[name] for name in ("padding", "w", "f", "stride", "dilation")]
    padded = options["w"] + sum(zeros(*sizes))
    reach = options["dilation"] * (options["f"] - 1)
    return len(range(0, padded - reach, options["stride"]))


def possible(options: Options) -> bool:
    is_int = options["dtype"] == "int8"
    if is_int and options["activation"] == "silu" or not is_int and options["shift"] != 7:
        return False
    return columns(options) > 0


CASES = covering(CHOICES, possible)


def name_of(options: Options) -> str:
    return "-".join(str(value).replace(" ", "") for value in options.values())


def workload(options: Options, **other: Any) -> Any:
    arguments = {**options, **other}
    sizes = [arguments.pop(size) for size in SIZES]
    return depthwise_conv1d(*sizes, **arguments)


@pytest.fixture(scope="module")
def built() -> Any:
    """Compiles a chunk of the cases, unfused and fused, when one of them is first asked for."""
    made: dict[int, Any] = {}

    def of(index: int, fused: bool) -> Any:
        chunk = index // FUNCTIONS_PER_MODULE
        if chunk not in made:
            first = chunk * FUNCTIONS_PER_MODULE
            functions = {}
            for i, options in enumerate(CASES[first : first + FUNCTIONS_PER_MODULE], first):
                functions[f"case{i}"] = workload(options)
                functions[f"fused{i}"] = fuse(options)[0].mod["main"]
            made[chunk] = compile_together(functions, opt_level=0)
        return made[chunk][f"{'fused' if fused else 'case'}{index}"]

    return of


def fuse(options: Options) -> tuple[Schedule, Any]:
    sch = Schedule(workload(options), debug_mask="all")
    return sch, sch.fuse_reduction_epilogue("conv")


def check(run: Any, options: Options, kind: str, **sizes: int) -> None:
    """Run on data of a kind; `sizes` stand for the symbolic ones."""
    fixed = {**options, **sizes, "kind": kind}
    what = f"{name_of(fixed)}"
    rng = np.random.default_rng(zlib.crc32(what.encode()))
    inputs = operands(fixed, kind, rng, *(fixed[size] for size in SIZES))
    with np.errstate(all="ignore"):
        low, high = interval(fixed, inputs)
    assert_between(call(run, fixed, inputs, low.shape[2]), low, high, what)


def test_every_two_values_meet() -> None:
    """The selection is what it says: every pair that is possible at all is in it."""
    met = {
        frozenset([(a, str(x)), (b, str(y))])
        for options in CASES
        for a, x in options.items()
        for b, y in options.items()
    }
    for dtype in CHOICES["dtype"]:
        for name, values in CHOICES.items():
            for value in values:
                rightly_missing = (dtype == "int8" and value == "silu") or (
                    dtype != "int8" and name == "shift" and value != 7
                )
                pair = frozenset([("dtype", dtype), (name, str(value))])
                assert name == "dtype" or (pair in met) != rightly_missing, pair
    assert len(CASES) < 200


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_computes_the_convolution(built: Any, index: int) -> None:
    """On exact data bit for bit; on normal data, within what any order of the additions gives."""
    options = CASES[index]
    for fused in (False, True):
        check(built(index, fused), options, "exact")
        if options["dtype"] != "int8":
            check(built(index, fused), options, "normal")


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_is_fused_as_a_whole(index: int) -> None:
    """The reduction absorbs the bias, one tail is left of the rest, and nothing else remains."""
    options = CASES[index]
    sch, report = fuse(options)
    assert report.stopped is None
    tail = {"float32": options["activation"], "int8": "requantise"}.get(options["dtype"], "cast")
    padded = zeros(*(options[k] for k in ("padding", "w", "f", "stride", "dilation"))) != (0, 0)
    left = ["pad"] * padded + ["conv"] + [tail] * (tail is not None)
    assert list(blocks(sch.mod["main"])) == left
    if options["bias"]:
        assert "absorbed" in str(report)


BASE: Options = {
    "n": 2,
    "c": 3,
    "w": 19,
    "f": 4,
    "padding": "same",
    "stride": 1,
    "dilation": 1,
    "dtype": "float32",
    "bias": True,
    "activation": None,
    "layout": "NCW",
    "shift": 7,
}
# W < F, W = 1 and N = 1 among them; one without a result would need a y without columns.
RUNS = [{"n": 2, "w": 19}, {"n": 1, "w": 1}, {"n": 1, "w": 3}, {"n": 3, "w": 32}]
SYMBOLIC: list[Options] = [
    {"padding": "causal", "activation": "silu"},
    {"padding": "same", "dtype": "float16", "activation": "relu", "layout": "NWC"},
    {"padding": (2, 5), "stride": 3, "dilation": 2, "dtype": "int8"},
    {"padding": "causal", "stride": 2, "dtype": "bfloat16", "layout": "NWC"},
    {"padding": "valid", "f": 1, "bias": False},
    {"padding": "valid", "f": 1, "stride": 2, "activation": "relu"},
]


def test_symbolic_sizes() -> None:
    """One function serves all N and W: N alone, W alone, both."""
    given = [{**BASE, **more} for more in SYMBOLIC]
    names = [{"n": "n", "w": "w"}, {"n": "n"}, {"w": "w"}]
    functions = {
        f"case{i}of{k}": workload(options, **name)
        for i, options in enumerate(given)
        for k, name in enumerate(names)
    }
    for func in functions.values():
        assert "int32" not in {str(loop.ty.dtype) for loop in _loop_variables(func)}
    built = compile_together(functions, opt_level=0)
    for i, options in enumerate(given):
        for k, name in enumerate(names):
            for sizes in RUNS:
                own = {size: value for size, value in sizes.items() if size in name}
                for kind in ("exact", "normal"):
                    check(built[f"case{i}of{k}"], options, kind, **own)


def test_one_name_is_one_size() -> None:
    func = depthwise_conv1d("size", 3, "size", 2)
    first, _, last = func.params[0].ty.shape
    assert first.same_as(last)
    options = {**BASE, "f": 2, "n": 7, "w": 7}
    check(compile_together({"main": func})["main"], options, "exact")


def test_same_padding_with_a_symbolic_width_is_that_of_stride_one() -> None:
    options = {**BASE, "stride": 3, "f": 6}
    built = compile_together({"main": workload(options, w="w")})["main"]
    for w in (1, 2, 19):
        check(built, {**options, "padding": (2, 3)}, "exact", w=w)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_special_values(dtype: str) -> None:
    """Infinities and NaN come out where they must; a zero of a sum is positive."""
    cases = [
        {**BASE, "w": 97, "dtype": dtype, "activation": activation, "padding": padding}
        for activation in CHOICES["activation"]
        for padding in ("causal", "valid", (3, 3))
    ]
    built = compile_together({f"case{i}": workload(case) for i, case in enumerate(cases)})
    for i, options in enumerate(cases):
        check(built[f"case{i}"], options, "nasty")

    options = {**BASE, "dtype": dtype, "activation": "relu", "padding": "valid"}
    zero = {"x": (2, 3, 19), "weight": (3, 4), "bias": (3,)}
    inputs = {name: np.full(shape, -0.0, dtype) for name, shape in zero.items()}
    result = call(compile_together({"main": workload(options)})["main"], options, inputs, 16)
    assert not np.signbit(result).any()


def test_runs_as_a_plain_compile_makes_it() -> None:
    """TVM's default options, checks of the arguments included."""
    options = {**BASE, "activation": "silu", "padding": "causal"}
    for sizes in ({}, {"n": "n", "w": "w"}):
        check(tvm.compile(workload(options, **sizes), target="llvm")["main"], options, "normal")


def _loop_variables(func: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(func, [(tvm.tirx.For, lambda loop: found.append(loop.loop_var))])
    return found


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["pad", "conv", "bias"]),
        ({"padding": "valid", "bias": False}, ["conv"]),
        ({"f": 1}, ["conv", "bias"]),
        ({"activation": "relu"}, ["pad", "conv", "bias", "relu"]),
        ({"activation": "silu", "bias": False}, ["pad", "conv", "sigmoid", "silu"]),
        (
            {"activation": "silu", "dtype": "float16"},
            ["pad", "conv", "bias", "sigmoid", "silu", "cast"],
        ),
        ({"activation": "relu", "dtype": "int8"}, ["pad", "conv", "bias", "relu", "requantise"]),
    ],
)
def test_blocks(more: Options, names: list[str]) -> None:
    func = workload({**BASE, **more})
    assert list(blocks(func)) == names
    assert func.attrs["global_symbol"] == "main"
    assert func.attrs["tirx.noalias"]
    bias = ["bias"] * {**BASE, **more}["bias"]
    assert [param.name for param in func.params] == ["x", "weight", *bias, "y"]
    assert {str(loop.ty.dtype) for loop in _loop_variables(func)} == {"int32"}


def test_is_what_its_text_says() -> None:
    """The printed function, parsed, is the same: nothing in it that TVMScript does not have."""
    for more in [*SYMBOLIC, {"activation": "silu", "dtype": "bfloat16"}]:
        func = workload({**BASE, **more}, w="w")
        parsed = tvm.script.from_source(func.script())
        tvm.ir.assert_structural_equal(parsed, func)


def test_a_large_buffer_has_wide_indices() -> None:
    """At the border: 2**31 elements of the padded x need 64 bits, one row less does not."""
    for n, dtype in ((2**11, "int64"), (2**11 - 1, "int32")):
        func = depthwise_conv1d(n, 2**10, 2**10 - 2, 3)
        assert {str(loop.ty.dtype) for loop in _loop_variables(func)} == {dtype}


def test_types_of_the_parameters() -> None:
    """What the documentation says of x, weight, bias and y."""
    for dtype in CHOICES["dtype"]:
        types = [str(p.ty.dtype) for p in workload({**BASE, "dtype": dtype}).params]
        assert types == [dtype, dtype, "int32" if dtype == "int8" else dtype, dtype]
