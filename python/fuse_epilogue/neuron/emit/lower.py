"""Reads a scheduled function: TVM's passes place the buffers, the rest becomes a `Program`."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import prim
from tvm.s_tir import transform

from ..trace import ITEMSIZE
from .integers import Integers
from .late import LATE, move_late
from .linear import Linear
from .names import Names
from .order import begins, check_order, find_results, first_iterations
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

#: TVM's names of the memories, and ours.
SPACES = {"": "hbm", "global": "hbm", "trn.sbuf": "sbuf", "trn.psum": "psum"}

#: TVM's loop annotation that marks what an instruction covers, and ours for a block's engine.
MARK = "nki_dim"
ENGINE = "nki_engine"

_PASSES = (
    transform.LowerInitBlock,
    transform.PlanAndUpdateBufferAllocationLocation,
    transform.ConvertBlocksToOpaque,
    transform.CompactBufferAllocation,
    transform.LowerMatchBuffer,
)


def lower(func: tirx.PrimFunc, name: str) -> Program:
    """Read a scheduled function.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        With constant sizes.
    name : str
        Of the kernel.

    Raises
    ------
    EmitError
        Something in it has no meaning for a kernel.
    """
    reader = _Reader()
    parameters = [reader.tensor(param, "input") for param in func.params]
    module = tvm.IRModule({"main": func})
    for make in _PASSES:
        module = make()(module)
    body = reader.statement(module["main"].body, [])
    program = Program(name, parameters, body, reader.integers.ranges, reader.names)
    find_results(program)
    move_late(program)
    return program


class _Reader:
    def __init__(self) -> None:
        self.integers = Integers()
        self.values = Values(self.integers)
        self.names = Names()
        self.block = ""

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
        raise EmitError("statement", kind, "stands outside of all blocks")

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
                    f"loop '{loop.loop_var.name}' stands inside of marked ones without a mark"
                    if role is None
                    else f"loop '{loop.loop_var.name}' is marked {role!r}, not one of {ROLES}"
                )
                raise EmitError("marks", self.block, reason)
            if name and marks:
                axes.append(Axis(name, extent, role))
                self.integers.axes.add(name)
            elif extent > 1:
                free.append((name, extent))
        engine = block.annotations.get(ENGINE)
        return self._leaf(block, None if engine is None else str(engine), axes, free, conditions)

    def _leaf(
        self, block: Any, engine: str | None, axes: list[Axis], own: Any, around: list[Any]
    ) -> list[Node]:
        conditions: list[Linear] = []
        for each in around:
            found = self.integers.conditions(each, self.block)
            if found is None:
                return []
            conditions += found
        stores = self._stores(block.body, tuple(conditions))
        check_order(stores, self.block)
        leaves: list[Node] = []
        while stores:
            init = None
            first: tuple[str, ...] = ()
            if len(stores) > 1 and begins(stores[0], stores[1]):
                start = stores.pop(0)
                first, rest = first_iterations(start.conditions, conditions)
                init = Store(start.tensor, start.index, start.value, rest)
            update = stores.pop(0)
            late = bool(block.annotations.get(LATE, False))
            leaves.append(Leaf(block.name_hint, engine, axes, own, init, update, first, late))
        return leaves

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
                    return []  # TVM allocates nothing for what nobody reads.
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
            parts += part.seq
        elif isinstance(part, tirx.IfThenElse):
            parts += [part.then_case, *([part.else_case] if part.else_case is not None else [])]
    return any(isinstance(part, tirx.BufferStore) for part in parts) and not any(
        isinstance(part, (tirx.For, s_tir.SBlockRealize)) for part in parts
    )
