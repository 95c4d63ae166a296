"""The passes of a group over a row, and the expressions of their elements in flat buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Var

from ....recognize.reduction import Reduction
from ....recognize.row_program import Group, RowStage
from ....recognize.stages import Axis, Stage, analyzer_of
from ....tir.walk import handle, same, substitute
from ..loops import FlatViews, flat_index, index, with_loads
from ..windows import analyzer_with, without_proved_guards
from .shares import Exponentials


@dataclass
class Work:
    """A stage of a pass.

    - `reduction`: with the elements as they are in `stage`; `values` are used instead.
    - `values`: by store, the element, in the variables of the group and of the pass; loads are
      flat.
    - `targets`: by store, the flat buffer and the place of the result in it.
    """

    reduction: Reduction | None
    values: tuple[Any, ...]
    targets: tuple[tuple[Any, Any], ...]


@dataclass
class Pass:
    """Stages that go over the same elements of a row at once.

    - `kept`: axes within the row of a reduction's result: loops around everything else.
    - `domain`: axes of the elements, innermost last; empty for one element.
    - `computed`: the stages as they were read.
    - `in_place`: whether elements replace those that they are computed from: none may be computed
      twice.
    """

    kept: list[Axis]
    domain: list[Axis]
    works: list[Work] = field(default_factory=list)
    computed: list[RowStage] = field(default_factory=list)
    in_place: bool = False

    @property
    def extents(self) -> list[int]:
        """Sizes of the domain."""
        return [axis.extent for axis in self.domain]


@dataclass
class Lanes:
    """The axes along which lanes are different rows.

    - `keys`: their extents by class, outermost first.
    - `width`: number of rows that are computed together.
    - `begin`, `end`: the rows that are computed.
    - `at`, `place` (Var): a row, counted along all of the axes, and its place among those of its
      block.
    """

    keys: dict[int, int]
    width: int
    begin: int
    end: int
    at: Any = field(default_factory=lambda: Var("at", "int64"))
    place: Any = field(default_factory=lambda: Var("place", "int64"))

    def values(self) -> dict[int, Any]:
        """Return the index along each of the axes, by class."""
        found: dict[int, Any] = {}
        left = self.at
        for place, (key, extent) in enumerate(reversed(self.keys.items())):
            last = place == len(self.keys) - 1
            found[key] = left if last else tirx.floormod(left, index(extent))
            left = tirx.floordiv(left, index(extent))
        return found


class PassMaker:
    """Puts the stages of a group into passes.

    - `outer`: the outer axes but those of the lanes, by their class.
    - `rows` (dict[int, tuple[Buffer, RowStage]]): the buffers of a row, by what they hold.
    - `replaced` (dict[int, tuple[RowStage, RowStage]]): stages whose elements are where those of a
      later stage replace them, and that stage.
    """

    def __init__(
        self,
        group: Group,
        outer: dict[int, Axis],
        lanes: Lanes | None,
        stored: frozenset[int],
        views: FlatViews,
    ) -> None:
        self.group, self.outer, self.lanes = group, outer, lanes
        self.stored, self.views = stored, views
        self.rows: dict[int, tuple[Any, RowStage]] = {}
        self.replaced: dict[int, tuple[RowStage, RowStage]] = {}
        self.passes: list[Pass] = []
        self.exponentials = Exponentials(self.passes)

    def run(self) -> list[Pass]:
        """Return the passes, in order."""
        for each in self.group.stages:
            for store in each.stage.stores:
                if handle(store.buffer) in self.stored:
                    continue
                later = self.replacing(each)
                if later is not None:
                    self.replaced[handle(store.buffer)] = (each, later)
                else:
                    self.rows[handle(store.buffer)] = (self.row_buffer(each, store.buffer), each)
        for each in self.group.stages:
            self.place(each)
        return self.passes

    def row_buffer(self, each: RowStage, buffer: Any) -> Any:
        """Return the buffer that holds a stage's elements of one row, or of one block of rows."""
        size = math.prod(axis.extent for axis in each.local)
        size *= 1 if self.lanes is None else self.lanes.width
        name = f"row_{buffer.name}"
        return tirx.decl_buffer([index(size)], str(buffer.dtype), name, layout=None)

    def replacing(self, each: RowStage) -> RowStage | None:
        """Return the stage whose output has room for the elements of a stage until it reads them.

        Its own elements replace them, one for one, and it is the last to read them. There is room
        for those of one stage.
        """
        if each.reduction is not None or self.lanes is not None:
            return None
        buffer = each.stage.output
        readers = [other for other in self.group.stages if other.stage.reads(buffer)]
        if not readers or readers[-1].reduction is not None:
            return None
        last = readers[-1]
        if any(last is taken for _, taken in self.replaced.values()):
            return None
        output = last.stage.output
        fits = (
            handle(output) in self.stored
            and str(output.dtype) == str(buffer.dtype)
            and [axis.extent for axis in last.local] == [axis.extent for axis in each.local]
            and all(
                _is_same_element(load, each, [axis for axis in last.local if axis.extent > 1])
                for load in last.stage.loads
                if same(load.source, buffer)
            )
        )
        return last if fits else None

    # ---- which pass -------------------------------------------------------------------------

    def place(self, each: RowStage) -> None:
        """Put a stage into the first pass that it can be part of, or into a new one."""
        local = [axis for axis in each.local if axis.extent > 1]
        reduced = [axis for axis in each.stage.reduced if axis.extent > 1]
        kept, domain = (local, reduced) if each.reduction else ([], local)
        extents = [axis.extent for axis in domain]
        in_place = any(each is last for _, last in self.replaced.values())
        for number, known in enumerate(self.passes):
            if (
                in_place
                or known.in_place
                or kept
                or known.kept
                or known.extents != extents
                or not extents
            ):
                continue
            if self.may_join(each, domain, number):
                self.fill(known, each, domain)
                return
        fresh = [Axis(Var(str(axis.var.name), "int64"), axis.extent) for axis in domain]
        outer = [Axis(Var(str(axis.var.name), "int64"), axis.extent) for axis in kept]
        made = Pass(outer, fresh, in_place=in_place)
        self.passes.append(made)
        self.fill(made, each, domain, kept)

    def may_join(self, each: RowStage, domain: Sequence[Axis], number: int) -> bool:
        """Whether all that a stage reads is known in a pass, at the element that it is for."""
        for load in each.stage.loads:
            for place, known in enumerate(self.passes[number:], number):
                for other in known.computed:
                    if other is each or not _computes(other.stage, load.source):
                        continue
                    if place > number or other.reduction is not None:
                        return False
                    if not _is_same_element(load, other, domain):
                        return False
        return True

    # ---- expressions ------------------------------------------------------------------------

    def fill(
        self, made: Pass, each: RowStage, domain: Sequence[Axis], kept: Sequence[Axis] = ()
    ) -> None:
        """Add a stage to a pass."""
        stage = each.stage
        table: dict[Any, Any] = {}
        axes = [*self.outer.values(), *made.kept, *made.domain]
        for axis in (*stage.axes, *stage.reduced):
            table[axis.var] = index(0)
        rows = {} if self.lanes is None else self.lanes.values()
        for key, place in each.outer.items():
            table[stage.axes[place].var] = rows[key] if key in rows else self.outer[key].var
        for old, new in zip((*kept, *domain), (*made.kept, *made.domain), strict=True):
            table[old.var] = new.var
        typed = {
            axis.var: table[axis.var]
            if str(axis.var.ty.dtype) == "int64"
            else table[axis.var].astype(str(axis.var.ty.dtype))
            for axis in (*stage.axes, *stage.reduced)
        }
        analyzer = analyzer_of(axes)
        if self.lanes is not None:
            analyzer = analyzer_with(axes, self.lanes.at, self.lanes.begin, self.lanes.end)

        def load(node: Any) -> Any:
            buffer, at = self.place_of(node.source, node.indices)
            return tirx.BufferLoad(buffer, [analyzer.simplify(at)])

        elements = each.reduction.elements if each.reduction else [stage.value]
        values = tuple(with_loads(substitute(element, typed), load) for element in elements)
        values = tuple(without_proved_guards(value, analyzer) for value in values)
        own = [substitute(axis.var, typed) for axis in stage.axes]
        targets = []
        for store in stage.stores:
            buffer, at = self.place_of(store.buffer, own)
            targets.append((buffer, analyzer.simplify(at)))
        if not any(handle(store.buffer) in self.stored for store in stage.stores):
            values = self.exponentials.shortened(values, each.reduction, targets, made)
        values = self.exponentials.scaled(values)
        made.works.append(Work(each.reduction, values, tuple(targets)))
        made.computed.append(each)

    def place_of(self, buffer: Any, indices: Sequence[Any]) -> tuple[Any, Any]:
        """Return the flat buffer that an element is in, and its place there."""
        replaced = self.replaced.get(handle(buffer))
        if replaced is not None:
            each, last = replaced
            local = [at for at in range(len(indices)) if at not in each.outer.values()]
            inner = iter([indices[at] for at in local])
            outer = {place: self.outer[key].var for key, place in last.outer.items()}
            moved = [
                outer[at] if at in outer else next(inner) for at in range(len(last.stage.axes))
            ]
            return self.place_of(last.stage.output, moved)
        row = self.rows.get(handle(buffer))
        if row is None:
            return self.views.of(buffer), flat_index(indices, buffer.shape)
        kept, producer = row
        local = [at for at in range(len(indices)) if at not in producer.outer.values()]
        shape = [producer.stage.axes[at].extent for at in local]
        at = flat_index([indices[at] for at in local], shape)
        if self.lanes is not None:
            at = at * index(self.lanes.width) + self.lanes.place
        return kept, at


def _computes(stage: Stage, buffer: Any) -> bool:
    return any(same(store.buffer, buffer) for store in stage.stores)


def _is_same_element(load: Any, producer: RowStage, domain: Sequence[Axis]) -> bool:
    """Whether a load within a row is at the element that both stages are at."""
    outer = producer.outer.values()
    at = [
        place
        for place, axis in enumerate(producer.stage.axes)
        if place not in outer and axis.extent > 1
    ]
    return len(at) == len(domain) and all(
        same(load.indices[place], axis.var) for place, axis in zip(at, domain, strict=True)
    )
