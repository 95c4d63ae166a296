"""The rules for rows on Trainium: reduced to one number each, or changed element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...neuron.machine import Machine
from ...rewrites.fused_conv import Fused, find_fused
from ...rewrites.prepare import NOT_PREPARED, Prepare, Prepared, prepare
from ...rewrites.step import rewrite
from ...tir.affine import as_constant, is_one_to_one
from ...tir.nest import all_names, child_names, nests
from ...tir.walk import substitute, uses
from ..choice import Choice, not_fused
from .row_blocks import MATRICES, REST, Rows
from .rule import NeuronRule
from .tiles import PARTITIONS, axis_loads, best, is_fixed, mark, matched_reduction, split

#: Elements of a row in a tile: such a transfer is efficient, and several tiles fit into SBUF.
WIDTHS = (2048, 4096, 1024)


class RowReduce(NeuronRule):
    """Schedules sums or maxima along the rows of a matrix and what is computed of them.

    ``y[m] = f(op_n g(x[m, n]))``, of any sizes: rows on partitions, as many columns at once as a
    good transfer brings, the results of further columns joined.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> func = workloads.row_reduce(300, 50000, op="max", bias=True)
    >>> kernel = neuron.emit(schedules.neuron.RowReduce().apply(func, "trn1"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        prepared = prepare(func) if is_fixed(func) else None
        if prepared is None:
            return Choice("", NOT_PREPARED)
        try:
            rows = _reduced(prepared)
        except s_tir.ScheduleError as error:
            return Choice("", not_fused(error))
        if rows is None:
            return Choice("", "it is not one sum or maximum for each row of a matrix, in float32")
        return _best(rows, core)


class Elementwise(NeuronRule):
    """Schedules what is computed of every element of a matrix, or of each of many.

    ``y[m, n] = f(x[m, n], scale[m], residual[m, n], ...)``, of any sizes: rows on partitions, as
    many columns at once as a good transfer brings.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> func = workloads.elementwise(300, 50000, scale=True, residual=True, activation="relu")
    >>> kernel = neuron.emit(schedules.neuron.Elementwise().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        rows = find_elements(func)
        if rows is None:
            return Choice("", "it is not computed element by element, of a matrix, its rows' own")
        choice, scattered = _best(rows, core), ", ".join(_scattered(rows))
        if not scattered or choice.schedule is None:
            return choice
        why = (
            f"it reads {scattered} element by element, across the rows it stores, which is slow: "
            "transpose it in a function of its own, with schedules.neuron.Transpose"
        )
        return replace(choice, why=why)


def _scattered(rows: Rows) -> list[str]:
    """Return the names of what is read whose neighbours in memory are not those of a row."""
    columns = [axis.var for letter, axis in rows.axes.items() if letter == "n"]
    return [
        f"'{load.source.name}'"
        for load, _ in rows.tiles.values()
        if any(index.same_as(column) for index in load.indices[:-1] for column in columns)
    ]


def _best(rows: Rows, core: Machine) -> Choice:
    def candidates() -> Iterator[tuple[str, s_tir.Schedule]]:
        widest = 0
        for width in WIDTHS:
            width = min(width, rows.size("n"))
            if width != widest:
                yield f"{width} columns at once", scheduled(rows, width)
            widest = max(width, widest)

    return best(core, candidates())


# ---- Finding -----------------------------------------------------------------------------------


def find_reduced(func: tirx.PrimFunc, prepared: Prepare = prepare) -> Rows | None:
    """Return the reduction of rows that a function is; see :func:`.tiles.matched_reduction`."""
    return _reduced(prepared(func) if is_fixed(func) else None)


def _reduced(prepared: Prepared) -> Rows | None:
    return matched_reduction(prepared, lambda block: _sums(block) is not None, reduced_in)


def reduced_in(sch: s_tir.Schedule, reduction: Any) -> Rows | None:
    """Return the reduction of rows that a function is, None if it is something else.

    - `sch`: prepared, and fused: see :func:`.tiles.fuse_all`.
    - `reduction`: SBlockRV.
    """
    block = sch.get(reduction)
    found = _sums(block) if is_fixed(sch.mod["main"]) else None
    if found is None:
        return None
    term, spatial, summed = found
    fused = find_fused(sch, reduction, spatial)
    if fused is None or not is_one_to_one(fused.indices, spatial):
        return None
    axes = dict([*zip("m", spatial, strict=False), *zip("n", summed, strict=False)])
    units = {a.var: a.dom.min for a in block.iter_vars if as_constant(a.dom.extent) == 1}
    term, step = substitute(term, units), type(block.body.value)
    rows = Rows(sch, str(block.name_hint), axes, fused.at(units), term, step)
    return rows if _fits(rows) and not uses(term, block.body.buffer) else None


def _sums(block: Any) -> tuple[Any, list[Any], list[Any]] | None:
    """Return what a reduction of rows joins, and its axes: of the result, and those reduced."""
    update = block.body
    kinds = (prim.Add, prim.Max, prim.Min)
    if not isinstance(update, tirx.BufferStore) or type(update.value) not in kinds:
        return None
    own = [
        isinstance(side, TensorLoad)
        and side.source.same_as(update.buffer)
        and tvm_ffi.structural_equal(side.indices, update.indices)
        for side in (update.value.a, update.value.b)
    ]
    if own.count(True) != 1 or str(update.value.ty.dtype) != "float32":
        return None
    moving = [axis for axis in block.iter_vars if as_constant(axis.dom.extent) != 1]
    spatial = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.DataPar]
    summed = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.CommReduce]
    if len(spatial) > 1 or len(summed) > 1 or any(as_constant(a.dom.min) != 0 for a in moving):
        return None
    return update.value.b if own[0] else update.value.a, spatial, summed


def find_elements(func: tirx.PrimFunc) -> Rows | None:
    """Return what a function computes element by element, None if it is something else.

    - `func`: not scheduled.
    """
    if not is_fixed(func):
        return None
    sch = s_tir.Schedule(func)
    try:
        root = sch.get_sblock("root")
        if len(set(all_names(func.body))) < len(all_names(func.body)):
            rewrite(sch, root, "unique_names")
        *before, last = map(sch.get_sblock, child_names(sch.mod["main"]))
        for block in before:
            sch.compute_inline(block)
    except (s_tir.ScheduleError, ValueError):
        return None
    return elements_in(sch, last)


def elements_in(sch: s_tir.Schedule, last: Any) -> Rows | None:
    """Return what a function computes element by element, None if it is something else.

    - `sch`: with one block.
    - `last` (SBlockRV): the block to write.
    """
    func, block = sch.mod["main"], sch.get(last)
    found = nests(func.body.block)
    store = block.body
    if not is_fixed(func) or len(found) != 1 or found[0] is None:
        return None
    if not isinstance(store, tirx.BufferStore):
        return None
    moving = [axis for axis in block.iter_vars if as_constant(axis.dom.extent) != 1]
    if any(int(axis.iter_type) != tirx.IterVar.DataPar for axis in moving):
        return None
    if any(as_constant(a.dom.min) != 0 for a in moving) or not is_one_to_one(store.indices, moving):
        return None
    # Columns are neighbours in memory; of a vector, the elements are the columns of one row.
    moving.sort(key=lambda axis: [uses(index, axis.var) for index in store.indices], reverse=True)
    letters = MATRICES[: max(0, len(moving) - 2)] + ("mn" if len(moving) > 1 else "n")
    if len(letters) < len(moving):
        return None
    axes = dict(zip(letters, moving, strict=False))
    units = {a.var: a.dom.min for a in block.iter_vars if as_constant(a.dom.extent) == 1}
    fused = Fused(None, None, store.value, store.buffer, tuple(store.indices)).at(units)
    rows = Rows(sch, str(block.name_hint), axes, fused)
    return rows if _fits(rows) else None


def _fits(rows: Rows) -> bool:
    """Whether everything that is read is in the axes, and not what is written."""
    grouped = axis_loads(rows.parts, rows.axes)
    if grouped is None or any(uses(part, rows.fused.buffer) for part in rows.parts):
        return False
    return axis_loads([rows.fused.buffer[rows.fused.indices]], rows.axes) is not None


# ---- Scheduling --------------------------------------------------------------------------------


def scheduled(rows: Rows, width: int) -> s_tir.Schedule:
    """Schedule what is computed of rows.

    - `rows`: the work on rows to schedule.
    - `width`: columns of a tile.
    - Returns: for :func:`fuse_epilogue.neuron.emit`.
    """
    sch = rows.sch.copy()
    write(sch, rows)
    cut(sch, rows, width)
    return sch


def write(sch: s_tir.Schedule, rows: Rows, alone: bool = False) -> None:
    """Rewrite work on rows.

    - `sch`: as that of `rows`; or, if it is `alone`, one that has its block and others.
    - `alone`: whether the other blocks stay as they are.
    """
    block = sch.get_sblock(rows.block)
    if rows.term is not None:
        rewrite(sch, block, "neuron_rows", alone=alone)
    else:
        rewrite(sch, block, "neuron_elements", loops=len(rows.matrices) + 2, alone=alone)


def cut(sch: s_tir.Schedule, rows: Rows, width: int, alone: bool = False) -> None:
    """Cut what was written into tiles.

    - `sch`: as `write` left it.
    - `width`: columns of a tile.
    - `alone`: as of `write`.
    """
    reducing = rows.term is not None
    prefix = REST if alone and not reducing else ""
    stored = sch.get_sblock(f"{prefix}stored")
    m, *n = sch.get_loops(stored)[len(rows.matrices) :]
    outer, partition = split(sch, m, PARTITIONS)
    at = outer
    if n:
        at, column = split(sch, n[0], width)
        sch.reorder(outer, at, partition, column)
        mark(sch, partition, column)
    else:
        mark(sch, partition)
    out = sch.get_sblock(f"{prefix}out")
    sch.set_scope(out, 0, "trn.sbuf")
    sch.compute_at(out, at, preserve_unit_loops=True)
    mark(sch, *sch.get_loops(out)[-1 - len(n) :])
    inner = at
    if reducing:
        block = sch.get_sblock("reduced")
        sch.set_scope(block, 0, "trn.sbuf")
        sch.compute_at(block, outer, preserve_unit_loops=True)
        row, column = sch.get_loops(block)[-2:]
        inner, column = split(sch, column, width)
        sch.reorder(inner, row, column)
        mark(sch, row, column)
    for name, (_, letters) in rows.tiles.items():
        block = sch.get_sblock(f"{prefix}{name}")
        sch.set_scope(block, 0, "trn.sbuf")
        sch.compute_at(block, inner if "n" in letters else outer, preserve_unit_loops=True)
        own = sum(letter not in rows.matrices for letter in letters)
        mark(sch, *sch.get_loops(block)[-own:])
