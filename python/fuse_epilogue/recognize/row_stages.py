"""Arranges a program with reductions in the stages that are worth computing one by one.

- A reshape of an intermediate into an output is left out: the intermediate is the output's memory.
- Data movement, and arithmetic that its readers do not repeat more often, becomes part of readers.
- An expensive part of a stage that is the same for many of its elements becomes a stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var, prim

from ..tir.expressions import is_guard
from ..tir.walk import handle, loads, parts_of, same, substitute, uses, variables
from .defined import may_be_discarded
from .inlining import costs_little, inlined
from .stages import Axis, Program, Stage, Store

#: Buffers, each with the one whose memory it is.
Views = tuple[tuple[Any, Any], ...]


def prepared(program: Program) -> tuple[Program, Views]:
    """Return a program of the stages that a row program is made of.

    - Returns: its parameters include buffers that stand for outputs in other shapes.
    - Returns: those, each with the output whose memory it is.
    """
    program, views = _without_final_reshapes(program)
    return _hoisted(inlined(program, _is_inlined)), views


def elements_of(stage: Stage) -> int:
    """Return how many elements a stage computes, those of its reduction counted."""
    return math.prod(axis.extent for axis in (*stage.axes, *stage.reduced))


def flat_offset(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the place of an element in a compact buffer."""
    total: Any = 0
    for index, size in zip(indices, shape, strict=True):
        total = total * int(size) + index
    return prim.IntImm("int64", total) if isinstance(total, int) else total


# ---- reshapes -----------------------------------------------------------------------------------


def _without_final_reshapes(program: Program) -> tuple[Program, Views]:
    for stage in reversed(program.stages):
        source = _reshaped(program, stage)
        if source is None:
            continue
        shape = [prim.IntImm("int64", int(size)) for size in source.shape]
        view = tirx.decl_buffer(shape, str(source.dtype), str(source.name), layout=None)
        stages = tuple(
            _on_view(each, source, view)
            for each in program.stages
            if not same(each.output, stage.output)
        )
        changed = replace(program, params=(*program.params, view), stages=stages)
        found, views = _without_final_reshapes(changed)
        return found, (*views, (view, stage.output))
    return program, ()


def _reshaped(program: Program, stage: Stage) -> Any:
    """Return the intermediate that a stage copies to an output, each element to its own place."""
    value = stage.value
    if stage.reduced or not isinstance(value, TensorLoad) or not program.is_param(stage.output):
        return None
    source = value.source
    if program.is_param(source) or program.readers(stage.output):
        return None
    if program.stage_of(source) is None or str(source.dtype) != str(stage.output.dtype):
        return None
    if math.prod(int(size) for size in source.shape) != math.prod(stage.shape):
        return None
    analyzer = stage.analyzer()
    read = flat_offset(value.indices, source.shape)
    written = flat_offset([axis.var for axis in stage.axes], stage.shape)
    equal = analyzer.can_prove_equal(analyzer.simplify(read), analyzer.simplify(written))
    return source if equal else None


def _on_view(stage: Stage, buffer: Any, view: Any) -> Stage:
    def rule(load: Any) -> Any:
        own = same(load.source, buffer)
        return tirx.BufferLoad(view, list(load.indices)) if own else load

    def node(value: Any) -> Any:
        return None if value is None else tvm_ffi.structural_map(value, (TensorLoad, rule))

    stores = tuple(
        Store(
            view if same(store.buffer, buffer) else store.buffer,
            node(store.value),
            node(store.init),
        )
        for store in stage.stores
    )
    return replace(stage, stores=stores)


# ---- inlining -----------------------------------------------------------------------------------


def _is_inlined(stage: Stage, readers: Sequence[Stage]) -> bool:
    if _only_moves(stage.value):
        return True
    if any(elements_of(reader) > elements_of(stage) for reader in readers):
        return False
    return costs_little(stage, readers)


