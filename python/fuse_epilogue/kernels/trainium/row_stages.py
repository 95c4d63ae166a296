"""The rule for several reductions along the same rows on Trainium: softmax, norms.

for tiles of 128 rows:
    load the tile                                    all columns of its rows
    highest = max of each row                        a stage of the function after the other,
    e = exp(x - highest)                             rows on partitions
    total = sum of each row
    y = e / total
    store the tile
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var, prim
from tvm.script.ir_builder import tirx as T

from ...neuron.machine import Machine
from ...recognize.row_stages import prepared
from ...recognize.stages import Axis, Program, Stage, Store, read_program
from ...rewrites.step import NotRewritten, rewrite
from ...tir.walk import handle, loads, same, substitute
from ...workloads.writer import Writer
from ..choice import Choice
from .row_blocks import RowWork
from .rule import NeuronRule
from .tiles import PARTITIONS, axis_loads, best, declared, is_fixed, mark, replaced_loads, split

#: Letters of axes outside of a matrix.
_MATRICES = "abcdefgh"


class RowStages(NeuronRule):
    """Schedules reductions along the same rows and what is computed between them and after.

    Softmax, log-softmax, layer norm, RMS norm and the like: rows on partitions, all columns of a
    row in SBUF at once. A few long rows of a norm are spread over all partitions, and the tensor
    engine adds up the sums of the partitions.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue import neuron, schedules
    >>> x = te.placeholder((300, 1000), "float32")
    >>> func = te.create_prim_func([x, topi.nn.softmax(x)])
    >>> kernel = neuron.emit(schedules.neuron.RowStages().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            stages = find_row_stages(func)
        except NotRewritten as why:
            return Choice("", str(why))
        found = [("all columns of 128 rows at once", scheduled(stages))]
        from .spread_rows import scheduled as spread  # which writes what is found here
        from .spread_rows import why_not_spread

        if not why_not_spread(stages):
            found.append(("each row on all partitions", spread(stages)))
        return best(core, found)


# ---- Finding ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stages(RowWork):
    """Stages along the same rows.

    - `stages`: in the order in which they run, over common axes: that of a reduction is "n", as
      that of the columns of an elementwise stage.
    - `result` (tvm.tirx.Buffer): the parameter that the last stage computes.
    """

    stages: tuple[Stage, ...]
    result: Any

    def size(self, letter: str) -> int:
        """Return how long an axis is."""
        return self.axes[letter].extent if letter in self.axes else 1

    @property
    def parts(self) -> list[Any]:
        """The loads of parameters."""
        computed = {handle(stage.output) for stage in self.stages}
        return [
            load
            for stage in self.stages
            for load in stage.loads
            if handle(load.source) not in computed
        ]

    def letters(self, stage: Stage) -> str:
        """Return the letters of a stage's axes, without that of a reduction."""
        return "".join(x for x, axis in self.axes.items() if any(axis is a for a in stage.axes))


def find_row_stages(func: tirx.PrimFunc) -> Stages:
    """Return the stages of a function that reduces the same rows.

    - `func`: not scheduled.
    - Raises NotRewritten: the function is something else; the text says what it misses.
    """
    sch = s_tir.Schedule(func)
    program = read_program(sch.mod["main"]) if is_fixed(func) else None
    if program is None:
        raise NotRewritten(
            "it must be blocks that each compute all of one buffer of floats, of fixed sizes"
        )
    program, views = prepared(program)
    last = program.stages[-1].output
    result = next((output for view, output in views if same(view, last)), last)
    outputs = [param for param in program.outputs if not same(param, last)]
    if outputs or not program.is_param(last) or _sizes(last) != _sizes(result):
        raise NotRewritten("its last block must compute its only result, in the shape of the rows")
    axes = _axes(program)
    stages = tuple(_on_axes(stage, axes) for stage in program.stages)
    found = Stages(sch, program.stages[-1].name, axes, stages, result)
    if axis_loads(found.parts, axes) is None:
        raise NotRewritten("what it reads is not in the axes of the rows")
    for stage in stages:
        _check_loads(found, stage)
    return found


def _axes(program: Program) -> dict[str, Axis]:
    """Return the axes of all stages, by letter; those with one value are left out."""
    reductions = [stage for stage in program.stages if stage.reduced]
    if not reductions:
        raise NotRewritten("it does not reduce rows")
    rows = _long(reductions[0].axes)
    columns = {tuple(axis.extent for axis in _long(stage.reduced)) for stage in reductions}
    if len(columns) != 1 or len(extents := columns.pop()) != 1:
        raise NotRewritten("its reductions are not along one axis of the same length")
    if any(len(stage.stores) > 1 for stage in reductions):
        raise NotRewritten("it reduces pairs of values")
    if len(rows) > len(_MATRICES):
        raise NotRewritten(f"its rows have more than {len(_MATRICES)} axes")
    letters = (_MATRICES[: max(0, len(rows) - 1)] + "m" if rows else "") + "n"
    sizes = (*(axis.extent for axis in rows), *extents)
    dtype = str(reductions[0].reduced[0].var.ty.dtype)
    return {x: Axis(Var(x, dtype), size) for x, size in zip(letters, sizes, strict=True)}


def _sizes(buffer: Any) -> list[int]:
    return [int(size) for size in buffer.shape if int(size) > 1]


def _long(axes: tuple[Axis, ...]) -> list[Axis]:
    return [axis for axis in axes if axis.extent > 1]


def _on_axes(stage: Stage, axes: dict[str, Axis]) -> Stage:
    """Return a stage over the common axes."""
    *rows, column = axes.values()
    own = _long(stage.axes)
    common = rows if stage.reduced or len(own) == len(rows) else [*rows, column]
    if [axis.extent for axis in own] != [axis.extent for axis in common]:
        raise NotRewritten(f"its block '{stage.name}' goes along other axes than the rows")
    table = {old.var: new.var for old, new in zip(own, common, strict=True)}
    for axis in (*stage.axes, *stage.reduced):
        if axis.extent == 1:
            table[axis.var] = prim.IntImm(str(axis.var.ty.dtype), 0)
        elif any(axis is each for each in stage.reduced):
            table[axis.var] = column.var
    (store,) = stage.stores
    if stage.reduced and str(store.buffer.dtype) != "float32":
        raise NotRewritten(f"its block '{stage.name}' sums up in {store.buffer.dtype}")
    changed = Store(
        store.buffer,
        substitute(store.value, table),
        None if store.init is None else substitute(store.init, table),
    )
    reduced = (column,) if stage.reduced else ()
    return Stage(stage.name, tuple(common), reduced, (changed,))


def _check_loads(found: Stages, stage: Stage) -> None:
    """Refuse a stage that reads another row of an intermediate, or the output."""
    for load in stage.loads:
        made = next((s for s in found.stages if same(s.output, load.source)), None)
        if made is None:
            continue
        indices = [index for index in load.indices if not isinstance(index, prim.IntImm)]
        wanted = [axis.var for axis in made.axes]
        if len(indices) != len(wanted) or not all(map(tvm_ffi.structural_equal, indices, wanted)):
            raise NotRewritten(f"its block '{stage.name}' reads other rows than its own")


# ---- Writing ------------------------------------------------------------------------------------


class StagesWriter:
    """Rewrites the function: a block for all that is loaded, one for each stage, and "stored"."""

    def __init__(self, found: Stages) -> None:
        self.found = found
        sizes = {letter: found.size(letter) for letter in (*found.matrices, "m", "n")}
        self.sizes = {**sizes, "p": min(PARTITIONS, sizes["m"])}
        dtype = str(found.axes["n"].var.ty.dtype)
        self.writer = Writer(sizes, "float32", dtype, "stored")
        self.buffers: list[tuple[Any, str, Any]] = []
        self.computed: dict[int, tuple[Any, int]] = {}
        self.renamed: dict[Any, Any] = {}

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        found, writer = self.found, self.writer
        with writer.function():
            self.renamed = declared(writer, found.func)
            for name, (load, used) in found.tiles.items():
                dims = {letter: self.sizes[letter] for letter in used}
                made = writer.buffer(name, name, dims, str(load.source.ty.dtype))
                with writer.block(name, dims) as at:
                    value = self.placed(load, dict(zip(used, at, strict=True)))
                    T.buffer_store(made, value, at)
                self.buffers.append((load, used, made))
            for place, stage in enumerate(found.stages):
                self.stage(f"stage_{place}", stage)
            self.store(found.stages[-1])
        return writer.written()

    def stage(self, name: str, stage: Stage) -> None:
        """Write a stage."""
        writer = self.writer
        dims = {x: self.sizes[x] for x in self.sizes if x in (*self.found.matrices, "m")}
        if "n" in self.found.letters(stage):
            dims["n"] = self.sizes["n"]
        made = writer.buffer(name, str(stage.output.name), dims, str(stage.output.dtype))
        self.computed[handle(stage.output)] = made, len(dims)
        reduced = {"n": self.sizes["n"]} if stage.reduced else None
        with writer.block(name, dims, reduced) as at:
            if stage.reduced:
                with T.init():
                    T.buffer_store(made, self.at(stage.init, at), at[: len(dims)])
            T.buffer_store(made, self.at(stage.value, at), at[: len(dims)])

    def store(self, stage: Stage) -> None:
        """Write the block that stores the result."""
        made, count = self.computed[handle(stage.output)]
        target = self.renamed[self.found.result]
        letters = [*self.found.matrices, "m", "n"][:count]
        with self.writer.block("stored", {x: self.sizes[x] for x in letters}) as at:
            values = dict(zip(letters, at, strict=True))
            own = [values[x] for x in self.found.letters(stage)]
            places = iter(own)
            zero = tirx.const(0, str(self.found.axes["n"].var.ty.dtype))
            index = [zero if int(size) == 1 else next(places) for size in target.ty.shape]
            T.buffer_store(target, made[at], index)

    def at(self, expr: Any, at: Any) -> Any:
        """Return an expression of the function's at an index."""
        letters = [*self.found.matrices, "m", "n"]
        values = dict(zip(letters, at, strict=False))
        places = {**values, "p": tirx.floormod(values["m"], PARTITIONS)}
        by = {}
        for load in loads(expr):
            if handle(load.source) in self.computed:
                made, count = self.computed[handle(load.source)]
                by[handle(load)] = made[tuple(values[letter] for letter in letters[:count])]
                continue
            for known, used, made in self.buffers:
                if tvm_ffi.structural_equal(load, known):
                    by[handle(load)] = made[tuple(places[letter] for letter in used)]
        return self.placed(replaced_loads(expr, by), values)

    def placed(self, expr: Any, at: dict[str, Any]) -> Any:
        """Return an expression with values for its axes, over the new parameters."""
        axes = self.found.axes
        values = {axes[key].var: value for key, value in at.items() if key in axes}
        return substitute(substitute(expr, values), self.renamed)


# ---- Scheduling ---------------------------------------------------------------------------------


def scheduled(found: Stages, engines: Sequence[str] = ()) -> s_tir.Schedule:
    """Schedule stages along the same rows, for :func:`fuse_epilogue.neuron.emit`.

    - `engines`: engine of each stage; the usual one where it is empty, or for all if there are
      none.
    """
    sch = found.sch.copy()
    rewrite(sch, sch.get_sblock("root"), "neuron_row_stages")
    outer = len(found.matrices)
    stored = sch.get_sblock("stored")
    m, *n = sch.get_loops(stored)[outer:]
    at, partition = split(sch, m, PARTITIONS)
    mark(sch, partition, *n)
    for place in reversed(range(len(found.stages))):
        stage = found.stages[place]
        block = sch.get_sblock(f"stage_{place}")
        sch.set_scope(block, 0, "trn.sbuf")
        sch.compute_at(block, at, preserve_unit_loops=True)
        columns = bool(stage.reduced) or "n" in found.letters(stage)
        mark(sch, *sch.get_loops(block)[-1 - columns :])
        if engines and engines[place]:
            sch.annotate(block, "nki_engine", engines[place])
    for name, (_, letters) in found.tiles.items():
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, "trn.sbuf")
        sch.compute_at(block, at, preserve_unit_loops=True)
        own = sum(letter not in found.matrices for letter in letters)
        mark(sch, *sch.get_loops(block)[-own:])
    return sch


def rewritten(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrite the stages of a function: what the step "neuron_row_stages" does."""
    return StagesWriter(find_row_stages(func)).write()
