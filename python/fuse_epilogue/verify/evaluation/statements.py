"""Python source for TVM statements: one function that executes a PrimFunc step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tvm import s_tir, tirx
from tvm.ir import Call, Var, prim

from .expressions import ExpressionWriter
from .integers import static_int
from .layouts import overlap
from .scalar_ops import offset
from .scalars import EvaluationError, UnsupportedError, scalar_type
from .values import Buffer, Value

_REDUCTION = 2
_BOOL = scalar_type("bool")


class StatementWriter:
    """Writes statements, one source line each.

    - `expressions`: for the expressions in them.
    - `lines`: the lines written, indented by one space a level.
    - `written`: handles of the buffers that are stored to.
    - `stores`: for each store the extents of the loops around it.
    """

    def __init__(self, expressions: ExpressionWriter) -> None:
        self.expressions = expressions
        expressions.lines = self.line
        self.lines: list[str] = []
        self.written: list[int] = []
        # What a matched region is a part of, by handle.
        self._roots: dict[int, int] = {}
        self.stores: list[tuple[Value, ...]] = []
        self.block = ""
        self._depth = 1
        self._extents: list[Value] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            s_tir.SBlockRealize: self._realize,
            tirx.For: self._for,
            tirx.SeqStmt: self._sequence,
            tirx.BufferStore: self._store,
            tirx.IfThenElse: self._if,
            tirx.While: self._while,
            tirx.Bind: self._bind,
            tirx.Evaluate: self._evaluate,
            tirx.Break: lambda _s: self.line("break"),
            tirx.Continue: lambda _s: self.line("continue"),
        }

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append(" " * self._depth + text)

    def write(self, stmt: Any) -> None:
        """Write a statement.

        - `stmt` (tvm.tirx.Stmt): a statement of the stage in which there are blocks.
        - Raises UnsupportedError: naming the node that cannot be evaluated.
        """
        handler = self._handlers.get(type(stmt))
        if handler is None:
            raise UnsupportedError(f"{type(stmt).__name__} cannot be evaluated")
        handler(stmt)

    def _indented(self, stmt: Any) -> None:
        self._depth += 1
        before = len(self.lines)
        self.write(stmt)
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    def _sequence(self, stmt: Any) -> None:
        for part in stmt.seq:
            self.write(part)

    def _for(self, stmt: Any) -> None:
        writer = self.expressions
        start = writer.static(stmt.min, "the start of a loop")
        extent = writer.static(stmt.extent, "the extent of a loop")
        step = None if stmt.step is None else writer.static(stmt.step, "the step of a loop")
        if step is not None and step.low < 1:
            raise UnsupportedError(f"the step of loop '{stmt.loop_var.name}' is not positive")
        var = stmt.loop_var
        name = writer.fresh("i")
        handle = var.__chandle__()
        high = max(start.low, start.high + extent.high - 1)
        writer.variables[handle] = Value(
            name, scalar_type(var.ty.dtype), True, start.low, min(high, start.type.high)
        )
        if start.code == "0":
            self._remember_range(handle, stmt.extent)
            span = f"range({extent.code})"
        else:
            span = f"range({start.code}, {start.code} + {extent.code})"
        if step is not None:
            span = f"range({start.code}, {start.code} + {extent.code}, {step.code})"
        self.line(f"for {name} in {span}:")
        self._extents.append(extent)
        self._indented(stmt.body)
        self._extents.pop()

    def _remember_range(self, handle: int, extent: Any) -> None:
        if type(extent) is Var:
            self.expressions.ranges[handle] = extent.__chandle__()

    def _realize(self, stmt: Any) -> None:
        block = stmt.block
        outer, self.block = self.block, str(block.name_hint)
        depth = self._depth
        if not (isinstance(stmt.predicate, prim.IntImm) and stmt.predicate.value):
            self.branch(self.expressions.write(stmt.predicate))
        first = [
            condition
            for axis, binding in zip(block.iter_vars, stmt.iter_values, strict=True)
            if (condition := self._axis(axis, binding))
        ]
        for matched in block.match_buffers:
            self._match(matched)
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        if block.init is not None:
            if first:
                self.line(f"if {' and '.join(first)}:")
                self._indented(block.init)
            else:
                self.write(block.init)
        before = len(self.lines)
        self.write(block.body)
        if len(self.lines) == before and self._depth > depth:
            self.line("pass")
        self._depth = depth
        self.block = outer

    def branch(self, condition: Value) -> None:
        """Open a block of lines that run where a condition holds."""
        self.line(f"if {condition.code}:")
        self._depth += 1

    def _axis(self, axis: Any, binding: Any) -> str:
        """Bind a block variable; returns when a reduction axis is at its start."""
        writer = self.expressions
        value = writer.static(binding, f"the binding of an axis of block '{self.block}'")
        start = writer.static(axis.dom.min, "the domain of an axis")
        extent = writer.static(axis.dom.extent, "the domain of an axis")
        name = writer.fresh("v")
        self.line(f"{name} = {value.code}")
        handle = axis.var.__chandle__()
        low, high = start.low, max(start.low, start.high + extent.high - 1)
        inside = value.low >= start.high and value.high < start.low + extent.low
        if type(binding) is Var and start.code == "0" and type(axis.dom.extent) is Var:
            known = writer.ranges.get(binding.__chandle__())
            inside = inside or known == axis.dom.extent.__chandle__()
        if not inside:
            self.line(f"if not {start.code} <= {name} < {start.code} + {extent.code}:")
            where = f"'{axis.var.name}' of block '{self.block}'"
            self.line(f' raise EvaluationError(f"axis {where} is {{{name}}}, not in its domain")')
        if start.code == "0":
            self._remember_range(handle, axis.dom.extent)
        low, high = max(low, value.low), min(high, value.high)
        writer.variables[handle] = Value(name, value.type, True, low, max(low, high))
        return f"{name} == {start.code}" if axis.iter_type == _REDUCTION else ""

    def _match(self, matched: Any) -> None:
        writer = self.expressions
        source = writer.buffer(matched.source.source)
        region = matched.source.region
        buffer = self.declare(matched.buffer, source.code)
        missing = len(region) - len(buffer.shape)
        if missing < 0:
            raise UnsupportedError(f"'{buffer.name}' has more axes than the region it matches")
        starts = [writer.static(part.min, "the start of a matched region") for part in region]
        one = static_int(1, scalar_type("int32"))
        buffer.shape = [one] * missing + buffer.shape
        buffer.keys = [0] * missing + buffer.keys
        buffer.source, buffer.offsets = source, starts
        outer = matched.source.source.__chandle__()
        self._roots[matched.buffer.__chandle__()] = self._roots.get(outer, outer)

    def _allocate(self, var: Any) -> None:
        name = self.expressions.fresh("b")
        buffer = self.declare(var, name)
        buffer.owned = True
        strides = [int(one) for one in var.ty.strides or () if isinstance(one, prim.IntImm)]
        extents = [extent.low if extent.low == extent.high else 2 for extent in buffer.shape]
        if len(strides) == len(extents) and overlap(strides, extents):
            raise UnsupportedError(f"the elements of '{var.name}' share places by its strides")
        count = "*".join(extent.code for extent in buffer.shape) or "1"
        self.line(f"{name} = [POISON]*({count})")

    def declare(self, var: Any, code: str) -> Buffer:
        """Bring a buffer into scope.

        - `var` (tvm.ir.Var): variable of buffer type.
        - `code`: the list that holds its elements.
        """
        writer = self.expressions
        shape = []
        keys = []
        for extent in var.ty.shape:
            shape.append(writer.static(extent, f"the shape of '{var.name}'"))
            keys.append(extent.__chandle__() if type(extent) is Var else 0)
        buffer = Buffer(str(var.name), code, scalar_type(var.ty.dtype.dtype), shape, keys)
        writer.buffers[var.__chandle__()] = buffer
        return buffer

    def _store(self, stmt: Any) -> None:
        writer = self.expressions
        buffer = writer.buffer(stmt.buffer)
        values, keys = writer.subscripts(buffer, stmt.indices)
        value = writer.data(writer.write(stmt.value))
        if value.type is not buffer.type:
            raise UnsupportedError(f"{value.type.name} is stored in '{buffer.name}'")
        self.written.append(self._roots.get(stmt.buffer.__chandle__(), stmt.buffer.__chandle__()))
        self.stores.append(tuple(self._extents))
        self.store(buffer, values, keys, value)

    def store(self, buffer: Buffer, indices: list[Value], keys: list[int], value: Value) -> None:
        """Write the assignment of an element; poison must not be stored."""
        code = value.code
        root = buffer
        while root.source is not None:
            root = root.source
        code = self.rounded(code, root)
        place = offset(buffer, indices, keys)
        self.line(f"x = {code}")
        self.line(f"if x is POISON: unwritten({self.block!r}, {buffer.name!r})")
        self.line(f"{root.code}[{place}] = x")

    def rounded(self, code: str, root: Buffer) -> str:
        """Write the rounding of a store: only parameters really are bfloat16 in memory."""
        return f"stored({code})" if root.type.name == "bfloat16" and not root.owned else code

    def _if(self, stmt: Any) -> None:
        depth = self._depth
        self.branch(self.expressions.write(stmt.condition))
        self._depth -= 1
        self._indented(stmt.then_case)
        if stmt.else_case is not None:
            self.line("else:")
            self._indented(stmt.else_case)
        self._depth = depth

    def _while(self, stmt: Any) -> None:
        self.line("while True:")
        self._depth += 1
        self.line(f"if not {self.expressions.write(stmt.condition).code}: break")
        self._depth -= 1
        self._indented(stmt.body)

    def _bind(self, stmt: Any) -> None:
        writer = self.expressions
        value = writer.write(stmt.value)
        name = writer.fresh("let")
        self.line(f"{name} = {value.code}")
        writer.variables[stmt.var.__chandle__()] = Value(
            name, value.type, value.static, value.low, value.high
        )

    def _evaluate(self, stmt: Any) -> None:
        value = stmt.value
        if isinstance(value, Call) and getattr(value.op, "name", "") == "tirx.assume":
            self.assume(value.args[0])
        elif not isinstance(value, prim.IntImm):
            raise UnsupportedError("Evaluate of something that is not a number")

    def assume(self, condition: Any) -> None:
        """Write that a condition holds: where it does not, the program has no defined result."""
        self.line(f"if not {self.expressions.write(condition).code}:")
        self.line(f' raise EvaluationError("T.assume does not hold in block {self.block!r}")')


def compile_source(source: str) -> Any:
    """Compile generated source.

    - Raises UnsupportedError: if it is nested too deeply for Python.
    """
    try:
        return compile(source, "<generated>", "exec")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise UnsupportedError(f"loops and branches are nested too deeply: {error}") from error


def unwritten(block: str, buffer: str) -> NoReturn:
    """Raise: a block stores poison."""
    raise EvaluationError(
        f"block '{block}' stores into '{buffer}' what depends on memory that was never written"
    )
