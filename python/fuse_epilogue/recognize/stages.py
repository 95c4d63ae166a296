"""Reads a PrimFunc as a list of stages, each of which computes all elements of its buffers.

Relax gives every operator a block, or several, and FuseTIR puts those of a group into one function.
A stage is such a block without its loops: axes, and the expression of one element in these axes.

    for i, j, k: total[i, j] += a[i, k] * b[k, j]     Stage  axes i, j; reduced k; init 0
    for i, j:    y[i, j] = max(total[i, j], 0)        Stage  axes i, j
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, PrimType, Range, prim
from tvm.sym import Analyzer

from ..tir.affine import as_constant, is_constant
from ..tir.nest import Nest, all_nests
from ..tir.walk import handle, loads, parts_of, same, stored_to, substitute, uses


@dataclass(frozen=True)
class Axis:
    """An axis of a stage.

    - `var` (tvm.ir.Var): the variable that the stage's expressions use.
    - `extent` (int or Expr): number of values, from 0. An expression only where
      :func:`read_program` was asked for symbolic sizes.
    """

    var: Any
    extent: Any


@dataclass(frozen=True)
class Store:
    """One of the buffers that a stage computes.

    - `buffer`: tvm.tirx.Buffer.
    - `value` (Expr): the element; in a reduction, it loads the element so far.
    - `init` (Expr or None): the start of a reduction.
    """

    buffer: Any
    value: Any
    init: Any = None


@dataclass(frozen=True)
class Stage:
    """A block of a function that computes every element of its buffers once.

    - `name`: name of the block.
    - `axes`: the spatial axes, in the order of the output's indices: the element ``axes`` of each
      buffer is computed.
    - `reduced`: the reduction axes, in the order of the loops; empty for an elementwise stage.
    - `stores`: one for each buffer; several only in a reduction of tuples, such as argmax.
    """

    name: str
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    stores: tuple[Store, ...]

    @property
    def output(self) -> Any:
        """The buffer of the first store."""
        return self.stores[0].buffer

    @property
    def value(self) -> Any:
        """The value of the first store."""
        return self.stores[0].value

    @property
    def init(self) -> Any:
        """The start of the first store's reduction, None for an elementwise stage."""
        return self.stores[0].init

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents of the spatial axes."""
        return tuple(axis.extent for axis in self.axes)

    @cached_property
    def loads(self) -> tuple[Any, ...]:
        """All loads of its expressions, those of its own buffers included."""
        return tuple(
            load for store in self.stores for e in (store.init, store.value) for load in loads(e)
        )

    def reads(self, buffer: Any) -> bool:
        """Whether the stage loads from a buffer (a reduction reads its own output)."""
        return any(same(load.source, buffer) for load in self.loads)

    def analyzer(self) -> Analyzer:
        """Return an analyzer that knows the ranges of the axes."""
        return analyzer_of((*self.axes, *self.reduced))

    def at(self, indices: Sequence[Any]) -> Any:
        """Return the element of an elementwise stage at some indices, as an expression."""
        table = {axis.var: index for axis, index in zip(self.axes, indices, strict=True)}
        return substitute(self.value, table)


@dataclass(frozen=True)
class Program:
    """A function as stages.

    - `func` (tvm.tirx.PrimFunc): the function that was read.
    - `params`: its parameters that are buffers. All of them are, and of constant shape, unless
      :func:`read_program` was asked for symbolic sizes.
    - `stages`: in the order in which they run. Each buffer is computed by one stage at most.
    """

    func: Any
    params: tuple[Any, ...]
    stages: tuple[Stage, ...]

    def stage_of(self, buffer: Any) -> Stage | None:
        """Return the stage that computes a buffer, None for an input."""
        for stage in self.stages:
            if any(same(store.buffer, buffer) for store in stage.stores):
                return stage
        return None

    def readers(self, buffer: Any) -> list[Stage]:
        """Return the stages that load from a buffer and do not compute it."""
        own = self.stage_of(buffer)
        return [stage for stage in self.stages if stage is not own and stage.reads(buffer)]

    def is_param(self, buffer: Any) -> bool:
        """Whether a buffer is a parameter of the function."""
        return any(same(param, buffer) for param in self.params)

    @cached_property
    def outputs(self) -> tuple[Any, ...]:
        """The parameters that some stage computes."""
        return tuple(param for param in self.params if self.stage_of(param) is not None)

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """The parameters that no stage computes."""
        return tuple(param for param in self.params if self.stage_of(param) is None)


def read_program(func: tirx.PrimFunc, symbolic: bool = False) -> Program | None:
    """Return a function as stages.

    - `func`: as Relax's lowering makes it, or with a fused epilogue.
    - `symbolic`: whether sizes may be expressions; then parameters may also be numbers.
    - Returns: None where a parameter is not a compact buffer of constant shape, a block has a
      predicate or a body other than one store for each buffer, an output has no stage for all of
      its elements, a stage reads what a later one writes, or one reads unfinished elements in
      shared loops.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        return None
    root = func.body.block
    params = tuple(each for each in func.params if not (symbolic and isinstance(each.ty, PrimType)))
    if any(isinstance(each.ty, PrimType) for each in params):
        return None
    buffers = (*params, *root.alloc_buffers)
    if root.match_buffers or not all(_is_compact(each, symbolic) for each in buffers):
        return None
    stages: list[Stage] = []
    found = all_nests(root)
    if not is_separable(found):
        return None
    for nest in found:
        stage = _stage(nest)
        if stage is None or not (symbolic or _is_constant(stage)):
            return None
        stages.append(stage)
    program = Program(func, params, tuple(stages))
    return program if _is_in_order(program, root.alloc_buffers) else None


