"""Liveness: the space in SBUF and PSUM that is in use at each instruction."""

from __future__ import annotations

from dataclasses import dataclass

from .trace import Access, BufferInfo, Step, Trace


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that is in use of one memory.

    - `units`: bytes of a partition in SBUF, banks in PSUM.
    - `step`: the first instruction at which that much is in use; None if nothing ever is.
    - `live`: buffers in use then, largest first.
    """

    units: int
    step: Step | None
    live: tuple[BufferInfo, ...]


def peak(trace: Trace, space: str, unit: int) -> Peak:
    """Return the peak of a memory, tensors in use from their first write to their last read.

    Every tensor takes its bytes in all partitions, however few it has.

    - `trace`: a walk.
    - `space` ({"sbuf", "psum"}): the memory.
    - `unit`: bytes that are given out at once.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in trace.steps:
        for access in accesses(step):
            if access.buffer.space == space:
                first.setdefault(access.buffer.id, step.index)
                last[access.buffer.id] = step.index
    begin: dict[int, list[int]] = {}
    for buffer, index in first.items():
        begin.setdefault(index, []).append(buffer)
    end: dict[int, list[int]] = {}
    for buffer, index in last.items():
        end.setdefault(index, []).append(buffer)
    size = {b: -(-trace.buffers[b].partition_bytes // unit) for b in first}
    live: dict[int, None] = {}
    used, found, at = 0, 0, None
    most: tuple[int, ...] = ()
    for index in sorted(begin.keys() | end.keys()):
        for buffer in begin.get(index, ()):
            live[buffer] = None
            used += size[buffer]
        if used > found:
            found, at, most = used, trace.steps[index], tuple(live)
        for buffer in end.get(index, ()):
            del live[buffer]
            used -= size[buffer]
    order = sorted(most, key=lambda b: -size[b])
    return Peak(found, at, tuple(trace.buffers[b] for b in order))


def accesses(step: Step) -> tuple[Access, ...]:
    """Return everything that an instruction reads or writes."""
    return step.touched
