"""A rewriting on a function that it is not for: refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import s_tir
from tvm.s_tir import Schedule, Trace
from tvm.script import tirx as T

import fuse_epilogue
from conv_traces import CONV, FORMS, IN_ROWS, STRIDED, ready, scheduled, steps, stored
from fuse_epilogue.rewrites.step import rewrite
from fuse_epilogue.workloads import depthwise_conv1d, matmul

pytestmark = pytest.mark.cpp

# ---- Functions that it is not for ----------------------------------------------------------------


@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((4, 32)), weight: T.Buffer((4, 3)), y: T.Buffer((4, 32))):
    """The tail reads the element of y that it writes."""
    s = T.sblock_alloc_buffer((4, 32))
    for c, i, k in T.grid(4, 32, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                s[vc, vi] = T.float32(0)
            s[vc, vi] += (
                T.if_then_else(1 <= vi + vk and vi + vk < 33, x[vc, vi + vk - 1], T.float32(0))
                * weight[vc, vk]
            )
    for c, i in T.grid(4, 32):
        with T.sblock("tail"):
            vc, vi = T.axis.remap("SS", [c, i])
            y[vc, vi] = y[vc, vi] + s[vc, vi]


@T.prim_func(s_tir=True)
def marked_from_one(x: T.Buffer((4, 34)), weight: T.Buffer((4, 3)), y: T.Buffer((4, 32))):
    """Its marked loop does not count from 0 on."""
    for c in range(4):
        for i in T.serial(1, 33, annotations={"columns": 1}):
            for k in range(3):
                with T.sblock("conv"):
                    vc = T.axis.spatial(4, c)
                    vi = T.axis.spatial(32, i - 1)
                    vk = T.axis.reduce(3, k)
                    with T.init():
                        y[vc, vi] = T.float32(0)
                    y[vc, vi] += x[vc, vi + vk] * weight[vc, vk]


@T.prim_func(s_tir=True)
def twice(x: T.Buffer((4, 34)), y: T.Buffer((4, 32)), z: T.Buffer((4,))):
    """Two reductions, and two blocks of one name."""
    for c, i in T.grid(4, 32):
        with T.sblock("one"):
            vc, vi = T.axis.remap("SR", [c, i])
            with T.init():
                z[vc] = T.float32(0)
            z[vc] += x[vc, vi]
    for c, i, k in T.grid(4, 32, 3):
        with T.sblock("conv"):
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
            with T.init():
                y[vc, vi] = T.float32(0)
            y[vc, vi] += x[vc, vi + vk]


def bare(func: Any, block: str) -> tuple[Schedule, Any]:
    sch = Schedule(func)
    return sch, sch.get_sblock(block)


def split(func: Any) -> tuple[Schedule, Any]:
    sch, conv = ready(func)
    sch.split(sch.get_loops(conv)[2], [None, 16])
    return sch, conv


def marked(func: Any, loop: int) -> tuple[Schedule, Any]:
    sch, conv = ready(func)
    sch.annotate(sch.get_loops(conv)[loop], "columns", 1)
    return sch, conv


def marked_when_fused(func: Any) -> tuple[Schedule, Any]:
    sch, conv = ready(func)
    _, channel, column, _ = sch.get_loops(conv)
    sch.annotate(sch.fuse(channel, column), "columns", 1)
    return sch, conv


def marked_elsewhere(func: Any) -> tuple[Schedule, Any]:
    sch, conv = ready(func, fused=False)
    last = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    sch.annotate(sch.get_loops(last)[-1], "columns", 1)
    return sch, conv


def renamed(func: Any) -> tuple[Schedule, Any]:
    """Both reductions have one name."""
    text = func.script().replace('"one"', '"conv"')
    sch = Schedule(tvm.script.from_source(text))
    return sch, sch.get_child_blocks(sch.get_sblock("root"))[1]


AT_BORDERS = {"channel": 1, "rolled": 0}
#: What there is, the step, and what the refusal says of it.
REFUSED: dict[str, tuple[Callable[[], tuple[Schedule, Any]], str, dict[str, int], str]] = {
    "rows: a product": (
        lambda: ready(matmul(8, 8, 8)),
        "rows",
        IN_ROWS,
        "not a depthwise convolution",
    ),
    "rows: something follows": (
        lambda: ready(CONV, fused=False),
        "rows",
        IN_ROWS,
        "alone or with one tail",
    ),
    "rows: loops are split": (lambda: split(CONV), "rows", IN_ROWS, "in plain loops"),
    "rows: a stride": (lambda: ready(STRIDED), "rows", IN_ROWS, "its stride is 2"),
    "rows: in place": (lambda: ready(in_place), "rows", IN_ROWS, "it reads what it writes"),
    "rows: odd lanes": (
        lambda: ready(CONV),
        "rows",
        {**IN_ROWS, "lanes": 12},
        "must be a power of two, not 12",
    ),
    "rows: no lanes": (lambda: ready(CONV), "rows", {**IN_ROWS, "lanes": 1}, "one lane"),
    "rows: not streamed": (
        lambda: ready(CONV),
        "rows",
        {**IN_ROWS, "stream": 1},
        "cannot be stored around the caches",
    ),
    "rows: the root": (lambda: bare(CONV, "root"), "rows", IN_ROWS, "'root'"),
    "borders: a product": (
        lambda: ready(matmul(8, 8, 8)),
        "borders",
        AT_BORDERS,
        "not a depthwise convolution",
    ),
    "borders: no such axis": (
        lambda: marked(CONV, 2),
        "borders",
        {**AT_BORDERS, "channel": 4},
        "has no axis 4",
    ),
    "borders: from 1 on": (
        lambda: bare(marked_from_one, "conv"),
        "borders",
        AT_BORDERS,
        "does not start at 0",
    ),
    "borders: not linear": (
        lambda: marked_when_fused(CONV),
        "borders",
        AT_BORDERS,
        "does not advance with its loop",
    ),
    "borders: an unknown width": (
        lambda: marked(depthwise_conv1d(2, 4, "w", 3), 1),
        "borders",
        AT_BORDERS,
        "is not known",
    ),
    "borders: another block": (
        lambda: marked_elsewhere(CONV),
        "borders",
        AT_BORDERS,
        "not in all of its marked loops",
    ),
    "prepare: two reductions": (
        lambda: bare(twice, "root"),
        "prepare",
        {},
        "exactly one reduction",
    ),
    "two blocks of a name": (lambda: renamed(twice), "rows", IN_ROWS, "several of its blocks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_function_is_refused_and_stays(name: str) -> None:
    make, rewriting, parameters, said = REFUSED[name]
    sch, block = make()
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(s_tir.ScheduleError) as caught:
        rewrite(sch, block, rewriting, **parameters)
    assert fuse_epilogue.refusal_code(caught.value) == "rewriting"
    assert said in str(caught.value)
    assert sch.mod.same_as(module)
    assert str(sch.trace) == trace
    assert sch.get(block).name_hint  # the random variable is valid


def test_a_replayed_step_is_refused_like_a_live_one() -> None:
    sch = scheduled("relu", "rows")[-1]
    fresh = Schedule(STRIDED)
    with pytest.raises(s_tir.ScheduleError) as caught:
        Trace.apply_json_to_schedule(stored(sch), fresh)
    assert fuse_epilogue.refusal_code(caught.value) == "rewriting"
    assert not steps(fresh)


OTHER_BLOCKS = depthwise_conv1d(2, 4, 70, 3, activation="silu")


def test_a_trace_replays_on_a_function_with_more_blocks() -> None:
    """What follows is a sigmoid and a product, not a maximum: all is fused."""
    sch = scheduled("relu", "rows")[-1]
    fresh, by_hand = Schedule(OTHER_BLOCKS), ready(OTHER_BLOCKS)
    Trace.apply_json_to_schedule(stored(sch), fresh)
    rewrite(*by_hand, "rows", **IN_ROWS)
    tvm.ir.assert_structural_equal(fresh.mod, by_hand[0].mod)


@pytest.mark.parametrize(
    ("func", "said"),
    [
        (depthwise_conv1d(2, 4, 70, 3, activation="silu", stride=2), "[rewriting]"),
        (depthwise_conv1d(2, 4, 70, 3, bias=False), "[no-consumer]"),
        (depthwise_conv1d(2, 4, 70, 3, padding="valid"), "block with the name: pad"),
    ],
    ids=["more", "fewer", "without padding"],
)
def test_a_trace_is_refused_on_other_blocks_by_what_they_are(func: Any, said: str) -> None:
    with pytest.raises(s_tir.ScheduleError) as caught:
        Trace.apply_json_to_schedule(stored(scheduled("relu", "rows")[-1]), Schedule(func))
    assert said in str(caught.value)


def test_no_step_depends_on_how_many_blocks_there_are() -> None:
    for name in ("relu", "made by Relax"):
        for form in FORMS:
            for sch in scheduled(name, form):
                kinds = {inst.kind.name for inst in sch.trace.insts}
                assert not kinds & {"GetChildBlocks", "GetConsumers", "GetProducers"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fuse_epilogue.columns(lanes=16)", "there is no rewriting"),
        ("fuse_epilogue.rows(lanes=16)", "must be: lanes"),
        ("fuse_epilogue.rows(stream=0, lanes=16, parallel=1)", "must be: lanes"),
        ("fuse_epilogue.rows(lanes=16, stream=2, parallel=1)", "must be: lanes"),
        ("fuse_epilogue.rows(lanes=x, stream=0, parallel=1)", "there is no rewriting"),
    ],
)
def test_a_stored_step_of_another_name_is_an_error(name: str, said: str) -> None:
    sch, conv = ready(CONV)
    module, trace = sch.mod, str(sch.trace)
    with pytest.raises(ValueError, match=said):
        sch.tensorize(conv, name)
    assert sch.mod.same_as(module) and str(sch.trace) == trace


def test_it_is_about_a_block() -> None:
    sch, conv = ready(CONV)
    with pytest.raises(TypeError, match="about a block"):
        rewrite(sch, sch.get_loops(conv)[0], "rows", **IN_ROWS)
