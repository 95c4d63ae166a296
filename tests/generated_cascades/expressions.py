"""Terms of generated programs: small trees, read twice, as TVM's and as numbers with a bound.

A tree is a name (x, r, s, v, b: see `spec.Program`), a number, or a list of an operation and its
operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import te, tirx

from cascades.bounded import Bounded, where

Tree = Any


def in_tvm(tree: Tree, names: Mapping[str, Any], dtype: str) -> Any:
    """Return a tree as an expression of TVM.

    - `names` (mapping of str to tvm.ir.Expr): what the names stand for.
    - `dtype`: the type of numbers.
    """
    if isinstance(tree, str):
        return names[tree]
    if isinstance(tree, (int, float)):
        return tirx.const(tree, dtype)
    op, *rest = tree
    args = [in_tvm(part, names, dtype) for part in rest]
    if op == "half":
        return args[0].astype("float16").astype(dtype)
    if op in ("signed", "unsigned"):
        return args[0].astype("int8" if op == "signed" else "uint8")
    if op in ("is", "not"):
        return (tirx.Not(args[0]) if op == "not" else args[0]).astype(dtype)
    if op in ("below", "equal"):
        condition = args[0] < args[1] if op == "below" else args[0].equal(args[1])
        return tirx.Select(condition, args[2], args[3])
    return _TVM[op](*args)


_TVM: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": te.max,
    "min": te.min,
    "exp": te.exp,
    "tanh": te.tanh,
    "abs": te.abs,
    "log": te.log,
    "rsqrt": te.rsqrt,
    "round": te.round,
    "truncdiv": tirx.truncdiv,
    "less": lambda a, b: a < b,
}


def in_numbers(tree: Tree, names: Mapping[str, Any]) -> Any:
    """Return a tree as numbers with a bound, of names that broadcast against each other."""
    if isinstance(tree, str):
        return names[tree]
    if isinstance(tree, (int, float)):
        some: Bounded = next(value for value in names.values() if isinstance(value, Bounded))
        return Bounded(np.asarray(tree, some.rules.dtype), 0, some.rules)
    op, *rest = tree
    args = [in_numbers(part, names) for part in rest]
    return _NUMBERS[op](*args)


def _minimum(a: Bounded, b: Bounded) -> Bounded:
    return -((-a).maximum(-b))


def _half(a: Bounded) -> Bounded:
    with np.errstate(all="ignore"):
        value = a.value.astype(np.float16).astype(np.longdouble)
    return Bounded(value, np.where(a.error == 0, 0, a.error + abs(value) / 1024 + 1e-7), a.rules)


def _round(a: Bounded) -> Bounded:
    value = np.round(a.value)
    far = abs(abs(a.value - np.floor(a.value)) - 0.5) > a.error
    return Bounded(value, np.where(far | (a.error == 0), 0, np.inf), a.rules)


def _chosen(kind: str) -> Any:
    def choose(a: Bounded, b: Bounded, c: Bounded, d: Bounded) -> Bounded:
        condition = a.value < b.value if kind == "below" else a.value == b.value
        error = a.error + b.error
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape, d.shape)
        c, d = (part.moved(lambda array: np.broadcast_to(array, shape)) for part in (c, d))
        found = where(condition, c, d)
        unsure = (error != 0) & ~(abs(a.value - b.value) > error)
        return Bounded(found.value, np.where(unsure, np.inf, found.error), found.rules)

    return choose


def _less(a: Bounded, b: Bounded) -> Bounded:
    one, zero = (Bounded(np.full(a.shape, number), 0, a.rules) for number in (1.0, 0.0))
    return _chosen("below")(a, b, one, zero)  # type: ignore[no-any-return]


def _not(a: Bounded) -> Bounded:
    return Bounded(1 - a.value, a.error, a.rules)


_NUMBERS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": lambda a, b: a.maximum(b),
    "min": _minimum,
    "exp": lambda a: a.exp(),
    "tanh": lambda a: a.tanh(),
    "abs": lambda a: a.abs(),
    "log": lambda a: a.log(),
    "rsqrt": lambda a: a.rsqrt(),
    "round": _round,
    "half": _half,
    "below": _chosen("below"),
    "equal": _chosen("equal"),
    "less": _less,
    "is": lambda a: a,
    "not": _not,
}
