"""The passes of a group over a row, and the expressions of their elements in flat buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var, prim
from tvm.sym import detect_linear_equation

from ....recognize.reduction import Reduction
from ....recognize.row_program import Group, RowStage
from ....recognize.stages import Axis, Stage, analyzer_of
from ....schedules.branches import may_be_discarded
from ....tir_tree import handle, loads, same, substitute, uses
from ..loops import FlatViews, flat_index, index, with_loads
from ..vector_math import exp_up_to_zero


@dataclass
class Work:
    """A stage of a pass.

    Attributes
    ----------
    reduction : Reduction or None
        With the elements as they are in `stage`; `values` are used instead.
    values : tuple[Expr, ...]
        By store, the element, in the variables of the group and of the pass; loads are flat.
    targets : tuple[tuple[Buffer, Expr], ...]
        By store, the flat buffer and the place of the result in it.
    """

    reduction: Reduction | None
    values: tuple[Any, ...]
    targets: tuple[tuple[Any, Any], ...]


@dataclass
class Pass:
    """Stages that go over the same elements of a row at once.

    Attributes
    ----------
    kept : list[Axis]
        Axes within the row of a reduction's result: loops around everything else.
    domain : list[Axis]
        Axes of the elements, innermost last; empty for one element.
    works : list[Work]
    computed : list[RowStage]
        The stages as they were read.
    """

    kept: list[Axis]
    domain: list[Axis]
    works: list[Work] = field(default_factory=list)
    computed: list[RowStage] = field(default_factory=list)

    @property
    def extents(self) -> list[int]:
        """Sizes of the domain."""
        return [axis.extent for axis in self.domain]


@dataclass
class Lanes:
    """The axis along which lanes are different rows.

    Attributes
    ----------
    key : int
        Its class.
    extent : int
    width : int
        Number of rows that are computed together.
    at, place : Var
        A row, and its place among those.
    """

    key: int
    extent: int
    width: int
    at: Any = field(default_factory=lambda: Var("at", "int64"))
    place: Any = field(default_factory=lambda: Var("place", "int64"))


class PassMaker:
    """Puts the stages of a group into passes.

    Attributes
    ----------
    outer : dict[int, Axis]
        The outer axes but that of the lanes, by their class.
    rows : dict[int, tuple[Buffer, RowStage]]
        The buffers of a row, by what they hold.
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
        self.passes: list[Pass] = []

    def run(self) -> list[Pass]:
        """Return the passes, in order."""
        for each in self.group.stages:
            for store in each.stage.stores:
                if handle(store.buffer) not in self.stored:
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

    # ---- which pass -------------------------------------------------------------------------

    def place(self, each: RowStage) -> None:
        """Put a stage into the first pass that it can be part of, or into a new one."""
        local = [axis for axis in each.local if axis.extent > 1]
        reduced = [axis for axis in each.stage.reduced if axis.extent > 1]
        kept, domain = (local, reduced) if each.reduction else ([], local)
        extents = [axis.extent for axis in domain]
        for number, known in enumerate(self.passes):
            if kept or known.kept or known.extents != extents or not extents:
                continue
            if self.may_join(each, domain, number):
                self.fill(known, each, domain)
                return
        fresh = [Axis(Var(str(axis.var.name), "int64"), axis.extent) for axis in domain]
        outer = [Axis(Var(str(axis.var.name), "int64"), axis.extent) for axis in kept]
        made = Pass(outer, fresh)
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
        if self.lanes is not None:
            axes.append(Axis(self.lanes.at, self.lanes.extent))
        for axis in (*stage.axes, *stage.reduced):
            table[axis.var] = index(0)
        for key, place in each.outer.items():
            along = self.lanes is not None and key == self.lanes.key
            var = self.lanes.at if along and self.lanes is not None else self.outer[key].var
            table[stage.axes[place].var] = var
        for old, new in zip((*kept, *domain), (*made.kept, *made.domain), strict=True):
            table[old.var] = new.var
        typed = {
            axis.var: table[axis.var]
            if str(axis.var.ty.dtype) == "int64"
            else table[axis.var].astype(str(axis.var.ty.dtype))
            for axis in (*stage.axes, *stage.reduced)
        }
        analyzer = analyzer_of(axes)

        def load(node: Any) -> Any:
            row = self.rows.get(handle(node.source))
            if row is None:
                return self.views.load(node, analyzer)
            buffer, producer = row
            return tirx.BufferLoad(buffer, [analyzer.simplify(self.within(node.indices, producer))])

        elements = each.reduction.elements if each.reduction else [stage.value]
        values = tuple(with_loads(substitute(element, typed), load) for element in elements)
        targets = []
        own = [substitute(axis.var, typed) for axis in stage.axes]
        for store in stage.stores:
            row = self.rows.get(handle(store.buffer))
            if row is None:
                at = flat_index(own, stage.shape)
                targets.append((self.views.of(store.buffer), analyzer.simplify(at)))
            else:
                targets.append((row[0], analyzer.simplify(self.within(own, each))))
        if not any(handle(store.buffer) in self.stored for store in stage.stores):
            values = tuple(self.with_short_exp(value, made) for value in values)
        made.works.append(Work(each.reduction, values, tuple(targets)))
        made.computed.append(each)

    def with_short_exp(self, value: Any, one: Pass) -> Any:
        """Return a value with the short form of exp where the argument is not above 0.

        An argument is that if the maximum of the row is subtracted from an element of it. Where a
        row has a NaN, there are others above the maximum; but then so is the sum of the row.
        """

        def rule(call: Any) -> Any:
            is_exp = getattr(call.op, "name", "") == "tirx.exp"
            if not is_exp or str(call.ty.dtype) != "float32":
                return call
            less = call.args[0]
            if isinstance(less, prim.Sub) and isinstance(less.b, TensorLoad):
                if any(
                    _is_maximum(less.b, less.a, known, work, one)
                    for known in self.passes
                    for work in known.works
                ):
                    return exp_up_to_zero(less)
            return call

        return tvm_ffi.structural_map(value, (Call, rule))

    def within(self, indices: Sequence[Any], producer: RowStage) -> Any:
        """Return the place in a row's buffer of an element of what a stage computes."""
        local = [place for place in range(len(indices)) if place not in producer.outer.values()]
        shape = [producer.stage.axes[place].extent for place in local]
        at = flat_index([indices[place] for place in local], shape)
        return at if self.lanes is None else at * index(self.lanes.width) + self.lanes.place


