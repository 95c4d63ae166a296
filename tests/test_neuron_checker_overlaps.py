"""Whether two accesses share an element, against sets of elements."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from fuse_epilogue.neuron.trace import Access, BufferInfo, merged
from fuse_epilogue.neuron.written import Written

Elements = set[tuple[int, ...]]


def drawn_box(rng: random.Random, buffer: BufferInfo) -> tuple[Access, Elements]:
    """Slices with steps, and what is in them."""
    free = buffer.shape if buffer.space == "hbm" else buffer.shape[1:]
    offset, pattern, ranges = 0, [], []
    for size, stride in zip(free, buffer.strides, strict=True):
        start, step = rng.randrange(size), rng.choice([1, 1, 2, 3])
        count = rng.randrange(1, (size - 1 - start) // step + 2)
        offset += start * stride
        pattern.append((step * stride, count))
        ranges.append(range(start, start + step * count, step))
    partitions = None
    if buffer.space != "hbm":
        first = rng.randrange(buffer.shape[0])
        partitions = (first, rng.randrange(1, buffer.shape[0] - first + 1))
        ranges.insert(0, range(first, sum(partitions)))
    access = Access(buffer, offset, merged(tuple(pattern)), partitions, buffer.dtype)
    return access, set(itertools.product(*ranges))


@pytest.mark.parametrize("space", ["hbm", "sbuf"])
def test_boxes(space: str) -> None:
    rng = random.Random(3)
    answers = []
    for _ in range(4000):
        shape = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.choice([2, 3, 4])))
        buffer = BufferInfo(0, "b", space, shape, "float32", 1, "temporary")
        (one, mine), (two, theirs) = drawn_box(rng, buffer), drawn_box(rng, buffer)
        assert one.elements == len(mine) and one.bytes == 4 * len(mine)
        assert one.overlaps(two) == two.overlaps(one) == bool(mine & theirs)
        answers.append(bool(mine & theirs))
        # What was written, and the first element that was not.
        written = Written()
        written.write(one)
        missing = written.read(two)
        if theirs <= mine:
            assert missing is None
        else:
            assert missing == f"b[{', '.join(map(str, min(theirs - mine)))}]"
    assert 500 < sum(answers) < 3500


def test_patterns_never_miss_an_overlap() -> None:
    rng = random.Random(4)
    buffer = BufferInfo(0, "b", "sbuf", (128, 4, 6), "bfloat16", 1, "temporary")
    exact = 0
    for _ in range(4000):
        drawn = []
        for _ in range(2):
            pattern = [(rng.randrange(8), rng.randrange(1, 4)) for _ in range(rng.randrange(1, 4))]
            reach = sum(stride * (count - 1) for stride, count in pattern)
            if reach >= 24:
                break
            offset = rng.randrange(24 - reach)
            places = itertools.product(*[range(0, s * n, s) if s else [0] * n for s, n in pattern])
            access = Access(buffer, offset, merged(tuple(pattern)), (0, 128), "bfloat16")
            drawn.append((access, {offset + sum(place) for place in places}))
        if len(drawn) == 2:
            (one, mine), (two, theirs) = drawn
            assert one.last == max(mine)
            assert one.overlaps(two) or not mine & theirs
            exact += one.overlaps(two) == bool(mine & theirs)
    assert exact > 1000


def test_runs() -> None:
    buffer = BufferInfo(0, "b", "hbm", (4, 8, 16), "float32", 1, "input")
    whole = Access.all_of(buffer)
    assert whole.pattern == ((1, 512),)
    assert (whole.contiguous_run, whole.bytes) == (2048, 2048)
    part = Access(buffer, 3, merged(((128, 4), (16, 8), (1, 5))), None, "float32")
    assert part.pattern == ((16, 32), (1, 5))
    assert (part.contiguous_run, part.elements) == (20, 160)
    column = Access(buffer, 3, ((16, 32),), None, "float32")
    assert column.contiguous_run == 4
    other = BufferInfo(1, "c", "hbm", (4, 8, 16), "float32", 1, "input")
    assert not whole.overlaps(Access.all_of(other))
    assert np.prod(buffer.shape) == whole.free_elements
