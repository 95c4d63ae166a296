"""Operands that are defined only in places, the guards around them, and the data for both.

The texts are TVMScript. ``{at}`` is the index of the operand, ``{axis}`` its first axis, ``{n}``
the extent of that, ``{k}`` an int from 1 to ``n``, and ``{name}`` begins the names of its buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

#: How far a wild index is beyond its table, in elements: within the unreadable pages.
WILD = 1 << 18


def _whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-6, 7, size=shape)


def _divisors(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([0, 0, 1, -1, 3, -7, 10], size=shape)


def _overflowing(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([-1, -1, 1, 2, 1 << 24], size=shape)


def _indices(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    far = rng.integers(1, WILD, size=shape) * rng.choice([-1, 1], size=shape)
    return np.where(rng.random(shape) < 0.5, far + 4 * np.sign(far), rng.integers(0, 5, shape))


def _widths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([0, 1, 5, 9, -1, 32, 64, -(1 << 30)], size=shape)


def _floats(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([0.0, 1.5, -7.25, 100.0, np.inf, -np.inf, np.nan, 3e38, -1e10], size=shape)


@dataclass(frozen=True)
class Kind:
    """A kind of operand.

    - `value`: of type int32.
    - `condition`: where it is defined; "" if everywhere.
    - `buffers`: by what is added to ``{name}``: the shape ("at" for one element per index, else a
      formula), the type, and the data.
    """

    value: str
    condition: str
    buffers: dict[str, tuple[str, str, Draw]]


OPERANDS: dict[str, Kind] = {
    "everywhere": Kind("{name}[{at}]", "", {"": ("at", "int32", _whole)}),
    "quotient": Kind(
        "T.truncdiv(100, {name}[{at}])", "{name}[{at}] != 0", {"": ("at", "int32", _divisors)}
    ),
    "floored quotient": Kind(
        "T.floordiv(100, {name}[{at}])", "{name}[{at}] > 0", {"": ("at", "int32", _divisors)}
    ),
    "remainder": Kind(
        "T.truncmod(100, {name}[{at}])", "0 != {name}[{at}]", {"": ("at", "int32", _divisors)}
    ),
    "floored remainder": Kind(
        "T.floormod(100, {name}[{at}])", "{name}[{at}] > 0", {"": ("at", "int32", _divisors)}
    ),
    "quotient of the least": Kind(
        "T.shift_right(T.truncdiv(T.min_value('int32'), {name}[{at}]), 25)",
        "{name}[{at}] > 0",
        {"": ("at", "int32", _divisors)},
    ),
    "quotient by the axis": Kind("T.truncdiv(100, {axis} - {k} + 1)", "{axis} >= {k}", {}),
    "gather": Kind(
        "{name}[{name}i[{at}]]",
        "{name}i[{at}] >= 0 and {name}i[{at}] < 5",
        {"": ("5", "int32", _whole), "i": ("at", "int32", _indices)},
    ),
    "gather from both": Kind(
        "{name}[{name}i[{at}], {axis}]",
        "{name}i[{at}] >= 0 and {name}i[{at}] < 5",
        {"": ("5, {n}", "int32", _whole), "i": ("at", "int32", _indices)},
    ),
    "short": Kind("{name}[{axis}]", "{axis} < {k}", {"": ("{k}", "int32", _whole)}),
    "late": Kind(
        "{name}[{axis} - {n} + {k}]", "{axis} >= {n} - {k}", {"": ("{k}", "int32", _whole)}
    ),
    "short, strided": Kind(
        "{name}[{axis} * 2]", "{axis} * 2 < {k}", {"": ("{k}", "int32", _whole)}
    ),
    "shift": Kind(
        "T.shift_right(100, {name}[{at}])",
        "{name}[{at}] >= 0 and {name}[{at}] < 32",
        {"": ("at", "int32", _widths)},
    ),
    "cast": Kind(
        "T.Cast('int32', {name}[{at}])",
        "{name}[{at}] > T.float32(-1000) and {name}[{at}] < T.float32(1000)",
        {"": ("at", "float32", _floats)},
    ),
    "overflow": Kind(
        "T.min({name}[{at}] * {name}[{at}], 5)",
        "{name}[{at}] < 100",
        {"": ("at", "int32", _overflowing)},
    ),
}

#: The operand with its guard around it, given its value ``{v}`` and its condition ``{c}``.
GUARDS: dict[str, str] = {
    "if_then_else": "T.if_then_else({c}, {v}, 0)",
    "negated": "T.if_then_else(not ({c}), 3, {v})",
    "select": "T.Select({c}, {v}, 0)",
    "negated select": "T.Select(not ({c}), 3, {v})",
    "select in if_then_else": "T.if_then_else({c}, T.Select({c}, {v}, 1), 0)",
    "if_then_else in select": "T.Select({c}, T.if_then_else({c}, {v}, 1), 0)",
    "select of if_then_else in a sum": "T.Select({c}, 2 + T.if_then_else({c}, {v}, 1), 0)",
    "as a condition": "T.if_then_else(T.if_then_else({c}, {v} > 1, False), 5, -1)",
    "select as a condition": "T.Select(T.if_then_else({c}, {v} > 1, False), 5, -1)",
    "minimum": "T.min(T.if_then_else({c}, {v}, 7), 4)",
}

#: The next value, given the value so far ``{x}`` and the operand ``{g}`` of the same type.
OPERATIONS: dict[str, str] = {
    "add": "{x} + {g}",
    "add swapped": "{g} + {x}",
    "subtract": "{x} - {g}",
    "from": "{g} - {x}",
    "maximum": "T.max({x}, {g})",
    "minimum": "T.min({g}, {x})",
    "add, relu": "T.max({x} + {g}, {zero})",
    "times": "{x} * {g}",
    "choose": "T.if_then_else({g} > {zero}, {x}, {g})",
    "select": "T.Select({g} > {zero}, {x}, {g})",
    "twice": "{x} + {g} * {g}",
}
#: Around the whole operation, with the operand not guarded by itself.
WHOLE: dict[str, str] = {
    "whole": "T.if_then_else({c}, {whole}, {x})",
    "whole select": "T.Select({c}, {whole}, {x})",
    "statement": "if {c}:\n    {out} = {whole}\nelse:\n    {out} = {x}",
}
