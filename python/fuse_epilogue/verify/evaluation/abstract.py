"""Run a PrimFunc over values that are not numbers: unknowns, or intervals.

`compile_abstract` generates source in which every operation on data is a method call of an
`Arithmetic`. Operations on loop variables and sizes alone stay ordinary Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx

from .expressions import ExpressionWriter
from .parameters import declare_parameters
from .scalar_ops import RUNTIME, offset
from .scalars import (
    POISON,
    SCALAR_TYPES,
    EvaluationError,
    ScalarType,
    UnsupportedError,
    scalar_type,
)
from .statements import StatementWriter, compile_source, unwritten
from .values import Buffer, Value

_BOOL = scalar_type("bool")


class Arithmetic:
    """Operations on values of one's own; subclasses give them meaning.

    The public methods take `POISON` (the value of memory that was never written) and hand it on;
    the methods that subclasses define, those with an underscore, never see it.
    """

    def literal(self, value: float, type: ScalarType) -> Any:
        """Return a floating literal."""
        raise NotImplementedError

    def integer(self, value: int, type: ScalarType) -> Any:
        """Return an integer or a bool that is known."""
        raise NotImplementedError

    def binary(self, name: str, type: ScalarType, a: Any, b: Any) -> Any:
        """Return an operation of two values of one type."""
        return POISON if a is POISON or b is POISON else self._binary(name, type, a, b)

    def compare(self, name: str, type: ScalarType, a: Any, b: Any) -> Any:
        """Return a comparison of two values of one type."""
        return POISON if a is POISON or b is POISON else self._compare(name, type, a, b)

    def logical(self, name: str, *operands: Any) -> Any:
        """Return and, or, not of bools."""
        if any(operand is POISON for operand in operands):
            return POISON
        return self._logical(name, operands)

    def cast(self, a: Any, source: ScalarType, target: ScalarType) -> Any:
        """Return a conversion."""
        return POISON if a is POISON else self._cast(a, source, target)

    def choose(self, type: ScalarType, condition: Any, a: Any, b: Any) -> Any:
        """Return one of two values; a condition may decide against poison."""
        if condition is POISON:
            raise EvaluationError("a condition depends on memory that was never written")
        return self._choose(type, condition, a, b)

    def call(self, name: str, type: ScalarType, sources: Sequence[ScalarType], *args: Any) -> Any:
        """Return a call of a pure function."""
        return (
            POISON if any(arg is POISON for arg in args) else self._call(name, type, sources, args)
        )

    def gather(self, buffer: list[Any], type: ScalarType, name: str, axes: Sequence[Any]) -> Any:
        """Return an element at indices that depend on data.

        `axes` holds for each axis the index (a number, or a value), whether it is a value, its
        type, the extent and the stride.
        """
        if any(axis[0] is POISON for axis in axes):
            raise EvaluationError(f"an index into '{name}' was never written")
        return self._gather(buffer, type, name, axes)

    def _binary(self, name: str, type: ScalarType, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def _compare(self, name: str, type: ScalarType, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def _logical(self, name: str, operands: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _cast(self, a: Any, source: ScalarType, target: ScalarType) -> Any:
        raise NotImplementedError

    def _choose(self, type: ScalarType, condition: Any, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def _call(
        self, name: str, type: ScalarType, sources: Sequence[ScalarType], args: Sequence[Any]
    ) -> Any:
        raise NotImplementedError

    def _gather(self, buffer: list[Any], type: ScalarType, name: str, axes: Sequence[Any]) -> Any:
        raise UnsupportedError(f"'{name}' is indexed by data")


def _type(type: ScalarType) -> str:
    return f"t_{type.name}"


class AbstractDialect:
    """Source that calls the arithmetic `X`."""

    checked = False

    def literal(self, value: float, type: ScalarType) -> Value:
        """Return a literal."""
        return Value(f"X.literal(float({repr(value)!r}), {_type(type)})", type)

    def lift(self, value: Value) -> Value:
        """Return a static integer as data."""
        return Value(f"X.integer({value.code}, {_type(value.type)})", value.type)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Return an operation."""
        return Value(f"X.binary('{name}', {_type(a.type)}, {a.code}, {b.code})", a.type)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        """Return a comparison."""
        return Value(f"X.compare('{name}', {_type(a.type)}, {a.code}, {b.code})", _BOOL)

    def logical(self, name: str, operands: list[Value]) -> Value:
        """Return and, or, not."""
        codes = ", ".join(operand.code for operand in operands)
        return Value(f"X.logical('{name}', {codes})", _BOOL)

    def bitwise_not(self, a: Value) -> Value:
        """Return the complement: exclusive or with all bits set."""
        if a.type.kind == "b":
            return self.logical("not", [a])
        ones = a.type.high if a.type.kind == "u" else -1
        code = f"X.integer({ones}, {_type(a.type)})"
        return Value(f"X.binary('xor', {_type(a.type)}, {a.code}, {code})", a.type)

    def cast(self, a: Value, target: ScalarType) -> Value:
        """Return a conversion."""
        return Value(f"X.cast({a.code}, {_type(a.type)}, {_type(target)})", target)

    def decides(self, condition: Value, lazy: bool) -> bool:
        """Whether the condition is static: no other can leave a value uncomputed."""
        return condition.static

    def choose(self, condition: Value, a: Value, b: Value, lazy: bool) -> Value:
        """Return a selection; only a static condition can leave a value uncomputed."""
        if condition.static:
            return Value(f"({a.code} if {condition.code} else {b.code})", a.type)
        return Value(f"X.choose({_type(a.type)}, {condition.code}, {a.code}, {b.code})", a.type)

    def call(self, name: str, args: list[Value], type: ScalarType) -> Value:
        """Return a call."""
        sources = "".join(f"{_type(arg.type)}, " for arg in args)
        codes = "".join(f", {arg.code}" for arg in args)
        return Value(f"X.call({name!r}, {_type(type)}, ({sources}){codes})", type)

    def load(self, buffer: Buffer, indices: list[Value], keys: list[int]) -> Value:
        """Return an element."""
        if all(value.static for value in indices):
            return Value(f"{buffer.code}[{offset(buffer, indices, keys)}]", buffer.type)
        if buffer.source is not None:
            raise UnsupportedError(f"the matched region '{buffer.name}' is indexed by data")
        axes = "".join(
            f"({value.code}, {not value.static}, {_type(value.type)}, {extent.code}, {stride}), "
            for value, extent, stride in zip(indices, buffer.shape, buffer.strides, strict=True)
        )
        code = f"X.gather({buffer.code}, {_type(buffer.type)}, {buffer.name!r}, ({axes}))"
        return Value(code, buffer.type)


