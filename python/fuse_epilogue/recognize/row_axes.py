"""Finds the axes of a function along which every slice of its results is computed by itself.

The dimensions of buffers that a block indexes by one axis belong together; so do those that share a
dimension with them in another block. Such a class of dimensions is independent if every access
has a whole axis there, as `v_i` in `x[v_i, v_k]`, and the axis occurs nowhere else: the slices of
all buffers at one value of it are then a function of their own.

    y[i, j] += x[i, k] * w[k, j]      i is independent: a row of x gives a row of y; so is j
    z[i, j] = y[i, j] / s[i]          i is, and so is j
    z[i, j] = y[i, j - 1] * i         neither is

A slice may need several elements of a parameter: a window that begins at a multiple of the axis.

    y[i, j] += x[2 * i + k, j]        i is independent: a window of x gives a row of y

A function whose symbolic sizes are all those of independent axes is computed for any sizes by
kernels for a constant number of its rows, at offsets.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import PrimType, TensorLoad, prim
from tvm.tirx.buffer import BufferType

from ..tir.affine import affine_of, is_constant
from ..tir.build import replace, with_fields
from ..tir.expressions import without_loads
from ..tir.nest import Nest, all_nests, statements
from ..tir.walk import handle, loads, parts_of, same, stored_to, substitute, variables

#: Elements that a single row must have to be worth a kernel.
FEWEST = 64
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


@dataclass(frozen=True)
class RowAxes:
    """Axes of a function that kernels for a constant number of rows loop over.

    - `func` (tvm.tirx.PrimFunc): the function, with symbolic sizes. Its parameters are buffers and
      sizes.
    - `extents`: sizes by the number of an axis.
    - `dimensions`: the axis of each dimension that has one, of parameters and inner buffers.
    - `outer`: axes of which a kernel has one value.
    - `inner`: the axis of which a kernel may have several values.
    - `windows`: dimensions of parameters that an axis and taps index together.
    """

    func: Any
    extents: Mapping[int, Any]
    dimensions: Mapping[Dimension, int]
    outer: tuple[int, ...]
    inner: int | None
    windows: Mapping[Dimension, Window]

    @property
    def buffers(self) -> tuple[Any, ...]:
        """Parameters that are buffers, which are those of the kernels."""
        return tuple(param for param in self.func.params if _is_buffer(param))

    def axes_of(self, buffer: Any) -> list[int | None]:
        """Return the axis of each dimension of a buffer, None for one that kernels have whole."""
        loops = (*self.outer, self.inner)
        found = [self.dimensions.get((handle(buffer), at)) for at in range(len(buffer.shape))]
        return [axis if axis in loops else None for axis in found]

    def windows_of(self, buffer: Any) -> list[Window | None]:
        """Return the window of each dimension of a buffer, None for one that has none."""
        loops = (*self.outer, self.inner)
        found = [self.windows.get((handle(buffer), at)) for at in range(len(buffer.shape))]
        return [each if each is not None and each.axis in loops else None for each in found]

    def sizes_of(self, buffer: Any, rows: int) -> list[Any]:
        """Return the shape that a buffer has in a kernel for a number of rows."""
        found = []
        both = zip(self.axes_of(buffer), self.windows_of(buffer), buffer.shape, strict=True)
        for axis, window, size in both:
            made = None
            if window is not None:
                made = (self._extent(window.axis, rows) - 1) * window.stride + window.reach
            elif axis is not None:
                made = self._extent(axis, rows)
            found.append(size if made is None else prim.IntImm(str(size.ty.dtype), made))
        return found

    @property
    def rows(self) -> tuple[int, ...]:
        """Axes that are counted together as rows, outermost first; none if they cannot be.

        All parameters that have one of these axes must have all of them, in the same order.
        """
        if not all(map(self.is_in_one_piece, self.buffers)):
            return ()
        orders = {
            tuple(axis for axis in self.axes_of(param) if axis is not None)
            for param in self.buffers
        } - {()}
        order = orders.pop() if len(orders) == 1 else ()
        return order if set(order) == {*self.outer, self.inner} else ()

    def row_of(self, buffer: Any) -> list[Any]:
        """Return the shape of what a buffer has for one row; that of one value without rows."""
        if not self.has_rows(buffer):
            return []
        return self.sizes_of(buffer, 1)

    def is_in_one_piece(self, buffer: Any) -> bool:
        """Return whether what a kernel needs of a buffer lies together in memory."""
        axes = self.axes_of(buffer)
        last = max((at for at, axis in enumerate(axes) if axis is not None), default=0)
        return not any(self.windows_of(buffer)) and all(
            is_constant(size, 1) or axis not in (None, self.inner)
            for axis, size in zip(axes[:last], buffer.shape[:last], strict=True)
        )

    def can_be_copied(self, buffer: Any) -> bool:
        """Return whether kernels may read or write a copy of their part of a buffer.

        A copy of what a kernel stores to begins with nothing, and all of it is copied back.
        """
        touching = [
            nest.realize.block
            for nest in all_nests(self.func.body.block)
            if any(same(each, buffer) for each, _ in _accesses(nest.realize.block))
        ]
        if not any(handle(buffer) in stored_to(block) for block in touching):
            return True
        first = touching[0]
        whole = {handle(axis.var): axis.dom.extent for axis in first.iter_vars}
        return (
            first.init is not None or not any(same(e.source, buffer) for e in loads(first.body))
        ) and all(
            is_constant(size, 1) or tvm_ffi.structural_equal(whole.get(handle(index)), size)
            for store in parts_of(first, tirx.BufferStore)
            for index, size in zip(store.indices, buffer.shape, strict=True)
        )

    @property
    def has_windows(self) -> bool:
        """Whether a kernel has a window of a parameter."""
        return any(map(any, map(self.windows_of, self.buffers)))

    @property
    def elements(self) -> int:
        """The most elements that a parameter has in a row."""
        return max(math.prod(map(int, self.row_of(each))) for each in self.buffers)

    def has_rows(self, buffer: Any) -> bool:
        """Return whether an axis that kernels loop over is one of a buffer."""
        return any(each is not None for each in (*self.axes_of(buffer), *self.windows_of(buffer)))

    def _extent(self, axis: int, rows: int) -> int:
        return rows if axis == self.inner else 1

    def function(self, rows: int) -> Any:
        """Return the function for a constant number of rows.

        Its parameters are the buffers alone.
        """
        root = self.func.body.block
        buffers = [*self.buffers, *root.alloc_buffers]
        made = {}
        for buffer in buffers:
            if self.has_rows(buffer):
                sizes = self.sizes_of(buffer, rows)
                made[buffer] = tirx.decl_buffer(sizes, str(buffer.dtype), buffer.name)
        table = {handle(buffer): new for buffer, new in made.items()}
        body = self._with_extents(rows)
        block = body.block
        allocated = [table.get(handle(each), each) for each in block.alloc_buffers]
        block = with_fields(block, alloc_buffers=allocated)
        body = substitute(with_fields(body, block=block), made)
        params = [table.get(handle(each), each) for each in self.buffers]
        return with_fields(self.func, params=params, body=body)

    def _with_extents(self, rows: int) -> Any:
        """Return the body with the loops and the blocks' axes of a kernel."""
        loops: dict[int, int] = {}
        axes: dict[int, int] = {}
        for nest in all_nests(self.func.body.block):
            realize = nest.realize
            own = _axes_of_block(realize.block, self.dimensions)
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
                number = own.get(handle(axis.var))
                if number is not None and number in (*self.outer, self.inner):
                    axes[handle(axis.var)] = loops[handle(value)] = self._extent(number, rows)

        def loop(node: Any) -> Any:
            extent = loops.get(handle(node.loop_var))
            if extent is None:
                return node
            return with_fields(node, extent=prim.IntImm(str(node.extent.ty.dtype), extent))

        def block(node: Any) -> Any:
            made = [
                tirx.IterVar(_range(each, axes[handle(each.var)]), each.var, each.iter_type)
                if handle(each.var) in axes
                else each
                for each in node.iter_vars
            ]
            return with_fields(node, iter_vars=made)

        body = replace(self.func.body, tirx.For, loop)
        return replace(body, s_tir.SBlock, block)


