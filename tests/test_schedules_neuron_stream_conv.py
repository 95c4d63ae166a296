"""Pieces of streams on Trainium, and sums of int8: states, packed sequences, whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import emit
from fuse_epilogue.schedules.neuron import StreamConv, StreamUpdate
from fuse_epilogue.workloads import depthwise_conv1d
from kernel_runs import run as on_processor
from streaming import assert_forward, draw
from test_workloads_streaming import CASES, forward, name_of, rng_of, updating
from tiers import tiered

#: With one final state for each image.
PIECES = [{**o, "sequences": bool(o["sequences"])} if o["final_state"] else o for o in CASES]


def run(func: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the interpreter makes of the kernel of a function."""
    kernel = emit(schedules.apply(func, "trn2"))
    for machine in ("trn1", "trn2", "trn3"):
        kernel.check(machine)
    results = kernel(*(arrays[name] for name in kernel.inputs))
    names = [name for name in ("y", "final_state") if name in arrays]
    made = results if isinstance(results, tuple) else (results,)
    return {**arrays, **dict(zip(names, made, strict=True))}


@pytest.mark.parametrize("index", tiered(PIECES, name_of))
def test_piece(index: int) -> None:
    options = PIECES[index]
    arrays = draw(forward(options), options, rng_of(options))
    assert_forward(run(forward(options), arrays), arrays, options, name_of(options))


@pytest.mark.parametrize("options", [{"c": 131}, {"c": 300, "w": 5}, {"c": 1, "w": 4500}], ids=str)
def test_tiles_of_channels_and_columns(options: dict[str, int]) -> None:
    options = {"n": 2, "c": 3, "w": 20, "f": 4, **options}
    more = {"initial_state": True, "final_state": True, "sequences": True, "activation": "silu"}
    func = forward({**options, **more})
    arrays = draw(func, {**options, **more}, rng_of(options))
    assert_forward(run(func, arrays), arrays, {**options, **more}, name_of(options))


def test_other_sequences_may_be_infinite() -> None:
    options = {"n": 1, "c": 2, "w": 12, "f": 3, "sequences": True, "final_state": True}
    func = forward(options)
    arrays = draw(func, options, rng_of(options))
    arrays["sequences"][:] = [-(2**31)] * 4 + [2**31 - 2] * 7 + [2**31 - 1]
    plain = run(func, arrays)
    arrays["x"][:, :, :4] = np.inf
    arrays["x"][:, :, 4:11] = np.where(np.arange(7) < 6, arrays["x"][:, :, 4:11], np.nan)
    after = run(func, arrays)
    np.testing.assert_array_equal(after["y"][:, :, 4:10], plain["y"][:, :, 4:10])
    np.testing.assert_array_equal(after["y"][:, :, 11], plain["y"][:, :, 11])
    np.testing.assert_array_equal(after["final_state"], plain["final_state"])


PIECE = {"n": 2, "c": 5, "w": 9, "f": 3, "initial_state": True}


def fused(options: dict[str, Any]) -> Any:
    """A piece whose sum begins with its bias; what follows it is in the loops of the sum."""
    sch = Schedule(forward(options))
    assert sch.fuse_reduction_epilogue("conv").certificate.epilogues
    return sch.mod["main"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"activation": "silu", "residual": True},
        {"dtype": "bfloat16", "activation": "silu"},
        {"sequences": True, "final_state": True},
    ],
    ids=str,
)
def test_a_sum_that_begins_with_its_bias(more: dict[str, Any]) -> None:
    """The kernel is that of the function before fusion: the bias is added as y is computed."""
    options = {**PIECE, **more}
    func = fused(options)
    arrays = draw(func, options, rng_of(options))
    assert_forward(run(func, arrays), arrays, options, name_of(options))
    before = emit(schedules.apply(forward(options), "trn2"))
    assert emit(schedules.apply(func, "trn2")).source == before.source


