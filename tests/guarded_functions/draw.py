"""Draws functions: the same text of a seed gives the same function."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from .operands import GUARDS, OPERANDS, STEPS
from .spec import Function, Guarded, Step
from .text import KINDS, build_shape

#: Parts of the functions with a guarded start of the sums, and with missing weights.
_STARTS, _MISSING = 0.15, 0.1


def draw(
    seed: str,
    kinds: Sequence[str],
    dtypes: Sequence[str],
    operands: Sequence[str] = tuple(OPERANDS),
    guards: Sequence[str] = ("if", *GUARDS),
    large: bool = False,
) -> Function:
    """Draw a function.

    - `kinds`, `dtypes`, `operands`, `guards`: of ``text.KINDS``, ``operands.OPERANDS`` and
      ``operands.GUARDS``; one that is there twice is drawn twice as often.
    - `large`: whether some axes are longer than 128.
    """
    rng = random.Random(seed)
    kind, dtype = rng.choice(kinds), rng.choice(dtypes)
    sizes, options = _SHAPES[kind](rng, large)
    empty = Function(kind, sizes, dtype, options, None, 0, (), False)
    shape = build_shape(empty)
    reduced = {"conv": "f", "product": "k"}.get(kind, "n")
    missing = kind != "elements" and sizes[reduced] > 1 and rng.random() < _MISSING
    taps = rng.randint(1, sizes[reduced] - 1) if missing else 0
    starts = kind not in ("elements", "largest") and rng.random() < _STARTS
    without = [name for name in operands if "sum" not in name]
    init = _guarded(rng, shape, dtype, without, guards) if starts else None
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3)) if init is None else rng.choice((0, 0, 1))):
        guarded = _guarded(rng, shape, dtype, operands, guards)
        op = rng.choice(("add", "add", *STEPS))
        steps.append(Step(op, guarded, rng.random() < 0.4))
    return Function(kind, sizes, dtype, options, init, taps, tuple(steps), rng.random() < 0.5)


def _guarded(
    rng: random.Random,
    shape: tuple[int, ...],
    dtype: str,
    operands: Sequence[str],
    guards: Sequence[str],
) -> Guarded:
    operand = rng.choice([name for name in operands if len(shape) > 1 or name != "short rows"])
    row = OPERANDS[operand]
    # Whether T.Select computes an arm in floats that divides is not promised.
    selected = row.divides and (row.dtype == "int32" or dtype != "float32")
    guard = rng.choice([name for name in guards if name != "select" or selected])
    axis = rng.choice((len(shape) - 1, rng.randrange(len(shape))))
    short = rng.randint(1, max(1, shape[axis] - 1))
    return Guarded(operand, guard, axis, short, rng.choice((0, 0, 1, -3)))


def _conv(rng: random.Random, large: bool) -> tuple[dict[str, int], dict[str, Any]]:
    f, dilation = rng.choice((1, 2, 3, 4)), rng.choice((1, 1, 1, 2))
    reach = (f - 1) * dilation
    columns = (1, 2, 5, 7, 8, 13, 16, 31, 37, 61, 64) + (130, 257) * large
    w = rng.choice(columns)
    if rng.random() < 0.3 and w > reach:
        left, right = 0, 0
    else:
        left = rng.choice((0, reach // 2, reach, reach))
        right = max(0, reach - left, reach + 1 - w - left)
    sizes = {
        "n": rng.choice((1, 2, 3)),
        "c": rng.choice((1, 3, 4, 5, 8) + (129, 256) * large),
        "w": w,
        "f": f,
    }
    options = {
        "left": left,
        "right": right,
        "stride": rng.choice((1, 1, 1, 2)),
        "dilation": dilation,
        "channels_last": rng.random() < 0.3,
    }
    return sizes, options


def _product(rng: random.Random, large: bool) -> tuple[dict[str, int], dict[str, Any]]:
    some = (1, 3, 4, 7, 8, 12, 16, 24) + (65, 129, 160) * large
    sizes = {letter: rng.choice(some) for letter in "mnk"}
    turned = {name: rng.random() < 0.3 for name in ("a_turned", "b_turned")}
    return sizes, turned


def _rows(rng: random.Random, large: bool) -> tuple[dict[str, int], dict[str, Any]]:
    m = rng.choice((1, 3, 4, 7, 8, 12, 16) + (128, 200) * large)
    return {"m": m, "n": rng.choice((1, 3, 8, 15, 32, 45, 64, 96) + (500,) * large)}, {}


_SHAPES = {
    "conv": _conv,
    "product": _product,
    "rows": _rows,
    "largest": _rows,
    "elements": _rows,
}
assert set(_SHAPES) == set(KINDS)
