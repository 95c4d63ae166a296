"""Where a program evaluates an operand, and what has to hold of the data there.

An operand that is undefined on some data (a divisor of 0, an index outside of its table) demands
something of an input: but only at the points at which the conditions around it let it be evaluated.
Everywhere else that input may, and does, hold values on which it is undefined. Conditions are
evaluated with numpy here, on the arrays and from the specification, without TVM. One that depends
on what the reduction computes may hold or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .build import input_name
from .expressions import CHOICES, COMPARISONS, DIVISIONS, SHIFTS, TABLE, is_lazy, type_of, walk
from .layouts import ALL_READS
from .spec import FLOATS, SIGNED, Expr, Program, bits, is_float
from .stages import stages_of

Arrays = dict[str, np.ndarray]
# Conditions around an operand, each with the outcome that leads to it.
Path = tuple[tuple[Expr, bool], ...]

# Beyond this, a product of two inputs may overflow.
FACTOR = 100


@dataclass(frozen=True)
class Demand:
    """What an operand demands of an input.

    Attributes
    ----------
    leaf : Expr
        The input: an ``elem``, ``row`` or ``scalar``.
    kind : str
        A key of `KINDS`.
    limit : int
        The width, for a shift; for a conversion that of the integer, negative for a signed one.
    path : Path
        The conditions under which the operand is evaluated.
    """

    leaf: Expr
    kind: str
    limit: int
    path: Path


@dataclass(frozen=True)
class Kind:
    """A kind of operand.

    Attributes
    ----------
    defined : Callable
        Whether the operand is defined, from the input's values and the limit.
    wild : Callable
        Values on which it is not, from the input's type and the limit.
    tame : tuple[int, ...]
        Values on which it is.
    """

    defined: Callable[[np.ndarray, int], np.ndarray]
    wild: Callable[[str, int], list[Any]]
    tame: tuple[int, ...]


def _within(dtype: str, values: list[int]) -> list[int]:
    info = np.iinfo(dtype)
    return [v for v in values if info.min <= v <= info.max]


def _fits(values: np.ndarray, limit: int) -> np.ndarray:
    half = 2.0 ** (abs(limit) - 1)
    low, high = (-half, half) if limit < 0 else (0.0, 2 * half)
    wide = values.astype(np.float64)
    # NaN compares as false.
    return np.asarray((wide > low - 1) & (wide < high))


def _beyond(dtype: str, limit: int) -> list[float]:
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).max)
    values = [np.inf, -np.inf, np.nan]
    return [*values, largest, -largest] if largest > 2.0 ** abs(limit) else values


KINDS: Mapping[str, Kind] = {
    "divisor": Kind(lambda v, n: v != 0, lambda t, n: _within(t, [0, 0, -1]), (1, 2, 3, 7)),
    # Of a number that may be the smallest: divided by -1, it does not fit.
    "divisor of anything": Kind(
        lambda v, n: (v != 0) & (v.astype(object) != -1),
        lambda t, n: _within(t, [0, 0, -1]),
        (1, 2, 3, 7),
    ),
    "dividend": Kind(
        lambda v, n: v != np.iinfo(v.dtype).min,
        lambda t, n: [int(np.iinfo(t).min)],
        (1, 0, 5, 100),
    ),
    "index": Kind(
        lambda v, n: (v >= 0) & (v < TABLE),
        lambda t, n: _within(t, [-1, -7, TABLE, TABLE + 3, 99, 5000, -3000, 1 << 22, -(1 << 23)]),
        (0, 3, 8, TABLE - 1),
    ),
    "shift": Kind(
        lambda v, n: (v >= 0) & (v < n),
        lambda t, n: _within(t, [n, n + 5, -1, 100]),
        (0, 1, 2, 3),
    ),
    "conversion": Kind(_fits, _beyond, (0, 1, 5, 100)),
    "factor": Kind(
        lambda v, n: (v >= -FACTOR) & (v <= FACTOR),
        lambda t, n: [int(np.iinfo(t).max), int(np.iinfo(t).min), int(np.iinfo(t).max) // 2],
        (1, 2, 5, 12),
    ),
}


# ---- What an expression demands ------------------------------------------------------------------


def demands(expr: Expr, types: tuple[str, str]) -> Iterator[Demand]:
    """Yield what the operands of an epilogue's value demand.

    Parameters
    ----------
    expr : Expr
    types : tuple[str, str]
        Of ``x`` and ``y``.
    """
    yield from _demands(expr, types, ())


def _demands(expr: Expr, types: tuple[str, str], path: Path) -> Iterator[Demand]:
    name = expr[0]
    if name in CHOICES:
        condition, yes, no = expr[1:]
        yield from _demands(condition, types, path)
        lazy = is_lazy(expr)
        for arm, outcome in ((yes, True), (no, False)):
            yield from _demands(arm, types, (*path, (condition, outcome)) if lazy else path)
        return
    if name in DIVISIONS and not is_float(type_of(expr, *types)):
        dividend, divisor = expr[1:]
        kind = "divisor"
        if dividend[0] != "lit" and type_of(dividend, *types) in SIGNED:
            leaf = _leaf(dividend)
            if leaf is None or leaf[1] != type_of(dividend, *types):
                kind = "divisor of anything"
            elif divisor[0] != "lit":
                yield Demand(leaf, "dividend", 0, path)
        yield from _demand(divisor, kind, 0, path)
    elif name in SHIFTS:
        yield from _demand(expr[2], "shift", bits(type_of(expr, *types)), path)
    elif name == "table":
        yield from _demand(expr[3], "index", 0, path)
    elif name == "cast" and not is_float(expr[1]) and expr[1] != "bool":
        if is_float(type_of(expr[2], *types)):
            width = bits(expr[1])
            yield from _demand(expr[2], "conversion", -width if expr[1] in SIGNED else width, path)
    elif name == "mul" and type_of(expr, *types) in ("int32", "int64", "uint32", "uint64"):
        factors = [_leaf(factor) for factor in expr[1:]]
        if all(factor is not None for factor in factors):
            for factor in factors:
                if factor is not None and factor[1] == type_of(expr, *types):
                    yield Demand(factor, "factor", 0, path)
    for child in expr[1:]:
        if isinstance(child, tuple):
            yield from _demands(child, types, path)


def _demand(expr: Expr, kind: str, limit: int, path: Path) -> Iterator[Demand]:
    leaf = _leaf(expr)
    if leaf is not None:
        yield Demand(leaf, kind, limit, path)


def _leaf(expr: Expr) -> Expr | None:
    while expr[0] == "cast":
        expr = expr[2]
    return expr if expr[0] in ("elem", "row", "scalar") else None


# ---- Whether a condition holds -------------------------------------------------------------------


class Grid:
    """The points of an epilogue, and its inputs at them."""

    def __init__(self, number: int, dims: tuple[int, ...], arrays: Arrays) -> None:
        self.dims = dims
        self._number = number
        self._arrays = arrays

    def array(self, leaf: Expr) -> np.ndarray | None:
        """Return the array of an input, unless it shares another buffer."""
        return self._arrays.get(input_name(self._number, leaf))

    def values(self, leaf: Expr) -> np.ndarray | None:
        """Return an input's value at each point."""
        array = self.array(leaf)
        return None if array is None else np.broadcast_to(array, self.dims)

    def may_hold(self, condition: Expr, outcome: bool) -> np.ndarray:
        """Whether a condition may have an outcome, at each point."""
        true, false = self._outcomes(condition)
        return true if outcome else false

    def _outcomes(self, condition: Expr) -> tuple[np.ndarray, np.ndarray]:
        """Where a condition may be true, and where it may be false."""
        name = condition[0]
        if name in ("and", "or"):
            a, b = (self._outcomes(operand) for operand in condition[1:])
            if name == "and":
                return a[0] & b[0], a[1] | b[1]
            return a[0] | b[0], a[1] & b[1]
        if name == "not":
            true, false = self._outcomes(condition[1])
            return false, true
        value = self._value(condition)
        if value is None:
            anything = np.ones(self.dims, bool)
            return anything, anything
        return value.astype(bool), ~value.astype(bool)

    def _value(self, expr: Expr) -> np.ndarray | None:
        name = expr[0]
        if name == "lit":
            return np.full(self.dims, expr[2])
        if name == "axis":
            return np.indices(self.dims)[-1] if self.dims else np.asarray(1)
        if name in ("elem", "row", "scalar"):
            return self.values(expr)
        if name in COMPARISONS:
            a, b = (self._value(operand) for operand in expr[1:])
            return None if a is None or b is None else _COMPARED[name](a, b)
        return None


