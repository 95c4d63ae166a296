"""Attributes and methods: of tiles, of Python's own values, of objects of a kernel file."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import Refused
from ..limits import joined, small
from ..tile import Tile
from ..tile_views import METHODS as VIEWS
from ..trace import DTYPES, DType
from .objects import (
    MISSING,
    Bound,
    Builtin,
    Class,
    Function,
    Instance,
    KernelFile,
    Member,
    Namespace,
    Symbol,
    Unknown,
    unsupported,
)

Method = Callable[..., Any]


def _ap(tile: Tile, pattern: Any, offset: Any = None, **others: Any) -> Tile:
    offset = 0 if offset is None else offset
    if isinstance(pattern, (list, tuple)):
        pattern = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in pattern)
    return tile.ap(pattern, offset, **others)


def _extend(items: list[Any], more: Any) -> None:
    items[:] = joined(items, list(more))


def _texts(separator: str, items: Any) -> str:
    if not all(isinstance(item, str) for item in items):
        raise Refused("language", "join takes strings")
    return str(small(separator.join(items)))


#: Methods by type; the first argument is the value. Nothing else of Python's values is reached.
METHODS: dict[type, dict[str, Method]] = {
    Tile: {
        "ap": _ap,
        "reshape": lambda tile, shape: tile.reshape(shape),
        "view": lambda tile, dtype: tile.view(dtype),
        "reinterpret_cast": lambda tile, dtype: tile.view(dtype),
        "broadcast_to": lambda tile, shape: tile.broadcast_to(tuple(shape)),
        "get_pattern": lambda tile: [[stride, count] for stride, count in tile.pattern()],
        **VIEWS,
    },
    list: {
        "append": list.append,
        "extend": _extend,
        "insert": list.insert,
        "pop": list.pop,
        "index": list.index,
        "remove": list.remove,
        "count": list.count,
        "reverse": list.reverse,
        "copy": list.copy,
        "clear": list.clear,
    },
    tuple: {"index": tuple.index, "count": tuple.count},
    dict: {
        "get": dict.get,
        "items": lambda it: list(it.items()),
        "keys": lambda it: list(it.keys()),
        "values": lambda it: list(it.values()),
        "pop": dict.pop,
        "update": dict.update,
        "copy": dict.copy,
        "setdefault": dict.setdefault,
    },
    set: {"add": set.add, "discard": set.discard, "union": set.union, "copy": set.copy},
    str: {
        "join": _texts,
        **{
            name: getattr(str, name)
            for name in (
                *("lower", "upper", "strip", "lstrip", "rstrip", "startswith", "endswith"),
                *("split", "rsplit", "removeprefix", "removesuffix", "isdigit", "find", "count"),
                *("capitalize", "title", "partition", "rpartition", "isalpha"),
            )
        },
        "replace": lambda text, old, new: small(text.replace(old, new)) if old else text,
    },
    # Numbers of numpy are Python's here, which are their own item.
    int: {"bit_length": int.bit_length, "item": lambda it: it},
    float: {"is_integer": float.is_integer, "item": lambda it: it},
}


def attribute(value: Any, name: str) -> Any:
    """Return ``value.name``.

    - Raises Refused: the attribute does not exist, or kernels cannot use it.
    """
    found = find(value, name)
    if found is MISSING:
        raise Refused("language", _missing(value, name))
    return found


def find(value: Any, name: str) -> Any:
    """Return ``value.name``, or `MISSING`."""
    match value:
        case Tile():
            if name == "shape":
                return value.shape
            if name == "dtype":
                return value.dtype
            if name == "buffer":
                return Symbol("memory", value.memory)
            if name == "ndim":
                return len(value.shape)
            if name == "size":
                return math.prod(value.shape)
            if name == "offset":
                return value.access.offset
            if name == "strides":
                return tuple(stride for stride, _ in value.pattern())
            if name == "name":
                return value.buffer.info.name
        case Instance():
            if name in value.values:
                return value.values[name]
            return _of_class(value.kind, name, value)
        case Namespace():
            if name in value.members:
                return value.members[name]
            raise Refused("language", value.missing(name))
        case Member():
            if name in ("name", "value"):
                return getattr(value, name)
            return _of_class(value.kind, name, value)
        case Class():
            if name == "__name__":
                return value.name
            return _of_class(value, name, None)
        case Symbol():
            return getattr(value, name) if name in ("name", "value") else MISSING
        case Unknown():
            raise unsupported(value.name)
    own = MISSING if isinstance(value, (DType, bool)) else METHODS.get(type(value), {}).get(name)
    if own is None or own is MISSING:
        return MISSING
    return Builtin(name, lambda walk, *args, **named: own(value, *args, **named))


def _of_class(kind: Class, name: str, first: Any) -> Any:
    """Return a member of a class, bound to an object if it is a method."""
    found = kind.find(name)
    if not isinstance(found, Function) or found.kind == "static":
        return found
    if found.kind == "class":
        return Bound(found, kind)
    return found if first is None else Bound(found, first)


def _missing(value: Any, name: str) -> str:
    if isinstance(value, (int, float, str, tuple, list, dict, Tile)) or value is None:
        what = "tiles" if isinstance(value, Tile) else f"values such as {describe(value)}"
        return f"{what} have no '.{name}' here"
    return f"{describe(value)} has no '.{name}'"


def describe(value: Any) -> str:
    """Return a value as texts of a kernel and messages write it."""
    match value:
        case Tile():
            return f"tensor '{value.buffer.info.name}' {value.shape} {value.dtype}"
        case Instance():
            return f"{value.kind.name} object"
        case Class():
            return value.name
        case Namespace() | Unknown() | Builtin() | Function() | KernelFile():
            return str(value.name)
        case Bound():
            return value.function.name
        case tuple():
            inner = ", ".join(map(_inner, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case list():
            return f"[{', '.join(map(_inner, value))}]"
        case dict():
            return "{" + ", ".join(f"{_inner(k)}: {_inner(v)}" for k, v in value.items()) + "}"
        case DType():
            return str.__str__(value)
    return str(value)


def _inner(value: Any) -> str:
    return repr(value) if isinstance(value, str) and value not in DTYPES else describe(value)
