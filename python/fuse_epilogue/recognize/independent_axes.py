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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PrimType, prim
from tvm.tirx.buffer import BufferType

from ..tir.nest import all_nests
from ..tir.walk import handle
from .row_dimensions import Classes, Dimension, Window, add_block


@dataclass(frozen=True)
class IndependentAxes:
    """Axes of a function along which every slice of its results is computed by itself.

    - `func` (tvm.tirx.PrimFunc): the function, with symbolic sizes. Its parameters are buffers and
      sizes.
    - `extents`: sizes by the number of an axis.
    - `dimensions`: the axis of each dimension that has one, of parameters and inner buffers.
    - `windows`: dimensions of parameters that an axis and taps index together.
    """

    func: Any
    extents: Mapping[int, Any]
    dimensions: Mapping[Dimension, int]
    windows: Mapping[Dimension, Window]

    @property
    def buffers(self) -> tuple[Any, ...]:
        """Parameters that are buffers."""
        return tuple(param for param in self.func.params if _is_buffer(param))

    @property
    def symbolic(self) -> frozenset[int]:
        """Axes of symbolic sizes."""
        found = self.extents.items()
        return frozenset(axis for axis, size in found if not isinstance(size, prim.IntImm))


def read_independent_axes(func: tirx.PrimFunc) -> IndependentAxes | None:
    """Return the independent axes of a function with symbolic sizes.

    - `func`: as Relax's lowering makes it, with parameters of symbolic shape.
    - Returns: None if a symbolic size is of an axis that is not independent, or there is none.
    """
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.match_buffers:
        return None
    root = func.body.block
    buffers = [*_tensors(func), *root.alloc_buffers]
    if not all(_is_buffer(each) for each in buffers):
        return None
    if not has_symbolic_sizes(func):
        return None
    classes = Classes()
    for nest in all_nests(root):
        if not add_block(classes, nest):
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
    windows = classes.windows(numbers)
    known = {*numbers, *windows}
    for buffer in buffers:
        for at, size in enumerate(buffer.shape):
            if not isinstance(size, prim.IntImm) and (handle(buffer), at) not in known:
                return None
    made = IndependentAxes(func, extents, numbers, windows)
    return made if made.symbolic else None


def has_symbolic_sizes(func: tirx.PrimFunc) -> bool:
    """Return whether a parameter of a function has a size that is not constant."""
    sizes = [size for param in _tensors(func) for size in param.shape]
    return not all(isinstance(size, prim.IntImm) for size in sizes)


def _tensors(func: tirx.PrimFunc) -> list[Any]:
    """Return the parameters of a function that are arrays."""
    return [param for param in func.params if not isinstance(param.ty, PrimType)]


def _is_buffer(var: Any) -> bool:
    return isinstance(var.ty, BufferType) and not var.strides


def _all_equal(sizes: list[Any]) -> bool:
    return all(tvm_ffi.structural_equal(each, sizes[0]) for each in sizes)
