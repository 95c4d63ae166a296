"""The blocks of a function: their places, and the memory that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, TensorRegion, Var, prim

from ...tir.walk import handle, substitute, variables
from .views import without_views


@dataclass
class Accesses:
    """The buffers that a piece of a function mentions, by handle.

    - `reads`, `writes` (dict[int, Var]): buffers loaded from and stored to. A buffer that is only
      mentioned (its address is taken, a region is declared) is in both.
    """

    reads: dict[int, Any] = field(default_factory=dict)
    writes: dict[int, Any] = field(default_factory=dict)


def accesses(*nodes: Any) -> Accesses:
    """Return what statements or expressions access.

    - `nodes` (tvm.ir.Node or None): any; None is nothing.
    """
    found = Accesses()
    mentioned: dict[int, int] = {}
    buffers: dict[int, Any] = {}

    def buffer(var: Any) -> None:
        if isinstance(var.ty, tirx.BufferType):
            buffers[handle(var)] = var
            mentioned[handle(var)] = mentioned.get(handle(var), 0) + 1

    def load(expr: Any) -> None:
        if isinstance(expr.source, Var):
            found.reads[handle(expr.source)] = expr.source
            mentioned[handle(expr.source)] = mentioned.get(handle(expr.source), 0) - 1

    def store(stmt: Any) -> None:
        found.writes[handle(stmt.buffer)] = stmt.buffer
        mentioned[handle(stmt.buffer)] = mentioned.get(handle(stmt.buffer), 0) - 1

    for node in nodes:
        if node is not None:
            entries = [(Var, buffer), (TensorLoad, load), (tirx.BufferStore, store)]
            tvm_ffi.structural_walk(node, entries)
    for key, count in mentioned.items():
        if count > 0:
            found.reads[key] = found.writes[key] = buffers[key]
    return found


def free_variables(expr: Any) -> list[Any]:
    """Return the variables that an expression depends on: not those that it defines by a let."""

    def inlined(let: Any) -> Any:
        return substitute(let.body, {handle(let.var): let.value})

    return variables(tvm_ffi.structural_map(expr, (prim.Let, inlined)))


def in_steps_of_one(loop: Any) -> bool:
    """Whether a loop takes each value of its range."""
    return loop.step is None or (isinstance(loop.step, prim.IntImm) and int(loop.step) == 1)


def bound_by(around: Sequence[Any]) -> list[Any]:
    """Return the variables that loops and blocks bind."""
    found = []
    for node in around:
        if isinstance(node, tirx.For):
            found.append(node.loop_var)
        elif isinstance(node, s_tir.SBlockRealize):
            found += [axis.var for axis in node.block.iter_vars]
    return found


class Loose:
    """A statement that is in no innermost block, or the condition of one.

    - `node`: the statement or expression.
    - `around` (tuple[Any, ...]): loops, conditions and SBlockRealize statements around it,
      outermost first.
    - `place`: the position in program order of the block that comes next.
    """

    name = "a statement outside of blocks"

    def __init__(self, node: Any, around: tuple[Any, ...], place: int) -> None:
        self.node = node
        self.around = around
        self.place = place

    @cached_property
    def every_loop(self) -> dict[int, Any]:
        """All loops around it, by the handle of the loop variable."""
        return _loops_of(self.around)

    def touched(self) -> Accesses:
        """Return what it reads and writes."""
        return self._touched

    @cached_property
    def _touched(self) -> Accesses:
        return accesses(self.node)


def _loops_of(around: tuple[Any, ...]) -> dict[int, Any]:
    return {handle(node.loop_var): node for node in around if isinstance(node, tirx.For)}


class Block:
    """A block, and the statements around it.

    - `realize` (tvm.s_tir.SBlockRealize): the block with its bindings.
    - `block` (tvm.s_tir.SBlock): the block; an innermost one without its views of buffers, if that
      is possible.
    - `name` (str): its name.
    - `around` (tuple[Any, ...]): loops, conditions and outer SBlockRealize statements around it,
      outermost first.
    - `place`: its position in program order.
    - `inner` (int): how many blocks are in it.
    """

    def __init__(self, realize: Any, around: tuple[Any, ...], place: int) -> None:
        self.realize = realize
        self.block = realize.block
        self.name = str(realize.block.name_hint)
        self.around = around
        self.inner = 0
        self.place = place

    @property
    def leaf(self) -> bool:
        """Whether there is no other block in it."""
        return self.inner == 0

    @property
    def scope(self) -> Any:
        """The SBlockRealize that it is directly in, or None."""
        for node in reversed(self.around):
            if isinstance(node, s_tir.SBlockRealize):
                return node
        return None

    @property
    def inside(self) -> list[Any]:
        """The statements between its scope and itself, outermost first."""
        found: list[Any] = []
        for node in reversed(self.around):
            if isinstance(node, s_tir.SBlockRealize):
                break
            found.append(node)
        return found[::-1]

    @cached_property
    def loops(self) -> list[Any]:
        """The loops between its scope and itself, outermost first."""
        return [node for node in self.inside if isinstance(node, tirx.For)]

    @cached_property
    def every_loop(self) -> dict[int, Any]:
        """All loops around it, by the handle of the loop variable."""
        return _loops_of(self.around)

    def touched(self) -> Accesses:
        """Return what it reads and writes: what it does, and what it declares."""
        return self._touched

    @cached_property
    def _touched(self) -> Accesses:
        found = accesses(self.block.init, self.block.body, self.realize.predicate)
        bindings = accesses(*self.realize.iter_values)
        found.reads.update(bindings.reads)
        for region in self.block.reads:
            found.reads[handle(region.source)] = region.source
        for region in self.block.writes:
            found.writes[handle(region.source)] = region.source
        for matched in self.block.match_buffers:
            source = matched.source.source
            found.reads[handle(source)] = found.writes[handle(source)] = source
        return found


class Tree:
    """All blocks of a function.

    - `func`: the function.
    - `blocks`: in program order, outer before inner.
    """

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.func = func
        self.blocks: list[Block] = []
        self._loose: list[tuple[Loose, Block | None]] = []
        self._walk(func.body, (), None)

    def _walk(self, stmt: Any, around: tuple[Any, ...], outer: Block | None) -> None:
        if isinstance(stmt, s_tir.SBlockRealize):
            block = Block(stmt, around, len(self.blocks))
            self.blocks.append(block)
            self._walk(stmt.block.body, (*around, stmt), block)
            block.inner = len(self.blocks) - block.place - 1
            if block.leaf:
                block.block = without_views(stmt.block)
            else:
                self._note(stmt.block.init, (*around, stmt), block)
                # Of an innermost block these are accesses of its own.
                views = [matched.source for matched in stmt.block.match_buffers]
                for part in (*stmt.iter_values, stmt.predicate, *views):
                    self._note(part, around, outer, block.place)
        elif isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self._walk(part, around, outer)
        elif isinstance(stmt, (tirx.For, tirx.While)):
            is_for = isinstance(stmt, tirx.For)
            for part in (stmt.min, stmt.extent, stmt.step) if is_for else (stmt.condition,):
                self._note(part, (*around, stmt), outer)
            self._walk(stmt.body, (*around, stmt), outer)
        elif isinstance(stmt, tirx.IfThenElse):
            self._note(stmt.condition, around, outer)
            self._walk(stmt.then_case, (*around, stmt), outer)
            if stmt.else_case is not None:
                self._walk(stmt.else_case, (*around, stmt), outer)
        elif isinstance(stmt, tirx.AttrStmt):
            self._note(stmt.value, around, outer)
            self._walk(stmt.body, (*around, stmt), outer)
        else:
            self._note(stmt, around, outer)

    def _note(
        self, node: Any, around: tuple[Any, ...], outer: Block | None, place: int | None = None
    ) -> None:
        """Remember what may turn out to be in no innermost block; it comes before the next one."""
        if isinstance(node, tvm_ffi.Object) and not isinstance(node, (prim.IntImm, Var)):
            at = len(self.blocks) if place is None else place
            self._loose.append((Loose(node, around, at), outer))

    def pieces(self) -> list[Block | Loose]:
        """Return the innermost blocks, and what is outside of all of them."""
        loose = [piece for piece, outer in self._loose if outer is None or not outer.leaf]
        return [*(block for block in self.blocks if block.leaf), *loose]

    def besides(self, blocks: Sequence[Block]) -> list[Block | Loose]:
        """Return the pieces without some blocks."""
        places = {block.place for block in blocks}
        return [p for p in self.pieces() if isinstance(p, Loose) or p.place not in places]

    def named(self, name: str) -> list[Block]:
        """Return the blocks of that name."""
        return [block for block in self.blocks if block.name == name]

    def allocated(self) -> dict[int, Any]:
        """Return the buffers that blocks allocate, by handle."""
        return self._allocated

    @cached_property
    def _allocated(self) -> dict[int, Any]:
        return {handle(var): var for b in self.blocks for var in b.block.alloc_buffers}


def regions(block: Any) -> list[TensorRegion]:
    """Return the regions that a block declares to read and write."""
    return [*block.reads, *block.writes]
