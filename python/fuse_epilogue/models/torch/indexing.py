"""Operators of torch that read or write at indices, imported into Relax.

An index below zero counts from the end in torch; operators of Relax read outside of the tensor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tvm import prim, relax

#: torch's names of reductions in Relax's words.
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def indexing_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters by the names of the operators."""
    return {
        "select.int": _select,
        "index.Tensor": _index,
        "index_put.default": _index_put,
        "scatter.src": lambda node, importer: _scattered(node, importer, "update"),
        "scatter_add.default": _scatter_add,
        "scatter_reduce.two": _scatter_reduce,
        "searchsorted.Tensor": _searchsorted,
        "bucketize.Tensor": _bucketize,
    }


def _select(node: Any, importer: Any) -> Any:
    x, (dim, index) = importer.env[node.args[0]], node.args[1:3]
    size = node.args[0].meta["val"].shape[dim]
    if not isinstance(index, int) or index >= 0:
        return importer._select(node)
    emit = importer.block_builder.emit
    if isinstance(size, int):
        return emit(relax.op.take(x, relax.const(index + size, "int64"), axis=dim))
    last = emit(relax.op.strided_slice(x, [dim], [index], [sys.maxsize]))
    return emit(relax.op.take(last, relax.const(0, "int64"), axis=dim))


class _Places:
    """Positions that index tensors name, as one index into the dimensions that they name.

    - `importer`: importer of torch's programs.
    - `tensor`, `indices`: nodes; None for a dimension that is taken whole.
    """

    def __init__(self, importer: Any, tensor: Any, indices: Sequence[Any]) -> None:
        self.emit = importer.block_builder.emit
        self.sizes = _sizes(importer.env[tensor])
        nodes = {dim: node for dim, node in enumerate(indices) if node is not None}
        if any(map(_is_mask, nodes.values())):
            raise ValueError("an index by a mask has a size that depends on data: not supported")
        shapes = [_sizes(importer.env[node]) for node in nodes.values()]
        self.dims = sorted(nodes)
        self.shape = _broadcast(shapes)
        self.rest = [dim for dim in range(len(self.sizes)) if dim not in self.dims]
        #: Number of elements in the dimensions that are indexed.
        self.count = math.prod(self.sizes[dim] for dim in self.dims)
        self.flat = self._flat(importer, nodes)

    def _flat(self, importer: Any, nodes: dict[int, Any]) -> Any:
        """Return the index into the dimensions that are indexed, as a vector."""
        flat: Any = None
        for dim in self.dims:
            size = self._as_tensor(self.sizes[dim])
            index = self.emit(relax.op.astype(importer.env[nodes[dim]], "int64"))
            is_negative = relax.op.less(index, relax.const(0, "int64"))
            index = self.emit(relax.op.where(is_negative, relax.op.add(index, size), index))
            if flat is None:
                flat = index
                continue
            # An index that is not in its own dimension is in none, rather than in the next row.
            is_outside = relax.op.logical_or(
                relax.op.less(index, relax.const(0, "int64")),
                relax.op.greater_equal(index, size),
            )
            outside = self._as_tensor(self.count)
            index = self.emit(relax.op.where(is_outside, outside, index))
            flat = self.emit(relax.op.add(flat * size, index))
        flat = self.emit(relax.op.broadcast_to(flat, self.shape))
        return self.emit(relax.op.reshape(flat, [math.prod(self.shape)]))

    def _as_tensor(self, size: Any) -> Any:
        if isinstance(size, int):
            return relax.const(size, "int64")
        number = self.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size])))
        return self.emit(relax.op.reshape(number, []))

    @property
    def are_adjacent(self) -> bool:
        """Whether the indexed dimensions are next to each other: the result's are in their place.

        Otherwise they come first, as in numpy.
        """
        return self.dims == list(range(self.dims[0], self.dims[-1] + 1))

    def front(self, value: Any) -> Any:
        """Return a tensor with the indexed dimensions first, as one."""
        order = [*self.dims, *self.rest]
        if order != sorted(order):
            value = self.emit(relax.op.permute_dims(value, order))
        rest = [self.sizes[dim] for dim in self.rest]
        return self.emit(relax.op.reshape(value, [self.count, *rest]))

    def back(self, value: Any) -> Any:
        """Undo :meth:`front`."""
        order = [*self.dims, *self.rest]
        value = self.emit(relax.op.reshape(value, [self.sizes[dim] for dim in order]))
        if order == sorted(order):
            return value
        return self.emit(relax.op.permute_dims(value, [order.index(dim) for dim in sorted(order)]))

    @property
    def result_shape(self) -> list[Any]:
        """Shape of what is read."""
        rest = [self.sizes[dim] for dim in self.rest]
        at = self.dims[0] if self.are_adjacent else 0
        return [*rest[:at], *self.shape, *rest[at:]]

    def values_first(self, value: Any) -> Any:
        """Return values of the result's shape, with the positions as their first dimension."""
        at, count = self.dims[0] if self.are_adjacent else 0, len(self.shape)
        value = self.emit(relax.op.broadcast_to(value, self.result_shape))
        total = count + len(self.rest)
        order = [*range(at, at + count), *range(at), *range(at + count, total)]
        if order != sorted(order):
            value = self.emit(relax.op.permute_dims(value, order))
        return self.emit(relax.op.reshape(value, [math.prod(self.shape), self.rest_count]))

    @property
    def rest_count(self) -> Any:
        """Number of elements in the dimensions that are taken whole."""
        return math.prod(self.sizes[dim] for dim in self.rest)


