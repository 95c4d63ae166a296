"""Read a program as a contraction: sums of products, read from where its operands are accessed.

    y[axes] = epilogue(sum over the reduced axes of a[...] * b[...])

An axis of the result is in both operands (batch), only in `a`, or only in `b`; a reduced axis is in
both. Each access is an offset that is linear in the axes. That covers products of matrices with any
operand transposed, batched and grouped ones, and convolutions, whose windows are sums of an axis
of the result and a reduced one: ``oh * stride + kh * dilation - padding``.

Padding is not copied: the operand is loaded only where :class:`Bound` holds, and is 0 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim
from tvm.sym import Analyzer, detect_linear_equation

from ..schedules.branches import may_be_discarded
from ..tir_tree import handle, loads, substitute, uses
from .stages import Axis, Program, Stage, analyzer_of, inlined

#: Nodes of an operand's expression up to which it is computed for each product.
CHEAP = 12


@dataclass(frozen=True)
class Linear:
    """An integer that is linear in the axes of a contraction.

    Attributes
    ----------
    factors : tuple[int, ...]
        One for each axis, those of the result first.
    constant : int
    """

    factors: tuple[int, ...]
    constant: int

    def merged(self, place: int, extent: int) -> Linear | None:
        """Return it with an axis and the next one as one, None if it is not linear in that."""
        outer, inner = self.factors[place : place + 2]
        if outer != inner * extent:
            return None
        return Linear((*self.factors[:place], *self.factors[place + 1 :]), self.constant)

    def without(self, place: int) -> Linear:
        """Return it without an axis, which is always 0."""
        return Linear((*self.factors[:place], *self.factors[place + 1 :]), self.constant)


@dataclass(frozen=True)
class Bound:
    """A range in which an index has to be: ``0 <= index < size``.

    Attributes
    ----------
    index : Linear
    size : int
    axis : int
        Place of the axis of the result that is in the index, with a positive factor.
    tap : int
        Place of the reduced axis that is in the index, with a positive factor.
    """

    index: Linear
    size: int
    axis: int
    tap: int


@dataclass(frozen=True)
class Operand:
    """A factor of the products.

    Attributes
    ----------
    value : Expr
        With loads, which are the keys of `accesses`.
    accesses : dict[int, Linear]
        Offset in elements, by the handle of the load.
    bounds : tuple[Bound, ...]
        Outside of them, the factor is 0 and nothing is loaded.
    """

    value: Any
    accesses: dict[int, Linear]
    bounds: tuple[Bound, ...] = ()

    @property
    def loads(self) -> list[Any]:
        """The loads of the value."""
        return loads(self.value)

    def factors(self, place: int) -> tuple[int, ...]:
        """Return the factor of an axis in each access and bound."""
        linears = (*self.accesses.values(), *(bound.index for bound in self.bounds))
        return tuple(linear.factors[place] for linear in linears)

    def has(self, place: int) -> bool:
        """Whether it depends on an axis."""
        return any(self.factors(place))

    def only_load(self) -> Any | None:
        """Return its load if it is nothing else, but for casts; None otherwise."""
        value = self.value
        while isinstance(value, prim.Cast):
            value = value.value
        return value if isinstance(value, TensorLoad) else None


@dataclass(frozen=True)
class Contraction:
    """A sum of products, and what becomes of it.

    Attributes
    ----------
    program : Program
        The function.
    before : tuple[Stage, ...]
        Elementwise stages that come before: an operand that is too dear to compute again.
    axes : tuple[Axis, ...]
        Axes of the result, in the order of its dimensions.
    reduced : tuple[Axis, ...]
    a, b : Operand
    sums : tvm.tirx.Buffer
        What `epilogue` loads the finished sum from.
    out : tvm.tirx.Buffer
    stored : Linear
        Offset in `out`.
    epilogue : Operand
        The element that is stored.
    vectors : bool
        Whether the epilogue may be computed for several elements together. TVM evaluates both arms
        of a Select in a vector.
    zeros : tuple[Var, ...]
        Variables of axes of one value, which are not among the axes.
    """

    program: Program
    before: tuple[Stage, ...]
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    a: Operand
    b: Operand
    sums: Any
    out: Any
    stored: Linear
    epilogue: Operand
    vectors: bool = True
    zeros: tuple[Any, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of all axes, those of the result first."""
        return tuple(axis.extent for axis in (*self.axes, *self.reduced))

    @property
    def dtype(self) -> str:
        """Type of the sums."""
        return str(self.sums.dtype)

    @property
    def products(self) -> int:
        """Number of products."""
        return math.prod(self.extents)

    def swapped(self) -> Contraction:
        """Return it with the operands exchanged."""
        return replace(self, a=self.b, b=self.a)

    def places(self, in_a: bool, in_b: bool) -> list[int]:
        """Return the axes of the result that are in these operands."""
        count = range(len(self.axes))
        return [p for p in count if self.a.has(p) == in_a and self.b.has(p) == in_b]


