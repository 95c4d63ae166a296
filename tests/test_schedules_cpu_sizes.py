"""Schedules for LLVM at every size near a vector's, for what Relax makes, and streaming."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm

import test_workloads_relax as relax
from depthwise import Options, call, operands
from fuse_epilogue.kernels.cpu.depthwise import contiguous_conv, streaming
from fuse_epilogue.schedules import cpu
from fused_block import blocks
from oracles import compile_together
from test_schedules_cpu import CASES, LLVM, scheduled
from test_workloads import check, name_of, workload

BASE: Options = {
    "n": 2,
    "c": 3,
    "w": 9,
    "f": 3,
    "padding": "same",
    "stride": 1,
    "dilation": 1,
    "dtype": "float32",
    "bias": True,
    "activation": "relu",
    "layout": "NCW",
    "shift": 7,
}


def is_in_rows(func: Any) -> bool:
    return list(blocks(func)) == ["rows"]


@pytest.mark.parametrize("options", CASES, ids=map(name_of, CASES))
def test_goes_to_rows_where_it_can(options: Options) -> None:
    """Neighbours in memory, of known length; else the results are right and slow without a word."""
    assert is_in_rows(scheduled(workload(options))) == (
        options["layout"] == "NCW" and options["stride"] == 1 and options["w"] > 1
    )


# ---- Every width up to ten vectors: all remainders, W < F, W = 1 ---------------------------------

WIDTHS = range(1, 41)
FILTERS = [(1, "same"), (3, "same"), (8, "same"), (8, "causal"), (3, (0, 5))]


@pytest.mark.full
@pytest.mark.parametrize("f, padding", FILTERS, ids=lambda value: str(value))
def test_every_width(f: int, padding: Any) -> None:
    cases = {w: {**BASE, "w": w, "f": f, "padding": padding} for w in WIDTHS}
    functions = {f"w{w}": scheduled(workload(case), 4, 2) for w, case in cases.items()}
    assert all(is_in_rows(func) for name, func in functions.items() if name != "w1")
    built = compile_together(functions, opt_level=0)
    for w, case in cases.items():
        for kind in ("exact", "nasty"):
            check(built[f"w{w}"], case, kind)


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
@pytest.mark.parametrize("f, padding, stride", [(1, "same", 1), (3, "same", 1), (8, (7, 2), 3)])
def test_symbolic_sizes(f: int, padding: Any, stride: int, layout: str) -> None:
    """One function for all: W = 1, W < F, whole vectors, and rests."""
    options = {**BASE, "n": "n", "w": "w", "f": f, "padding": padding, "layout": layout}
    options["stride"] = stride
    built = compile_together({"f": scheduled(workload(options), 4, 2)}, opt_level=0)["f"]
    for w in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 67):
        for n in (1, 3):
            check(built, options, "exact" if w % 2 else "nasty", n=n, w=w)


@pytest.mark.parametrize("unroll", [3, 33, 64])
def test_more_columns_unrolled_than_in_a_tile(unroll: int) -> None:
    options = {**BASE, "w": 70, "layout": "NWC"}
    built = compile_together({"f": scheduled(workload(options), 4, unroll)}, opt_level=0)["f"]
    check(built, options, "exact")


def test_fewer_columns_than_in_a_tile() -> None:
    """A single column has the index 0 in every step of a tile: only one step has sums to store."""
    common = {**BASE, "layout": "NWC", "padding": "causal"}
    names = ("w", "f", "c", "activation")
    shapes = product((1, 2, 5), (1, 3), (1, 8), (None, "relu"))
    cases = [{**common, **dict(zip(names, shape, strict=True))} for shape in shapes]
    functions = {f"f{i}": scheduled(workload(case), 4, 2) for i, case in enumerate(cases)}
    built = compile_together(functions, opt_level=0)
    for i, case in enumerate(cases):
        check(built[f"f{i}"], case, "exact")


def test_symbolic_images_are_rows() -> None:
    options = {**BASE, "n": "n", "w": 21}
    func = scheduled(workload(options), 4, 2)
    assert is_in_rows(func)
    built = compile_together({"f": func}, opt_level=0)["f"]
    for n in (1, 2, 5):
        check(built, options, "nasty", n=n)


# ---- Which vectors are inside of a row -----------------------------------------------------------


def listed(columns: int, width: int, lanes: int, first: int, last: int) -> list[int]:
    """The whole vectors of which no chunk is partly outside of the row, one by one."""
    return [
        place
        for place, base in enumerate(range(0, columns - lanes + 1, lanes))
        if base + first * lanes >= 0 and base + (last + 1) * lanes <= width
    ]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_vectors_inside_are_those_of_a_list(lanes: int) -> None:
    sizes = range(lanes, 34, 3)
    for first, more, columns, width in product(range(-3, 3), (0, 1, 4), sizes, sizes):
        last = first + more
        start, stop = contiguous_conv.inside(columns, width, lanes, first, last)
        found = listed(columns, width, lanes, first, last)
        assert list(range(start, stop)) == found, (first, last, columns, width)
        assert found or (start, stop) == (0, 0)


def test_a_row_is_written_in_a_moment_however_long_it_is() -> None:
    """A list of its vectors would have 2 ** 36 entries."""
    assert contiguous_conv.inside(2**40, 2**40, 16, -1, 0) == (1, 2**36)
    func = scheduled(workload({**BASE, "w": 2**40}))
    assert is_in_rows(func)
    assert str(2**36 - 2) in func.script()


# ---- What Relax makes ----------------------------------------------------------------------------

PADDINGS = ["same", "valid", "causal", (2, 0), (0, 3), (5, 4)]
RELAXED: list[Options] = [
    *({"padding": padding, "activation": "silu"} for padding in PADDINGS),
    *({"padding": padding, "w": 2, "f": 3} for padding in ("same", "causal")),
    {"activation": "relu", "bias": False, "dilation": 3},
    {"stride": 2, "activation": "relu"},
    {"padding": "causal", "stride": 2, "dilation": 2},
    {"n": 1, "c": 1, "padding": "causal", "activation": "relu"},
    {"n": "n", "w": "w", "activation": "silu"},
    {"n": "n", "padding": "causal"},
    {"dtype": "float16", "activation": "relu"},
    {"dtype": "float16", "padding": "causal", "activation": "relu"},
    {"dtype": "bfloat16", "bias": False},
]


@pytest.fixture(scope="module")
def relaxed() -> Any:
    functions = {str(i): scheduled(relax.layer(case), 4, 2) for i, case in enumerate(RELAXED)}
    return compile_together(functions, opt_level=0)


@pytest.mark.parametrize("index", range(len(RELAXED)), ids=[str(case) for case in RELAXED])
def test_relax(relaxed: Any, index: int) -> None:
    case = RELAXED[index]
    # Rounded to integers by the check where Relax sums in 16 bits: those sums are exact.
    for kind in ("exact",) if "dtype" in case else ("exact", "normal", "nasty"):
        with np.errstate(all="ignore"):
            relax.check(relaxed[str(index)], case, kind)


def test_relax_padding_meets_infinite_weights() -> None:
    """Zero times infinity is NaN, also where the zero is a padding and the sum is in 16 bits."""
    for dtype in ("float16", "bfloat16"):
        for stride in (1, 2):
            case = {**relax.BASE, "dtype": dtype, "w": 9, "stride": stride}
            func = relax.layer(case)
            both = compile_together({"before": func, "after": scheduled(func, 4, 2)}, opt_level=0)
            inputs = {
                "x": np.ones((2, 5, 9), dtype),
                "weight": np.full((5, 1, 4), np.inf, dtype),
                "bias": np.zeros((1, 5, 1), dtype),
            }
            results = [
                call(run, {**case, "layout": "NCW"}, inputs, -(-9 // stride))
                for run in both.values()
            ]
            borders = np.isnan(results[1].astype("float32"))
            assert borders.any(), (dtype, stride)
            np.testing.assert_array_equal(borders, np.isnan(results[0].astype("float32")))


def computed(func: Any) -> set[int]:
    """The extents of the axes of the reduction."""
    (block,) = [block for block in blocks(func).values() if block.init is not None]
    return {int(axis.dom.extent) for axis in block.iter_vars}


@pytest.mark.parametrize("stride", [1, 2])
def test_causal_computes_no_unread_columns(stride: int) -> None:
    """Of the 37 and 19 columns that Relax computes, 31 and 16 are read."""
    func = relax.layer({"n": 2, "c": 5, "w": 31, "f": 7, "padding": "causal", "stride": stride})
    read = -(-31 // stride)
    assert read not in computed(func)
    sch = cpu.DepthwiseConv1d(unroll=1, lanes=2).apply(func, LLVM)
    after = sch.mod["main"]
    if stride == 1:
        assert is_in_rows(after)
        assert int(after.params[-1].ty.shape[-1]) == read
    else:
        assert read in computed(after)
        assert -(-37 // stride) not in computed(after)


# ---- Streaming -----------------------------------------------------------------------------------


def has(feature: str) -> bool:
    return bool(tvm.get_global_func("target.llvm_cpu_has_feature")(feature, LLVM))


X86 = pytest.mark.skipif(not has("sse2"), reason="streaming stores are for x86 processors")
STREAMED = [("float32", 4, 24), ("float32", 16, 64), ("float16", 8, 24), ("int8", 16, 48)]


@X86
@pytest.mark.parametrize("dtype, lanes, w", STREAMED, ids=lambda value: str(value))
def test_streams(dtype: str, lanes: int, w: int, monkeypatch: Any) -> None:
    """The store is there in assembly, and what it stores is what a plain store does."""
    options = {**BASE, "dtype": dtype, "w": w}
    plain = scheduled(workload(options), lanes, 2)
    monkeypatch.setattr(streaming, "STREAM_FROM", 1)
    streamed = scheduled(workload(options), lanes, 2)
    built = [tvm.compile(tvm.IRModule({"main": func}), LLVM) for func in (plain, streamed)]
    assert ["movnt" in each.mod.inspect_source("s") for each in built] == [False, True]
    assert "sfence" in built[1].mod.inspect_source("s")
    check(built[1]["main"], options, "exact")
    inputs = operands(options, "normal", np.random.default_rng(1), 2, 3, w, 3)
    results = [call(each["main"], options, inputs, w) for each in built]
    np.testing.assert_array_equal(results[0], results[1])


def result(shape: Any, dtype: str = "float32", **other: Any) -> Any:
    return tvm.tirx.decl_buffer(shape, dtype, "y", **other)


def test_streams_whole_aligned_vectors() -> None:
    size = tvm.tirx.Var("n", "int32")
    assert streaming.can_stream(result((2, 64)), 8, 64)
    assert not streaming.can_stream(result((size, 64)), 8, 64)
    assert streaming.can_stream(result((2, 64), "int8"), 16, 64)
    # Vectors that no register holds, and types without a name.
    assert not streaming.can_stream(result((2, 64)), 2, 64)
    assert not streaming.can_stream(result((2, 64)), 32, 64)
    assert not streaming.can_stream(result((2, 64), "bfloat16"), 8, 64)
    # A last vector that is moved back; rows, strides or a start that are not multiples of vectors.
    assert not streaming.can_stream(result((2, 60)), 8, 60)
    assert not streaming.can_stream(result((2, 65)), 8, 64)
    assert not streaming.can_stream(result((2, 64), strides=(65, 1)), 8, 64)
    assert not streaming.can_stream(result((2, 64), elem_offset=1), 8, 64)
    assert not streaming.can_stream(result((2, 64), data_alignment=16), 8, 64)
    assert streaming.can_stream(result((2, 64), data_alignment=16), 4, 64)


def test_large_results_of_a_known_size() -> None:
    rows = streaming.STREAM_FROM // 4 // 64
    assert streaming.is_large(result((rows, 64)))
    assert not streaming.is_large(result((rows - 1, 64)))
    assert not streaming.is_large(result((rows, 64), "int8"))
    assert not streaming.is_large(result((tvm.tirx.Var("n", "int32"), 64)))


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_streams_on_x86_only(triple: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(streaming, "STREAM_FROM", 1)
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    assert not streaming.has_streaming_stores(target)
    assert streaming.has_streaming_stores(tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}))
    func = workload({**BASE, "w": 64})
    texts = [
        cpu.DepthwiseConv1d().apply(func, each).mod["main"].script()
        for each in (target, tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}))
    ]
    assert ["T.call_extern" in text for text in texts] == [False, True]