def _range(axis: Any, extent: int) -> Any:
    dtype = str(axis.dom.extent.ty.dtype)
    return ir.Range.from_min_extent(prim.IntImm(dtype, 0), prim.IntImm(dtype, extent))


def read_row_axes(func: tirx.PrimFunc) -> RowAxes | None:
    """Return the independent axes that make a function with symbolic sizes one of constant sizes.

    - `func`: as Relax's lowering makes it, with parameters of symbolic shape.
    - Returns: None if a symbolic size is of an axis that is not independent, or that is inside of
      another one in the memory of a parameter; or if there is no symbolic size.
    """
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.match_buffers:
        return None
    root = func.body.block
    buffers = [*_tensors(func), *root.alloc_buffers]
    if not all(_is_buffer(each) for each in buffers):
        return None
    if not has_symbolic_sizes(func):
        return None
    classes = _Classes()
    for nest in all_nests(root):
        if not _adds_to(classes, nest):
            return None
    classes.settle(set(map(handle, func.params)))
    by_handle = {handle(each): each for each in buffers}
    numbers: dict[Dimension, int] = {}
    extents: dict[int, Any] = {}
    for number, members in enumerate(classes.independent()):
        sizes = [by_handle[own].shape[at] for own, at in members if own in by_handle]
        if len(sizes) != len(members) or not _all_equal(sizes):
            continue
        extents[number] = sizes[0]
        numbers.update(dict.fromkeys(members, number))
    symbolic = {number for number, size in extents.items() if not isinstance(size, prim.IntImm)}
    windows = classes.windows(numbers)
    known = {*numbers, *windows}
    for buffer in buffers:
        for at, size in enumerate(buffer.shape):
            if not isinstance(size, prim.IntImm) and (handle(buffer), at) not in known:
                return None
    if not symbolic:
        return None
    made = RowAxes(func, extents, numbers, (), None, windows)
    for inner in (*sorted(symbolic), None):
        found = _loops_around(replaced(made, outer=tuple(symbolic - {inner}), inner=inner))
        if found is not None and (inner is not None or found.elements >= FEWEST):
            return found
    inner = max(symbolic, key=lambda number: _depth(made, number))
    return replaced(made, outer=tuple(sorted(symbolic - {inner})), inner=inner)


