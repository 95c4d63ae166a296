"""One instruction costs what the documentation says, whatever its operands."""

from __future__ import annotations

import pytest

from fuse_epilogue.neuron.costs import TABLE, cycles, piece_seconds, transfer
from fuse_epilogue.neuron.machine import MACHINES, TRN1, TRN2, TRN3, Machine, machine
from fuse_epilogue.neuron.trace import Access, Step
from neuron_steps import Builder, access


def operand(place: str, count: int, stride: int = 1) -> Access:
    """Make a [128, count] tile; `place` is "sbuf" or "psum", with "16" behind it for bfloat16."""
    dtype = "bfloat16" if place.endswith("16") else "float32"
    built = Builder().buffer(place.removesuffix("16"), (128, count * stride), dtype)
    return access(built, pattern=((stride, count),))


def step(op: str, engine: str, places: str, count: int = 2048, stride: int = 1) -> Step:
    """Make an instruction from the places of its sources and its destination."""
    *srcs, dst = [operand(place, count, stride) for place in places.split()]
    return Step(0, op, engine, 7, dst, tuple(srcs), {})


@pytest.mark.parametrize(
    ("op", "places", "trn1", "trn2"),
    [
        ("tensor_scalar", "sbuf sbuf", 2048, 2048),
        ("tensor_scalar", "sbuf16 sbuf16", 2048, 512),
        ("tensor_scalar", "sbuf16 sbuf", 2048, 2048),
        ("tensor_copy", "psum16 sbuf16", 2048, 2048),
        ("memset", "sbuf16", 2048, 512),
        ("tensor_tensor", "sbuf sbuf sbuf", 4096, 4096),
        ("tensor_tensor", "sbuf psum sbuf", 2048, 2048),
        ("tensor_tensor", "sbuf16 sbuf16 sbuf16", 2048, 2048),
        ("tensor_tensor", "sbuf16 sbuf16 sbuf", 4096, 4096),
        ("scalar_tensor_tensor", "sbuf sbuf sbuf", 4096, 4096),
        ("scalar_tensor_tensor", "sbuf psum sbuf", 4096, 4096),
        ("scalar_tensor_tensor", "sbuf16 sbuf16 sbuf16", 4096, 4096),
        ("tensor_reduce", "sbuf sbuf", 2048, 2048),
        ("activation", "sbuf psum", 2048, 2048),
    ],
)
def test_elements(op: str, places: str, trn1: int, trn2: int) -> None:
    given = step(op, "vector", places)
    assert cycles(given, TRN1) == trn1 + 60
    assert cycles(given, TRN2) == trn2 + 60


def test_gaps_are_not_read_faster() -> None:
    assert cycles(step("tensor_scalar", "vector", "sbuf16 sbuf16", stride=2), TRN2) == 2048 + 60


def test_no_instruction_is_shorter_than_the_interval() -> None:
    assert cycles(step("tensor_scalar", "vector", "sbuf sbuf", count=3), TRN1) == 64
    assert cycles(step("tensor_scalar", "vector", "sbuf sbuf", count=5), TRN1) == 65


def test_published_instructions() -> None:
    """Autocomp's profile: 65.6 and 70.4 cycles in step 5, 0.2 ms for 512 of each in step 6."""
    build = Builder()
    window, filters = build.buffer("sbuf", (128, 3)), build.buffer("psum", (128, 3))
    product, four = build.buffer("sbuf", (128, 3)), build.buffer("sbuf", (128, 4, 3))
    multiply = Step(
        0, "tensor_tensor", "vector", 1, access(product), (access(window), access(filters)), {}
    )
    total = Step(1, "tensor_reduce", "vector", 1, operand("sbuf", 4), (access(four),), {})
    assert cycles(multiply, TRN1) == pytest.approx(65.6, rel=0.03)
    assert cycles(total, TRN1) == pytest.approx(70.4, rel=0.03)
    wide = step("tensor_reduce", "vector", "sbuf sbuf", count=384)
    assert cycles(wide, TRN1) * 512 / 1.12e6 == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(
    ("dtype", "stationary", "moving", "expected"),
    [
        ("bfloat16", 128, 512, 512),
        ("float32", 128, 512, 4 * 512),
        ("bfloat16", 128, 16, 64),
        ("bfloat16", 32, 16, 32),
        ("float32", 32, 16, 4 * 32),
    ],
)
def test_matmul(dtype: str, stationary: int, moving: int, expected: int) -> None:
    build = Builder()
    left, right = (build.buffer("sbuf", (128, count), dtype) for count in (stationary, moving))
    out = build.buffer("psum", (stationary, moving))
    given = Step(0, "nc_matmul", "tensor", 1, access(out), (access(left), access(right)), {})
    assert cycles(given, TRN1) == max(64, expected + 60)


