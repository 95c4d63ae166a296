"""Partial operations in expressions: those that are not defined for all operands.

A load is defined inside its buffer, a division where the divisor is not zero (and the quotient is
not the one that overflows), a shift below the width, a conversion of a float where the integer has
room for it; signed and unsigned sums, differences and products of 32 and 64 bits are defined where
they do not wrap around, since TVM marks them so for LLVM. Calls are defined where this module
knows it.

Index arithmetic, which is made of axes and sizes alone, is that of whole numbers where only sums,
differences and products follow: an index that is inside its buffer as a whole number wraps back
into it. A part that is divided, compared or converted must not wrap around.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.ir import Call, prim

from ...tir.walk import handle
from ..evaluation.expressions import ExpressionWriter, Steps
from ..evaluation.functions import FLOAT_FUNCTIONS
from ..evaluation.scalars import ScalarType, scalar_type
from ..evaluation.values import Value
from ..proof.domain import in_range
from ..proof.term_expressions import TermExpressions
from ..proof.terms import Term
from .subject import Stored

#: Kinds of operations that are not defined everywhere, each with what may be wrong.
KINDS = {
    "inside": "the index may be out of bounds",
    "divisor": "the divisor may be 0",
    "quotient": "the quotient may overflow",
    "shift": "the type may have no more bits than that",
    "wrap": "the result may overflow",
    "fits": "the number may not fit",
    "call": "the function may not be defined there",
}

_GUARDS = (prim.Select, prim.And, prim.Or)

#: Calls that are defined for all operands, if they give a float or a bool.
TOTAL = {*FLOAT_FUNCTIONS, "isnan", "isinf", "isfinite", "fmod", "ldexp", "reinterpret"}
_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
_SHIFTS = (prim.LShift, prim.RShift)
_RING = (prim.Add, prim.Sub, prim.Mul)

Condition = Callable[[], Any]


def _exactly(condition: Any, index: Any = None) -> Condition:
    """Return a condition on an index, or on numbers, and that they do not wrap around on the way.

    Callers make it only where they need it.
    """

    def make() -> Any:
        parts = _do_not_wrap(condition, True) if index is None else _do_not_wrap(index, False)
        return functools.reduce(prim.And, parts, condition)

    return make


def _do_not_wrap(index: Any, compared: bool) -> Iterator[Any]:
    """Yield the conditions under which the parts of an index are what they are as whole numbers.

    - `index` (tvm.ir.Expr): expression of axes and sizes.
    - `compared`: whether its own operation must not wrap around.
    """
    # In 64 bits a domain is enumerated as the machine computes it.
    if compared and isinstance(index, _RING) and str(index.ty.dtype) == "int32":
        lowest, numbers = prim.IntImm("int64", -(1 << 31)), prim.IntImm("int64", 1 << 32)
        yield in_range(_widened(index), lowest, numbers)
    compared = compared or not isinstance(index, _RING)
    for part in ("a", "b", "value"):
        if not isinstance(index, prim.IntImm) and hasattr(index, part):
            yield from _do_not_wrap(getattr(index, part), compared)


def _widened(index: Any) -> Any:
    """Return an index with its sums, differences and products in 64 bits."""
    if isinstance(index, prim.IntImm):
        return prim.IntImm("int64", index.value)
    if isinstance(index, _RING):
        return type(index)(_widened(index.a), _widened(index.b))
    return prim.Cast("int64", index)


def has_guard(store: Stored) -> bool:
    """Whether a store evaluates something under a condition."""
    found: list[Any] = []

    def call(node: Any) -> None:
        if str(getattr(node.op, "name", "")).endswith("if_then_else"):
            found.append(node)

    entries = [(Call, call), *((node, found.append) for node in _GUARDS)]
    for expr in (store.value, *store.indices):
        tvm_ffi.structural_walk(expr, entries)
    return bool(found or store.conditions)


@dataclass(frozen=True)
class Guard:
    """A condition under which something is evaluated.

    - `condition`: the condition.
    - `everywhere`: whether every target leaves the rest unevaluated where the condition does not
      hold, as it does for a branch. The right operand of "and" and "or" and the values of a select
      are evaluated by some targets, and not by others.
    """

    condition: Term
    everywhere: bool


@dataclass(frozen=True)
class Need:
    """An operation that is evaluated, and is not defined for all operands.

    - `kind`: one of `KINDS`.
    - `operands`: those that decide whether it is defined: index and extent, dividend and divisor,
      and so on.
    - `detail`: what else decides: the name of the operation or of the function.
    - `path`: the conditions under which it is evaluated, outermost first.
    - `expr` (Expr or Stored): the expression, or the store.
    - `condition`: returns when it is defined, where that depends on axes and sizes alone.
    """

    kind: str
    operands: tuple[Term, ...]
    detail: str
    path: tuple[Guard, ...]
    expr: Any
    condition: Condition | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of operations that are defined for the same reason."""
        return (self.kind, self.detail, *(operand.number for operand in self.operands))


