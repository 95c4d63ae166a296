"""Dependences between instructions: one waits for earlier ones that touch the same elements.

A read waits for the last write (RAW), a write for the last write and for the reads since then (WAW,
WAR). Later instructions need not wait again for accesses that a write has waited for. The elements
of a buffer are kept as intervals with the same history, so that an instruction looks at as many of
them as it touches and not at all earlier instructions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from .trace import Access, Step

#: An access with more pieces than this counts as everything from its first to its last element.
MOST_PIECES = 1024

Pieces = tuple[tuple[int, int], ...]

_pieces: dict[tuple[tuple[int, int], ...], Pieces] = {}


def pieces(pattern: tuple[tuple[int, int], ...]) -> Pieces:
    """Return the intervals that a pattern covers, as (start, end) from its first element.

    - `pattern`: (stride, count) of each dimension, as in `Access.pattern`.
    - Returns: ascending and disjoint. ``((8, 2), (1, 3))`` gives ``((0, 3), (8, 11))``.
    """
    found = _pieces.get(pattern)
    if found is not None:
        return found
    run = 1
    starts = [0]
    for stride, count in sorted(pattern):
        if len(starts) == 1 and stride <= run:
            run += stride * (count - 1)
        elif len(starts) * count <= MOST_PIECES:
            starts = [start + stride * i for i in range(count) for start in starts]
        else:
            run, starts = 1 + sum(stride * (count - 1) for stride, count in pattern), [0]
            break
    joined: list[tuple[int, int]] = []
    for start in sorted(set(starts)):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], start + run)
        else:
            joined.append((start, start + run))
    result = _pieces[pattern] = tuple(joined)
    return result


#: The last write of some elements, and for each queue the last read since then.
History = tuple[int, dict[int, int]]


class Intervals:
    """Accesses to the elements of one buffer in one range of partitions."""

    def __init__(self) -> None:
        # The history i belongs to the elements from starts[i] to starts[i + 1].
        self.starts = [0]
        self.histories: list[History] = [(-1, {})]

    def cut(self, at: int) -> int:
        """Let an interval start at an element and return its place."""
        place = bisect_left(self.starts, at)
        if place == len(self.starts) or self.starts[place] != at:
            self.starts.insert(place, at)
            writer, readers = self.histories[place - 1]
            self.histories.insert(place, (writer, dict(readers)))
        return place

    def touched(self, start: int, end: int) -> list[History]:
        """Return the histories of the elements from `start` up to `end`."""
        first = bisect_right(self.starts, start) - 1
        return self.histories[first : bisect_left(self.starts, end)]

    def read(self, start: int, end: int, queue: int, index: int) -> None:
        """Note that an instruction reads these elements."""
        first = self.cut(start)
        for _, readers in self.histories[first : self.cut(end)]:
            readers[queue] = index

    def write(self, start: int, end: int, index: int) -> None:
        """Note that an instruction writes these elements."""
        first = bisect_left(self.starts, start)
        last = bisect_left(self.starts, end, first)
        starts: list[int] = [start]
        histories: list[History] = [(index, {})]
        if last == len(self.starts) or self.starts[last] != end:
            # Elements after the end keep their history.
            writer, readers = self.histories[last - 1]
            starts.append(end)
            histories.append((writer, readers.copy()))
        self.starts[first:last] = starts
        self.histories[first:last] = histories


def written_once(steps: Iterable[Step]) -> dict[int, bool]:
    """Return the buffers in HBM that are first written, no element twice, then at most read.

    By their ids, with whether they are read. No write waits for anybody there, and no read is
    waited for. As the rows of a tile are distant in a result, there are more intervals in such a
    buffer than in all others.
    """
    writes: dict[int, list[Access]] = {}
    read: set[int] = set()
    again: set[int] = set()
    for step in steps:
        read.update(access.buffer.id for access in step.srcs)
        for access in step.written:
            if access.buffer.space != "hbm":
                continue
            writes.setdefault(access.buffer.id, []).append(access.physical)
            if access.buffer.id in read:
                again.add(access.buffer.id)
    arrays: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    found = {}
    for buffer, accesses in writes.items():
        if buffer in again:
            continue
        for access in accesses:
            if access.pattern not in arrays:
                arrays[access.pattern] = np.array(pieces(access.pattern), np.int64)
        spans = np.concatenate([arrays[a.pattern] + a.offset for a in accesses])
        spans = spans[np.argsort(spans[:, 0])]
        if (spans[1:, 0] >= spans[:-1, 1]).all():
            found[buffer] = buffer in read
    return found


class Dependences:
    """The history of all buffers, queried and updated in program order.

    - `once`: buffers of which less is kept: see :func:`written_once`.
    """

    def __init__(self, once: Mapping[int, bool]) -> None:
        self.once = once
        self.buffers: dict[int, dict[tuple[int, int], Intervals]] = {}

    def of_read(self, access: Access, found: set[int]) -> None:
        """Add to `found` the instructions that have written what is read."""
        if access.buffer.kind == "input":
            return  # Nothing writes to it.
        access = access.physical
        for intervals, start, end in self._known(access):
            for writer, _ in intervals.touched(start, end):
                found.add(writer)

    def of_write(self, access: Access, found: set[int]) -> None:
        """Add to `found` the instructions that have written or read what is written."""
        access = access.physical
        if access.buffer.id in self.once:
            return
        for intervals, start, end in self._known(access):
            for writer, readers in intervals.touched(start, end):
                found.add(writer)
                found.update(readers.values())

    def read(self, access: Access, queue: int, index: int) -> None:
        """Note that instruction `index` reads, as one of a queue that works in order."""
        if access.buffer.kind == "input" or access.buffer.id in self.once:
            return
        access = access.physical
        intervals = self._own(access)
        for start, end in pieces(access.pattern):
            intervals.read(access.offset + start, access.offset + end, queue, index)

    def wrote(self, access: Access, index: int) -> None:
        """Note that instruction `index` writes."""
        if not self.once.get(access.buffer.id, True):
            return  # no step reads it
        access = access.physical
        intervals = self._own(access)
        for start, end in pieces(access.pattern):
            intervals.write(access.offset + start, access.offset + end, index)

    def forget(self, buffer: int) -> None:
        """Drop a buffer that is no longer used."""
        self.buffers.pop(buffer, None)

    def _own(self, access: Access) -> Intervals:
        ranges = self.buffers.setdefault(access.buffer.id, {})
        key = access.partitions or (0, 1)
        if key not in ranges:
            ranges[key] = Intervals()
        return ranges[key]

    def _known(self, access: Access) -> Iterator[tuple[Intervals, int, int]]:
        ranges = self.buffers.get(access.buffer.id)
        if ranges is None:
            return
        first, count = access.partitions or (0, 1)
        for (start, size), intervals in ranges.items():
            if start < first + count and first < start + size:
                for low, high in pieces(access.pattern):
                    yield intervals, access.offset + low, access.offset + high
