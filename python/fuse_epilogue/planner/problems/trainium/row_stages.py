"""Reductions of the same rows and what is between them, on Trainium: softmax, norms.

All columns of 128 rows are on the chip at once, one stage after the other. Which engine computes a
stage is to be chosen: they work at the same time, each on another tile. Of a few long rows, each
may be on all partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium.read_row_stages import Stages
from ....kernels.trainium.read_row_stages import find_row_stages as match_row_stages
from ....kernels.trainium.row_stages import scheduled
from ....kernels.trainium.spread_rows import scheduled as scheduled_spread
from ....kernels.trainium.spread_rows import why_not_spread
from ....kernels.trainium.tiles import PARTITIONS
from ....neuron import emit
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .predicted import NO_KERNEL, Predicted, matched_problem
from .work import Work, cycle, rate, size_of, start

#: Engines by the value of a variable: the usual one, and others.
_ENGINES = ("", "scalar", "gpsimd")
_LABELS = ("the usual one", "the scalar engine", "GpSimd")
#: Stages up to which each is a variable; of more, the last ones.
_MOST_STAGES = 6


@dataclass(frozen=True)
class TrainiumRowStages(Predicted):
    """Stages along the same rows, on one NeuronCore.

    - `stages`: the match.
    """

    function: tirx.PrimFunc
    stages: Stages
    core: Machine

    kind = "row stages"

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.function

    @property
    def dtype(self) -> str:
        """Type of what goes in."""
        return str(self.func.params[0].ty.dtype)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Matrices, rows and columns."""
        found = self.stages
        matrices = prod(found.size(letter) for letter in found.matrices)
        return {"matrices": matrices, "m": found.size("m"), "n": found.size("n")}

    @cached_property
    def _chosen(self) -> dict[str, int]:
        """The stages whose engine is chosen, by the names of the variables."""
        # Where sums go is the emitter's choice: with what computes their terms, if that can.
        own = [at for at, stage in enumerate(self.stages.stages) if not stage.reduced]
        return {f"stage_{at}": at for at in own[-_MOST_STAGES:]}

    @cached_property
    def space(self) -> Space:
        """The space of choices: SBUF either holds all columns of 128 rows, or no point does."""
        rows = min(self.core.partitions, self.sizes["m"])
        variables = [Variable("rows", (rows,), "rows", "rows of a tile, one for each partition")]
        for name, at in self._chosen.items():
            meaning = f"what computes '{self.stages.stages[at].name}'"
            choices = tuple(n for n in range(len(_ENGINES)) if not n or self._computes(at, n))
            labels = tuple(_LABELS[n] for n in choices)
            variables.append(Variable(name, choices, "", meaning, labels))
        if why_not_spread(self.stages):
            return Space(tuple(variables))
        names = ("a row on each partition", "each row on all partitions")
        variables.append(Variable("spread", (0, 1), "", "where rows are", names))
        usual = Constraint(
            "engines",
            0,
            "",
            lambda p: (p["spread"] > 0) & ~self.is_usual(p),
            "where each row is on all partitions, the usual engines compute",
        )
        return Space(tuple(variables), (usual,))

    def _spread(self, points: Points) -> Any:
        """Return at which points each row is on all partitions."""
        return points.values.get("spread", np.zeros(points.size, np.int64)) > 0

    def _computes(self, at: int, engine: int) -> bool:
        """Whether an engine has instructions for a stage."""
        engines = [_ENGINES[engine] if at == place else "" for place in range(at + 1)]
        engines += [""] * (len(self.stages.stages) - len(engines))
        try:
            emit(scheduled(self.stages, engines))
        except NO_KERNEL:
            return False
        return True

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, found = self.core, self.stages
        matrices, m, n = self.sizes.values()
        tiles = matrices * -(-m // core.partitions)
        moved = size_of(found.result)
        for load, letters in found.tiles.values():
            elements = prod(found.size(x) for x in letters if x != "p")
            moved += elements * ITEMSIZE[str(load.source.ty.dtype)]
        busy: dict[str, Any] = {}
        spread = self._spread(points)
        for at, stage in enumerate(found.stages):
            # What is reduced first is read for that; later ones may ride on what computes them.
            if stage.reduced and at:
                continue
            wide = n if stage.reduced or "n" in found.letters(stage) else 1
            short = matrices * m * (-(-wide // PARTITIONS) + core.access_cycles)
            cycles = np.where(spread, short, tiles * (wide + core.access_cycles))
            engine = np.zeros(points.size, np.int64)
            for name, place in self._chosen.items():
                engine = points[name] if place == at else engine
            for value, own in enumerate(("vector", *_ENGINES[1:])):
                spent = np.where(engine == value, cycles * cycle(core, own), 0.0)
                busy[own] = busy.get(own, 0.0) + spent
        waits = 2 * start(core) + moved / tiles / rate(core)
        more = {name: seconds + waits for name, seconds in busy.items()}
        rounds = np.where(spread, matrices * m, tiles)
        steps = 300 + rounds * (len(found.stages) + len(found.tiles) + 1)
        return Work(moved / rate(core), {}, {**more, "dma": waits}, steps)

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at."""
        others = sum((points[name] for name in self._chosen), np.zeros(points.size, np.int64))
        found: np.ndarray = others == 0
        return found

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        if point.get("spread", 0):
            return scheduled_spread(self.stages)
        engines = [""] * len(self.stages.stages)
        for name, at in self._chosen.items():
            engines[at] = _ENGINES[point[name]]
        return scheduled(self.stages, engines)


def find_row_stages(request: Request) -> TrainiumRowStages | None:
    """Return reductions of the same rows as a problem, None if the function is something else.

    - Raises ValueError: as for :func:`.predicted.matched_problem`.
    """

    def problem_of(found: Stages, core: Machine) -> TrainiumRowStages:
        return TrainiumRowStages(request.func, found, core)

    return matched_problem(request, match_row_stages, problem_of, transposes=False)
