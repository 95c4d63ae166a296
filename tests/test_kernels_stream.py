"""Kernels for streams: right, fused, and refused where one stream may touch another one's state."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import from_source
from tvm.script import tirx as T

from depthwise import Options
from fuse_epilogue import schedules
from fuse_epilogue.kernels.cpu import stream
from fuse_epilogue.kernels.cpu.stream.repairs import repairs
from fuse_epilogue.kernels.scheduled import Scheduled
from fuse_epilogue.transform import ScheduleModule, schedules_of
from oracles import compile_together
from planned_functions.memory import fenced, in_child
from streaming import HALF_ULP, assert_forward, assert_update, draw, run
from test_workloads_gradients import GRADIENTS, backward
from test_workloads_streaming import CASES, UPDATES, forward, name_of, rng_of, updating
from tiers import tiered

TARGET = schedules.host(2)


def scheduled(func: Any) -> Any:
    """A function as the pass over modules schedules it, and the kind of its kernel."""
    mod = ScheduleModule(TARGET, threads=2)(tvm.IRModule({"main": func}))
    (report,) = schedules_of(mod) or ()
    return mod["main"], report


def compiled(func: Any) -> Any:
    return tvm.compile(tvm.IRModule({"main": func}), target=TARGET)["main"]


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_forward(index: int) -> None:
    options = CASES[index]
    func = forward(options)
    made, report = scheduled(func)
    streams = any(options[name] for name in ("initial_state", "final_state", "sequences"))
    assert report.kind == ("stream of conv" if streams else "conv")
    arrays = draw(func, options, rng_of(options))
    assert_forward(run(compiled(made), arrays), arrays, options, name_of(options))


@pytest.mark.parametrize("index", tiered(UPDATES, name_of))
def test_update(index: int) -> None:
    options = UPDATES[index]
    func = updating(options)
    made, report = scheduled(func)
    assert report.kind == "stream update"
    arrays = draw(func, options, rng_of(options))
    assert_update(run(compiled(made), arrays), arrays, options, name_of(options))


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_a_circular_state_of_one_column(layout: str) -> None:
    """Its place is constant, and its new column is not read from it."""
    options = {"n": 3, "c": 6, "f": 2, "circular": True, "pool": 5, "layout": layout}
    func = updating(options)
    made, report = scheduled(func)
    assert report.kind == "stream update"
    arrays = draw(func, options, rng_of(options))
    assert_update(run(compiled(made), arrays), arrays, options, layout)


def test_a_bare_sum_is_no_update_of_its_result() -> None:
    options = {"n": 2, "c": 3, "w": 40, "f": 4, "bias": False, "final_state": True}
    func = forward(options)
    made, report = scheduled(func)
    assert report.kind == "stream of conv"
    arrays = draw(func, options, rng_of(options))
    assert_forward(run(compiled(made), arrays), arrays, options, "bare")


@pytest.mark.parametrize("index", tiered(GRADIENTS, name_of))
def test_gradients(index: int) -> None:
    """Each sum has a kernel of its own; the results are those of the loops as they are."""
    options = GRADIENTS[index]
    func = backward(options)
    made, report = scheduled(func)
    # No kernel knows a sum that is masked by sequences, other than that of the convolution; of one
    # column, all sums are of the same rows.
    one_kernel = options["sequences"] or (options["w"] == 1 and report.kind == "row program")
    assert report.kind.startswith("several: ") or one_kernel
    arrays = draw(func, options, rng_of(options))
    plain = run(compile_together({"main": func})["main"], arrays)
    ours = run(compiled(made), arrays)
    for name in ("dx", "dweight", "dbias", "dinitial_state"):
        if name in plain:
            expected = plain[name].astype("float64")
            bound = 2 * HALF_ULP[options["dtype"]] * np.abs(expected) + 1e-4
            assert (np.abs(ours[name].astype("float64") - expected) <= bound).all(), name


@pytest.mark.usefixtures("free_threads")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("threads", "n", "w"), [(1, 2, 32), (2, 2, 37), (1, 1, 69)])
def test_gradients_of_weights_are_summed_in_lanes(threads: int, n: int, w: int, dtype: str) -> None:
    """Of 37 columns each lane has two or three; one image's gradient reads as a convolution."""
    options = {"n": n, "c": 3, "w": w, "f": 4, "dtype": dtype, "activation": "relu"}
    func = backward(options)
    target = schedules.host(threads)
    arrays = draw(func, options, rng_of(options))
    plain = run(compile_together({"main": func})["main"], arrays)
    made = schedules.apply(func, target)["main"]
    assert "dweight_rf" in made.script() and "dbias_rf" in made.script()
    assert ("in T.parallel(3)" in made.script()) == (threads == 2)  # the channels
    ours = run(compiled(made), arrays)
    for name in ("dx", "dweight", "dbias"):
        expected = plain[name].astype("float64")
        bound = 2 * HALF_ULP[dtype] * np.abs(expected) + 1e-4
        assert (np.abs(ours[name].astype("float64") - expected) <= bound).all(), name
    for more in ({"w": 15}, {"layout": "NWC"}):  # too few columns, and not side by side
        assert "_rf" not in schedules.apply(backward({**options, **more}), target).script()


