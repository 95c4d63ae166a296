"""Reads JSON into dataclasses: each value is checked against the type of its field.

A field asks for more than its type by a :class:`Must`: ``cores: Annotated[int, Must(...)]``, or by
one of the types below. They say what JSON may hold; nothing checks them elsewhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Must:
    """A condition on a value besides its type.

    - `be`: in words, such as "above 0".
    - `holds`: asked about a value of the type. A lambda in an annotation sees no names of its
      module: give it a name there.
    """

    be: str
    holds: Callable[[Any], bool]


def span(least: float, most: float) -> Must:
    """Return that a number is in a span, both ends included."""
    return Must(f"from {least:g} to {most:g}", lambda value: least <= value <= most)


#: Metadata of a field that JSON does not hold. It must hold all others, also those with a default:
#: what is left out would silently become another machine, or another plan.
ABSENT = {"json": "absent"}
#: How many there are of something, which may be none; how many of what there is.
Natural = Annotated[int, span(0, 2**62)]
Count = Annotated[int, span(1, 2**62)]
#: What machines, sizes, variables and the like are called: explanations are written with it.
Name = Annotated[
    str, Must("printable, in one line", lambda text: text.isprintable() and text != "")
]
#: Of machines: bytes, and what may be none; how many there are of something; clocks, what happens
#: in one, and other factors; what happens in a second; seconds. More than any machine has, or less,
#: is a mistake by which no cost can be computed.
Amount = Annotated[int, span(0, 2**50)]
Many = Annotated[int, span(1, 2**31)]
Factor = Annotated[float, span(1e-6, 1e6)]
PerSecond = Annotated[float, span(1, 1e18)]
Seconds = Annotated[float, span(0, 1e3)]
#: Times that are divided by; times and shares that may be nothing.
Positive = Annotated[float, Must("above 0", lambda value: value > 0)]
NotNegative = Annotated[float, Must("0 or above", lambda value: value >= 0)]

#: How what JSON has is called.
_NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    tuple: "a list",
    dict: "an object",
}


def parsed(kind: Any, text: str, what: str) -> Any:
    """Return the dataclass that a text of JSON is.

    - `kind` (type): a dataclass.
    - `what`: message if it is not one, such as "this is not a profile of a machine".
    - Raises ValueError: the text is not JSON, or not of this dataclass; the message begins with
      `what`.
    """
    try:
        return read(kind, loaded(text), "it")
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def loaded(text: str) -> Any:
    """Return what a text of JSON holds.

    - Raises ValueError: the text is not JSON, or an object has a name twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise ValueError(f"an object has {twice!r} twice")
    return made


def read(kind: Any, data: Any, name: str) -> Any:
    """Return what JSON holds as a value of a type.

    - `kind` (type): bool, int, float, str, a dataclass, or tuples, dictionaries, unions and
      ``Annotated`` of them. A float is finite. Of a union of dataclasses, `data` is one already.
    - `data` (object): as :func:`json.loads` makes it.
    - `name`: name of the value in messages.
    - Raises ValueError: the value does not fit the type; the message says where, and what is
      expected.

    >>> read(dict[str, tuple[int, ...]], {"a": [1, 2]}, "it")
    {'a': (1, 2)}
    >>> read(dict[str, Count], {"a": 0}, "it")
    Traceback (most recent call last):
    ...
    ValueError: it.a must be from 1 to 4.61169e+18, not 0
    """
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = read(of[0], data, name)
        for must in of[1:]:
            _demand(must.holds(value), must.be, value, name)
        return value
    if origin in (Union, UnionType):
        if data is None and NoneType in of:
            return None
        some = [each for each in of if each is not NoneType]
        if len(some) == 1:
            return read(some[0], data, name)
        _demand(isinstance(data, tuple(some)), " or ".join(e.__name__ for e in some), data, name)
        return data
    if origin is tuple:
        _demand(isinstance(data, list), _NAMES[tuple], data, name)
        kinds = of[:1] * len(data) if of[-1] is ... else of
        _demand(len(kinds) == len(data), f"a list of {len(kinds)}", data, name)
        return tuple(read(k, v, f"{name}[{i}]") for i, (k, v) in enumerate(zip(kinds, data)))  # noqa: B905
    if origin is dict:
        _demand(isinstance(data, dict), _NAMES[dict], data, name)
        keys = [read(of[0], key, f"a name in {name}") for key in data]
        return {key: read(of[1], data[key], f"{name}.{key}") for key in keys}
    return _dataclass(kind, data, name) if is_dataclass(kind) else _plain(kind, data, name)


def whole_number(name: str, value: Any, least: int, of: str) -> None:
    """Do nothing for an argument that is an integer from a number on.

    - Raises TypeError: not an integer. Booleans are rejected although Python's `bool` subclasses
      `int`.
    - Raises ValueError: the value is below that number.

    >>> whole_number("limit", 0, 1, "the number of points that are costed")
    Traceback (most recent call last):
    ...
    ValueError: limit must be 1 or above, not 0: it is the number of points that ...
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}: it is {of}")
    if value < least:
        raise ValueError(f"{name} must be {least} or above, not {value}: it is {of}")


def _dataclass(kind: Any, data: Any, name: str) -> Any:
    _demand(isinstance(data, dict), _NAMES[dict], data, name)
    types = get_type_hints(kind, include_extras=True)
    given = {each.name: each for each in fields(kind) if each.metadata != ABSENT}
    if unknown := [key for key in data if key not in given]:
        raise ValueError(f"{name} has {unknown[0]!r}, which is not a field of {kind.__name__}")
    for each in given.values():
        if each.name not in data:
            raise ValueError(f"{name} lacks '{each.name}'")
    return kind(**{key: read(types[key], value, f"{name}.{key}") for key, value in data.items()})


def _plain(kind: type, data: Any, name: str) -> Any:
    # In Python, true is an integer.
    right = isinstance(data, (int, float) if kind is float else kind)
    right &= isinstance(data, bool) == (kind is bool)
    if right and kind is float:
        right = abs(data) <= sys.float_info.max  # of an integer, that it has a float
    _demand(right, _NAMES[kind], data, name)
    # Of an integer beyond 64 bits NumPy makes an object, by which nothing can be computed.
    return float(data) if kind is float else data


def _demand(right: bool, be: str, data: Any, name: str) -> None:
    if not right:
        shown = repr(data)
        raise ValueError(
            f"{name} must be {be}, not {shown if len(shown) < 60 else shown[:56] + '...'}"
        )