def _depth(axes: RowAxes, number: int) -> int:
    """Return how far inside of the parameters an axis is, in all."""
    places = [
        at
        for param in axes.buffers
        for at in range(len(param.shape))
        if axes.dimensions.get((handle(param), at)) == number
    ]
    return sum(places)


def has_symbolic_sizes(func: tirx.PrimFunc) -> bool:
    """Return whether a parameter of a function has a size that is not constant."""
    sizes = [size for param in _tensors(func) for size in param.shape]
    return not all(isinstance(size, prim.IntImm) for size in sizes)


def _loops_around(axes: RowAxes) -> RowAxes | None:
    """Return the axes with more outer ones, so that nothing but windows has to be copied.

    None if that is not possible, or windows would be copied for each value of an axis that they do
    not have.
    """
    while True:
        made = replaced(axes, outer=tuple(sorted(axes.outer)))
        windowed = {handle(p): p for p in made.buffers if any(made.windows_of(p))}
        more: set[int] = set()
        for param in made.buffers:
            if handle(param) in windowed:
                continue
            own = made.axes_of(param)
            last = max((at for at, axis in enumerate(own) if axis is not None), default=-1)
            # Of what is outside of the last axis, a kernel has one value.
            for at in range(last):
                if own[at] is not None or is_constant(param.shape[at], 1):
                    continue
                number = made.dimensions.get((handle(param), at))
                if number is None or not all(map(partial(_has, made, number), windowed.values())):
                    return None
                more.add(number)
            if made.inner is not None and made.inner in own[:last]:
                return None
        if not more:
            return made
        axes = replaced(made, outer=(*made.outer, *more))


def _has(axes: RowAxes, number: int, buffer: Any) -> bool:
    """Return whether an axis is one of a buffer's, alone or with taps."""
    places = [(handle(buffer), at) for at in range(len(buffer.shape))]
    windows = [axes.windows[place].axis for place in places if place in axes.windows]
    return number in windows or number in map(axes.dimensions.get, places)


class _Classes:
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
        for each in dimensions:
            self._parent[self._root(each)] = self._root(dimensions[0])

    def dependent(self, dimension: Dimension) -> None:
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


def _adds_to(classes: _Classes, nest: Nest) -> bool:
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
    accesses = [
        (buffer, [(index, tapped.of(index)) for index in indices])
        for buffer, indices in _accesses(block)
    ]
    indexed = Counter(tap.axis for _, indices in accesses for _, tap in indices if tap is not None)
    members: defaultdict[int, list[Dimension]] = defaultdict(list)
    windows: list[tuple[Dimension, _Tap]] = []
    # Axes that index something of another size, or twice: a diagonal, the beginning of a table.
    refused: set[int] = set()
    for buffer, indices in accesses:
        seen = Counter(tap.axis for _, tap in indices if tap is not None)
        for at, ((_, tap), size) in enumerate(zip(indices, buffer.shape, strict=True)):
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


def _accesses(block: Any) -> list[tuple[Any, list[Any]]]:
    """Return the buffers that a block accesses, and their indices."""
    found: list[tuple[Any, list[Any]]] = []
    for each in (block.init, block.body):
        if each is not None:
            for node in parts_of(each, TensorLoad, tirx.BufferStore):
                buffer = node.source if isinstance(node, TensorLoad) else node.buffer
                found.append((buffer, list(node.indices)))
    return found


def _axes_of_block(block: Any, dimensions: Mapping[Dimension, int]) -> dict[int, int]:
    """Return the number of the axis that a variable of a block is, by its handle."""
    own = {handle(axis.var) for axis in block.iter_vars}
    found: dict[int, int] = {}
    for buffer, indices in _accesses(block):
        for at, index in enumerate(indices):
            number = dimensions.get((handle(buffer), at))
            if number is not None and handle(index) in own:
                found[handle(index)] = number
    return found


def _tensors(func: tirx.PrimFunc) -> list[Any]:
    """Return the parameters of a function that are arrays."""
    return [param for param in func.params if not isinstance(param.ty, PrimType)]


def _is_buffer(var: Any) -> bool:
    return isinstance(var.ty, BufferType) and not var.strides


def _all_equal(sizes: list[Any]) -> bool:
    return all(tvm_ffi.structural_equal(each, sizes[0]) for each in sizes)
