"""Work of a kernel for the engines of a NeuronCore: a lower bound of its time, and an estimate.

The latency model takes tens of milliseconds for a kernel. So points are ordered by an estimate, and
left out where a bound says that they cannot be better:

    bound      the bytes at the full rate of the DMA engines, or the busiest engine, if that is more
    estimate   the same with what is expected of each beyond that: reaching the memories, pieces of
               transfers that are short, and waiting - an engine for the first tile and for the
               last one to be stored, the DMA engines for the last tile to be computed; or the
               tiles one after the other, where few of them are in flight
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ..cost import Terms


@dataclass(frozen=True)
class Work:
    """Work of points: seconds, as numbers or as arrays with one for each point.

    - `traffic` (numpy.ndarray): time of the DMA engines, at least.
    - `engines`: time of each engine, at least.
    - `more`: what is expected beyond that: of the engines, and of the DMA engines as "dma".
    - `steps` (numpy.ndarray): how long an exact cost takes, in steps of about 50 us: see
      :mod:`...exact`. Most of it is to make a schedule and to write a kernel, as much as hundreds
      of instructions.
    - `turns` (numpy.ndarray): about how long all tiles take that wait for one of few buffers.
    """

    traffic: Any
    engines: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    steps: Any = 0
    turns: Any = 0.0

    def terms(self, size: int) -> Terms:
        """Return the bound of n points: traffic, and what the busiest engine takes longer."""
        busiest = _largest(self.engines.values())
        traffic = np.broadcast_to(np.asarray(self.traffic, float), (size,))
        nothing = np.zeros(size)
        return Terms(traffic, np.maximum(busiest - traffic, 0.0), nothing, nothing)

    def estimate(self) -> Any:
        """Return about how long it takes."""
        busy = {"dma": self.traffic, **self.engines}
        return np.maximum(
            self.turns,
            _largest(
                busy.get(name, 0.0) + self.more.get(name, 0.0) for name in {**busy, **self.more}
            ),
        )

    def and_then(self, other: Work, where: Any) -> Work:
        """Return this followed by other work, at some points (a mask) only."""

        def both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: a.get(name, 0.0) + np.where(where, b.get(name, 0.0), 0.0)
                for name in dict.fromkeys([*a, *b])
            }

        return Work(
            self.traffic + np.where(where, other.traffic, 0.0),
            both(self.engines, other.engines),
            both(self.more, other.more),
            self.steps + np.where(where, other.steps, 0),
            self.turns + np.where(where, other.estimate(), 0.0) * (np.asarray(self.turns) > 0),
        )


def _largest(values: Any) -> Any:
    found: Any = 0.0
    for value in values:
        found = np.maximum(found, value)
    return found


def rate(core: Machine) -> float:
    """Return bytes in a second that neither the DMA engines nor HBM can exceed."""
    return min(core.dma_gb_per_s, core.hbm_gb_per_s) * 1e9


def cycle(core: Machine, engine: str) -> float:
    """Return seconds of a cycle of an engine."""
    return 1e-9 / core.clock_ghz[engine]


def start(core: Machine) -> float:
    """Return seconds from what a transfer waits for to its first byte."""
    return (core.dma_start_us + core.dma_issue_us) * 1e-6


def stretched(core: Machine, run: Any) -> Any:
    """Return how many times as long a transfer takes whose contiguous pieces have n bytes."""
    rates = core.dma_gb_per_s, core.dma_peak_gb_per_s
    sustained, peak = (core.dma_engines / (1e9 * gb_per_s) for gb_per_s in rates)
    return np.maximum(1.0, (core.dma_piece_ns * 1e-9 / np.maximum(run, 1) + peak) / sustained)


def size_of(buffer: Any) -> int:
    """Return the bytes of a buffer."""
    return ITEMSIZE[str(buffer.ty.dtype)] * int(np.prod([int(n) for n in buffer.ty.shape]))
