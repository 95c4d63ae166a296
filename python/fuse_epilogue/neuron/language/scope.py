"""Scopes: the variable that a name of a function refers to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import KernelError, Refused
from .attributes import attribute
from .builtins import BUILTINS, items_of
from .grammar import dotted
from .objects import MISSING, Frame, Instance, Namespace

if TYPE_CHECKING:
    from .modules import Module

Compile = Callable[[ast.expr, "Scope"], Callable[[Frame], Any]]
Assign = Callable[[Frame, Any], None]


class Scope:
    """The names of a function.

    - `module`: the file it is in.
    - `node`: the function.
    - `parent`: names of the function around it.
    - `strict`: whether names that ``nl`` and ``nisa`` do not have are refused when they are read,
      and not only when they are used: in the kernel itself, outside of its branches.
    """

    def __init__(
        self, module: Module, node: ast.AST, parent: Scope | None = None, strict: bool = False
    ) -> None:
        self.module = module
        self.node = node
        self.parent = parent
        self.strict = strict
        self.own = assigned(node)

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Compile what may never be executed."""
        before, self.strict = self.strict, False
        try:
            yield
        finally:
            self.strict = before

    def inner(self, node: ast.FunctionDef | ast.Lambda) -> None:
        """Compile a function in the function."""
        self.module.compile(node, self)

    def name(self, node: ast.Name) -> Callable[[Frame], Any]:
        """Return a function that looks a name up."""
        name, depth = node.id, 0
        scope: Scope | None = self
        while scope is not None:
            if name in scope.own:
                return _own(name) if depth == 0 else _outer(name, depth)
            scope, depth = scope.parent, depth + 1
        module = self.module
        if module.defines(name):
            return lambda frame: module.lookup(name, frame.walk)
        if name in BUILTINS:
            value = BUILTINS[name]
            return lambda frame: value
        if name in ("super", "NotImplementedError", "ValueError", "AssertionError", "RuntimeError"):
            return lambda frame: None
        raise KernelError(node.lineno, f"'{name}' is not defined in the kernel")

    def module_member(self, node: ast.Attribute) -> tuple[Any] | None:
        """Return what ``nl.name`` and the like stand for, None if it is something else.

        - Raises KernelError: there is no such name, and the kernel is sure to need it.
        """
        path = dotted(node)
        if path is None:
            return None
        first = path.split(".")[0]
        scope: Scope | None = self
        while scope is not None:
            if first in scope.own:
                return None
            scope = scope.parent
        value = self.module.imported(first)
        if not isinstance(value, Namespace):
            return None
        try:
            for name in path.split(".")[1:]:
                if not isinstance(value, Namespace):
                    return None
                value = attribute(value, name)
        except Refused as error:
            if self.strict:
                raise KernelError(node.lineno, error.reason) from None
            return None
        return (value,)

    def target(self, node: ast.expr, compile_expression: Compile) -> Assign:
        """Return a function that assigns a value."""
        match node:
            case ast.Name(id=name):
                if isinstance(self.node, ast.Module):
                    return lambda frame, value: frame.names.__setitem__(name, value)
                if isinstance(self.module.imported(name), Namespace) or name in ("range",):
                    raise KernelError(node.lineno, f"'{name}' is taken, use another name")
                return lambda frame, value: frame.names.__setitem__(name, value)
            case ast.Tuple() | ast.List():
                return self._unpacking(node.elts, compile_expression)
            case ast.Attribute(attr=name):
                holder = compile_expression(node.value, self)
                return lambda frame, value: set_attribute(holder(frame), name, value)
            case ast.Subscript():
                holder = compile_expression(node.value, self)
                index = compile_expression(node.slice, self)
                return lambda frame, value: set_item(holder(frame), index(frame), value)
        raise KernelError(node.lineno, "this target of an assignment is not supported here")

    def _unpacking(self, nodes: list[ast.expr], compile_expression: Compile) -> Assign:
        stars = [at for at, node in enumerate(nodes) if isinstance(node, ast.Starred)]
        inner = [node.value if isinstance(node, ast.Starred) else node for node in nodes]
        targets = [self.target(node, compile_expression) for node in inner]

        def unpack(frame: Frame, value: Any) -> None:
            more = len(value) - len(targets) if isinstance(value, (tuple, list, range)) else -2
            if more != 0 and not (stars and more >= -1):
                raise Refused("language", f"{len(targets)} values are needed on the right")
            items = list(items_of(value))
            for at in stars:
                items[at : at + more + 1] = [items[at : at + more + 1]]
            for assign, item in zip(targets, items, strict=True):
                assign(frame, item)

        return unpack


def set_attribute(holder: Any, name: str, value: Any) -> None:
    """Assign ``holder.name``."""
    if not isinstance(holder, Instance):
        raise Refused("language", "only objects of a kernel file have attributes to assign")
    if holder.kind.frozen:
        raise Refused("language", f"{holder.kind.name} is frozen")
    holder.values[name] = value


def set_item(holder: Any, at: Any, value: Any) -> None:
    """Assign ``holder[at]``."""
    if isinstance(holder, dict):
        try:
            holder[at] = value
        except TypeError:
            raise Refused("language", "this cannot be a key") from None
        return
    if not isinstance(holder, list):
        raise Refused(
            "language",
            "only names and items of lists are assigned to; an instruction writes a tile (dst)",
        )
    if type(at) is not int or not -len(holder) <= at < len(holder):
        raise Refused("out-of-bounds", f"index {at} in a list of {len(holder)}")
    holder[at] = value


def _own(name: str) -> Callable[[Frame], Any]:
    def run(frame: Frame) -> Any:
        try:
            return frame.names[name]
        except KeyError:
            raise Refused("language", f"'{name}' has no value yet") from None

    return run


def _outer(name: str, depth: int) -> Callable[[Frame], Any]:
    def run(frame: Frame) -> Any:
        for _ in range(depth):
            assert frame.parent is not None
            frame = frame.parent
        value = frame.names.get(name, MISSING)
        if value is MISSING:
            raise Refused("language", f"'{name}' has no value yet")
        return value

    return run


def assigned(node: ast.AST) -> set[str]:
    """Return the names that a function assigns, its parameters among them."""
    names: set[str] = set()
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        names.update(parameter_names(node.args))
    body = node.body if isinstance(node.body, list) else [node.body]  # type: ignore[attr-defined]
    stack: list[ast.AST] = list(body)
    while stack:
        item = stack.pop()
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            names.add(item.name)
            continue
        if isinstance(item, ast.Lambda):
            continue
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            names.add(item.id)
        if isinstance(item, (ast.Import, ast.ImportFrom)):
            names.update((it.asname or it.name).split(".")[0] for it in item.names)
        stack.extend(ast.iter_child_nodes(item))
    return names


def parameter_names(args: ast.arguments) -> list[str]:
    """Return the names of all parameters."""
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    every += [it for it in (args.vararg, args.kwarg) if it is not None]
    return [it.arg for it in every]
