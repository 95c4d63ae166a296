"""Expressions of cascades as numbers of a field, what is computed between them put in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim

from ...tir.walk import handle
from ..certificate.subject import demand
from ..certificate.tree import Block, in_steps_of_one
from ..evaluation.expressions import ExpressionWriter, Steps, without_round_trips
from ..evaluation.scalars import UnsupportedError, scalar_type
from ..evaluation.values import Value
from ..proof.field import Ratio
from ..proof.field_arithmetic import FieldArithmetic
from ..proof.term_expressions import TermDialect, TermValue
from .folding import Folding

#: Returns what a load gives, of the load and its indices.
Loads = Callable[[Any, list[Ratio]], Ratio]


def variable(var: Any) -> tuple[str, int]:
    """Return the name of the atom that stands for a variable."""
    return "var", handle(var)


class CascadeTerms(ExpressionWriter):
    """Makes numbers of a field of expressions.

    - `arithmetic`: meaning of the operations.
    - `loads`: numbers that loads give.
    - `values`: numbers that variables stand for, by handle; others stand for themselves.
    - `folding`: TVM's simplifier, which must not change the number of an expression.
    """

    def __init__(
        self,
        arithmetic: FieldArithmetic,
        loads: Loads,
        values: Mapping[int, Ratio],
        folding: Folding | None = None,
    ) -> None:
        super().__init__(TermDialect(arithmetic))  # type: ignore[arg-type]
        self._arithmetic = arithmetic
        self._field = arithmetic.field
        self._folding = folding
        self._loads = loads
        self._values = values
        self._handlers = {
            **self._handlers,
            TensorLoad: self._load,
            prim.IntImm: self._int,
            prim.Let: self._let,
        }

    def number(self, expr: Any) -> Ratio:
        """Return the number of an expression.

        - Raises UnsupportedError: something in it has none.
        - Raises CertificateError: TVM's simplifier makes another number of it.
        """
        if self._folding is not None:
            for part, simple in self._folding.changed(expr):
                equal = self._field.equal(self._number(part), self._number(simple))
                demand(equal, "block", f"TVM's simplifier makes {simple} of {part}")
        return self._number(expr)

    def apart(self, expr: Any) -> Ratio:
        """Return the number of an expression in which exponentials are not multiplied."""
        self._arithmetic.apart = True
        try:
            return self._number(expr)
        finally:
            self._arithmetic.apart = False

    def _number(self, expr: Any) -> Ratio:
        value: Any = self.write(without_round_trips(expr))
        return value.term  # type: ignore[no-any-return]

    def shortened(self, value: Value) -> Value:
        """Return the value: it has no source."""
        return value

    def _int(self, expr: Any) -> Value:
        return self.dialect.lift(super()._int(expr))

    def _var(self, expr: Any) -> Value:
        if isinstance(expr.ty, tirx.BufferType):
            raise UnsupportedError(f"buffer '{expr.name}' is used as a number")
        found = self.variables.get(handle(expr))
        if found is not None:
            return found
        value = self._values.get(handle(expr))
        term: Any = self._field.atom(variable(expr)) if value is None else value
        return TermValue(term, scalar_type(expr.ty.dtype))

    def _load(self, expr: Any) -> Steps:
        indices = []
        for index in expr.indices:
            value: Any = yield index
            indices.append(value.term)
        term: Any = self._loads(expr, indices)
        return TermValue(term, scalar_type(expr.source.ty.dtype.dtype))

    def _let(self, expr: Any) -> Steps:
        value = yield expr.value
        self.variables[handle(expr.var)] = value
        return (yield expr.body)


class Program:
    """The function before: each buffer with the one block that writes it.

    - `arithmetic`: meaning of the operations.
    - `blocks`: the innermost blocks.
    - `overwritten`: parameters that every load reads as the caller has passed them, by handle.
    - `results`: by handle of a buffer what a load from it gives, where it is not what a block
      computes.
    """

    def __init__(
        self, arithmetic: FieldArithmetic, blocks: list[Block], overwritten: set[int]
    ) -> None:
        self.arithmetic = arithmetic
        self.results: dict[int, Callable[[list[Ratio]], Ratio]] = {}
        self._writers: dict[int, Block] = {}
        for block in blocks:
            for key, buffer in block.touched().writes.items():
                reason = f"several blocks write '{buffer.name}'"
                demand(key not in self._writers, "order", reason)
                if key not in overwritten:
                    self._writers[key] = block

    def terms(self, values: Mapping[int, Ratio]) -> CascadeTerms:
        """Return what makes numbers of expressions."""
        return CascadeTerms(self.arithmetic, self.load, values)

    def load(self, expr: Any, indices: list[Ratio]) -> Ratio:
        """Return what a load gives: what an elementwise block has stored, in its place."""
        key = handle(expr.source)
        if key in self.results:
            return self.results[key](indices)
        stored = self.stored(expr, indices)
        if stored is not None:
            value, axes = stored
            return self.terms(axes).number(value)
        field = self.arithmetic.field
        is_bool = str(expr.source.ty.dtype.dtype) == "bool"
        return (field.condition if is_bool else field.atom)(("load", key), indices)

    def stored(self, expr: Any, indices: list[Ratio]) -> tuple[Any, dict[int, Ratio]] | None:
        """Return what an elementwise block has stored where a load reads.

        - `expr` (tvm.ir.TensorLoad)
        - `indices`: where it reads.
        - Returns: the value in the axes of its block, and what these stand for, by handle.
        """
        writer = self._writers.get(handle(expr.source))
        if writer is None or writer.block.init is not None:
            return None
        store = _elementwise(writer)
        if store is None:
            return None
        axes = zip(store.indices, indices, strict=True)
        return store.value, {handle(var): at for var, at in axes}


def _elementwise(block: Block) -> Any:
    """Return the store of a block that stores each element of a buffer once, or None."""
    store = block.block.body
    axes = [axis.var for axis in block.block.iter_vars]
    if not isinstance(store, tirx.BufferStore) or any(
        int(axis.iter_type) != 0 for axis in block.block.iter_vars
    ):
        return None
    indices = [handle(index) for index in store.indices]
    distinct = len(set(indices)) == len(indices)
    plain = distinct and set(indices) == {handle(axis) for axis in axes}
    return store if plain and runs_once(block) and _covers(block, store) else None


def _covers(block: Block, store: Any) -> bool:
    """Whether the axes, in the order of the indices, run over all of the buffer."""
    extents = {handle(a.var): a.dom.extent for a in block.block.iter_vars}
    starts = [axis.dom.min for axis in block.block.iter_vars]
    shape = store.buffer.ty.shape
    return all(isinstance(start, prim.IntImm) and int(start) == 0 for start in starts) and all(
        prim.expr_deep_equal(extents[handle(index)], extent)
        for index, extent in zip(store.indices, shape, strict=True)
    )


def runs_once(block: Block) -> bool:
    """Whether loops of their own run each instance of a block once."""
    predicate = block.realize.predicate
    if not (isinstance(predicate, prim.IntImm) and int(predicate) == 1):
        return False
    if not all(map(in_steps_of_one, block.loops)):
        return False
    loops = {handle(loop.loop_var): loop for loop in block.loops}
    bound = [handle(value) for value in block.realize.iter_values]
    if len(block.loops) != len(block.inside):
        return False
    left = set(loops)
    for key, value, axis in zip(
        bound, block.realize.iter_values, block.block.iter_vars, strict=True
    ):
        if isinstance(value, prim.IntImm):
            if not (isinstance(axis.dom.extent, prim.IntImm) and int(axis.dom.extent) == 1):
                return False
            continue
        if key not in left:
            return False
        left.remove(key)
        loop = loops[key]
        if not prim.expr_deep_equal(loop.extent, axis.dom.extent) or not all(
            isinstance(start, prim.IntImm) and int(start) == 0 for start in (loop.min, axis.dom.min)
        ):
            return False
    return all(isinstance(loops[k].extent, prim.IntImm) and int(loops[k].extent) == 1 for k in left)
