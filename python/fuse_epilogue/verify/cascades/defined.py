"""Nothing is evaluated in the loop of a cascade, or after it, where the program did not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tvm.ir import TensorLoad, prim

from ...tir.walk import handle, loads, same, variables
from ..certificate.subject import demand
from ..certificate.tree import Block
from ..proof.field import Ratio
from .evaluated import Before, Evaluation, Evaluations
from .loop import Nest, nests
from .merge import MergeChecker
from .terms import variable


class DefinedChecker(MergeChecker):
    """Proves that what is not defined for all operands is evaluated where it was before."""

    # The blocks after the loop.
    tails: list[Block]

    def check_defined(self) -> None:
        """Prove it of the loop over blocks of keys, of merges, and of tails."""
        self.evaluated = Before(self.program)
        for block, proof in zip(self.blocks, self.certificate.stages, strict=True):
            values = {handle(var): self._terms().number(to) for var, to in proof.bindings}
            for store in (block.block.init, block.block.body):
                for expr in (*store.indices, store.value):
                    self.evaluated.add(expr, self.units | values)
        root = self.fused.block
        for nest in nests(root.init, Nest((), (), None)):
            self._check_nest(nest)
        for nest in nests(root.body, Nest((), (), None)):
            self._check_nest(nest)
        for block in (*self.merges, *self.tails):
            self._check_block(block)

    def _check_nest(self, nest: Nest) -> None:
        values = self._points(nest)
        starts = () if nest.start is None else (*nest.start.indices, nest.start.value)
        exprs = (*nest.store.indices, nest.store.value, *starts)
        self._check(nest.conditions, exprs, values, "block")

    def _check_block(self, block: Block) -> None:
        names = [*self.certificate.rows]
        place = next(
            place
            for place, proof in enumerate(self.certificate.stages)
            if block.name in (proof.name, f"{proof.name}_merge")
        )
        names += self.certificate.stages[place].axes
        values = {
            handle(axis.var): self.units.get(handle(name), self.field.atom(variable(name)))
            for axis, name in zip(block.block.iter_vars, names, strict=False)
        }
        stores = [s for s in (block.block.init, block.block.body) if s is not None]
        exprs = [expr for store in stores for expr in (*store.indices, store.value)]
        self._check((), exprs, values, f"stages[{place}].tail")

    def _check(
        self,
        conditions: Iterable[Any],
        exprs: Iterable[Any],
        values: Mapping[int, Ratio],
        claim: str,
    ) -> None:
        known = self.loop.known

        def is_input(load: Any) -> bool:
            return handle(load.source) in known and handle(load.source) not in self.program.results

        def load(expr: Any, indices: list[Ratio]) -> Ratio:
            if is_input(expr):
                return self.program.load(expr, indices)
            return self.field.atom(("held", handle(expr.source)), indices)

        terms = Evaluations(self.arithmetic, load, values, is_input)
        terms.under(conditions)
        for expr in exprs:
            terms.number(expr)
        for each in terms.found:
            reason = f"it evaluates {each.expr} where the function before need not"
            demand(self.evaluated.allows(each) or self._is_inside(each), claim, reason)

    def _is_inside(self, each: Evaluation) -> bool:
        """Whether it is a load whose indices are rows, keys and axes, all of them in range."""
        if not isinstance(each.expr, TensorLoad):
            return False
        shape = each.expr.source.ty.shape
        return all(map(self._is_below, each.operands, each.expr.indices, shape))

    def _is_below(self, index: Ratio, expr: Any, size: Any) -> bool:
        known = index.constant
        if known is not None:
            return isinstance(size, prim.IntImm) and 0 <= known < int(size)
        if isinstance(expr, prim.FloorDiv) and isinstance(expr.b, prim.IntImm):
            return self._is_group_below(index, int(expr.b), size)
        return any(
            self.field.equal(index, place) and self._same(extent, size)
            for place, extent in self._places()
        )

    def _is_group_below(self, index: Ratio, rows: int, size: Any) -> bool:
        """Whether an index is a row divided by a number of rows."""
        pairs = zip(self.certificate.rows, self.certificate.rows_extents, strict=True)
        return rows > 0 and any(
            isinstance(extent, prim.IntImm)
            and isinstance(size, prim.IntImm)
            and int(extent) <= rows * int(size)
            and self.field.equal(
                index, self._terms().number(prim.FloorDiv(row, prim.IntImm(row.ty, rows)))
            )
            for row, extent in pairs
        )

    def _places(self) -> Iterator[tuple[Ratio, Any]]:
        """Yield rows, keys and axes, each with its extent."""
        for place, extent in enumerate(self.certificate.keys_extents):
            yield self.field.atom(self.names[place]), extent
        for row, extent in zip(self.certificate.rows, self.certificate.rows_extents, strict=True):
            yield self.point(row, extent), extent
        yield from self._own_axes()

    def _points(self, nest: Nest) -> dict[int, Ratio]:
        """Return what the loops of a nest stand for: keys of the block at hand, and axes."""
        values = dict(self.loop.values)
        stored = {handle(var) for index in nest.store.indices for var in variables(index)}
        combines = any(same(one.source, nest.store.buffer) for one in loads(nest.store.value))
        keys, axes = self._keys(), self._own_axes()
        in_blocks = keys[self.loop.shared]
        for var, extent in nest.loops:
            # What is combined is stored once for each of its axes; scratch memory has keys, too.
            places = (axes,) if combines and handle(var) in stored else (keys, axes)
            for left in places:
                fitting = [at for at in left if self._same(at[1], extent)]
                if in_blocks in fitting and not self.loop.leaves_out(nest, var):
                    fitting.remove(in_blocks)  # Keys beyond the last one are none of the program.
                at = fitting[0] if fitting else None
                if at is not None:
                    left.remove(at)
                    break
            values[handle(var)] = self.field.atom(variable(var)) if at is None else at[0]
        return values

    def _keys(self) -> list[tuple[Ratio, Any]]:
        """Return the keys of the block at hand in the numbers of its loops, and their extents."""
        found = []
        for place, extent in enumerate(self.certificate.keys_extents):
            key = self.field.atom(self.names[place])
            if place == self.loop.shared:
                factor = self.loop.factor
                base = self.field.mul(self.loop.block_number, self.field.literal(factor))
                key, extent = self.field.sub(key, base), prim.IntImm(extent.ty, factor)
            found.append((key, extent))
        return found

    def _own_axes(self) -> list[tuple[Ratio, Any]]:
        found = []
        for proof in self.certificate.stages:
            for axis, extent in zip(proof.axes, proof.axes_extents, strict=True):
                found.append((self.point(axis, extent), extent))
        return found
