"""Functions of Python, of ``math`` and a few other modules, as kernels may call them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import Refused
from ..limits import LARGEST, MOST_ITEMS, small
from ..tile import Register, Tile
from ..trace import DType
from ..values import Ds
from .attributes import describe, find
from .objects import (
    MISSING,
    Builtin,
    Class,
    Instance,
    Member,
    Namespace,
    Unknown,
    unsupported,
)


def truth(value: Any) -> bool:
    """Return a condition's value; a tile holds, as an object does: its data are not looked at."""
    if isinstance(value, Ds):
        raise Refused("language", "a condition must be known before the kernel runs")
    if isinstance(value, Unknown):
        raise unsupported(value.name)
    if isinstance(value, Register):
        if value.value is None:
            raise unsupported("a condition on a register, except that of `while`,")
        return value.value != 0
    return bool(value) if isinstance(value, PLAIN) or value is None else True


#: Python's values that are what they are in Python.
PLAIN = (bool, int, float, str, tuple, list, dict, set, range)


def integer(value: Any) -> int:
    """Return an integer, and nothing else."""
    if isinstance(value, Register):
        instead = "where a view begins, use .ap(..., scalar_offset=register)"
        raise unsupported("a register where an integer is needed", instead)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("language", "an integer is needed here")
    return value


def number(value: Any) -> Any:
    """Return a number within the limits, and nothing else."""
    if not isinstance(value, (int, float)):
        raise Refused("language", "a number is needed here")
    if type(value) is int and not -LARGEST < value < LARGEST:
        raise Refused("language", "an integer does not fit in 64 bits")
    return value


def items_of(value: Any) -> Sequence[Any]:
    """Return what a loop runs over, a range as it is.

    - Raises Refused: nothing that has items, or too many.
    """
    if isinstance(value, (tuple, list, range)):
        return value
    if isinstance(value, (dict, set, str)) and not isinstance(value, DType):
        return list(value)
    if isinstance(value, Class) and value.enumeration:
        return [member for member in value.members.values() if isinstance(member, Member)]
    if isinstance(value, Tile):
        raise unsupported("a loop over a tile", "loop over range(...) and index it")
    raise Refused("language", "loops are over ranges, tuples, lists and the like")


def collected(value: Any) -> list[Any]:
    """Return the items of a value as a new list, not too long."""
    items = items_of(value)
    if length(items) > MOST_ITEMS:
        raise Refused("language", f"a tuple or a list holds at most {MOST_ITEMS} items")
    return list(items)


