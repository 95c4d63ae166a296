"""Record of the elements of the memories that have been written."""

from __future__ import annotations

import math

import numpy as np

from .trace import Access, BufferInfo


class Written:
    """A mark for each element, made when its buffer is first touched."""

    def __init__(self) -> None:
        self._marks: dict[int, np.ndarray] = {}
        self._complete: set[int] = set()

    def write(self, access: Access) -> None:
        """Mark what an access writes.

        Elements that an instruction writes several times are as if they were not written: no
        document says which of the values stays.
        """
        info, repeats = access.buffer, access.repeats and not access.indirect
        access = access.physical
        if repeats:
            if info.id in self._complete:
                self._complete.remove(info.id)
                self._marks[info.id] = np.ones(math.prod(info.shape), bool)
            self._view(access)[...] = False
            return
        if info.id in self._complete:
            return
        if _whole(access):
            self._done(info)
        else:
            self._view(access)[...] = True

    def read(self, access: Access) -> str | None:
        """Return None if all of it was written, or an element that was not, as ``name[0, 5]``."""
        info = access.buffer
        if info.kind in ("input", "updated") or info.id in self._complete:
            return None
        if access.indirect and info.id in self._marks:
            return None  # Which elements it reads depends on data.
        access = access.physical
        marks = self._view(access)
        if marks.all():
            if _whole(access):
                self._done(info)
            return None
        missing = int(np.argmin(marks.reshape(-1)))
        at, strides = 0, marks.strides
        for index, stride in zip(np.unravel_index(missing, marks.shape), strides, strict=True):
            at += int(index) * stride
        flat = at + _start(access)
        indices = [int(n) for n in np.unravel_index(flat, info.shape)]
        return f"{info.name}[{', '.join(map(str, indices))}]"

    def _done(self, info: BufferInfo) -> None:
        self._complete.add(info.id)
        self._marks.pop(info.id, None)

    def _view(self, access: Access) -> np.ndarray:
        """Return the marks of an access; the mark of an element is one byte."""
        info = access.buffer
        marks = self._marks.get(info.id)
        if marks is None:
            marks = self._marks[info.id] = np.zeros(math.prod(info.shape), bool)
        shape = [count for _, count in access.pattern]
        strides = [stride for stride, _ in access.pattern]
        if access.partitions is not None:
            shape.insert(0, access.partitions[1])
            strides.insert(0, math.prod(info.shape[1:]))
        return np.ndarray(tuple(shape), bool, marks, _start(access), tuple(strides))


def _whole(access: Access) -> bool:
    """Tell whether an access is all of its buffer, each element once."""
    return access.offset == 0 and access == Access.all_of(access.buffer)


def _start(access: Access) -> int:
    """Return the place of the first element in the flattened buffer."""
    if access.partitions is None:
        return access.offset
    return access.offset + access.partitions[0] * math.prod(access.buffer.shape[1:])
