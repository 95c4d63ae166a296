"""A product of matrices, found in a function.

y[.., m, n] = result(sum_k left[.., m, k] * right[.., k, n] + start)

The axes before m and n number the products of a batch. A matrix may be the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...rewrites.fused_conv import Fused, find_fused
from ...rewrites.prepare import Prepare, prepare
from ...tir.affine import as_constant, is_one_to_one, unit_axes
from ...tir.expressions import added_term, is_zero, uncast
from ...tir.walk import substitute, uses
from .match import PreparedMatch
from .tiles import FLOATS, axis_loads, is_fixed, matched_reduction

#: Letters of the axes of a batch.
_BATCH = "abcdefgh"


@dataclass(frozen=True)
class Side:
    """One of the two matrices.

    - `load` (tvm.ir.TensorLoad): an element, in the axes of the reduction.
    - `letter`: "m" for the left one, "n" for the right one.
    - `transposed`: whether k runs along memory.
    - `name`: what its blocks are called after: of a matrix times itself, each side has its own.
    """

    load: Any
    letter: str
    transposed: bool
    name: str

    @property
    def dtype(self) -> str:
        """Type of its elements."""
        return str(self.load.source.ty.dtype)


@dataclass(frozen=True)
class Product(PreparedMatch):
    """A product of matrices with its epilogue.

    - `sch`, `block`: as of :class:`.match.PreparedMatch`.
    - `fused`: the result computed from a sum.
    - `axes`: those of the batch first, by other letters; then by "m", "n" and "k", of which one
      that is missing has one value.
    - `left`, `right`: the matrices.
    """

    fused: Fused
    axes: dict[str, Any]
    left: Side
    right: Side

    def size(self, letter: str) -> int:
        """Return how long an axis is."""
        return int(self.axes[letter].dom.extent) if letter in self.axes else 1

    @property
    def batch(self) -> dict[str, int]:
        """The letters of the axes that number products, and how many values each has."""
        return {letter: self.size(letter) for letter in self.axes if letter not in "mnk"}

    @property
    def count(self) -> int:
        """Number of products."""
        return math.prod(self.batch.values())

    def batch_of(self, load: Any) -> list[str]:
        """Return the letters of the batch that a load depends on."""
        return [each for each in self.batch if uses(load, self.axes[each].var)]

    @property
    def starts(self) -> bool:
        """Whether the sum starts with something else than 0."""
        return not is_zero(self.fused.start)

    @property
    def adds_first(self) -> bool:
        """Whether that is added in a block of its own: only a column rides with what follows."""
        rides = self.kinds([self.fused.start]) <= {"m"}
        follows = not uncast(self.fused.result).same_as(self.fused.sum)
        return self.starts and follows and not rides

    def others(self, exprs: Sequence[Any] | None = None) -> dict[str, list[Any]]:
        """Return what results, or some expressions, depend on besides: each load once.

        By the axes it depends on: those of the batch, "m" and "n".
        """
        outer = {key: axis for key, axis in self.axes.items() if key != "k"}
        parts = [self.fused.start, self.fused.result] if exprs is None else exprs
        once: dict[str, list[Any]] = {}
        for letters, found in (axis_loads(parts, outer) or {}).items():
            kept = once.setdefault(letters, [])
            for load in found:
                if not any(tvm_ffi.structural_equal(load, each) for each in kept):
                    kept.append(load)
        return once

    def kinds(self, exprs: Sequence[Any] | None = None) -> set[str]:
        """Return which of "", "m", "n" and "mn" results, or expressions, depend on besides."""
        return {own_letters(letters) for letters in self.others(exprs)}


def own_letters(letters: str) -> str:
    """Return those of some letters that are axes of one matrix.

    >>> own_letters("abn")
    'n'
    """
    return "".join(letter for letter in letters if letter in "mn")


def find_product(func: tirx.PrimFunc, prepared: Prepare = prepare) -> Product | None:
    """Return the product of matrices that a function is; see :func:`.tiles.matched_reduction`."""
    found = prepared(func) if is_fixed(func) else None
    return matched_reduction(found, lambda block: _matrices(block) is not None, product_in)


def product_in(sch: s_tir.Schedule, reduction: Any) -> Product | None:
    """Return the product of matrices that a function is, None if it is something else.

    - `sch`: prepared, and fused: see :func:`.tiles.fuse_all`.
    - `reduction`: SBlockRV.
    """
    block = sch.get(reduction)
    found = _matrices(block) if is_fixed(sch.mod["main"]) else None
    if found is None:
        return None
    operands, of, spatial, summed, batch = found
    fused = find_fused(sch, reduction, spatial)
    if fused is None or not is_one_to_one(fused.indices, spatial):
        return None
    fused = fused.at(unit_axes(block))
    # Columns are neighbours in the result; if it is a vector, that is a row.
    last = [axis for index in fused.indices for axis in spatial if uses(index, axis.var)][-1:]
    if last and last[0] in of[0]:
        operands, of = operands[::-1], of[::-1]
    if last and any(last[0] is axis for axis in batch):
        return None
    axes = dict(zip(_BATCH, batch, strict=False))
    axes.update(zip("k", summed, strict=False))
    for letter, own in zip("mn", of, strict=True):
        axes.update(zip(letter, own, strict=False))
    names = [str(each.source.name) for each in operands]
    if names[0] == names[1]:
        names[1] += "_again"
    sides = [_side(*each, axes) for each in zip(operands, "mn", names, strict=True)]
    if (
        sides[0] is None
        or sides[1] is None
        or any(_is_window(each, axes, operands) for each in operands)
    ):
        return None
    grouped = axis_loads([fused.start, fused.result], {k: a for k, a in axes.items() if k != "k"})
    if grouped is None or any(uses(e, fused.buffer) for e in (fused.start, fused.result)):
        return None
    return Product(sch, str(block.name_hint), fused, axes, sides[0], sides[1])


def _matrices(
    block: Any,
) -> tuple[list[Any], list[list[Any]], list[Any], list[Any], list[Any]] | None:
    """Return the operands of a product, one axis of each, and all axes of three kinds.

    Those of the result, those summed, and among the first those that number products: they are in
    both operands, or there is a longer one in the same operand alone.
    """
    found = _operands(block)
    if found is None:
        return None
    moving = [axis for axis in block.iter_vars if as_constant(axis.dom.extent) != 1]
    operands = [substitute(each, unit_axes(block)) for each in found]
    spatial = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.DataPar]
    summed = [axis for axis in moving if int(axis.iter_type) == tirx.IterVar.CommReduce]
    if len(spatial) + len(summed) != len(moving) or len(summed) > 1:
        return None
    if any(as_constant(axis.dom.min) != 0 for axis in moving):
        return None
    reading = [tuple(uses(each, axis.var) for each in operands) for axis in spatial]
    if (False, False) in reading:
        return None
    of: list[list[Any]] = []
    for own in ((True, False), (False, True)):
        alone = [axis for axis, read in zip(spatial, reading, strict=True) if read == own]
        of.append(sorted(alone, key=lambda axis: int(axis.dom.extent))[-1:])
    batch = [axis for axis in spatial if not any(axis is each for each in (*of[0], *of[1]))]
    if len(batch) > len(_BATCH):
        return None
    if not all(uses(each, axis.var) for each in operands for axis in summed):
        return None
    return operands, of, spatial, summed, batch


def _is_window(load: Any, axes: dict[str, Any], operands: list[Any]) -> bool:
    """Whether an operand has axes of its own after k: pixels of an image, which is a convolution.

    As products of a batch they would be loops over single rows.
    """
    order = [key for index in load.indices for key, axis in axes.items() if index.same_as(axis.var)]
    own = [key for key in order if key not in "mnk"]
    shared = [key for key in own if all(uses(each, axes[key].var) for each in operands)]
    after = order[order.index("k") :] if "k" in order else order
    return any(key in after for key in own if key not in shared)


def _operands(block: Any) -> list[Any] | None:
    """Return the loads a and b of ``out = out + a * b``, in float32."""
    update = block.body
    if not isinstance(update, tirx.BufferStore) or not isinstance(update.value, prim.Add):
        return None
    term = added_term(update)
    if not isinstance(term, prim.Mul) or str(term.ty.dtype) != "float32":
        return None
    found = []
    for side in (term.a, term.b):
        load = side.value if isinstance(side, prim.Cast) else side
        if not isinstance(load, TensorLoad) or str(load.source.ty.dtype) not in FLOATS:
            return None
        found.append(load)
    wide = {str(load.source.ty.dtype) == "float32" for load in found}
    return found if len(wide) == 1 else None


def _side(load: Any, letter: str, name: str, axes: dict[str, Any]) -> Side | None:
    """Return a matrix, None if its indices are not axes."""
    own = {key: axis for key, axis in axes.items() if key not in "mn" or key == letter}
    if axis_loads([load], own) is None:
        return None
    order = [key for index in load.indices for key, axis in own.items() if index.same_as(axis.var)]
    # One that ends with a number of a product would be loaded element by element.
    if order and order[-1] not in (letter, "k"):
        return None
    return Side(load, letter, order[-1:] == ["k"], name)
