"""Reads a program as a contraction: sums of products, read from where its operands are accessed.

    y[axes] = epilogue(sum over the reduced axes of a[...] * b[...])

An axis of the result is in both operands (batch), only in `a`, or only in `b`; a reduced axis is in
both. Each access is an offset that is linear in the axes. That covers products of matrices with any
operand transposed, batched and grouped ones, and convolutions, whose windows are sums of an axis
of the result and a reduced one: ``oh * stride + kh * dilation - padding``.

Padding is not copied: the operand is loaded only where its bounds hold, and is 0 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, prim

from ..tir.expressions import is_guard, without_loads
from ..tir.walk import parts_of, same, substitute, uses
from .accesses import Linear, Operand, Reader, has_guard
from .inlining import inlined
from .stages import Axis, Program, Stage

#: Nodes of an operand's expression up to which it is computed for each product.
CHEAP = 12


@dataclass(frozen=True)
class Contraction:
    """A sum of products, and what becomes of it.

    - `program`: the function.
    - `before`: elementwise stages that come before: an operand that is too dear to compute again.
    - `axes`: axes of the result, in the order of its dimensions.
    - `sums` (tvm.tirx.Buffer): buffer from which `epilogue` loads the finished sum.
    - `out`: tvm.tirx.Buffer.
    - `stored`: offset in `out`.
    - `epilogue`: the element that is stored.
    - `vectors`: whether the epilogue may be computed for several elements together. TVM evaluates
      both arms of a Select in a vector.
    - `zeros`: variables of axes of one value, which are not among the axes.
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

    def axis_name(self, axis: int) -> str:
        """Return the name of an axis, by its number as in `extents`."""
        return str((*self.axes, *self.reduced)[axis].var.name)

    def swapped(self) -> Contraction:
        """Return it with the operands exchanged."""
        return replace(self, a=self.b, b=self.a)

    def places(self, in_a: bool, in_b: bool) -> list[int]:
        """Return the axes of the result that are in these operands."""
        count = range(len(self.axes))
        return [p for p in count if self.a.has(p) == in_a and self.b.has(p) == in_b]


def read_contraction(program: Program, pad: bool = False, merge: bool = True) -> Contraction | None:
    """Return a program as a contraction.

    - `pad`: leave padding to a stage of its own; by default it is read as bounds.
    - `merge`: leave out axes of one value, and make one axis of neighbours where that is possible.
    - Returns: None if the program has not one reduction, which sums products, or if an access is
      not linear in its axes.
    """
    if sum(bool(stage.reduced) for stage in program.stages) != 1:
        return None

    def wanted(stage: Stage, readers: Sequence[Stage]) -> bool:
        to_sum = any(reader.reduced for reader in readers)
        return not to_sum or (_is_cheap(stage.value) and not (pad and has_guard(stage.value)))

    small = inlined(program, wanted)
    place = next(at for at, stage in enumerate(small.stages) if stage.reduced)
    before, reduction, after = small.stages[:place], small.stages[place], small.stages[place + 1 :]
    if len(after) > 1 or len(reduction.stores) > 1 or len(program.outputs) != 1:
        return None
    factors = _factors(reduction)
    if factors is None:
        return None
    final = after[0] if after else None
    found = _of(program, before, reduction, factors, final)
    if found is None:
        return None
    found = _simplified(found) if merge else found
    return found if _has_all_axes(found) else None


def _is_cheap(value: Any) -> bool:
    calls = parts_of(value, Call)
    cheap = len(parts_of(value, tirx.Expr)) <= CHEAP or any(map(is_guard, calls))
    return all(map(is_guard, calls)) and cheap


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
    if not isinstance(value, TensorLoad) or not same(value.source, stage.output):
        return False
    pairs = zip(value.indices, stage.axes, strict=True)
    return all(axis.extent == 1 or same(index, axis.var) for index, axis in pairs)


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
        # A sum that is used several times would be computed as often; one that is left out, as by
        # a slice, is not computed.
        if indices is None or math.prod(final.shape) > math.prod(reduction.shape):
            return None
        table = {axis.var: at for axis, at in zip(reduction.axes, indices, strict=True)}
        factors = (substitute(factors[0], table), substitute(factors[1], table))
    stored = tirx.BufferLoad(out, vars_of)
    reader = Reader(list(axes), list(reduction.reduced), [*factors, element, stored])
    reader.split()
    a = reader.operand(reader.values[0], guarded=True)
    b = reader.operand(reader.values[1], guarded=True)
    epilogue = reader.operand(reader.values[2], skip=reduction.output)
    target = reader.operand(reader.values[3])
    if a is None or b is None or epilogue is None or target is None:
        return None
    (place,) = target.accesses.values()
    return Contraction(
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


def _has_all_axes(found: Contraction) -> bool:
    """Whether each axis of the result is in an operand, and each reduced one in both."""
    count = len(found.axes)
    several = [place for place, extent in enumerate(found.extents) if extent > 1]
    return all(
        found.a.has(p) or found.b.has(p) if p < count else found.a.has(p) and found.b.has(p)
        for p in several
    )


def _sum_indices(final: Stage, reduction: Stage) -> list[Any] | None:
    """Return where a stage loads the sums; None if at several places."""
    found = [load for load in final.loads if same(load.source, reduction.output)]
    if not found or any(
        not tvm_ffi.structural_equal(tuple(load.indices), tuple(found[0].indices)) for load in found
    ):
        return None
    return list(found[0].indices)


def _simplified(found: Contraction) -> Contraction:
    """Return a contraction without axes of one value, with neighbours merged where they can be."""
    for place in reversed(range(len(found.extents))):
        if found.extents[place] == 1:
            found = _changed(found, place, partial(Linear.without, place=place), None)
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
        if uses(without_loads(operand.value), outer.var, inner.var):
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


def _changed(
    found: Contraction, place: int, rule: Callable[[Linear], Linear], together: Axis | None
) -> Contraction:
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
