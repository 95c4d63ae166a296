"""Attention on Trainium: see :mod:`....kernels.trainium.attention` for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium.attention import Found, Tiling, scheduled
from ....kernels.trainium.attention import find_attention as match_attention
from ....kernels.trainium.tiles import PARTITIONS
from ....neuron.costs import FLOAT32_PASSES
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ....tir.walk import uses
from ..request import Request
from ..space import Point, Points, Space, Variable
from .predicted import Predicted, matched_problem
from .work import Work, cycle, rate, size_of, start

_USUAL = Tiling()


@dataclass(frozen=True)
class TrainiumAttention(Predicted):
    """Attention, on one NeuronCore.

    Attributes
    ----------
    found : Found
        The match.
    core : Machine
    """

    found: Found
    core: Machine

    kind = "attention"

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.found.func

    @property
    def dtype(self) -> str:
        """Type of the queries."""
        return self.found.q.dtype

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Heads of all images, queries, keys, features, columns of values."""
        pattern = self.found.pattern
        return {
            "heads": prod(axis.extent for axis in pattern.batch),
            "queries": pattern.query.extent,
            "keys": pattern.key.extent,
            "features": pattern.depth.extent,
            "columns": pattern.column.extent,
        }

    @cached_property
    def space(self) -> Space:
        """The space of choices: SBUF either holds all keys of 128 queries, or no point does."""
        tiles, keys = (-(-self.sizes[name] // PARTITIONS) for name in ("queries", "keys"))
        pipelined = [_USUAL.pipelined, *(n for n in (4, 2, 1) if n < tiles)]
        together = [_USUAL.together, *(n for n in (2, 1) if n < keys)]
        return Space(
            (
                Variable(
                    "pipelined",
                    tuple(pipelined),
                    "tiles",
                    "tiles of queries that are written together",
                ),
                Variable(
                    "together", tuple(together), "tiles", "transpositions that leave PSUM together"
                ),
                Variable(
                    "copies",
                    (0, 1),
                    "",
                    "what copies transposed shares",
                    ("the scalar engine", "the vector engine"),
                ),
            )
        )

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, pattern = self.core, self.found.pattern
        heads, queries, keys, features, columns = self.sizes.values()
        tiles, deep = heads * -(-queries // PARTITIONS), -(-keys // PARTITIONS)
        moved = size_of(pattern.output)
        for part, axes in (
            (self.found.q, (pattern.query, pattern.depth)),
            (self.found.k, (pattern.key, pattern.depth)),
            (self.found.v, (pattern.key, pattern.column)),
        ):
            own = [axis for axis in pattern.batch if uses(part.load, axis.var)]
            moved += prod(axis.extent for axis in (*own, *axes)) * ITEMSIZE[part.dtype]
        passes = FLOAT32_PASSES if self.dtype == "float32" else 1
        wide = -(-features // PARTITIONS)
        # Scores; shares, transposed and multiplied with the values, both in float32.
        products = tiles * (keys * passes * wide + deep * (PARTITIONS + columns) * FLOAT32_PASSES)
        shared = tiles * (keys + deep * core.access_cycles / points["together"])
        vector, scalar = cycle(core, "vector"), cycle(core, "scalar")
        by_vector = points["copies"] > 0
        more: dict[str, Any] = {
            "tensor": products * cycle(core, "tensor"),
            # Scores are scaled, and their maxima found, in one instruction if nothing is masked.
            "vector": (tiles * keys + np.where(by_vector, shared, 0.0)) * vector,
            "scalar": (tiles * keys + np.where(by_vector, 0.0, shared)) * scalar,
        }
        # Only where several tiles are written together does one engine not wait for the other.
        alone: Any = sum(more.values()) / np.maximum(points["pipelined"], 1)
        waits = alone + 2 * start(core)
        more = {name: seconds + waits for name, seconds in more.items()}
        steps = 1_000 + tiles * (deep * (2 + 1 / points["together"]) + 12) + heads * deep * 3
        return Work(moved / rate(core), {}, {**more, "dma": waits}, steps)

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        found: np.ndarray = (
            (points["pipelined"] == _USUAL.pipelined)
            & (points["together"] == _USUAL.together)
            & (points["copies"] == _USUAL.by_vector)
        )
        return found

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        tiling = Tiling(point["pipelined"], point["together"], bool(point["copies"]))
        return scheduled(self.found, tiling)


def find_attention(request: Request) -> TrainiumAttention | None:
    """Return attention as a problem, None if the function is something else.

    Parameters
    ----------
    request : Request

    Raises
    ------
    ValueError
        As for :func:`.predicted.matched_problem`.
    """
    return matched_problem(request, match_attention, TrainiumAttention)
