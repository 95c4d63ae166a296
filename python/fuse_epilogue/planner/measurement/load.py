"""The load of this machine by other processes while something is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Cores that others may use before what was measured meanwhile is not trusted.
LOADED = 0.1
_STAT = Path("/proc/stat")
#: Places of /proc/stat's first line that count as busy: user, nice, system, irq, softirq, steal.
_BUSY = (1, 2, 3, 6, 7, 8)


class Load:
    """Counts the cores that other processes keep busy, from when it is made.

    - `stat`: file in which the system counts the ticks of all processors.
    """

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._begin = self._now()

    def others(self) -> float:
        """Return how many cores others used on average; 0 where the system does not say."""
        begin, now = self._begin, self._now()
        if begin is None or now is None or now[1] <= begin[1]:
            return 0.0
        return max(0.0, (now[0] - begin[0]) / (now[1] - begin[1]))

    def _now(self) -> tuple[float, float] | None:
        """Return the seconds that processors were busy for others, and the time."""
        try:
            words = self._stat.read_text().splitlines()[0].split()
            ticks = sum(int(words[place]) for place in _BUSY)
        except (OSError, IndexError, ValueError):
            return None
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4]), time.monotonic()
