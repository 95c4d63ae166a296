"""The algebra of reductions, on terms: monoids, and expressions of blocks as terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var, prim

from ..tir_tree import handle
from .abstract import AbstractDialect
from .domain import Domain
from .expressions import ExpressionWriter
from .machine import RUNTIME
from .scalars import SCALAR_TYPES, EvaluationError, ScalarType, UnsupportedError, scalar_type
from .symbolic import TermArithmetic
from .terms import Term
from .values import Value


@dataclass(frozen=True)
class Monoid:
    """A row of `MONOIDS`.

    Attributes
    ----------
    operation : str
        The binary operation.
    kinds : str
        Kinds of types it is for: float, int, unsigned, bool.
    identity : Callable[[ScalarType], float]
        The value that changes nothing.
    """

    operation: str
    kinds: str
    identity: Callable[[ScalarType], float]


def _lowest(type: ScalarType) -> float:
    return -math.inf if type.kind == "f" else type.low


def _highest(type: ScalarType) -> float:
    return math.inf if type.kind == "f" else type.high


def _ones(type: ScalarType) -> float:
    return -1 if type.kind == "i" else type.high


#: Commutative monoids by the name a certificate gives them. All are associative and commutative:
#: on integers modulo 2**n (sum, product), on any order (max, min), bit by bit (the rest).
MONOIDS: dict[str, Monoid] = {
    "sum": Monoid("add", "fiu", lambda _: 0),
    "product": Monoid("mul", "fiu", lambda _: 1),
    "max": Monoid("max", "fiu", _lowest),
    "min": Monoid("min", "fiu", _highest),
    "logical and": Monoid("and", "b", lambda _: 1),
    "logical or": Monoid("or", "b", lambda _: 0),
    "bit-wise and": Monoid("and", "iub", _ones),
    "bit-wise or": Monoid("or", "iub", lambda _: 0),
    "bit-wise xor": Monoid("xor", "iub", lambda _: 0),
}


class NotProved(Exception):
    """Something that an argument needs is not proved; the message says what."""


@dataclass(frozen=True)
class Finished:
    """A buffer whose element at `indices` is finished when an expression reads it.

    Attributes
    ----------
    indices : tuple[Expr, ...]
        In the reduction's axes.
    value : Term
        What was stored.
    rounds : bool
        Whether memory rounds what is stored: a bfloat16 that the function allocates is kept as it
        was computed.
    """

    indices: tuple[Any, ...]
    value: Term
    rounds: bool = False

    def loaded(self, table: TermArithmetic) -> Term:
        """Return what a load gives."""
        return stored_term(table, self.value) if self.rounds else self.value


def stored_term(table: TermArithmetic, term: Term) -> Term:
    """Return what memory keeps of a value; rounding takes the greater one to the greater one."""
    if term.op in ("max", "min"):
        parts = [stored_term(table, arg) for arg in term.args]
        if not table.exact:
            return table.extremum(term.op, term.type, parts)
        return table.node(term.op, term.type, parts, term.data)
    known = term.op == "poly" and not any(monomial for monomial, _ in term.data)
    if known or term.op in ("stored", "load", "literal"):
        return term
    return table.node("stored", term.type, (term,))


class TermExpressions(ExpressionWriter):
    """Makes terms of expressions in the axes of a reduction.

    Parameters
    ----------
    table : TermArithmetic
        Where terms are made.
    domain : Domain
        The axes and what is known of them; expressions of axes and sizes are simplified with it.
    touched : dict[int, Var]
        Buffers that the fused blocks write: they may only be loaded where `finished` says.
    scalars : set[int]
        Variables that are data, by handle.
    """

    def __init__(
        self,
        table: TermArithmetic,
        domain: Domain,
        touched: dict[int, Any],
        scalars: set[int],
    ) -> None:
        super().__init__(AbstractDialect())
        self.table = table
        self.domain = domain
        self.touched = touched
        self.scalars = scalars
        self.finished: dict[int, Finished] = {}
        # Allocated buffers: they keep a bfloat16 as it was computed.
        self.allocated: set[int] = set()
        self.before: dict[int, tuple[Any, ...]] = {}
        self._handlers = {**self._handlers, TensorLoad: self._load, prim.Let: self._let}
        self._namespace: dict[str, Any] = {"X": table, **RUNTIME}
        self._namespace |= {f"t_{name}": type for name, type in SCALAR_TYPES.items()}
        self._index: dict[int, bool] = {}
        self._kept: list[Any] = []
        for axis, _, _ in domain.axes:
            self.variable(axis, axis_term(table, axis))

    def variable(self, var: Any, term: Term) -> None:
        """Say what a variable stands for."""
        name = self.fresh("u")
        self._namespace[name] = term
        self.variables[handle(var)] = Value(name, _type(var))

    def term(self, expr: Any) -> Term:
        """Return the term of an expression.

        Raises
        ------
        NotProved
            If it reads a buffer that the fused blocks write, at an element not known to be the
            one at hand, or has something in it that has no terms.
        """
        try:
            value = self.data(self.write(expr))
            result = eval(value.code, self._namespace)
        except EvaluationError as error:
            raise NotProved(str(error)) from error
        if not isinstance(result, Term):
            raise NotProved("an expression has no value")
        return result

    def write(self, expr: Any) -> Value:
        """Write an expression; those of axes and sizes alone in their simplest form."""
        if isinstance(expr, (prim.IntImm, Var)) or not self._is_index(expr):
            return super().write(expr)
        return super().write(self.domain.simplify(expr))

    def _is_index(self, expr: Any) -> bool:
        """Whether an expression is made of axes, sizes and integers alone."""
        key = handle(expr)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = self._index_parts(expr)
            # Keeps the expression alive, so that no other gets its handle.
            self._kept.append(expr)
        return found

    def _index_parts(self, expr: Any) -> bool:
        if isinstance(expr, prim.IntImm):
            return bool(expr.ty.dtype != "bool")
        if isinstance(expr, Var):
            return handle(expr) not in self.scalars and expr.ty.dtype in ("int32", "int64")
        if isinstance(expr, (TensorLoad, Call, prim.FloatImm)) or not hasattr(expr, "a"):
            return False
        return self._is_index(expr.a) and (not hasattr(expr, "b") or self._is_index(expr.b))

    def _var(self, expr: Any) -> Value:
        if handle(expr) not in self.variables:
            self.variable(expr, self.table.unknown(f"free {expr.name}", handle(expr), _type(expr)))
        return super()._var(expr)

    def _let(self, expr: Any) -> Value:
        # A term, not an assignment in the source: indices in the body need it at once.
        value = self.term(expr.value)
        around = dict(self.variables)
        self.variable(expr.var, value)
        body = self.write(expr.body)
        self.variables = around
        return body

    def _load(self, expr: Any) -> Value:
        key = handle(expr.source)
        type = scalar_type(expr.source.ty.dtype.dtype)
        found = self.finished.get(key)
        if found is not None:
            if not self.domain.equal(list(expr.indices), found.indices):
                raise NotProved(f"{expr} is not the element of '{expr.source.name}' at hand")
            return self._held(found.loaded(self.table), type)
        own = self.before.get(key)
        if key in self.touched and (own is None or not self.domain.equal(list(expr.indices), own)):
            raise NotProved(f"{expr} reads what the fused blocks write, at another element")
        indices = [self.term(index) for index in (own or expr.indices)]
        sort = type if self.table.exact or type.kind != "f" else scalar_type("float64")
        op = "held" if type.name == "bfloat16" and key in self.allocated else "load"
        return self._held(self.table.node(op, sort, indices, key), type)

    def _held(self, term: Term, type: ScalarType) -> Value:
        name = self.fresh("u")
        self._namespace[name] = term
        return Value(name, type)


def axis_term(table: TermArithmetic, axis: Any) -> Term:
    """Return the unknown that stands for an axis."""
    return table.unknown(f"axis {axis.name}", handle(axis), _type(axis))


def _type(var: Any) -> ScalarType:
    if isinstance(var.ty, tirx.BufferType):
        raise UnsupportedError(f"buffer '{var.name}' is used as a number")
    return scalar_type(var.ty.dtype)


def identity_of(table: TermArithmetic, monoid: Monoid, type: ScalarType) -> Term:
    """Return the identity of a monoid as a term."""
    value = monoid.identity(type)
    if type.kind == "f":
        return table.literal(float(value), type)
    return table.integer(int(value), type)


def combine(table: TermArithmetic, monoid: Monoid, type: ScalarType, a: Term, b: Term) -> Term:
    """Return two terms combined by a monoid."""
    return table.binary(monoid.operation, type, a, b)  # type: ignore[no-any-return]
