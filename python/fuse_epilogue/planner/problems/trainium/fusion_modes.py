"""Fusion on Trainium: the epilogue in the tiles of the reduction's kernel, or after it by HBM.

fused   one kernel: the results are computed of the sums while those are on the chip
none    the sums go to HBM; after that they are loaded again, and the epilogue is computed as
        the rule for elementwise work does it. Both are phases of one kernel: the second may
        begin with what the first has stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from tvm import s_tir, tirx

from ....kernels.trainium import row_reduction as elements
from ....kernels.trainium.row_blocks import Rows
from ....kernels.trainium.unfused import Unfused, is_followed, unfused_parts
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ....rewrites.epilogue import NONE
from ....rewrites.prepare import Prepare, prepare
from ..patterns import refuse_empty
from ..request import Request
from ..space import Constraint, Point, Points, Variable
from .buffers import IN_FLIGHT
from .predicted import Predicted
from .refused import beyond, check_in_place, read_beyond
from .work import Work, cycle, rate, start, stretched

#: The value of "fusion" where there is one kernel without HBM in between.
FUSED = 1
#: What its values are called.
LABELS = ("none", "fused")


@dataclass(frozen=True)
class Ways:
    """A function as its rule finds it, fused and unfused; one of them may be missing.

    - `func`: not scheduled.
    - `followed`: whether anything follows the reduction.
    - `fused` (object or None): the match in the function.
    - `apart`: the function as two.
    - `first` (object or None): the match in the reduction alone.
    - `rest`: the epilogue.
    """

    func: tirx.PrimFunc
    followed: bool
    fused: Any
    apart: Unfused | None = None
    first: Any = None
    rest: Rows | None = None

    @property
    def any(self) -> Any:
        """The match, fused or unfused."""
        return self.fused if self.fused is not None else self.first


def find_ways(request: Request, find: Callable[[tirx.PrimFunc, Prepare], Any]) -> Ways | None:
    """Return what a function is, None if it is something else.

    - `find`: finder of a rule: from a function and what prepares it, returns its match or None, or
      raises ``ScheduleError`` where what follows cannot be fused.
    - Raises ValueError: an axis is empty, what follows writes what the reduction reads, or only a
      condition keeps something from being read beyond its end.
    """
    func = request.func
    refuse_empty(func)
    fused: Any = None
    with contextlib.suppress(s_tir.ScheduleError):
        fused = find(func, request.prepare)
        if fused is None:
            return None
    apart = unfused_parts(func, request.prepare)
    first: Any = None
    rest: Rows | None = None
    if apart is not None:
        first, rest = find(apart.reduction, prepare), elements.find_elements(apart.rest)
    guarded = [read_beyond(part) for part in (fused, first, rest)]
    if apart is not None and first is not None and rest is not None:
        check_in_place(apart)
        if not any(guarded[1:]):
            return Ways(func, True, None if guarded[0] else fused, apart, first, rest)
    if fused is not None and not guarded[0]:
        return Ways(func, apart is not None or is_followed(request.prepared()), fused)
    if guarded[0] or (first is not None and any(guarded)):
        raise beyond(next(filter(None, guarded)))
    return None


@dataclass(frozen=True)
class OnTrainium(Predicted):
    """The part that all problems on Trainium share.

    - `ways`: the match.
    - `core`: where.
    """

    ways: Ways
    core: Machine

    #: The variables on which it depends what a schedule begins with: see `write`.
    written_by: ClassVar[tuple[str, ...]] = ("fusion", "rest")

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.ways.func

    def write(self, sch: s_tir.Schedule, found: Any, point: Point, alone: bool) -> None:
        """Write the match again, fused or the reduction `alone`."""
        raise NotImplementedError

    def cut(self, sch: s_tir.Schedule, found: Any, point: Point, alone: bool) -> None:
        """Cut what was written into tiles, as a point says."""
        raise NotImplementedError

    # ---- Fusion ------------------------------------------------------------------------------

    @property
    def fusion(self) -> tuple[Variable, Variable]:
        """The variables "fusion", and "rest": the columns of a tile of what follows."""
        ways = self.ways
        modes: list[int] = []
        widths: tuple[int, ...] = (0,)
        if ways.first is not None or not ways.followed:
            modes.append(NONE)
        if ways.fused is not None and ways.followed:
            modes.append(FUSED)
        if ways.rest is not None:
            most = ways.rest.size("n")
            widths = (0, *sorted({min(most, width) for width in elements.WIDTHS}))
        labels = tuple(LABELS[mode] for mode in modes)
        meaning = "whether what follows the reduction is computed on its tiles, or after it"
        return (
            Variable("fusion", tuple(modes), "", meaning, labels),
            Variable("rest", widths, "columns", "of a tile of an unfused epilogue"),
        )

    @property
    def constraints(self) -> tuple[Constraint, Constraint]:
        """Common to all: only an unfused epilogue has tiles of its own, and they fit."""
        core, rest = self.core, self.ways.rest
        bytes_of_column = 0
        if rest is not None:
            bytes_of_column = sum(ITEMSIZE[str(param.ty.dtype)] for param in rest.func.params)
        return (
            Constraint(
                "apart",
                0,
                "",
                lambda p: (p["rest"] > 0) != self.is_apart(p),
                "what follows has tiles of its own only where it is not fused",
            ),
            Constraint(
                "SBUF of what follows",
                core.sbuf_bytes,
                "bytes of a partition",
                lambda p: IN_FLIGHT * p["rest"] * bytes_of_column,
                f"{IN_FLIGHT} tiles of all that is loaded and stored",
            ),
        )

    def is_apart(self, points: Points) -> Any:
        """Whether the sums of points go through HBM."""
        return (points["fusion"] == NONE) & self.ways.followed

    def with_rest(self, points: Points, work: Work) -> Work:
        """Return the work of points with that of the epilogue, where it is unfused."""
        rest = self.ways.rest
        if rest is None:
            return work
        return work.and_then(_elements(rest, self.core, points["rest"]), self.is_apart(points))

    # ---- Schedule ----------------------------------------------------------------------------

    def _scheduled(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled for a point of the space."""
        alone = self._is_one_apart(point)
        sch = self._written(point).copy()
        self.cut(sch, self.ways.first if alone else self.ways.fused, point, alone)
        return sch

    def _is_one_apart(self, point: Point) -> bool:
        return point["fusion"] != FUSED and self.ways.followed

    def _written(self, point: Point) -> s_tir.Schedule:
        """Return what the schedule of a point begins with, which those of many share: it is kept.

        An unfused epilogue is in tiles, and the reduction written again, not yet cut.
        """
        key = tuple(point.get(name, 0) for name in self.written_by)
        if key not in self._begun:
            ways = self.ways
            if self._is_one_apart(point):
                assert ways.apart is not None and ways.rest is not None
                sch = ways.apart.sch.copy()
                elements.write(sch, ways.rest, alone=True)
                elements.cut(sch, ways.rest, point["rest"], alone=True)
                self.write(sch, ways.first, point, True)
            else:
                sch = ways.fused.sch.copy()
                self.write(sch, ways.fused, point, False)
            self._begun[key] = sch
        return self._begun[key]

    @cached_property
    def _begun(self) -> dict[tuple[int, ...], s_tir.Schedule]:
        return {}


def _elements(rest: Rows, core: Machine, width: Any) -> Work:
    """Return what elementwise work asks of the machine, in tiles of n columns."""
    m, n = rest.size("m"), rest.size("n")
    matrices = int(np.prod([rest.size(letter) for letter in rest.matrices], dtype=np.int64))
    sizes = [
        (int(np.prod([int(extent) for extent in p.ty.shape])), ITEMSIZE[str(p.ty.dtype)])
        for p in rest.func.params
    ]
    moved = sum(count * size for count, size in sizes)
    wide = matrices * m * n
    whole = sum(size for count, size in sizes if count == wide)
    tiles = matrices * -(-m // core.partitions) * -(-n // np.maximum(width, 1))
    short = moved / rate(core) * (stretched(core, width * 4) - 1)
    first = min(m, core.partitions) * np.minimum(width, n) * whole / rate(core)
    elements = matrices * -(-m // core.partitions) * n
    return Work(
        moved / rate(core),
        {},
        {
            "dma": short + np.minimum(width, n) * cycle(core, "scalar") + 2 * start(core),
            "scalar": (elements + core.access_cycles * tiles) * cycle(core, "scalar") + first,
        },
        50 + 3 * tiles,
    )
