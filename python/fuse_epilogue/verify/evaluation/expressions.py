"""Python source for TVM expressions.

`ExpressionWriter` walks an expression and knows what every node means; what the operations become
is left to a dialect. `machine.MachineDialect` writes them inline on numpy scalars, and
`abstract.AbstractDialect` writes calls of an arithmetic object (terms, intervals).

Integers made of loop variables, block variables, sizes and literals are *static*: they are Python
integers in every dialect. Everything that depends on a load or on a scalar parameter is *data*.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import tvm_ffi
from tvm.ir import Call, TensorLoad, Var, prim

from ...tir.walk import loads
from .integers import static_binary, static_int, wrapped
from .scalars import ScalarType, UnsupportedError, scalar_type
from .values import Buffer, Value


class Dialect(Protocol):
    """Translation of the operations on data.

    `binary`, `compare`, `call` and the others return values whose code is an operand.

    - `checked`: whether an overflow that LLVM takes for impossible is an error; otherwise it wraps.
    """

    checked: bool

    def literal(self, value: float, type: ScalarType) -> Value:
        """Return a floating literal."""

    def lift(self, value: Value) -> Value:
        """Turn a static integer into data."""

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Return an arithmetic or bit-wise operation: add, sub, mul, div, max, and so on."""

    def compare(self, name: str, a: Value, b: Value) -> Value:
        """Return a comparison: lt, le, gt, ge, eq, ne."""

    def logical(self, name: str, operands: list[Value]) -> Value:
        """Return and, or, not of bools."""

    def bitwise_not(self, a: Value) -> Value:
        """Return the complement of an integer."""

    def cast(self, a: Value, target: ScalarType) -> Value:
        """Return a conversion to another type."""

    def choose(self, condition: Value, a: Value, b: Value, lazy: bool) -> Value:
        """Return a selection; `lazy`: only the taken value is computed."""

    def decides(self, condition: Value, lazy: bool) -> bool:
        """Whether the source computes only the value that a selection takes."""

    def call(self, name: str, args: list[Value], type: ScalarType) -> Value:
        """Return a call of a pure function."""

    def load(self, buffer: Buffer, indices: list[Value], keys: list[int]) -> Value:
        """Return an element of a buffer."""


_ARITHMETIC = {
    prim.Add: "add",
    prim.Sub: "sub",
    prim.Mul: "mul",
    prim.Div: "div",
    prim.Mod: "truncmod",
    prim.FloorDiv: "floordiv",
    prim.FloorMod: "floormod",
    prim.Max: "max",
    prim.Min: "min",
    prim.BitwiseAnd: "and",
    prim.BitwiseOr: "or",
    prim.BitwiseXor: "xor",
    prim.LShift: "shl",
    prim.RShift: "shr",
}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_COMPARISONS = {
    prim.LT: "lt",
    prim.LE: "le",
    prim.GT: "gt",
    prim.GE: "ge",
    prim.EQ: "eq",
    prim.NE: "ne",
}
_OF_BOOLS = {"max", "min", "and", "or", "xor"}
# Operators that are called instead of having a node of their own.
_CALLED_ARITHMETIC = {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "shift_left": "shl",
    "shift_right": "shr",
}


#: The rest of the work on a node: it yields operands, and is sent their values.
Steps = Generator[Any, Value, Value]

# Source with more characters is assigned to a variable: Python's parser has a limit on nesting.
_LONG = 400


