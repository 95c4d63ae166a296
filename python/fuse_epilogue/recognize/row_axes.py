"""Finds the axes of a function along which every slice of its results is computed by itself.

The dimensions of buffers that a block indexes by one axis belong together; so do those that share a
dimension with them in another block. Such a class of dimensions is independent if every access
has a whole axis there, as `v_i` in `x[v_i, v_k]`, and the axis occurs nowhere else: the slices of
all buffers at one value of it are then a function of their own.

    y[i, j] += x[i, k] * w[k, j]      i is independent: a row of x gives a row of y; so is j
    z[i, j] = y[i, j] / s[i]          i is, and so is j
    z[i, j] = y[i, j - 1] * i         neither is

A function whose symbolic sizes are all those of independent axes is computed for any sizes by
kernels for a constant number of its rows, at offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import PrimType, TensorLoad, prim
from tvm.tirx.buffer import BufferType

from ..tir.affine import is_constant
from ..tir.build import replace, with_fields
from ..tir.expressions import without_loads
from ..tir.nest import Nest, all_nests, statements
from ..tir.walk import handle, parts_of, substitute, variables

#: A dimension: the handle of a buffer, and the position in its shape.
Dimension = tuple[int, int]


@dataclass(frozen=True)
class RowAxes:
    """Axes of a function that kernels for a constant number of rows loop over.

    - `func` (tvm.tirx.PrimFunc): the function, with symbolic sizes. Its parameters are buffers and
      sizes.
    - `extents`: sizes by the number of an axis.
    - `dimensions`: the axis of each dimension that has one, of parameters and inner buffers.
    - `outer`: axes of which a kernel has one value.
    - `inner`: the axis of which a kernel may have several values.
    """

    func: Any
    extents: Mapping[int, Any]
    dimensions: Mapping[Dimension, int]
    outer: tuple[int, ...]
    inner: int | None

    @property
    def buffers(self) -> tuple[Any, ...]:
        """Parameters that are buffers, which are those of the kernels."""
        return tuple(param for param in self.func.params if _is_buffer(param))

    def axes_of(self, buffer: Any) -> list[int | None]:
        """Return the axis of each dimension of a buffer, None for one that kernels have whole."""
        loops = (*self.outer, self.inner)
        found = [self.dimensions.get((handle(buffer), at)) for at in range(len(buffer.shape))]
        return [axis if axis in loops else None for axis in found]

    def sizes_of(self, buffer: Any, rows: int) -> list[Any]:
        """Return the shape that a buffer has in a kernel for a number of rows."""
        return [
            size if axis is None else prim.IntImm(str(size.ty.dtype), self._extent(axis, rows))
            for axis, size in zip(self.axes_of(buffer), buffer.shape, strict=True)
        ]

    @property
    def rows(self) -> tuple[int, ...]:
        """Axes that are counted together as rows, outermost first; none if they cannot be.

        All parameters that have one of these axes must have all of them, in the same order.
        """
        orders = {
            tuple(axis for axis in self.axes_of(param) if axis is not None)
            for param in self.buffers
        } - {()}
        order = orders.pop() if len(orders) == 1 else ()
        return order if set(order) == {*self.outer, self.inner} else ()

    def row_of(self, buffer: Any) -> list[Any]:
        """Return the shape of what a buffer has for one row; that of one value without rows."""
        if all(axis is None for axis in self.axes_of(buffer)):
            return []
        return self.sizes_of(buffer, 1)

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
            if any(axis is not None for axis in self.axes_of(buffer)):
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
    for buffer in buffers:
        for at, size in enumerate(buffer.shape):
            if not isinstance(size, prim.IntImm) and (handle(buffer), at) not in numbers:
                return None
    if not symbolic:
        return None
    inner: int | None
    for inner in (*sorted(symbolic), None):
        found = _loops_around(func, extents, numbers, symbolic, inner)
        if found is not None:
            return found
    return None


def has_symbolic_sizes(func: tirx.PrimFunc) -> bool:
    """Return whether a parameter of a function has a size that is not constant."""
    sizes = [size for param in _tensors(func) for size in param.shape]
    return not all(isinstance(size, prim.IntImm) for size in sizes)


def _loops_around(
    func: Any,
    extents: dict[int, Any],
    numbers: dict[Dimension, int],
    symbolic: set[int],
    inner: int | None,
) -> RowAxes | None:
    """Return the axes with an inner one, None if the rows of a parameter are not in one piece."""
    outer = symbolic - {inner}
    while True:
        made = RowAxes(func, extents, numbers, tuple(sorted(outer)), inner)
        more: set[int] = set()
        for param in made.buffers:
            axes = made.axes_of(param)
            last = max((at for at, axis in enumerate(axes) if axis is not None), default=-1)
            # Of what is outside of the last axis, a kernel has one value.
            for at in range(last):
                if axes[at] is not None or is_constant(param.shape[at], 1):
                    continue
                number = numbers.get((handle(param), at))
                if number is None:
                    return None
                more.add(number)
            if inner is not None and inner in axes[:last]:
                return None
        if not more:
            return made
        outer |= more


class _Classes:
    """Dimensions that are indexed by the same axes, and which of them are not independent."""

    def __init__(self) -> None:
        self._parent: dict[Dimension, Dimension] = {}
        self._dependent: set[Dimension] = set()

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

    def independent(self) -> list[list[Dimension]]:
        members: defaultdict[Dimension, list[Dimension]] = defaultdict(list)
        for each in self._parent:
            members[self._root(each)].append(each)
        refused = {self._root(each) for each in self._dependent}
        return [found for root, found in members.items() if root not in refused]


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
    accesses = _accesses(block)
    indexed = Counter(handle(index) for _, indices in accesses for index in indices)
    members: defaultdict[int, list[Dimension]] = defaultdict(list)
    for buffer, indices in accesses:
        seen = Counter(map(handle, indices))
        for at, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            key, dimension = handle(index), (handle(buffer), at)
            # Its axis is this index and no part of another, or of a value.
            alone = key in axes and seen[key] == 1 and uses[key] == indexed[key]
            if alone and tvm_ffi.structural_equal(axes[key].dom.extent, size):
                members[key].append(dimension)
            else:
                classes.dependent(dimension)
    for dimensions in members.values():
        classes.together(dimensions)
    # A symbolic size must be that of an axis of loops that become constant.
    return all(
        isinstance(axis.dom.extent, prim.IntImm) or handle(axis.var) in members
        for axis in block.iter_vars
    )


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
