"""Functions and classes of kernel files: calling them, making objects."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import KernelError, Refused
from ..limits import MOST_CALLS
from .objects import (
    MISSING,
    Bound,
    Builtin,
    Class,
    Frame,
    Function,
    Instance,
    Member,
    Returned,
    unsupported,
)

if TYPE_CHECKING:
    from ..walk import Walk


def invoke(walk: Walk, function: Function, args: list[Any], named: dict[str, Any]) -> Any:
    """Return what a function of a kernel file returns."""
    compiled = function.module.compile(function.node)
    names = bind(walk, function, args, named)
    if walk.depth >= MOST_CALLS:
        raise Refused("language", f"functions call each other more than {MOST_CALLS} deep")
    frame = Frame(names, function.module, walk, function.frame)
    if function.owner is not None:
        names["__class__"] = function.owner
    line = walk.line
    walk.depth += 1
    try:
        for statement in compiled.body:
            signal = statement(frame)
            if type(signal) is Returned:
                return signal.value
    finally:
        walk.depth -= 1
        walk.line = line
    return None


def bind(walk: Walk, function: Function, args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the name of the parameter."""
    node, name = function.node.args, function.name
    positional = [it.arg for it in (*node.posonlyargs, *node.args)]
    names = dict(zip(positional, args, strict=False))
    if len(args) > len(positional):
        if node.vararg is None:
            raise Refused("language", f"{name} takes {len(positional)} arguments, not {len(args)}")
    if node.vararg is not None:
        names[node.vararg.arg] = tuple(args[len(positional) :])
    known = {*positional, *(it.arg for it in node.kwonlyargs)}
    others: dict[str, Any] = {}
    for key, value in named.items():
        if key in names:
            raise Refused("language", f"{name}: {key} is given twice")
        if key in known:
            names[key] = value
        elif node.kwarg is not None:
            others[key] = value
        else:
            raise Refused("language", f"{name} has no parameter {key}")
    if node.kwarg is not None:
        names[node.kwarg.arg] = others
    for key in known:
        if key not in names:
            names[key] = default_of(walk, function, key)
    return names


def default_of(walk: Walk, function: Function, name: str) -> Any:
    """Return the default of a parameter, evaluated once a walk."""
    key = (function.node, name)
    if key not in walk.defaults:
        made = function.module.compile(function.node).defaults.get(name)
        if made is None:
            raise Refused("language", f"{function.name} needs {name}")
        frame = function.frame or Frame(walk.globals_of(function.module), function.module, walk)
        walk.defaults[key] = made(frame)
    return walk.defaults[key]


@dataclass(frozen=True, slots=True)
class Default:
    """The default of a field of a data class, as ``field(default_factory=list)``."""

    value: Any = MISSING
    factory: Any = MISSING


def instantiate(walk: Walk, kind: Class, args: list[Any], named: dict[str, Any]) -> Any:
    """Return a new object of a class, or the member of an enumeration with a value."""
    from .calls import call

    if kind.enumeration:
        for member in kind.members.values():
            if isinstance(member, Member) and args and member.value == args[0]:
                return member
        raise Refused("language", f"{kind.name} has no such value")
    made = Instance(kind)
    start = kind.find("__init__")
    if isinstance(start, Function):
        call(walk, Bound(start, made), args, named)
        return made
    names = fields_of(kind) or values_of(kind)
    if len(args) > len(names):
        raise Refused("language", f"{kind.name} takes {len(names)} values, not {len(args)}")
    given = dict(zip(names, args, strict=False))
    for key, value in named.items():
        if key not in names or key in given:
            raise Refused("language", f"{kind.name}: {key} is not a field, or given twice")
        given[key] = value
    for name in names:
        if name in given:
            made.values[name] = given[name]
            continue
        value = kind.find(name)
        if isinstance(value, Default):
            value = value.value if value.factory is MISSING else call(walk, value.factory, [], {})
        if value is MISSING and kind.strict:
            raise Refused("language", f"{kind.name} needs {name}")
        if value is not MISSING:
            made.values[name] = value
    after = kind.find("__post_init__")
    if isinstance(after, Function):
        call(walk, Bound(after, made), [], {})
    return made