_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    # As TVM makes it: false where one of them is NaN.
    "ne": lambda a, b: (a < b) | (a > b),
}


# ---- The data ------------------------------------------------------------------------------------


def with_wild_values(
    program: Program, arrays: Arrays, rng: np.random.Generator, sizes: Mapping[str, int]
) -> None:
    """Fill the inputs of partial operands: wild where these are not evaluated, tame where they are.

    Parameters
    ----------
    program : Program
    arrays : dict[str, numpy.ndarray]
        Changed in place.
    rng : numpy.random.Generator
    sizes : mapping of str to int
        Values of the unknown extents.
    """
    spatial = program.reduction.spatial
    if sizes:
        spatial = (sizes["n"], *spatial[1:])
    stages = stages_of(program, spatial)
    for number, epilogue in enumerate(program.epilogues):
        types = (
            stages[epilogue.stage].dtype,
            stages[epilogue.other].dtype if epilogue.other >= 0 else "",
        )
        wanted = list(demands(epilogue.expr, types))
        if not wanted:
            continue
        grid = Grid(number, ALL_READS[epilogue.read].axes(stages[epilogue.stage].dims), arrays)
        _sprinkle(epilogue.expr, wanted, grid, rng)
        _repair(wanted, grid, rng)


def _sprinkle(expr: Expr, wanted: list[Demand], grid: Grid, rng: np.random.Generator) -> None:
    share = rng.choice([0.0, 0.3, 0.5, 0.5, 1.0])
    conditions = {node for one in wanted for condition, _ in one.path for node in walk(condition)}
    for leaf in [node for node in walk(expr) if node in conditions]:
        array = grid.array(leaf) if leaf[0] in ("elem", "row", "scalar") else None
        if array is not None and array.dtype.kind in "iub":
            array[...] = np.where(rng.random(array.shape) < share, 0, array)
    for one in wanted:
        array = grid.array(one.leaf)
        if array is None:
            continue
        kind = KINDS[one.kind]
        wild = np.asarray(kind.wild(str(one.leaf[1]), one.limit) or [0]).astype(array.dtype)
        values = rng.choice(np.asarray(kind.tame).astype(array.dtype), size=array.shape)
        if one.path:
            values = np.where(
                rng.random(array.shape) < share, rng.choice(wild, array.shape), values
            )
        array[...] = values


