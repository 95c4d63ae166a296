"""Functions on Trainium whose points cost what the latency model predicts for their kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from tvm import s_tir, tirx

from ....neuron import CheckError, EmitError, KernelError, emit
from ....neuron.kernel import Kernel
from ....neuron.machine import Machine
from ....rewrites.step import NotRewritten
from ..cost import Terms
from ..patterns import refuse_empty
from ..problem import LONGEST, ExactCosts
from ..request import Request
from ..space import Point, Points, Space
from .refused import check_sizes, check_transposing, reason
from .work import Work

#: Errors of a point without a kernel: in its loops, in emitting it, or in running it.
NO_KERNEL = (s_tir.ScheduleError, EmitError, KernelError)
#: Among the kernels that are kept: that of the last point.
_LAST = -1
AnyPredicted = TypeVar("AnyPredicted", bound="Predicted")


class Predicted(ExactCosts):
    """A function, and what its kernels cost.

    - `core`: where.
    """

    core: Machine
    missing: ClassVar[tuple[str, ...]] = ()

    @property
    def exact_costs(self) -> ExactCosts:
        """Its own: predictions of kernels."""
        return self

    @property
    @abstractmethod
    def func(self) -> tirx.PrimFunc:
        """The function, not scheduled."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Its sizes by name."""

    @property
    @abstractmethod
    def space(self) -> Space:
        """The space of choices."""

    @abstractmethod
    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""

    @abstractmethod
    def _scheduled(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled for a point of the space."""

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
        way = point.get("fusion", 0)
        if seconds < self._least.get(way, float("inf")):
            # The best one of a way will be asked for again: whether it is possible.
            self._least[way] = seconds
            self._kernels[way] = dict(point), kernel
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

        - Raises ValueError: the point is not one of the space.
        """
        self.space.check(point)
        return self._scheduled(point)

    def resized(self, name: str, size: int) -> None:
        """Return None: another size is another function."""


def matched_problem(
    request: Request,
    match: Callable[[tirx.PrimFunc], Any],
    problem_of: Callable[[Any, Machine], AnyPredicted],
    transposes: bool = True,
) -> AnyPredicted | None:
    """Return a function as a problem, None if it does not match.

    - `match`: returns the match of a function, or raises :class:`.rewrites.step.NotRewritten`.
    - `problem_of`: returns the problem of a match on a machine.
    - `transposes`: whether the kernels transpose tiles by the tensor engine.
    - Raises ValueError: an axis is empty, the sizes are more than is counted, or the machine's
      tensor engine transposes finite data only and the request does not say that they are.
    """
    refuse_empty(request.func)
    try:
        found = match(request.func)
    except NotRewritten:
        return None
    problem = problem_of(found, request.machine)
    check_sizes(problem.sizes)
    if transposes:
        check_transposing(request.machine, request.finite)
    return problem
