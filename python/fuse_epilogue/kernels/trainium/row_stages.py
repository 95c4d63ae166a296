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
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.script.ir_builder import tirx as T

from ...neuron.machine import Machine
from ...recognize.stages import Stage
from ...rewrites.step import NotRewritten, rewrite
from ...tir.walk import handle, loads, substitute
from ...workloads.writer import Writer
from ..choice import Choice
from .read_row_stages import Stages, find_row_stages
from .rule import NeuronRule
from .spread_rows import scheduled as spread
from .spread_rows import why_not_spread
from .tiles import PARTITIONS, best, declared, mark, replaced_loads, split


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
        if not why_not_spread(stages):
            found.append(("each row on all partitions", spread(stages)))
        return best(core, found)


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
