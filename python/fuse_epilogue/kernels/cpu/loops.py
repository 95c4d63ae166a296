"""Statements of TIR, written out: loops, flat views of buffers, vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var, prim
from tvm.sym import Analyzer

from ...tir.affine import is_constant
from ...tir.build import sequence
from ...tir.walk import handle

__all__ = [
    "INDEX",
    "FlatViews",
    "fetch",
    "flat_index",
    "index",
    "loop",
    "sequence",
    "wide",
    "with_loads",
]

INDEX = "int64"


def index(value: int) -> Any:
    """Return an index as an expression."""
    return prim.IntImm(INDEX, value)


def loop(
    name: str,
    begin: Any,
    extent: Any,
    body: Callable[[Any], Any],
    kind: tirx.ForKind = tirx.ForKind.SERIAL,
) -> Any:
    """Return a loop; the body is made for its variable.

    A loop of one step, by its constant extent, is left out.
    """
    begin = index(begin) if isinstance(begin, int) else begin
    extent = index(extent) if isinstance(extent, int) else extent
    if is_constant(extent, 1):
        return body(begin)
    # TVM's lanes are counted from 0.
    if kind == tirx.ForKind.VECTORIZED and not is_constant(begin, 0):
        return loop(name, 0, extent, lambda lane: body(begin + lane), kind)
    var = tirx.Var(name, INDEX)
    return tirx.For(var, begin, extent, kind, body(var))


def flat_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the offset of an element of a compact buffer, as an index of 64 bits."""
    total: Any = index(0)
    for each, size in zip(indices, shape, strict=True):
        total = total * wide(size) + wide(each)
    return total


_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max)


def wide(value: Any) -> Any:
    """Return an index, or a size, in 64 bits.

    Sums, products and quotients are computed in 64 bits as well: an index does not overflow.
    """
    if isinstance(value, int):
        return index(value)
    if str(value.ty.dtype) == INDEX:
        return value
    if isinstance(value, prim.IntImm):
        return index(int(value))
    if isinstance(value, _ARITHMETIC):
        return type(value)(wide(value.a), wide(value.b))
    if isinstance(value, prim.Cast) and isinstance(value.value, Var):
        # An axis of 64 bits in an index of 32.
        return wide(value.value)
    return value.astype(INDEX)


class FlatViews:
    """One-dimensional views of compact parameters, declared around a body, and buffers of its own.

    >>> buffer = tirx.decl_buffer((4, 8), "float32", "a")
    >>> views = FlatViews()
    >>> [int(size) for size in views.of(buffer).shape]
    [32]
    """

    def __init__(self) -> None:
        """Begin without a view."""
        self._views: dict[int, tuple[Any, Any]] = {}
        self._same: dict[int, Any] = {}

    def allocate(self, buffer: Any) -> Any:
        """Return the statement that allocates a buffer, with one dimension from the beginning.

        TVM's StorageRewrite does not see what is read through a view: it would put another buffer
        into the memory of one that is still needed.
        """
        size = math.prod(int(each) for each in buffer.shape)
        flat = tirx.decl_buffer((index(size),), str(buffer.dtype), buffer.name)
        self._views[handle(buffer)] = (flat, flat)
        return tirx.AllocBuffer(flat)

    def stand_for(self, buffer: Any, other: Any) -> None:
        """Use the view of another buffer of the same size for a buffer that is not declared."""
        self._same[handle(buffer)] = other

    def of(self, buffer: Any) -> Any:
        """Return the view of a buffer; the same one each time."""
        while handle(buffer) in self._same:
            buffer = self._same[handle(buffer)]
        known = self._views.get(handle(buffer))
        if known is not None:
            return known[0]
        size = math.prod(int(each) for each in buffer.shape)
        if len(buffer.shape) == 1:
            view = buffer
        else:
            view = tirx.decl_buffer(
                (index(size),),
                str(buffer.dtype),
                f"{buffer.name}_flat",
                data=buffer.data,
                layout=None,
            )
        self._views[handle(buffer)] = (view, buffer)
        return view

    def load(self, load: Any, analyzer: Analyzer) -> Any:
        """Return a load through the flat view of its buffer."""
        offset = analyzer.simplify(flat_index(load.indices, load.source.shape))
        return tirx.BufferLoad(self.of(load.source), [offset])

    def declare(self, body: Any) -> list[Any]:
        """Return statements: the declarations of all views, and the body after them."""
        views = [pair for pair in self._views.values() if pair[0] is not pair[1]]
        return [*(tirx.DeclBuffer(view, data=buffer.data) for view, buffer in views), body]


def fetch(load: Any, cache: int) -> Any:
    """Return a statement that brings the line of an element into a cache.

    - `load`: tvm.ir.TensorLoad.
    - `cache`: 1 for the first cache, 2 for the second.
    """
    of_reading, near, of_data = (tirx.const(number, "int32") for number in (0, 4 - cache, 1))
    return tirx.Evaluate(
        tirx.call_llvm_intrin(
            "void", "llvm.prefetch", tirx.address_of(load), of_reading, near, of_data
        )
    )


def with_loads(node: Any, rule: Callable[[Any], Any]) -> Any:
    """Return an expression with `rule(load)` in place of each load."""
    return tvm_ffi.structural_map(node, (TensorLoad, rule))
