"""Splits a loop where only its first and last steps meet a border; the rest has no conditions.

    for s in range(n): if ...: step(s)     becomes     for s in range(0, a): if ...: step(s)
                                                       for s in range(a, b): step(s)
                                                       for s in range(b, n): if ...: step(s)

TVM has a pass for it (`pragma_loop_partition_hint`), but that takes ``a <= b`` for granted. Of a
row shorter than its padding that does not hold: the third loop starts in front of the row, and
writes there. Here ``a`` and ``b`` are clamped, so that each step is done once, whatever the sizes
are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Range, prim
from tvm.sym import Analyzer
from tvm.tirx.stmt import ForKind

from ....rewrites.step import NotRewritten
from ....tir.affine import affine_of, as_constant
from ....tir.build import in_root, sequence, with_fields
from ....tir.expressions import is_guard
from ....tir.walk import conjuncts, handle, parts_of, substitute, substitute_part, variables

# What TVM's analyzer returns as the largest value of what it knows none of.
_UNBOUNDED = 2**63 - 1


@dataclass(frozen=True)
class Borders:
    """Range of a loop in which a block meets no border.

    - `block`: the name of the block.
    - `place`: which one of its variables says where it is.
    - `inside`: pairs (a, b) for which ``a * v + b <= 0`` where no border is near, `v` being that
      variable: `a` is an int, not 0, and `b` an expression in sizes.
    - `rolled`: whether loops that are to be unrolled stay loops near a border.
    """

    block: str
    place: int
    inside: Sequence[tuple[int, Any]]
    rolled: bool


def split_at_borders(func: tirx.PrimFunc, borders: Mapping[str, Borders]) -> tirx.PrimFunc:
    """Return a function whose marked loops are split, each into up to three.

    - `func`: scheduled. Buffers that only a marked loop uses are not needed after one step of it.
    - `borders`: by the annotation that marks the loop; the split ones do not have it.
    - Raises NotRewritten: a marked loop is not one of those that can be split.
    """
    root = func.body.block
    body, allocated = root.body, list(root.alloc_buffers)
    while True:
        marked: list[tuple[Any, Any]] = []

        def find(loop: Any, marked: list[Any] = marked) -> None:
            marked.extend((loop, borders[name]) for name in borders if name in loop.annotations)

        tvm_ffi.structural_walk(body, (tirx.For, find))
        if not marked:
            break
        loop, of = marked[0]
        body = substitute_part(body, loop, _split(loop, of, body, allocated))
    same = {"reads": root.reads, "writes": root.writes}
    return func.with_body(in_root(body, allocated, root.name_hint, **same))


def _split(loop: Any, borders: Borders, body: Any, allocated: list[Any]) -> Any:
    """Return what does the same as a loop; the buffers that it needs are added to `allocated`."""
    step, total, zero = loop.loop_var, loop.extent, tirx.const(0, loop.loop_var.ty.dtype)
    if as_constant(loop.min) != 0 or (loop.step is not None and as_constant(loop.step) != 1):
        raise NotRewritten(f"its loop over '{step.name}' does not start at 0")
    analyzer = _analyzer(loop)
    begin, end, clear = _clear_steps(loop, borders, analyzer)
    outer = Analyzer()
    begin = outer.simplify(prim.Min(begin, total))
    end = outer.simplify(prim.Max(end, begin))
    near = _rolled(loop.body) if borders.rolled else loop.body
    own = _own_buffers(loop, body, allocated)
    parts: list[Any] = []
    for start, stop in ((zero, begin), (begin, end), (end, total)):
        count = outer.simplify(stop - start)
        if outer.can_prove(count <= 0):
            continue
        inside = start is begin
        inner = _without_conditions(loop.body, clear, analyzer) if inside else near
        if not outer.can_prove(start == zero):
            inner = substitute(inner, {step: step + start})
        part: Any = tirx.For(step, zero, count, loop.kind, inner)
        if parts:
            part, fresh = _copied(part, own)
            allocated.extend(fresh)
        parts.append(part)
    return sequence(parts)


def _clear_steps(loop: Any, borders: Borders, analyzer: Analyzer) -> tuple[Any, Any, list[Any]]:
    """Return the steps of a loop that are clear of its borders: from one, up to another.

    - Returns: as well what is at most 0 where a step is clear of each border.
    """
    step, begin, end = loop.loop_var, tirx.const(0, loop.loop_var.ty.dtype), loop.extent
    first, last = _range(loop.body, borders, analyzer)
    clear = []
    for slope, rest in borders.inside:
        # At that end of the step that is the last to be clear of this border.
        nearest = analyzer.simplify((last if slope > 0 else first) * slope + rest)
        linear = affine_of(nearest, [step], analyzer)
        if linear is None:
            raise NotRewritten(
                f"'{borders.block}' does not advance with its loop over '{step.name}'"
            )
        (moves,), at_zero = linear.factors, linear.rest
        if moves > 0:
            end = prim.Min(end, tirx.floordiv(-at_zero, moves) + 1)
        elif moves < 0:
            begin = prim.Max(begin, tirx.floordiv(at_zero - moves - 1, -moves))
        elif not analyzer.can_prove(nearest <= 0):
            continue
        clear.append(nearest)
    return begin, end, clear


def _analyzer(loop: Any) -> Analyzer:
    """Return an analyzer that knows the loops in a loop, and not the loop itself."""
    analyzer = Analyzer()

    def bind(inner: Any) -> None:
        analyzer.bind(inner.loop_var, Range.from_min_extent(inner.min, inner.extent))

    tvm_ffi.structural_walk(loop.body, (tirx.For, bind))
    return analyzer


def _range(body: Any, borders: Borders, analyzer: Analyzer) -> tuple[Any, Any]:
    """Return the first and the last value of an axis in one step of a loop."""
    realizes = parts_of(body, s_tir.SBlockRealize)
    realizes = [each for each in realizes if each.block.name_hint == borders.block]
    if not realizes:
        raise NotRewritten(f"'{borders.block}' is not in all of its marked loops")
    # Where an inner loop was split, there are several, with the same values. (What is left out of
    # a block is proved for that block: this only says for which steps to try.)
    realize = realizes[0]
    value = realize.iter_values[borders.place]
    loops = parts_of(body, tirx.For)
    first = analyzer.simplify(substitute(value, {each.loop_var: each.min for each in loops}))
    spread = analyzer.const_int_bound(analyzer.simplify(value - first))
    if spread.max_value >= _UNBOUNDED:
        raise NotRewritten(f"how far '{borders.block}' goes in a step of its loops is not known")
    return first, first + tirx.const(spread.max_value, first.ty.dtype)


def _own_buffers(loop: Any, body: Any, allocated: Sequence[Any]) -> list[Any]:
    """Return the buffers that nothing but a loop uses."""
    hole = tirx.Evaluate(0)
    elsewhere = {handle(var) for var in variables(substitute_part(body, loop, hole))}
    used = {handle(var) for var in variables(loop)}
    return [each for each in allocated if handle(each) in used - elsewhere]


def _copied(loop: Any, buffers: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return a loop with variables and some buffers of its own, and these buffers."""
    defined: list[Any] = []
    tvm_ffi.structural_walk(loop, (tirx.For, lambda inner: defined.append(inner.loop_var)))
    tvm_ffi.structural_walk(
        loop, (s_tir.SBlock, lambda block: defined.extend(axis.var for axis in block.iter_vars))
    )
    fresh = {handle(var): tirx.Var(var.name, var.ty) for var in (*defined, *buffers)}
    return substitute(loop, fresh), [fresh[handle(buffer)] for buffer in buffers]