def _repair(wanted: list[Demand], grid: Grid, rng: np.random.Generator) -> None:
    """Make values tame until every operand is defined where it is evaluated."""
    changed = True
    while changed:
        changed = False
        for one in wanted:
            array, values = grid.array(one.leaf), grid.values(one.leaf)
            if array is None or values is None:
                continue
            reached = np.ones(grid.dims, bool)
            for condition, outcome in one.path:
                reached &= grid.may_hold(condition, outcome)
            wrong = reached & ~KINDS[one.kind].defined(values, one.limit)
            if not wrong.any():
                continue
            changed = True
            # The input's axes are the last ones of the grid.
            over = tuple(range(len(grid.dims) - array.ndim))
            tame = rng.choice(_tame(one, wanted).astype(array.dtype), size=array.shape)
            array[...] = np.where(wrong.any(axis=over), tame, array)


def _tame(one: Demand, wanted: list[Demand]) -> np.ndarray:
    """Return values on which all operands that an input goes into are defined."""
    values = np.asarray(KINDS[one.kind].tame)
    for other in wanted:
        if other.leaf == one.leaf:
            typed = values.astype(str(other.leaf[1]) if other.leaf[1] not in FLOATS else float)
            values = values[KINDS[other.kind].defined(typed, other.limit)]
    return values


def has_partial(program: Program) -> bool:
    """Whether an operand somewhere is undefined on some data, or outside of its elements."""
    return any(is_partial(program, number) for number in range(len(program.epilogues)))


def is_partial(program: Program, number: int) -> bool:
    """Whether an operand of an epilogue is undefined on some data, or outside of its elements."""
    stages, epilogue = stages_of(program), program.epilogues[number]
    types = (
        stages[epilogue.stage].dtype,
        stages[epilogue.other].dtype if epilogue.other >= 0 else "",
    )
    if any(node[0] in ("short", "table") for node in walk(epilogue.expr)):
        return True
    return any(True for _ in demands(epilogue.expr, types))