def fields_of(kind: Class) -> list[str]:
    """Return the fields of a class and its bases, in the order of the parameters."""
    names: list[str] = []
    for base in kind.bases:
        names += [name for name in fields_of(base) if name not in names]
    return names + [name for name in kind.fields or () if name not in names]


def values_of(kind: Class) -> list[str]:
    """Return what may be given to a class without the decorator: fields and values."""
    names = fields_of(kind)
    return names + [
        name
        for name, value in _members(kind).items()
        if name not in names and not isinstance(value, Function)
    ]


def super_of(frame: Frame) -> Any:
    """Return the object of a method, seen as one of the base class."""
    owner = frame.names.get("__class__")
    if not isinstance(owner, Class):
        raise Refused("language", "super() is for methods")
    first = next(iter(frame.names.values()))
    base = Class(owner.name, owner.bases, {"__init__": Builtin("__init__", _nothing)})
    found = {}
    for each in reversed(owner.bases):
        found.update(_members(each))
    for name, value in found.items():
        base.members[name] = Bound(value, first) if isinstance(value, Function) else value
    return base


def _members(kind: Class) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(kind.bases):
        found.update(_members(base))
    return {**found, **kind.members}


def _nothing(walk: Walk, *args: Any, **named: Any) -> None:
    """Do nothing, as the constructor of a class without one does."""


#: Decorators by what they make of a method.
KINDS = {"staticmethod": "static", "classmethod": "class", "property": "property"}


def make_function(node: ast.FunctionDef, frame: Frame, owner: Class | None = None) -> Any:
    """Return the function that ``def`` makes."""
    kind = "plain"
    for decorator in node.decorator_list:
        path = frame.module.path_of(decorator)
        if path in KINDS:
            kind = KINDS[path]
        elif path != "nki.jit":
            raise unsupported(f"the decorator @{ast.unparse(decorator)}")
    inside = None if frame.names is frame.walk.globals_of(frame.module) else frame
    return Function(node, frame.module, inside, kind, owner)


def make_class(node: ast.ClassDef, frame: Frame) -> Class:
    """Return the class that ``class`` makes."""
    paths = [frame.module.path_of(base) for base in node.bases]
    enumeration = any(path in ("enum.Enum", "enum.IntEnum") for path in paths)
    plain = ("enum.Enum", "enum.IntEnum", "nki.language.NKIObject", "object", "typing.NamedTuple")
    bases = []
    for path, base in zip(paths, node.bases, strict=True):
        if path in plain:
            continue
        value = frame.module.evaluate(base, frame)
        if not isinstance(value, Class):
            raise unsupported(f"the base class {ast.unparse(base)}")
        bases.append(value)
    made = Class(node.name, tuple(bases), {}, enumeration=enumeration)
    fields: list[str] = []
    for item in node.body:
        match item:
            case ast.FunctionDef():
                if any(ast.unparse(it).endswith(".setter") for it in item.decorator_list):
                    raise KernelError(item.lineno, "setters are not supported here")
                made.members[item.name] = make_function(item, frame, made)
            case ast.Assign(targets=[ast.Name(id=name)]):
                value = frame.module.evaluate(item.value, frame, made.members)
                made.members[name] = _member(made, name, value)
            case ast.AnnAssign(target=ast.Name(id=name)):
                fields.append(name)
                if item.value is not None:
                    made.members[name] = frame.module.evaluate(item.value, frame, made.members)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise KernelError(item.lineno, "this part of a class is not supported here")
    made.fields = tuple(fields)
    for decorator in node.decorator_list:
        path = frame.module.path_of(decorator)
        if path != "dataclasses.dataclass":
            raise unsupported(f"the decorator @{ast.unparse(decorator)}")
        # Objects of the kernel language may lack fields.
        made.strict = "nki.language.NKIObject" not in paths
        if isinstance(decorator, ast.Call):
            made.frozen = any(
                it.arg == "frozen" and ast.unparse(it.value) == "True" for it in decorator.keywords
            )
    return made


def _member(kind: Class, name: str, value: Any) -> Any:
    """Return a value of a class; those of an enumeration become its members."""
    if not kind.enumeration:
        return value
    if value is AUTO:
        value = 1 + sum(isinstance(it, Member) for it in kind.members.values())
    return Member(kind, name, value)


#: What ``enum.auto()`` returns.
AUTO: Any = object()
