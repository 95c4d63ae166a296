"""The blocks of a function, and the loops around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.sym import Analyzer

from .affine import is_constant
from .walk import handle, parts_of


@dataclass(frozen=True)
class Nest:
    """The statement inside the loops.

    - `loops`: from the outside; there may be other blocks in them.
    - `realize` (tvm.s_tir.SBlockRealize or tvm.tirx.Stmt): a block, or another statement, such as a
      condition.
    """

    loops: tuple[Any, ...]
    realize: Any


def nests(root: Any) -> list[Nest | None]:
    """Return the blocks of a function that is not scheduled, in order.

    - `root`: tvm.s_tir.SBlock.
    - Returns: a block in serial loops that runs once for every element of the domains of its axes;
      None for anything else.
    """
    return [nest if _is_plain(nest) else None for nest in all_nests(root)]


def all_nests(root: Any) -> list[Nest]:
    """Return what a root block consists of, in order, scheduled or not.

    - `root`: tvm.s_tir.SBlock.
    """
    found: list[Nest] = []

    def visit(statement: Any, *loops: Any) -> None:
        if isinstance(statement, tirx.For):
            visit(statement.body, *loops, statement)
        elif isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                visit(each, *loops)
        else:
            found.append(Nest(loops, statement))

    visit(root.body)
    return found


def statements(body: Any) -> list[Any]:
    """Return what a statement consists of: itself, if it is one alone."""
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def child_blocks(func: tirx.PrimFunc) -> list[Any]:
    """Return the blocks of a function that are in its root block and in no other one, in order.

    ``sch.get_child_blocks`` would be a step of the trace, which TVM replays only on functions with
    as many blocks.

    - `func`: the function of a schedule, ``sch.mod["main"]``.
    """
    found: list[Any] = []

    def block(node: Any) -> Any:
        found.append(node)
        return tvm_ffi.WalkResult.SKIP

    if isinstance(func.body, s_tir.SBlockRealize):
        tvm_ffi.structural_walk(func.body.block.body, (s_tir.SBlock, block), order="pre")
    return found


def child_names(func: tirx.PrimFunc) -> list[str]:
    """Return the names of :func:`child_blocks`."""
    return [str(block.name_hint) for block in child_blocks(func)]


def all_names(statement: Any) -> list[str]:
    """Return the names of all blocks in a statement, such as the body of a function."""
    return [str(block.name_hint) for block in parts_of(statement, s_tir.SBlock)]


def _is_plain(nest: Nest) -> bool:
    realize = nest.realize
    if not isinstance(realize, s_tir.SBlockRealize) or not is_constant(realize.predicate, 1):
        return False
    if realize.block.match_buffers or realize.block.alloc_buffers:
        return False
    loops = {handle(loop.loop_var): loop for loop in nest.loops}
    same = Analyzer().can_prove_equal
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        loop = loops.pop(handle(value), None)
        if loop is None:
            if not (is_constant(axis.dom.extent, 1) and same(value, axis.dom.min)):
                return False
        elif not (same(loop.min, axis.dom.min) and same(loop.extent, axis.dom.extent)):
            return False
    serial = all(loop.kind == tirx.ForKind.SERIAL for loop in nest.loops)
    steps = all(loop.step is None or is_constant(loop.step, 1) for loop in nest.loops)
    return serial and steps and all(is_constant(loop.extent, 1) for loop in loops.values())
