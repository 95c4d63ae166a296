"""Keeps what a guard guards from being computed elsewhere, whatever a schedule does to its loops.

TVM compiles a Select with a load in it as a branch, unless it is in a vectorized loop: there both
values are computed for all lanes, and a guard guards nothing. TVM's vectorizer keeps an
``if_then_else``, by computing such a statement lane by lane.

    T.Select(d[vj] != 0, 100 // d[vj], 0)      becomes      T.if_then_else(d[vj] != 0, ...)

TVM also folds a division by what unrolling makes a constant, and hoists one that occurs several
times in front of its guards, unless there is a load in it.

    T.if_then_else(vj > 3, 100 // (vj - 3), 0)      divides by      1 where vj - 3 is 0

A value may be computed where it is not used only if it cannot end the program there: its loads are
inside of their buffers, and its divisors are not zero. (Of an overflow, a shift by more than the
width or a cast that does not fit, LLVM says that the result is poison, which a select discards.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, prim
from tvm.sym import Analyzer, ProofStrength

from ..tir_tree import handle, loads, uses, variables

#: Of TVM's effects of calls: an annotation, a pure function.
_EFFECT, _TOTAL = "TCallEffectKind", (0, 1)
_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)


def with_branches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose guards hold in vectors and in loops that are unrolled.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.

    Returns
    -------
    tvm.tirx.PrimFunc
        `func` itself if there is nothing to do.

    Example
    -------
    >>> from fuse_epilogue.workloads import matmul
    >>> func = matmul(8, 8, 8)
    >>> with_branches(func).same_as(func)
    True
    """
    if not _found(func.body, prim.Select, *_DIVISIONS):
        return func
    # No function has anything to compute for sizes of zero.
    sizes = {
        handle(var)
        for param in func.params
        for extent in getattr(param.ty, "shape", ())
        for var in variables(extent)
    }
    changed = {}
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    for block in blocks[:-1]:  # The root is the last one, and has the others in it.
        made = _in_block(block, sizes)
        if not made.same_as(block):
            changed[handle(block)] = made
    if not changed:
        return func
    rule = (s_tir.SBlock, lambda block: changed.get(handle(block), block))
    return func.with_body(tvm_ffi.structural_map(func.body, rule, order="pre"))


def _in_block(block: Any, sizes: set[int]) -> Any:
    found = _found(block, prim.Select, *_DIVISIONS)
    selections = [each for each in found if isinstance(each, prim.Select)]
    divisions = [each for each in found if not isinstance(each, prim.Select)]
    divisions = [each for each in divisions if _is_movable(each, sizes)]
    if not selections and not divisions:
        return block
    analyzer = analyzer_of(block.iter_vars)

    def branch(select: Any) -> Any:
        values = (select.true_value, select.false_value)
        if all(may_be_discarded(value, analyzer) for value in values):
            return select
        return tirx.if_then_else(select.condition, *values)

    def total(division: Any) -> Any:
        if not _is_movable(division, sizes) or _divides(division, analyzer):
            return division
        return type(division)(division.a, _not_zero(division.b))

    made = tvm_ffi.structural_map(block, (prim.Select, branch)) if selections else block
    for kind in _DIVISIONS if divisions else ():
        made = tvm_ffi.structural_map(made, (kind, total))
    return made


def _not_zero(value: Any) -> Any:
    """Return a value, but 1 for 0: in bits, since TVM would leave a condition out in its guard."""
    dtype = tvm.DataType(str(value.ty.dtype))
    zero, one = (tirx.const(number, str(dtype)) for number in (0, 1))
    # All ones of a negative number, and 1 of one without a sign; 0 of 0.
    sign = prim.RShift(
        prim.BitwiseOr(value, zero - value), tirx.const(int(dtype.bits) - 1, str(dtype))
    )
    return value + (one + sign if str(dtype).startswith("int") else one - sign)


def _found(node: Any, *kinds: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kinds, found.append))
    return found


def _is_movable(division: Any, sizes: set[int]) -> bool:
    """Whether TVM may fold a division, or move it in front of its guard: none of memory."""
    divisor = variables(division.b)
    return bool(
        _is_integer(division)
        and any(handle(var) not in sizes for var in divisor)
        and not loads(division)
        and not _found(division, Call)
    )


def analyzer_of(axes: Iterable[Any]) -> Analyzer:
    """Return an analyzer that knows the domains of axes.

    Parameters
    ----------
    axes : Iterable[tvm.tirx.IterVar]
    """
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    return analyzer


def may_be_discarded(value: Any, analyzer: Analyzer) -> bool:
    """Whether a value can be computed where it is not used, without ending the program.

    Guards in it count for nothing: TVM drops one that repeats what is around it.

    Parameters
    ----------
    value : Expr
    analyzer : tvm.sym.Analyzer
        Knows the domains of the axes, and nothing else.
    """
    calls = _found(value, Call)
    if not all(isinstance(call.op, Op) and call.op.get_attr(_EFFECT) in _TOTAL for call in calls):
        return False
    return all(_divides(division, analyzer) for division in _found(value, *_DIVISIONS)) and all(
        is_inside(load, analyzer) for load in loads(value)
    )


def is_inside(load: Any, analyzer: Analyzer, but: int | None = None) -> bool:
    """Whether a load is proved to be inside of its buffer, whatever guards it.

    Parameters
    ----------
    load : tvm.ir.TensorLoad
    analyzer : tvm.sym.Analyzer
        Knows the domains of the axes, and nothing else.
    but : int, optional
        The place of an index that is left out.
    """
    places = enumerate(zip(load.indices, load.source.ty.shape, strict=True))
    return all(
        place == but or (_proved(index >= 0, analyzer) and _proved(index < size, analyzer))
        for place, (index, size) in places
    )


def guarded(part: Any, whole: Any) -> bool:
    """Whether a part of an expression is evaluated only where a condition holds.

    Parameters
    ----------
    part : Expr
        A node of `whole`.
    whole : Expr
    """
    hole = tirx.Var("part", part.ty)
    marked = tvm_ffi.structural_map(
        whole, (type(part), lambda node: hole if node.same_as(part) else node), order="pre"
    )
    arms = [
        arm for each in _found(marked, prim.Select) for arm in (each.true_value, each.false_value)
    ]
    for call in _found(marked, Call):
        if getattr(call.op, "name", "") == "prim.if_then_else":
            arms += list(call.args[1:])
    return any(uses(arm, hole) for arm in arms)


def _is_integer(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("int", "uint"))


def _divides(division: Any, analyzer: Analyzer) -> bool:
    """Whether a division is proved not to end the program: by no zero, and not the least by -1."""
    if not _is_integer(division):
        return True
    divisor = division.b
    if isinstance(divisor, prim.IntImm):
        return int(divisor) not in (0, -1)
    return _proved(divisor > 0, analyzer) or _proved(divisor < -1, analyzer)


def _proved(claim: Any, analyzer: Analyzer) -> bool:
    # The second proof is slow, and about symbols: it knows no more of what is loaded.
    return bool(
        analyzer.can_prove(claim)
        or (not loads(claim) and analyzer.can_prove(claim, ProofStrength.SYMBOLIC_BOUND))
    )