def read_contraction(program: Program, pad: bool = False) -> Contraction | None:
    """Return a program as a contraction.

    Parameters
    ----------
    program : Program
    pad : bool
        Leave padding to a stage of its own; by default it is read as bounds.

    Returns
    -------
    Contraction or None
        None if the program has not one reduction, which sums products, or if an access is not
        linear in its axes.

    Example
    -------
    >>> from fuse_epilogue.recognize.stages import read_program
    >>> from fuse_epilogue.workloads import matmul
    >>> found = read_contraction(read_program(matmul(4, 5, 6, activation="relu")))
    >>> [axis.extent for axis in found.axes], [axis.extent for axis in found.reduced]
    ([4, 5], [6])
    """
    if sum(bool(stage.reduced) for stage in program.stages) != 1:
        return None

    def wanted(stage: Stage, readers: Sequence[Stage]) -> bool:
        to_sum = any(reader.reduced for reader in readers)
        return not to_sum or (_is_cheap(stage.value) and not (pad and _has_guard(stage.value)))

    small = inlined(program, wanted)
    place = next(at for at, stage in enumerate(small.stages) if stage.reduced)
    before, reduction, after = small.stages[:place], small.stages[place], small.stages[place + 1 :]
    if len(after) > 1 or len(reduction.stores) > 1 or len(program.outputs) != 1:
        return None
    factors = _factors(reduction)
    if factors is None:
        return None
    final = after[0] if after else None
    return _of(program, before, reduction, factors, final)


def _is_cheap(value: Any) -> bool:
    nodes: list[Any] = []
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, (tirx.Expr, nodes.append))
    tvm_ffi.structural_walk(value, (Call, calls.append))
    dear = [call for call in calls if not _is_guard(call)]
    return not dear and (len(nodes) <= CHEAP or any(map(_is_guard, calls)))


def _has_guard(value: Any) -> bool:
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, (Call, calls.append))
    return any(map(_is_guard, calls))


