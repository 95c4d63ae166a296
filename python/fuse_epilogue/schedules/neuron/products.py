"""A product of matrices, found in a function and written anew for Trainium.

    y[m, n] = result(sum_k left[m, k] * right[k, n] + start)

The tensor engine sums over partitions, so both operands are needed with k on them. Where memory
has k next to k the engine turns them, tile by tile:

    a_rows    as it is in memory, with the rows on partitions
    a_turned  its transposition, in PSUM
    a_tile    a copy of that, in SBUF
    bias_all  what depends on n alone, once for every partition; or bias_column: on m alone
    product   the sum, in PSUM, from 0 on
    biased    the start, added as the sum leaves PSUM; where something follows it
    out       the result, which is then stored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim
from tvm.script.ir_builder import tirx as T

from ...tir_tree import handle, loads, substitute, uses
from ...workloads.writer import Writer
from ..convolution import added_term, is_one_to_one, is_zero, plain, uncast
from ..fused import Fused, find_fused
from ..prepare import prepare
from .tiles import (
    FLOATS,
    PARTITIONS,
    axis_loads,
    declared,
    fuse_all,
    is_fixed,
    replaced_loads,
    unused,
)

#: The steps of a matrix on its way, of which only the last one is needed if it is not turned.
STEPS = ("rows", "turned", "tile")
#: How the names of blocks end that load what else a result depends on: on n, m or both.
ROW, COLUMN, PART = "all", "column", "part"


@dataclass(frozen=True)
class Side:
    """One of the two matrices.

    Attributes
    ----------
    load : tvm.ir.TensorLoad
        An element, in the axes of the reduction.
    letter : str
        "m" for the left one, "n" for the right one.
    turned : bool
        Whether k runs along memory.
    name : str
        What its blocks are called after: of a matrix times itself, each side has its own.
    """

    load: Any
    letter: str
    turned: bool
    name: str

    @property
    def dtype(self) -> str:
        """Type of its elements."""
        return str(self.load.source.ty.dtype)


@dataclass(frozen=True)
class Product:
    """A product of matrices with its epilogue.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        Where it was found.
    fused : Fused
        What is computed of a sum.
    axes : dict[str, tvm.tirx.IterVar]
        By "m", "n" and "k"; one that is missing has one value. There are no others.
    left, right : Side
        The matrices.
    """

    func: tirx.PrimFunc
    fused: Fused
    axes: dict[str, Any]
    left: Side
    right: Side

    def size(self, letter: str) -> int:
        """Return how long an axis is."""
        return int(self.axes[letter].dom.extent) if letter in self.axes else 1

    @property
    def starts(self) -> bool:
        """Whether the sum starts with something else than 0."""
        return not is_zero(self.fused.start)

    @property
    def adds_first(self) -> bool:
        """Whether that is added in a block of its own: only a column rides with what follows."""
        rides = set(self.others([self.fused.start])) <= {"m"}
        follows = not uncast(self.fused.result).same_as(self.fused.sum)
        return self.starts and follows and not rides

    def others(self, exprs: Sequence[Any] | None = None) -> dict[str, list[Any]]:
        """Return what results, or some expressions, depend on besides: each load once.

        By the axes it depends on, "m" and "n".
        """
        outer = {key: self.axes[key] for key in "mn" if key in self.axes}
        parts = [self.fused.start, self.fused.result] if exprs is None else exprs
        once: dict[str, list[Any]] = {}
        for letters, found in (axis_loads(parts, outer) or {}).items():
            kept = once.setdefault(letters, [])
            for load in found:
                if not any(tvm_ffi.structural_equal(load, each) for each in kept):
                    kept.append(load)
        return once


def find_product(func: tirx.PrimFunc) -> Product | None:
    """Return the product of matrices that a function is, None if it is something else.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.

    Raises
    ------
    tvm.s_tir.ScheduleError
        What follows the product cannot be fused.
    """
    prepared = prepare(func) if is_fixed(func) else None
    if prepared is None:
        return None
    sch, reduction = prepared
    block = sch.get(reduction)
    found = _operands(block)
    if found is None:
        return None
    moving = [axis for axis in block.iter_vars if plain(axis.dom.extent) != 1]
    units = {a.var: a.dom.min for a in block.iter_vars if plain(a.dom.extent) == 1}
    operands = [substitute(each, units) for each in found]
    spatial = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.DataPar]
    summed = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.CommReduce]
    of = [[axis for axis in spatial if uses(each, axis.var)] for each in operands]
    if len(spatial) + len(summed) != len(moving) or len(summed) > 1 or len(spatial) > 2:
        return None
    if any(plain(axis.dom.min) != 0 for axis in moving) or max(map(len, of)) > 1:
        return None
    if len(of[0]) + len(of[1]) != len(spatial) or any(a is b for a in of[0] for b in of[1]):
        return None
    if not all(uses(each, axis.var) for each in operands for axis in summed):
        return None
    joined = fuse_all(sch, reduction)
    fused = None if joined is None else find_fused(joined, reduction, spatial)
    if fused is None or not is_one_to_one(fused.indices, spatial):
        return None
    fused = fused.at(units)
    # Columns are neighbours in the result; if it is a vector, that is a row.
    last = [axis for index in fused.indices for axis in spatial if uses(index, axis.var)][-1:]
    if last and last[0] in of[0]:
        operands, of = operands[::-1], of[::-1]
    axes = dict(zip("k", summed, strict=False))
    for letter, own in zip("mn", of, strict=True):
        axes.update(zip(letter, own, strict=False))
    names = [str(each.source.name) for each in operands]
    if names[0] == names[1]:
        names[1] += "_again"
    sides = [_side(*each, axes) for each in zip(operands, "mn", names, strict=True)]
    if sides[0] is None or sides[1] is None:
        return None
    grouped = axis_loads([fused.start, fused.result], {k: a for k, a in axes.items() if k != "k"})
    if grouped is None or any(uses(e, fused.buffer) for e in (fused.start, fused.result)):
        return None
    return Product(func, fused, axes, sides[0], sides[1])


def _operands(block: Any) -> list[Any] | None:
    """Return the loads a and b of ``out = out + a * b``, in float32."""
    update = block.body
    if not isinstance(update, tirx.BufferStore) or not isinstance(update.value, prim.Add):
        return None
    term = added_term(update)
    if not isinstance(term, prim.Mul) or str(term.ty.dtype) != "float32":
        return None
    found = []
    for side in (term.a, term.b):
        load = side.value if isinstance(side, prim.Cast) else side
        if not isinstance(load, TensorLoad) or str(load.source.ty.dtype) not in FLOATS:
            return None
        found.append(load)
    wide = {str(load.source.ty.dtype) == "float32" for load in found}
    return found if len(wide) == 1 else None


def _side(load: Any, letter: str, name: str, axes: dict[str, Any]) -> Side | None:
    """Return a matrix, None if its indices are not axes."""
    own = {key: axis for key, axis in axes.items() if key in (letter, "k")}
    if axis_loads([load], own) is None:
        return None
    order = [key for index in load.indices for key, axis in own.items() if index.same_as(axis.var)]
    return Side(load, letter, order[-1:] == ["k"], name)


def rewritten(product: Product) -> tirx.PrimFunc:
    """Write the product anew, with the same parameters and the blocks of this module.

    Parameters
    ----------
    product : Product
        What to write.
    """
    return _Rewriter(product).write()


class _Rewriter:
    def __init__(self, product: Product) -> None:
        self.product = product
        dims = {"m": product.size("m"), "n": product.size("n")}
        self.writer = Writer(dims, "float32", "int32", "stored")
        self.renamed: dict[Any, Any] = {}
        self.others: list[tuple[Any, str, Any]] = []
        self.names: list[str] = []

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        product, writer = self.product, self.writer
        fused = product.fused
        with writer.function():
            self.renamed = declared(writer, product.func)
            left, right = (self.side(each) for each in (product.left, product.right))
            self.load_others()

            def step(s: Any, index: Any) -> Any:
                m, n, k = index
                return s + writer.cast(left[k, m]) * writer.cast(right[k, n])

            total = writer.reduce("product", "sums", {"k": product.size("k")}, 0, step)
            start: Any = None
            if product.adds_first:
                total = self.biased(total)
            elif product.starts:
                start = fused.start

            def result(at: Any) -> Any:
                value = total[at] if start is None else total[at] + self.at(start, at)
                return substitute(self.at(fused.result, at), {fused.sum: value})

            target = self.renamed[fused.buffer]
            made = writer.each("out", "result", result, str(target.ty.dtype))
            with writer.block("stored", writer.dims) as at:
                places = [self.at(index, at) for index in fused.indices]
                T.buffer_store(target, made[at], places)
        return writer.written()

    def biased(self, total: Any) -> Any:
        """Write the addition of what the sum starts with."""
        start = self.product.fused.start
        return self.writer.each("biased", "biased", lambda at: total[at] + self.at(start, at))

    def side(self, side: Side) -> Any:
        """Write how a matrix comes on the chip; return it with k first."""
        writer, letter = self.writer, side.letter
        sizes = {"k": self.product.size("k"), letter: self.product.size(letter)}

        def element(**at: Any) -> Any:
            axes = self.product.axes
            values = {axes[key].var: value for key, value in at.items() if key in axes}
            return substitute(substitute(side.load, values), self.renamed)

        def copy(step: str, dims: dict[str, int], value: Any) -> Any:
            name = f"{side.name}_{step}"
            made = writer.buffer(name, name, dims, side.dtype)
            with writer.block(name, dims) as at:
                T.buffer_store(made, value(dict(zip(dims, at, strict=True))), at)
            return made

        if not side.turned:
            return copy("tile", sizes, lambda at: element(**at))
        natural = dict(reversed(sizes.items()))
        rows = copy("rows", natural, lambda at: element(**at))
        turned = copy("turned", sizes, lambda at: rows[at[letter], at["k"]])
        return copy("tile", sizes, lambda at: turned[at["k"], at[letter]])

    def load_others(self) -> None:
        """Write blocks that load what the results depend on besides."""
        product, writer = self.product, self.writer
        partitions = min(PARTITIONS, product.size("m"))
        sizes = {"p": partitions, "m": product.size("m"), "n": product.size("n")}
        for letters, found in product.others().items():
            kind, used = {"m": (COLUMN, "m"), "mn": (PART, "mn")}.get(letters, (ROW, "pn"))
            for load in found:
                name = unused(load, kind, self.names)
                self.names.append(name)
                dims = {letter: sizes[letter] for letter in used}
                made = writer.buffer(name, name, dims, str(load.source.ty.dtype))
                with writer.block(name, dims) as at:
                    value = self.placed(load, dict(zip(used, at, strict=True)))
                    T.buffer_store(made, value, at)
                self.others.append((load, kind, made))

    def at(self, expr: Any, at: Any) -> Any:
        """Return an expression of the function's at an index of the result."""
        m, n = at
        by = {}
        for load in loads(expr):
            for known, kind, made in self.others:
                if tvm_ffi.structural_equal(load, known):
                    places = {ROW: (tirx.floormod(m, PARTITIONS), n), COLUMN: (m,), PART: (m, n)}
                    by[handle(load)] = made[places[kind]]
        return self.placed(replaced_loads(expr, by), {"m": m, "n": n})

    def placed(self, expr: Any, at: dict[str, Any]) -> Any:
        """Return an expression with values for its axes, over the new parameters."""
        axes = self.product.axes
        values = {axes[key].var: value for key, value in at.items() if key in axes}
        return substitute(substitute(expr, values), self.renamed)
