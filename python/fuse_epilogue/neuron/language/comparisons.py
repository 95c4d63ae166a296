"""Comparisons of a kernel: of numbers, texts, tuples, names and objects."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ..errors import Refused
from ..tile import Tile
from .objects import Class, Frame, Instance, Member, Symbol, Unknown, unsupported

_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def compare(ops: list[ast.cmpop], items: list[Callable[[Frame], Any]]) -> Callable[[Frame], bool]:
    """Return a function that compares neighbours."""
    tests = [_test(op) for op in ops]
    if len(tests) == 1:
        (test,), (left, right) = tests, items
        return lambda f: test(left(f), right(f))

    def run(frame: Frame) -> bool:
        left = items[0](frame)
        for test, item in zip(tests, items[1:], strict=True):
            right = item(frame)
            if not test(left, right):
                return False
            left = right
        return True

    return run


def _test(op: ast.cmpop) -> Callable[[Any, Any], bool]:
    if type(op) in _ORDERS:
        order = _ORDERS[type(op)]
        return lambda a, b: _ordered(order, a, b)
    tests: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
        ast.Eq: _equal,
        ast.NotEq: lambda a, b: not _equal(a, b),
        ast.Is: _same,
        ast.IsNot: lambda a, b: not _same(a, b),
        ast.In: _among,
        ast.NotIn: lambda a, b: not _among(a, b),
    }
    return tests[type(op)]


def _ordered(order: Callable[[Any, Any], Any], a: Any, b: Any) -> bool:
    _no_tiles(a, b)
    if isinstance(a, Symbol) and isinstance(b, Symbol) and a.kind == b.kind == "nc_version":
        return bool(order(a.value, b.value))
    try:
        return bool(order(a, b))
    except TypeError:
        raise Refused("language", "these cannot be compared") from None


def _no_tiles(*values: Any) -> None:
    for value in values:
        if isinstance(value, Tile):
            raise Refused("language", "tiles are compared by instructions, op=nl.equal")
        if isinstance(value, Unknown):
            raise unsupported(value.name)


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    _no_tiles(a, b)
    return bool(a == b)


def _same(a: Any, b: Any) -> bool:
    """Compare by identity where that has a meaning."""
    for value in (a, b):
        if value is None or isinstance(value, (bool, Member, Symbol, Instance, Class)):
            if isinstance(value, (Member, Symbol)):
                return bool(a == b)
            return a is b
    if isinstance(a, Tile) or isinstance(b, Tile):
        return a is b
    raise Refused("language", "`is` is for None, True, False and names: use ==")


def _among(item: Any, items: Any) -> bool:
    if isinstance(items, str) and isinstance(item, str):
        return item in items
    if not isinstance(items, (tuple, list, dict, set, range)):
        raise Refused("language", "`in` is for tuples, lists, dictionaries and strings")
    if isinstance(items, (dict, set)):
        try:
            return item in items
        except TypeError:
            raise Refused("language", "this cannot be a key") from None
    return any(_equal(item, other) for other in items)
