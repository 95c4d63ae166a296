"""Kernels of a few instructions: the times can be computed by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from calls import calls
from fuse_epilogue.neuron.machine import TRN1, TRN2
from fuse_epilogue.neuron.model import predict
from fuse_epilogue.neuron.trace import BufferInfo
from neuron_steps import Builder, access

SHAPE = (128, 2048)
LOAD = 128 * 2048 * 4 / 272e9  # seconds
START = 1.3e-6
SCALAR, VECTOR = 2108 / 1.4e9, 2108 / 1.12e9
#: 100 cycles of the engine that waits
ON_SCALAR, ON_VECTOR = 100 / 1.4e9, 100 / 1.12e9


def tiles(build: Builder, count: int, space: str = "sbuf") -> list[BufferInfo]:
    return [build.buffer(space, SHAPE) for _ in range(count)]


def activation(build: Builder, dst: BufferInfo, src: BufferInfo) -> None:
    build.step("activation", "scalar", access(dst), access(src))


def scale(build: Builder, dst: BufferInfo, src: BufferInfo, engine: str = "vector") -> None:
    build.step("tensor_scalar", engine, access(dst), access(src))


def load(build: Builder, tile: BufferInfo) -> None:
    build.step("dma_copy", "dma", access(tile), access(build.buffer("hbm", SHAPE)))


def store(build: Builder, tile: BufferInfo) -> None:
    build.step("dma_copy", "dma", access(build.buffer("hbm", SHAPE)), access(tile))


def starts(build: Builder, machine: str = "trn1") -> list[float]:
    return list(predict(build.trace, machine).start)


def test_engines_work_in_parallel() -> None:
    build = Builder()
    a, b, c, d = tiles(build, 4)
    activation(build, b, a)
    scale(build, d, c)
    prediction = predict(build.trace)
    assert list(prediction.start) == [0.0, 0.0]
    assert prediction.latency_ms == pytest.approx(max(SCALAR, VECTOR) * 1e3)
    assert prediction.busy_ms["scalar"] == pytest.approx(SCALAR * 1e3)


def test_an_engine_works_in_order() -> None:
    build = Builder()
    a, b, c, d = tiles(build, 4)
    scale(build, b, a)
    scale(build, d, c)
    scale(build, d, b)
    assert starts(build) == pytest.approx([0.0, VECTOR, 2 * VECTOR])


@pytest.mark.parametrize("kind", ["RAW", "WAR", "WAW"])
def test_dependences(kind: str) -> None:
    build = Builder()
    a, b, c, d = tiles(build, 4)
    activation(build, b, a)
    dst, src = {"RAW": (c, b), "WAR": (a, c), "WAW": (b, c)}[kind]
    scale(build, dst, src)
    scale(build, d, c)
    first = SCALAR + ON_VECTOR
    assert starts(build) == pytest.approx([0.0, first, first + VECTOR])


def test_other_columns_are_no_dependence() -> None:
    build = Builder()
    a, b, c, _ = tiles(build, 4)
    build.step("activation", "scalar", access(b, 0, ((1, 1024),)), access(a, 0, ((1, 1024),)))
    build.step("tensor_scalar", "vector", access(c, 0, ((1, 1024),)), access(b, 1024, ((1, 1024),)))
    assert starts(build) == [0.0, 0.0]


def test_transfers() -> None:
    build = Builder()
    a, b, c = tiles(build, 3)
    load(build, a)
    load(build, b)
    scale(build, c, b)
    store(build, c)
    computed = START + 2 * LOAD + ON_VECTOR
    expected = [START, START + LOAD, computed, computed + VECTOR + START]
    prediction = predict(build.trace)
    assert list(prediction.start) == pytest.approx(expected)
    assert prediction.latency_ms == pytest.approx((expected[-1] + LOAD) * 1e3)
    assert prediction.dma_busy_ms == pytest.approx(3 * LOAD * 1e3)
    assert (prediction.hbm_read, prediction.hbm_written) == (2 << 20, 1 << 20)


def test_loads_go_on_while_a_store_waits() -> None:
    build = Builder()
    a, b, c = tiles(build, 3)
    load(build, a)
    scale(build, c, a)
    store(build, c)
    load(build, b)
    first = START + LOAD
    stored = first + ON_VECTOR + VECTOR + START
    assert starts(build) == pytest.approx([START, first + ON_VECTOR, stored, first])
    # The load has what the store leaves: it ends as if the store had come behind it.
    end = predict(build.trace).end
    assert end[2] == pytest.approx(stored + LOAD)
    assert end[3] == pytest.approx(first + 2 * LOAD)


def test_descriptors_on_trn2() -> None:
    build = Builder()
    for _ in range(2):
        tile = build.buffer("sbuf", (128, 3))
        build.step("dma_copy", "dma", access(tile), access(build.buffer("hbm", (128, 3))))
    # The descriptors of the second transfer are made while the first one is under way.
    assert starts(build, "trn2") == pytest.approx([1.9e-6, 2.5e-6])
    slow = dataclasses.replace(TRN2, dma_least_bytes=2048)
    assert list(predict(build.trace, slow).start) == pytest.approx(
        [1.9e-6, 1.9e-6 + 128 * 2048 / 368e9]
    )


def test_the_range_of_an_engine() -> None:
    """From the elements alone to what overlaps badly."""
    build = Builder()
    a, b = tiles(build, 2)
    scale(build, b, a)
    prediction = predict(build.trace)
    assert prediction.range_ms == pytest.approx((2048 / 1.12e6, 1.4 * VECTOR * 1e3))
    assert prediction.range_ms[0] < prediction.latency_ms < prediction.range_ms[1]


@pytest.mark.parametrize(("columns", "seconds"), [(2048, LOAD), (64, 128 * 2048 / 272e9)])
def test_the_range_of_transfers(columns: int, seconds: float) -> None:
    """From the bandwidth of HBM to that of the guide, and to 2 KiB for each short piece."""
    build = Builder()
    for _ in range(100):
        tile = build.buffer("sbuf", (128, columns))
        build.step("dma_copy", "dma", access(tile), access(build.buffer("hbm", (128, columns))))
    least, most = predict(build.trace).range_ms
    assert most == pytest.approx(1.4e5 * seconds)
    at_hbm = 1e5 * 128 * columns * 4 / 410e9
    in_pieces = 1e5 * 8 * (13e-9 + columns * 4 / 27.2e9)
    assert least == pytest.approx(START * 1e3 + max(at_hbm, in_pieces))


def test_at_the_least_nothing_waits_for_space() -> None:
    build = Builder()
    for _ in range(3):
        tile, out = tiles(build, 2)
        load(build, tile)
        scale(build, out, tile)
    few = dataclasses.replace(TRN1, sbuf_bytes=2 * 8192)
    assert predict(build.trace, few).latency_ms > 1.4 * predict(build.trace).latency_ms
    assert predict(build.trace, few).range_ms[0] == predict(build.trace).range_ms[0]


def test_as_many_tiles_as_there_is_space() -> None:
    build = Builder()
    for _ in range(3):
        tile, out = tiles(build, 2)
        load(build, tile)
        for _ in range(3):
            scale(build, out, tile)
    few = dataclasses.replace(TRN1, sbuf_bytes=3 * 8192)
    prediction = predict(build.trace, few)
    # Both tiles of the first round and one of the second fit; the others wait for the first round.
    over = START + LOAD + ON_VECTOR + 3 * VECTOR
    assert prediction.start[4] == pytest.approx(START + LOAD)
    assert prediction.start[5] == pytest.approx(over + ON_VECTOR)
    assert prediction.start[8] == pytest.approx(over + START)
    assert prediction.sbuf_peak == 2 * 8192
    assert predict(build.trace).start[8] == pytest.approx(START + 2 * LOAD)


@pytest.mark.parametrize(
    ("one", "other", "space"), [("vector", "gpsimd", "sbuf"), ("vector", "scalar", "psum")]
)
def test_turns(one: str, other: str, space: str) -> None:
    build = Builder()
    shape = (128, 512)
    a, b, c, d = (build.buffer(space, shape) for _ in range(4))
    build.step("tensor_copy", one, access(b), access(a))
    build.step("tensor_copy", other, access(d), access(c))
    assert starts(build, "trn1") == pytest.approx([0.0, 572 / 1.12e9])
    assert starts(build, "trn2") == [0.0, 0.0]


def test_report() -> None:
    build = Builder()
    a, b, _ = tiles(build, 3)
    for _ in range(9):
        scale(build, b, a)
    prediction = predict(build.trace)
    text = str(prediction)
    assert text.startswith("predicted 16.9 us for by_hand on trn1 (NeuronCore-v2)")
    assert "  16.5 to 23.7 us by what the documents leave open" in text.splitlines()
    assert "9 tensor_scalar" in text
    assert prediction.bound_by == "vector"
    long = str(dataclasses.replace(prediction, latency_ms=2.5)).splitlines()
    assert long[0].startswith("predicted 2.5000 ms for by_hand") and "busy ms" in long[2]
    assert prediction.utilisation["vector"] == pytest.approx(1.0)
    assert prediction.op_ms == {"tensor_scalar": pytest.approx(9 * VECTOR * 1e3)}


def test_nothing_to_do() -> None:
    prediction = predict(Builder().trace)
    assert prediction.latency_ms == 0.0
    assert str(prediction).startswith("predicted 0.0 us")


def test_timeline(tmp_path: Path) -> None:
    build = Builder()
    a, b, _ = tiles(build, 3)
    load(build, a)
    activation(build, b, a)
    store(build, b)
    prediction = predict(build.trace)
    prediction.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    boxes = [(names[e["tid"]], e["name"], e["ts"]) for e in events if e["ph"] == "X"]
    assert [(track, op) for track, op, _ in boxes] == [
        ("dma in", "dma_copy"),
        ("scalar", "activation"),
        ("dma out", "dma_copy"),
    ]
    assert [at for _, _, at in boxes] == pytest.approx(
        [s * 1e6 for s in prediction.start], abs=1e-3
    )
    assert any("predicted by_hand on trn1" in str(e["args"]) for e in events if e["ph"] == "M")


def test_picture(tmp_path: Path) -> None:
    build = Builder()
    a, b, _ = tiles(build, 3)
    for _ in range(5000):
        scale(build, b, a)
    activation(build, a, b)
    predict(build.trace).plot(tmp_path / "one.svg")
    predict(build.trace).plot(tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    root = ElementTree.fromstring(text)
    titles = [box.text for box in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["tensor_scalar", "activation"]
    assert "predicted" in text


def many(tiles_of_output: int, columns: int) -> Builder:
    """Two instructions on few elements for each column of the output."""
    build = Builder()
    for _ in range(tiles_of_output):
        x, y = tiles(build, 2)
        load(build, x)
        for column in range(columns):
            for _ in range(2):
                product = build.buffer("sbuf", (128, 3))
                window = access(x, min(column, 2045), ((1, 3),))
                build.step("tensor_tensor", "vector", access(product), window, window)
                single = access(y, column, ())
                build.step("tensor_reduce", "vector", single, access(product))
        store(build, y)
    return build


@pytest.mark.parametrize("more", [(1, 1000), (2, 500)], ids=str)
def test_what_an_instruction_costs_is_constant(more: tuple[int, int]) -> None:
    """However many columns of a tile were written before it, and however many tiles."""
    build, twice = many(1, 500), many(*more)
    assert len(twice.trace.steps) >= 2 * len(build.trace.steps) - 2
    few = calls(lambda: predict(build.trace))
    assert calls(lambda: predict(twice.trace)) < 2.1 * few