def length(items: Sequence[Any]) -> int:
    """Return how many items there are; ``len`` knows only ranges below 2**63."""
    if isinstance(items, range):
        return max(0, -(-(items.stop - items.start) // items.step))
    return len(items)


def make_range(*bounds: Any) -> range:
    """Return a range of integers."""
    if not 1 <= len(bounds) <= 3:
        raise Refused("language", "range takes one to three integers")
    values = [integer(bound) for bound in bounds]
    if len(values) == 3 and values[2] == 0:
        raise Refused("language", "the step of range is zero")
    return range(*values)


def _extreme(name: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        items = collected(values[0]) if len(values) == 1 else list(values)
        if not items:
            raise Refused("language", f"{name} takes numbers, one at least")
        return choose([number(item) for item in items])

    return run


def _length(value: Any) -> int:
    if isinstance(value, Tile):
        return value.shape[0]
    return length(items_of(value))


def _sum(value: Any, start: Any = 0) -> Any:
    for item in collected(value):
        start = number(number(start) + number(item))
    return start


def _integer_of(value: Any = 0) -> int:
    if isinstance(value, str) and len(value) > 32:
        raise Refused("language", "int takes numbers and short strings")
    if not isinstance(value, (int, float, str)) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise Refused("language", f"int() cannot convert {describe(value)}")
    try:
        return int(number(int(value)))
    except ValueError:
        raise Refused("language", f"int() cannot convert {describe(value)}") from None


def _float_of(value: Any = 0.0) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Refused("language", f"float() cannot convert {describe(value)}") from None


def power(base: Any, exponent: Any) -> Any:
    """Return ``base ** exponent`` within the limits."""
    number(base), number(exponent)
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 64:
        raise Refused("language", "an integer does not fit in 64 bits")
    try:
        value = base**exponent
    except (ZeroDivisionError, OverflowError) as error:
        raise Refused("language", str(error)) from None
    if isinstance(value, complex):
        raise Refused("language", "a root of a negative number")
    return number(value)


def is_instance(value: Any, kind: Any) -> bool:
    """Tell whether a value is of a type, or of one of several."""
    if isinstance(kind, tuple):
        return any(is_instance(value, item) for item in kind)
    if isinstance(kind, Class):
        own = value.kind if isinstance(value, (Instance, Member)) else None
        return own is not None and own.derives(kind)
    if isinstance(kind, Builtin) and kind.name in _TYPES:
        return isinstance(value, _TYPES[kind.name]) and not isinstance(value, DType)
    if isinstance(kind, Namespace) or (
        isinstance(kind, Builtin) and kind.name in ("nl.ndarray", "nl.NkiTensor")
    ):
        return isinstance(value, Tile)
    raise unsupported(f"isinstance with {describe(kind)}")


_TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "set": set,
    "range": range,
}


def _has(value: Any, name: str) -> bool:
    try:
        return find(value, name) is not MISSING
    except Refused:
        return False


def _get(value: Any, name: str, default: Any = MISSING) -> Any:
    found = find(value, name) if default is MISSING or _has(value, name) else default
    if found is MISSING:
        raise Refused("language", f"{describe(value)} has no '.{name}'")
    return found


def _sorted(value: Any, reverse: bool = False) -> list[Any]:
    items = collected(value)
    if not all(isinstance(item, (int, float)) for item in items):
        if not all(isinstance(item, str) for item in items):
            raise unsupported("sorting anything but numbers or strings")
    return sorted(items, reverse=bool(reverse))


def _type_of(value: Any) -> Any:
    if isinstance(value, (Instance, Member)):
        return value.kind
    name = type(value).__name__
    if name in _TYPES:
        return BUILTINS[name]
    raise unsupported(f"type of {describe(value)}")


def _zip(*values: Any) -> list[Any]:
    return [tuple(row) for row in zip(*map(collected, values), strict=False)]


def _enumerate(value: Any, start: int = 0) -> list[Any]:
    return list(enumerate(collected(value), integer(start)))


def plain(name: str, run: Callable[..., Any]) -> Builtin:
    """Return a function that does not need the walk."""
    return Builtin(name, lambda walk, *args, **named: run(*args, **named), run)


def table(prefix: str, functions: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return functions by name."""
    return {name: plain(prefix + name, run) for name, run in functions.items()}


#: Functions of Python.
BUILTINS: dict[str, Any] = table(
    "",
    {
        "range": make_range,
        "len": _length,
        "min": _extreme("min", min),
        "max": _extreme("max", max),
        "abs": lambda x: abs(number(x)),
        "sum": _sum,
        "int": _integer_of,
        "float": _float_of,
        "bool": lambda x=False: truth(x),
        "str": lambda x="": small(describe(x)),
        "repr": lambda x: small(describe(x)),
        "tuple": lambda x=(): tuple(collected(x)),
        "list": lambda x=(): collected(x),
        "dict": lambda x=(), **named: {**dict(x), **named},
        "set": lambda x=(): set(collected(x)),
        "isinstance": is_instance,
        "enumerate": _enumerate,
        "zip": _zip,
        "sorted": _sorted,
        "reversed": lambda x: collected(x)[::-1],
        "all": lambda x: all(truth(item) for item in collected(x)),
        "any": lambda x: any(truth(item) for item in collected(x)),
        "divmod": lambda a, b: (_divided(a, b), number(a) - _divided(a, b) * b),
        "round": lambda x, digits=None: number(round(number(x), digits)),
        "pow": power,
        "print": lambda *args, **named: None,
        "hasattr": _has,
        "getattr": _get,
        "type": _type_of,
        "slice": lambda *bounds: slice(*bounds),
    },
)


def _divided(a: Any, b: Any) -> Any:
    if number(b) == 0:
        raise Refused("language", "division by zero")
    return number(a) // b


def _math(name: str) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        try:
            return number(getattr(math, name)(*[number(value) for value in values]))
        except (ValueError, OverflowError, ZeroDivisionError, TypeError) as error:
            raise Refused("language", f"math.{name}: {error}") from None

    return run


def _product(values: Iterable[Any]) -> Any:
    result: Any = 1
    for value in collected(values):
        result = number(result * number(value))
    return result


def _partial(walk: Any, function: Any, *args: Any, **named: Any) -> Builtin:
    from .calls import call

    def run(walk: Any, *more: Any, **others: Any) -> Any:
        return call(walk, function, [*args, *more], {**named, **others})

    return Builtin("functools.partial", run)


def _reduce(walk: Any, function: Any, items: Any, *start: Any) -> Any:
    from .calls import call

    values = [*start, *collected(items)]
    if not values:
        raise Refused("language", "functools.reduce of nothing, without a start")
    result = values[0]
    for value in values[1:]:
        result = call(walk, function, [result, value], {})
    return result


def _product_of(*items: Any, repeat: int = 1) -> list[tuple[Any, ...]]:
    """Return all combinations of items, the last ones changing fastest."""
    found: list[tuple[Any, ...]] = [()]
    for values in [collected(each) for each in items] * integer(repeat):
        if len(found) * len(values) > MOST_ITEMS:
            raise Refused("language", f"a tuple or a list holds at most {MOST_ITEMS} items")
        found = [(*before, value) for before in found for value in values]
    return found


#: Python's own modules that kernels import.
MODULES: dict[str, Namespace] = {
    "math": Namespace(
        "math",
        {
            **table(
                "math.",
                {
                    name: _math(name)
                    for name in (
                        *("ceil", "floor", "sqrt", "log", "log2", "exp", "gcd", "lcm", "isqrt"),
                        *("isnan", "isinf", "sin", "cos", "tanh", "fabs", "pow", "trunc"),
                    )
                },
            ),
            "prod": plain("math.prod", _product),
            "pi": math.pi,
            "e": math.e,
            "inf": math.inf,
            "nan": math.nan,
        },
        lambda name: f"math.{name} is not supported here",
    ),
    "functools": Namespace(
        "functools",
        {
            "partial": Builtin("functools.partial", _partial),
            "reduce": Builtin("functools.reduce", _reduce),
        },
        lambda name: f"functools.{name} is not supported here",
    ),
    "itertools": Namespace(
        "itertools",
        table(
            "itertools.",
            {
                "product": _product_of,
                "chain": lambda *items: [item for each in items for item in collected(each)],
            },
        ),
        lambda name: f"itertools.{name} is not supported here",
    ),
    # A kernel does not see the environment of the machine that reads it.
    "os": Namespace("os", {"environ": {}}, lambda name: f"os.{name} is not supported here"),
}
