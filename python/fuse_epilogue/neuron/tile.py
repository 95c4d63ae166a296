"""Views of tensors: what kernels index, and what instructions take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Refused
from .indexing import progression
from .limits import LARGEST_STRIDE, MOST_DIMS, MOST_ELEMENTS
from .trace import DTYPES, ITEMSIZE, Access, DType, merged
from .values import Buffer, Dim, numpy_dtype


@dataclass(frozen=True, slots=True)
class Indirect:
    """Place of a view that depends on data.

    - `places`: indices: one for all, or one for each row.
    - `stride`: elements from one index to the next.
    - `by_row`: whether each row of the first dimension has an index of its own.
    """

    places: Tile | Register
    stride: int
    by_row: bool


class Register:
    """A number that an instruction has read from data.

    - `value`: None if nothing is executed: then it may be any number.
    """

    __slots__ = ("value",)

    def __init__(self, value: int | None = None) -> None:
        self.value = value


class Tile:
    """A view of a buffer: what kernels index and instructions take.

    - `buffer`: tensor that it is a view of.
    - `dims`: in HBM all dimensions, otherwise the free ones.
    - `shape` (tuple[int, ...]): with the partitions first, if any.
    - `access` (Access): the elements.
    - `indirect`: place of the view, if it depends on data.
    """

    __slots__ = ("access", "buffer", "dims", "indirect", "shape")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        dims: tuple[Dim, ...],
        partitions: Dim | None,
        dtype: str | None = None,
        indirect: Indirect | None = None,
    ) -> None:
        shape = tuple([count for _, count in dims])
        if partitions is not None:
            shape = (partitions[1], *shape)
        self.buffer = buffer
        self.dims = dims
        self.shape = shape
        self.indirect = indirect
        self.access = Access(
            buffer.info,
            offset,
            merged(dims),
            partitions,
            dtype or buffer.info.dtype,
            shape,
            indirect is not None,
        )

    @staticmethod
    def of(buffer: Buffer) -> Tile:
        """Return all of a buffer."""
        info = buffer.info
        if info.space == "hbm":
            return Tile(buffer, 0, tuple(zip(info.strides, info.shape, strict=True)), None)
        dims = tuple(zip(info.strides, info.shape[1:], strict=True))
        return Tile(buffer, 0, dims, (0, info.shape[0]))

    @property
    def space(self) -> str:
        """``"hbm"``, ``"sbuf"`` or ``"psum"``."""
        return self.buffer.info.space

    @property
    def memory(self) -> str:
        """The memory's name in ``nl``."""
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        """Name of the elements' type."""
        return DTYPES[self.access.dtype]

    def pattern(self) -> list[Dim]:
        """Return (stride, count) of all dimensions, that of the partitions first."""
        if self.access.partitions is None:
            return list(self.dims)
        return [(self._row(), self.access.partitions[1]), *self.dims]

    def array(self) -> np.ndarray:
        """Return the elements: a view of the buffer's data, or a copy of those at an index."""
        strides = [stride for stride, _ in self.dims]
        if self.indirect is None:
            return self.buffer.view(self.access, self.shape, strides)
        return np.asarray(self._flat()[self._places()])

    def scatter(self, values: np.ndarray) -> None:
        """Write elements at an index."""
        self._flat()[self._places()] = values

    def placed(self) -> Tile:
        """Return a view on the chip at the place that data say, another one as it is.

        - Raises Refused: outside of a partition.
        """
        if self.indirect is None or self.access.partitions is None:
            return self
        given, row = self.indirect.places, self._row()
        index = int(given.array().reshape(-1)[0]) if isinstance(given, Tile) else given.value or 0
        first = self.access.offset + index * self.indirect.stride
        last = first + self.access.last - self.access.offset
        if first < 0 or last >= row:
            raise Refused(
                "out-of-bounds",
                f"elements {first} to {last} of a partition of '{self.buffer.info.name}', which "
                f"has {row}",
            )
        return Tile(self.buffer, first, self.dims, self.access.partitions, self.access.dtype)

    def _flat(self) -> np.ndarray:
        """Return all of a tensor in HBM in one dimension."""
        data = self.buffer.array().reshape(-1)
        return data if self.dtype == self.buffer.info.dtype else data.view(numpy_dtype(self.dtype))

    def _places(self) -> np.ndarray:
        """Return the flat index of each element.

        - Raises Refused: outside of the tensor.
        """
        assert self.indirect is not None
        given = self.indirect.places
        if isinstance(given, Tile):
            index = given.array().astype(np.int64).reshape(-1) * self.indirect.stride
        else:
            index = np.array([given.value or 0]) * self.indirect.stride
        places: Any = np.zeros((), np.int64)
        for at, (stride, count) in enumerate(self.dims):
            # An index for each row says where the row is.
            step = 0 if at == 0 and self.indirect.by_row else stride
            places = places[..., None] + step * np.arange(count)
        shape = (-1,) + (1,) * (places.ndim - 1) if self.indirect.by_row else (1,) * places.ndim
        places = places + self.access.offset + index.reshape(shape)
        size = math.prod(self.buffer.info.shape)
        if places.min() < 0 or places.max() >= size:
            raise Refused(
                "out-of-bounds",
                f"elements {places.min()} to {places.max()} of '{self.buffer.info.name}', "
                f"which has {size}",
            )
        return np.asarray(places)

    def _row(self) -> int:
        """Return the elements of a partition."""
        return self.buffer.info.partition_bytes // ITEMSIZE[self.access.dtype]

    def index(self, items: tuple[Any, ...]) -> Tile:
        """Return ``self[items]``: integers, slices, `Ds` and one ``...``.

        An integer takes the dimension away, except that of the partitions, which stays with size 1.

        - Raises Refused: outside of the view, empty, too many indices, or a step among partitions.
        """
        shape = self.shape
        if Ellipsis in items:
            at = items.index(Ellipsis)
            rest = len(shape) - len(items) + 1
            items = (*items[:at], *(slice(None),) * rest, *items[at + 1 :])
        if len(items) > len(shape):
            raise Refused("out-of-bounds", f"{len(items)} indices for a tile of shape {shape}")
        if self.indirect is not None:
            raise Refused("language", "a view at an index is not supported here with brackets")
        offset, dims, partitions = self.access.offset, [], self.access.partitions
        on_chip = partitions is not None
        for at, item in enumerate(items):
            size = shape[at]
            start, step, count = progression(item, size, self.buffer.info.name, at)
            if on_chip and at == 0:
                assert partitions is not None
                if step != 1:
                    raise Refused("language", "partitions are taken without a step here")
                partitions = (partitions[0] + start, count)
                continue
            stride = self.dims[at - on_chip][0]
            offset += start * stride
            if not isinstance(item, int):
                # A step that is not taken may be huge.
                dims.append((stride * step if count > 1 else stride, count))
        dims += self.dims[len(items) - on_chip :] if items else self.dims
        return Tile(self.buffer, offset, tuple(dims), partitions, self.access.dtype)

    def reshape(self, shape: Any) -> Tile:
        """Return the same elements with other dimensions; partitions stay as they are.

        - Raises Refused: not as many elements, or not elements that lie one after the other.
        """
        shape = tuple(shape) if isinstance(shape, list) else shape
        if not isinstance(shape, tuple) or not shape or any(not _integer(n) for n in shape):
            raise Refused("language", "reshape takes a tuple of integers")
        if -1 in shape and shape.count(-1) == 1 and math.prod(shape):
            rest = math.prod(self.shape) // -math.prod(shape)
            shape = tuple(rest if n == -1 else n for n in shape)
        if min(shape) < 1 or math.prod(shape) != math.prod(self.shape):
            raise Refused("shapes", f"a tile of shape {self.shape} is not one of {shape}")
        partitions = self.access.partitions
        free = shape
        if partitions is not None:
            if shape[0] != partitions[1]:
                raise Refused("shapes", f"reshape keeps the {partitions[1]} partitions")
            free = shape[1:]
        dims = _split(self.dims, free)
        if dims is None or self.indirect is not None:
            raise Refused("shapes", f"elements of {self.shape} with gaps are not {shape}")
        return Tile(self.buffer, self.access.offset, dims, partitions, self.access.dtype)

    def view(self, dtype: Any) -> Tile:
        """Return the same bytes as elements of another type, of the last dimension more or fewer.

        - Raises Refused: not a type, or the bytes do not fit.
        """
        if not isinstance(dtype, DType):
            raise Refused("language", "view takes a type such as nl.uint8")
        old, new = ITEMSIZE[self.access.dtype], ITEMSIZE[dtype]
        offset, dims = self.access.offset, self.dims
        if old != new:
            if not dims or dims[-1][0] != 1 or self.indirect is not None:
                raise Refused("shapes", "view needs elements side by side")
            if any(n * old % new for n in (offset, dims[-1][1], *(s for s, _ in dims[:-1]))):
                raise Refused(
                    "shapes", f"{self.shape} {self.access.dtype} cannot be viewed as {dtype}"
                )
            dims = (
                *((stride * old // new, count) for stride, count in dims[:-1]),
                (1, dims[-1][1] * old // new),
            )
            offset = offset * old // new
        return Tile(self.buffer, offset, dims, self.access.partitions, dtype, self.indirect)

    def broadcast_to(self, shape: tuple[Any, ...]) -> Tile:
        """Return the view with dimensions of size 1 repeated.

        - Raises Refused: other dimensions differ.
        """
        own = self.pattern()
        if len(shape) != len(own) or not all(map(_integer, shape)):
            raise Refused("shapes", f"{self.shape} is not broadcast to {shape}")
        for (_, count), size in zip(own, shape, strict=True):
            if size != count and count != 1:
                raise Refused("shapes", f"{self.shape} is not broadcast to {shape}")
        partitions = self.access.partitions
        if partitions is not None and shape[0] != partitions[1]:
            raise Refused("shapes", "partitions are not broadcast: use nisa.nc_stream_shuffle")
        free = shape[partitions is not None :]
        dims = tuple(
            (stride if count == size else 0, size)
            for (stride, count), size in zip(self.dims, free, strict=True)
        )
        return Tile(self.buffer, self.access.offset, dims, partitions, self.access.dtype)

    def ap(
        self,
        pattern: Any,
        offset: Any = 0,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: Any = 0,
        dtype: Any = None,
    ) -> Tile:
        """Return ``self.ap(pattern, offset)``: (stride, count) pairs over the flattened tensor.

        In SBUF and PSUM the first pair counts partitions. A scalar offset is an index into
        dimension `indirect_dim` of the tensor, a vector offset one for each row of the pattern, in
        place of the stride of the first pair.

        - Raises Refused: outside of the tensor, not pairs of integers, or partitions at a distance.
        """
        info, base = self.buffer.info, self
        if self.access.physical != Access.all_of(info):
            raise Refused("language", "ap is taken of a whole tensor here, not of a slice")
        if dtype is not None and dtype != self.dtype:
            base = self.view(dtype)
        if not _integer(offset) or not isinstance(pattern, tuple) or not pattern:
            raise Refused("language", "ap takes pairs (stride, count), and an integer offset")
        for pair in pattern:
            if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(_integer, pair)):
                raise Refused("language", "ap takes pairs (stride, count) of integers")
            if not 0 <= pair[0] <= LARGEST_STRIDE or pair[1] < 1:
                raise Refused("out-of-bounds", f"ap: stride {pair[0]}, count {pair[1]}")
        if len(pattern) > MOST_DIMS or math.prod([n for _, n in pattern]) > MOST_ELEMENTS:
            raise Refused(
                "language", f"ap has at most {MOST_DIMS} pairs and {MOST_ELEMENTS} elements"
            )
        size = math.prod(base.shape)
        inner = pattern if vector_offset is None else pattern[1:]
        last = offset + sum(stride * (count - 1) for stride, count in inner)
        if offset < 0 or last >= size:
            raise Refused(
                "out-of-bounds", f"elements {offset} to {last} of '{info.name}', which has {size}"
            )
        indirect = base._indirect(scalar_offset, vector_offset, indirect_dim, pattern)
        kind = base.access.dtype
        if info.space == "hbm":
            return Tile(self.buffer, offset, pattern, None, kind, indirect)
        if indirect is not None and (indirect.by_row or indirect_dim == 0):
            raise Refused(
                "language",
                "on the chip an offset from data is scalar_offset, into a free dimension",
            )
        row = base._row()
        (stride, count), free = pattern[0], pattern[1:]
        if stride != row and count > 1:
            raise Refused(
                "language",
                f"the first pair of ap counts partitions, {row} elements distant, not {stride}",
            )
        if offset % row + sum(step * (n - 1) for step, n in free) >= row:
            raise Refused(
                "out-of-bounds",
                f"ap exceeds a partition of '{info.name}' ({row} elements)",
            )
        return Tile(self.buffer, offset % row, free, (offset // row, count), kind, indirect)

    def _indirect(
        self, scalar: Any, vector: Any, dim: Any, pattern: tuple[Dim, ...]
    ) -> Indirect | None:
        """Return the place that data give a view."""
        places = vector if scalar is None else scalar
        if places is None:
            return None
        if _integer(scalar):
            places = Register(scalar)  # the variable of a loop whose bounds are known here
        known = isinstance(places, (Tile, Register))
        if not known or (scalar is not None and vector is not None):
            raise Refused("language", "pass scalar_offset or vector_offset, as one tile, not both")
        if not _integer(dim) or not 0 <= dim < len(self.shape):
            raise Refused("language", f"indirect_dim {dim} of a tensor of shape {self.shape}")
        if isinstance(places, Register):
            return Indirect(places, math.prod(self.shape[dim + 1 :]), False)
        if "int" not in places.dtype:
            raise Refused("operand-types", f"an offset is an integer, not {places.dtype}")
        wanted = pattern[0][1] if scalar is None else 1
        if math.prod(places.shape) != wanted:
            raise Refused("shapes", f"the offset has shape {places.shape}, {wanted} are needed")
        stride = math.prod(self.shape[dim + 1 :])
        return Indirect(places, stride, scalar is None)


def _split(dims: tuple[Dim, ...], shape: tuple[int, ...]) -> tuple[Dim, ...] | None:
    """Return the dimensions of a reshaped view, None if its elements are not in that order."""
    rest = list(merged(dims))
    result: list[Dim] = []
    stride, left = rest.pop() if rest else (1, 1)
    for size in reversed(shape):
        if size == 1:
            result.append((stride, 1))
            continue
        if left == 1 and rest:
            stride, left = rest.pop()
        if left % size:
            return None
        result.append((stride, size))
        stride, left = stride * size, left // size
    return tuple(reversed(result))


def _integer(value: Any) -> bool:
    return type(value) is int  # not a bool, which isinstance would take
