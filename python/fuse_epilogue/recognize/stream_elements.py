"""One element of a result of a function on streams, as an expression: its sums are written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim

from ..tir.build import in_root
from ..tir.expressions import is_guard
from ..tir.nest import all_nests
from ..tir.walk import handle, loads, substitute
from .stages import Axis, Program, Stage, read_program
from .streams import Piece, Streams

#: Terms of a sum that are written out in an element, at most.
TERMS = 64


@dataclass(frozen=True)
class Element:
    """One element of a result, as an expression in its axes; sums are written out.

    - `axes`: the axes of the block that stores it, in the order of its loops.
    - `buffer`: tvm.tirx.Buffer.
    - `indices`: which element of the buffer it is.
    - `sums`: the finished sums that `value` uses, by their variables.
    - `value`: Expr.
    """

    axes: tuple[Axis, ...]
    buffer: Any
    indices: tuple[Any, ...]
    sums: tuple[tuple[Any, Any], ...]
    value: Any

    def at(self, values: dict[Any, Any]) -> Element:
        """Return the element with values for some axes, and variables of its own."""
        fresh = {var: tirx.Var(var.name, var.ty) for var, _ in self.sums}
        sums = tuple((fresh[var], substitute(sum_, values)) for var, sum_ in self.sums)
        return Element(
            tuple(axis for axis in self.axes if axis.var not in values),
            self.buffer,
            tuple(substitute(index, values) for index in self.indices),
            sums,
            substitute(self.value, {**values, **fresh}),
        )

    def renamed(self, names: dict[Any, Any]) -> Element:
        """Return the element with other variables for some axes."""
        moved = self.at(names)
        axes = tuple(Axis(names.get(axis.var, axis.var), axis.extent) for axis in self.axes)
        return replace(moved, axes=axes)

    @property
    def expressions(self) -> list[Any]:
        """All expressions."""
        return [*self.indices, *(value for _, value in self.sums), self.value]

    def computed(self, analyzer: Any) -> tuple[list[Any], Any]:
        """Return the statements that bind the sums, and the value after them.

        Both are simplified. With bfloat16 nothing is bound: TVM loses variables between its loads
        and its stores, and LLVM computes what is written several times once.
        """
        sums = [(var, simplified(value, analyzer)) for var, value in self.sums]
        value = simplified(self.value, analyzer)
        types = {str(load.ty.dtype) for each in self.expressions for load in loads(each)}
        if "bfloat16" in types | {str(self.buffer.dtype)}:
            return [], substitute(value, dict(sums))
        return [tirx.Bind(var, each) for var, each in sums], value


def read_element(streams: Streams, buffer: Any) -> Element | None:
    """Return one element of a result.

    - `buffer` (tvm.tirx.Buffer): a result.
    - Returns: None if a size is not constant, a sum has more than :data:`TERMS` terms, or a
      statement before the result does not compute every element of its buffer once.
    """
    *before, last = streams.needed(buffer)
    earlier = read_program(streams.function(before)) if before else Program(streams.func, (), ())
    if earlier is None:
        return None
    writer = _Elements(earlier)
    if last.block.init is not None:
        program = read_program(streams.function([*before, last]))
        if program is None:
            return None
        stage = program.stages[-1]
        value = writer.total(stage, [axis.var for axis in stage.axes], stage.axes)
        if value is None:
            return None
        indices = tuple(axis.var for axis in stage.axes)
        return Element(stage.axes, buffer, indices, tuple(writer.sums), value)
    store, axes = last.block.body, _axes(last)
    if axes is None or not isinstance(store, tirx.BufferStore):
        return None
    value = writer.resolved(store.value, axes)
    if value is None:
        return None
    return Element(axes, buffer, tuple(store.indices), tuple(writer.sums), value)


def _axes(piece: Piece) -> tuple[Axis, ...] | None:
    """Return the axes of a block in plain loops over constant extents."""
    [nest] = all_nests(in_root(piece.statement).block)
    loops = {handle(loop.loop_var): loop for loop in nest.loops}
    found = []
    for axis, value in zip(piece.block.iter_vars, nest.realize.iter_values, strict=True):
        loop = loops.pop(handle(value), None)
        extent = axis.dom.extent
        if loop is None or not isinstance(extent, prim.IntImm) or int(axis.iter_type) != 0:
            return None
        if int(loop.min) != 0 or not isinstance(loop.extent, prim.IntImm):
            return None
        if int(loop.extent) != int(extent):
            return None
        found.append(Axis(axis.var, int(extent)))
    return None if loops else tuple(found)


class _Elements:
    """Writes elements of intermediate buffers in terms of parameters."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sums: list[tuple[Any, Any]] = []
        self._known: list[tuple[Stage, Sequence[Any], Any]] = []
        self._failed = False

    def resolved(self, expr: Any, axes: Sequence[Axis]) -> Any:
        """Return an expression without loads of intermediate buffers; None if there is none."""

        def load(node: Any) -> Any:
            stage = self.program.stage_of(node.source)
            if stage is None:
                return node
            if not stage.reduced:
                value = self.resolved(stage.at(node.indices), axes)
            else:
                value = self.total(stage, node.indices, axes)
            if value is None:
                self._failed = True
                return node
            return value

        made = tvm_ffi.structural_map(expr, (TensorLoad, load))
        return None if self._failed else made

    def total(self, stage: Stage, indices: Sequence[Any], axes: Sequence[Axis]) -> Any:
        """Return the variable of a finished sum."""
        own = {handle(axis.var) for axis in axes}
        if not all(isinstance(index, prim.IntImm) or handle(index) in own for index in indices):
            # Perhaps it is read where a guard holds only: not to be computed before.
            return None
        for known, at, var in self._known:
            if known is stage and tvm_ffi.structural_equal(list(at), list(indices)):
                return var
        if len(stage.stores) > 1 or prod(axis.extent for axis in stage.reduced) > TERMS:
            return None
        place = {axis.var: index for axis, index in zip(stage.axes, indices, strict=True)}
        value = self.resolved(substitute(stage.init, place), axes)
        for numbers in product(*(range(axis.extent) for axis in stage.reduced)):
            taps = {
                axis.var: prim.IntImm(str(axis.var.ty.dtype), number)
                for axis, number in zip(stage.reduced, numbers, strict=True)
            }
            step = substitute(stage.value, {**place, **taps})
            step = _with_own(step, stage.output, value)
            value = self.resolved(step, axes)
            if value is None:
                return None
        var = tirx.Var("total", value.ty)
        self.sums.append((var, value))
        self._known.append((stage, list(indices), var))
        return var


def _with_own(expr: Any, buffer: Any, value: Any) -> Any:
    """Return a step of a sum with the sum so far in place of its load."""
    own = handle(buffer)
    return tvm_ffi.structural_map(
        expr, (TensorLoad, lambda load: value if handle(load.source) == own else load)
    )


def simplified(expr: Any, analyzer: Any) -> Any:
    """Return an expression with simplified indices and conditions; its values are as they were."""

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, [analyzer.simplify(each) for each in node.indices])

    def choice(node: Any) -> Any:
        if not is_guard(node):
            return node
        condition = analyzer.simplify(node.args[0])
        if isinstance(condition, prim.IntImm):
            return node.args[1] if int(condition) else node.args[2]
        return tirx.if_then_else(condition, node.args[1], node.args[2])

    return tvm_ffi.structural_map(expr, [(TensorLoad, load), (Call, choice)])
