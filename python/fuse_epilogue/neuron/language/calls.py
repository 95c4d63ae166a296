"""Calls: of instructions, of functions of kernel files, of what the package provides."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import KernelError, Refused
from ..isa import REQUIRED, Instruction
from .attributes import attribute, describe
from .builtins import collected
from .functions import instantiate, invoke, super_of
from .objects import (
    MISSING,
    Bound,
    Builtin,
    Class,
    Frame,
    Function,
    Instance,
    Symbol,
    Unknown,
    unsupported,
)
from .tile_functions import computed

if TYPE_CHECKING:
    from ..walk import Walk
    from .scope import Scope

Compile = Callable[[ast.expr, "Scope"], Callable[[Frame], Any]]


def call_expression(
    node: ast.Call, scope: Scope, compile_expression: Compile
) -> Callable[[Frame], Any]:
    """Return a function that makes a call."""
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return lambda frame: super_of(frame)
    known = scope.module_member(node.func) if isinstance(node.func, ast.Attribute) else None
    if known is not None and isinstance(known[0], Instruction) and scope.strict:
        check_arguments(known[0], node)
    target = compile_expression(node.func, scope)
    starred = any(isinstance(arg, ast.Starred) for arg in node.args)
    starred = starred or any(keyword.arg is None for keyword in node.keywords)
    given = [keyword.arg for keyword in node.keywords]
    for name in given:
        if name is not None and given.count(name) > 1:
            raise KernelError(node.lineno, f"{ast.unparse(node.func)}: {name} is given twice")
    if starred:
        return _starred(node, scope, target, compile_expression)
    args = [compile_expression(_listed(arg), scope) for arg in node.args]
    named = [(str(it.arg), compile_expression(it.value, scope)) for it in node.keywords]

    def run(frame: Frame) -> Any:
        called = target(frame)
        values = [arg(frame) for arg in args]
        options = {name: value(frame) for name, value in named}
        return call(frame.walk, called, values, options)

    return run


def _listed(node: ast.expr) -> ast.expr:
    """Return a generator that is the argument of a call as a list."""
    if isinstance(node, ast.GeneratorExp):
        return ast.copy_location(ast.ListComp(node.elt, node.generators), node)
    return node


def _starred(
    node: ast.Call, scope: Scope, target: Callable[[Frame], Any], compile_expression: Compile
) -> Callable[[Frame], Any]:
    args = [
        (isinstance(arg, ast.Starred), compile_expression(_inside(arg), scope)) for arg in node.args
    ]
    named = [(it.arg, compile_expression(it.value, scope)) for it in node.keywords]

    def run(frame: Frame) -> Any:
        called = target(frame)
        values: list[Any] = []
        for star, arg in args:
            values.extend(collected(arg(frame)) if star else [arg(frame)])
        options: dict[str, Any] = {}
        for name, value in named:
            more = {name: value(frame)} if name is not None else value(frame)
            if not isinstance(more, dict) or not all(isinstance(key, str) for key in more):
                raise Refused("language", "`**` takes a dictionary with names")
            if options.keys() & more.keys():
                raise Refused("language", "an argument is given twice")
            options.update(more)
        return call(frame.walk, called, values, options)

    return run


def _inside(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else _listed(node)


def call(walk: Walk, target: Any, args: list[Any], named: dict[str, Any]) -> Any:
    """Return ``target(*args, **named)``."""
    match target:
        case Instruction():
            return walk.instruction(target, args, named)
        case Function():
            return invoke(walk, target, args, named)
        case Bound():
            return invoke(walk, target.function, [target.first, *args], named)
        case Builtin(name="len") if len(args) == 1 and isinstance(args[0], Instance):
            return call(walk, attribute(args[0], "__len__"), [], named)
        case Builtin():
            try:
                return target.run(walk, *args, **named)
            except TypeError:
                raise Refused("language", f"{target.name} takes {target.takes}") from None
            except (IndexError, KeyError, ValueError) as error:
                if isinstance(error, (Refused, KernelError)):
                    raise
                raise Refused("language", f"{target.name}: {error}") from None
        case Class():
            return instantiate(walk, target, args, named)
        case Symbol(kind="op"):
            return computed(walk, target, args, named)
        case Instance() if target.kind.find("__call__") is not MISSING:
            return call(walk, attribute(target, "__call__"), args, named)
        case Unknown():
            raise unsupported(target.name)
    raise Refused("language", f"{describe(target)} cannot be called")


def check_arguments(instruction: Instruction, node: ast.Call) -> None:
    """Refuse arguments that an instruction does not have, before it is executed.

    - Raises KernelError: too many, unknown, repeated or missing arguments.
    """
    if any(isinstance(it, ast.Starred) for it in node.args):
        return
    keys = [it.arg for it in node.keywords if it.arg is not None]
    if len(keys) != len(node.keywords):
        return
    try:
        bind_names(instruction, len(node.args), keys)
    except Refused as error:
        raise KernelError(node.lineno, error.reason, error.rule) from None


def bind_names(instruction: Instruction, count: int, keys: list[str]) -> list[str]:
    """Return the parameters of the arguments of a call: `count` by place, the others by name.

    - Raises Refused: too many, unknown, repeated or missing arguments.
    """
    name = instruction.name
    names = [it.name for it in instruction.parameters]
    if count > len(names):
        raise Refused("language", f"nisa.{name} takes {', '.join(names)}")
    bound = names[:count]
    for key in keys:
        if key == "mask":
            raise Refused("language", "there is no mask=: use a slice where it would hold")
        if key not in names and key not in instruction.ignored and key != "engine":
            raise Refused("language", f"nisa.{name} takes {', '.join(names)} here, not {key}")
        if key in bound:
            raise Refused("language", f"nisa.{name}: {key} is given twice")
        bound.append(key)
    for parameter in instruction.parameters:
        if parameter.default is REQUIRED and parameter.name not in bound:
            raise Refused("language", f"nisa.{name} needs {parameter.name}")
    return bound
