"""The nests of a function that is not scheduled, and replacing parts by their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim
from tvm.sym import Analyzer

from ..tir_tree import handle


@dataclass(frozen=True)
class Nest:
    """A block in serial loops that runs once for every element of the domains of its axes.

    Attributes
    ----------
    loops : tuple[tvm.tirx.For, ...]
        From the outside; there may be other blocks in them.
    realize : tvm.s_tir.SBlockRealize
    """

    loops: tuple[Any, ...]
    realize: Any


def nests(root: Any) -> list[Nest | None]:
    """Return what a root block consists of, in order; None for what is no such nest.

    Parameters
    ----------
    root : tvm.s_tir.SBlock
    """
    found: list[Nest | None] = []

    def visit(statement: Any, *loops: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                visit(each, *loops)
        elif isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.SERIAL:
            visit(statement.body, *loops, statement)
        else:
            nest = Nest(loops, statement)
            found.append(nest if _is_plain(nest) else None)

    visit(root.body)
    return found


def _is_plain(nest: Nest) -> bool:
    realize = nest.realize
    if not isinstance(realize, s_tir.SBlockRealize) or not _is_constant(realize.predicate, 1):
        return False
    if realize.block.match_buffers or realize.block.alloc_buffers:
        return False
    loops = {handle(loop.loop_var): loop for loop in nest.loops}
    same = Analyzer().can_prove_equal
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        loop = loops.pop(handle(value), None)
        if loop is None:
            if not (_is_constant(axis.dom.extent, 1) and same(value, axis.dom.min)):
                return False
        elif not (same(loop.min, axis.dom.min) and same(loop.extent, axis.dom.extent)):
            return False
    steps = all(loop.step is None or _is_constant(loop.step, 1) for loop in nest.loops)
    return steps and all(_is_constant(loop.extent, 1) for loop in loops.values())


def _is_constant(value: Any, number: int) -> bool:
    return isinstance(value, int | prim.IntImm) and int(value) == number


def replace(node: Any, kind: Any, rule: Callable[[Any], Any]) -> Any:
    """Return a node with `rule(part)` in the place of each part of a kind, outermost first."""
    return tvm_ffi.structural_map(node, (kind, rule), order="pre")