def _is_mask(index: Any) -> bool:
    return str(index.meta["val"].dtype) in ("torch.bool", "torch.uint8")


def _sizes(value: Any) -> list[Any]:
    """Return the sizes of a tensor: numbers, or expressions where they have names."""
    return [int(size) if isinstance(size, prim.IntImm) else size for size in value.ty.shape]


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the shape that tensors are broadcast to; torch has checked that they can be."""
    rank = max(len(shape) for shape in shapes)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    found = []
    for sizes in zip(*padded, strict=True):
        numbers = [size for size in sizes if isinstance(size, int)]
        names = [size for size in sizes if not isinstance(size, int)]
        # A size with a name beside a number above 1 is that number.
        largest = max(numbers, default=1)
        found.append(names[0] if names and largest == 1 else 0 if 0 in numbers else largest)
    return found


def _index(node: Any, importer: Any) -> Any:
    tensor, indices = node.args[:2]
    places = _Places(importer, tensor, indices)
    emit, value = places.emit, importer.env[tensor]
    if not places.are_adjacent:
        value = emit(relax.op.take(places.front(value), places.flat, axis=0))
        return emit(relax.op.reshape(value, places.result_shape))
    first, last = places.dims[0], places.dims[-1]
    if first != last:
        shape = [*places.sizes[:first], places.count, *places.sizes[last + 1 :]]
        value = emit(relax.op.reshape(value, shape))
    value = emit(relax.op.take(value, places.flat, axis=first))
    return emit(relax.op.reshape(value, places.result_shape))


def _index_put(node: Any, importer: Any) -> Any:
    tensor, indices, values = node.args[:3]
    adds = bool(node.args[3]) if len(node.args) > 3 else bool(node.kwargs.get("accumulate", False))
    emit, value, given = importer.block_builder.emit, importer.env[tensor], importer.env[values]
    if any(each is not None and _is_mask(each) for each in indices):
        raise ValueError("index_put by a mask, of values for each place, is not supported")
    places = _Places(importer, tensor, indices)
    rows = [math.prod(places.shape), places.rest_count]
    target = emit(relax.op.reshape(places.front(value), [places.count, places.rest_count]))
    at = emit(relax.op.broadcast_to(relax.op.expand_dims(places.flat, 1), rows))
    written = emit(
        relax.op.scatter_elements(
            target, at, places.values_first(given), axis=0, reduction="add" if adds else "update"
        )
    )
    return places.back(written)


def _scattered(node: Any, importer: Any, reduction: str) -> Any:
    """Emit a reduction of values into the places that an index of the same shape names."""
    tensor, dim, index, source = node.args[:4]
    emit, values = importer.block_builder.emit, importer.env[source]
    shape = list(index.meta["val"].shape)
    if shape != list(source.meta["val"].shape):
        axes = list(range(len(shape)))
        values = emit(relax.op.strided_slice(values, axes, [0] * len(shape), shape))
    return emit(
        relax.op.scatter_elements(
            importer.env[tensor], importer.env[index], values, axis=dim, reduction=reduction
        )
    )


def _scatter_add(node: Any, importer: Any) -> Any:
    return _scattered(node, importer, "add")


def _scatter_reduce(node: Any, importer: Any) -> Any:
    return _scattered(node, importer, _REDUCTIONS[node.args[4]])


def _searchsorted(node: Any, importer: Any) -> Any:
    sequence, values = node.args[:2]
    if node.kwargs.get("sorter") is not None:
        raise ValueError("searchsorted with a sorter is not supported")
    right = node.kwargs.get("right", False) or node.kwargs.get("side") == "right"
    return _found(node, importer, values, sequence, bool(right))


def _bucketize(node: Any, importer: Any) -> Any:
    values, sequence = node.args[:2]
    return _found(node, importer, values, sequence, bool(node.kwargs.get("right", False)))


def _found(node: Any, importer: Any, values: Any, sequence: Any, right: bool) -> Any:
    """Emit the places of values in a sorted vector: that of NaN is after all."""
    emit, wanted = importer.block_builder.emit, importer.env[values]
    is_short = bool(node.kwargs.get("out_int32", False))
    found = emit(relax.op.bucketize(wanted, importer.env[sequence], is_short, right))
    if not values.meta["val"].dtype.is_floating_point:
        return found
    end = relax.const(sequence.meta["val"].shape[0], "int32" if is_short else "int64")
    return emit(relax.op.where(emit(relax.op.isnan(wanted)), end, found))
