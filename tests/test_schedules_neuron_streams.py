"""Streams on Trainium: the next columns, and parameters that a kernel updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from tvm.script import tirx as T

from conv_traces import stored
from fuse_epilogue import schedules
from fuse_epilogue.neuron import EmitError, KernelError, emit
from fuse_epilogue.schedules.neuron import StreamUpdate
from fuse_epilogue.tir.build import in_root
from fuse_epilogue.tir.nest import statements
from streaming import assert_update, draw
from test_workloads_streaming import UPDATES, name_of, rng_of, updating
from tiers import tiered


def run(func: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the interpreter makes of the kernel of a function, which changes a pool in place."""
    kernel = emit(schedules.apply(func, "trn2"))
    for machine in ("trn1", "trn2", "trn3"):
        kernel.check(machine)
    given = {name: np.array(arrays[name]) for name in kernel.inputs}
    results = kernel(*given.values())
    y, state = (results, given["state"]) if "indices" in given else results
    return {**arrays, "y": y, "state": state}


@pytest.mark.parametrize("index", tiered(UPDATES, name_of))
def test_update(index: int) -> None:
    options = UPDATES[index]
    func = updating(options)
    arrays = draw(func, options, rng_of(options))
    before = {name: np.array(array) for name, array in arrays.items()}
    assert_update(run(func, arrays), before, options, name_of(options))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "more", [{}, {"activation": "silu"}, {"circular": True}, {"pool": 3}], ids=str
)
def test_a_sum_that_begins_with_its_bias(more: dict[str, Any], bias: bool) -> None:
    """Or with zero, where y is the sum itself."""
    options = {"n": 2, "c": 64, "f": 4, "bias": bias, **more}
    sch = Schedule(updating(options))
    if bias:
        assert sch.fuse_reduction_epilogue("conv").certificate.epilogues
    func = sch.mod["main"]
    arrays = draw(func, options, rng_of(options))
    before = {name: np.array(array) for name, array in arrays.items()}
    assert_update(run(func, arrays), before, options, name_of(options))


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


# ---- Circular states -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 8, 2048])
def test_a_ring_may_begin_anywhere(length: int) -> None:
    options = {"n": 6, "c": 2, "f": 2, "circular": True, "state_length": length}
    func = updating(options)
    arrays = draw(func, options, rng_of(length))
    arrays["positions"][:] = [0, length - 1, 2**31 - 1, 2**24 + 1, 65535, 65536 * 3 + 1]
    assert_update(run(func, arrays), arrays, options, str(length))


def test_one_step_of_a_ring_is_long_pieces() -> None:
    options = {"n": 1, "c": 4096, "f": 4, "circular": True}
    kernel = emit(schedules.apply(updating(options), "trn2"))
    assert kernel.source.count("dma_copy(") == 7
    assert kernel.predict("trn2").latency_ms < 0.010


def test_a_ring_that_is_too_long_is_refused() -> None:
    options = {"n": 1, "c": 2, "f": 2, "circular": True, "state_length": 2049}
    choice = StreamUpdate().choose(updating(options), "trn2")
    assert choice.schedule is None and "at most 2048 columns" in choice.why


# ---- Pools of states -----------------------------------------------------------------------------


def pooled(n: int = 3, c: int = 64, pool: int = 7) -> tuple[Any, dict[str, np.ndarray]]:
    options = {"n": n, "c": c, "f": 4, "pool": pool}
    func = updating(options)
    return func, draw(func, options, rng_of(options))


def test_the_states_of_other_streams_stay() -> None:
    func, arrays = pooled()
    state = run(func, arrays)["state"]
    others = [row for row in range(7) if row not in arrays["indices"]]
    np.testing.assert_array_equal(state[others], arrays["state"][others])
    assert (state[arrays["indices"]] != arrays["state"][arrays["indices"]]).any()


