"""A table of processors' cores: instructions in a clock and latencies, with sources."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from ..json_schema import Factor, Many


@dataclass(frozen=True)
class Core:
    """The instructions that a core executes in one clock, and their latencies.

    - `fma`, `add`, `load`, `store`: vector instructions of that kind that begin in one clock, for
      the widest vectors.
    - `issue`: instructions of any kind that begin in one clock.
    - `latency`: clocks from the operands of a multiplication with addition to its result.
    - `add_latency`: clocks from a sum to the next one that takes it.
    - `branch`: clocks lost where a loop ends unexpectedly.
    - `predicted`: trips of a loop whose end is still foreseen.
    - `pages`: number of pages of 4 KiB whose addresses the core keeps.
    - `page`: clocks to translate the address of another page.
    - `ahead`: pages in which lines that follow are loaded ahead, at once.
    - `window`: instructions in flight: an instruction that waits can be overtaken by those at most
      this far after it.
    - `crossing`: loads that could begin in the time that a load of two lines takes, besides itself.
    """

    fma: Factor = 2.0
    add: Factor = 2.0
    load: Factor = 2.0
    store: Factor = 1.0
    issue: Factor = 4.0
    latency: Factor = 4.0
    add_latency: Factor = 4.0
    branch: Factor = 14.0
    predicted: Many = 32
    window: Many = 224
    pages: Many = 64
    page: Factor = 7.0
    ahead: Many = 32
    crossing: Factor = 1.0


#: Cores by LLVM's name of the processor; "" for any other, with what is common to the x86 cores of
#: the last ten years. znver5: Software Optimization Guide for the AMD Zen5 microarchitecture
#: (publication 58455), sections on the floating-point unit, load-store unit and branch prediction;
#: znver4: the same for Zen4 (publication 57647), whose units are 256 bits wide: a vector of 512
#: bits takes two clocks; znver3: the guide for AMD EPYC 7003 (publication 56665).
CORES = MappingProxyType(
    {
        "": Core(),
        "znver5": Core(issue=8.0, add_latency=2.0, branch=15.0, window=448, pages=96, crossing=2.0),
        "znver4": Core(
            fma=1.0,
            add=1.0,
            load=1.0,
            store=0.5,
            issue=6.0,
            add_latency=3.0,
            branch=13.0,
            window=320,
            pages=72,
        ),
        "znver3": Core(issue=6.0, add_latency=3.0, branch=13.0, window=256),
    }
)