def is_separable(found: Sequence[Nest]) -> bool:
    """Return whether blocks in shared loops compute the same in loops of their own, in turns.

    A block must read nothing that a later one stores, and of what an earlier one stores only the
    elements of the same iteration, finished there. A sum inside of its own loops is not:

        for f: { s += x[f];  y[f] = s }
    """
    return all(
        _reads_finished(one, other)
        for place, one in enumerate(found)
        for other in found[place + 1 :]
    )


def _reads_finished(writer: Nest, reader: Nest) -> bool:
    """Whether a nest reads only finished elements of an earlier one, in the loops they share."""
    pairs = zip(writer.loops, reader.loops, strict=False)
    shared = [one for one, other in pairs if one.same_as(other) and not is_constant(one.extent, 1)]
    if not shared:
        return True
    if any(handle(load.source) in stored_to(reader.realize) for load in loads(writer.realize)):
        return False
    places = [_by_loop(nest) for nest in (writer, reader)]
    stores = {handle(store.buffer): store for store in parts_of(writer.realize, tirx.BufferStore)}
    for load in loads(reader.realize):
        store = stores.get(handle(load.source))
        if store is None:
            continue
        same_there = {
            places[0].get(handle(index))
            for index, read in zip(store.indices, load.indices, strict=True)
            if places[0].get(handle(index)) == places[1].get(handle(read))
        }
        if not {handle(loop.loop_var) for loop in shared} <= same_there:
            return False
    return True


def _by_loop(nest: Nest) -> dict[int, int]:
    """Return the loops that are the values of a block's axes, by axis; by handles."""
    if not isinstance(nest.realize, s_tir.SBlockRealize):
        return {}
    pairs = zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True)
    return {handle(axis.var): handle(value) for axis, value in pairs}


def analyzer_of(axes: Iterable[Axis]) -> Analyzer:
    """Return an analyzer that knows the ranges of some axes."""
    analyzer = Analyzer()
    for axis in axes:
        zero = prim.IntImm(str(axis.var.ty.dtype), 0)
        extent = axis.extent
        if isinstance(extent, int):
            extent = prim.IntImm(str(axis.var.ty.dtype), extent)
        analyzer.bind(axis.var, Range.from_min_extent(zero, extent))
    return analyzer


def is_same_size(one: Any, other: Any) -> bool:
    """Return whether two sizes are the same number, or equal expressions.

    >>> n = tirx.Var("n", "int64")
    >>> is_same_size(n + 1, n + 1), is_same_size(n, 4), is_same_size(4, 4)
    (True, False, True)
    """
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return bool(tvm_ffi.structural_equal(_as_expression(one), _as_expression(other)))


def _as_expression(size: Any) -> Any:
    return prim.IntImm("int64", size) if isinstance(size, int) else size


def _is_compact(buffer: Any, symbolic: bool) -> bool:
    sizes = symbolic or all(isinstance(size, prim.IntImm) for size in buffer.shape)
    offset = buffer.elem_offset
    return sizes and not buffer.strides and (offset is None or is_constant(offset, 0))


def _stage(nest: Nest) -> Stage | None:
    realize = nest.realize
    if not isinstance(realize, s_tir.SBlockRealize) or not _binds_loops(nest):
        return None
    block = realize.block
    stores = _stores(block)
    if stores is None or block.match_buffers or block.alloc_buffers:
        return None
    kinds = (tirx.IterVar.DataPar, tirx.IterVar.CommReduce)
    if any(axis.iter_type not in kinds for axis in block.iter_vars):
        return None
    axes = [Axis(axis.var, as_constant(axis.dom.extent)) for axis in block.iter_vars]
    spatial = [
        each for axis, each in zip(block.iter_vars, axes, strict=True) if axis.iter_type == 0
    ]
    reduced = [
        each for axis, each in zip(block.iter_vars, axes, strict=True) if axis.iter_type != 0
    ]
    if bool(reduced) != (block.init is not None):
        return None
    return _ordered(str(block.name_hint), spatial, tuple(reduced), stores)


def _is_constant(stage: Stage) -> bool:
    return all(isinstance(axis.extent, int) for axis in (*stage.axes, *stage.reduced))