@pytest.mark.usefixtures("free_threads")
@pytest.mark.parametrize("circular", [False, True])
def test_large_enough_for_threads(circular: bool) -> None:
    """More than one thread shares the work: of several streams, and of one."""
    for n in (1, 16):
        options = {"n": n, "c": 8192 if n == 1 else 512, "f": 4, "circular": circular, "steps": 2}
        func = updating({**options, "activation": "silu"})
        made, _ = scheduled(func)
        assert "T.parallel" in made.script()
        assert ("T.unroll(4)" in made.script()) == (n == 16)
        arrays = draw(func, options, rng_of(n))
        assert_update(
            run(compiled(made), arrays), arrays, {**options, "activation": "silu"}, str(n)
        )


def test_checks_come_first_in_the_kernels() -> None:
    """A call that is refused has written nothing."""
    func = updating({"n": 2, "c": 3, "f": 4, "pool": 5})
    arrays = draw(func, {}, rng_of(1))
    arguments = {k: tvm.runtime.tensor(v) for k, v in arrays.items()}
    arguments["indices"] = tvm.runtime.tensor(np.array([4, 5], "int32"))
    with pytest.raises(ValueError, match="^indices must be states of the pool"):
        compiled(scheduled(func)[0])(*arguments.values())
    np.testing.assert_array_equal(arguments["state"].numpy(), arrays["state"])


def test_apply_and_explain() -> None:
    options: Options = {"n": 2, "c": 3, "w": 40, "f": 4, "initial_state": True, "sequences": 3}
    func = forward(options)
    assert schedules.explain(func, "llvm") == "kernel: stream of depthwise convolution"
    made = schedules.apply(func, TARGET)["main"]
    assert made.attrs["tirx.is_scheduled"]
    arrays = draw(func, options, rng_of(1))
    assert_forward(run(compiled(made), arrays), arrays, options, "applied")


# ---- Refused -------------------------------------------------------------------------------------


def no_core(_: Any) -> None:
    return None


def test_without_the_check_two_streams_may_share_a_state() -> None:
    func = updating({"n": 2, "c": 3, "f": 4, "pool": 5})
    assert stream.schedule(func, 1, no_core) is not None
    body = func.body.block.body
    for left in (1, 0):
        # Without the check of distinct indices, or with that of another order of the two.
        kept = [each for place, each in enumerate(body.seq) if place != left]
        root = tvm.s_tir.SBlock(
            [], [], [], "root", tvm.tirx.SeqStmt(kept), alloc_buffers=func.body.block.alloc_buffers
        )
        without = func.with_body(tvm.s_tir.SBlockRealize([], True, root))
        found = stream.schedule(without, 1, no_core)
        assert (found is None) == (left == 1)


@T.prim_func(s_tir=True)
def neighbour(x: T.Buffer((4, 8), "float32"), s: T.Buffer((4, 8, 3), "float32")) -> None:
    """Each stream takes a column from the state of the one before."""
    p = T.sblock_alloc_buffer((4, 8, 4))
    for n, c, j in T.grid(4, 8, 4):
        with T.sblock("pad"):
            vn, vc, vj = T.axis.remap("SSS", [n, c, j])
            p[vn, vc, vj] = T.if_then_else(vj >= 3, x[vn, vc], s[T.max(vn - 1, 0), vc, vj])
    for n, c, j in T.grid(4, 8, 3):
        with T.sblock("state"):
            vn, vc, vj = T.axis.remap("SSS", [n, c, j])
            s[vn, vc, vj] = p[vn, vc, vj + 1]


