"""Relations between two pieces of a function: loops around both, shared buffers."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ...tir.walk import handle
from .tree import Accesses, Block, Loose

# Calls of what is not TIR, which may raise, or end the program.
_FOREIGN = (
    *("call_extern", "call_pure_extern", "call_packed", "call_cpacked"),
    *("tvm_call_packed", "tvm_call_cpacked"),
)
# Calls and statements after which the program goes on elsewhere.
_JUMPS = ("break_loop", "continue_loop", "thread_return", "ret")


def has_jump(stmt: Any) -> bool:
    """Return whether a statement may leave out a part of itself, or of what comes after it."""
    found: list[Any] = []

    def call(expr: ir.Call) -> None:
        if _name(expr) in _JUMPS:
            found.append(expr)

    nodes = (tirx.Break, tirx.Continue, tirx.Return)
    tvm_ffi.structural_walk(stmt, [*((node, found.append) for node in nodes), (ir.Call, call)])
    return bool(found)


def may_end(piece: Block | Loose) -> bool:
    """Return whether what comes after a block, or a statement outside of blocks, may not run."""
    found: list[Any] = []

    def call(expr: ir.Call) -> None:
        if _name(expr) in _FOREIGN:
            found.append(expr)

    node = piece.realize if isinstance(piece, Block) else piece.node
    tvm_ffi.structural_walk(node, [(tirx.AssertStmt, found.append), (ir.Call, call)])
    return bool(found)


def _name(call: ir.Call) -> str:
    return str(getattr(call.op, "name", "")).removeprefix("tirx.")


def shared_loops(a: Block, b: Block) -> list[Any]:
    """Return the loops around both blocks, within their scope."""
    inner = {handle(loop.loop_var) for loop in b.loops}
    return [loop for loop in a.loops if handle(loop.loop_var) in inner]


def conflicts(moved: Accesses, block: Block | Loose) -> dict[int, Any]:
    """Return the buffers for which it matters who comes first, by handle."""
    other = block.touched()
    found = {k: v for k, v in other.writes.items() if k in moved.reads or k in moved.writes}
    return found | {k: v for k, v in moved.writes.items() if k in other.reads}