def _is_guard(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") == "prim.if_then_else"


def _factors(stage: Stage) -> tuple[Any, Any] | None:
    """Return the two factors of a sum of products from 0."""
    init, value = stage.init, stage.value
    if not isinstance(init, prim.IntImm | prim.FloatImm) or init.value != 0:
        return None
    if not isinstance(value, prim.Add) or str(value.ty.dtype) != str(stage.output.dtype):
        return None
    so_far, term = value.a, value.b
    if not _is_own(so_far, stage):
        so_far, term = term, so_far
    if not _is_own(so_far, stage) or uses(term, stage.output):
        return None
    return (term.a, term.b) if isinstance(term, prim.Mul) else None


def _is_own(value: Any, stage: Stage) -> bool:
    """Whether a value is the element so far: its indices are the axes."""
    if not isinstance(value, TensorLoad) or handle(value.source) != handle(stage.output):
        return False
    pairs = zip(value.indices, stage.axes, strict=True)
    return all(axis.extent == 1 or handle(index) == handle(axis.var) for index, axis in pairs)


def _of(
    program: Program,
    before: tuple[Stage, ...],
    reduction: Stage,
    factors: tuple[Any, Any],
    final: Stage | None,
) -> Contraction | None:
    axes = reduction.axes if final is None else final.axes
    out = reduction.output if final is None else final.output
    if not program.is_param(out):
        return None
    vars_of = [axis.var for axis in axes]
    element = tirx.BufferLoad(reduction.output, [axis.var for axis in reduction.axes])
    if final is not None:
        element = final.value
        indices = _sum_indices(final, reduction)
        # Each sum is used once: otherwise, the stage after it broadcasts or leaves out some.
        if indices is None or math.prod(final.shape) != math.prod(reduction.shape):
            return None
        table = {axis.var: at for axis, at in zip(reduction.axes, indices, strict=True)}
        factors = (substitute(factors[0], table), substitute(factors[1], table))
    stored = tirx.BufferLoad(out, vars_of)
    reader = _Reader(list(axes), list(reduction.reduced), [*factors, element, stored])
    reader.split()
    parts = [
        reader.operand(reader.values[0], guarded=True),
        reader.operand(reader.values[1], guarded=True),
        reader.operand(reader.values[2], skip=reduction.output),
        reader.operand(reader.values[3]),
    ]
    if any(part is None for part in parts):
        return None
    a, b, epilogue, target = parts
    (place,) = target.accesses.values()
    found = Contraction(
        program,
        before,
        tuple(reader.axes),
        tuple(reader.reduced),
        a,
        b,
        reduction.output,
        out,
        place,
        epilogue,
        reader.may_be_vectors(reader.values[2]),
    )
    found = _simplified(found)
    if any(not (found.a.has(p) or found.b.has(p)) for p in range(len(found.axes))):
        return None
    count = len(found.axes)
    if any(not (found.a.has(p) and found.b.has(p)) for p in range(count, len(found.extents))):
        return None
    return found


def _sum_indices(final: Stage, reduction: Stage) -> list[Any] | None:
    """Return where a stage loads the sums; None if at several places."""
    found = [load for load in final.loads if handle(load.source) == handle(reduction.output)]
    if not found or any(
        not tvm_ffi.structural_equal(tuple(load.indices), tuple(found[0].indices)) for load in found
    ):
        return None
    return list(found[0].indices)


class _Reader:
    """Reads accesses in the axes, some of which it splits so that all are linear."""

    def __init__(self, axes: list[Axis], reduced: list[Axis], values: list[Any]) -> None:
        self.axes, self.reduced = axes, reduced
        self.values = values

    def split(self) -> None:
        """Make two axes of each one whose quotient or remainder is in an index."""
        for _ in range(8):
            self._simplify()
            found = self._first_split()
            if found is None:
                return
            axis, by = found
            inner = Axis(tirx.Var(f"{axis.var.name}_i", str(axis.var.ty.dtype)), by)
            outer = Axis(tirx.Var(f"{axis.var.name}_o", str(axis.var.ty.dtype)), axis.extent // by)
            whole = outer.var * prim.IntImm(str(axis.var.ty.dtype), by) + inner.var
            self.values = [substitute(value, {axis.var: whole}) for value in self.values]
            for group in (self.axes, self.reduced):
                if axis in group:
                    at = group.index(axis)
                    group[at : at + 1] = [outer, inner]

    def _first_split(self) -> tuple[Axis, int] | None:
        by_var = {handle(axis.var): axis for axis in (*self.axes, *self.reduced)}
        for value in self.values:
            for load in loads(value):
                nodes: list[Any] = []
                for index in load.indices:
                    tvm_ffi.structural_walk(index, (prim.FloorDiv, nodes.append))
                    tvm_ffi.structural_walk(index, (prim.FloorMod, nodes.append))
                for node in nodes:
                    axis = by_var.get(handle(node.a))
                    if axis is None or not isinstance(node.b, prim.IntImm):
                        continue
                    by = int(node.b)
                    if 1 < by < axis.extent and axis.extent % by == 0:
                        return axis, by
        return None

    def _simplify(self) -> None:
        analyzer = analyzer_of((*self.axes, *self.reduced))

        def load(node: Any) -> Any:
            return tirx.BufferLoad(node.source, [analyzer.simplify(i) for i in node.indices])

        self.values = [tvm_ffi.structural_map(value, (TensorLoad, load)) for value in self.values]

    def may_be_vectors(self, value: Any) -> bool:
        """Return whether a value may be computed for several elements together."""
        selects: list[Any] = []
        tvm_ffi.structural_walk(value, (prim.Select, selects.append))
        return not selects or may_be_discarded(value, analyzer_of((*self.axes, *self.reduced)))

    def operand(self, value: Any, guarded: bool = False, skip: Any = None) -> Operand | None:
        """Return a value with its accesses, None if one is not linear."""
        analyzer = analyzer_of((*self.axes, *self.reduced))
        bounds: tuple[Bound, ...] = ()
        if guarded:
            inside = value
            casts = []
            while isinstance(inside, prim.Cast):
                casts.append(str(inside.ty.dtype))
                inside = inside.value
            if _is_guard(inside):
                found = self._bounds(inside, analyzer)
                if found is None:
                    return None
                bounds, value = found
                for dtype in reversed(casts):
                    value = prim.Cast(dtype, value)
        if _has_guard(value) and guarded:
            return None
        accesses: dict[int, Linear] = {}
        for load in loads(value):
            if skip is not None and handle(load.source) == handle(skip):
                continue
            total: Any = 0
            for index, size in zip(load.indices, load.source.shape, strict=True):
                total = total * int(size) + index
            linear = self._linear(total, analyzer)
            if linear is None:
                return None
            accesses[handle(load)] = linear
        return Operand(value, accesses, bounds)

    def _linear(self, value: Any, analyzer: Analyzer) -> Linear | None:
        if isinstance(value, int):
            value = prim.IntImm("int64", value)
        if loads(value):
            return None
        variables = [axis.var for axis in (*self.axes, *self.reduced)]
        found = detect_linear_equation(analyzer.simplify(value), variables)
        if len(found) == 0 or not all(isinstance(each, prim.IntImm) for each in found):
            return None
        factors = tuple(int(each) for each in found)
        return Linear(factors[:-1], factors[-1])

    def _bounds(self, guard: Any, analyzer: Analyzer) -> tuple[tuple[Bound, ...], Any] | None:
        """Return the bounds of ``if_then_else(condition, value, 0)`` and the value."""
        condition, value, otherwise = guard.args
        if not isinstance(otherwise, prim.IntImm | prim.FloatImm) or otherwise.value != 0:
            return None
        found = loads(value)
        if len(found) != 1:
            return None
        indices = [self._linear(index, analyzer) for index in found[0].indices]
        if any(index is None for index in indices):
            return None
        sizes = [int(size) for size in found[0].source.shape]
        ends: dict[int, set[bool]] = {place: set() for place in range(len(sizes))}
        for term in _terms(condition):
            inequality = self._inequality(term, analyzer)
            if inequality is None:
                return None
            if all(factor == 0 for factor in inequality.factors) and inequality.constant >= 0:
                continue
            for place, (index, size) in enumerate(zip(indices, sizes, strict=True)):
                above = index == inequality
                below = inequality == Linear(
                    tuple(-each for each in index.factors), size - 1 - index.constant
                )
                if above or below:
                    ends[place].add(above)
                    break
            else:
                return None
        bounds = []
        for place, (index, size) in enumerate(zip(indices, sizes, strict=True)):
            if not ends[place]:
                continue
            bound = self._bound(index, size)
            if bound is None:
                return None
            bounds.append(bound)
        return tuple(bounds), value

    def _bound(self, index: Linear, size: int) -> Bound | None:
        """Return a bound; one end that is not tested holds anyway, as the load is in its buffer."""
        in_result = [p for p in range(len(self.axes)) if index.factors[p]]
        count = len(index.factors)
        in_sum = [p for p in range(len(self.axes), count) if index.factors[p]]
        if len(in_result) != 1 or len(in_sum) > 1:
            return None
        if any(factor < 0 for factor in index.factors):
            return None
        return Bound(index, size, in_result[0], in_sum[0] if in_sum else -1)

    def _inequality(self, term: Any, analyzer: Analyzer) -> Linear | None:
        """Return what has to be at least 0."""
        if isinstance(term, prim.LE):
            value = term.b - term.a
        elif isinstance(term, prim.LT):
            value = term.b - term.a - 1
        elif isinstance(term, prim.GE):
            value = term.a - term.b
        elif isinstance(term, prim.GT):
            value = term.a - term.b - 1
        else:
            return None
        return self._linear(value, analyzer)


def _terms(condition: Any) -> Iterable[Any]:
    if isinstance(condition, prim.And):
        yield from _terms(condition.a)
        yield from _terms(condition.b)
    else:
        yield condition


def _simplified(found: Contraction) -> Contraction:
    """Return a contraction without axes of one value, with neighbours merged where they can be."""
    for place in reversed(range(len(found.extents))):
        if found.extents[place] == 1:
            found = _changed(found, place, lambda linear, p=place: linear.without(p), None)
    place = len(found.extents) - 2
    while place >= 0:
        found = _merged(found, place) or found
        place -= 1
    return found


def _merged(found: Contraction, place: int) -> Contraction | None:
    count = len(found.axes)
    if place + 1 == count:
        return None
    axes = (*found.axes, *found.reduced)
    outer, inner = axes[place], axes[place + 1]
    bounds = [bound.index for operand in (found.a, found.b) for bound in operand.bounds]
    if any(linear.factors[place] or linear.factors[place + 1] for linear in bounds):
        return None
    for operand in (found.a, found.b, found.epilogue):
        if uses(_without_loads(operand.value), outer.var, inner.var):
            return None
        for linear in operand.accesses.values():
            if linear.merged(place, inner.extent) is None:
                return None
    if found.stored.merged(place, inner.extent) is None:
        return None
    name = f"{outer.var.name}_{inner.var.name}"
    together = Axis(tirx.Var(name, "int64"), outer.extent * inner.extent)

    def rule(linear: Linear) -> Linear:
        merged = linear.merged(place, inner.extent)
        return linear.without(place) if merged is None else merged

    return _changed(found, place, rule, together)


def _without_loads(value: Any) -> Any:
    return tvm_ffi.structural_map(
        value, (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype)))
    )


