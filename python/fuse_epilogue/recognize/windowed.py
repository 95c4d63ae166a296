"""A function whose parameter is padded before windows of it are read, in two parts.

    padded[i] = x[i - 1] if 1 <= i < n + 1 else 0     what fills a buffer
    y[i] += padded[2 * i + k] * w[k]                  what reads windows of it

The second part is a function of its own, of which `padded` is a parameter: its axes are read as
those of any function, and a kernel for some of its rows is given the piece of `padded` it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import PrimType

from ..tir.affine import is_constant
from ..tir.build import in_root, sequence, with_fields
from ..tir.nest import all_nests, nests
from ..tir.walk import handle, parts_of, same, substitute, uses
from .independent_axes import IndependentAxes, read_independent_axes


@dataclass(frozen=True)
class Windowed:
    """A function that reads windows, and the elements of the buffer they are of.

    - `axes`: of the function that reads the windows. Its parameters are buffers of the original
      function, the one that is padded, and sizes.
    - `buffer`: the parameter that is padded; None for no such parameter.
    - `element`: returns an element of a buffer of `axes` from its indices.
    """

    axes: IndependentAxes
    buffer: Any
    element: Callable[[Any, list[Any]], Any]


def read_windowed(func: tirx.PrimFunc) -> Windowed | None:
    """Return the independent axes of a function, without its padding if it has any.

    - `func`, and when None is returned: as for
      :func:`~fuse_epilogue.recognize.independent_axes.read_independent_axes`.
    """
    axes = read_independent_axes(func)
    if axes is not None:
        return Windowed(axes, None, _loaded)
    return _padded_apart(func)


def _loaded(buffer: Any, indices: list[Any]) -> Any:
    return tirx.BufferLoad(buffer, indices)


def _padded_apart(func: Any) -> Windowed | None:
    if not isinstance(func.body, s_tir.SBlockRealize):
        return None
    root = func.body.block
    plain, written = nests(root), all_nests(root)
    if len(plain) < 2 or plain[0] is None:
        return None
    block = plain[0].realize.block
    store = block.body
    own = [axis.var for axis in block.iter_vars]
    whole = all(
        axis.iter_type == tirx.IterVar.DataPar and is_constant(axis.dom.min, 0)
        for axis in block.iter_vars
    )
    if block.init is not None or not whole or not isinstance(store, tirx.BufferStore):
        return None
    padded = store.buffer
    inner = [each for each in root.alloc_buffers if not same(each, padded)]
    if len(inner) == len(root.alloc_buffers) or uses(store.value, padded):
        return None
    if len(own) != len(store.indices) or not all(map(same, store.indices, own)):
        return None
    rest = [_loops(each) for each in written[1:]]
    if any(same(each.buffer, padded) for nest in rest for each in parts_of(nest, tirx.BufferStore)):
        return None
    used = {handle(each) for each in func.params if any(uses(nest, each) for nest in rest)}
    sizes = [each for each in func.params if isinstance(each.ty, PrimType)]
    params = [each for each in func.params if handle(each) in used and each not in sizes]
    body = in_root(sequence(rest), inner)
    axes = read_independent_axes(with_fields(func, params=[*params, padded, *sizes], body=body))
    if axes is None:
        return None

    def element(buffer: Any, indices: list[Any]) -> Any:
        if not same(buffer, padded):
            return _loaded(buffer, indices)
        return substitute(store.value, dict(zip(own, indices, strict=True)))

    return Windowed(axes, padded, element)


def _loops(nest: Any) -> Any:
    made = nest.realize
    for loop in reversed(nest.loops):
        made = with_fields(loop, body=made)
    return made
