"""Kernels for streams on CUDA: their text, executed by the CPU in every order of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.tirx import For

import cuda_on_cpu
from cuda_on_cpu import CudaFault
from cuda_runs import CUDA, no_gxx
from depthwise import Arrays
from fuse_epilogue import schedules
from fuse_epilogue.kernels.cuda import stream
from fuse_epilogue.tir.walk import parts_of
from fuse_epilogue.transform import ScheduleModule, schedules_of
from oracles import compile_together
from streaming import HALF_ULP, assert_forward, assert_update, draw
from test_kernels_stream import neighbour, own
from test_workloads_gradients import GRADIENTS, backward
from test_workloads_streaming import CASES, UPDATES, forward, name_of, rng_of, updating
from tiers import tiered

pytestmark = no_gxx


def text_of(func: Any, kind: str) -> Any:
    """A function as the pass over modules schedules it, executed from its text."""
    mod = ScheduleModule(CUDA)(tvm.IRModule({"main": func}))
    (report,) = schedules_of(mod) or ()
    assert report.kind.startswith(kind), report
    return cuda_on_cpu.build(mod["main"])


def run(program: Any, arrays: Arrays) -> Arrays:
    after = {name: np.array(array) for name, array in arrays.items()}
    program(*after.values())
    return after


#: Compiling a text takes longest: a few of the cases that the kernels for LLVM have.
FORWARD = [each for each in CASES if each["initial_state"] or each["sequences"]][:6]


@pytest.mark.parametrize("index", tiered(FORWARD, name_of))
def test_forward(index: int) -> None:
    options = FORWARD[index]
    func = forward(options)
    arrays = draw(func, options, rng_of(options))
    assert_forward(run(text_of(func, "stream"), arrays), arrays, options, name_of(options))


@pytest.mark.parametrize("index", tiered(UPDATES[:6], name_of))
def test_update(index: int) -> None:
    options = UPDATES[index]
    func = updating(options)
    arrays = draw(func, options, rng_of(options))
    after = run(text_of(func, "stream update"), arrays)
    assert_update(after, arrays, options, name_of(options))


@pytest.mark.full
@pytest.mark.parametrize("index", range(3), ids=lambda index: name_of(GRADIENTS[index]))
def test_gradients(index: int) -> None:
    options = GRADIENTS[index]
    func = backward(options)
    arrays = draw(func, options, rng_of(options))
    plain = {name: tvm.runtime.tensor(array) for name, array in arrays.items()}
    compile_together({"main": func})["main"](*plain.values())
    ours = run(text_of(func, "several: "), arrays)
    for name in ("dx", "dweight", "dbias", "dinitial_state"):
        if name in plain:
            expected = plain[name].numpy().astype("float64")
            bound = 2 * HALF_ULP[options["dtype"]] * np.abs(expected) + 1e-4
            assert (np.abs(ours[name].astype("float64") - expected) <= bound).all(), name


def test_a_wrong_call_traps_with_the_message_and_writes_nothing() -> None:
    func = updating({"n": 2, "c": 3, "f": 4, "circular": True, "pool": 5})
    program = text_of(func, "stream update")
    arrays = draw(func, {}, rng_of(1))
    run(program, arrays)
    for name, wrong, said in (
        ("positions", [0, -1], "positions must not be negative"),
        ("indices", [0, 5], "indices must be states of the pool: each from 0 to 5 - 1"),
        ("indices", [3, 3], "indices must differ"),
    ):
        after = {k: np.array(v) for k, v in {**arrays, name: np.array(wrong, "int32")}.items()}
        with pytest.raises(CudaFault, match=f"^trap: ValueError: {said}"):
            program(*after.values())
        np.testing.assert_array_equal(after["state"], arrays["state"])


def test_apply_and_explain() -> None:
    options = {"n": 2, "c": 3, "w": 40, "f": 4, "initial_state": True, "sequences": 3}
    func = forward(options)
    assert schedules.explain(func, CUDA) == "kernel: stream"
    made = schedules.apply(func, CUDA)["main"]
    # A kernel for the check, and one for y.
    assert len(parts_of(made.body, For)) == 4


def test_a_state_of_another_stream_is_refused() -> None:
    assert stream.schedule(neighbour) is None
    made = stream.schedule(own)
    assert made is not None and made.kind == "stream update"


def test_a_convolution_without_a_stream_is_left_to_its_own_kernel() -> None:
    assert stream.schedule(forward({"n": 1, "c": 4, "w": 40, "f": 4})) is None