class ExpressionWriter:
    """Writes expressions in a dialect.

    Expressions may be of any depth: operands are written by a loop, not by recursion, and source
    that gets long goes to lines of its own, which come before the line that uses the value.

    - `dialect`: dialect of operations on data.
    - `variables`: values of scalar variables, by handle.
    - `buffers`: buffers in scope, by handle.
    - `ranges`: for a variable that runs from 0 to an extent that is a variable, that variable's
      handle.
    - `lines`: takes the lines that come first.
    - `type_of`: looks up a type by its name.
    """

    type_of: Callable[[str], ScalarType] = staticmethod(scalar_type)

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.variables: dict[int, Value] = {}
        self.buffers: dict[int, Buffer] = {}
        self.ranges: dict[int, int] = {}
        self.lines: Callable[[str], None] = _no_lines
        self._counter = 0
        self._handlers: dict[type, Callable[[Any], Value | Steps]] = {
            Var: self._var,
            prim.IntImm: self._int,
            prim.FloatImm: self._float,
            TensorLoad: self._load,
            prim.Cast: self._cast,
            prim.And: lambda e: self._logical("and", e.a, e.b),
            prim.Or: lambda e: self._logical("or", e.a, e.b),
            prim.Not: lambda e: self._logical("not", e.a),
            prim.BitwiseNot: self._bitwise_not,
            prim.Select: self._select,
            prim.Let: self._let,
            Call: self._call,
        }
        for node, name in _ARITHMETIC.items():
            self._handlers[node] = partial(self._operation, name)
        for node, name in _COMPARISONS.items():
            self._handlers[node] = partial(self._compare, name)

    def fresh(self, stem: str) -> str:
        """Return a name that is not used yet."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def write(self, expr: Any) -> Value:
        """Write an expression.

        - `expr` (tvm.ir.Expr): value of a scalar type.
        - Raises UnsupportedError: naming the node that cannot be evaluated.
        """
        pending: list[Steps] = []
        found = self.begin(expr)
        while True:
            value = None
            if isinstance(found, Value):
                if not pending:
                    return found
                value = found
            else:
                pending.append(found)
            try:
                # The first operand is asked for with nothing to send.
                found = self.begin(pending[-1].send(value))  # type: ignore[arg-type]
            except StopIteration as finished:
                pending.pop()
                found = self.shortened(finished.value)

    def begin(self, expr: Any) -> Value | Steps:
        """Return the value of an expression, or the steps that lead to it."""
        handler = self._handlers.get(type(expr))
        if handler is None:
            raise UnsupportedError(f"{type(expr).__name__} cannot be evaluated")
        return handler(expr)

    def shortened(self, value: Value) -> Value:
        """Return a value whose source is not long: a variable, where it was."""
        return self.named(value, "e") if len(value.code) > _LONG else value

    def named(self, value: Value, stem: str) -> Value:
        """Assign a value to a new variable."""
        name = self.fresh(stem)
        self.lines(f"{name} = {value.code}")
        return Value(name, value.type, value.static, value.low, value.high)

    def static(self, expr: Any, what: str) -> Value:
        """Write an expression that must not depend on data."""
        value = self.write(expr)
        if not value.static:
            raise UnsupportedError(f"{what} depends on data")
        return value

    def data(self, value: Value) -> Value:
        """Return `value`, lifted if it is static."""
        return self.dialect.lift(value) if value.static else value

    # ---- Leaves ------------------------------------------------------------------------------

    def _var(self, expr: Any) -> Value:
        found = self.variables.get(expr.__chandle__())
        if found is None:
            raise UnsupportedError(f"variable '{expr.name}' is not defined where it is used")
        return found

    def _int(self, expr: Any) -> Value:
        return static_int(int(expr.value), scalar_type(expr.ty.dtype))

    def _float(self, expr: Any) -> Value:
        return self.dialect.literal(float(expr.value), self.type_of(expr.ty.dtype))

    def _load(self, expr: Any) -> Steps:
        buffer = self.buffer(expr.source)
        indices = _with_leading(buffer, expr.indices)
        values = []
        for index in indices:
            values.append((yield index))
        return self.dialect.load(buffer, values, self.known_extents(buffer, indices))

    def buffer(self, var: Any) -> Buffer:
        """Return the buffer that a variable stands for."""
        found = self.buffers.get(var.__chandle__())
        if found is None:
            raise UnsupportedError(f"buffer '{var.name}' is not defined where it is used")
        return found

    def subscripts(self, buffer: Buffer, indices: Any) -> tuple[list[Value], list[int]]:
        """Write indices; with each, the handle of the variable extent it is known to be below."""
        indices = _with_leading(buffer, indices)
        keys = self.known_extents(buffer, indices)
        return [self.write(index) for index in indices], keys

    def known_extents(self, buffer: Buffer, indices: Any) -> list[int]:
        """Return, for each index, the handle of the variable extent it is known to be below."""
        if len(indices) != len(buffer.shape):
            raise UnsupportedError(f"'{buffer.name}' is indexed with {len(indices)} indices")
        return [
            self.ranges.get(expr.__chandle__(), 0) if type(expr) is Var else 0 for expr in indices
        ]

    # ---- Operations --------------------------------------------------------------------------

    def _operation(self, name: str, expr: Any) -> Steps:
        a = yield expr.a
        b = yield expr.b
        return self.operation(name, expr, (expr.a, expr.b), a, b)

    def operation(self, name: str, expr: Any, operands: Any, a: Value, b: Value) -> Value:
        """Write an arithmetic or bit-wise expression of two operands that are written."""
        return self.binary(name, a, b)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Write an operation of two values of one type."""
        if a.type is not b.type:
            raise UnsupportedError(f"{name} of {a.type.name} and {b.type.name}")
        if a.type.kind == "b" and name not in _OF_BOOLS:
            raise UnsupportedError(f"{name} of bools")
        if a.static and b.static:
            return static_binary(name, a, b, self.dialect.checked)
        return self.dialect.binary(name, self.data(a), self.data(b))

    def _compare(self, name: str, expr: Any) -> Steps:
        a = yield expr.a
        b = yield expr.b
        if a.static and b.static:
            return Value(f"({a.code} {_SIGNS[name]} {b.code})", scalar_type("bool"), True)
        return self.dialect.compare(name, self.data(a), self.data(b))

    def _logical(self, name: str, *operands: Any) -> Steps:
        values = []
        for operand in operands:
            values.append((yield operand))
        if all(value.static for value in values):
            code = f"(not {values[0].code})" if name == "not" else None
            code = code or f"({values[0].code} {name} {values[1].code})"
            return Value(code, scalar_type("bool"), True)
        return self.dialect.logical(name, [self.data(value) for value in values])

    def _bitwise_not(self, expr: Any) -> Steps:
        a = yield expr.a
        if a.static:
            return wrapped(f"(~{a.code})", a.type, ~a.high, ~a.low)
        return self.dialect.bitwise_not(a)

    def _cast(self, expr: Any) -> Steps:
        a = yield expr.value
        target = self.type_of(expr.ty.dtype)
        if target is a.type:
            return a
        if a.static and target.kind in "iu":
            return wrapped(a.code, target, a.low, a.high)
        return self.dialect.cast(self.data(a), target)

    def _choose(self, condition: Any, a: Any, b: Any, lazy: bool) -> Steps:
        test = yield condition
        with self._set_aside() as lines_yes:
            yes = yield a
        with self._set_aside() as lines_no:
            no = yield b
        static = yes.static and no.static and test.static
        if not static:
            yes, no = self.data(yes), self.data(no)
        if not self.dialect.decides(test, lazy):
            for line in (*lines_yes, *lines_no):
                self.lines(line)
            if not static:
                return self.dialect.choose(test, yes, no, lazy)
            code = f"select({test.code}, {yes.code}, {no.code})"
            return Value(code, yes.type, True, min(yes.low, no.low), max(yes.high, no.high))
        if lines_yes or lines_no:
            # Only the lines of the value that is taken run.
            name = self.fresh("e")
            self.lines(f"if {test.code}:")
            for line in (*lines_yes, f"{name} = {yes.code}"):
                self.lines(f" {line}")
            self.lines("else:")
            for line in (*lines_no, f"{name} = {no.code}"):
                self.lines(f" {line}")
            code = name
        elif not static:
            return self.dialect.choose(test, yes, no, lazy)
        else:
            code = f"({yes.code} if {test.code} else {no.code})"
        return Value(code, yes.type, static, min(yes.low, no.low), max(yes.high, no.high))

    def _select(self, expr: Any) -> Steps:
        lazy = is_branch(expr)
        return self._choose(expr.condition, expr.true_value, expr.false_value, lazy)

    @contextmanager
    def _set_aside(self) -> Iterator[list[str]]:
        """Collect lines instead of handing them on."""
        lines: list[str] = []
        outer, self.lines = self.lines, lines.append
        try:
            yield lines
        finally:
            self.lines = outer

    def _let(self, expr: Any) -> Steps:
        value = yield expr.value
        self.variables[expr.var.__chandle__()] = self.named(value, "let")
        body = yield expr.body
        return body

    def _call(self, expr: Any) -> Steps:
        name = getattr(expr.op, "name", None)
        if name is None:
            raise UnsupportedError(f"a call of {expr.op} cannot be evaluated")
        name = str(name).removeprefix("tirx.").removeprefix("prim.")
        args = expr.args
        if name == "if_then_else":
            return (yield from self._choose(args[0], args[1], args[2], True))
        if name in _CALLED_ARITHMETIC:
            a = yield args[0]
            b = yield args[1]
            return self.operation(_CALLED_ARITHMETIC[name], expr, args, a, b)
        if name == "bitwise_not":
            a = yield args[0]
            return self.dialect.bitwise_not(self.data(a))
        if name == "likely":
            return (yield args[0])
        result = scalar_type(expr.ty.dtype)
        if name == "large_uint_imm":
            return static_int((int(args[1].value) << 32) | int(args[0].value), result)
        name, args = self.function(name, args)
        for arg in args:
            if type(arg) not in self._handlers:
                raise UnsupportedError(
                    f"in a call of {name}: {type(arg).__name__} cannot be evaluated"
                )
        values = []
        for arg in args:
            values.append(self.data((yield arg)))
        return self.called(name, expr, values, result)

    def function(self, name: str, args: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return what a call calls, and its operands."""
        return name, args

    def called(self, name: str, expr: Any, args: list[Value], type: ScalarType) -> Value:
        """Write a call of a function whose operands are written."""
        return self.dialect.call(name, args, type)


def _with_leading(buffer: Buffer, indices: Any) -> list[Any]:
    """Return indices with those of the axes that a view of a region leaves out."""
    missing = len(buffer.shape) - len(indices) if buffer.source is not None else 0
    return [*[prim.IntImm("int32", 0)] * missing, *indices]


def without_round_trips(expr: Any) -> Any:
    """Return an expression in which no number is reinterpreted as another type and back.

    Nor is ``number ^ 0``: what is reinterpreted to keep a division in its place is written so.

    - `expr` (tvm.ir.Expr)
    - Returns: `expr` itself if there are none.
    """

    def value(call: Any) -> Any:
        bits = _reinterpreted(call)
        number = None if bits is None else _reinterpreted(bits)
        if number is None or number.ty.dtype != call.ty.dtype:
            return call
        same = isinstance(number, prim.BitwiseXor) and _is_zero(number.b)
        return number.a if same else number

    return tvm_ffi.structural_map(expr, (Call, value))


def _reinterpreted(expr: Any) -> Any:
    """Return the operand of a reinterpretation of bits; None for any other expression."""
    is_call = isinstance(expr, Call) and str(getattr(expr.op, "name", "")) == "tirx.reinterpret"
    return expr.args[0] if is_call else None


def _is_zero(expr: Any) -> bool:
    return isinstance(expr, prim.IntImm) and expr.value == 0


def is_branch(select: Any) -> bool:
    """Whether TVM makes a branch of a select for LLVM: it does if one of the values loads."""
    found = loads(select.true_value) or loads(select.false_value)
    return bool(found)


def _no_lines(line: str) -> None:
    """Refuse a line where there is no place for one."""
    raise UnsupportedError("an expression is too long where it must not be split")