class Needs(TermExpressions):
    """Makes terms, and remembers every operation that is not defined for all operands.

    - `needs`: the operations that were found.
    - `path`: the conditions around the expression at hand.
    - `wraps`: whether arithmetic that wraps around is noted.
    - `args`: as for `TermExpressions`.
    """

    def __init__(self, wraps: bool, *args: Any) -> None:
        super().__init__(*args)
        self.wraps = wraps
        self.sums = not wraps
        self.needs: list[Need] = []
        self.path: tuple[Guard, ...] = ()
        self._quiet = False
        self._divides: dict[int, tuple[Any, bool]] = {}

    def stored(self, store: Stored) -> Term:
        """Note what a store evaluates, and return its value.

        - Raises NotProved: if something in it has no term.
        """
        outer = self.path
        for condition in store.conditions:
            self._under(self.term(condition), True)
        for index, extent in zip(store.indices, store.buffer.ty.shape, strict=True):
            self._inside(index, self.term(index), extent, store)
        value = self.term(store.value)
        self.path = outer
        return value

    # ---- Where conditions come from ----------------------------------------------------------

    def _under(self, condition: Term, everywhere: bool) -> None:
        found = [condition]
        if condition.op == "bits and":
            found = list(condition.args)
        elif condition.op == "not" and condition.args[0].op == "bits or":
            found = [self.table.logical("not", each) for each in condition.args[0].args]
        self.path = (*self.path, *(Guard(each, everywhere) for each in found))

    def _choose(self, condition: Any, a: Any, b: Any, lazy: bool) -> Steps:
        test: Any = yield condition
        outer = self.path
        self._under(test.term, lazy)
        yes = yield a
        self.path = outer
        self._under(self.table.logical("not", test.term), lazy)
        no = yield b
        self.path = outer
        return self.dialect.choose(test, yes, no, lazy)

    def _select(self, expr: Any) -> Steps:
        # Whether it is a branch depends on the target.
        return self._choose(expr.condition, expr.true_value, expr.false_value, False)

    def _logical(self, name: str, *operands: Any) -> Steps:
        outer = self.path
        values: list[Any] = []
        for operand in operands:
            value: Any = yield operand
            values.append(value)
            if name != "not":
                holds = value.term if name == "and" else self.table.logical("not", value.term)
                self._under(holds, False)
        self.path = outer
        return self.dialect.logical(name, values)

    # ---- Operations --------------------------------------------------------------------------

    def begin(self, expr: Any) -> Value | Steps:
        """Begin with an expression; divisions in index arithmetic are noted as written."""
        if not self._quiet and self.is_index(expr) and self._has_division(expr):
            return self._as_written(expr)
        return super().begin(expr)

    def _has_division(self, expr: Any) -> bool:
        found = self._divides.get(handle(expr))
        if found is None:
            nodes: list[Any] = []
            entries = [(node, nodes.append) for node in (*_DIVISIONS, *_SHIFTS)]
            tvm_ffi.structural_walk(expr, entries)
            found = self._divides[handle(expr)] = expr, bool(nodes)
        return found[1]

    def _as_written(self, expr: Any) -> Steps:
        steps = ExpressionWriter.begin(self, expr)
        if not isinstance(steps, Value):
            yield from steps
        self._quiet = True
        found = super().begin(expr)
        value = found if isinstance(found, Value) else (yield from found)
        self._quiet = False
        return value

    def operation(self, name: str, expr: Any, operands: Any, a: Any, b: Any) -> Value:
        """Note an operation of integers, and return its value."""
        if a.type.kind in "iu" and a.type is b.type and not self._quiet:
            self._note(name, expr, tuple(operands), a, b)
        return super().operation(name, expr, operands, a, b)

    def called(self, name: str, expr: Any, args: list[Any], type: ScalarType) -> Value:
        """Note a call of a function that is not known to be defined, and return its value."""
        if not (name == "reinterpret" or (name in TOTAL and type.kind in "fb")):
            self._need("call", tuple(args), f"{name} {type.name}", expr)
        return super().called(name, expr, args, type)

    def _note(self, name: str, expr: Any, operands: tuple[Any, Any], a: Any, b: Any) -> None:
        type: ScalarType = a.type
        index = all(self.is_index(each) for each in operands)
        known = self.table.ordered(b.term, type)
        if name in ("div", "truncmod", "floordiv", "floormod"):
            if known not in (None, 0, -1):
                return
            zero = prim.IntImm(type.name, 0)
            nonzero = prim.NE(operands[1], zero)
            self._need("divisor", (b,), "", expr, _exactly(nonzero) if index else None)
            if type.kind == "i":
                lowest, minus = prim.IntImm(type.name, type.low), prim.IntImm(type.name, -1)
                either = prim.Or(prim.NE(operands[0], lowest), prim.NE(operands[1], minus))
                self._need("quotient", (a, b), "", expr, _exactly(either) if index else None)
        elif name in ("shl", "shr"):
            if known is not None and 0 <= known < type.bits:
                return
            inside = in_range(
                operands[1], prim.IntImm(type.name, 0), prim.IntImm(type.name, type.bits)
            )
            self._need("shift", (b,), "", expr, _exactly(inside) if index else None)
        elif self.wraps and name in ("add", "sub", "mul") and type.bits >= 32 and not index:
            ordered = (a, b) if name == "sub" or a.term.number <= b.term.number else (b, a)
            self._need("wrap", ordered, name, expr)

    def _cast(self, expr: Any) -> Steps:
        a: Any = yield expr.value
        target = self.type_of(expr.ty.dtype)
        to_integer = a.type.kind == "f" and target.kind in "iu"
        if to_integer and self.table.whole(a.term, a.type, target) is None:
            self._need("fits", (a,), target.name, expr)
        return a if target is a.type else self.dialect.cast(a, target)

    def element(self, expr: Any, indices: list[Any]) -> Value:
        """Note a load, and return its value."""
        for index, value, extent in zip(expr.indices, indices, expr.source.ty.shape, strict=True):
            self._inside(index, value.term, extent, expr)
        quiet, self._quiet = self._quiet, True
        loaded = super().element(expr, indices)
        self._quiet = quiet
        return loaded

    def _inside(self, index: Any, term: Term, extent: Any, expr: Any) -> None:
        if self._quiet:
            return
        condition = None
        if self.is_index(index):
            inside = in_range(index, prim.IntImm(index.ty.dtype, 0), extent)
            condition = _exactly(inside, index)
        length = self.term(extent)
        constant = self.table.constant(length)
        if constant is not None:
            # Extents of one length are the same, whatever their types.
            length = self.table.integer(constant, scalar_type("int64"))
        self.needs.append(Need("inside", (term, length), "", self.path, expr, condition))

    def _need(
        self,
        kind: str,
        operands: tuple[Any, ...],
        detail: str,
        expr: Any,
        condition: Condition | None = None,
    ) -> None:
        if not self._quiet:
            terms = tuple(operand.term for operand in operands)
            self.needs.append(Need(kind, terms, detail, self.path, expr, condition))