def _changed(found: Contraction, place: int, rule: Any, together: Axis | None) -> Contraction:
    """Return a contraction with a rule applied to all that is linear in its axes.

    The axis at `place` is left out, or it and the next one become `together`.
    """
    removed, zeros = [found.axes, found.reduced], found.zeros
    which, at = (0, place) if place < len(found.axes) else (1, place - len(found.axes))
    group = removed[which]
    if together is None:
        zeros = (*zeros, group[at].var)
        removed[which] = (*group[:at], *group[at + 1 :])
    else:
        removed[which] = (*group[:at], together, *group[at + 2 :])

    def moved(axis: int) -> int:
        return axis - 1 if axis > place else axis

    def operand(each: Operand) -> Operand:
        accesses = {load: rule(linear) for load, linear in each.accesses.items()}
        bounds = tuple(
            replace(
                bound,
                index=rule(bound.index),
                axis=-1 if bound.axis == place else moved(bound.axis),
                tap=-1 if bound.tap == place else moved(bound.tap),
            )
            for bound in each.bounds
        )
        return Operand(each.value, accesses, bounds)

    return replace(
        found,
        zeros=zeros,
        axes=tuple(removed[0]),
        reduced=tuple(removed[1]),
        a=operand(found.a),
        b=operand(found.b),
        epilogue=operand(found.epilogue),
        stored=rule(found.stored),
    )