def _only_moves(value: Any) -> bool:
    """Whether a value is an element as it was read, or a constant, guarded or not."""
    if isinstance(value, prim.Cast):
        return _only_moves(value.value)
    if isinstance(value, prim.Select):
        return _only_moves(value.true_value) and _only_moves(value.false_value)
    if is_guard(value):
        return all(map(_only_moves, value.args[1:]))
    return isinstance(value, TensorLoad | prim.FloatImm | prim.IntImm)


# ---- hoisting -----------------------------------------------------------------------------------


def _hoisted(program: Program) -> Program:
    stages: list[Stage] = []
    for stage in program.stages:
        made, changed = _Hoisting(stage).run()
        stages += [*made, changed]
    return replace(program, stages=tuple(stages))


class _Hoisting:
    """Takes out of a stage what is the same for many of its elements."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.made: list[tuple[Any, Any, Stage]] = []
        self.axes = [axis for axis in (*stage.axes, *stage.reduced) if axis.extent > 1]
        self.reduced = [axis.var for axis in stage.reduced]
        self.own = [store.buffer for store in stage.stores]
        self.analyzer = stage.analyzer()

    def run(self) -> tuple[list[Stage], Stage]:
        """Return the stages that are made, and the stage without what they compute."""
        stores = tuple(
            replace(
                store,
                value=tvm_ffi.structural_map(store.value, (tirx.Expr, self.rule), order="pre"),
            )
            for store in self.stage.stores
        )
        return [stage for _, _, stage in self.made], replace(self.stage, stores=stores)

    def rule(self, node: Any) -> Any:
        """Return a load in place of an expression that is worth a stage."""
        if not _is_expensive(node):
            return node
        found = {handle(var) for var in variables(node)}
        axes = [axis for axis in self.axes if handle(axis.var) in found]
        if len(axes) == len(self.axes) or not self.is_safe(node):
            return node
        if math.prod(axis.extent for axis in axes) * 4 > elements_of(self.stage):
            return node
        for known, load, _ in self.made:
            if tvm_ffi.structural_equal(known, node):
                return load
        return self.make(node, axes)

    def is_safe(self, node: Any) -> bool:
        """Whether a part can be computed for all values of its axes, whatever guards it."""
        if not loads(node) or uses(node, *self.reduced, *self.own):
            return False
        known = {handle(axis.var) for axis in self.axes}
        bound = parts_of(node, prim.Let)
        known |= {handle(each.var) for each in bound}
        known |= {handle(load.source) for load in loads(node)}
        known |= {handle(axis.var) for axis in self.stage.axes}
        if any(handle(var) not in known for var in variables(node)):
            return False
        return may_be_discarded(node, self.analyzer)

    def make(self, node: Any, axes: list[Axis]) -> Any:
        """Return the load of a stage that computes a part."""
        fresh = [Axis(Var(str(a.var.name), str(a.var.ty.dtype)), a.extent) for a in axes]
        table = {handle(old.var): new.var for old, new in zip(axes, fresh, strict=True)}
        table |= {
            handle(axis.var): prim.IntImm(str(axis.var.ty.dtype), 0)
            for axis in self.stage.axes
            if axis.extent == 1
        }
        value = substitute(node, table)
        name = f"{self.stage.name}_part"
        shape = [prim.IntImm("int64", axis.extent) for axis in axes]
        buffer = tirx.decl_buffer(shape, str(node.ty.dtype), name, layout=None)
        stage = Stage(name, tuple(fresh), (), (Store(buffer, value),))
        load = tirx.BufferLoad(buffer, [axis.var for axis in axes])
        self.made.append((node, load, stage))
        return load


def _is_expensive(node: Any) -> bool:
    if not isinstance(node, tirx.Expr) or not str(getattr(node.ty, "dtype", "")).startswith(
        ("float", "bfloat")
    ):
        return False
    if isinstance(node, TensorLoad | Var):
        return False
    return bool(parts_of(node, prim.Div, Call))
