"""Reads a scheduled function: TVM's passes place the buffers, the rest becomes a `Program`."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim
from tvm.s_tir import transform

from ..isa import ENGINES
from ..trace import ITEMSIZE
from .integers import Integers
from .late import LATE, move_late
from .linear import Linear
from .names import Names
from .order import check_order, find_results, first_iterations
from .program import (
    ROLES,
    Allocate,
    Axis,
    Leaf,
    Loop,
    Node,
    Program,
    Store,
    Tensor,
)
from .refusals import EmitError
from .values import Values
from .views import sliced

#: TVM's names of the memories, and ours.
SPACES = {"": "hbm", "global": "hbm", "trn.sbuf": "sbuf", "trn.psum": "psum"}

# Our annotation of blocks that have a T.init.
_INIT = "nki_init"

#: TVM's loop annotation that marks what an instruction covers, and ours for a block's engine.
MARK = "nki_dim"
ENGINE = "nki_engine"
#: Our annotation of a block that stores at addresses of a table, all of which differ.
DISTINCT = "nki_distinct"
#: The "engine" of a block that transposes while it loads.
DMA = "dma"

_PASSES = (
    transform.LowerInitBlock,
    transform.PlanAndUpdateBufferAllocationLocation,
    transform.ConvertBlocksToOpaque,
    transform.CompactBufferAllocation,
    transform.LowerMatchBuffer,
)


def lower(func: tirx.PrimFunc, name: str) -> Program:
    """Read a scheduled function.

    - `func`: with constant sizes.
    - `name`: name of the kernel.
    - Raises EmitError: something in it has no meaning for a kernel.
    """
    reader = _Reader()
    parameters = [reader.tensor(param, "input") for param in func.params]
    module = tvm.IRModule({"main": _with_inits_marked(func)})
    for make in _PASSES:
        try:
            module = make()(module)
        except Exception as error:
            # TVM names what it cannot do by internal checks, the last line says which.
            reason = f"TVM's {make.__name__} fails: {str(error).strip().splitlines()[-1]}"
            raise EmitError("statement", name, reason) from error
    body = reader.statement(module["main"].body, [])
    program = Program(name, parameters, body, reader.integers.ranges, reader.names, reader.tables)
    find_results(program)
    move_late(program)
    return program


def _with_inits_marked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Annotate the blocks that have a T.init: after TVM's passes it is a statement like others."""

    def marked(block: Any) -> Any:
        if block.init is None:
            return block
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            {**dict(block.annotations), _INIT: 1},
        )

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, marked)))


