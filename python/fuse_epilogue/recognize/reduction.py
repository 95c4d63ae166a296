"""Reads how a reduction combines its elements, so that parts of it can be combined afterwards.

total[i] = total[i] + x[i, k]            elements x[i, k]        merged left + right
best[i] = select(v[i] > x, best[i], k)   elements k, x[i, k]     merged select(left_1 > right_1,
v[i] = select(v[i] > x, v[i], x)                                               left_0, right_0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, prim

from ..tir.affine import is_constant
from ..tir.walk import handle, loads, same, substitute, uses
from .stages import Stage, Store


@dataclass(frozen=True)
class Reduction:
    """The way in which a stage combines elements.

    - `elements`: by store, one element, in the spatial and the reduced axes.
    - `left`, `right`: by store, the two values that are combined.
    - `merged`: by store, the values combined, in `left` and `right` alone.
    - `neutral`: by store, the value that changes nothing.
    - `repeatable`: by store, whether combining an element again changes nothing, as for a maximum.
    - `starts`: by store, the value that a result begins with, where that is not the neutral one.
    """

    elements: tuple[Any, ...]
    left: tuple[Any, ...]
    right: tuple[Any, ...]
    merged: tuple[Any, ...]
    neutral: tuple[Any, ...]
    repeatable: tuple[bool, ...]
    starts: tuple[Any, ...]

    def combined(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        """Return the expressions of two values combined, by store."""
        table = dict(zip((*self.left, *self.right), (*left, *right), strict=True))
        return tuple(substitute(each, table) for each in self.merged)


def read_reduction(stage: Stage) -> Reduction | None:
    """Return how a stage combines its elements.

    - `stage`: with reduced axes.
    - Returns: None if a value is not that of an operation that can be regrouped.
    """
    types = [str(store.buffer.dtype) for store in stage.stores]
    left = tuple(tirx.Var(f"left_{place}", dtype) for place, dtype in enumerate(types))
    right = tuple(tirx.Var(f"right_{place}", dtype) for place, dtype in enumerate(types))
    values = _with_left(stage, left)
    if values is None:
        return None
    if any(
        uses(store.init, *(axis.var for axis in stage.axes)) or loads(store.init)
        for store in stage.stores
    ):
        return None
    parts = [_part(value, left, place) for place, value in enumerate(values)]
    if all(part is not None for part in parts):
        kinds, elements = zip(*[part for part in parts if part is not None], strict=True)
        merged = tuple(kind(a, b) for kind, a, b in zip(kinds, left, right, strict=True))
        neutral = [_neutral(kind, store) for kind, store in zip(kinds, stage.stores, strict=True)]
        repeatable = tuple(kind not in (prim.Add, prim.Mul) for kind in kinds)
        starts = tuple(
            None if _equal(own, store.init) else store.init
            for own, store in zip(neutral, stage.stores, strict=True)
        )
        return Reduction(elements, left, right, merged, tuple(neutral), repeatable, starts)
    joint = _joint(stage, values, left, right)
    if joint is None:
        return None
    elements, merged = joint
    inits = tuple(store.init for store in stage.stores)
    several = len(inits)
    return Reduction(elements, left, right, merged, inits, (True,) * several, (None,) * several)


def _with_left(stage: Stage, left: Sequence[Any]) -> list[Any] | None:
    """Return the values with variables in place of the results so far."""
    table = {handle(store.buffer): var for store, var in zip(stage.stores, left, strict=True)}
    own = [axis.var for axis in stage.axes]

    def is_own(load: Any) -> bool:
        return all(
            same(index, var) or (axis.extent == 1 and is_constant(index, 0))
            for index, var, axis in zip(load.indices, own, stage.axes, strict=True)
        )

    for store in stage.stores:
        for load in loads(store.value):
            if handle(load.source) in table and not is_own(load):
                return None

    def value(load: Any) -> Any:
        return table.get(handle(load.source), load)

    return [tvm_ffi.structural_map(store.value, (TensorLoad, value)) for store in stage.stores]


#: Operations whose operands may be regrouped and swapped: of floats up to rounding.
_KINDS = (prim.Add, prim.Mul, prim.Max, prim.Min, prim.And, prim.Or)


def _part(value: Any, left: Sequence[Any], place: int) -> tuple[Any, Any] | None:
    """Return the operation and the element of a store that is combined by itself."""
    for kind in _KINDS:
        if isinstance(value, kind):
            for a, b in ((value.a, value.b), (value.b, value.a)):
                if same(a, left[place]) and not uses(b, *left):
                    return kind, b
    return None


def _neutral(kind: Any, store: Store) -> Any:
    dtype = str(store.buffer.dtype)
    if kind is prim.Add:
        return tirx.const(0, dtype)
    if kind is prim.Mul:
        return tirx.const(1, dtype)
    # Combined any number of times, the start is the same as combined once.
    return store.init


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, prim.FloatImm) and isinstance(b, prim.FloatImm):
        same_sign = math.copysign(1.0, a.value) == math.copysign(1.0, b.value)
        return bool(a.value == b.value) and same_sign
    return bool(tvm_ffi.structural_equal(a, b))


def _joint(
    stage: Stage, values: Sequence[Any], left: Sequence[Any], right: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return elements and merged values where one store decides on another, as in argmax."""
    elements = []
    for value, var in zip(values, left, strict=True):
        element = _chosen(value, var)
        if element is None or uses(element, *left):
            return None
        elements.append(element)
    merged = []
    for value in values:

        def rule(node: Any) -> Any:
            for element, var in zip(elements, right, strict=True):
                if tvm_ffi.structural_equal(node, element):
                    return var
            return node

        changed = tvm_ffi.structural_map(value, (TensorLoad, rule), order="pre")
        if not isinstance(changed, tirx.Var):
            changed = tvm_ffi.structural_map(changed, (tirx.Expr, rule), order="pre")
        axes = [axis.var for axis in (*stage.axes, *stage.reduced)]
        if loads(changed) or uses(changed, *axes):
            return None
        if str(changed.ty.dtype) != str(tvm.DataType(str(value.ty.dtype))):
            return None
        merged.append(changed)
    return tuple(elements), tuple(merged)


def _chosen(value: Any, left: Any) -> Any:
    """Return what a store chooses instead of the result so far, None if it chooses nothing."""
    if isinstance(value, prim.Select):
        for a, b in ((value.true_value, value.false_value), (value.false_value, value.true_value)):
            if same(a, left):
                return b
    if isinstance(value, prim.Max | prim.Min):
        for a, b in ((value.a, value.b), (value.b, value.a)):
            if same(a, left):
                return b
    return None
