"""Depthwise convolutions of 8-bit integers by dot products of words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import ScheduleError
from tvm.target import Target

from conv_traces import ready, replayed, steps
from depthwise import Options, call
from fuse_epilogue import schedules
from fuse_epilogue.kernels.cpu.depthwise import rule, streaming
from fuse_epilogue.kernels.cpu.depthwise.narrowing import Narrowing, narrowing_of
from fuse_epilogue.kernels.cpu.depthwise.words import VNNI, why_not_words
from fuse_epilogue.rewrites.step import rewrite
from fuse_epilogue.schedules import cpu
from test_kernels_contraction import innermost_loops
from test_schedules_cpu_sizes import BASE
from test_workloads import check, workload

HOST = schedules.host(1)
HAS = pytest.mark.skipif(not VNNI.lanes(HOST), reason="the instruction is that of some processors")
SAPPHIRE_RAPIDS = Target(
    {"kind": "llvm", "mcpu": "sapphirerapids", "mtriple": "x86_64-linux-gnu", "num-cores": 1}
)
INT8: Options = {**BASE, "dtype": "int8", "w": 200}

CASES = [
    {**INT8, "w": w, "f": f, "padding": padding, "activation": activation, "shift": shift}
    for w, f, padding, activation, shift in (
        (64, 3, "same", "relu", 7),
        (65, 1, "same", None, 0),
        (127, 4, "causal", "relu", 7),
        (200, 5, "valid", None, 1),
        (33, 7, "same", "relu", 31),
        (16, 3, "causal", None, 0),
        (200, 9, (5, 40), "relu", 7),
        (131, 16, (0, 3), None, 8),
        (70, 6, "same", "relu", 9),
        (130, 3, (2, 70), None, 7),
    )
]


def scheduled(func: Any, target: Target = HOST) -> Any:
    sch = cpu.DepthwiseConv1d().apply(func, target)
    assert sch is not None
    return sch.mod["main"]


@HAS
def test_computes_the_convolution_for_all_values() -> None:
    functions = {
        f"case{place}": scheduled(workload({**options, "bias": place % 2 == 0}))
        for place, options in enumerate(CASES)
    }
    assert all("vpdpbusd" in str(func) for func in functions.values())
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    built = tvm.compile(tvm.IRModule(named), target=HOST)
    for place, options in enumerate(CASES):
        check(built[f"case{place}"], {**options, "bias": place % 2 == 0}, "exact")


@HAS
def test_sums_wrap_around() -> None:
    """As int32 does: here those of the bias and the correction of signed values."""
    options = {**INT8, "activation": None, "shift": 0}
    built = tvm.compile(scheduled(workload(options)), target=HOST)["main"]
    inputs = {
        "x": np.full((2, 3, 200), -128, "int8"),
        "weight": np.full((3, 3), 127, "int8"),
        "bias": np.array([-(2**31), -(2**31) + 16256 * 3, 2**31 - 1], "int32"),
    }
    found = call(built, options, inputs, 200)
    padded = np.pad(inputs["x"].astype("int64"), [(0, 0), (0, 0), (1, 1)])
    sums = sum(padded[:, :, tap : tap + 200] for tap in range(3)) * 127
    wrapped = (sums + inputs["bias"].astype("int64")[:, None]).astype("int32")
    np.testing.assert_array_equal(found, np.clip(wrapped, -128, 127))


SUM = tvm.tirx.Var("sum", "int32")


def limits(value: Any, low: int | None, high: int | None) -> Any:
    value = value if high is None else tvm.tirx.min(value, high)
    return value if low is None else tvm.tirx.max(value, low)


def tail(inner: tuple[int | None, int | None], half: int, shift: int, outer: Any, to: str) -> Any:
    """Limits, a half, a shift and limits again, as a byte."""
    value = limits(SUM, *inner)
    value = value + half if half else value
    value = tvm.tirx.shift_right(value, tvm.tirx.const(shift, "int32")) if shift else value
    return limits(value, *outer).astype(to)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (tail((None, None), 64, 7, (-128, 127), "int8"), (64, 7, -128, 127)),
        (tail((0, None), 64, 7, (-128, 127), "int8"), (64, 7, 0, 127)),
        (tail((-300, 700), 4, 3, (-100, 100), "int8"), (4, 3, -37, 88)),
        (tail((100000, None), 0, 1, (-128, 127), "int8"), (0, 1, 127, 127)),
        (tail((None, 5), 0, 1, (0, 255), "uint8"), (0, 1, 0, 2)),
        (tail((None, None), 64, 7, (-129, 127), "int8"), None),
        (tail((None, None), 64, 7, (None, 127), "int8"), None),
        (tail((None, None), 64, 7, (-128, 255), "uint8"), None),
        ((limits(SUM * 3, -128, 127)).astype("int8"), None),
    ],
)
def test_a_tail_of_limits_and_a_shift_is_packed(
    made: Any, found: tuple[int, int, int, int] | None
) -> None:
    """All limits become one pair after the shift; what is more or less than that is refused."""
    dtype = str(made.ty.dtype)
    assert narrowing_of(made, SUM) == (None if found is None else Narrowing(dtype, *found))


@HAS
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_packed_bytes_are_those_of_the_tail(dtype: str) -> None:
    """At all places of a vector, whichever shift there is, beyond the range of 16 bits as well."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    lanes = VNNI.lanes(HOST)
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, -1, 127, 255, 32767, 32768, -32768, -32769, 2**31 - 1, -(2**31)])
    sums = np.concatenate([ends, rng.integers(-(2**17), 2**17, 4 * lanes - len(ends))])
    x = rng.permutation(sums).astype("int32")
    functions, expected = {}, {}
    for shift in (0, 1, 7, 8, 9, 31):
        chosen = Narrowing(dtype, 0, shift, least + 3, most - 5)
        given = tvm.tirx.decl_buffer((4 * lanes,), "int32", "x")
        y = tvm.tirx.decl_buffer((4 * lanes,), dtype, "y")
        value = chosen.packed(lambda at, x=given: x[tvm.tirx.Ramp(at * lanes, 1, lanes)], lanes)
        store = tvm.tirx.BufferStore(y, value, [tvm.tirx.Ramp(0, 1, 4 * lanes)])
        func = tvm.tirx.PrimFunc([given, y], store).with_attr("global_symbol", f"by{shift}")
        functions[f"by{shift}"] = func
        bytes_ = np.clip(x >> shift, least + 3, most - 5).astype(dtype)
        expected[f"by{shift}"] = bytes_.reshape(4, lanes).T.reshape(-1)
    built = tvm.compile(tvm.IRModule(functions), target=HOST)
    for name, right in expected.items():
        found = tvm.runtime.tensor(np.zeros(4 * lanes, dtype))
        built[name](tvm.runtime.tensor(x), found)
        np.testing.assert_array_equal(found.numpy(), right, err_msg=name)