@T.prim_func(s_tir=True)
def own(x: T.Buffer((4, 8), "float32"), s: T.Buffer((4, 8, 3), "float32")) -> None:
    """The twin: each stream takes it from its own."""
    p = T.sblock_alloc_buffer((4, 8, 4))
    for n, c, j in T.grid(4, 8, 4):
        with T.sblock("pad"):
            vn, vc, vj = T.axis.remap("SSS", [n, c, j])
            p[vn, vc, vj] = T.if_then_else(vj >= 3, x[vn, vc], s[vn, vc, vj])
    for n, c, j in T.grid(4, 8, 3):
        with T.sblock("state"):
            vn, vc, vj = T.axis.remap("SSS", [n, c, j])
            s[vn, vc, vj] = p[vn, vc, vj + 1]


def test_a_state_of_another_stream_is_refused() -> None:
    assert stream.schedule(neighbour, 1, no_core) is None
    made = stream.schedule(own, 1, no_core)
    assert made is not None
    arrays = draw(own, {}, rng_of(2))
    both = compile_together({"own": own, "made": made.func})
    after = [run(built, arrays)["s"] for built in both.values()]
    np.testing.assert_array_equal(*after)


def test_rules_leave_a_parameter_alone_that_they_would_read_late() -> None:
    """Inlined, the copy would be read after the state has changed."""
    with pytest.raises(ValueError, match="'state' writes 's', which 'pad' reads"):
        schedules.apply(neighbour, "llvm")


MASKED = """
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((1, 6, 42)),
    w: T.Buffer((6, 3)),
    s: T.Buffer((1, 40), "int32"),
    y: T.Buffer((1, 6, 40)),
):
    p = T.sblock_alloc_buffer((1, 6, 42))
    total = T.sblock_alloc_buffer((1, 6, 40))
    for n, c, i in T.grid(1, 6, 42):
        with T.sblock("pad"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            p[vn, vc, vi] = T.if_then_else(
                vi >= 2, T.if_then_else(s[vn, vi - 2] == s[vn, 0], x[vn, vc, COLUMN], 0.0), 0.0
            )
    for n, c, i, k in T.grid(1, 6, 40, 3):
        with T.sblock("conv"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                total[vn, vc, vi] = T.float32(0)
            total[vn, vc, vi] = total[vn, vc, vi] + p[vn, vc, vi + vk] * w[vc, vk]
    for n, c, i in T.grid(1, 6, 40):
        with T.sblock("relu"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            y[vn, vc, vi] = T.max(total[vn, vc, vi], 0.0)
"""


def masked(column: str) -> Any:
    """Return the stream kernel of a masked sum, with an unscheduled core, or None."""
    func = from_source(MASKED.replace("COLUMN", column))
    return stream.schedule(func, 1, lambda core: Scheduled(core, "sum", "none"))


def test_a_mask_is_evaluated_only_behind_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first column there is no number to compare, and no memory to read."""
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-4, 5, shape).astype("float32") for shape in ((1, 6, 42), (6, 3)))
    numbers = np.repeat(np.arange(4, dtype="int32"), 10)[None]
    taps = np.zeros((1, 6, 42), "float32")
    taps[..., 2:] = np.where(numbers == 0, x[..., 2:], 0)
    total = sum(taps[..., k : k + 40] * w[None, :, k, None] for k in range(3))
    arrays = [fenced(each, False, 4) for each in (x, w, numbers, np.zeros_like(total))]

    def end() -> str:
        kernel = compiled(masked("vi").func)

        def call() -> str:
            kernel(*map(tvm.runtime.from_dlpack, arrays))
            return "right" if np.array_equal(arrays[-1], np.maximum(total, 0)) else "wrong"

        return in_child([call])[0]

    assert end() == "right"
    monkeypatch.setattr(sys.modules[repairs.__module__], "where", lambda _, condition: condition)
    assert end() == "died of signal 11"


def test_a_mask_stays_where_its_operand_is_not_defined_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert masked("vi") is not None
    assert masked("vi - 2") is None
    monkeypatch.setattr(stream, "may_be_discarded", lambda *_: True)
    assert masked("vi - 2") is not None
