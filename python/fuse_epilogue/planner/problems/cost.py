"""The cost of a point: four terms in seconds, and their weights, which belong to a machine.

    cost = alpha * traffic + beta * latency + gamma * spill - delta * parallelism

The terms are computed from loop nests with what is known of a machine; the weights say how far that
machine reaches it, and are fitted to measurements: see
:mod:`fuse_epilogue.planner.measurement.calibrate`.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from ..machines.cpu import Cpu
from .nest import Nest

NAMES = ("traffic", "latency", "spill", "parallelism")


@dataclass(frozen=True)
class Terms:
    """The terms of points: seconds, one number for each point.

    - `traffic`: to move what goes between levels of memory, at the bandwidth of each.
    - `latency`: to execute all instructions, by the units they need and by what waits for what, on
      one core; with the calls and the starts of parallel loops.
    - `spill`: to store and load what the registers do not hold.
    - `parallelism`: the time that several cores save of that.
    """

    traffic: np.ndarray
    latency: np.ndarray
    spill: np.ndarray
    parallelism: np.ndarray

    def matrix(self) -> np.ndarray:
        """Return the terms as columns, the last one negative: times the weights, it is the cost."""
        columns = [self.traffic, self.latency, self.spill, -self.parallelism]
        return np.stack(np.broadcast_arrays(*columns), axis=1).astype(float)

    def at(self, index: int) -> dict[str, float]:
        """Return the terms of one point by name."""
        return {f.name: float(np.ravel(getattr(self, f.name))[index]) for f in fields(self)}


@dataclass(frozen=True)
class Weights:
    """The weights of the terms; none is negative, none has a unit.

    Attributes
    ----------
    alpha, beta, gamma, delta : float
        Weights of traffic, latency, spill and parallelism; 1 takes the machine's description as
        it is.

    Raises
    ------
    TypeError
        One of them is not a number.
    ValueError
        One of them is negative or not finite, or all are 0 but that of parallelism: then nothing
        costs anything.
    """

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    delta: float = 1.0

    def __post_init__(self) -> None:
        """Refuse weights by which no cost can be computed."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{field.name} must be a number, not {type(value).__name__}")
            if not 0 <= value <= sys.float_info.max:
                raise ValueError(f"{field.name} must be a number of at least 0, not {value}")
        if not (self.alpha or self.beta or self.gamma):
            raise ValueError("alpha, beta and gamma are all 0: then nothing costs anything")

    def cost(self, terms: Terms) -> np.ndarray:
        """Return the seconds that each point costs.

        Example
        -------
        >>> one = np.ones(1)
        >>> Weights(alpha=0.5).cost(Terms(one, one, one, one)).tolist()
        [1.5]
        """
        result: np.ndarray = terms.matrix() @ np.array(astuple(self))
        return result

    def parts(self, terms: Terms, index: int) -> dict[str, float]:
        """Return what each term adds to the cost of a point; that of parallelism is not above 0."""
        row = terms.matrix()[index] * np.array(astuple(self))
        return dict(zip(NAMES, map(float, row), strict=True))


def traffic_seconds(nest: Nest, machine: Cpu, cores: Any = 1.0) -> Any:
    """Return the seconds of the traffic of a nest that each of n cores runs at once.

    Data enter a cache at the bandwidth of the next level: a lower one for lines that are waited for
    one by one, because several instructions take turns on them, or because they are stored in rows
    that drive each other out of the first cache: then the first line of each page is. The addresses
    of pages that are at hand are a cache too, with pages for lines.

    - `nest`: the loops that one core runs.
    - `cores` (numpy.ndarray or float): how many run such a nest.
    """
    seconds = nest.traffic(machine.pages) / machine.pages.bytes_per_s
    begun = nest.loads(machine.ahead, crowded=machine.levels[0])
    for cache, behind in zip(machine.levels, machine.levels[1:], strict=False):
        rate = np.minimum(cores, behind.at_once) / cores if behind.shared else 1.0
        for access, lines, pages in zip(nest.accesses, nest.loads(cache), begun, strict=True):
            turns = access.turns and cache is machine.levels[0]
            waited = lines if turns else np.minimum(lines, pages) * access.write
            ahead = (2.0 if access.write else 1.0) * lines - waited
            each = ahead / behind.bytes_per_s + waited / behind.alone_per_s
            seconds = seconds + cache.line * each / rate
    return seconds


def overlapped(computing: Any, share: Any, spill: Any, started: Any, usable: Any) -> Terms:
    """Return the terms of points whose traffic goes on while they compute.

    Loads of lines that are needed next are under way while a core computes: what counts of the
    traffic is what takes longer than that.

    - `computing` (numpy.ndarray): seconds of all instructions, on one core.
    - `share` (numpy.ndarray): seconds of the traffic of one core, while the others have theirs.
    - `spill`, `started` (numpy.ndarray): seconds to spill; of calls and of starting loops.
    - `usable` (numpy.ndarray): how many times as fast several cores compute.
    """
    shown = np.maximum(0.0, share - computing / usable)
    saved = computing * (1.0 - 1.0 / usable)
    return Terms(*np.broadcast_arrays(shown, computing + started, spill, saved))


def usable_cores(tasks: Any, cores: Any) -> Any:
    """Return the speed-up of n equal tasks on several cores.

    The last round may leave cores idle: 3 tasks take 2 cores as long as 4.

    >>> float(usable_cores(3, 2))
    1.5
    """
    return tasks / np.ceil(np.asarray(tasks, float) / cores)
