"""The skeleton that a fusion must leave alone: a function without the blocks that it changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx


def skeleton(func: tirx.PrimFunc, reduction: str, without: Iterable[str]) -> Any:
    """Return the body of a function with only what a fusion may not change.

    Allocations are left out too, so that buffers are compared by identity.

    - `func`: before or after.
    - `reduction`: the block whose regions, init and body are left out.
    - `without`: blocks that are left out, with the loops that are empty then.
    - Returns: statement; those of two functions are equal if the functions agree in everything
      else.
    """
    body = _Skeleton(reduction, set(without)).reduce(func.body)
    return body if body is not None else tirx.Evaluate(0)


class _Skeleton:
    def __init__(self, reduction: str, without: set[str]) -> None:
        self.reduction = reduction
        self.without = without

    def reduce(self, stmt: Any) -> Any:
        """Return what is left of a statement, or None."""
        if isinstance(stmt, tirx.SeqStmt):
            parts = [part for part in map(self.reduce, stmt.seq) if part is not None]
            if len(parts) == 1:
                return parts[0]
            return tirx.SeqStmt(parts) if parts else None
        if isinstance(stmt, tirx.For):
            return self._for(stmt)
        if isinstance(stmt, s_tir.SBlockRealize):
            return self._realize(stmt)
        return stmt

    def _for(self, loop: Any) -> Any:
        body = self.reduce(loop.body)
        if body is None:
            return None
        return tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            loop.kind,
            body,
            loop.thread_binding,
            loop.annotations,
            loop.step,
        )

    def _realize(self, realize: Any) -> Any:
        block = realize.block
        name = str(block.name_hint)
        if name in self.without:
            return None
        reads, writes, init = block.reads, block.writes, block.init
        if name == self.reduction:
            reads, writes, init, body = [], [], None, tirx.Evaluate(0)
        else:
            body = self.reduce(block.body)
            if body is None:
                body = tirx.Evaluate(0)
        return s_tir.SBlockRealize(
            realize.iter_values,
            realize.predicate,
            s_tir.SBlock(
                block.iter_vars,
                reads,
                writes,
                name,
                body,
                init,
                [],
                block.match_buffers,
                block.annotations,
            ),
        )


def differ(before: Any, after: Any) -> bool:
    """Whether two statements or attributes are anything but structurally equal."""
    return not tvm_ffi.structural_equal(before, after)