def _without_conditions(body: Any, clear: Sequence[Any], analyzer: Analyzer) -> Any:
    """Return the body of a loop without what holds where no value in `clear` is above 0."""

    def holds(claim: Any) -> bool:
        above = _above_zero(claim)
        return above is not None and any(
            analyzer.const_int_bound(analyzer.simplify(above - each)).max_value <= 0
            for each in clear
        )

    def in_block(realize: Any) -> Any:
        block = realize.block
        pairs = zip(block.iter_vars, realize.iter_values, strict=True)
        values = {axis.var: value for axis, value in pairs}

        def choose(call: Any) -> Any:
            if not is_guard(call):
                return call
            claims = conjuncts(call.args[0])
            left = [claim for claim in claims if not holds(substitute(claim, values))]
            if len(left) == len(claims):
                return call
            return tirx.if_then_else(tirx.all(*left), *call.args[1:]) if left else call.args[1]

        left = [claim for claim in conjuncts(realize.predicate) if not holds(claim)]
        block = tvm_ffi.structural_map(block, (Call, choose))
        return with_fields(realize, predicate=tirx.all(*left) if left else True, block=block)

    return tvm_ffi.structural_map(body, (s_tir.SBlockRealize, in_block))


def _rolled(body: Any) -> Any:
    """Return a body in which no loop is to be unrolled."""

    def roll(loop: Any) -> Any:
        if loop.kind != ForKind.UNROLLED:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(body, (tirx.For, roll))


def _above_zero(claim: Any) -> Any:
    """Return an expression that is above 0 where a comparison of integers is false, or None."""
    if isinstance(claim, prim.LT):
        return claim.a - claim.b + 1
    if isinstance(claim, prim.LE):
        return claim.a - claim.b
    if isinstance(claim, prim.GT):
        return claim.b - claim.a + 1
    if isinstance(claim, prim.GE):
        return claim.b - claim.a
    return None