@HAS
def test_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STREAM_FROM", 1)
    options = {**INT8, "w": 256}
    built = tvm.compile(scheduled(workload(options)), target=HOST)
    assert re.search(r"vmovnt.*%zmm", built.mod.inspect_source("s"))
    check(built["main"], options, "exact")


def test_a_plan_takes_words_and_keeps_all_in_registers() -> None:
    func = schedules.apply(workload({**INT8, "w": 2048}), SAPPHIRE_RAPIDS)["main"]
    text = str(tvm.tirx.build(func, SAPPHIRE_RAPIDS).inspect_source("asm"))
    loops = [body for body in innermost_loops(text) if "vpdpbusd" in body]
    assert loops and all("vpmulld" not in body for body in loops)
    for body in loops:
        assert not re.search(r"\(%r[sb]p[,)].*%[xyz]mm|%[xyz]mm.*\(%r[sb]p[,)]", body), body


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"w": 15}, "no instruction"),
        ({"dilation": 2}, "not neighbours"),
        ({"dtype": "float32"}, "not integers of 8 bits"),
        ({}, None),
    ],
)
def test_others_are_not_computed_by_words(
    changed: Options, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def watched(fused: Any, lanes: int) -> str | None:
        seen.append(why_not_words(fused, lanes))
        return seen[-1]

    monkeypatch.setattr(rule, "word_lanes", lambda fused, target: 4)
    monkeypatch.setattr(rule, "why_not_words", watched)
    func = scheduled(workload({**INT8, **changed}), SAPPHIRE_RAPIDS)
    assert ("vpdpbusd" in str(func)) == (reason is None)
    assert len(seen) == 1
    assert (reason in seen[0]) if seen[0] and reason else seen[0] is reason


def test_the_step_replays_and_is_refused_where_it_does_not_fit() -> None:
    func = workload(INT8)
    made = cpu.DepthwiseConv1d().apply(func, SAPPHIRE_RAPIDS)
    assert "fuse_epilogue.rows_of_words(lanes=16, stream=0, parallel=1)" in steps(made)
    tvm.ir.assert_structural_equal(replayed(made, func).mod, made.mod)
    refused = "not in words: there is no instruction for vectors of this length"
    for lanes in (2, 32, 64):
        sch, conv = ready(func)
        with pytest.raises(ScheduleError, match=refused):
            rewrite(sch, conv, "rows_of_words", lanes=lanes, stream=0, parallel=1)