def test_an_instruction_without_a_row() -> None:
    with pytest.raises(ValueError, match=r"line 7: no cost is known for rng on trn1"):
        cycles(step("rng", "gpsimd", "sbuf"), TRN1)


def test_each_row_has_its_source() -> None:
    assert all(row.source and row.machines for row in TABLE)


def test_machines() -> None:
    assert machine("trn2") is TRN2
    assert machine(TRN1) is TRN1
    with pytest.raises(ValueError, match="no machine 'trn9', only 'trn1', 'trn2', 'trn3'"):
        machine("trn9")
    assert [m.sbuf_bytes * m.partitions for m in MACHINES.values()] == [
        24 << 20,
        28 << 20,
        32 << 20,
    ]


def copy(shape: tuple[int, ...], to: str, dtype: str = "float32") -> Step:
    """Make a load of a [128, n] tile, or with ``to="hbm"`` a copy within HBM."""
    build = Builder()
    source, target = build.buffer("hbm", shape, dtype), build.buffer(to, shape, dtype)
    return Step(0, "dma_copy", "dma", 1, access(target), (access(source),), {})


def test_transfers_at_full_rate() -> None:
    size = 128 * 2048 * 4
    cost = transfer(copy((128, 2048), "sbuf"), TRN1)
    assert cost.seconds == pytest.approx(size / 272e9)
    assert (cost.share, cost.hbm_read, cost.hbm_written) == (1.0, size, 0)


def test_the_memory_may_be_the_limit() -> None:
    size = 128 * 2048 * 4
    assert transfer(copy((128, 2048), "sbuf"), TRN2).seconds == pytest.approx(size / 362e9)
    both = transfer(copy((128, 2048), "hbm"), TRN1)
    assert both.seconds == pytest.approx(2 * size / 410e9)
    assert (both.hbm_read, both.hbm_written) == (size, size)


@pytest.mark.parametrize(
    ("machine", "size", "ns"),
    [
        (TRN1, 256, 13 + 256 / 27.2),
        (TRN1, 1024, 1024 / 17),
        (TRN2, 512, 13 + 512 / 27.2),
        (TRN2, 8192, 8192 / 23),
        (TRN3, 2048, 13 + 2048 / 38.4),
        (TRN3, 4096, 4096 / 33),
    ],
)
def test_a_piece_takes_its_bytes_or_those_and_a_fixed_time(
    machine: Machine, size: int, ns: float
) -> None:
    assert piece_seconds(size, machine) * 1e9 == pytest.approx(ns)


def test_published_pieces() -> None:
    """Profiles of AWS's guides on trn2: 31 to 34 ns, about 90, and 32 KiB in four in 1416 ns."""
    assert 31 <= piece_seconds(512, TRN2) * 1e9 <= 34
    assert piece_seconds(2048, TRN2) * 1e9 == pytest.approx(90, rel=0.02)
    assert 4 * piece_seconds(8192, TRN2) * 1e9 == pytest.approx(1416, rel=0.01)


def test_a_transfer_of_small_pieces() -> None:
    cost = transfer(copy((128, 64), "sbuf"), TRN1)
    assert cost.seconds == pytest.approx(128 / 16 * piece_seconds(256, TRN1))


def test_at_the_slow_end_small_pieces_take_as_long_as_efficient_ones() -> None:
    slow = TRN1.slowest()
    assert transfer(copy((128, 3), "sbuf"), slow).seconds == pytest.approx(128 * 2048 / 272e9)
    assert transfer(copy((128, 512), "sbuf"), slow).seconds == pytest.approx(128 * 2048 / 272e9)
    assert piece_seconds(8192, slow) == piece_seconds(8192, TRN1)


def test_at_the_fast_end_the_memory_is_the_limit() -> None:
    size = 128 * 2048 * 4
    assert transfer(copy((128, 2048), "sbuf"), TRN1.quickest()).seconds == pytest.approx(
        size / 410e9
    )


def test_few_pieces_leave_engines_idle() -> None:
    assert transfer(copy((4, 2048), "sbuf"), TRN1).share == 4 / 16
    assert transfer(copy((1, 65536), "hbm"), TRN1).share == 1.0
