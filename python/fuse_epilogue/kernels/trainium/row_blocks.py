"""Rewrites work on the rows of matrices with a block for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ...rewrites.fused_conv import Fused
from ...tir.walk import handle, loads, substitute
from ...workloads.writer import Writer
from .match import PreparedMatch
from .tiles import PARTITIONS, axis_loads, declared, replaced_loads, unused

#: What the names of the blocks begin with where there are others in the function.
REST = "rest_"
#: Letters of axes outside of a matrix.
MATRICES = "abcdefgh"


@dataclass(frozen=True)
class RowWork(PreparedMatch):
    """Anything that is computed along the rows of a matrix, or of each of many.

    - `sch`, `block`: as of :class:`.match.PreparedMatch`.
    - `axes`: those of the matrices first, by other letters; then those of a matrix, by "m" and "n",
      of which one that is missing has one value.
    """

    axes: dict[str, Any]

    def size(self, letter: str) -> int:
        """Return how long an axis is."""
        return int(self.axes[letter].dom.extent) if letter in self.axes else 1

    @property
    def matrices(self) -> list[str]:
        """The letters of the axes outside of a matrix."""
        return [letter for letter in self.axes if letter not in "mn"]

    @property
    def parts(self) -> list[Any]:
        """All expressions that are computed; they load nothing but parameters."""
        raise NotImplementedError

    @property
    def tiles(self) -> dict[str, tuple[Any, str]]:
        """The loads, each once, and the letters of the tile's axes; by the tile's name.

        What depends on columns alone is there for all rows: its letters are "pn".
        """
        tiles: dict[str, tuple[Any, str]] = {}
        for letters, found in (axis_loads(self.parts, self.axes) or {}).items():
            outer = "".join(letter for letter in letters if letter in self.matrices)
            own = letters.removeprefix(outer)
            used = outer + (own if own in ("mn", "m") else "pn" if own else "p")
            for load in found:
                if not any(tvm_ffi.structural_equal(load, known) for known, _ in tiles.values()):
                    tiles[unused(load, "tile", list(tiles))] = load, used
        return tiles


@dataclass(frozen=True)
class Rows(RowWork):
    """One reduction of rows, or none, and what is computed of it.

    - `fused`: what is computed of a reduced row; of an element, where there is no reduction: then
      it has no sum.
    - `term` (Expr or None): the reduction.
    - `step` (type or None): the kind of expression that does it.
    """

    fused: Fused
    term: Any = None
    step: Any = None

    @property
    def parts(self) -> list[Any]:
        """All expressions that are computed."""
        return [e for e in (self.term, self.fused.start, self.fused.result) if e is not None]


class RowWriter:
    """Rewrite the function: a block for all that is loaded, "reduced", "out" and "stored".

    - `prefix`: prefix of their names, but for "reduced".
    """

    def __init__(self, rows: Rows, prefix: str = "") -> None:
        self.rows = rows
        self.prefix = prefix
        sizes = {letter: rows.size(letter) for letter in (*rows.matrices, "m", "n")}
        self.sizes = {**sizes, "p": min(PARTITIONS, sizes["m"])}
        self.dims = sizes if rows.term is None else {"m": sizes["m"]}
        self.writer = Writer(self.dims, "float32", "int32", f"{prefix}stored")
        self.renamed: dict[Any, Any] = {}
        self.loaded: list[tuple[Any, str, Any]] = []

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        rows, writer = self.rows, self.writer
        fused = rows.fused
        with writer.function():
            self.renamed = declared(writer, rows.func)
            self.load()
            total = self.reduced() if rows.term is not None else None

            def result(at: Any) -> Any:
                value = self.at(fused.result, at)
                return value if total is None else substitute(value, {fused.sum: total[at]})

            target = self.renamed[fused.buffer]
            made = writer.each(f"{self.prefix}out", "result", result, str(target.ty.dtype))
            with writer.block(f"{self.prefix}stored", writer.dims) as at:
                places = [self.at(index, at) for index in fused.indices]
                T.buffer_store(target, made[at], places)
        return writer.written()

    def load(self) -> None:
        """Write blocks that load what is read."""
        for name, (load, used) in self.rows.tiles.items():
            dims = {letter: self.sizes[letter] for letter in used}
            made = self.writer.buffer(name, name, dims, str(load.source.ty.dtype))
            with self.writer.block(f"{self.prefix}{name}", dims) as at:
                value = self.placed(load, dict(zip(used, at, strict=True)))
                T.buffer_store(made, value, at)
            self.loaded.append((load, used, made))

    def reduced(self) -> Any:
        """Write the reduction."""
        rows, writer = self.rows, self.writer
        total = writer.buffer("reduced", "total", self.dims, "float32")
        with writer.block("reduced", self.dims, {"n": self.sizes["n"]}) as (m, n):
            with T.init():
                T.buffer_store(total, self.at(rows.fused.start, (m,)), (m,))
            T.buffer_store(total, rows.step(total[m], self.at(rows.term, (m, n))), (m,))
        return total

    def at(self, expr: Any, at: Any) -> Any:
        """Return an expression of the function's at an index."""
        letters = [*self.rows.matrices, "m", "n"]
        values = dict(zip(letters, at, strict=False))
        places = {**values, "p": tirx.floormod(values["m"], PARTITIONS)}
        by = {}
        for load in loads(expr):
            for known, used, made in self.loaded:
                if tvm_ffi.structural_equal(load, known):
                    by[handle(load)] = made[tuple(places[letter] for letter in used)]
        return self.placed(replaced_loads(expr, by), values)

    def placed(self, expr: Any, at: dict[str, Any]) -> Any:
        """Return an expression with values for its axes, over the new parameters."""
        axes = self.rows.axes
        values = {axes[key].var: value for key, value in at.items() if key in axes}
        return substitute(substitute(expr, values), self.renamed)
