"""Finds which dimensions of buffers have one axis, and which of these axes are independent.

A class of dimensions is what blocks index by one axis. It is independent if its axis occurs nowhere
else: in no value, in no other part of an index, and in no table that has it twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ..tir.affine import affine_of, is_constant
from ..tir.expressions import without_loads
from ..tir.nest import Nest, statements
from ..tir.walk import handle, parts_of, variables

#: A dimension: the handle of a buffer, and the position in its shape.
Dimension = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """A dimension that an axis and reduced taps index together: ``axis * stride + tap``.

    - `axis`: its number.
    - `reach`: elements from the first tap to the last one.
    """

    axis: int
    stride: int
    reach: int


class Classes:
    """Dimensions that are indexed by the same axes, and which of them are not independent."""

    def __init__(self) -> None:
        self._parent: dict[Dimension, Dimension] = {}
        self._dependent: set[Dimension] = set()
        self._windows: defaultdict[Dimension, list[tuple[Dimension, int, int]]] = defaultdict(list)

    def _root(self, dimension: Dimension) -> Dimension:
        self._parent.setdefault(dimension, dimension)
        while self._parent[dimension] != dimension:
            dimension = self._parent[dimension]
        return dimension

    def together(self, dimensions: list[Dimension]) -> None:
        """Put dimensions of one axis into one class."""
        for each in dimensions:
            self._parent[self._root(each)] = self._root(dimensions[0])

    def dependent(self, dimension: Dimension) -> None:
        """Note that the class of a dimension is not independent."""
        self._root(dimension)
        self._dependent.add(dimension)

    def window(self, dimension: Dimension, axis: Dimension, stride: int, reach: int) -> None:
        """Add one of which another dimension has the axis."""
        self._windows[dimension].append((axis, stride, reach))

    def settle(self, buffers: set[int]) -> None:
        """Leave as windows what the buffers have, in one way and not indexed by an axis alone."""
        for dimension, found in self._windows.items():
            ways = {(self._root(axis), stride) for axis, stride, _ in found}
            if dimension[0] not in buffers or dimension in self._parent or len(ways) > 1:
                self.dependent(dimension)
                for axis, _, _ in found:
                    self.dependent(axis)

    def windows(self, numbers: Mapping[Dimension, int]) -> dict[Dimension, Window]:
        """Return the windows of axes that are independent."""
        return {
            dimension: Window(numbers[axis], stride, max(reach for _, _, reach in found))
            for dimension, found in self._windows.items()
            for axis, stride, _ in found[:1]
            if axis in numbers
        }

    def independent(self) -> list[list[Dimension]]:
        """Return the classes that are."""
        members: defaultdict[Dimension, list[Dimension]] = defaultdict(list)
        for each in self._parent:
            members[self._root(each)].append(each)
        refused = {self._root(each) for each in self._dependent}
        # Two axes of one size that meet in a table, as in x[v_i] - x[v_j], are not one axis.
        return [
            found
            for root, found in members.items()
            if root not in refused and len({buffer for buffer, _ in found}) == len(found)
        ]


def add_block(classes: Classes, nest: Nest) -> bool:
    """Add the accesses of a block; return whether it is one that computes every element once."""
    realize = nest.realize
    if not isinstance(realize, s_tir.SBlockRealize) or not is_constant(realize.predicate, 1):
        return False
    block = realize.block
    axes = _whole_axes(nest)
    expressions = _expressions(block)
    if axes is None or expressions is None or block.match_buffers or block.alloc_buffers:
        return False
    uses = Counter(handle(var) for each in expressions for var in variables(each))
    if not uses.keys() <= {handle(axis.var) for axis in block.iter_vars}:
        return False  # a symbolic size is a value, or a buffer is used otherwise than by loads
    tapped = _Taps(axes, block)
    accesses = [(buffer, list(map(tapped.of, indices))) for buffer, indices in accesses_of(block)]
    indexed = Counter(tap.axis for _, taps in accesses for tap in taps if tap is not None)
    members: defaultdict[int, list[Dimension]] = defaultdict(list)
    windows: list[tuple[Dimension, _Tap]] = []
    # Axes that index something of another size, or twice: a diagonal, the beginning of a table.
    refused: set[int] = set()
    for buffer, taps in accesses:
        seen = Counter(tap.axis for tap in taps if tap is not None)
        for at, (tap, size) in enumerate(zip(taps, buffer.shape, strict=True)):
            dimension = handle(buffer), at
            # Its axis is in this index and in no other, and in no value.
            if tap is None:
                classes.dependent(dimension)
            elif seen[tap.axis] > 1 or uses[tap.axis] != indexed[tap.axis]:
                refused.add(tap.axis)
                classes.dependent(dimension)
            elif tap.stride > 1 or tap.reach > 1:
                windows.append((dimension, tap))
            elif tvm_ffi.structural_equal(axes[tap.axis].dom.extent, size):
                members[tap.axis].append(dimension)
            else:
                refused.add(tap.axis)
                classes.dependent(dimension)
    for dimension, tap in windows:
        if tap.axis in members:
            classes.window(dimension, members[tap.axis][0], tap.stride, tap.reach)
        else:
            classes.dependent(dimension)
    for axis, dimensions in members.items():
        classes.together(dimensions)
        if axis in refused:
            classes.dependent(dimensions[0])
    # A symbolic size must be that of an axis of loops that become constant.
    return all(
        isinstance(axis.dom.extent, prim.IntImm) or handle(axis.var) in members
        for axis in block.iter_vars
    )


@dataclass(frozen=True)
class _Tap:
    """An index ``axis * stride + tap``, with taps below `reach`; the axis by its handle."""

    axis: int
    stride: int
    reach: int


class _Taps:
    """Reads the indices of a block.

    - `axes`: axes of the result that may be of a window, by their handle.
    """

    def __init__(self, axes: Mapping[int, Any], block: Any) -> None:
        """Know the axes, and how many taps those have that are reduced."""
        self._axes = axes
        self._own = [each.var for each in block.iter_vars if str(each.var.ty.dtype) == "int64"]
        self._extents = {handle(axis.var): axis.dom.extent for axis in block.iter_vars}

    def of(self, index: Any) -> _Tap | None:
        """Return an index of one axis that occurs in it once, None for another one."""
        if handle(index) in self._axes:
            return _Tap(handle(index), 1, 1)
        if sum(handle(var) in self._axes for var in variables(index)) != 1:
            return None
        found = affine_of(index, self._own) if str(index.ty.dtype) == "int64" else None
        if found is None or found.constant != 0:
            return None
        axis, stride, reach = 0, 0, 1
        for var, factor in zip(self._own, found.factors, strict=True):
            if factor != 0 and handle(var) in self._axes:
                axis, stride = handle(var), factor
            elif factor != 0:
                extent = self._extents[handle(var)]
                if factor < 0 or not isinstance(extent, prim.IntImm):
                    return None
                reach += factor * (int(extent) - 1)
        return _Tap(axis, stride, reach) if stride > 0 else None


def _whole_axes(nest: Nest) -> dict[int, Any] | None:
    """Return the axes of a result that a loop each goes along, by the handle of their variables.

    None unless every axis has a loop over all of it, or one value, and every loop has an axis.
    """
    loops = {handle(loop.loop_var): loop for loop in nest.loops}
    axes: dict[int, Any] = {}
    for axis, value in zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True):
        loop = loops.pop(handle(value), None)
        whole = (
            loop is not None
            and is_constant(loop.min, 0)
            and is_constant(axis.dom.min, 0)
            and (loop.step is None or is_constant(loop.step, 1))
            and tvm_ffi.structural_equal(loop.extent, axis.dom.extent)
        )
        if whole and axis.iter_type == tirx.IterVar.DataPar:
            axes[handle(axis.var)] = axis
        elif not whole and not (is_constant(axis.dom.extent, 1) and is_constant(value, 0)):
            return None
    return None if loops else axes


def _expressions(block: Any) -> list[Any] | None:
    """Return the values and indices that a block computes with, zeros in place of loads.

    None if there is another statement than a store. The types of buffers have symbolic sizes, which
    are not among the values.
    """
    found: list[Any] = []
    for body in (block.init, block.body):
        for statement in [] if body is None else statements(body):
            if not isinstance(statement, tirx.BufferStore):
                return None
            for node in (statement.value, *statement.indices):
                for load in parts_of(node, TensorLoad):
                    found += map(without_loads, load.indices)
                found.append(without_loads(node))
    return found


def accesses_of(block: Any) -> list[tuple[Any, list[Any]]]:
    """Return the buffers that a block accesses, and their indices."""
    found: list[tuple[Any, list[Any]]] = []
    for each in (block.init, block.body):
        if each is not None:
            for node in parts_of(each, TensorLoad, tirx.BufferStore):
                buffer = node.source if isinstance(node, TensorLoad) else node.buffer
                found.append((buffer, list(node.indices)))
    return found
