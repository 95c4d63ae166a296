"""Costs of moving data and of instructions on a core, for the predictions of all kinds.

A figure is for any x86 core of the last ten years, unless it says otherwise: it need not be right
for one of them, but must weigh moving against computing as they do.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ...recognize.stages import Stage
from ...tir.types import bytes_of
from ...tir.walk import handle, operator_name, parts_of, uses
from .loops import with_loads

#: Cycles per second where nothing is known about the clock.
CLOCK_HZ = 3.2e9
#: Bytes that a level of memory holds at least (the caches of a small core of a server), and those
#: that it gives one core in a cycle: half of what AMD's optimization guides for Zen 3 to Zen 5
#: state as the most, which no loop reaches.
LEVELS = ((1 << 15, 64.0), (1 << 19, 32.0), (1 << 24, 16.0))
#: The same for memory: 20 GB/s, an assumption.
MEMORY_BYTES_PER_CYCLE = 6.25
#: Share of the shorter one of computing and moving that adds to the longer one. Any value above 0
#: tells ways from each other that all wait for memory; 0.2 is an assumption, not a fit.
OVERLAPPED = 0.2
#: Cycles of a node of an expression, for a vector: 2 to 4 instructions of a vector begin in one.
NODE_CYCLES = 0.4
#: Nodes of a function such as exp, those of others, and functions that are one instruction or two.
NODES_OF_FUNCTION = 20
NODES_OF = {"sin": 55, "cos": 55}
INSTRUCTIONS = frozenset(
    {
        *("ceil", "fabs", "floor", "if_then_else", "nearbyint"),
        *("reinterpret", "round", "rsqrt", "sqrt", "trunc"),
    }
)
#: Seconds that a call of a compiled function takes, without what it computes.
CALL_S = 1e-7
#: Seconds that a loop on several threads takes beyond its work. Two threads on AMD's Zen 5, in a
#: virtual machine: 1 us on idle cores where one loop follows another, 3 us with other programs
#: beside, 30 us after a pause of 0.3 s. Models are called again and again: between the first two.
WAKE_S = 2e-6


def bytes_per_cycle(working_set: float) -> float:
    """Return the bytes that one core gets in a cycle, where all are in the nearest level they fit.

    - `working_set`: number of bytes that are gone through before the first are needed again.
    """
    return next((rate for size, rate in LEVELS if working_set <= size), MEMORY_BYTES_PER_CYCLE)


def together(computing: float, moving: float) -> float:
    """Return the time of computing and of moving data meanwhile."""
    return max(computing, moving) + OVERLAPPED * min(computing, moving)


def threads_for(seconds: float, threads: int) -> int:
    """Return the number of threads for a loop nest: 1 if others save less than waking them takes.

    - `seconds`: predicted time of the nest on one thread.
    - `threads`: number of threads that there are.

    >>> threads_for(2e-6, 8), threads_for(2e-3, 8)
    (1, 8)
    """
    return threads if seconds - seconds / threads > WAKE_S else 1


def on_threads(seconds: float, threads: int) -> float:
    """Return the predicted seconds of a loop nest on as many threads as :func:`threads_for` says.

    - `seconds`: predicted time of the nest on one thread.
    - `threads`: number of threads that there are.
    """
    used = threads_for(seconds, threads)
    return seconds / used + (WAKE_S if used > 1 else 0.0)


def sharing(seconds: float, threads: int) -> str:
    """Return the end of a description: how many threads share a loop nest, if there are several.

    - `seconds`: predicted time of the nest on one thread.
    - `threads`: number of threads that there are.

    >>> sharing(2e-3, 2)
    '; shared by 2 threads'
    """
    if threads < 2:
        return ""
    return (
        f"; shared by {threads} threads" if threads_for(seconds, threads) > 1 else "; on one thread"
    )


def added(one: float, other: float, power: int) -> float:
    """Return the time of two things that hide each other, until both take nearly as long.

    - `one`, `other`: times of each of them alone.
    - `power`: the more, the longer the shorter one is hidden.
    """
    longer, shorter = max(one, other), min(one, other)
    return longer * math.pow(1.0 + (shorter / longer) ** power, 1 / power)


def work(value: Any, *inner: Any) -> int:
    """Return the instructions of an element, about: addresses are not among them.

    - `value`: Expr.
    - `*inner` (Var): variables of the innermost loop. What an element is if a condition holds is
      counted without the condition if that has none of them, and no loads: it is tested outside, or
      split off.
    """

    def unguarded(call: Any) -> Any:
        if _name(call) != "if_then_else":
            return call
        condition = call.args[0]
        if parts_of(condition, TensorLoad) or (inner and uses(condition, *inner)):
            return call
        return call.args[1]

    value = with_loads(tvm_ffi.structural_map(value, (Call, unguarded)), zero)
    names = [name for name in map(_name, parts_of(value, Call)) if name not in INSTRUCTIONS]
    nodes = sum(NODES_OF.get(name, NODES_OF_FUNCTION) for name in names)
    return len(parts_of(value, tirx.Expr)) + nodes


def _name(call: Any) -> str:
    return operator_name(call).rpartition(".")[2]


def zero(load: Any) -> Any:
    """Return a constant of a load's type."""
    return tirx.const(0, str(load.ty.dtype))


def pieces(extent: int, lanes: int) -> int:
    """Return the vectors that some elements are, the rest of which is in halves of a vector."""
    return extent // lanes + (extent % lanes).bit_count()


def touched_bytes(stage: Stage) -> dict[int, int]:
    """Return the bytes of each buffer that a stage reads or writes, by its handle, about."""
    elements = math.prod(axis.extent for axis in (*stage.axes, *stage.reduced))
    found: dict[int, int] = {}
    for buffer in (*(store.buffer for store in stage.stores), *(x.source for x in stage.loads)):
        size = min(elements, math.prod(map(int, buffer.shape)))
        found[handle(buffer)] = size * bytes_of(buffer.dtype)
    return found
