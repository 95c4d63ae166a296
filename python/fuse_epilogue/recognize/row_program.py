"""Reads a program as groups of stages that go along the same rows.

    for i, k: highest[i] = max(highest[i], x[i, k])       One group with the outer axis i: its
    for i, j: e[i, j] = exp(x[i, j] - highest[i])         stages are computed for one i after the
    for i, k: total[i] += e[i, k]                         other, and what a row leaves to later
    for i, j: y[i, j] = e[i, j] / total[i]                stages of it is in the nearest cache.

A group has outer axes, which all of its stages have; the other axes of a stage are within a row.
Where neighbours in memory are elements of one row, lanes of a vector are elements of a row; where
they are of different rows, lanes are rows, along one of the outer axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.ir import Var, prim

from ..tir.affine import affine_of
from ..tir.walk import handle, loads, same, uses
from .reduction import Reduction, read_reduction
from .row_stages import Views, flat_offset, prepared
from .stages import Axis, Program, Stage

#: Neighbours in a row from which on they are the lanes of a vector.
LONG = 8
#: Neighbours in a row up to which a vector of them does not pay.
SHORT = 4


@dataclass
class RowStage:
    """A stage of a group.

    - `reduction`: None for an elementwise stage.
    - `outer`: the place in the stage's axes of each outer axis of the group, by its class.
    """

    stage: Stage
    reduction: Reduction | None
    outer: dict[int, int]

    @property
    def local(self) -> tuple[Axis, ...]:
        """The spatial axes within a row."""
        return tuple(
            axis for place, axis in enumerate(self.stage.axes) if place not in self.outer.values()
        )


@dataclass
class Group:
    """Stages along the same rows.

    - `outer`: extents of the outer axes, by their class, outermost first.
    - `lane`: class of the outer axis that lanes are along; None if they are elements of one row.
    """

    outer: dict[int, int]
    stages: list[RowStage] = field(default_factory=list)
    lane: int | None = None

    @property
    def reduces(self) -> bool:
        """Whether any of its stages is a reduction."""
        return any(each.reduction is not None for each in self.stages)

    def computes(self, buffer: Any) -> bool:
        """Whether one of its stages computes a buffer."""
        return any(
            same(store.buffer, buffer) for each in self.stages for store in each.stage.stores
        )

    def is_read_by(self, stage: Stage) -> bool:
        """Whether a stage reads what the group computes."""
        return any(self.computes(load.source) for load in stage.loads)


@dataclass(frozen=True)
class RowProgram:
    """A program in groups.

    - `program`: with the stages of the groups. Its parameters include buffers that stand for
      outputs.
    - `groups`: in the order in which they run.
    - `views`: those buffers, each with the output whose memory it is.
    """

    program: Program
    groups: tuple[Group, ...]
    views: Views


def read_row_program(program: Program) -> RowProgram | None:
    """Return a program as groups of stages along the same rows.

    - Returns: None if it has no reduction, or one that is a product of matrices or that cannot be
      regrouped.
    """
    if not any(stage.reduced for stage in program.stages):
        return None
    program, views = prepared(program)
    reductions: dict[int, Reduction] = {}
    for stage in program.stages:
        if stage.reduced:
            found = read_reduction(stage)
            if found is None or _is_contraction(stage, found):
                return None
            reductions[handle(stage.output)] = found
    grouping = _Grouping(program, reductions)
    for stage in program.stages:
        grouping.add(stage)
    return RowProgram(program, tuple(grouping.groups), views)


def offset_strides(load: Any, axes: Sequence[Axis]) -> tuple[int, ...] | None:
    """Return the stride in memory along some axes, None if that varies."""
    offset = flat_offset(load.indices, load.source.shape)
    found = affine_of(offset, [axis.var for axis in axes])
    return None if found is None else found.factors


def _is_contraction(stage: Stage, found: Reduction) -> bool:
    """Whether a reduction sums products of operands that are used for several results each.

    In products of a vector with each row of a matrix, only one is; a filter with windows of a row
    also belongs to another kernel.
    """
    (element, *others) = found.elements
    if others or not isinstance(element, prim.Mul) or found.repeatable[0]:
        return False
    spatial = [axis for axis in stage.axes if axis.extent > 1]
    used = [{handle(a.var) for a in spatial if uses(x, a.var)} for x in (element.a, element.b)]
    if used[0] == used[1] or not (loads(element.a) and loads(element.b)):
        return False
    reduced = [axis.var for axis in stage.reduced]
    windows = any(
        uses(index, *reduced) and uses(index, *(axis.var for axis in spatial))
        for load in loads(element)
        for index in load.indices
    )
    return windows or not (used[0] <= used[1] or used[1] <= used[0])


class _Grouping:
    """Puts stages into groups, one after the other."""

    def __init__(self, program: Program, reductions: dict[int, Reduction]) -> None:
        self.program, self.reductions = program, reductions
        self.groups: list[Group] = []
        self.parent: dict[int, int] = {}
        for stage in program.stages:
            for load in stage.loads:
                self.align(stage, load)
        self.align_beside()

    # ---- classes of axes --------------------------------------------------------------------

    def align(self, stage: Stage, load: Any) -> None:
        """Put axes of a reader and of what it reads into one class, where they are the same."""
        producer = self.program.stage_of(load.source)
        if producer is None or producer is stage:
            return
        own = {handle(axis.var): axis for axis in stage.axes}
        for axis, index in zip(producer.axes, load.indices, strict=True):
            reader = own.get(handle(index)) if isinstance(index, Var) else None
            if reader is not None and reader.extent == axis.extent > 1:
                self.parent[self.class_of(axis)] = self.class_of(reader)

    def align_beside(self) -> None:
        """Put axes of reductions into one class where they are the same of a parameter."""
        known: dict[tuple[int, int], Axis] = {}
        for stage in self.program.stages:
            own = {handle(axis.var): axis for axis in stage.axes} if stage.reduced else {}
            for load in stage.loads:
                if self.program.stage_of(load.source) is not None:
                    continue
                for place, index in enumerate(load.indices):
                    axis = own.get(handle(index))
                    if axis is not None and axis.extent > 1:
                        first = known.setdefault((handle(load.source), place), axis)
                        if first.extent == axis.extent:
                            self.parent[self.class_of(axis)] = self.class_of(first)

    def class_of(self, axis: Axis) -> int:
        """Return the class of an axis."""
        known = handle(axis.var)
        while self.parent.get(known, known) != known:
            known = self.parent[known]
        return known

    def classes(self, stage: Stage) -> dict[int, int]:
        """Return the places of a stage's axes by class, of classes that only one axis is in."""
        found: dict[int, list[int]] = {}
        for place, axis in enumerate(stage.axes):
            if axis.extent > 1:
                found.setdefault(self.class_of(axis), []).append(place)
        return {key: places[0] for key, places in found.items() if len(places) == 1}

    # ---- groups -----------------------------------------------------------------------------

    def add(self, stage: Stage) -> None:
        """Put a stage into the last group, or into one of its own."""
        places = self.classes(stage)
        reduction = self.reductions.get(handle(stage.output))
        if self.groups and self.join(self.groups[-1], stage, places, reduction):
            return
        outer = {key: stage.axes[place].extent for key, place in places.items()}
        made = Group(outer, [RowStage(stage, reduction, places)])
        if reduction is not None:
            made.lane = self.lane(made, stage, reduction)
        last = self.groups[-1] if self.groups else None
        # What a later stage of the last group reads, but does not wait for it, comes before.
        independent = last is not None and not last.is_read_by(stage)
        if independent and last is not None and last.reduces and reduction is None:
            self.groups.insert(len(self.groups) - 1, made)
        else:
            self.groups.append(made)

    def join(
        self, group: Group, stage: Stage, places: dict[int, int], reduction: Reduction | None
    ) -> bool:
        """Put a stage into a group if it goes along its rows, and say whether it does."""
        shared = {key for key in group.outer if key in places}
        for load in stage.loads:
            producer = next(
                (each for each in group.stages if same(each.stage.output, load.source)), None
            )
            producer = producer or next(
                (
                    each
                    for each in group.stages
                    if any(same(store.buffer, load.source) for store in each.stage.stores)
                ),
                None,
            )
            if producer is None:
                continue
            for key in list(shared):
                index = load.indices[producer.outer[key]]
                if not same(index, stage.axes[places[key]].var):
                    shared.discard(key)
        if len(shared) < len(group.outer):
            # Rows may become longer as long as none has been reduced.
            if group.reduces or not group.is_read_by(stage):
                return False
        kept = {key: size for key, size in group.outer.items() if key in shared}
        if not kept and group.outer and reduction is None:
            return False
        joined = RowStage(stage, reduction, {key: places[key] for key in kept})
        if reduction is None and group.reduces and not self.is_along(group, joined):
            return False
        first = reduction is not None and not group.reduces
        group.outer = kept
        for each in group.stages:
            each.outer = {key: place for key, place in each.outer.items() if key in kept}
        group.stages.append(joined)
        if first and reduction is not None:
            group.lane = self.lane(group, stage, reduction)
        return True

    def is_along(self, group: Group, joined: RowStage) -> bool:
        """Whether neighbours of an elementwise stage are lanes of the group's vectors."""
        stage = joined.stage
        if not any(axis.extent > 1 for axis in joined.local):
            return True
        last = max(place for place, axis in enumerate(stage.axes) if axis.extent > 1)
        if group.lane is None:
            return last not in joined.outer.values()
        return joined.outer.get(group.lane) == last

    def lane(self, group: Group, stage: Stage, reduction: Reduction) -> int | None:
        """Return the class of the outer axis that lanes are along."""
        row = group.stages[-1]
        outer = {key: stage.axes[place] for key, place in row.outer.items()}
        kept: dict[int, int] = {}
        run = 1
        for load in _largest(stage, reduction):
            run = max(run, _run(load, stage.reduced))
            for key, axis in outer.items():
                strides = offset_strides(load, [axis])
                if strides is not None and strides[0] > 0:
                    kept[key] = min(strides[0], kept.get(key, strides[0]))
        if run >= LONG or not kept:
            return None
        nearest = min(kept, key=lambda key: (kept[key], -group.outer[key]))
        if kept[nearest] == 1:
            return nearest if group.outer[nearest] > 1 or run == 1 else None
        # Windows of a few neighbours, at every other place or so: no vectors of their own.
        return nearest if group.outer[nearest] >= LONG and run < SHORT else None


def _largest(stage: Stage, reduction: Reduction) -> list[Any]:
    """Return those loads of a reduction's elements that read the most memory."""
    found = [load for element in reduction.elements for load in loads(element)]
    axes = (*stage.axes, *stage.reduced)

    def size(load: Any) -> int:
        used = [axis for axis in axes if any(uses(index, axis.var) for index in load.indices)]
        return math.prod(axis.extent for axis in used)

    most = max(map(size, found), default=0)
    return [load for load in found if size(load) == most]


def _run(load: Any, reduced: Sequence[Axis]) -> int:
    """Return how many neighbours in memory are reduced one after the other."""
    run = 1
    for axis in reversed([each for each in reduced if each.extent > 1]):
        strides = offset_strides(load, [axis])
        if strides is None or strides[0] != run:
            break
        run *= axis.extent
    return run