class AbstractStatements(StatementWriter):
    """Statements in which a condition may depend on data: stores under it become selections."""

    def __init__(self, expressions: ExpressionWriter) -> None:
        super().__init__(expressions)
        self._guard: Value | None = None

    def branch(self, condition: Value) -> None:
        """Open lines that run where a condition holds, or whose stores depend on it."""
        if condition.static:
            super().branch(condition)
            return
        name = self.expressions.fresh("g")
        code = condition.code
        if self._guard is not None:
            code = f"X.logical('and', {self._guard.code}, {code})"
        self.line(f"{name} = {code}")
        self._guard = Value(name, _BOOL)

    def _realize(self, stmt: Any) -> None:
        guard = self._guard
        super()._realize(stmt)
        self._guard = guard

    def _if(self, stmt: Any) -> None:
        condition = self.expressions.write(stmt.condition)
        if condition.static:
            super()._if(stmt)
            return
        name = self.expressions.fresh("g")
        self.line(f"{name} = {condition.code}")
        held = Value(name, _BOOL)
        guard = self._guard
        self.branch(held)
        self.write(stmt.then_case)
        self._guard = guard
        if stmt.else_case is not None:
            self.branch(self.expressions.dialect.logical("not", [held]))
            self.write(stmt.else_case)
            self._guard = guard

    def _while(self, stmt: Any) -> None:
        raise UnsupportedError("a while loop over abstract values")

    def assume(self, condition: Any) -> None:
        """Write nothing: values are proved equal without an assumption, or not at all."""

    def store(self, buffer: Buffer, indices: list[Value], keys: list[int], value: Value) -> None:
        """Write a store; under a condition the old value is kept where it does not hold."""
        if not all(index.static for index in indices):
            raise UnsupportedError(f"a store into '{buffer.name}' at an index that depends on data")
        if self._guard is not None:
            place = offset(buffer, indices, keys)
            root = buffer
            while root.source is not None:
                root = root.source
            self.line(f"old = {root.code}[{place}]")
            self.line(f"if old is POISON: unwritten({self.block!r}, {buffer.name!r})")
            code = f"X.choose({_type(buffer.type)}, {self._guard.code}, {value.code}, old)"
            value = Value(code, value.type)
        super().store(buffer, indices, keys, value)

    def rounded(self, code: str, root: Buffer) -> str:
        """Return a value as memory keeps it: the arithmetic decides that when it casts."""
        return code


class AbstractProgram:
    """A function over values of an arithmetic.

    - `parameters` (list[Parameter]): name of the function.
    - `sizes` (dict[str, str]): the symbolic dimensions by name, each with its argument name in the
      source.
    - `stores` (list[tuple[Value, ...]]): for each store the extents of the loops around it.
    """

    def __init__(self, func: tirx.PrimFunc) -> None:
        writer = AbstractStatements(ExpressionWriter(AbstractDialect()))
        self.parameters, self.sizes, names = declare_parameters(func, writer)
        writer.write(func.body)
        self.stores = writer.stores
        written = set(writer.written)
        for param, var in zip(self.parameters, func.params, strict=True):
            param.written = var.__chandle__() in written
        header = f"def main(X, {', '.join(names)}):"
        self.source = "\n".join([header, *writer.lines, " return"])
        namespace = _namespace()
        exec(compile_source(self.source), namespace)
        self._main = namespace["main"]

    def run(
        self, arithmetic: Arithmetic, content: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> None:
        """Execute the program.

        - `arithmetic`: meaning of the operations.
        - `content` (mapping of str to list or value): for each buffer the flat list of its
          elements, changed in place; for each number a value of the arithmetic.
        - `sizes`: every symbolic dimension.
        - Raises EvaluationError: where the function does something undefined, or unsupported over
          these values.
        """
        values = [content[param.name] for param in self.parameters]
        try:
            self._main(arithmetic, *(sizes[name] for name in self.sizes), *values)
        except ZeroDivisionError:
            raise EvaluationError("an integer is divided by zero") from None


def _namespace() -> dict[str, Any]:
    names = dict(RUNTIME)
    names |= {f"t_{name}": type for name, type in SCALAR_TYPES.items()}
    names |= {"EvaluationError": EvaluationError, "unwritten": unwritten}
    return names
