"""Computes elementwise stages where they are read, as far as that changes no result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

from ..tir.expressions import node_count
from ..tir.walk import handle, loads, parts_of, same
from .defined import DIVISIONS, is_integer
from .stages import Program, Stage

#: Nodes of an expression up to which several readers compute it again.
_CHEAP = 24


def inlined(
    program: Program, wanted: Callable[[Stage, Sequence[Stage]], bool] | None = None
) -> Program:
    """Return a program whose elementwise intermediates are computed by their readers.

    A value is then computed as often as it is read, and only where it is read. A divisor is not
    inlined: TVM fails to compile a division by a constant 0, even one that a guard excludes. Nor is
    what TVM would cancel in its reader, as if floats were numbers: ``(x + 1) - x`` is 1 for it.

    - `wanted`: takes a stage and its readers, and returns whether to inline it; None inlines all.
    - Returns: indices are simplified. `program` itself if nothing was inlined.
    """
    stages = list(program.stages)
    changed = False
    for stage in program.stages:
        stage = next(each for each in stages if same(each.output, stage.output))
        if stage.reduced or len(stage.stores) > 1 or program.is_param(stage.output):
            continue
        readers = [each for each in stages if each is not stage and each.reads(stage.output)]
        if any(_divides_by(each, stage.output) for each in readers):
            continue
        if wanted is not None and not wanted(stage, readers):
            continue
        inlining = {handle(each.output): _with_inlined(each, stage) for each in readers}
        if any(map(_cancels, inlining.values())):
            continue
        others = (each for each in stages if each is not stage)
        stages = [inlining.get(handle(each.output), each) for each in others]
        changed = True
    return replace(program, stages=tuple(stages)) if changed else program


def costs_little(stage: Stage, readers: Sequence[Stage]) -> bool:
    """Return whether readers may compute a stage's value each time they read it."""
    uses = sum(same(load.source, stage.output) for reader in readers for load in reader.loads)
    return uses <= 1 or node_count(stage.value) <= _CHEAP


def _divides_by(reader: Stage, buffer: Any) -> bool:
    """Whether a stage divides integers by a value of a buffer, or takes a remainder by one."""
    values = [each for store in reader.stores for each in (store.value, store.init)]
    divisions = [node for each in values if each is not None for node in parts_of(each, *DIVISIONS)]
    return any(
        same(load.source, buffer)
        for each in divisions
        if is_integer(each)
        for load in loads(each.b)
    )


def _cancels(stage: Stage) -> bool:
    """Whether TVM's simplifier takes loads out of a float: an infinity or NaN there is lost."""
    for store in stage.stores:
        found = loads(store.value)
        if "float" not in str(store.buffer.dtype) or not _has_same(found):
            continue
        if len(loads(Analyzer().simplify(store.value))) < len(found):
            return True
    return False


def _has_same(found: Sequence[Any]) -> bool:
    """Whether two of some loads are of the same element."""
    by_buffer: dict[int, list[Any]] = {}
    for load in found:
        others = by_buffer.setdefault(handle(load.source), [])
        if any(tvm_ffi.structural_equal(load, other) for other in others):
            return True
        others.append(load)
    return False


def _with_inlined(reader: Stage, stage: Stage) -> Stage:
    def value(load: Any) -> Any:
        if not same(load.source, stage.output):
            return load
        return stage.at(load.indices)

    analyzer = reader.analyzer()

    def expression(node: Any) -> Any:
        if node is None:
            return None
        return simplified_indices(tvm_ffi.structural_map(node, (TensorLoad, value)), analyzer)

    stores = tuple(
        replace(store, value=expression(store.value), init=expression(store.init))
        for store in reader.stores
    )
    return replace(reader, stores=stores)


def simplified_indices(node: Any, analyzer: Analyzer) -> Any:
    """Return an expression whose loads have simplified indices; values are left as they are."""

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, [analyzer.simplify(index) for index in node.indices])

    return tvm_ffi.structural_map(node, (TensorLoad, load))