@pytest.mark.parametrize("index", [-1, 7])
def test_an_index_outside_of_the_pool_is_refused(index: int) -> None:
    func, arrays = pooled()
    arrays["indices"][1] = index
    kernel = emit(schedules.apply(func, "trn2"))
    with pytest.raises(KernelError, match=r"elements .* of 'state', which has 1344"):
        kernel(*(arrays[name] for name in kernel.inputs))


def test_one_step_with_a_pool_is_long_pieces_too() -> None:
    """One transfer more than without: that of the index."""
    kernel = emit(schedules.apply(pooled(1, 4096)[0], "trn2"))
    assert kernel.source.count("dma_copy(") == 7
    assert kernel.source.count("scalar_offset=indices_row[0:1, 0:1]") == 2
    for machine in ("trn1", "trn2"):
        assert kernel.predict(machine).latency_ms < 0.01


def test_a_pool_whose_indices_are_not_checked_to_differ_is_refused() -> None:
    func, _ = pooled()
    checked = statements(func.body.block.body)
    names = [str(each.body.body.block.name_hint) for each in checked[1:2]]
    assert names == ["check_distinct"]
    body = in_root(tirx.SeqStmt([checked[0], *checked[2:]]), func.body.block.alloc_buffers)
    choice = StreamUpdate().choose(func.with_body(body), "trn2")
    assert choice.schedule is None and "not checked to differ" in choice.why


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


# ---- Addresses that are read of a table ----------------------------------------------------------


def picked(read: Any = lambda table, n: table[n], distinct: bool | None = None) -> Any:
    """A kernel that copies some rows of a parameter, and may add 1 to them in place."""

    @T.prim_func(s_tir=True)
    def main(
        s: T.Buffer((4, 16, 8), "float32"),
        table: T.Buffer((3,), "int32"),
        y: T.Buffer((3, 16, 8), "float32"),
    ):
        for n in range(3):
            tile = T.sblock_alloc_buffer((16, 8), scope="trn.sbuf")
            for p in T.serial(16, annotations={"nki_dim": "P"}):
                for f in T.serial(8, annotations={"nki_dim": "F"}):
                    with T.sblock("loaded"):
                        vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                        tile[vp, vf] = s[read(table, vn), vp, vf]
            for p in T.serial(16, annotations={"nki_dim": "P"}):
                for f in T.serial(8, annotations={"nki_dim": "F"}):
                    with T.sblock("copied"):
                        vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                        y[vn, vp, vf] = tile[vp, vf]
            if distinct is not None:
                for p in T.serial(16, annotations={"nki_dim": "P"}):
                    for f in T.serial(8, annotations={"nki_dim": "F"}):
                        with T.sblock("stored"):
                            vn, vp, vf = T.axis.remap("SSS", [n, p, f])
                            T.sblock_attr({"nki_distinct": distinct})
                            s[read(table, vn), vp, vf] = tile[vp, vf]

    return main


def test_a_table_picks_rows() -> None:
    kernel = emit(picked())
    assert list(kernel.inputs) == ["s", "table"]
    kernel.check("trn1")
    s, table = np.arange(512).reshape(4, 16, 8).astype("float32"), np.int32([2, 0, 3])
    np.testing.assert_array_equal(kernel(s, table), s[table])
    assert emit(picked(distinct=True)).source.count("scalar_offset=table_row") == 2


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (lambda: picked(lambda table, n: table[n] + 1), "not read at one address of a table"),
        (lambda: picked(lambda table, n: table[n] * 2), "not read at one address of a table"),
        (lambda: picked(distinct=False), "two iterations of loop 'n' may touch"),
        (lambda: picked(lambda table, n: table[0], True), "two iterations of loop 'n' may touch"),
    ],
    ids=["the next row", "every second row", "not said to differ", "the same row"],
)
def test_a_table_that_picks_otherwise_is_refused(func: Any, why: str) -> None:
    with pytest.raises(EmitError, match=why):
        emit(func())
