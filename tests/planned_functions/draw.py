"""Drawing generated functions: the same seed and number give the same function."""

from __future__ import annotations

import random

from .build import TERMS
from .operands import GUARDS, OPERANDS, OPERATIONS, WHOLE
from .spec import Function, Operand, Stage

#: Around the lanes of vectors, and far from them.
SIZES = (1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 64, 65, 129)
_TYPES = (
    ("float32", "float32"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("int32", "int32"),
    ("int8", "int32"),
)

_NO_LOAD = "quotient by the axis"
_ONCE = {"twice": "add", "choose": "maximum", "select": "minimum"}


def draw(seed: int, number: int) -> Function:
    """Return the function of a seed and a number."""
    rng = random.Random(f"{seed}/{number}")
    source, accumulator = rng.choice(_TYPES)
    kind = rng.choice(("product", "rows", "conv", "conv", "elements"))
    stages = tuple(_stage(rng, kind) for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))))
    start = _operand(rng, kind, tuple(GUARDS)) if rng.random() < 0.25 else None
    if kind == "product":
        sizes = {letter: rng.choice(SIZES[:-1]) for letter in "mnk"}
        form = {"transposed": [rng.random() < 0.3, rng.random() < 0.3]}
    elif kind == "rows":
        sizes = {letter: rng.choice(SIZES) for letter in "mn"}
        form = {"monoid": rng.choice(("sum", "sum", "max"))}
    elif kind == "elements":
        sizes = {letter: rng.choice(SIZES) for letter in "mn"}
        form, start = {"transposed": rng.random() < 0.3}, None
    else:
        sizes, form = _conv(rng)
    return Function(kind, sizes, source, accumulator, form, start, stages, tight=rng.random() < 0.5)


def _conv(rng: random.Random) -> tuple[dict[str, int], dict[str, object]]:
    taps = rng.choice((1, 2, 3, 4, 5))
    sizes = {
        "n": rng.choice((1, 2)),
        "c": rng.choice((1, 2, 3, 7, 8, 17, 33)),
        "w": rng.choice(SIZES),
        "k": taps,
    }
    dilation = rng.choice((1, 1, 1, 2, 3))
    reach = (taps - 1) * dilation
    left, right = rng.choice(((0, 0), (reach, 0), (reach // 2, reach - reach // 2), (1, 1)))
    form = {
        "stride": rng.choice((1, 1, 1, 2)),
        "dilation": dilation,
        "left": left,
        "right": right,
        "channels_last": rng.random() < 0.3,
        "padding": rng.choice(("block", "guard")),
        "guard": rng.choice(("none", "none", "none", *TERMS)),
    }
    return sizes, form


def _operand(rng: random.Random, kind: str, guards: tuple[str, ...]) -> Operand:
    axes = "row" if kind == "rows" else rng.choice(("row", "column", "column", "both"))
    operand = rng.choice(tuple(OPERANDS))
    if operand == _NO_LOAD:
        # TVM itself makes no branch of a Select of values without loads.
        guards = tuple(guard for guard in guards if "select" not in guard)
    return Operand(operand, axes, rng.choice(guards))


def _stage(rng: random.Random, kind: str) -> Stage:
    guards = (*GUARDS, *WHOLE, *WHOLE)
    operation, operand = rng.choice(tuple(OPERATIONS)), _operand(rng, kind, guards)
    if operand.kind == _NO_LOAD:
        # TVM itself hoists what occurs twice in front of its guards, unless there is a load in it.
        operation = _ONCE.get(operation, operation)
    return Stage(operation, operand)
