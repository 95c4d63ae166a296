"""Views of tiles by dimension: ``t.permute((0, 2, 1))``, ``t.select(1, 3)`` and the like.

Source of names, parameters and limits: ``nki.language.NkiTensor`` of the AWS Neuron documentation
2.33. No data is copied. On the chip dimension 0 counts partitions and stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .errors import Refused
from .tile import Indirect, Register, Tile
from .values import Dim

#: A dimension, its stride and count; in SBUF and PSUM that of the partitions first.
Dims = list[Dim]


def permute(tile: Tile, dims: Any) -> Tile:
    """Return a view with its dimensions in another order."""
    order, own = _numbers(dims, "permute takes a tuple of dimensions"), _dims(tile)
    if sorted(order) != list(range(len(own))):
        raise Refused("shapes", f"{order} is not a permutation of {len(own)} dimensions")
    if _on_chip(tile) and order[0] != 0:
        raise Refused("shapes", "permute keeps the partitions first: dims[0] is 0 on the chip")
    return _made(tile, [own[place] for place in order])


def broadcast(tile: Tile, dim: Any, size: Any) -> Tile:
    """Return a view with a dimension of size 1 repeated."""
    own, place = _dims(tile), _dim(tile, dim, "broadcast")
    if own[place][1] != 1 or type(size) is not int or size < 1:
        raise Refused("shapes", f"broadcast repeats a dimension of size 1, not {own[place][1]}")
    own[place] = 0, size
    return _made(tile, own)


def expand_dim(tile: Tile, dim: Any) -> Tile:
    """Return a view with another dimension of size 1."""
    own = _dims(tile)
    if type(dim) is not int or not int(_on_chip(tile)) <= dim <= len(own):
        raise Refused("shapes", f"expand_dim: {dim} is not a place in a tile of {tile.shape}")
    own.insert(dim, (1, 1))
    return _made(tile, own)


def squeeze_dim(tile: Tile, dim: Any) -> Tile:
    """Return a view without a dimension of size 1."""
    own, place = _dims(tile), _dim(tile, dim, "squeeze_dim")
    if own[place][1] != 1:
        raise Refused("shapes", f"squeeze_dim removes a dimension of size 1, not {own[place][1]}")
    del own[place]
    return _made(tile, own)


def reshape_dim(tile: Tile, dim: Any, shape: Any) -> Tile:
    """Return a view with one dimension as several; one of the sizes may be -1."""
    sizes = _numbers(shape, "reshape_dim takes a tuple of sizes")
    own = _dims(tile)
    place = _dim(tile, dim, "reshape_dim", len(sizes) > 1)
    stride, count = own[place]
    if sizes.count(-1) == 1 and 0 not in sizes:
        rest = count // math.prod(size for size in sizes if size != -1)
        sizes = [rest if size == -1 else size for size in sizes]
    if min(sizes) < 1 or math.prod(size for size in sizes) != count:
        raise Refused("shapes", f"a dimension of {count} is not one of {tuple(sizes)}")
    split: Dims = []
    for size in reversed(sizes):
        split.insert(0, (stride, size))
        stride *= size
    return _made(tile, [*own[:place], *split, *own[place + 1 :]])


def flatten_dims(tile: Tile, start_dim: Any, end_dim: Any) -> Tile:
    """Return a view with some dimensions, the last one included, as one."""
    own = _dims(tile)
    start, end = (_dim(tile, each, "flatten_dims") for each in (start_dim, end_dim))
    if start > end:
        raise Refused("shapes", f"flatten_dims: {start} is after {end}")
    parts = [part for part in own[start : end + 1] if part[1] > 1]
    for (outer, _), (inner, count) in zip(parts, parts[1:], strict=False):
        if outer != inner * count:
            raise Refused("shapes", f"dimensions {start} to {end} have gaps between elements")
    merged = (parts[-1][0], math.prod(count for _, count in parts)) if parts else (1, 1)
    return _made(tile, [*own[:start], merged, *own[end + 1 :]])


def slice_dim(tile: Tile, dim: Any, start: Any, end: Any, step: Any = 1) -> Tile:
    """Return ``tile[.., start:end:step, ..]``."""
    place = _dim(tile, dim, "slice", False)
    if any(type(each) is not int for each in (start, end, step)):
        raise Refused("language", "slice takes integers")
    if not 0 <= start < end <= tile.shape[place] or step < 1:
        raise Refused(
            "out-of-bounds", f"{start}:{end}:{step} of a dimension of {tile.shape[place]}"
        )
    return tile.index((*[slice(None)] * place, slice(start, end, step)))


def select(tile: Tile, dim: Any, index: Any) -> Tile:
    """Return ``tile[.., index, ..]``, without that dimension."""
    place = _dim(tile, dim, "select")
    if isinstance(index, (Tile, Register)):
        rest = [part for at, part in enumerate(_dims(tile)) if at != place]
        return _at_index(tile, place, index, rest, False)
    if type(index) is not int or not 0 <= index < tile.shape[place]:
        raise Refused("out-of-bounds", f"{index} in a dimension of {tile.shape[place]}")
    return tile.index((*[slice(None)] * place, index))


def vector_select(tile: Tile, dim: Any, vector_offset: Any) -> Tile:
    """Return rows of a tensor in HBM, each at an index of its own."""
    if _on_chip(tile) or dim != 0 or type(dim) is not int:
        raise Refused("shapes", "vector_select is for dimension 0 of a tensor in HBM")
    if not isinstance(vector_offset, Tile):
        raise Refused("language", "vector_select takes a tile of indices")
    rows = [(0, vector_offset.shape[0]), *_dims(tile)[1:]]
    return _at_index(tile, 0, vector_offset, rows, True)


def _at_index(tile: Tile, dim: int, index: Tile | Register, dims: Dims, by_row: bool) -> Tile:
    """Return a view whose place data say; `dims` are its own."""
    if _on_chip(tile):
        raise Refused("language", "a place from data is supported here for HBM only")
    if isinstance(index, Tile):
        wanted = dims[0][1] if by_row else 1
        if "int" not in index.dtype or math.prod(index.shape) != wanted:
            raise Refused(
                "shapes", f"the index is {index.shape} {index.dtype}, {wanted} integers are needed"
            )
    place = Indirect(index, _dims(tile)[dim][0], by_row)
    offset, dtype = tile.access.offset, tile.access.dtype
    return Tile(tile.buffer, offset, tuple(dims) or ((1, 1),), None, dtype, place)


def rearrange(tile: Tile, src_pattern: Any, dst_pattern: Any, fixed_sizes: Any = None) -> Tile:
    """Return a view with dimensions split, in another order, and merged, all by name."""
    known = dict(fixed_sizes or {})
    groups = [_group(each) for each in src_pattern]
    if len(groups) != len(tile.shape):
        raise Refused("shapes", f"{len(groups)} names for a tile of shape {tile.shape}")
    names: list[str] = []
    for group in groups:
        at = len(names)
        if len(group) > 1:
            tile = reshape_dim(tile, at, tuple(known.get(name, -1) for name in group))
        names += group
    wanted = [_group(each) for each in dst_pattern]
    order = [name for group in wanted for name in group]
    if sorted(order) != sorted(names) or len(set(names)) != len(names):
        raise Refused("shapes", f"rearrange: {order} are not the names {names}")
    tile = permute(tile, tuple(names.index(name) for name in order))
    for at, group in enumerate(wanted):
        if len(group) > 1:
            tile = flatten_dims(tile, at, at + len(group) - 1)
    return tile


def is_contiguous(tile: Tile) -> bool:
    """Return whether elements lie one after the other, in each partition on the chip."""
    step = 1
    for stride, count in reversed([dim for dim in tile.dims if dim[1] > 1]):
        if stride != step:
            return False
        step *= count
    return True


#: The methods, by their names in NKI.
METHODS: dict[str, Callable[..., Any]] = {
    "permute": permute,
    "broadcast": broadcast,
    "expand_dim": expand_dim,
    "squeeze_dim": squeeze_dim,
    "reshape_dim": reshape_dim,
    "flatten_dims": flatten_dims,
    "slice": slice_dim,
    "select": select,
    "vector_select": vector_select,
    "rearrange": rearrange,
    "is_contiguous": is_contiguous,
    "is_indirect": lambda tile: tile.indirect is not None,
}


def _on_chip(tile: Tile) -> bool:
    return tile.access.partitions is not None


def _dims(tile: Tile) -> Dims:
    if tile.indirect is not None:
        raise Refused("language", "views of a view at an index are not supported here")
    return tile.pattern()


def _dim(tile: Tile, dim: Any, method: str, fixed: bool = True) -> int:
    """Return a dimension; `fixed` if it must not be that of the partitions."""
    if type(dim) is not int or not 0 <= dim < len(tile.shape):
        raise Refused("shapes", f"{method}: there is no dimension {dim} in {tile.shape}")
    if fixed and dim == 0 and _on_chip(tile):
        raise Refused("shapes", f"{method} is not for dimension 0 on the chip, the partitions")
    return dim


def _numbers(value: Any, otherwise: str) -> list[int]:
    if not isinstance(value, (tuple, list)) or not value or any(type(n) is not int for n in value):
        raise Refused("language", otherwise)
    return list(value)


def _group(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _made(tile: Tile, dims: Dims) -> Tile:
    partitions = tile.access.partitions
    free = tuple(dims if partitions is None else dims[1:])
    return Tile(tile.buffer, tile.access.offset, free, partitions, tile.access.dtype)
