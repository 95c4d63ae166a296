"""Expressions of a kernel as functions of a frame, made once and called many times."""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable
from typing import Any

from ..errors import KernelError, Refused
from ..limits import LARGEST, joined, small
from ..tile import Register, Tile
from .attributes import attribute, describe
from .builtins import collected, integer, length, power, truth
from .calls import call, call_expression
from .comparisons import compare
from .comprehensions import comprehension, dict_comprehension, hashable
from .functions import invoke
from .grammar import EXPRESSIONS
from .objects import Bound, Class, Frame, Function, Instance, KernelFile, Unknown, unsupported
from .registers import of_registers
from .scope import Scope

Expression = Callable[[Frame], Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_FAST = (operator.add, operator.sub, operator.mul)
_SHIFTS = (operator.lshift, operator.rshift)
_FORMATS = "0123456789.+-<>^ ,defgrsx%_"


def expression(node: ast.expr, scope: Scope) -> Expression:
    """Return a function that evaluates an expression.

    - Raises KernelError: an expression that is not supported. Wrong values are refused when it is
      evaluated.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | types.EllipsisType() | None):
            value = node.value
            return lambda frame: value
        case ast.Name():
            return scope.name(node)
        case ast.BinOp():
            return binary(node.op, expression(node.left, scope), expression(node.right, scope))
        case ast.UnaryOp():
            return _unary(node, scope)
        case ast.BoolOp():
            return _bool(node, scope)
        case ast.Compare():
            items = [expression(item, scope) for item in (node.left, *node.comparators)]
            return compare(node.ops, items)
        case ast.IfExp():
            test = expression(node.test, scope)
            with scope.branch():
                then, other = expression(node.body, scope), expression(node.orelse, scope)
            return lambda f: then(f) if truth(test(f)) else other(f)
        case ast.Tuple():
            made = sequence(node.elts, scope)
            return lambda f: small(tuple(made(f)))
        case ast.List():
            made = sequence(node.elts, scope)
            return lambda f: small(made(f))
        case ast.Set():
            made = sequence(node.elts, scope)
            return lambda f: set(made(f))
        case ast.Dict():
            return _dict(node, scope)
        case ast.ListComp() | ast.SetComp():
            return comprehension(node, scope, expression)
        case ast.DictComp():
            return dict_comprehension(node, scope, expression)
        case ast.Subscript():
            return _subscript(node, scope)
        case ast.Slice():
            return _slice(node, scope)
        case ast.Attribute():
            return _attribute(node, scope)
        case ast.Call():
            return call_expression(node, scope, expression)
        case ast.JoinedStr():
            return _text(node, scope)
        case ast.Lambda():
            return _lambda(node, scope)
        case ast.NamedExpr():
            return _named(node, scope)
        case ast.Starred():
            raise KernelError(node.lineno, EXPRESSIONS[ast.Starred])
        case ast.Constant():
            raise KernelError(node.lineno, f"{node.value!r} is not supported here")
    reason = EXPRESSIONS.get(type(node), "this expression is not supported here")
    raise KernelError(node.lineno, reason)


def binary(op: ast.operator, left: Expression, right: Expression) -> Expression:
    """Return a function that combines two numbers, texts, tuples or lists."""
    combine = _BINARY.get(type(op))
    if combine is None:
        return _refusing("this operator")
    fast = combine in _FAST

    def run(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        if fast and type(a) is int and type(b) is int:
            value = combine(a, b)
            if not -LARGEST < value < LARGEST:
                raise Refused("language", "an integer does not fit in 64 bits")
            return value
        return combined(combine, a, b)

    return run


def combined(combine: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return what an operator gives."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if combine in _SHIFTS and not (isinstance(b, int) and 0 <= b < 64):
            raise Refused("language", "a shift must be by 0 to 63 bits")
        try:
            value = combine(a, b)
        except ZeroDivisionError:
            raise Refused("language", "division by zero") from None
        except (OverflowError, TypeError) as error:
            raise Refused("language", str(error)) from None
        if type(value) is int and not -LARGEST < value < LARGEST:
            raise Refused("language", "an integer does not fit in 64 bits")
        return value
    if isinstance(a, Register) or isinstance(b, Register):
        return of_registers(combine, a, b)
    if isinstance(a, Tile) or isinstance(b, Tile):
        raise Refused(
            "language", "operators on tiles are not supported here: use nisa.tensor_tensor(...)"
        )
    if combine is operator.add and type(a) is type(b) and isinstance(a, (tuple, list, str)):
        return joined(a, b)
    if combine is operator.mul and isinstance(a, (tuple, list, str)) and type(b) is int:
        return _repeated(a, b)
    if combine is operator.mul and isinstance(b, (tuple, list, str)) and type(a) is int:
        return _repeated(b, a)
    for value in (a, b):
        if isinstance(value, Unknown):
            raise unsupported(value.name)
    raise Refused("language", f"operators work on numbers: {describe(a)}, {describe(b)}")


def _repeated(items: Any, times: int) -> Any:
    if len(items) * times > LARGEST:
        raise Refused("language", "a tuple or a list of that size")
    size = len(items) * max(times, 0)
    small(range(size))
    return items * times


def _refusing(what: str) -> Expression:
    def run(frame: Frame) -> Any:
        raise unsupported(what)

    return run


def _unary(node: ast.UnaryOp, scope: Scope) -> Expression:
    operand = expression(node.operand, scope)
    if isinstance(node.op, ast.Not):
        return lambda f: not truth(operand(f))
    invert, negative = isinstance(node.op, ast.Invert), isinstance(node.op, ast.USub)

    def run(frame: Frame) -> Any:
        value = operand(frame)
        if isinstance(value, Register) and negative:
            return of_registers(operator.sub, 0, value)
        if not isinstance(value, int if invert else (int, float)):
            raise Refused("language", "operators work on numbers")
        return ~int(value) if invert else -value if negative else value

    return run


def _bool(node: ast.BoolOp, scope: Scope) -> Expression:
    first = expression(node.values[0], scope)
    with scope.branch():
        items = [first, *(expression(item, scope) for item in node.values[1:])]
    ends_at = isinstance(node.op, ast.Or)

    def run(frame: Frame) -> Any:
        value: Any = None
        for item in items:
            value = item(frame)
            if truth(value) is ends_at:
                return value
        return value

    return run


def sequence(nodes: list[ast.expr], scope: Scope) -> Callable[[Frame], list[Any]]:
    """Return a function that makes a list of the values, those of ``*x`` among them."""
    if not any(isinstance(node, ast.Starred) for node in nodes):
        items = [expression(node, scope) for node in nodes]
        return lambda f: [item(f) for item in items]
    parts = [
        (isinstance(node, ast.Starred), expression(getattr(node, "value", node), scope))
        if isinstance(node, ast.Starred)
        else (False, expression(node, scope))
        for node in nodes
    ]

    def run(frame: Frame) -> list[Any]:
        values: list[Any] = []
        for star, item in parts:
            values.extend(collected(item(frame)) if star else [item(frame)])
        return values

    return run


def _dict(node: ast.Dict, scope: Scope) -> Expression:
    if any(key is None for key in node.keys):
        raise KernelError(node.lineno, "`**` in a dictionary is not supported here")
    keys = [expression(key, scope) for key in node.keys if key is not None]
    values = [expression(value, scope) for value in node.values]

    def run(frame: Frame) -> dict[Any, Any]:
        return {hashable(k(frame)): v(frame) for k, v in zip(keys, values, strict=True)}

    return run


def _subscript(node: ast.Subscript, scope: Scope) -> Expression:
    value = expression(node.value, scope)
    several = isinstance(node.slice, ast.Tuple)
    nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    items = [expression(it, scope) for it in nodes]

    def run(frame: Frame) -> Any:
        holder = value(frame)
        index = tuple([item(frame) for item in items])
        if isinstance(holder, Tile):
            return holder.index(index[0] if isinstance(index[0], tuple) else index)
        at = index if several else index[0]
        if isinstance(holder, Instance):
            return call(frame.walk, attribute(holder, "__getitem__"), [at], {})
        return item_of(holder, at)

    return run


def item_of(holder: Any, at: Any) -> Any:
    """Return ``holder[at]`` of anything but a tile."""
    if isinstance(holder, dict):
        if hashable(at) not in holder:
            raise Refused("out-of-bounds", f"key {describe(at)} is not in the dictionary")
        return holder[at]
    if isinstance(holder, Class) and holder.enumeration and isinstance(at, str):
        return attribute(holder, at)
    if not isinstance(holder, (tuple, list, str, range)):
        raise Refused("language", "only tiles, tuples, lists and dictionaries are indexed")
    if isinstance(at, slice):
        for bound in (at.start, at.stop, at.step):
            if bound is not None:
                integer(bound)
        if at.step == 0:
            raise Refused("language", "the step of a slice is zero")
        return holder[at]
    at = integer(at)
    if not -length(holder) <= at < length(holder):
        kind = type(holder).__name__
        raise Refused("out-of-bounds", f"index {at} in a {kind} of {length(holder)}")
    return holder[at]


def _slice(node: ast.Slice, scope: Scope) -> Expression:
    bounds = node.lower, node.upper, node.step
    constants = [it.value for it in bounds if isinstance(it, ast.Constant)]
    if len(constants) == sum(it is not None for it in bounds):
        # Most are, and what does not change is made once.
        fixed = slice(*(None if it is None else constants.pop(0) for it in bounds))
        return lambda frame: fixed
    lower, upper, step = (None if it is None else expression(it, scope) for it in bounds)

    def run(frame: Frame) -> slice:
        return slice(
            None if lower is None else lower(frame),
            None if upper is None else upper(frame),
            None if step is None else step(frame),
        )

    return run


def _attribute(node: ast.Attribute, scope: Scope) -> Expression:
    known = scope.module_member(node)
    if known is not None:
        return lambda frame: known[0]
    value, name = expression(node.value, scope), node.attr

    def run(frame: Frame) -> Any:
        holder = value(frame)
        if isinstance(holder, KernelFile):
            return holder.lookup(name, frame.walk)
        found = attribute(holder, name)
        if type(found) is Bound and found.function.kind == "property":
            return invoke(frame.walk, found.function, [found.first], {})
        return found

    return run


def _text(node: ast.JoinedStr, scope: Scope) -> Expression:
    parts: list[Callable[[Frame], str]] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            parts.append(_formatted(part, scope))
        else:
            assert isinstance(part, ast.Constant)
            parts.append(_constant_text(str(part.value)))
    return lambda f: small("".join([part(f) for part in parts]))


def _constant_text(text: str) -> Callable[[Frame], str]:
    return lambda frame: text


def _formatted(node: ast.FormattedValue, scope: Scope) -> Callable[[Frame], str]:
    value = expression(node.value, scope)
    layout = None if node.format_spec is None else expression(node.format_spec, scope)

    def run(frame: Frame) -> str:
        this = value(frame)
        text = "" if layout is None else layout(frame)
        if not text:
            return repr(this) if node.conversion == ord("r") else describe(this)
        if len(text) > 8 or any(letter not in _FORMATS for letter in text):
            raise unsupported(f"the format {text}")
        try:
            return format(this if isinstance(this, (int, float)) else describe(this), text)
        except ValueError as error:
            raise Refused("language", str(error)) from None

    return run


def _named(node: ast.NamedExpr, scope: Scope) -> Expression:
    """Return a function that assigns a value, and returns it."""
    value, assign = expression(node.value, scope), scope.target(node.target, expression)

    def run(frame: Frame) -> Any:
        made = value(frame)
        assign(frame, made)
        return made

    return run


def _lambda(node: ast.Lambda, scope: Scope) -> Expression:
    scope.inner(node)
    return lambda frame: Function(node, frame.module, frame)
