"""Resources that instructions share: bandwidth of the DMA engines, ports, space in SBUF and PSUM.

Instructions are placed in program order. Each takes the first time that those before it have left
free, which may well be earlier than theirs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right

EVER = float("inf")


class Bandwidth:
    """The DMA engines, shared by the transfers of all queues.

    How much is taken is kept as a step function of time.
    """

    def __init__(self) -> None:
        self.times = [0.0]
        self.taken = [0.0]

    def take(self, ready: float, seconds: float, share: float) -> tuple[float, float]:
        """Place a transfer and return its first and last moment.

        - `ready`: not before this.
        - `seconds`: how long it takes with everything for itself.
        - `share`: the part of the engines that it can use at most.
        """
        place = self._cut(ready)
        first, left = -1.0, seconds
        while True:
            now = self.times[place]
            until = self.times[place + 1] if place + 1 < len(self.times) else EVER
            rate = min(share, 1.0 - self.taken[place])
            if rate > 1e-9:
                if first < 0:
                    first = now
                if rate * (until - now) >= left:
                    end = now + left / rate
                    if end < until:
                        self._cut(end)
                    self.taken[place] += rate
                    self._join(place)
                    return first, end
                left -= rate * (until - now)
                self.taken[place] += rate
            place = self._join(place) + 1

    def _cut(self, at: float) -> int:
        place = bisect_right(self.times, at) - 1
        if self.times[place] != at:
            place += 1
            self.times.insert(place, at)
            self.taken.insert(place, self.taken[place - 1])
        return place

    def _join(self, place: int) -> int:
        """Join a piece with the one before it if as much is taken in both."""
        if place and abs(self.taken[place] - self.taken[place - 1]) < 1e-9:
            del self.times[place], self.taken[place]
            return place - 1
        return place


class Port:
    """A memory that two engines cannot use at the same time."""

    def __init__(self, one: str, other: str) -> None:
        self.rival = {one: other, other: one}
        self.starts: dict[str, list[float]] = {one: [], other: []}
        self.ends: dict[str, list[float]] = {one: [], other: []}

    def first(self, engine: str, ready: float, seconds: float) -> float:
        """Return the first moment from which the rival leaves the port alone for long enough."""
        starts, ends = self.starts[self.rival[engine]], self.ends[self.rival[engine]]
        place = bisect_right(ends, ready)
        while place < len(starts) and starts[place] < ready + seconds:
            ready = max(ready, ends[place])
            place += 1
        return ready

    def take(self, engine: str, start: float, end: float) -> None:
        """Note that the engine uses the port; its uses come in order of time."""
        self.starts[engine].append(start)
        self.ends[engine].append(end)


class Space:
    """A memory on the chip, in bytes of a partition.

    A buffer gets its place at its first use in program order and keeps it up to the end of its last
    one. Places are given in program order: if there is no space, everything after it waits. That is
    what a compiler does which lets a new ``nl.ndarray`` in a loop rotate through as many places as
    there are. That free space may lie scattered is left out.
    """

    def __init__(self, size: int, unit: int) -> None:
        self.free = size
        self.unit = unit
        #: Bytes of the buffers that have a place, and the most that had one at once.
        self.used = self.peak = 0
        self.since = 0.0
        self.given: list[tuple[float, int]] = []

    def allocate(self, size: int) -> float:
        """Take space and return from when on it is there.

        More than there is at all is given at once: it is the checker that refuses it.
        """
        size = self._rounded(size)
        self.used += size
        self.peak = max(self.peak, self.used)
        while self.free < size and self.given:
            # In order of time: what is left over is not there before this either.
            self.since, released = heapq.heappop(self.given)
            self.free += released
        self.free -= size
        return self.since

    def release(self, size: int, when: float) -> None:
        """Give space back from some moment on."""
        size = self._rounded(size)
        self.used -= size
        heapq.heappush(self.given, (when, size))

    def _rounded(self, size: int) -> int:
        """Return what a buffer of this size takes."""
        return -(-size // self.unit) * self.unit
