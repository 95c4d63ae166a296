"""Small random changes of functions that keep types."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim
from tvm.tirx import PrimFunc

from certified import buffers

ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Max, prim.Min)
COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE)


class Mutator:
    """Makes one random change."""

    def __init__(self, func: PrimFunc, rng: random.Random) -> None:
        self.func = func
        self.rng = rng
        self.buffers = list(buffers(func).values())
        self.rows: list[tuple[Any, Callable[[Any], Any]]] = [
            (prim.IntImm, self.integer),
            (prim.FloatImm, self.floating),
            (ARITHMETIC, self.arithmetic),
            (COMPARISONS, self.comparison),
            (TensorLoad, self.load),
            (tirx.BufferStore, self.store),
            (tirx.SeqStmt, self.sequence),
            (tirx.For, self.loop),
            (s_tir.SBlock, self.block),
            (s_tir.SBlockRealize, self.realize),
        ]

    def mutant(self) -> PrimFunc | None:
        """A changed function; None if the change is none, or gives no function."""
        node, change = self.rng.choice(self.rows)
        found: list[Any] = []
        tvm_ffi.structural_walk(self.func.body, (node, found.append))
        if not found:
            return None
        target, seen = self.rng.randrange(len(found)), 0

        def one(expr: Any) -> Any:
            nonlocal seen
            seen += 1
            return change(expr) if seen - 1 == target else expr

        try:
            body = tvm_ffi.structural_map(self.func.body, (node, one))
        except (TypeError, ValueError, RuntimeError):
            return None  # TVM does not let such a function be made.
        changed = self.func.with_body(body)
        return None if tvm_ffi.structural_equal(changed, self.func) else changed

    def integer(self, expr: prim.IntImm) -> prim.IntImm:
        dtype = str(expr.ty.dtype)
        if dtype == "bool":
            return prim.IntImm(dtype, 1 - int(expr.value))
        return prim.IntImm(dtype, int(expr.value) + self.rng.choice([-1, 1, 2]))

    def floating(self, expr: prim.FloatImm) -> prim.FloatImm:
        return prim.FloatImm(str(expr.ty.dtype), float(expr.value) + self.rng.choice([-1.0, 0.5]))

    def arithmetic(self, expr: Any) -> Any:
        other = self.rng.choice([row for row in ARITHMETIC if row is not type(expr)])
        return self.rng.choice(
            [lambda: type(expr)(expr.b, expr.a), lambda: expr.a, lambda: other(expr.a, expr.b)]
        )()

    def comparison(self, expr: Any) -> Any:
        return self.rng.choice(COMPARISONS)(expr.a, expr.b)

    def alike(self, buffer: Any) -> Any:
        """Another buffer of the same type and number of axes."""
        shape = buffer.ty.shape
        return self.rng.choice(
            [
                other
                for other in self.buffers
                if other.ty.dtype.dtype == buffer.ty.dtype.dtype
                and len(other.ty.shape) == len(shape)
            ]
        )

    def indices(self, given: Any) -> list[Any]:
        indices = list(given)
        if len(indices) > 1 and self.rng.random() < 0.5:
            self.rng.shuffle(indices)
        elif indices:
            place = self.rng.randrange(len(indices))
            indices[place] = indices[place] + self.rng.choice([-1, 1])
        return indices

    def load(self, expr: Any) -> Any:
        if self.rng.random() < 0.5:
            return tirx.BufferLoad(expr.source, self.indices(expr.indices))
        return tirx.BufferLoad(self.alike(expr.source), list(expr.indices))

    def store(self, stmt: Any) -> Any:
        indices = list(stmt.indices)
        held = tirx.BufferLoad(stmt.buffer, indices)
        return self.rng.choice(
            [
                lambda: tirx.Evaluate(0),
                lambda: tirx.SeqStmt([stmt, stmt]),
                lambda: tirx.BufferStore(stmt.buffer, stmt.value, self.indices(indices)),
                lambda: tirx.BufferStore(self.alike(stmt.buffer), stmt.value, indices),
                lambda: tirx.BufferStore(stmt.buffer, tirx.max(stmt.value, held), indices),
            ]
        )()

    def sequence(self, stmt: Any) -> Any:
        parts = list(stmt.seq)
        place = self.rng.randrange(len(parts))
        return self.rng.choice(
            [
                lambda: tirx.SeqStmt(parts[::-1]),
                lambda: tirx.SeqStmt([*parts, parts[place]]),
                lambda: parts[place],
            ]
        )()

    def loop(self, stmt: Any) -> Any:
        kind = self.rng.choice([tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL])
        return self.rng.choice(
            [
                lambda: tirx.For(stmt.loop_var, stmt.min, stmt.extent - 1, stmt.kind, stmt.body),
                lambda: tirx.For(stmt.loop_var, stmt.min + 1, stmt.extent, stmt.kind, stmt.body),
                lambda: tirx.For(stmt.loop_var, stmt.min, stmt.extent, kind, stmt.body),
            ]
        )()

    def block(self, block: Any) -> Any:
        axes, reads, init = list(block.iter_vars), list(block.reads), block.init
        allocated = list(block.alloc_buffers)
        what = self.rng.choice(["init", "kind", "order", "reads", "allocated"])
        if what == "init":
            init = None
        elif what == "kind" and axes:
            axis = axes.pop()
            kind = tirx.IterVar.DataPar if axis.iter_type else tirx.IterVar.CommReduce
            axes.append(tirx.IterVar(axis.dom, axis.var, kind))
        elif what == "order":
            axes = axes[::-1]
        elif what == "reads":
            reads = reads[1:]
        else:
            allocated = allocated[1:]
        return s_tir.SBlock(
            axes, reads, block.writes, block.name_hint, block.body, init, allocated,
            block.match_buffers, block.annotations,
        )  # fmt: skip

    def realize(self, stmt: Any) -> Any:
        values = list(stmt.iter_values)
        if self.rng.random() < 0.5:
            return s_tir.SBlockRealize(values, prim.IntImm("bool", 1), stmt.block)
        return s_tir.SBlockRealize(values[::-1], stmt.predicate, stmt.block)
