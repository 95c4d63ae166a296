"""The vectors in which a reduction is accumulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from ....recognize.reduction import Reduction
from ....tir.walk import substitute, uses
from ..loops import index, loop, sequence
from .passes import Work

Values = dict[Any, Any]


def order_of_stores(reduction: Reduction) -> list[int] | None:
    """Return an order in which stores do not change what later ones read, None if there is none."""
    left = list(range(len(reduction.left)))
    order: list[int] = []
    while left:
        for each in left:
            others = [other for other in left if other != each]
            if not any(uses(reduction.merged[other], reduction.left[each]) for other in others):
                order.append(each)
                left.remove(each)
                break
        else:
            return None
    return order


class Accumulators:
    """The vectors in which a reduction is accumulated."""

    def __init__(self, work: Work, reduction: Reduction, size: int) -> None:
        self.work, self.reduction, self.size = work, reduction, size
        self.buffers = [
            tirx.decl_buffer([index(size)], str(buffer.dtype), f"sum_{buffer.name}", layout=None)
            for buffer, _ in work.targets
        ]
        self.order = order_of_stores(reduction) or []

    def allocate(self) -> list[Any]:
        """Return the statements that allocate them."""
        return [tirx.AllocBuffer(buffer) for buffer in self.buffers]

    def start(self, lanes: int) -> list[Any]:
        """Return the statements that set all of them to what changes nothing."""

        def vector(begin: int, width: int) -> Any:
            def store(lane: Any) -> Any:
                pairs = zip(self.buffers, self.reduction.neutral, strict=True)
                at = index(begin) + lane
                return sequence([tirx.BufferStore(buffer, value, [at]) for buffer, value in pairs])

            return in_lanes(width, store)

        return [vector(begin, width) for begin, width in pieces(0, self.size, lanes)]

    def load(self, at: Any) -> list[Any]:
        """Return what is accumulated at a place."""
        return [tirx.BufferLoad(buffer, [at]) for buffer in self.buffers]

    def add(self, at: Any, elements: Sequence[Any]) -> Any:
        """Return the statement that combines elements with what is accumulated at a place."""
        values = self.reduction.combined(self.load(at), elements)
        return sequence(
            [tirx.BufferStore(self.buffers[each], values[each], [at]) for each in self.order]
        )

    def halve(self, lanes: int) -> list[Any]:
        """Return the statements that combine all of them, into the first."""

        def halved(begin: int, span: int) -> Any:
            def add(lane: Any) -> Any:
                return self.add(index(begin) + lane, self.load(index(begin + span) + lane))

            return in_lanes(min(span, lanes), add)

        statements = []
        span = self.size // 2
        while span >= 1:
            statements += [halved(begin, span) for begin in range(0, span, min(span, lanes))]
            span //= 2
        return statements

    def store(self, at: Any, values: Values) -> Any:
        """Return the statement that stores what is accumulated at a place."""
        results = self.load(at)
        starts = self.reduction.starts
        if any(start is not None for start in starts):
            first = [
                neutral if start is None else start
                for start, neutral in zip(starts, self.reduction.neutral, strict=True)
            ]
            results = list(self.reduction.combined(first, results))
        return sequence(
            [
                tirx.BufferStore(buffer, value, [substitute(place, values)])
                for (buffer, place), value in zip(self.work.targets, results, strict=True)
            ]
        )


def pieces(begin: int, count: int, lanes: int) -> list[tuple[int, int]]:
    """Return the beginnings and sizes of vectors of n elements: shorter ones at the end.

    >>> pieces(0, 21, 8)
    [(0, 8), (8, 8), (16, 4), (20, 1)]
    """
    found = []
    while count:
        while lanes > count:
            lanes //= 2
        found.append((begin, lanes))
        begin, count = begin + lanes, count - lanes
    return found


def in_lanes(count: int, body: Callable[[Any], Any]) -> Any:
    """Return the statements of a vector's lanes."""
    return loop("lane", 0, count, body, tirx.ForKind.VECTORIZED)