def _ordered(
    name: str, spatial: list[Axis], reduced: tuple[Axis, ...], stores: list[tuple[Any, Store]]
) -> Stage | None:
    """Return a stage whose axes are the indices of its stores; a constant index gets an axis."""
    indices = stores[0][0]
    if any(not tvm_ffi.structural_equal(tuple(own), tuple(indices)) for own, _ in stores):
        return None
    by_var = {handle(axis.var): place for place, axis in enumerate(spatial)}
    axes = []
    for index, size in zip(indices, stores[0][1].buffer.shape, strict=True):
        place = by_var.pop(handle(index), None)
        if place is not None:
            axes.append(spatial[place])
        elif is_constant(index, 0) and is_constant(size, 1):
            axes.append(Axis(tirx.Var("unit", str(index.ty.dtype)), 1))
        else:
            return None
        if not is_same_size(axes[-1].extent, as_constant(size)):
            return None
    # Axes that no index uses: only those of one value compute every element once.
    if not all(is_constant(spatial[place].extent, 1) for place in by_var.values()):
        return None
    zeros = {
        spatial[at].var: prim.IntImm(str(spatial[at].var.ty.dtype), 0) for at in by_var.values()
    }
    values = tuple(
        Store(store.buffer, substitute(store.value, zeros), _substitute(store.init, zeros))
        for _, store in stores
    )
    return Stage(name, tuple(axes), reduced, values)


def _substitute(node: Any, table: dict[Any, Any]) -> Any:
    return None if node is None else substitute(node, table)


def _binds_loops(nest: Nest) -> bool:
    """Whether each axis is a loop of its own that runs over the axis's domain, from 0."""
    realize = nest.realize
    if not is_constant(realize.predicate, 1):
        return False
    loops = {handle(loop.loop_var): loop for loop in nest.loops}
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        extent, begin = axis.dom.extent, axis.dom.min
        if not is_constant(begin, 0) or (isinstance(extent, prim.IntImm) and int(extent) < 1):
            return False
        loop = loops.pop(handle(value), None)
        if loop is None:
            if not (is_constant(extent, 1) and is_constant(value, 0)):
                return False
        elif not (
            is_constant(loop.min, 0) and is_same_size(as_constant(loop.extent), as_constant(extent))
        ):
            return False
    kinds = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL, tirx.ForKind.UNROLLED)
    plain = all(loop.kind in kinds and _steps_by_one(loop) for loop in nest.loops)
    return plain and all(is_constant(loop.extent, 1) for loop in loops.values())


def _steps_by_one(loop: Any) -> bool:
    return loop.step is None or is_constant(loop.step, 1)


def _stores(block: Any) -> list[tuple[Any, Store]] | None:
    """Return the stores of a block with their indices, `let` replaced by its value."""
    table: dict[int, Any] = {}
    found: list[tuple[Any, Store]] = []
    starts = _flat(block.init)
    for statement in _flat(block.body):
        if isinstance(statement, tirx.Bind):
            value = substitute(statement.value, table)
            # A store in between would change what a load after it reads.
            if found and loads(value):
                return None
            table[handle(statement.var)] = value
        elif isinstance(statement, tirx.BufferStore):
            value = substitute(statement.value, table)
            # A value that was bound is from before all stores, a load here from between them.
            if any(uses(statement.value, store.buffer) for _, store in found):
                return None
            found.append((list(statement.indices), Store(statement.buffer, value)))
        else:
            return None
    if not found or len({handle(store.buffer) for _, store in found}) != len(found):
        return None
    for start in starts:
        if not isinstance(start, tirx.BufferStore):
            return None
        for place, (indices, store) in enumerate(found):
            is_own = same(store.buffer, start.buffer) and store.init is None
            if is_own and tvm_ffi.structural_equal(tuple(indices), tuple(start.indices)):
                found[place] = (indices, replace(store, init=start.value))
                break
        else:
            return None
    complete = len(starts) in (0, len(found)) and not any(_has_effect(s.value) for _, s in found)
    return found if complete else None


def _flat(body: Any) -> list[Any]:
    if body is None:
        return []
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


#: Calls that may be left out, repeated or moved.
_HARMLESS = {int(tirx.CallEffectKind.Pure.value), int(tirx.CallEffectKind.ExprAnnotation.value)}


def _has_effect(value: Any) -> bool:
    found: list[Any] = []

    def call(node: Any) -> None:
        kind = node.op.get_attr("TCallEffectKind") if hasattr(node.op, "get_attr") else None
        if kind is None or int(kind) not in _HARMLESS:
            found.append(node)

    tvm_ffi.structural_walk(value, (Call, call))
    return bool(found)


def _is_in_order(program: Program, allocated: Sequence[Any]) -> bool:
    """Whether every buffer has one writer, which comes before all of its readers."""
    written: set[int] = set()
    inner = {handle(buffer) for buffer in allocated}
    later = {handle(store.buffer) for stage in program.stages for store in stage.stores}
    for stage in program.stages:
        own = {handle(store.buffer) for store in stage.stores}
        if own & written:
            return False
        for load in stage.loads:
            source = handle(load.source)
            if source in own:
                if not stage.reduced:
                    return False
            elif source in inner and source not in written:
                return False
            elif source in later and source not in written:
                return False
        written |= own
    return True
