"""Attention on Trainium: see :mod:`....kernels.trainium.attention` for the loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium.attention import ReadAttention, Tiling, scheduled, usual_tiling
from ....kernels.trainium.attention import find_attention as match_attention
from ....kernels.trainium.tiles import PARTITIONS
from ....neuron.costs import FLOAT32_PASSES
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ....tir.walk import uses
from ..problem import Problem
from ..request import Request
from ..space import Point, Points, Space, Variable
from .predicted import Predicted, matched_problem
from .work import Work, cycle, rate, size_of, start


@dataclass(frozen=True)
class TrainiumAttention(Predicted):
    """Attention, on one NeuronCore.

    - `found`: the match.
    - `round_shares`: whether shares may be rounded to the type of the values.
    """

    found: ReadAttention
    core: Machine
    round_shares: bool = False

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

    @property
    def _values_are_narrow(self) -> bool:
        """Whether values have 16 bits, so that there is something to round shares to."""
        return self.found.v.dtype != "float32"

    def permitted(self) -> Mapping[str, Problem]:
        """Return the same with rounded shares, where values have 16 bits."""
        if self.round_shares or not self._values_are_narrow:
            return {}
        return {"round_shares": replace(self, round_shares=True)}

    @property
    def _rounds(self) -> bool:
        """Whether some points round shares."""
        return self.round_shares and self._values_are_narrow

    @cached_property
    def space(self) -> Space:
        """The space of choices: SBUF either holds all keys of 128 queries, or no point does."""
        tiles, keys = (-(-self.sizes[name] // PARTITIONS) for name in ("queries", "keys"))
        usual = usual_tiling(self._rounds)
        pipelined = [usual.pipelined, *(n for n in (8, 4, 2, 1) if n < min(tiles, usual.pipelined))]
        together = [usual.together, *(n for n in (2, 1) if n < keys)]
        variables = (
            Variable(
                "pipelined", tuple(pipelined), "tiles", "tiles of queries that are written together"
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
        if not self._rounds:
            return Space(variables)
        shares = Variable(
            "shares",
            (1, 0),
            "",
            "type of the shares that are multiplied with the values",
            (self.found.v.dtype, "float32"),
        )
        return Space((shares, *variables))

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
        # Scores; shares, transposed and multiplied with the values, both in the type of the shares.
        share_passes = np.where(self._rounded(points), 1, FLOAT32_PASSES)
        products = tiles * (keys * passes * wide + deep * (PARTITIONS + columns) * share_passes)
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
        usual = usual_tiling(self._rounds)
        found: np.ndarray = (
            (self._rounded(points) == usual.round_shares)
            & (points["pipelined"] == usual.pipelined)
            & (points["together"] == usual.together)
            & (points["copies"] == usual.by_vector)
        )
        return found

    def _rounded(self, points: Points) -> Any:
        """Return which points round shares."""
        return points["shares"] > 0 if self._rounds else np.zeros(points.size, bool)

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        tiling = Tiling(
            point["pipelined"],
            point["together"],
            bool(point["copies"]),
            bool(point.get("shares", 0)),
        )
        return scheduled(self.found, tiling)


def find_attention(request: Request) -> TrainiumAttention | None:
    """Return attention as a problem, None if the function is something else.

    - Raises ValueError: as for :func:`.predicted.matched_problem`.
    """
    return matched_problem(
        request,
        match_attention,
        lambda found, core: TrainiumAttention(found, core, request.round_shares),
    )
