"""Reads a function that only moves elements: which goes where, in as few patterns as possible.

The source of every element of a result is computed, and what is regular is joined: first elements
whose sources have one distance, then such runs, then runs of those.

    y[h, t, d] = x[t, h, d]        one pattern: 2 x 5 runs of 4 neighbours
    y = concat(a, b)               two patterns
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var, prim

from ...recognize.inlining import inlined
from ...recognize.stages import Stage, read_program
from ...rewrites.branches import with_branches
from ...rewrites.step import NotRewritten
from ...tir.expressions import is_guard
from ...tir.walk import handle, operator_name, same

#: Elements of a result up to which it is looked at: each takes 16 bytes and some nanoseconds.
MOST_ELEMENTS = 1 << 24
#: Patterns up to which a function is one: each is an instruction at least.
MOST_PATTERNS = 256
#: Runs of equal distance up to which they are joined: Python goes through them.
_MOST_RUNS = 1 << 17

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.And: np.logical_and,
    prim.Or: np.logical_or,
}


@dataclass(frozen=True)
class Dim:
    """A loop of a pattern.

    - `count`: number of iterations.
    - `out`, `source`: distances in elements, in the result and in what is read.
    """

    count: int
    out: int
    source: int


@dataclass(frozen=True)
class Pattern:
    """Elements that are moved in loops.

    - `output`, `source` (tvm.tirx.Buffer): parameters of the function.
    - `out_start`, `source_start`: the first elements, counted in the whole buffers.
    - `dims`: from the outermost; the last one has the nearest elements of the result.
    """

    output: Any
    source: Any
    out_start: int
    source_start: int
    dims: tuple[Dim, ...]

    @property
    def elements(self) -> int:
        """Number of elements that are moved."""
        return math.prod(dim.count for dim in self.dims)

    @property
    def run(self) -> int:
        """Number of elements that are neighbours in both buffers."""
        last = self.dims[-1] if self.dims else Dim(1, 1, 1)
        return last.count if last.out == last.source == 1 else 1


def find_moves(func: tirx.PrimFunc) -> tuple[Pattern, ...]:
    """Return the patterns in which a function moves elements.

    - `func`: not scheduled.
    - Raises NotRewritten: the function computes something, or moves elements without a pattern.
    """
    program = read_program(with_branches(func))
    if program is None or any(stage.reduced for stage in program.stages):
        raise NotRewritten("it must consist of blocks that each move all elements of one buffer")
    program = inlined(program)
    patterns: list[Pattern] = []
    for stage in program.stages:
        patterns += _patterns(stage)
    if len(patterns) > MOST_PATTERNS:
        raise NotRewritten(f"it moves elements in {len(patterns)} patterns")
    read, written = ({handle(buffer) for buffer in own} for own in _sides(patterns))
    if read & written:
        raise NotRewritten("it reads what it writes")
    return tuple(patterns)


def _sides(patterns: list[Pattern]) -> tuple[list[Any], list[Any]]:
    return [p.source for p in patterns], [p.output for p in patterns]


def _patterns(stage: Stage) -> list[Pattern]:
    elements = math.prod(stage.shape)
    if elements > MOST_ELEMENTS:
        raise NotRewritten(f"its result has more than {MOST_ELEMENTS} elements")
    sources: list[Any] = []
    if len(stage.stores) > 1:
        raise NotRewritten("one of its blocks stores several buffers")
    grid = np.meshgrid(*map(np.arange, stage.shape), indexing="ij", sparse=True)
    values = {handle(axis.var): at for axis, at in zip(stage.axes, grid, strict=True)}
    which, offset = _origin(stage.value, values, sources)
    which, offset = (np.broadcast_to(each, stage.shape).reshape(-1) for each in (which, offset))
    found = []
    row = stage.shape[-1] if stage.shape else 1
    for number, start, begin, dims in _joined(_runs(which, offset, row)):
        source = sources[number]
        if str(source.ty.dtype) != str(stage.output.ty.dtype):
            raise NotRewritten(f"it converts {source.ty.dtype} to {stage.output.ty.dtype}")
        found.append(Pattern(stage.output, source, start, begin, _merged(dims)))
    return found


# ---- Where an element comes from ----------------------------------------------------------------


def _origin(value: Any, at: dict[int, Any], sources: list[Any]) -> tuple[Any, Any]:
    """Return for each element which of the sources it is from, and its place in that."""
    if isinstance(value, TensorLoad):
        if not isinstance(value.source, Var) or not hasattr(value.source.ty, "shape"):
            raise NotRewritten("it reads something besides its parameters")
        known = [each for each, own in enumerate(sources) if same(own, value.source)]
        if not known:
            sources.append(value.source)
        number = known[0] if known else len(sources) - 1
        place: Any = np.int64(0)
        for index, size in zip(value.indices, value.source.ty.shape, strict=True):
            place = place * int(size) + _number(index, at)
        return np.int64(number), place
    condition = _condition(value)
    if condition is None:
        raise NotRewritten("it computes something besides moving elements")
    chosen = _number(condition, at)
    _, first, second = _choice(value)
    ours, theirs = _origin(first, at, sources), _origin(second, at, sources)
    which, place = (np.where(chosen, a, b) for a, b in zip(ours, theirs, strict=True))
    return which, place


def _condition(value: Any) -> Any:
    if isinstance(value, prim.Select):
        return value.condition
    if is_guard(value):
        return value.args[0]
    return None


def _choice(value: Any) -> tuple[Any, Any, Any]:
    if isinstance(value, prim.Select):
        return value.condition, value.true_value, value.false_value
    condition, first, second = value.args
    return condition, first, second


def _number(expr: Any, at: dict[int, Any]) -> Any:
    """Return the values of an integer or a condition for all elements."""
    match expr:
        case prim.IntImm():
            return np.int64(int(expr.value))
        case Var() if handle(expr) in at:
            return at[handle(expr)]
        case prim.Cast() if str(expr.ty.dtype).startswith("int"):
            return _number(expr.value, at)
        case prim.Not():
            return np.logical_not(_number(expr.a, at))
        case Call() if operator_name(expr).endswith("likely"):
            return _number(expr.args[0], at)
    if (condition := _condition(expr)) is not None:
        _, first, second = _choice(expr)
        return np.where(_number(condition, at), _number(first, at), _number(second, at))
    if type(expr) in _ARITHMETIC:
        return _ARITHMETIC[type(expr)](_number(expr.a, at), _number(expr.b, at))
    raise NotRewritten(f"it moves elements by '{expr}', which is known only when the kernel runs")


# ---- Patterns -----------------------------------------------------------------------------------

#: Which source, first elements of the result and of the source, loops.
_Run = tuple[int, int, int, tuple[Dim, ...]]


def _runs(which: np.ndarray, offset: np.ndarray, row: int) -> list[_Run]:
    """Return runs of elements whose sources have one distance, in their order.

    None goes on in the next row of the result: what follows by chance would hide a pattern of rows.
    """
    count = len(offset)
    jumps = np.diff(offset)
    other = (np.diff(which) != 0) | (np.arange(1, count) % row == 0)
    # The run that begins at an element goes on while the distance is that of its first two.
    same = (jumps[1:] == jumps[:-1]) & ~other[1:] & ~other[:-1]
    ends = np.append(np.flatnonzero(~same), count - 2)
    runs: list[_Run] = []
    start = 0
    while start < count:
        length = 1
        if start < count - 1 and not other[start]:
            length = int(ends[np.searchsorted(ends, start)]) + 2 - start
        distance = int(jumps[start]) if length > 1 else 1
        dims = (Dim(length, 1, distance),) if length > 1 else ()
        runs.append((int(which[start]), start, int(offset[start]), dims))
        start += length
        if len(runs) > _MOST_RUNS:
            raise NotRewritten(f"it moves elements in more than {_MOST_RUNS} pieces")
    return runs


def _joined(runs: list[_Run]) -> list[_Run]:
    """Join runs of equal shape and distance, and what becomes of them, as long as that helps.

    Others may come between them: a result of two parts has them in turns in its rows.
    """
    while True:
        alike: dict[tuple[int, tuple[Dim, ...]], list[tuple[int, int]]] = {}
        for which, start, begin, dims in runs:
            alike.setdefault((which, dims), []).append((start, begin))
        joined = [
            (which, start, begin, (*outer, *dims))
            for (which, dims), places in alike.items()
            for start, begin, outer in _steps(places)
        ]
        joined.sort(key=lambda run: run[1])
        if len(joined) == len(runs):
            return joined
        runs = joined


def _steps(places: list[tuple[int, int]]) -> Iterator[tuple[int, int, tuple[Dim, ...]]]:
    """Yield the first of places with one distance, in the result and in the source, and a loop."""
    place = 0
    while place < len(places):
        (start, begin), size = places[place], 1
        step = (0, 0)
        while place + size < len(places):
            before, later = places[place + size - 1], places[place + size]
            own = later[0] - before[0], later[1] - before[1]
            if size > 1 and own != step:
                break
            step, size = own, size + 1
        yield start, begin, (Dim(size, *step),) if size > 1 else ()
        place += size


def _merged(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return loops with those joined that go on where the next one ends, in both buffers."""
    found: list[Dim] = []
    for dim in reversed(dims):
        inner = found[-1] if found else None
        if inner and (dim.out, dim.source) == (inner.out * inner.count, inner.source * inner.count):
            found[-1] = Dim(dim.count * inner.count, inner.out, inner.source)
        else:
            found.append(dim)
    return tuple(reversed(found))


# ---- Indices ------------------------------------------------------------------------------------


def indices(
    shape: tuple[int, ...], start: int, loops: list[tuple[Any, int, int]], number: Any
) -> list[Any] | None:
    """Return the indices of an element whose place is a sum over loops.

    - `shape`: shape of the buffer.
    - `start`: the first place.
    - `loops`: variable, extent and distance of each loop.
    - `number` (callable): makes an integer of TIR.
    - Returns: None if an index would leave its dimension: then a loop goes through several rows.
    """
    found: list[Any] = []
    sizes = list(shape)
    units = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    for size, unit in zip(sizes, units, strict=True):
        first = start // unit % size
        low = high = first
        index = number(first)
        for var, extent, distance in loops:
            digit = int(math.fmod(distance, unit * size) / unit) if unit else 0
            if digit:
                index = index + var * number(digit)
                low, high = low + min(0, digit * (extent - 1)), high + max(0, digit * (extent - 1))
        if low < 0 or high >= size:
            return None
        found.append(tvm.sym.Analyzer().simplify(index))
    return found
