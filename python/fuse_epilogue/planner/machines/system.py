"""The description that a system gives of its machine, here or elsewhere: caches, clock, threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tvm

KIB = 1024
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_HIGHEST_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
_PROCESSORS = Path("/proc/cpuinfo")
#: The clock of a machine that does not state its own.
CLOCK_HZ = 3e9


@dataclass(frozen=True)
class System:
    """A machine to ask.

    - `cpu`: LLVM's name of its processor; empty if unknown.
    - `processors`: number of processors that the operating system counts.
    - `threads`: on which TVM's parallel loops run there.
    - `read`: returns what is in one of its files, without blanks around it; nothing if it has none.
    """

    cpu: str
    processors: int
    threads: int
    read: Callable[[Path], str]

    @property
    def line(self) -> int:
        """Bytes of a cache line."""
        return int(self.read(_CACHES / "index0" / "coherency_line_size") or 64)

    @property
    def caches(self) -> tuple[tuple[str, int, int, bool], ...]:
        """Name, bytes, ways and whether it is shared of each cache for data; () if unknown."""
        found = []
        index = 0
        while kind := self.read((place := _CACHES / f"index{index}") / "type"):
            index += 1
            size = self.read(place / "size")
            if kind in ("Data", "Unified") and size.endswith("K"):
                cpus, level = self.read(place / "shared_cpu_list"), self.read(place / "level")
                # Threads of one core are neighbours or far apart; a level for more is shared.
                shared = int(level) > 2 or self.processors > 2 and "," in cpus
                # A cache for several cores hashes its addresses.
                ways = 0 if shared else int(self.read(place / "ways_of_associativity") or 0)
                found.append((f"L{level}", int(size[:-1]) * KIB, ways, shared))
        return tuple(found)

    @property
    def clock_hz(self) -> float:
        """The highest clock that the system states, or what it runs at, or :data:`CLOCK_HZ`."""
        highest = self.read(_HIGHEST_CLOCK)
        if highest:
            return 1e3 * float(highest)
        for line in self.read(_PROCESSORS).splitlines():
            if line.startswith("cpu MHz"):
                return 1e6 * float(line.split(":")[1])
        return CLOCK_HZ


def here() -> System:
    """Return the machine at hand."""
    name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return System(
        cpu=str(name()) if name is not None else "",
        processors=os.cpu_count() or 1,
        # TVM takes half of the processors if TVM_NUM_THREADS does not say otherwise.
        threads=int(tvm.get_global_func("runtime.NumThreads")()),
        read=_read,
    )


def _read(place: Path) -> str:
    try:
        return place.read_text().strip()
    except OSError:
        return ""
