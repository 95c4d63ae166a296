"""Tensors in the memories of a NeuronCore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .memory import Memory
from .trace import ITEMSIZE, Access, BufferInfo

#: A dimension of a view: elements between neighbours, and how many there are.
Dim = tuple[int, int]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's type of this name.

    - Raises ImportError: for bfloat16 and float8 without the package ml_dtypes.
    """
    if name == "bfloat16" or name.startswith("float8"):
        if name.endswith("_x4"):
            return np.dtype(np.uint32)
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(f"{name} in numpy needs the package ml_dtypes") from error
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    if name == "float4_e2m1fn_x4":
        return np.dtype(np.uint16)
    return np.dtype(name)


def dtype_of(array: np.ndarray) -> str:
    """Return the name of an array's type.

    - Raises TypeError: kernels have no such type.
    """
    if array.dtype.name not in ITEMSIZE:
        raise TypeError(
            f"{array.dtype.name} is not a type that kernels have; convert the array with astype: "
            f"{', '.join(ITEMSIZE)}"
        )
    return array.dtype.name


class Buffer:
    """A tensor in a memory, with its data if the kernel is executed.

    - `info`: kind and place of it.
    - `data`: data of an input: in any layout and byte order.
    - `memory`: source of the data of other tensors; None if nothing is executed.
    - `info`: kind and place of it.
    - `written` (list[tuple[str, Access]]): in PSUM: the instructions that have written, and where,
      in program order.
    - `name`: the memory's name in ``nl``.
    """

    __slots__ = ("_dtype", "_given", "_memory", "_raw", "info", "name", "written")

    def __init__(
        self,
        info: BufferInfo,
        data: np.ndarray | None = None,
        memory: Memory | None = None,
        name: str = "",
    ) -> None:
        self.info = info
        self.name = name
        self.written: list[tuple[str, Access]] = []
        self._given = data
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

    def own(self) -> None:
        """Copy the data of an input before it is written."""
        if self._raw is not None:
            self._raw = self._raw.copy()

    def give_back(self) -> None:
        """Write the data of an input that was written to the caller's array.

        - Raises ValueError: the array is read-only.
        """
        if self._given is not None and self.info.kind == "updated":
            if not self._given.flags.writeable:
                raise ValueError(
                    f"{self.info.name} is written by the kernel, but the array is read-only"
                )
            self._given[...] = self.array().reshape(self._given.shape)

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
        """Return the data of a view; `strides` counts elements, partitions left out."""
        assert self._dtype is not None
        raw = self._raw if self._raw is not None else self._data()
        dtype = self._dtype if access.dtype == self.info.dtype else numpy_dtype(access.dtype)
        size = dtype.itemsize
        start, steps = access.offset * size, [n * size for n in strides]
        if access.partitions is not None:
            row = self.info.partition_bytes
            start += access.partitions[0] * row
            steps.insert(0, row)
        return np.ndarray(shape, dtype, raw, start, tuple(steps))


@dataclass(frozen=True, slots=True)
class Ds:
    """``nl.ds(start, size)``."""

    start: int
    size: int
