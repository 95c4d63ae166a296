"""Reads functions on streams: what is checked first, what each result needs, and one element of it.

A function on a stream has several results (those of its columns, and a state), blocks that check
integers of the call, and may update a parameter in place. Here it is taken to pieces by what they
read and write:

    check:  assert 0 <= indices[n] < P
    pad:    padded = (state, x)              needed by y and by state
    conv:   summed = sum of padded * weight  needed by y
    y:      y = f(summed)                    a result
    state:  state = the last of padded       a result, in place
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ..tir.build import in_root, sequence, with_fields
from ..tir.nest import all_nests, statements
from ..tir.walk import handle, loads, same, stored_to, substitute
from .stages import is_separable


@dataclass(frozen=True)
class Piece:
    """A statement of a function: a block in its loops.

    - `statement`: tvm.tirx.Stmt.
    - `block`: tvm.s_tir.SBlock.
    - `reads`, `writes`: handles of the buffers that it loads from, and stores into. A sum does not
      read itself.
    """

    statement: Any
    block: Any
    reads: frozenset[int]
    writes: frozenset[int]

    @property
    def is_check(self) -> bool:
        """Whether it only asserts something."""
        return isinstance(self.block.body, tirx.AssertStmt)


@dataclass(frozen=True)
class Streams:
    """A function in pieces.

    - `func`: tvm.tirx.PrimFunc.
    - `checks`, `pieces`: the checks, all of which come first, and the other statements, in order.
    """

    func: Any
    checks: tuple[Piece, ...]
    pieces: tuple[Piece, ...]

    @property
    def results(self) -> tuple[Any, ...]:
        """Parameters that are written."""
        return tuple(p for p in self.func.params if any(handle(p) in e.writes for e in self.pieces))

    def updated(self) -> tuple[Any, ...]:
        """Return the results that are read before they are written, or while they are."""

        def is_read(result: Any) -> bool:
            end = self.pieces.index(self.writer(result)) + 1
            return any(handle(result) in each.reads for each in self.pieces[:end])

        return tuple(filter(is_read, self.results))

    def writer(self, buffer: Any) -> Piece:
        """Return the statement that stores into a buffer."""
        return next(each for each in self.pieces if handle(buffer) in each.writes)

    def needed(self, buffer: Any) -> tuple[Piece, ...]:
        """Return the statements that a result needs, its own one last."""
        wanted, found = {handle(buffer)}, []
        for each in reversed(self.pieces):
            if each.writes & wanted:
                found.append(each)
                wanted |= each.reads - each.writes
        return tuple(reversed(found))

    def function(self, pieces: Sequence[Piece]) -> tirx.PrimFunc:
        """Return a function of some statements, with all parameters."""
        used = frozenset().union(*(each.reads | each.writes for each in pieces))
        root = self.func.body.block
        inner = [buffer for buffer in root.alloc_buffers if handle(buffer) in used]
        return self.func.with_body(in_root(sequence([each.statement for each in pieces]), inner))


def is_sum(piece: Piece) -> bool:
    """Whether a statement is a sum."""
    block = piece.block
    stored = block.init is not None and isinstance(block.body, tirx.BufferStore)
    return bool(stored and isinstance(block.body.value, prim.Add))


def read_streams(func: tirx.PrimFunc) -> Streams | None:
    """Return a function in pieces.

    - `func`: not scheduled; what follows a sum may share its loops.
    - Returns: None if a statement is not blocks in loops, if a check comes after something else,
      or if a buffer is written by two blocks.
    """
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.match_buffers:
        return None
    whole = statements(func.body.block.body)
    pieces = [_piece(each) for statement in whole for each in _separated(statement)]
    checks = [each for each in pieces if each is not None and each.is_check]
    rest = pieces[len(checks) :]
    if not rest or pieces[: len(checks)] != checks:
        return None
    found = [each for each in rest if each is not None]
    written = [buffer for each in found for buffer in each.writes]
    if len(found) < len(rest) or len(set(written)) < len(written):
        return None
    return Streams(func, tuple(checks), tuple(found))


def _separated(statement: Any) -> list[Any]:
    """Return the blocks of a statement in loops of their own, if they compute the same there."""
    found = all_nests(in_root(statement).block)
    if len(found) == 1 or not is_separable(found):
        return [statement]
    made = []
    for nest in found:
        body = nest.realize
        for loop in reversed(nest.loops):
            var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
            body = with_fields(loop, loop_var=var, body=substitute(body, {loop.loop_var: var}))
        made.append(body)
    return made


def _piece(statement: Any) -> Piece | None:
    inner = statement
    while isinstance(inner, tirx.For):
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize):
        return None
    writes = frozenset(stored_to(inner))
    reads = frozenset(handle(load.source) for load in loads(inner.block.body))
    if inner.block.init is not None:
        # A sum reads itself, and only after its start has been stored.
        reads = (reads | {handle(load.source) for load in loads(inner.block.init)}) - writes
    return Piece(statement, inner.block, reads, writes)


def is_mask(condition: Any) -> bool:
    """Whether a condition compares two integers of one buffer, such as sequence numbers."""
    if not isinstance(condition, prim.EQ):
        return False
    a, b = condition.a, condition.b
    both = isinstance(a, TensorLoad) and isinstance(b, TensorLoad)
    return both and same(a.source, b.source)


def is_of_state(node: Any) -> bool:
    """Whether an if_then_else chooses by its axes between two buffers: a state and columns."""
    condition, inside, outside = node.args
    both = isinstance(inside, TensorLoad) and isinstance(outside, TensorLoad)
    return both and not same(inside.source, outside.source) and not loads(condition)
