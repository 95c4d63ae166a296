"""Whether a value may be computed where a guard keeps it from being used.

A value may be computed where it is not used only if it cannot end the program there: its loads are
inside of their buffers, and its divisors are not zero. (Of an overflow, a shift by more than the
width or a cast that does not fit, LLVM says that the result is poison, which a select discards.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, prim
from tvm.sym import Analyzer, ProofStrength
from tvm.tirx import min_value

from ..tir.expressions import is_guard, without_loads
from ..tir.walk import handle, loads, parts_of, uses, variables

#: Of TVM's effects of calls: an annotation, a pure function.
_EFFECT, _TOTAL = "TCallEffectKind", (0, 1)
#: The divisions of TVM, which all end the program where the divisor is 0.
DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
# Operations that bound what they are of, and that TVM leaves out where a condition does.
_BOUNDING = (prim.Max, prim.Min, prim.Mod, prim.FloorMod, prim.Select)


def analyzer_of(axes: Iterable[Any]) -> Analyzer:
    """Return an analyzer that knows the domains of axes."""
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    return analyzer


def may_be_discarded(value: Any, analyzer: Analyzer, condition: Any = None) -> bool:
    """Whether a value can be computed where it is not used, without ending the program.

    Guards in it count for nothing: TVM drops one that repeats what is around it. Nor do the bounds
    of indices and divisors of which a condition says something: where ``v < 5``, TVM makes ``p[v]``
    of ``p[min(v, 4)]`` and of ``p[v % 5]``.

    - `value`: Expr.
    - `analyzer`: knows the domains of the axes, and nothing else.
    - `condition` (Expr): the condition under which it is used, besides those in it.
    """
    calls = parts_of(value, Call)
    if not all(isinstance(call.op, Op) and call.op.get_attr(_EFFECT) in _TOTAL for call in calls):
        return False
    divisions = [each for each in parts_of(value, *DIVISIONS) if is_integer(each)]
    read = loads(value)
    # What decides whether they are defined.
    decisive = [division.b for division in divisions]
    decisive += [index for load in read for index in load.indices]
    bounds = [bound for each in decisive for bound in parts_of(each, *_BOUNDING)]
    conditions = [] if condition is None else [condition]
    conditions += [each.condition for each in parts_of(value, prim.Select)]
    conditions += [call.args[0] for call in calls if is_guard(call)]
    if _subjects(bounds) & _subjects(conditions):
        return False
    return all(divides(division, analyzer) for division in divisions) and all(
        is_inside(load, analyzer) for load in read
    )


def _subjects(exprs: Iterable[Any]) -> set[int]:
    """Return what integers are made of, by handle: variables, and buffers that are loaded from."""
    found: set[int] = set()
    for expr in exprs:
        read = loads(expr)
        found |= {handle(load.source) for load in read}
        rest = without_loads(expr) if read else expr
        found |= {handle(var) for var in variables(rest)}
    return found


def is_inside(load: Any, analyzer: Analyzer, but: int | None = None) -> bool:
    """Whether a load is proved to be inside of its buffer, whatever guards it.

    - `load`: tvm.ir.TensorLoad.
    - `analyzer`: knows the domains of the axes, and nothing else.
    - `but`: the place of an index that is left out.
    """
    places = enumerate(zip(load.indices, load.source.ty.shape, strict=True))
    return all(
        place == but or (_proved(index >= 0, analyzer) and _proved(index < size, analyzer))
        for place, (index, size) in places
    )


def guarded(part: Any, whole: Any) -> bool:
    """Whether a part of an expression is evaluated only where a condition holds.

    - `part` (Expr): a node of `whole`.
    - `whole`: Expr.
    """
    hole = tirx.Var("part", part.ty)
    marked = tvm_ffi.structural_map(
        whole, (type(part), lambda node: hole if node.same_as(part) else node), order="pre"
    )
    arms = [
        arm for each in parts_of(marked, prim.Select) for arm in (each.true_value, each.false_value)
    ]
    for call in parts_of(marked, Call):
        if is_guard(call):
            arms += list(call.args[1:])
    return any(uses(arm, hole) for arm in arms)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, with a sign or without."""
    return str(value.ty.dtype).startswith(("int", "uint"))


def divides(division: Any, analyzer: Analyzer) -> bool:
    """Whether a division is proved not to end the program: by no zero, and not the least by -1."""
    if not is_integer(division):
        return True
    divisor = division.b
    if isinstance(divisor, prim.IntImm):
        return int(divisor) not in (0, -1)
    return _proved(divisor > 0, analyzer) or _proved(divisor < -1, analyzer)


def may_overflow(division: Any, analyzer: Analyzer) -> bool:
    """Whether a division may be that of the smallest number of its type by -1.

    - `division` (Expr): one of `DIVISIONS`, of integers.
    - `analyzer`: knows the domains of the axes, and nothing else.
    """
    dtype = str(division.ty.dtype)
    if dtype.startswith("u"):
        return False
    above = _proved(division.a > min_value(dtype), analyzer)
    return not (above or _proved(division.b > -1, analyzer) or _proved(division.b < -1, analyzer))


def _proved(claim: Any, analyzer: Analyzer) -> bool:
    # The second proof is slow, and about symbols: it knows no more of what is loaded.
    return bool(
        analyzer.can_prove(claim)
        or (not loads(claim) and analyzer.can_prove(claim, ProofStrength.SYMBOLIC_BOUND))
    )