def test_a_sum_without_bias_and_activation() -> None:
    options = {**PIECE, "bias": False}
    arrays = draw(forward(options), options, rng_of(options))
    assert_forward(run(forward(options), arrays), arrays, options, name_of(options))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("= bias[v_c]", "= padded[v_n, v_c, v_w]"),
            "the start value of its sum is computed by an earlier block",
        ),
        (
            ("= bias[v_c]", "= weight[v_c, 0]"),
            None,
        ),
        (
            ("= bias[v_c]", "= weight[v_c, 0] + weight[v_c, 1]"),
            "an element reads 'weight' at two places",
        ),
    ],
    ids=["a column", "a weight", "two weights"],
)
def test_other_beginnings(change: tuple[str, str], why: str | None) -> None:
    text = fused(PIECE).script()
    assert change[0] in text
    func = tvm.script.from_source(text.replace(*change))
    if why is not None:
        assert why in StreamConv().choose(func, "trn2").why
        return
    arrays = draw(fused(PIECE), PIECE, rng_of(PIECE))
    arrays["bias"] = np.array(arrays["weight"][:, 0])
    assert_forward(run(func, arrays), arrays, PIECE, name_of(PIECE))


def test_the_trace_replays() -> None:
    func = forward({"n": 2, "c": 5, "w": 9, "f": 3, "initial_state": True})
    sch = StreamConv().apply(func, "trn2")
    again = Schedule(func)
    Trace.apply_json_to_schedule(stored(sch), again)
    assert emit(again).source == emit(sch).source


def test_sequence_numbers_are_compared_once_for_all_channels() -> None:
    func = forward({"n": 1, "c": 512, "w": 64, "f": 4, "sequences": True})
    kernel = emit(schedules.apply(func, "trn2"))
    assert kernel.check("trn2").instructions["tensor_tensor"] == 3
    plain = emit(schedules.apply(forward({"n": 1, "c": 512, "w": 64, "f": 4}), "trn2"))
    assert kernel.predict().latency_ms < 3 * plain.predict().latency_ms


def test_states_of_several_sequences_are_refused() -> None:
    func = forward({"n": 1, "c": 4, "w": 9, "f": 3, "sequences": 2, "final_state": True})
    choice = StreamConv().choose(func, "trn2")
    assert choice.schedule is None and "pass sequences=True" in choice.why


# ---- int8 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 1, 7, 15])
@pytest.mark.parametrize("padding", ["same", "valid", (3, 1)])
def test_int8_is_exact(padding: Any, shift: int) -> None:
    """Also with the largest and smallest bias that is allowed, and sums between two results."""
    stride, dilation = (2, 1) if padding == "same" else (1, 2)
    func = depthwise_conv1d(
        2, 40, 64, 3, dtype="int8", padding=padding, shift=shift, stride=stride, dilation=dilation
    )
    rng = np.random.default_rng(shift)
    x = rng.choice([-128, -1, 0, 1, 127], (2, 40, 64)).astype("int8")
    weight = rng.choice([-128, -1, 1, 127], (40, 3)).astype("int8")
    most = 2**31 - 1 - 3 * 2**14 - 2**14
    bias = rng.integers(-(2**16), 2**16, 40).astype("int32")
    bias[:8] = [most, -most, 2**24 + 1, -(2**24) - 1, 2**22 + 64, -(2**22), 1 << shift, 0]
    kernel = emit(schedules.apply(func, "trn2"))
    kernel.check("trn1")
    found = kernel(x, weight, bias)
    np.testing.assert_array_equal(found, on_processor(func, [x, weight, bias], found.shape, "int8"))


@pytest.mark.parametrize("shift", [15, 16])
def test_sums_that_float32_does_not_have_are_refused(shift: int) -> None:
    for rule, func in (
        (StreamUpdate(), updating({"n": 1, "c": 2, "f": 4, "dtype": "int8", "shift": shift})),
        (StreamConv(), depthwise_conv1d(1, 2, 9, 4, dtype="int8", shift=shift)),
    ):
        choice = rule.choose(func, "trn2")
        assert (choice.schedule is None) == (shift > 15)
        assert shift <= 15 or "more than the 24 bits of float32" in choice.why
