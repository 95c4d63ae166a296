"""Expressions of blocks as terms in the axes of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import StringImm, TensorLoad, Var, prim

from ...tir.walk import handle
from ..evaluation.expressions import ExpressionWriter, Steps, without_round_trips
from ..evaluation.scalars import (
    STORED_TYPES,
    EvaluationError,
    ScalarType,
    UnsupportedError,
    scalar_type,
    stored_type,
)
from ..evaluation.values import Buffer, Value
from .algebra import Finished, NotProved
from .domain import Domain
from .symbolic import TermArithmetic
from .terms import Term

_BOOL = scalar_type("bool")
_SUMS = {prim.Add: "add", prim.Sub: "sub"}
# The last of TVM's kinds of calls without an effect (CallEffectKind::kPure).
_PURE = 1
# Terms from which a sum is not made one by one.
_LONG_SUM = 8


class TermValue(Value):
    """A value that is a term; there is no source.

    - `term`: the term.
    """

    __slots__ = ("term",)

    def __init__(self, term: Term, type: ScalarType) -> None:
        super().__init__("", type)
        self.term = term


class TermDialect:
    """Operations that are carried out at once, on terms.

    - `table`: where terms are made.
    """

    checked = False

    def __init__(self, table: TermArithmetic) -> None:
        self.table = table

    def literal(self, value: float, type: ScalarType) -> Value:
        """Return a literal."""
        return TermValue(self.table.literal(value, type), type)

    def lift(self, value: Value) -> Value:
        """Return a literal integer."""
        return TermValue(self.table.integer(value.low, value.type), value.type)

    def binary(self, name: str, a: Any, b: Any) -> Value:
        """Return an operation."""
        return TermValue(self.table.binary(name, a.type, a.term, b.term), a.type)

    def compare(self, name: str, a: Any, b: Any) -> Value:
        """Return a comparison."""
        return TermValue(self.table.compare(name, a.type, a.term, b.term), _BOOL)

    def logical(self, name: str, operands: list[Any]) -> Value:
        """Return and, or, not."""
        return TermValue(self.table.logical(name, *(each.term for each in operands)), _BOOL)

    def bitwise_not(self, a: Any) -> Value:
        """Return the complement: exclusive or with all bits set."""
        if a.type.kind == "b":
            return self.logical("not", [a])
        ones = self.table.integer(a.type.high if a.type.kind == "u" else -1, a.type)
        return TermValue(self.table.binary("xor", a.type, a.term, ones), a.type)

    def cast(self, a: Any, target: ScalarType) -> Value:
        """Return a conversion."""
        return TermValue(self.table.cast(a.term, a.type, target), target)

    def choose(self, condition: Any, a: Any, b: Any, lazy: bool) -> Value:
        """Return a selection."""
        return TermValue(self.table.choose(a.type, condition.term, a.term, b.term), a.type)

    def decides(self, condition: Value, lazy: bool) -> bool:
        """Return False: both values are terms."""
        return False

    def call(self, name: str, args: list[Any], type: ScalarType) -> Value:
        """Return a call."""
        sources = [arg.type for arg in args]
        terms = [arg.term for arg in args]
        return TermValue(self.table.call(name, type, sources, *terms), type)

    def load(self, buffer: Buffer, indices: list[Value], keys: list[int]) -> Value:
        """Refuse: what a load gives depends on what is finished."""
        raise UnsupportedError(f"a load from '{buffer.name}'")


class TermExpressions(ExpressionWriter):
    """Makes terms of expressions in the axes of a reduction.

    - `table`: where terms are made.
    - `domain`: the axes and what is known of them; expressions of axes and sizes are simplified
      with it.
    - `touched` (dict[int, Var]): buffers that the fused blocks write: they may only be loaded where
      `finished` says.
    - `scalars`: variables that are data, by handle.
    - `finished`: by handle of the buffer, elements whose value is known.
    - `before` (dict[int, tuple[Expr, ...]]): by handle of the buffer, elements that hold what they
      held before the fused blocks ran.
    - `sums` (bool): whether long sums are made at once.
    - `allocated`: handles of allocated buffers: they keep a bfloat16 as it was computed.
    """

    type_of = staticmethod(stored_type)

    def __init__(
        self,
        table: TermArithmetic,
        domain: Domain,
        touched: dict[int, Any],
        scalars: set[int],
    ) -> None:
        super().__init__(TermDialect(table))
        self.table = table
        self.domain = domain
        self.touched = touched
        self.scalars = scalars
        self.finished: dict[int, Finished] = {}
        self.sums = True
        self.allocated: set[int] = set()
        self.before: dict[int, tuple[Any, ...]] = {}
        self._handlers = {
            **self._handlers,
            TensorLoad: self._load,
            prim.Let: self._let,
            prim.IntImm: self._int,
        }
        # Expressions by handle, kept alive, so that no other gets the handle: whether they are
        # made of axes, sizes and integers alone, and their simplest form.
        self._index: dict[int, tuple[Any, bool]] = {}
        self._simplified: dict[int, tuple[Any, Any]] = {}
        for axis, _, _ in domain.axes:
            self.variable(axis, axis_term(table, axis))

    def variable(self, var: Any, term: Term) -> None:
        """Say what a variable stands for."""
        self.variables[handle(var)] = TermValue(term, _type(var))

    def term(self, expr: Any) -> Term:
        """Return the term of an expression.

        - Raises NotProved: if it reads a buffer that the fused blocks write, at an element not
          known to be the one at hand, or has something in it that has no terms.
        """
        try:
            value = self.write(without_round_trips(expr))
        except EvaluationError as error:
            raise NotProved(str(error)) from error
        if not isinstance(value, TermValue) or not isinstance(value.term, Term):
            raise NotProved("an expression has no value")
        return value.term

    def begin(self, expr: Any) -> Value | Steps:
        """Begin with an expression; with those of axes and sizes alone in their simplest form."""
        if isinstance(expr, (prim.IntImm, Var)) or not self.is_index(expr):
            return super().begin(expr)
        key = handle(expr)
        if key not in self._simplified:
            simple = self.domain.simplify(expr)
            self._simplified[key] = expr, simple
            # Its parts are as simple as can be.
            pending = [simple]
            while pending:
                part = pending.pop()
                operands = _index_operands(part)
                if operands:
                    self._simplified[handle(part)] = part, part
                    pending += operands
        return super().begin(self._simplified[key][1])

    def is_index(self, expr: Any) -> bool:
        """Whether an expression is made of axes, sizes and integers alone."""
        found = self._index.get(handle(expr))
        if found is not None:
            return found[1]
        # Operands before the operators on them.
        pending = [expr]
        while pending:
            part = pending[-1]
            if handle(part) in self._index:
                pending.pop()
                continue
            operands = _index_operands(part)
            unknown = [each for each in operands if handle(each) not in self._index]
            if unknown:
                pending += unknown
                continue
            if operands:
                answer = all(self._index[handle(each)][1] for each in operands)
            else:
                answer = self._is_index_leaf(part)
            self._index[handle(part)] = part, answer
            pending.pop()
        return self._index[handle(expr)][1]

    def _is_index_leaf(self, expr: Any) -> bool:
        if isinstance(expr, prim.IntImm):
            return bool(expr.ty.dtype != "bool")
        if isinstance(expr, Var):
            return handle(expr) not in self.scalars and expr.ty.dtype in ("int32", "int64")
        return False

    def _operation(self, name: str, expr: Any) -> Steps:
        """Add the terms of a sum all at once."""
        terms: list[tuple[str, Any]] = []
        node = expr
        while type(node) in _SUMS and not self.is_index(node):
            terms.append((_SUMS[type(node)], node.b))
            node = node.a
        if len(terms) < _LONG_SUM or not self.sums:
            return (yield from super()._operation(name, expr))
        first: Any = yield node
        others = []
        for sign, term in reversed(terms):
            value: Any = yield term
            others.append((sign, value))
        types = {value.type.name for value in (first, *(value for _, value in others))}
        if len(types) > 1 or types & {"bool", *STORED_TYPES}:
            raise UnsupportedError("a sum of several types, of bools, or of what is only stored")
        total = self.table.total(first.type, first.term, [(s, v.term) for s, v in others])
        return TermValue(total, first.type)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Return an operation of two values of one type: one that the target computes with."""
        if a.type.name in STORED_TYPES:
            raise UnsupportedError(f"{name} of {a.type.name}")
        return super().binary(name, a, b)

    def function(self, name: str, args: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return what a call calls, and its operands, without the name of an external function."""
        names = [str(arg.value) for arg in args if isinstance(arg, StringImm)]
        return " ".join([name, *names]), [arg for arg in args if not isinstance(arg, StringImm)]

    def called(self, name: str, expr: Any, args: list[Value], type: ScalarType) -> Value:
        """Return the result of a function: it must have no effects, since a term has no place."""
        effect = expr.op.get_attr("TCallEffectKind")
        if effect is None or int(effect) > _PURE:
            raise NotProved(f"{expr.op.name} may have effects")
        return super().called(name, expr, args, type)

    def shortened(self, value: Value) -> Value:
        """Return the value: a term has no source."""
        return value

    def _int(self, expr: Any) -> Value:
        return self.dialect.lift(super()._int(expr))

    def _var(self, expr: Any) -> Value:
        if handle(expr) not in self.variables:
            self.variable(expr, self.table.unknown(f"free {expr.name}", handle(expr), _type(expr)))
        return super()._var(expr)

    def _let(self, expr: Any) -> Steps:
        value = yield expr.value
        key = handle(expr.var)
        outer = self.variables.get(key)
        self.variables[key] = value
        body = yield expr.body
        if outer is None:
            del self.variables[key]
        else:
            self.variables[key] = outer
        return body

    def _load(self, expr: Any) -> Steps:
        indices = []
        for index in expr.indices:
            indices.append((yield index))
        return self.element(expr, indices)

    def element(self, expr: Any, indices: list[Any]) -> Value:
        """Return what a load gives whose indices are written."""
        key = handle(expr.source)
        type = self.type_of(expr.source.ty.dtype.dtype)
        if type.name in STORED_TYPES and key in self.touched:
            raise UnsupportedError(f"{type.name} is stored and read again")
        found = self.finished.get(key)
        if found is not None:
            if not self.domain.equal(list(expr.indices), found.indices):
                raise NotProved(f"{expr} is not the element of '{expr.source.name}' at hand")
            return TermValue(found.loaded(self.table), type)
        own = self.before.get(key)
        if key in self.touched and (own is None or not self.domain.equal(list(expr.indices), own)):
            raise NotProved(f"{expr} reads what the fused blocks write, at another element")
        terms = [self.term(index) for index in own] if own else [each.term for each in indices]
        sort = type if self.table.exact or type.kind != "f" else scalar_type("float64")
        op = "held" if type.name == "bfloat16" and key in self.allocated else "load"
        return TermValue(self.table.node(op, sort, terms, key), type)


def _index_operands(expr: Any) -> list[Any]:
    """Return the operands of an expression, if all may be part of an index; none of a leaf."""
    if isinstance(expr, prim.Cast):
        return [expr.value] if expr.ty.dtype in ("int32", "int64") else []
    if hasattr(expr, "b"):
        return [expr.a, expr.b]
    return [expr.a] if hasattr(expr, "a") else []


def axis_term(table: TermArithmetic, axis: Any) -> Term:
    """Return the unknown that stands for an axis."""
    return table.unknown(f"axis {axis.name}", handle(axis), _type(axis))


def _type(var: Any) -> ScalarType:
    if isinstance(var.ty, tirx.BufferType):
        raise UnsupportedError(f"buffer '{var.name}' is used as a number")
    return scalar_type(var.ty.dtype)
