"""Streams on Trainium: the next columns, and parameters that a kernel updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from tvm.script import tirx as T

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import EmitError, emit
from fuse_epilogue.schedules.neuron import StreamUpdate
from streaming import assert_update, draw
from test_workloads_streaming import UPDATES, name_of, rng_of, updating
from tiers import tiered

OWN_STATES = [
    each for each in UPDATES if not (each["circular"] or each["pool"]) and each["dtype"] != "int8"
]
#: Those have a pool or positions: the same without.
CASES = OWN_STATES + [
    {**each, "circular": False, "pool": None}
    for each in UPDATES
    if (each["circular"] or each["pool"]) and each["dtype"] != "int8"
]


def run(func: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the interpreter makes of the kernel of a function."""
    kernel = emit(schedules.apply(func, "trn2"))
    for machine in ("trn1", "trn2", "trn3"):
        kernel.check(machine)
    given = {name: arrays[name] for name in kernel.inputs}
    y, state = kernel(*given.values())
    return {**arrays, "y": y, "state": state}


@pytest.mark.parametrize("index", tiered(CASES, name_of))
def test_update(index: int) -> None:
    options = CASES[index]
    func = updating(options)
    arrays = draw(func, options, rng_of(options))
    before = {name: np.array(array) for name, array in arrays.items()}
    assert_update(run(func, arrays), before, options, name_of(options))
    np.testing.assert_array_equal(arrays["state"], before["state"])


@pytest.mark.parametrize("channels", [1, 127, 131, 256, 4096])
def test_any_number_of_channels(channels: int) -> None:
    options = {"n": 2, "c": channels, "f": 4}
    func = updating(options)
    arrays = draw(func, options, rng_of(options))
    assert_update(run(func, arrays), arrays, options, str(channels))


def test_one_step_of_many_channels_is_long_pieces() -> None:
    """No piece of memory is shorter than the channels of a partition."""
    kernel = emit(schedules.apply(updating({"n": 1, "c": 4096, "f": 4}), "trn2"))
    assert kernel.source.count("dma_copy(") == 6
    for machine in ("trn1", "trn2"):
        assert kernel.predict(machine).latency_ms < 0.01


def test_the_trace_replays() -> None:
    func = updating({"n": 2, "c": 64, "f": 3})
    sch = StreamUpdate().apply(func, "trn2")
    again = Schedule(func)
    Trace.apply_json_to_schedule(stored(sch), again)
    assert emit(again).source == emit(sch).source


@pytest.mark.parametrize("more", [{"circular": True}, {"pool": 5}], ids=str)
def test_addresses_that_depend_on_data_are_refused(more: dict[str, Any]) -> None:
    choice = StreamUpdate().choose(updating({"n": 2, "c": 64, "f": 4, **more}), "trn2")
    assert choice.schedule is None
    assert "depends on data, such as a pool or positions" in choice.why


# ---- Parameters in place -------------------------------------------------------------------------


def in_place(read_row: Any, stored_columns: int = 8, again: bool = False) -> Any:
    """A kernel that adds 1 to each row of a parameter, from a row that `read_row` says."""

    @T.prim_func(s_tir=True)
    def main(s: T.Buffer((4, 16, 8), "float32"), r: T.Buffer((4, 16, 8), "float32")):
        for n in range(4):
            tile = T.sblock_alloc_buffer((16, 8), scope="trn.sbuf")
            more = T.sblock_alloc_buffer((16, 8), scope="trn.sbuf")
            for p in T.serial(16, annotations={"nki_dim": "P"}):
                for f in T.serial(8, annotations={"nki_dim": "F"}):
                    with T.sblock("loaded"):
                        vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                        tile[vp, vf] = s[read_row(vn), vp, vf]
            for p in T.serial(16, annotations={"nki_dim": "P"}):
                for f in T.serial(8, annotations={"nki_dim": "F"}):
                    with T.sblock("more"):
                        vp, vf = T.axis.remap("SS", [p, f])
                        more[vp, vf] = tile[vp, vf] + T.float32(1)
            for p in T.serial(16, annotations={"nki_dim": "P"}):
                for f in T.serial(stored_columns, annotations={"nki_dim": "F"}):
                    with T.sblock("stored"):
                        vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                        s[vn, vp, vf] = more[vp, vf]
            if again:
                for p in T.serial(16, annotations={"nki_dim": "P"}):
                    for f in T.serial(8, annotations={"nki_dim": "F"}):
                        with T.sblock("again"):
                            vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                            r[vn, vp, vf] = s[vn, vp, vf]

    return main


def test_a_parameter_in_place_becomes_a_result_of_its_own() -> None:
    kernel = emit(in_place(lambda n: n))
    assert list(kernel.inputs) == ["s", "r"] and "return s_after" in kernel.source
    s = np.arange(512).reshape(4, 16, 8).astype("float32")
    np.testing.assert_array_equal(kernel(s, s), s + 1)


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (lambda: in_place(lambda n: T.max(n - 1, 0)), "two iterations of loop 'n' may touch"),
        (lambda: in_place(lambda n: 3 - n), "two iterations of loop 'n' may touch"),
        (lambda: in_place(lambda n: n, 7), "does not store all of its elements once"),
        (lambda: in_place(lambda n: n, again=True), "not stored by one block, after all that"),
    ],
    ids=["the row before", "backwards", "not all columns", "read again"],
)
def test_a_parameter_that_may_be_read_late_is_refused(func: Any, why: str) -> None:
    with pytest.raises(EmitError, match=f"parameter 's'.*{why}"):
        emit(func())