class _Reader:
    def __init__(self) -> None:
        self.integers = Integers()
        self.values = Values(self.integers)
        self.names = Names()
        self.block = ""
        self.tables: dict[str, Tensor] = {}
        self.integers.look_up = self.look_up

    # ---- Buffers -------------------------------------------------------------------

    def tensor(self, var: Any, kind: str) -> Tensor:
        """Read a buffer."""
        name = var.name
        if not hasattr(var.ty, "shape"):
            raise EmitError("statement", f"parameter '{name}'", "is not a buffer")
        shape = []
        for extent in var.ty.shape:
            if not isinstance(extent, prim.IntImm):
                raise EmitError("symbolic-shape", f"'{name}'", f"has a size of {extent}")
            shape.append(int(extent.value))
        if len(var.strides):
            raise EmitError("statement", f"'{name}'", "has strides of its own")
        scope = var.scope()
        if scope not in SPACES:
            raise EmitError("memory-scope", f"'{name}'", f'lies in "{scope}"')
        dtype = str(var.dtype)
        if dtype not in ITEMSIZE:
            raise EmitError("dtype", f"'{name}'", f"holds {dtype}")
        made = Tensor(self.names.unique(name), SPACES[scope], tuple(shape) or (1,), dtype, kind)
        self.values.tensors[var.__chandle__()] = made
        return made

    def look_up(self, load: Any, subject: str) -> Linear:
        """Read an element of a table: a parameter of one dimension that holds int32.

        Which one depends on loops of the kernel only. The table is copied to SBUF, from where an
        instruction reads the element; whether that is an address there, transfers check.
        """
        table = self.values.known(load.source, subject)
        index = self.integers.linear(load.indices[0], subject)
        simple = table.kind == "input" and len(load.indices) == 1 and table.dtype == "int32"
        if not simple or self.integers.axes.intersection(index.terms):
            reason = f"'{load}' is neither a sum of loop variables nor one int32 of a parameter"
            raise EmitError("not-affine", subject, reason)
        known = [name for name, each in self.tables.items() if each is table]
        name = known[0] if known else self.names.unique(f"{table.name}_row")
        self.tables[name] = table
        place = f"{name}[0:1, {sliced(index, index + 1)}]"
        return self.integers.term(place, (0, 2**31 - 1))

    # ---- Statements --------------------------------------------------------------------------

    def statement(self, stmt: Any, conditions: list[Any]) -> list[Node]:
        """Read a statement that is not inside of a block that stores."""
        match stmt:
            case tirx.SeqStmt():
                return [node for each in stmt.seq for node in self.statement(each, conditions)]
            case tirx.For():
                return self.loop(stmt, conditions)
            case s_tir.SBlockRealize():
                return self.realize(stmt, [], conditions)
            case tirx.IfThenElse() if stmt.else_case is None:
                return self.statement(stmt.then_case, [*conditions, stmt.condition])
            case tirx.Evaluate() if isinstance(stmt.value, prim.IntImm):
                return []
        kind = type(stmt).__name__
        raise EmitError("statement", kind, "is outside of all blocks")

    def loop(self, stmt: Any, conditions: list[Any]) -> list[Node]:
        """Read a loop: one of the kernel's, or the first of those that belong to one block."""
        loops, inner = [stmt], stmt.body
        while isinstance(inner, tirx.For):
            loops.append(inner)
            inner = inner.body
        if _is_leaf(inner):
            first = next((i for i, each in enumerate(loops) if MARK in each.annotations), 0)
            outer, own = loops[:first], loops[first:]
            return self._around(outer, lambda: self.realize(inner, own, conditions))
        marked = next((each for each in loops if MARK in each.annotations), None)
        if marked is not None:
            raise EmitError(
                "marks",
                f"loop '{marked.loop_var.name}'",
                f"is marked {marked.annotations[MARK]}, but holds more than one block",
            )
        return self._around([stmt], lambda: self.statement(stmt.body, conditions))

    def _around(self, loops: list[Any], body: Any) -> list[Node]:
        """Read loops of the kernel around something."""
        if not loops:
            nodes: list[Node] = body()
            return nodes
        name, extent = self.enter(loops[0])
        inside = self._around(loops[1:], body)
        return inside if extent == 1 else [Loop(name, extent, inside)]

    def enter(self, loop: Any, named: bool = False) -> tuple[str, int]:
        """Give a loop's variable a name and a range; a single iteration has none unless `named`."""
        var, label = loop.loop_var, f"loop '{loop.loop_var.name}'"
        if loop.kind == tirx.ForKind.THREAD_BINDING:
            raise EmitError("thread-binding", label, "is bound to threads")
        if not isinstance(loop.extent, prim.IntImm) or not isinstance(loop.min, prim.IntImm):
            raise EmitError("symbolic-shape", label, f"runs {loop.extent} times")
        if loop.step is not None and not (
            isinstance(loop.step, prim.IntImm) and int(loop.step.value) == 1
        ):
            raise EmitError("statement", label, f"takes steps of {loop.step}")
        start, extent = int(loop.min.value), int(loop.extent.value)
        if extent == 1 and not named:
            self.integers.values[var.__chandle__()] = Linear({}, start)
            return "", 1
        name = self.names.unique(var.name)
        self.integers.values[var.__chandle__()] = Linear({name: 1}, start)
        self.integers.ranges[name] = (0, extent - 1)
        return name, extent

    # ---- Blocks ------------------------------------------------------------------------------

    def realize(self, stmt: Any, own: list[Any], conditions: list[Any]) -> list[Node]:
        """Read a block."""
        block = stmt.block
        if not isinstance(stmt.predicate, prim.IntImm):
            conditions = [*conditions, stmt.predicate]
        elif not int(stmt.predicate.value):
            return []
        if not _is_leaf(stmt):
            made: list[Node] = []
            for var in block.alloc_buffers:
                made.append(Allocate(self.tensor(var, "temporary")))
            return [*made, *self.statement(block.body, conditions)]
        self.block = f"block '{block.name_hint}'"
        axes: list[Axis] = []
        free: list[tuple[str, int]] = []
        marks = any(MARK in loop.annotations for loop in own)
        for loop in own:
            role = loop.annotations.get(MARK)
            # A loop over a single partition is still what the block's operands follow.
            name, extent = self.enter(loop, named=role in ("P", "lhs_F"))
            if marks and role not in ROLES:
                reason = (
                    f"loop '{loop.loop_var.name}' is inside of marked ones, but has no mark"
                    if role is None
                    else f"loop '{loop.loop_var.name}' is marked {role!r}, not one of {ROLES}"
                )
                raise EmitError("marks", self.block, reason)
            if name and marks:
                axes.append(Axis(name, extent, role))
                self.integers.axes.add(name)
            elif extent > 1:
                free.append((name, extent))
                # Until it is known which of them instructions cover, each may be one.
                self.integers.axes.add(name)
        if sum(axis.role == "P" for axis in axes) > 1:
            raise EmitError("marks", self.block, 'two loops are marked "P"')
        engine = block.annotations.get(ENGINE)
        if engine is not None and engine not in (*ENGINES.values(), DMA):
            names = ", ".join((*ENGINES.values(), DMA))
            raise EmitError("engine", self.block, f"there is no engine {engine!r}, only {names}")
        # Buffers of this block alone are allocated in it.
        allocated = [Allocate(self.tensor(var, "temporary")) for var in block.alloc_buffers]
        engine = None if engine is None else str(engine)
        return [*allocated, *self._leaf(block, engine, axes, free, conditions)]

    def _leaf(
        self, block: Any, engine: str | None, axes: list[Axis], own: Any, around: list[Any]
    ) -> list[Node]:
        conditions: list[Linear] = []
        for each in around:
            found = self.integers.conditions(each, self.block)
            if found is None:
                return []
            conditions += found
        init, first, body = self._init(block, conditions)
        stores = self._stores(body, tuple(conditions))
        loops = {axis.name: axis.extent for axis in axes} | dict(own)
        check_order(stores, loops, self.block)
        if init is not None and len(stores) > 1:
            raise EmitError("statement", self.block, "updates more than what T.init begins")
        late, distinct = (bool(block.annotations.get(name, False)) for name in (LATE, DISTINCT))
        return [
            Leaf(block.name_hint, engine, axes, own, init, store, first, late, distinct)
            for store in stores
        ]

    def _init(
        self, block: Any, conditions: list[Linear]
    ) -> tuple[Store | None, tuple[str, ...], Any]:
        """Split a block into its T.init, the loops whose first iterations it is made in, the rest.

        TVM has put it in front of the rest, under the condition that the reduction begins.
        """
        if _INIT not in block.annotations:
            return None, (), block.body
        begin, *rest = block.body.seq
        body = rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)
        stores = self._stores(begin, tuple(conditions))
        if len(stores) != 1:
            raise EmitError("statement", self.block, "T.init does not begin one sum")
        [init] = stores
        first, held = first_iterations(init.conditions, conditions)
        return Store(init.tensor, init.index, init.value, held), first, body

    def _stores(self, stmt: Any, conditions: tuple[Linear, ...]) -> list[Store]:
        match stmt:
            case tirx.SeqStmt():
                return [store for each in stmt.seq for store in self._stores(each, conditions)]
            case tirx.IfThenElse() if stmt.else_case is None:
                found = self.integers.conditions(stmt.condition, self.block)
                if found is None:
                    return []
                return self._stores(stmt.then_case, (*conditions, *found))
            case tirx.BufferStore():
                if stmt.buffer.__chandle__() not in self.values.tensors:
                    return []  # TVM allocates nothing for unread values.
                target = self.values.known(stmt.buffer, self.block)
                if target.kind == "input":
                    target.kind = "output"
                index = tuple(self.integers.linear(each, self.block) for each in stmt.indices)
                value = self.values.expression(stmt.value, self.block)
                return [Store(target, index or (Linear(),), value, conditions)]
            case tirx.Evaluate() if isinstance(stmt.value, prim.IntImm):
                return []
        raise EmitError("statement", self.block, f"holds a {type(stmt).__name__}")


def _is_leaf(stmt: Any) -> bool:
    """Whether a statement is a block that stores itself."""
    if not isinstance(stmt, s_tir.SBlockRealize):
        return False
    parts = [stmt.block.body]
    for part in parts:
        if isinstance(part, tirx.SeqStmt):
            parts.extend(part.seq)  # `+=` would make a new list, of TVM's kind
        elif isinstance(part, tirx.IfThenElse):
            parts += [part.then_case, *([part.else_case] if part.else_case is not None else [])]
    return any(isinstance(part, tirx.BufferStore) for part in parts) and not any(
        isinstance(part, (tirx.For, s_tir.SBlockRealize)) for part in parts
    )
