"""Makes branches of selections whose values are not defined everywhere.

TVM compiles a Select with a load in it as a branch, unless it is in a vectorized loop: there both
values are computed for all lanes, and a guard guards nothing. TVM's vectorizer keeps an
``if_then_else``, by computing such a statement lane by lane.

    T.Select(d[vj] != 0, 100 // d[vj], 0)      becomes      T.if_then_else(d[vj] != 0, ...)

A value may be computed where it is not used only if it cannot end the program there: its loads are
inside of their buffers, and its divisors are not zero. (Of an overflow, a shift by more than the
width or a cast that does not fit, LLVM says that the result is no value, which a select discards.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op, prim
from tvm.sym import Analyzer, ProofStrength

from ..tir_tree import loads, uses

#: Of TVM's effects of calls: an annotation, a pure function.
_EFFECT, _TOTAL = "TCallEffectKind", (0, 1)
_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)


def with_branches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose selections can be computed in vectors.

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
    if not _selections(func.body):
        return func
    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, _in_block)))


def _selections(node: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (prim.Select, found.append))
    return found


def _in_block(block: Any) -> Any:
    analyzer = analyzer_of(block.iter_vars)

    def branch(select: Any) -> Any:
        if all(
            may_be_discarded(value, analyzer) for value in (select.true_value, select.false_value)
        ):
            return select
        return tirx.if_then_else(select.condition, select.true_value, select.false_value)

    return tvm_ffi.structural_map(block, (prim.Select, branch)) if _selections(block) else block


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
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, (Call, calls.append))
    if not all(isinstance(call.op, Op) and call.op.get_attr(_EFFECT) in _TOTAL for call in calls):
        return False
    divisions: list[Any] = []
    tvm_ffi.structural_walk(value, (_DIVISIONS, divisions.append))
    return all(_divides(division, analyzer) for division in divisions) and all(
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
    return all(
        place == but or (_proved(index >= 0, analyzer) and _proved(index < size, analyzer))
        for place, (index, size) in enumerate(zip(load.indices, load.source.ty.shape, strict=True))
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
    kind = type(part)
    marked = tvm_ffi.structural_map(
        whole, (kind, lambda node: hole if node.same_as(part) else node), order="pre"
    )
    calls, selections = list[Any](), _selections(marked)
    tvm_ffi.structural_walk(marked, (Call, calls.append))
    arms = [arm for each in selections for arm in (each.true_value, each.false_value)]
    for call in calls:
        if getattr(call.op, "name", "") == "prim.if_then_else":
            arms += list(call.args[1:])
    return any(uses(arm, hole) for arm in arms)


def _divides(division: Any, analyzer: Analyzer) -> bool:
    if not str(division.ty.dtype).startswith(("int", "uint")):
        return True
    divisor = division.b
    if isinstance(divisor, prim.IntImm):
        return int(divisor) not in (0, -1)
    # A negative one might be -1, and the dividend the least number.
    return _proved(divisor > 0, analyzer)


def _proved(claim: Any, analyzer: Analyzer) -> bool:
    return bool(analyzer.can_prove(claim, ProofStrength.SYMBOLIC_BOUND))
