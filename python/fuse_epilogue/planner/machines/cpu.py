"""A processor as the planner sees it: vectors, registers, execution units, caches.

All that a search needs of a machine is here and nowhere else. The vectors and registers come from
TVM's target, the caches of the machine at hand from the operating system, and what neither knows
from :data:`.cpu_table.CORES`, a table of cores with its sources.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any

import tvm
from tvm.target import Target

from ...kernels.cpu.depthwise.streaming import has_streaming_stores
from ...kernels.cpu.depthwise.words import VNNI
from ...targets import MOST_CORES, vector_bits
from ..json_schema import Amount, Factor, Many, Must, Name, PerSecond, Seconds, parsed, span
from .cpu_table import CORES, Core
from .system import CLOCK_HZ, KIB, System, here

_PAGE = 4 * KIB
#: Name of the processor of a target that names none.
ANY = "any"
#: The longest that any machine has are those of RISC-V: what is beyond is a mistake.
_VECTOR = Must("a power of two up to 8192", lambda size: size in [1 << n for n in range(14)])
_MEMORY = Must("at least a cache and the memory", lambda levels: len(levels) > 1)


@dataclass(frozen=True)
class Level:
    """A level of memory.

    Attributes
    ----------
    name : str
        "L1", "L2", "L3" or "memory".
    bytes : int
        Capacity; 0 for the last level, which holds everything.
    line : int
        Bytes of a cache line.
    ways : int
        Lines of a set; 0 where addresses are spread over the sets.
    shared : bool
        Whether it is one for all cores.
    bytes_per_s : float
        Bandwidth for one core at best, reading one line after the other. That of "L1" is not used:
        its loads are instructions.
    alone_per_s : float
        The same, where no line is loaded before it is asked for.
    at_once : float
        How many cores it serves at that rate, if it is one for all.
    """

    name: Name
    bytes: Amount
    line: Many
    ways: Amount
    shared: bool
    bytes_per_s: PerSecond
    alone_per_s: PerSecond
    at_once: Factor = 1.0


_SETS = Must("of bytes for a set or more", lambda each: each.ways * each.line <= each.bytes)
#: Bytes in a clock that a core gets from a level, where nothing was measured: half of what the
#: guides above state as the most, which no loop reaches.
_BYTES_PER_CLOCK = MappingProxyType({"L1": 128.0, "L2": 32.0, "L3": 16.0, "memory": 5.0})
#: The same, where each line is waited for, a few at a time.
_ALONE_PER_CLOCK = MappingProxyType({"L1": 128.0, "L2": 24.0, "L3": 2.0, "memory": 1.0})
#: Caches of a target that is not this machine: those of a small core of a server.
_LEVELS = (
    ("L1", 32 * KIB, 8, False),
    ("L2", 512 * KIB, 8, False),
    ("L3", 16384 * KIB, 0, True),
)


@dataclass(frozen=True)
class Cpu:
    """A processor.

    Attributes
    ----------
    name : str
        LLVM's name of it.
    cores : int
        Number of cores that a function may use.
    vector_bytes : int
        Bits of a vector register.
    registers : int
        Vector registers.
    clock_hz : float
        Clocks in a second.
    core : Core
        Work that one of them does in a clock.
    levels : tuple[Level, ...]
        Caches from the first on, then the memory.
    launch_s : float
        Seconds to start a loop on all cores and to wait for its end.
    call_s : float
        Seconds that calling a function takes, without what it computes.
    streams : bool
        Whether it has stores around the caches that are known here, see
        :mod:`fuse_epilogue.kernels.cpu.depthwise.streaming`.
    dot_products : int
        Sums of the longest vector to which an instruction adds four products of bytes each; 0 if
        there is none, see :mod:`fuse_epilogue.kernels.cpu.depthwise.words`.
    """

    name: Name
    cores: Annotated[int, span(1, MOST_CORES)]
    vector_bytes: Annotated[int, _VECTOR]
    registers: Annotated[int, span(1, 1024)]
    clock_hz: PerSecond
    core: Core
    levels: Annotated[tuple[Annotated[Level, _SETS], ...], _MEMORY]
    launch_s: Seconds = 5e-6
    call_s: Seconds = 1e-6
    streams: bool = False
    dot_products: Annotated[int, span(0, 16)] = 0

    def __str__(self) -> str:
        """Return its name and what there is of it."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.name} ({cores}, vectors of {8 * self.vector_bytes} bits)"

    def roofs(self, bits: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return the bound for every function, for elements of the given number of bits.

        Returns
        -------
        tuple[dict[str, float], dict[str, float]]
            Operations in a second, by what executes them, and bytes in a second, by where they
            come from; both of all cores, by name.
        """
        one = 2 * self.core.fma * self.lanes(bits) * self.clock_hz
        flops = {"1 core": one}
        if self.cores > 1:
            flops[f"{self.cores} cores"] = self.cores * one
        behind = {
            level.name: level.bytes_per_s
            * min(level.at_once if level.shared else self.cores, self.cores)
            for level in self.levels[1:]
        }
        return flops, behind

    def only(self, name: str) -> Cpu:
        """Return it with a second for each byte out of one level and none for those of others.

        The traffic of a point, in seconds, is then the bytes that it moves out of that level.
        """
        levels = []
        for each in self.levels:
            rate = 1.0 if each.name == name else float("inf")
            levels.append(
                replace(each, shared=True, at_once=1.0, bytes_per_s=rate, alone_per_s=rate)
            )
        # No function translates enough addresses for this to be a byte.
        return replace(self, levels=tuple(levels), core=replace(self.core, page=1e-30))

    @property
    def line(self) -> int:
        """Bytes of a cache line."""
        return self.levels[0].line

    @property
    def caches(self) -> tuple[Level, ...]:
        """The levels but for the memory."""
        return self.levels[:-1]

    @property
    def pages(self) -> Level:
        """The addresses of pages at hand, as a level whose lines are pages."""
        bandwidth = _PAGE * self.clock_hz / self.core.page
        return Level("pages", self.core.pages * _PAGE, _PAGE, 0, False, bandwidth, bandwidth)

    @property
    def ahead(self) -> Level:
        """The pages in which lines are loaded ahead, as a level whose lines are pages."""
        return replace(self.pages, name="ahead", bytes=self.core.ahead * _PAGE)

    def cache(self, name: str) -> Level:
        """Return a level by its name; the last cache if there is none of that name."""
        return next((level for level in self.caches if level.name == name), self.caches[-1])

    def lanes(self, bits: int) -> int:
        """Return how many elements of the given number of bits a vector register holds."""
        return max(1, 8 * self.vector_bytes // bits)

    def to_json(self) -> str:
        """Return the description as JSON."""
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def from_json(text: str) -> Cpu:
        """Return what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            The text is not such a description.
        """
        made: Cpu = parsed(Cpu, text, "this is not a description of a processor")
        return made


def cpu(target: Target | str | dict[str, Any], system: System | None = None) -> Cpu:
    """Return the processor that a target names.

    - `target` (tvm.target.Target, str or dict): target of kind "llvm". Where it names the processor
      at hand, as :func:`fuse_epilogue.schedules.host` does, the caches and the clock are those of
      this machine, and its cores are at most the threads that TVM's parallel loops run on. Where it
      has no "num-cores", they are as many as these.
    - `system`: another machine to take for the one at hand.
    - Raises ValueError: the target is of another kind, its "num-cores" is not a number of cores, or
      its "mcpu" is not a name.
    """
    target = target if isinstance(target, Target) else Target(target)
    if target.kind.name != "llvm":
        raise ValueError(
            f"the planner knows processors of kind 'llvm', not '{target.kind.name}': "
            "pass a target such as schedules.host()"
        )
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    # x86 before AVX-512 has 16 vector registers; AVX-512, 64-bit Arm and RISC-V have 32.
    registers = 16 if has("sse2", target) and not has("avx512f", target) else 32
    name = str(target.attrs.get("mcpu", ""))
    if not name.isprintable():
        raise ValueError(f"'mcpu' of the target must be LLVM's name of a processor, not {name!r}")
    system = system or here()
    at_hand = bool(name) and system.cpu == name
    clock = system.clock_hz if at_hand else CLOCK_HZ
    cores = int(target.attrs.get("num-cores", system.threads))
    if not 1 <= cores <= MOST_CORES:
        raise ValueError(
            f"'num-cores' of the target must be from 1 to {MOST_CORES}, not {cores}: it is how "
            "many cores the function may use; leave it out for as many as TVM has threads"
        )
    if at_hand:
        cores = min(cores, system.threads)
    made = Cpu(
        name=name or ANY,
        cores=cores,
        vector_bytes=vector_bits(target) // 8,
        registers=registers,
        clock_hz=clock,
        core=CORES.get(name, CORES[""]),
        levels=(),
        streams=has_streaming_stores(target),
        dot_products=VNNI.lanes(target),
    )
    caches = (system.caches if at_hand else ()) or _LEVELS
    return replace(made, levels=_levels(caches, system.line, clock))


def _levels(caches: Any, line: int, clock: float) -> tuple[Level, ...]:
    named = [*caches, ("memory", 0, 0, True)]
    return tuple(
        Level(
            name,
            size,
            line,
            ways,
            shared,
            _BYTES_PER_CLOCK.get(name, 5.0) * clock,
            _ALONE_PER_CLOCK.get(name, 1.0) * clock,
        )
        for name, size, ways, shared in named
    )
