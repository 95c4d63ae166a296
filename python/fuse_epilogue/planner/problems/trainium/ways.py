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
from ....neuron import CheckError, EmitError, KernelError, emit
from ....neuron.kernel import Kernel
from ....neuron.machine import Machine
from ....neuron.trace import ITEMSIZE
from ....rewrites.epilogue import NONE
from ....rewrites.prepare import Prepare, prepare
from ..cost import Terms
from ..patterns import refuse_empty
from ..problem import LONGEST, ExactCosts
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .buffers import IN_FLIGHT
from .refused import beyond, check_in_place, read_beyond, reason
from .work import Work, cycle, rate, start, stretched

#: The value of "fusion" where there is one kernel without HBM in between.
FUSED = 1
#: What its values are called.
LABELS = ("none", "fused")
#: Errors of a point without a kernel: in its loops, in emitting it, or in running it.
NO_KERNEL = (s_tir.ScheduleError, EmitError, KernelError)
#: Among the kernels that are kept: that of the last point.
_LAST = -1


@dataclass(frozen=True)
class Ways:
    """A function as its rule finds it, fused and unfused; one of them may be missing.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    followed : bool
        Whether anything follows the reduction.
    fused : object or None
        The match in the function.
    apart : Unfused or None
        The function as two.
    first : object or None
        The match in the reduction alone.
    rest : Rows or None
        The epilogue.
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

    Parameters
    ----------
    request : Request
    find : Callable
        Finder of a rule: from a function and what prepares it, returns its match or None, or raises
        ``ScheduleError`` where what follows cannot be fused.

    Raises
    ------
    ValueError
        An axis is empty, what follows writes what the reduction reads, or only a condition keeps
        something from being read beyond its end.
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
class OnTrainium(ExactCosts):
    """The part that all problems on Trainium share.

    Attributes
    ----------
    ways : Ways
        The match.
    core : Machine
        Where.
    """

    ways: Ways
    core: Machine

    #: The variables on which it depends what a schedule begins with: see `write`.
    written_by: ClassVar[tuple[str, ...]] = ("fusion", "rest")
    missing: ClassVar[tuple[str, ...]] = ()

    @property
    def exact_costs(self) -> ExactCosts:
        """Its own: predictions of kernels."""
        return self

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""
        return self.ways.func

    @property
    def space(self) -> Space:
        """The space of choices."""
        raise NotImplementedError

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        raise NotImplementedError

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

    # ---- Cost --------------------------------------------------------------------------------

    def cost(self, points: Points) -> Terms:
        """Return a bound below the latency: see :mod:`.work`."""
        return self.work(points).terms(points.size)

    def estimate(self, points: Points) -> np.ndarray:
        """Return an estimate of the latency, in seconds."""
        found: np.ndarray = np.broadcast_to(self.work(points).estimate(), (points.size,))
        return found

    def steps(self, points: Points) -> np.ndarray:
        """Return an estimate of the time that exact costs take: :attr:`.work.Work.steps`."""
        found: np.ndarray = np.broadcast_to(self.work(points).steps, (points.size,))
        return found

    def exact(self, point: Point) -> float:
        """Return the predicted latency in seconds; infinite if no kernel can be made."""
        try:
            kernel = self.kernel(point)
            seconds = kernel.predict(self.core).latency_ms * 1e-3
        except NO_KERNEL as error:
            self._reasons.append(reason(error))
            return float("inf")
        if seconds < self._least.get(point["fusion"], float("inf")):
            # The best one of a way will be asked for again: whether it is possible.
            self._least[point["fusion"]] = seconds
            self._kernels[point["fusion"]] = dict(point), kernel
        return seconds

    def is_possible(self, point: Point) -> bool:
        """Whether the kernel of a point keeps the rules of the machine.

        Whether it can be written; all that is known of a kernel that takes too long to examine.
        """
        try:
            kernel = self.kernel(point)
            if self.steps(Points.of([point]))[0] <= LONGEST:
                kernel.check(self.core)
        except (*NO_KERNEL, CheckError) as error:
            self._reasons.append(reason(error))
            return False
        return True

    def range_of(self, point: Point) -> tuple[float, float] | None:
        """Return the ends of a point's predicted latency in seconds, None for a long kernel."""
        if self.steps(Points.of([point]))[0] > LONGEST:
            return None
        least, most = self.kernel(point).predict(self.core).range_ms
        return least * 1e-3, most * 1e-3

    def kernel(self, point: Point) -> Kernel:
        """Return the kernel of a point of the space; the last and the best of a way are kept."""
        for known, kernel in self._kernels.values():
            if known == point:
                return kernel
        self._kernels.pop(_LAST, None)  # Its trace may be large: not two of them at once.
        kernel = emit(self._scheduled(point))
        self._kernels[_LAST] = dict(point), kernel
        return kernel

    @cached_property
    def _kernels(self) -> dict[int, tuple[Point, Kernel]]:
        """By the way to fuse, or `_LAST`."""
        return {}

    @cached_property
    def _least(self) -> dict[int, float]:
        return {}

    @property
    def why_impossible(self) -> str:
        """Reason why the first of the points without a kernel has none, or ""."""
        return next(iter(self._reasons), "")

    @cached_property
    def _reasons(self) -> list[str]:
        return []

    # ---- Schedule ----------------------------------------------------------------------------

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the scheduled function.

        Raises
        ------
        ValueError
            The point is not one of the space.
        """
        self.space.check(point)
        return self._scheduled(point)

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
        key = tuple(point[name] for name in self.written_by)
        if key not in self._begun:
            ways = self.ways
            if self._is_one_apart(point):
                assert ways.apart is not None and ways.rest is not None
                sch = ways.apart.sch.copy()
                elements.tile(sch, ways.rest, point["rest"], True)
                self.write(sch, ways.first, point, True)
            else:
                sch = ways.fused.sch.copy()
                self.write(sch, ways.fused, point, False)
            self._begun[key] = sch
        return self._begun[key]

    @cached_property
    def _begun(self) -> dict[tuple[int, ...], s_tir.Schedule]:
        return {}

    def resized(self, name: str, size: int) -> None:
        """Return None: another size is another function."""


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
