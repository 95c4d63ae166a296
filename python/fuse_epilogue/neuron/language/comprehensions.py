"""Comprehensions: lists, sets and dictionaries made by loops in an expression."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..errors import KernelError, Refused
from ..limits import small
from .attributes import describe
from .builtins import items_of, length, truth
from .objects import Frame
from .scope import Compile, Scope

Expression = Callable[[Frame], Any]


def hashable(value: Any) -> Any:
    """Return a key of a dictionary."""
    try:
        hash(value)
    except TypeError:
        raise Refused("language", f"{describe(value)} cannot be a key") from None
    return value


def _loops(
    generators: list[ast.comprehension],
    scope: Scope,
    made: Compile,
    collect: Callable[[Frame], None],
) -> Callable[[Frame], None]:
    """Return a function that calls `collect` for each item of the loops of a comprehension."""
    run = collect
    for generator in reversed(generators):
        run = _one_loop(generator, scope, made, run)
    targets = [part for it in generators for part in ast.walk(it.target)]
    names = {part.id for part in targets if isinstance(part, ast.Name)}

    def apart(frame: Frame) -> None:
        """Run with variables of their own: those of the function keep their values."""
        before = {name: frame.names[name] for name in names if name in frame.names}
        try:
            run(frame)
        finally:
            for name in names:
                frame.names.pop(name, None)
            frame.names.update(before)

    return apart


def _one_loop(
    generator: ast.comprehension, scope: Scope, made: Compile, inside: Callable[[Frame], None]
) -> Callable[[Frame], None]:
    if generator.is_async:
        raise KernelError(generator.iter.lineno, "asynchronous loops are not supported here")
    over = made(generator.iter, scope)
    assign = scope.target(generator.target, made)
    tests = [made(test, scope) for test in generator.ifs]

    def run(frame: Frame) -> None:
        items = items_of(over(frame))
        frame.walk.count(length(items))
        for item in items:
            assign(frame, item)
            if all(truth(test(frame)) for test in tests):
                inside(frame)

    return run


def comprehension(node: ast.ListComp | ast.SetComp, scope: Scope, made: Compile) -> Expression:
    """Return a function that makes a list or a set."""
    element = made(node.elt, scope)
    stack: list[list[Any]] = []
    loops = _loops(node.generators, scope, made, lambda f: stack[-1].append(element(f)))
    as_set = isinstance(node, ast.SetComp)

    def run(frame: Frame) -> Any:
        stack.append([])
        try:
            loops(frame)
        finally:
            values = stack.pop()
        return set(values) if as_set else small(values)

    return run


def dict_comprehension(node: ast.DictComp, scope: Scope, made: Compile) -> Expression:
    """Return a function that makes a dictionary."""
    key, value = made(node.key, scope), made(node.value, scope)
    stack: list[dict[Any, Any]] = []

    def collect(frame: Frame) -> None:
        stack[-1][hashable(key(frame))] = value(frame)

    loops = _loops(node.generators, scope, made, collect)

    def run(frame: Frame) -> Any:
        stack.append({})
        try:
            loops(frame)
        finally:
            values = stack.pop()
        return values

    return run
