"""The number of a kernel's tiles in flight: the variable "buffers".

Every iteration of a loop over tiles has an ``nl.ndarray`` of its own, and as many of them are in
flight as SBUF and PSUM have room for, see :class:`fuse_epilogue.neuron.resources.Space`. Fewer gain
nothing by the latency model: a tile only waits longer for its buffer. So no kernel asks for fewer,
and the number is chosen with the size of the tiles: "buffers" of them fit into SBUF, and no more
do. From three on the number makes no difference: one is loaded, one computed, one stored.

PSUM is not a variable of its own: how many blocks of sums it has room for, one or two, follows from
the tiles of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....neuron.machine import Machine
from ..space import Constraint, Points, Variable

#: Tiles in flight from which on more are not distinguished.
IN_FLIGHT = 3


def buffers() -> Variable:
    """Return the variable."""
    counts = tuple(range(IN_FLIGHT, 0, -1))
    labels = (f"{IN_FLIGHT} or more", *map(str, counts[1:]))
    return Variable("buffers", counts, "tiles", "tiles of a kind that SBUF has room for", labels)


def in_flight(
    core: Machine, tile: Callable[[Points], Any], stays: Callable[[Points], Any] = lambda points: 0
) -> tuple[Constraint, Constraint]:
    """Return that the tiles in flight fit into SBUF, and that no room for one is left.

    - `tile`, `stays`: bytes of a partition: of a tile of all that is loaded, computed and stored,
      and of what is there all the time.
    """

    def used(points: Points) -> Any:
        return stays(points) + points["buffers"] * tile(points)

    def wasted(points: Points) -> Any:
        few = points["buffers"] < IN_FLIGHT
        return few & (used(points) + tile(points) <= core.sbuf_bytes)

    return (
        Constraint(
            "SBUF",
            core.sbuf_bytes,
            "bytes of a partition",
            used,
            "what stays, and as many tiles as are in flight of all that passes through",
        ),
        Constraint(
            "buffers",
            0,
            "",
            wasted,
            "where there is room for another tile in flight, there is one",
            costed=False,
        ),
    )


def in_turns(points: Points, tiles: Any, seconds: Any) -> Any:
    """Return about how long tiles take that wait for one of few buffers; 0 where there are more.

    - `tiles` (numpy.ndarray): how many there are.
    - `seconds` (numpy.ndarray): life of a buffer, from the begin of its transfer to the end of its
      last use.
    """
    few = points["buffers"] < IN_FLIGHT
    return np.where(few, tiles * seconds / points["buffers"], 0.0)
