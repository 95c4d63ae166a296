"""Tensors in the memories of a NeuronCore, and views of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Refused
from .limits import LARGEST_STRIDE, MOST_DIMS, MOST_ELEMENTS
from .memory import Memory
from .trace import ITEMSIZE, Access, BufferInfo, merged

#: A dimension of a view: elements between neighbours, and how many there are.
Dim = tuple[int, int]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's type of this name.

    Raises
    ------
    ImportError
        For bfloat16 without the package ml_dtypes.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError("bfloat16 in numpy needs the package ml_dtypes") from error
        dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return dtype
    return np.dtype(name)


def dtype_of(array: np.ndarray) -> str:
    """Return the name of an array's type.

    Raises
    ------
    TypeError
        Kernels have no such type.
    """
    if array.dtype.name not in ITEMSIZE:
        raise TypeError(f"{array.dtype.name} is not a type of kernels: {', '.join(ITEMSIZE)}")
    return array.dtype.name


class Buffer:
    """A tensor in a memory, with its data if the kernel is executed.

    Parameters
    ----------
    info : BufferInfo
        Kind and place of it.
    data : numpy.ndarray, optional
        Data of an input: in any layout and byte order.
    memory : Memory, optional
        Source of the data of other tensors; None if nothing is executed.

    Attributes
    ----------
    info : BufferInfo
        Kind and place of it.
    written : list[Access]
        In PSUM: what has been written, in program order.
    """

    __slots__ = ("_dtype", "_memory", "_raw", "info", "written")

    def __init__(
        self, info: BufferInfo, data: np.ndarray | None = None, memory: Memory | None = None
    ) -> None:
        self.info = info
        self.written: list[Access] = []
        self._raw: np.ndarray | None = None
        self._dtype: np.dtype[Any] | None = None
        self._memory = memory
        if data is not None:
            self._dtype = numpy_dtype(info.dtype)
            self._raw = np.ascontiguousarray(data, self._dtype).reshape(-1).view(np.uint8)
        elif memory is not None:
            self._dtype = numpy_dtype(info.dtype)
            memory.check(info)

    def __del__(self) -> None:
        """Give the bytes back."""
        if self._memory is not None and self._raw is not None:
            self._memory.held -= self._raw.size

    def array(self) -> np.ndarray:
        """Return all of the data."""
        data = self._data()
        assert self._dtype is not None
        return data.view(self._dtype).reshape(self.info.shape)

    def _data(self) -> np.ndarray:
        """Return the bytes, made when they are first needed: some tensors are never used."""
        if self._raw is None:
            assert self._memory is not None and self._dtype is not None
            self._raw = self._memory.take(self.info, self._dtype)
        return self._raw

    def view(self, access: Access, shape: tuple[int, ...], strides: Sequence[int]) -> np.ndarray:
        """Return the data of a view; `strides` counts elements."""
        assert self._dtype is not None
        raw = self._raw if self._raw is not None else self._data()
        size = self._dtype.itemsize
        start = access.offset
        if access.partitions is not None:
            start += access.partitions[0] * math.prod(self.info.shape[1:])
        return np.ndarray(shape, self._dtype, raw, start * size, tuple([n * size for n in strides]))


@dataclass(frozen=True, slots=True)
class Ds:
    """``nl.ds(start, size)``."""

    start: int
    size: int


class Tile:
    """A view of a buffer: what kernels index and instructions take.

    Attributes
    ----------
    buffer : Buffer
        Tensor that it is a view of.
    dims : tuple[Dim, ...]
        In HBM all dimensions, otherwise the free ones.
    shape : tuple[int, ...]
        With the partitions first, if any.
    access : Access
        The elements.
    """

    __slots__ = ("access", "buffer", "dims", "shape")

    def __init__(
        self, buffer: Buffer, offset: int, dims: tuple[Dim, ...], partitions: Dim | None
    ) -> None:
        shape = tuple([count for _, count in dims])
        if partitions is not None:
            shape = (partitions[1], *shape)
        self.buffer = buffer
        self.dims = dims
        self.shape = shape
        self.access = Access(
            buffer.info, offset, merged(dims), partitions, buffer.info.dtype, shape
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
    def dtype(self) -> str:
        """Name of the elements' type."""
        return self.buffer.info.dtype

    def array(self) -> np.ndarray:
        """Return the elements, as a view of the buffer's data."""
        strides = [stride for stride, _ in self.dims]
        if self.access.partitions is not None:
            strides.insert(0, math.prod(self.buffer.info.shape[1:]))
        return self.buffer.view(self.access, self.shape, strides)

    def index(self, items: tuple[Any, ...]) -> Tile:
        """Return ``self[items]``: integers, slices and `Ds`.

        Raises
        ------
        Refused
            Outside of the view, empty, too many indices, or an integer or a step among partitions.
        """
        shape = self.shape
        if len(items) > len(shape):
            raise Refused("out-of-bounds", f"{len(items)} indices for a tile of shape {shape}")
        offset, dims, partitions = self.access.offset, [], self.access.partitions
        on_chip = partitions is not None
        for at, item in enumerate(items):
            size = shape[at]
            start, step, count = _progression(item, size, self.buffer.info.name, at)
            if on_chip and at == 0:
                assert partitions is not None
                if isinstance(item, int) or step != 1:
                    raise Refused(
                        "language",
                        "partitions are taken as a slice without a step: "
                        f"[{start}:{start + 1}, ...] for one of them",
                    )
                partitions = (partitions[0] + start, count)
                continue
            stride = self.dims[at - on_chip][0]
            offset += start * stride
            if not isinstance(item, int):
                # A step that is not taken may be huge.
                dims.append((stride * step if count > 1 else stride, count))
        dims += self.dims[len(items) - on_chip :] if items else self.dims
        return Tile(self.buffer, offset, tuple(dims), partitions)

    def ap(self, pattern: Any, offset: Any) -> Tile:
        """Return ``self.ap(pattern, offset)``: (stride, count) pairs over the flattened tensor.

        In SBUF and PSUM the first pair counts partitions.

        Raises
        ------
        Refused
            Outside of the tensor, not pairs of integers, or partitions at a distance.
        """
        info = self.buffer.info
        if self.access != Access.all_of(info):
            raise Refused("language", "ap is taken of a whole tensor, not of a slice")
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
        last = offset + sum(stride * (count - 1) for stride, count in pattern)
        if offset < 0 or last >= math.prod(info.shape):
            raise Refused(
                "out-of-bounds",
                f"elements {offset} to {last} of '{info.name}', which has {math.prod(info.shape)}",
            )
        if info.space == "hbm":
            return Tile(self.buffer, offset, pattern, None)
        row = math.prod(info.shape[1:])
        (stride, count), free = pattern[0], pattern[1:]
        if stride != row and count > 1:
            raise Refused(
                "language",
                f"the first pair of ap counts partitions, {row} elements distant, not {stride}",
            )
        if offset % row + sum(step * (n - 1) for step, n in free) >= row:
            raise Refused(
                "out-of-bounds", f"ap leaves a partition of '{info.name}' ({row} elements)"
            )
        return Tile(self.buffer, offset % row, free, (offset // row, count))


def _integer(value: Any) -> bool:
    return type(value) is int  # which True is not


def _progression(item: Any, size: int, name: str, at: int) -> tuple[int, int, int]:
    """Return start, step and count of one index into a dimension."""
    if type(item) is int:
        start, step, count = item, 1, 1
    elif isinstance(item, slice):
        start = 0 if item.start is None else item.start
        stop = size if item.stop is None else item.stop
        step = 1 if item.step is None else item.step
        if not (type(start) is type(stop) is type(step) is int) or step < 1:
            raise Refused("language", "slices have integer bounds and a positive step")
        count = -(-(stop - start) // step)
        if stop > size:
            raise Refused("out-of-bounds", _outside(item, size, name, at))
    elif isinstance(item, Ds):
        start, step, count = item.start, 1, item.size
    else:
        raise Refused("language", "tiles are indexed by integers, slices and nl.ds(start, size)")
    if start < 0 or start + step * (count - 1) >= size:
        raise Refused("out-of-bounds", _outside(item, size, name, at))
    if count < 1:
        raise Refused(
            "out-of-bounds", f"index {_told(item, size)} in dimension {at} of '{name}' is empty"
        )
    return start, step, count


def _outside(item: Any, size: int, name: str, at: int) -> str:
    return f"index {_told(item, size)} in dimension {at} of '{name}' ({size})"


def _told(item: Any, size: int) -> str:
    """Return an index as messages say it: with both bounds, and a step that is not 1."""
    if isinstance(item, Ds):
        return f"nl.ds({item.start}, {item.size})"
    if isinstance(item, slice):
        stop = size if item.stop is None else item.stop
        text = f"{item.start or 0}:{stop}"
        return text if item.step in (None, 1) else f"{text}:{item.step}"
    return str(item)
