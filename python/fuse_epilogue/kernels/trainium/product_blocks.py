"""Rewrites a product of matrices with a block for each step.

The tensor engine sums over partitions, so both operands are needed with k on them. Where memory
has k next to k transfers transpose them, or the engine does, tile by tile:

    a_rows    as it is in memory, with the rows on partitions
    a_turned  its transposition, in PSUM
    a_tile    a copy of that, in SBUF
    bias_all  what depends on n alone, once for every partition; or bias_column: on m alone
    product   the sum, in PSUM, from 0 on
    biased    the start, added as the sum leaves PSUM; where something follows it
    out       the result, which is then stored
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ...tir.walk import handle, loads, substitute
from ...workloads.writer import Writer
from .read_product import Product, Side, own_letters
from .tiles import PARTITIONS, declared, replaced_loads, unused

#: How the names of blocks end that load what else a result depends on: on n, m or both.
ROW, COLUMN, PART = "all", "column", "part"


def rewritten(product: Product, by_dma: bool = False) -> tirx.PrimFunc:
    """Rewrite the product, with the same parameters and the blocks of this module.

    - `product`: the product to write.
    - `by_dma`: whether matrices are transposed while they are loaded: there is no block for it
      then.
    """
    return _Rewriter(product, by_dma).write()


def transposed_by_dma(product: Product) -> bool:
    """Return whether there are matrices to transpose, and transfers can do it: of 16 bits."""
    sides = [side for side in (product.left, product.right) if side.transposed]
    return bool(sides) and all(side.dtype != "float32" for side in sides)


class _Rewriter:
    def __init__(self, product: Product, by_dma: bool) -> None:
        self.product, self.by_dma = product, by_dma
        dims = {**product.batch, "m": product.size("m"), "n": product.size("n")}
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
                *batch, m, n, k = index
                at = dict(zip(product.batch, batch, strict=True))
                own = [
                    [at[x] for x in product.batch_of(s.load)] for s in (product.left, product.right)
                ]
                left_value = left[(*own[0], k, m)]
                return s + writer.cast(left_value) * writer.cast(right[(*own[1], k, n)])

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
        """Write how a matrix comes on the chip; return it with k first, after the batch."""
        writer, letter, product = self.writer, side.letter, self.product
        batch = {x: product.size(x) for x in product.batch_of(side.load)}
        own = {"k": product.size("k"), letter: product.size(letter)}
        sizes = {**batch, **own}

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

        if not side.transposed or self.by_dma:
            return copy("tile", sizes, lambda at: element(**at))
        natural = {**batch, **dict(reversed(own.items()))}
        rows = copy("rows", natural, lambda at: element(**at))
        transposed = copy("turned", sizes, lambda at: rows[tuple(at[x] for x in natural)])
        return copy("tile", sizes, lambda at: transposed[tuple(at[x] for x in sizes)])

    def load_others(self) -> None:
        """Write blocks that load what the results depend on besides."""
        product, writer = self.product, self.writer
        partitions = min(PARTITIONS, product.size("m"))
        sizes = {**self.writer.dims, "p": partitions}
        for letters, found in product.others().items():
            own = own_letters(letters)
            kind, used = {"m": (COLUMN, "m"), "mn": (PART, "mn")}.get(own, (ROW, "pn"))
            batch = letters.removesuffix(own)
            used = batch + used
            for load in found:
                name = unused(load, kind, self.names)
                self.names.append(name)
                dims = {letter: sizes[letter] for letter in used}
                made = writer.buffer(name, name, dims, str(load.source.ty.dtype))
                with writer.block(name, dims) as at:
                    value = self.placed(load, dict(zip(used, at, strict=True)))
                    T.buffer_store(made, value, at)
                self.others.append((load, used, made))

    def at(self, expr: Any, at: Any) -> Any:
        """Return an expression of the function's at an index of the result."""
        values = dict(zip(self.writer.dims, at, strict=True))
        places = {**values, "p": tirx.floormod(values["m"], PARTITIONS)}
        by = {}
        for load in loads(expr):
            for known, used, made in self.others:
                if tvm_ffi.structural_equal(load, known):
                    by[handle(load)] = made[tuple(places[letter] for letter in used)]
        return self.placed(replaced_loads(expr, by), values)

    def placed(self, expr: Any, at: dict[str, Any]) -> Any:
        """Return an expression with values for its axes, over the new parameters."""
        axes = self.product.axes
        values = {axes[key].var: value for key, value in at.items() if key in axes}
        return substitute(substitute(expr, values), self.renamed)
