"""Expressions of a kernel as functions of its variables, made once and called many times."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .calls import access_pattern, positional
from .errors import Refused
from .grammar import TILE_SIZE, module_name
from .limits import LARGEST, small
from .trace import ITEMSIZE
from .values import Ds, Tile

#: Variables by name.
Variables = dict[str, Any]
Expression = Callable[[Variables], Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def expression(node: ast.expr) -> Expression:
    """Return a function that evaluates an expression that the language allows.

    It raises `Refused` where values are not of the right kind.
    """
    match node:
        case ast.Constant():
            value = node.value
            return lambda variables: value
        case ast.Name():
            return _name(node.id)
        case ast.BinOp():
            return binary(node.op, expression(node.left), expression(node.right))
        case ast.UnaryOp():
            return _unary(node)
        case ast.BoolOp():
            return _bool(node)
        case ast.Compare():
            return _compare(node)
        case ast.IfExp():
            test, then, other = map(expression, (node.test, node.body, node.orelse))
            return lambda v: then(v) if truth(test(v)) else other(v)
        case ast.Tuple():
            return _tuple(node.elts)
        case ast.Subscript():
            return _subscript(node)
        case ast.Attribute():
            return _attribute(node)
        case ast.Call():
            return _call(node)
    raise AssertionError(ast.dump(node))


def truth(value: Any) -> bool:
    """Return a condition's value."""
    if not isinstance(value, (bool, int)):
        raise Refused("language", "conditions are about integers known before the kernel runs")
    return bool(value)


def integer(value: Any) -> int:
    """Return an integer, and nothing else."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("language", "an integer is needed here")
    return value


def binary(op: ast.operator, left: Expression, right: Expression) -> Expression:
    """Return a function that combines two numbers, or joins two tuples."""
    combine = _BINARY[type(op)]

    def run(variables: Variables) -> Any:
        a, b = left(variables), right(variables)
        if type(a) is int and type(b) is int:
            if b == 0 and combine in (operator.floordiv, operator.mod):
                raise Refused("language", "division by zero")
            value = combine(a, b)
            if not -LARGEST < value < LARGEST:
                raise Refused("language", "an integer leaves 64 bits")
            return value
        if isinstance(a, Tile) or isinstance(b, Tile):
            raise Refused("language", "tiles are combined by instructions, nisa.tensor_tensor(...)")
        numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
        joined = isinstance(a, tuple) and isinstance(b, tuple) and combine is operator.add
        if not numbers and not joined:
            raise Refused("language", "operators work on integers")
        if joined:
            return small(a + b)
        try:
            return combine(a, b)
        except (ZeroDivisionError, OverflowError) as error:
            raise Refused("language", str(error)) from None

    return run


def _name(name: str) -> Expression:
    def run(variables: Variables) -> Any:
        try:
            return variables[name]
        except KeyError:
            raise Refused("language", f"'{name}' has no value yet") from None

    return run


def _unary(node: ast.UnaryOp) -> Expression:
    operand = expression(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda v: not truth(operand(v))

    def negative(variables: Variables) -> Any:
        value = operand(variables)
        if not isinstance(value, (int, float)):
            raise Refused("language", "operators work on integers")
        return -value

    return negative


def _bool(node: ast.BoolOp) -> Expression:
    items = [expression(item) for item in node.values]
    if isinstance(node.op, ast.And):
        return lambda v: all(truth(item(v)) for item in items)
    return lambda v: any(truth(item(v)) for item in items)


def _compare(node: ast.Compare) -> Expression:
    items = [expression(item) for item in (node.left, *node.comparators)]
    compares = [_COMPARE[type(it)] for it in node.ops]

    def run(variables: Variables) -> bool:
        values = [item(variables) for item in items]
        if any(isinstance(value, Tile) for value in values):
            raise Refused("language", "tiles are compared by instructions, op=nl.equal")
        try:
            return all(
                compare(a, b) for compare, a, b in zip(compares, values, values[1:], strict=False)
            )
        except TypeError:
            raise Refused("language", "these cannot be compared") from None

    return run


def _tuple(nodes: list[ast.expr]) -> Expression:
    items = [expression(item) for item in nodes]
    return lambda v: small(tuple([item(v) for item in items]))


def _subscript(node: ast.Subscript) -> Expression:
    value = expression(node.value)
    nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    items = [_slice(it) if isinstance(it, ast.Slice) else expression(it) for it in nodes]

    def run(variables: Variables) -> Any:
        tile = value(variables)
        index = tuple([item(variables) for item in items])
        if isinstance(tile, Tile):
            return tile.index(index)
        if not isinstance(tile, tuple) or len(index) != 1:
            raise Refused("language", "only tiles and tuples are indexed")
        at = integer(index[0])
        if not -len(tile) <= at < len(tile):
            raise Refused("out-of-bounds", f"index {at} in a tuple of {len(tile)}")
        return tile[at]

    return run


def _slice(node: ast.Slice) -> Expression:
    bounds = node.lower, node.upper, node.step
    constants = [it.value for it in bounds if isinstance(it, ast.Constant)]
    if len(constants) == sum(it is not None for it in bounds):
        # Most are, and what does not change is made once.
        fixed = slice(*(None if it is None else constants.pop(0) for it in bounds))
        return lambda variables: fixed
    lower, upper, step = (None if it is None else expression(it) for it in bounds)

    def run(variables: Variables) -> slice:
        return slice(
            None if lower is None else lower(variables),
            None if upper is None else upper(variables),
            None if step is None else step(variables),
        )

    return run


def _attribute(node: ast.Attribute) -> Expression:
    if module_name(node.value, "nl") == "tile_size":
        size = TILE_SIZE[node.attr]
        return lambda v: size
    name = module_name(node, "nl")
    if name in ITEMSIZE:
        return lambda v: name
    value, attribute = expression(node.value), node.attr

    def run(variables: Variables) -> Any:
        tile = value(variables)
        if not isinstance(tile, Tile):
            raise Refused("language", f"only tiles have .{attribute}")
        return tile.shape if attribute == "shape" else tile.dtype

    return run


def _call(node: ast.Call) -> Expression:
    if module_name(node.func, "nl") == "ds":
        start, size = map(expression, positional(node, ("start", "size")))
        return lambda v: Ds(integer(start(v)), integer(size(v)))
    if isinstance(node.func, ast.Name):
        choose = min if node.func.id == "min" else max
        items = [expression(item) for item in node.args]
        return lambda v: choose(integer(item(v)) for item in items)
    assert isinstance(node.func, ast.Attribute)
    value = expression(node.func.value)
    written, start_node = access_pattern(node)
    pairs = [_tuple(pair) for pair in written]
    offset = expression(start_node) if start_node is not None else lambda v: 0

    def run(variables: Variables) -> Tile:
        tile = value(variables)
        if not isinstance(tile, Tile):
            raise Refused("language", "only tiles have .ap")
        return tile.ap(tuple([pair(variables) for pair in pairs]), offset(variables))

    return run