def _is_maximum(load: Any, element: Any, known: Pass, work: Work, one: Pass) -> bool:
    """Whether a load is of the maximum of what an element of a pass is one of."""
    if work.reduction is None or not isinstance(work.reduction.merged[0], prim.Max):
        return False
    (buffer, place), *others = work.targets
    if others or known.kept or known.extents != one.extents:
        return False
    table = {a.var: b.var for a, b in zip(known.domain, one.domain, strict=True)}
    return (
        same(buffer, load.source)
        and bool(tvm_ffi.structural_equal(place, load.indices[0]))
        and bool(tvm_ffi.structural_equal(substitute(work.values[0], table), element))
    )


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


def collapsed(one: Pass) -> Pass:
    """Return a pass with axes merged that lie behind each other in every buffer."""
    place = len(one.domain) - 2
    while place >= 0:
        one = _merged(one, place) or one
        place -= 1
    return one


def _merged(one: Pass, place: int) -> Pass | None:
    outer, inner = one.domain[place], one.domain[place + 1]
    indices = [load.indices[0] for work in one.works for v in work.values for load in loads(v)]
    # The results of reductions do not change along the domain.
    indices += [at for work in one.works if work.reduction is None for _, at in work.targets]
    for each in indices:
        if loads(each):
            if uses(each, outer.var, inner.var):
                return None
            continue
        found = detect_linear_equation(each, [outer.var, inner.var])
        if len(found) == 0 or not all(isinstance(x, prim.IntImm) for x in found[:-1]):
            if uses(each, outer.var, inner.var):
                return None
            continue
        if int(found[0]) != int(found[1]) * inner.extent or uses(found[2], outer.var, inner.var):
            return None
    hidden = [with_loads(v, _constant) for work in one.works for v in work.values]
    if any(uses(each, outer.var, inner.var) for each in hidden):
        return None
    var = Var(f"{outer.var.name}_{inner.var.name}", "int64")
    together = Axis(var, outer.extent * inner.extent)
    domain = [*one.domain[:place], together, *one.domain[place + 2 :]]
    analyzer = analyzer_of(domain)
    table: Mapping[Any, Any] = {outer.var: index(0), inner.var: var}

    def at(node: Any) -> Any:
        return analyzer.simplify(substitute(node, table))

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, [at(node.indices[0])])

    works = [
        Work(
            work.reduction,
            tuple(tvm_ffi.structural_map(v, (TensorLoad, load)) for v in work.values),
            tuple((buffer, at(place)) for buffer, place in work.targets),
        )
        for work in one.works
    ]
    return Pass(one.kept, domain, works, one.computed)


def _constant(load: Any) -> Any:
    return tirx.const(0, str(load.ty.dtype))


def may_be_vector(one: Pass, axes: Sequence[Axis]) -> bool:
    """Whether lanes may be computed together.

    TVM evaluates both arms of a Select in a vector: what is not defined everywhere stays scalar. It
    has two types for vectors of bools, and cannot store what it has loaded.
    """
    if any(str(buffer.dtype) == "bool" for work in one.works for buffer, _ in work.targets):
        return False
    analyzer = analyzer_of([*axes, *one.kept, *one.domain])
    for work in one.works:
        for value in work.values:
            selects: list[Any] = []
            tvm_ffi.structural_walk(value, (prim.Select, selects.append))
            if selects and not may_be_discarded(value, analyzer):
                return False
    return True
