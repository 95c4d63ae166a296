"""Slices of torch whose size has a name and is known to torch.

Relax does not know that a length with a name is at least 1, and has the size ``min(1, length)`` of
``x[:1]``: what is computed from that soon has no known size at all. torch knows it, so that the
slice is imported as one that lies inside of its tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tvm import relax


def slice_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return by name what ``from_exported_program`` takes as `custom_convert_map`."""
    return {
        "slice.Tensor": _slice,
        "split.Tensor": _split,
        "split_with_sizes.default": _split,
    }


def _slice(node: Any, importer: Any) -> Any:
    """Import a slice: as an empty one, or inside of its tensor, where torch knows that it is."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    defaults: list[Any] = [None, 0, None, None, 1]
    given: list[Any] = list(node.args)
    tensor, dim, start, stop, step = given + defaults[len(given) :]
    before, after = tensor.meta["val"].shape, node.meta["val"].shape
    dim %= len(before)
    if after[dim] == 0 and isinstance(after[dim], int):  # Also of an end before the start.
        return importer.block_builder.emit(
            relax.op.strided_slice(importer.env[tensor], [dim], [0], [0])
        )
    shape = importer.shape_of(importer.env[tensor])
    if step != 1 or shape is None or all(isinstance(each, int) for each in (*before, *after)):
        return importer._slice(node)  # noqa: SLF001 - TVM's converter of the same operator
    bounds = [
        _bound(each, default, before[dim], shape[dim], importer.env)
        for each, default in ((start, 0), (stop, sys.maxsize))
    ]
    (first, begin), (last, end) = bounds
    if not statically_known_true(last - first == after[dim]):
        return importer._slice(node)  # noqa: SLF001
    x = importer.env[tensor]
    return importer.block_builder.emit(
        relax.op.strided_slice(x, [dim], [begin], [end], assume_inbound=True)
    )


def _split(node: Any, importer: Any) -> Any:
    """Import parts of a tensor whose size has a name as slices, which are as long as torch says."""
    x, dim = importer.env[node.args[0]], node.args[2] if len(node.args) > 2 else 0
    before = node.args[0].meta["val"].shape
    lengths = importer.sizes.shape([each.shape[dim] for each in node.meta["val"]])
    if isinstance(before[dim], int) or lengths is None:
        return importer._split(node)  # noqa: SLF001
    found, begin = [], 0
    for length in lengths:
        part = relax.op.strided_slice(
            x, [dim % len(before)], [begin], [begin + length], assume_inbound=True
        )
        found.append(importer.block_builder.emit(part))
        begin = begin + length
    return tuple(found)


def _bound(given: Any, default: int, size: Any, extent: Any, env: Any) -> tuple[Any, Any]:
    """Return a bound as torch's number and as Relax's.

    - `given`: an int, a node whose value is one, or None for `default`.
    - `size`, `extent`: that of the dimension, likewise in both.
    """
    if given is None:
        given = default
    if not isinstance(given, int):
        return given.meta["val"], env[given]
    if given == sys.maxsize:
        return size, extent
    if given < 0:
        return size + given, extent + given
    return given, given
