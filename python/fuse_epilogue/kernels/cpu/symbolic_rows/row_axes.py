"""The axes of a function of symbolic sizes that its kernels loop over.

A kernel has one value of each outer axis and a constant number of values of the inner one. Where an
outer axis would be inside of the inner one in the memory of a parameter, the kernel needs a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from ....recognize.independent_axes import IndependentAxes
from ....recognize.row_dimensions import Dimension, Window, accesses_of
from ....tir.affine import is_constant
from ....tir.build import replace, with_fields
from ....tir.nest import all_nests
from ....tir.walk import handle, loads, parts_of, same, stored_to, substitute

#: Elements that a single row must have to be worth a kernel.
FEWEST = 64


@dataclass(frozen=True)
class RowAxes(IndependentAxes):
    """Axes of a function that kernels for a constant number of rows loop over.

    - `outer`: axes of which a kernel has one value.
    - `inner`: the axis of which a kernel may have several values.
    """

    outer: tuple[int, ...]
    inner: int | None

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
        blocks = [nest.realize.block for nest in all_nests(self.func.body.block)]
        if not any(handle(buffer) in stored_to(block) for block in blocks):
            return True
        first = next(
            block for block in blocks if any(same(each, buffer) for each, _ in accesses_of(block))
        )
        reads_before = first.init is None and any(
            same(load.source, buffer) for load in loads(first.body)
        )
        extents = {handle(axis.var): axis.dom.extent for axis in first.iter_vars}
        stores_all = all(
            is_constant(size, 1) or tvm_ffi.structural_equal(extents.get(handle(index)), size)
            for store in parts_of(first, tirx.BufferStore)
            for index, size in zip(store.indices, buffer.shape, strict=True)
        )
        return stores_all and not reads_before

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


def row_axes(found: IndependentAxes) -> RowAxes:
    """Return the axes that the kernels of a function loop over, so that they copy little.

    Kernels copy several rows where only single rows could be had without copies, and are small.
    """
    symbolic = found.symbolic
    for inner in (*sorted(symbolic), None):
        made = _loops_around(RowAxes(**vars(found), outer=tuple(symbolic - {inner}), inner=inner))
        if made is not None and (inner is not None or made.elements >= FEWEST):
            return made
    inner = max(symbolic, key=lambda number: _depth(found, number))
    return RowAxes(**vars(found), outer=tuple(sorted(symbolic - {inner})), inner=inner)


def _depth(axes: IndependentAxes, number: int) -> int:
    """Return how far inside of the parameters an axis is, in all."""
    places = [
        at
        for param in axes.buffers
        for at in range(len(param.shape))
        if axes.dimensions.get((handle(param), at)) == number
    ]
    return sum(places)


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


def _axes_of_block(block: Any, dimensions: Mapping[Dimension, int]) -> dict[int, int]:
    """Return the number of the axis that a variable of a block is, by its handle."""
    own = {handle(axis.var) for axis in block.iter_vars}
    found: dict[int, int] = {}
    for buffer, indices in accesses_of(block):
        for at, index in enumerate(indices):
            number = dimensions.get((handle(buffer), at))
            if number is not None and handle(index) in own:
                found[handle(index)] = number
    return found
