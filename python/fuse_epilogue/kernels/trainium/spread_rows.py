"""Stages along a few long rows on Trainium: the columns of a row are spread over all partitions.

load the rows                                        a piece of each on every partition
for every stage that sums:
    part = sum of each partition's columns           row by row
    total = ones @ part                              on the tensor engine: the same everywhere
y = f(x, total)                                      row by row, all partitions at once
store the rows

With rows on partitions instead, a few rows would leave most partitions idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim
from tvm.script.ir_builder import tirx as T

from ...recognize.stages import Stage
from ...rewrites.step import NotRewritten, rewrite
from ...tir.expressions import is_zero
from ...tir.walk import handle, loads, same, substitute
from .read_row_stages import Stages
from .tile_writer import Span, TileWriter
from .tiles import PARTITIONS, replaced_loads

#: Rows up to which they are spread.
MOST_ROWS = 32


def why_not_spread(found: Stages) -> str:
    """Return why the rows of stages cannot be spread over partitions, or "" if they can."""
    if found.matrices or found.size("m") > MOST_ROWS:
        return f"it has more than one axis of rows, or more than {MOST_ROWS} rows"
    if found.size("n") % PARTITIONS:
        return f"its {found.size('n')} columns are not a multiple of {PARTITIONS}"
    for stage in found.stages:
        if stage.reduced and not (_term(stage) is not None and is_zero(stage.init)):
            return f"its block '{stage.name}' is not a sum that starts with 0"
    if "n" not in found.letters(found.stages[-1]):
        return "its result is a number for each row"
    return ""


def scheduled(found: Stages) -> s_tir.Schedule:
    """Schedule stages with each row on all partitions, for :func:`fuse_epilogue.neuron.emit`."""
    sch = found.sch.copy()
    rewrite(sch, sch.get_sblock("root"), "neuron_spread_rows")
    return sch


def rewritten(found: Stages) -> tirx.PrimFunc:
    """Write the stages: what the step "neuron_spread_rows" does.

    - Raises NotRewritten: the rows cannot be spread.
    """
    why = why_not_spread(found)
    if why:
        raise NotRewritten(why)
    return _Writer(found).write()


def _term(stage: Stage) -> Any:
    """Return what a sum adds to itself, None if it does something else."""
    value = stage.value
    if not isinstance(value, prim.Add):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        loaded = loads(own)
        mine = len(loaded) == 1 and same(loaded[0], own)
        if mine and same(own.source, stage.output):
            return term
    return None


class _Writer:
    """Writes tiles [partition, row, column], and [partition, row] for what rows share."""

    def __init__(self, found: Stages) -> None:
        self.found = found
        self.writer = TileWriter(found.func, str(found.axes["n"].var.ty.dtype))
        self.rows, self.columns = found.size("m"), found.size("n") // PARTITIONS
        self.loaded: list[tuple[Any, str, Any]] = []
        self.computed: dict[int, tuple[str, Any]] = {}

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        with self.writer.function():
            square = {"k": Span(PARTITIONS, "P"), "q": Span(PARTITIONS)}
            self.ones = self.writer.tile("ones", (PARTITIONS, PARTITIONS), "float32")
            with self.writer.block("ones", square) as at:
                T.buffer_store(self.ones, tirx.const(1, "float32"), (at["k"], at["q"]))
            for name, (load, used) in self.found.tiles.items():
                self._load(name, load, used.replace("p", ""))
            for stage in self.found.stages:
                if stage.reduced:
                    self._sum(stage)
                else:
                    self._compute(stage)
            self._store(self.found.stages[-1])
        return self.writer.written()

    def _tile(self, name: str, letters: str, dtype: str, space: str = "trn.sbuf") -> Any:
        sizes = {"m": self.rows, "n": self.columns}
        shape = [sizes[letter] for letter in letters] or [1]
        return self.writer.tile(name, (PARTITIONS, *shape), dtype, space)

    def _spans(self, letters: str, summed: str = "", row_by_row: bool = False) -> dict[str, Span]:
        """Return the loops of a block; `row_by_row`: an instruction for each row."""
        found = {"p": Span(PARTITIONS, "P")}
        if "n" in letters:
            found["n"] = Span(self.columns, summed="n" in summed)
        if "m" in letters:
            row = {"m": Span(self.rows, "" if row_by_row else "F")}
            found = {**row, **found} if row_by_row else {"p": found["p"], **row, **found}
        return found

    def _place(self, at: Mapping[str, Any], letters: str) -> tuple[Any, ...]:
        """Return the index of a block's element in a tile."""
        return (at["p"], *([at[letter] for letter in letters] or [self.writer.number(0)]))

    def _load(self, name: str, load: Any, letters: str) -> None:
        """Write a block that loads a parameter, or one number for all partitions."""
        made = self._tile(name, letters, str(load.source.ty.dtype))
        with self.writer.block(name, self._spans(letters)) as at:
            T.buffer_store(made, self._placed(load, at), self._place(at, letters))
        self.loaded.append((load, letters, made))

    def _sum(self, stage: Stage) -> None:
        """Write the sums of each partition, and those of all."""
        writer, name, zero = self.writer, str(stage.output.name), tirx.const(0, "float32")
        part = self._tile(f"{name}_part", "m", "float32")
        # Several rows in one instruction could not subtract the mean of each.
        with writer.block(f"{stage.name}_part", self._spans("mn", "n", True)) as at:
            index = self._place(at, "m")
            with T.init():
                T.buffer_store(part, zero, index)
            T.buffer_store(part, part[index] + self._at(_term(stage), at), index)
        across = self._tile(f"{name}_psum", "m", "float32", "trn.psum")
        spans = {
            "p": Span(PARTITIONS, "lhs_F"),
            "m": Span(self.rows, "rhs_F"),
            "k": Span(PARTITIONS, "P", summed=True),
        }
        with writer.block(stage.name, spans) as at:
            index = self._place(at, "m")
            with T.init():
                T.buffer_store(across, zero, index)
            term = self.ones[at["k"], at["p"]] * part[at["k"], at["m"]]
            T.buffer_store(across, across[index] + term, index)
        total = self._tile(name, "m", "float32")
        with writer.block(f"{stage.name}_total", self._spans("m")) as at:
            T.buffer_store(total, across[self._place(at, "m")], self._place(at, "m"))
        self.computed[handle(stage.output)] = "m", total

    def _compute(self, stage: Stage) -> None:
        """Write a stage that computes elements, or one number of each row on all partitions."""
        letters = "mn" if "n" in self.found.letters(stage) else "m"
        made = self._tile(str(stage.output.name), letters, str(stage.output.dtype))
        with self.writer.block(stage.name, self._spans(letters, "", "n" in letters)) as at:
            T.buffer_store(made, self._at(stage.value, at), self._place(at, letters))
        self.computed[handle(stage.output)] = letters, made

    def _store(self, stage: Stage) -> None:
        """Write the block that stores the result."""
        _, made = self.computed[handle(stage.output)]
        target = self.writer.parameters[self.found.result]
        with self.writer.block("stored", self._spans("mn")) as at:
            values = self._values(at)
            places = iter(values[letter] for letter in self.found.letters(stage))
            zero = self.writer.number(0)
            index = [zero if int(n) == 1 else next(places) for n in target.ty.shape]
            T.buffer_store(target, made[self._place(at, "mn")], index)

    def _values(self, at: Mapping[str, Any]) -> dict[str, Any]:
        """Return the axes of the function at a place of a block."""
        values = {"m": at["m"]} if "m" in at else {}
        if "n" in at:
            values["n"] = at["p"] * self.columns + at["n"]
        return values

    def _placed(self, expr: Any, at: Mapping[str, Any]) -> Any:
        """Return an expression with values for its axes, over the new parameters."""
        axes = self.found.axes
        table = {axes[key].var: v for key, v in self._values(at).items() if key in axes}
        return substitute(substitute(expr, table), self.writer.parameters)

    def _at(self, expr: Any, at: Mapping[str, Any]) -> Any:
        """Return an expression of a stage over tiles."""
        by = {}
        for load in loads(expr):
            found = self.computed.get(handle(load.source))
            if found is None:
                found = next(
                    (letters, made)
                    for known, letters, made in self.loaded
                    if tvm_ffi.structural_equal(known, load)
                )
            letters, made = found
            by[handle(load)] = made[self._place(at, letters)]
        return self._placed(replaced_loads(expr, by), at)
