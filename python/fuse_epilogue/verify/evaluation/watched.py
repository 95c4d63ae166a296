"""Functions that report an undefined operation, and do not run it.

Generated code does not survive a division by zero, nor an access far out of bounds. Where a
function is too large for the evaluator, a compiled copy of it in which every store asks first
whether its value is defined says whether the function may be called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, StringImm, TensorLoad, Var, prim

from ...tir.walk import loads
from .expressions import is_branch
from .scalars import UnsupportedError, scalar_type

_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
_SHIFTS = (prim.LShift, prim.RShift)
_SHIFT_CALLS = ("shift_left", "shift_right")

#: The parameter that `watched` adds.
REPORT = "undefined"


def watched(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that skips stores of undefined values, and reports that there were some.

    - `func`: function of the stage in which there are blocks.
    - Returns: with one more parameter, `REPORT`: an int32 array of one element, which is set to 1.
    - Raises UnsupportedError: if whether an operation is defined decides about more than a store.
    """
    report = tirx.decl_buffer((1,), "int32", name=REPORT)
    noted = tirx.BufferStore(report, prim.IntImm("int32", 1), [prim.IntImm("int32", 0)])

    # What cannot be watched: an exception would lose its type on the way through TVM.
    faults: list[str] = []
    if any(param.name == REPORT for param in func.params):
        faults.append(f"a parameter is named '{REPORT}'")

    def guarded(stmt: Any, *conditions: Any) -> Any:
        condition = _all(conditions)
        return stmt if condition is None else tirx.IfThenElse(condition, stmt, noted)

    def store(stmt: Any) -> Any:
        try:
            return guarded(stmt, _element(stmt.indices, stmt.buffer), defined(stmt.value))
        except (UnsupportedError, RecursionError) as error:
            faults.append(str(error))
            return stmt

    def branch(stmt: Any) -> Any:
        try:
            return guarded(stmt, defined(stmt.condition))
        except (UnsupportedError, RecursionError) as error:
            faults.append(str(error))
            return stmt

    def assumed(stmt: Any) -> Any:
        value = stmt.value
        if not isinstance(value, Call) or getattr(value.op, "name", "") != "tirx.assume":
            return stmt
        return tirx.IfThenElse(prim.Not(value.args[0]), noted, None)

    def demand(*exprs: Any) -> None:
        if any(loads(expr) for expr in exprs):
            faults.append("a loop or a block depends on data")

    def other(stmt: Any) -> None:
        faults.append(f"{type(stmt).__name__} cannot be watched")

    entries = [
        (tirx.For, lambda stmt: demand(stmt.min, stmt.extent)),
        (s_tir.SBlockRealize, lambda stmt: demand(stmt.predicate, *stmt.iter_values)),
        *((node, other) for node in (tirx.While, tirx.Bind, tirx.AttrStmt)),
    ]
    tvm_ffi.structural_walk(func.body, entries)
    changes = [(tirx.BufferStore, store), (tirx.IfThenElse, branch), (tirx.Evaluate, assumed)]
    body = tvm_ffi.structural_map(func.body, changes)
    if faults:
        raise UnsupportedError(faults[0])
    return tirx.PrimFunc([*func.params, report], body, func.ret_type, func.attrs)


def defined(expr: Any) -> Any:
    """Return the condition that LLVM code may evaluate an expression, or None if it always may.

    The condition itself can be evaluated in any case.
    """
    if isinstance(expr, (prim.IntImm, prim.FloatImm, StringImm, Var)):
        return None
    if isinstance(expr, TensorLoad):
        return _element(expr.indices, expr.source)
    if isinstance(expr, prim.Cast):
        return defined(expr.value)
    if isinstance(expr, prim.Let):
        body = defined(expr.body)
        return _all([defined(expr.value), body and prim.Let(expr.var, expr.value, body)])
    if isinstance(expr, prim.Select):
        arms = [expr.condition, expr.true_value, expr.false_value]
        return _chosen(*arms) if is_branch(expr) else _all(map(defined, arms))
    if isinstance(expr, Call):
        name = str(getattr(expr.op, "name", "")).removeprefix("tirx.").removeprefix("prim.")
        if name == "if_then_else":
            return _chosen(*expr.args)
        parts = [defined(arg) for arg in expr.args]
        return _all([*parts, _shift(expr.args[1]) if name in _SHIFT_CALLS else None])
    parts = [defined(getattr(expr, name)) for name in ("a", "b") if hasattr(expr, name)]
    if not parts:
        raise UnsupportedError(f"{type(expr).__name__} cannot be watched")
    if isinstance(expr, _DIVISIONS):
        parts.append(_division(expr.a, expr.b))
    elif isinstance(expr, _SHIFTS):
        parts.append(_shift(expr.b))
    return _all(parts)


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    arms = [defined(yes), defined(no)]
    true = prim.IntImm("bool", 1)
    either = None
    if arms != [None, None]:
        first, second = (true if arm is None else arm for arm in arms)
        either = tirx.if_then_else(condition, first, second)
    return _all([defined(condition), either])


def _element(indices: Any, buffer: Any) -> Any:
    """Return the condition that indices are defined and inside a buffer."""
    parts = [defined(index) for index in indices]
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        known = isinstance(index, prim.IntImm) and isinstance(extent, prim.IntImm)
        if known and 0 <= int(index.value) < int(extent.value):
            continue
        wide = prim.Cast("int64", index)
        parts.append(prim.GE(wide, prim.IntImm("int64", 0)))
        parts.append(prim.LT(wide, prim.Cast("int64", extent)))
    return _all(parts)


def _division(a: Any, b: Any) -> Any:
    type = scalar_type(b.ty.dtype)
    if type.kind == "f" or (isinstance(b, prim.IntImm) and int(b.value) not in (0, -1)):
        return None
    parts = [prim.NE(b, prim.IntImm(type.name, 0))]
    if type.kind == "i":
        lowest, minus = prim.IntImm(type.name, type.low), prim.IntImm(type.name, -1)
        parts.append(prim.Or(prim.NE(a, lowest), prim.NE(b, minus)))
    return _all(parts)


def _shift(amount: Any) -> Any:
    type = scalar_type(amount.ty.dtype)
    if isinstance(amount, prim.IntImm) and 0 <= int(amount.value) < type.bits:
        return None
    inside = prim.LT(amount, prim.IntImm(type.name, type.bits))
    return prim.And(prim.GE(amount, prim.IntImm(type.name, 0)), inside)


def _all(conditions: Iterable[Any]) -> Any:
    """Return the condition that all hold; what comes later is evaluated if the others hold."""
    result = None
    for condition in reversed([one for one in conditions if one is not None]):
        false = prim.IntImm("bool", 0)
        result = condition if result is None else tirx.if_then_else(condition, result, false)
    return result
