"""Who has to wait for whom, and what is shared: against brute force."""

from __future__ import annotations

import random

import pytest

from fuse_epilogue.neuron.dependences import Dependences, pieces, written_once
from fuse_epilogue.neuron.resources import Bandwidth, Port, Space
from fuse_epilogue.neuron.trace import Access, BufferInfo
from neuron_steps import Builder, access


def elements(given: Access) -> set[tuple[int, int]]:
    """List (partition, element)."""
    found = [given.offset]
    for stride, count in given.pattern:
        found = [at + stride * i for at in found for i in range(count)]
    first, size = given.partitions or (0, 1)
    return {(p, at) for p in range(first, first + size) for at in found}


def test_pieces() -> None:
    assert pieces(((8, 2), (1, 3))) == ((0, 3), (8, 11))
    assert pieces(((1, 128), (1, 3))) == ((0, 130),)
    assert pieces(((0, 5), (1, 3))) == ((0, 3),)
    assert pieces(()) == ((0, 1),)
    assert pieces(((2, 3),)) == ((0, 1), (2, 3), (4, 5))
    assert pieces(((3, 2), (2, 2))) == ((0, 1), (2, 4), (5, 6))


def test_what_is_written_once_keeps_nobody_waiting() -> None:
    """Rows of a result that are disjoint; not those written twice or after a read, or on a chip."""
    build = Builder()
    once, twice, read, again = (build.buffer("hbm", (64,)) for _ in range(4))
    tile = build.buffer("sbuf", (4, 8))

    def rows(buffer: BufferInfo, offset: int) -> Access:
        return access(buffer, offset, ((16, 4), (1, 8)))

    for buffer, offset in ((once, 0), (once, 8), (twice, 0), (twice, 7), (read, 0), (again, 0)):
        build.step("dma_copy", "dma", rows(buffer, offset), access(tile))
    for buffer in (read, again):
        build.step("dma_copy", "dma", access(tile), rows(buffer, 0))
    build.step("dma_copy", "dma", rows(again, 8), access(tile))
    assert written_once(build.trace.steps) == {once.id: False, read.id: True}


def test_too_many_pieces_become_one() -> None:
    assert pieces(((2, 5000),)) == ((0, 9999),)


@pytest.mark.parametrize("seed", range(60))
def test_dependences(seed: int) -> None:
    """What is found is a conflict; everything in conflict is waited for, at least indirectly."""
    rng = random.Random(seed)
    build = Builder()
    buffers = [build.buffer("sbuf", (4, 24)), build.buffer("hbm", (60,))]
    dependences = Dependences({})
    done: list[tuple[int, Access | None, list[Access]]] = []
    behind: list[set[int]] = []  # what is certainly over when an instruction starts

    def some() -> Access:
        buffer = rng.choice(buffers)
        first = rng.randrange(4)
        rows = (first, rng.randint(1, 4 - first)) if buffer.space == "sbuf" else None
        pattern = rng.choice(
            [((1, 3),), ((1, 1),), ((2, 4),), ((6, 2), (1, 4)), ((0, 3), (1, 2)), ((1, 5), (1, 3))]
        )
        room = 24 - sum(stride * (count - 1) for stride, count in pattern)
        return access(buffer, rng.randrange(room), pattern, rows)

    for index in range(60):
        queue = rng.randrange(3)
        srcs = [some() for _ in range(rng.randrange(3))]
        dst = some() if rng.random() < 0.7 else None
        found: set[int] = set()
        for each in srcs:
            dependences.of_read(each, found)
        if dst is not None:
            dependences.of_write(dst, found)
        found.discard(-1)
        before = {i for i, (other, _, _) in enumerate(done) if other == queue} | found
        behind.append(before.union(*(behind[i] for i in before)))

        def conflict(earlier: int, dst: Access | None = dst, srcs: list[Access] = srcs) -> bool:
            _, wrote, read = done[earlier]
            pairs = [(wrote, each) for each in srcs] + [(dst, each) for each in read]
            return any(
                one is not None and two.buffer == one.buffer and elements(one) & elements(two)
                for one, two in [*pairs, (wrote, dst)]
                if two is not None
            )

        assert all(conflict(i) for i in found)
        assert {i for i in range(index) if conflict(i)} <= behind[index]
        for each in srcs:
            dependences.read(each, queue, index)
        if dst is not None:
            dependences.wrote(dst, index)
        done.append((queue, dst, srcs))


def test_transfers_one_after_the_other() -> None:
    shared = Bandwidth()
    assert shared.take(0.0, 2.0, 1.0) == (0.0, 2.0)
    assert shared.take(1.0, 2.0, 1.0) == (2.0, 4.0)
    assert shared.take(6.0, 1.0, 1.0) == (6.0, 7.0)
    assert shared.take(3.0, 2.5, 1.0) == (4.0, 7.5)  # around the one from 6 to 7


def test_transfers_that_leave_something() -> None:
    shared = Bandwidth()
    assert shared.take(0.0, 1.0, 0.25) == (0.0, 4.0)
    assert shared.take(0.0, 3.0, 1.0) == (0.0, 4.0)
    assert shared.take(0.0, 1.0, 0.5) == (4.0, 6.0)


@pytest.mark.parametrize("seed", range(20))
def test_no_bandwidth_is_lost_or_invented(seed: int) -> None:
    rng = random.Random(seed)
    shared = Bandwidth()
    total = 0.0
    for _ in range(200):
        seconds, share = rng.uniform(0.1, 2.0), rng.choice([0.25, 0.5, 1.0])
        ready = rng.uniform(0.0, 50.0)
        start, end = shared.take(ready, seconds, share)
        assert ready <= start and end - start >= seconds / share - 1e-9
        total += seconds
    assert all(-1e-9 <= part <= 1 + 1e-9 for part in shared.taken)
    assert shared.times == sorted(shared.times) and shared.taken[-1] == 0.0
    lengths = [b - a for a, b in zip(shared.times, shared.times[1:], strict=False)]
    used = sum(length * part for length, part in zip(lengths, shared.taken, strict=False))
    assert used == pytest.approx(total)


def test_port() -> None:
    port = Port("vector", "gpsimd")
    port.take("vector", 1.0, 3.0)
    port.take("vector", 4.0, 6.0)
    assert port.first("vector", 1.0, 5.0) == 1.0
    assert port.first("gpsimd", 0.0, 1.0) == 0.0
    assert port.first("gpsimd", 0.5, 1.0) == 3.0
    assert port.first("gpsimd", 0.5, 1.5) == 6.0


def test_space() -> None:
    space = Space(100, 1)
    assert space.allocate(60) == 0.0
    space.release(60, 5.0)
    assert space.allocate(40) == 0.0
    assert space.allocate(50) == 5.0
    assert space.allocate(10) == 5.0  # what the first one left over
    banks = Space(4, 2)
    assert [banks.allocate(1), banks.allocate(1)] == [0.0, 0.0]
    banks.release(1, 7.0)
    assert banks.allocate(1) == 7.0
    assert Space(10, 1).allocate(99) == 0.0
