"""The result of a walk over a kernel: one record for each instruction, in program order.

The interpreter makes the records, without data; checker, costs and latency model read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Space = Literal["hbm", "sbuf", "psum"]


class DType(str):
    """A type of elements, by its name; not a text."""

    __slots__ = ()


#: Bytes of one element of every type a kernel may use. Types that end in ``_x4`` hold four numbers.
ITEMSIZE = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int32": 4,
    "uint32": 4,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fn_x4": 4,
    "float8_e5m2_x4": 4,
    "float4_e2m1fn_x4": 2,
}

#: The types by their name.
DTYPES = {name: DType(name) for name in ITEMSIZE}

#: Indices start, start + step, ... of one dimension of a buffer: (start, step, count).
Progression = tuple[int, int, int]


@dataclass(eq=False, slots=True)
class BufferInfo:
    """A tensor in one of the memories.

    - `id`: its place in :attr:`Trace.buffers`; every allocation has its own.
    - `name`: the variable it was first bound to, or what the kernel calls it.
    - `space` ({"hbm", "sbuf", "psum"}): where it is.
    - `shape`: in SBUF and PSUM the first dimension counts partitions.
    - `dtype`: a key of `ITEMSIZE`.
    - `line`: where in the kernel it is allocated; of an argument, the line of ``def``.
    - `kind` ({"input", "updated", "output", "shared", "temporary"}): inputs are arguments, updated
      ones those that the kernel writes; outputs are returned, and shared ones seen by other
      programs.
    """

    id: int
    name: str
    space: Space
    shape: tuple[int, ...]
    dtype: str
    line: int
    kind: Literal["input", "updated", "output", "shared", "temporary"]

    def call(self, name: str) -> None:
        """Give a tensor a name that has none yet."""
        self.name = self.name or name

    @property
    def partition_bytes(self) -> int:
        """Bytes in each partition it occupies (SBUF and PSUM)."""
        return math.prod(self.shape[1:]) * ITEMSIZE[self.dtype]

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension; in SBUF and PSUM of the free ones."""
        shape = self.shape if self.space == "hbm" else self.shape[1:]
        return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of a buffer that one operand of an instruction touches.

    - `buffer`: where they are.
    - `offset`: the first one, in elements from the start of the buffer; in SBUF and PSUM within a
      partition.
    - `pattern`: (stride, count) of each dimension, outermost first, neighbours merged wherever the
      outer one continues the inner one, none with a count of 1. In HBM all dimensions, otherwise
      the free ones. A stride of 0 reads the same element again.
    - `partitions`: first partition and number of partitions; None in HBM.
    - `dtype`: type of the elements.
    - `shape`: as the kernel writes it, partitions first; not part of what is compared.
    - `indirect`: whether where it lies depends on data: then it may be anywhere in the buffer.
    """

    buffer: BufferInfo
    offset: int
    pattern: tuple[tuple[int, int], ...]
    partitions: tuple[int, int] | None
    dtype: str
    shape: tuple[int, ...] = field(default=(), compare=False)
    indirect: bool = False
    _box: tuple[Progression, ...] | Literal["unknown", "none"] = field(
        default="unknown", init=False, compare=False, repr=False
    )

    @staticmethod
    def all_of(buffer: BufferInfo) -> Access:
        """Return the access to all of a buffer."""
        shape = buffer.shape if buffer.space == "hbm" else buffer.shape[1:]
        pattern = merged(tuple(zip(buffer.strides, shape, strict=True)))
        partitions = None if buffer.space == "hbm" else (0, buffer.shape[0])
        return Access(buffer, 0, pattern, partitions, buffer.dtype, buffer.shape)

    @property
    def free_elements(self) -> int:
        """Elements in each partition; in HBM all of them."""
        count = 1
        for _, n in self.pattern:
            count *= n
        return count

    @property
    def elements(self) -> int:
        """Number of elements that are read or written, repeats counted."""
        count = self.free_elements
        return count if self.partitions is None else count * self.partitions[1]

    @property
    def repeats(self) -> bool:
        """Whether an element may be touched more than once; exact where dimensions are nested."""
        reach = 0
        for stride, count in sorted(self.pattern):
            if stride <= reach:
                return True
            reach += stride * (count - 1)
        return False

    @property
    def bytes(self) -> int:
        """Number of bytes that are read or written, repeats counted."""
        return self.elements * ITEMSIZE[self.dtype]

    @property
    def contiguous_run(self) -> int:
        """Bytes of the longest piece without a gap, within one partition or one row of HBM."""
        size = ITEMSIZE[self.dtype]
        if self.pattern and self.pattern[-1][0] == 1:
            return self.pattern[-1][1] * size
        return size

    @property
    def last(self) -> int:
        """The greatest element touched, counted as `offset` is."""
        return self.offset + sum(stride * (n - 1) for stride, n in self.pattern)

    def overlaps(self, other: Access) -> bool:
        """Tell whether the two touch the same element.

        Exact for boxes (slices, with or without steps); elsewhere it may say yes where the answer
        is no, never the other way.
        """
        if self.buffer.id != other.buffer.id:
            return False
        if self.indirect or other.indirect:
            return True
        if self.dtype != other.dtype:
            return self.physical.overlaps(other.physical)
        if self.partitions is not None and other.partitions is not None:
            mine, theirs = self.partitions, other.partitions
            if mine[0] >= theirs[0] + theirs[1] or theirs[0] >= mine[0] + mine[1]:
                return False
        if self.offset > other.last or other.offset > self.last:
            return False
        if self.pattern == other.pattern and self.offset == other.offset:
            return True
        one, two = self.box, other.box
        if one is None or two is None:
            return True
        return all(_meet(a, b) for a, b in zip(one, two, strict=True))

    @property
    def physical(self) -> Access:
        """The same place in elements of the buffer's own type; indirect ones are all of it."""
        if self.indirect:
            return Access.all_of(self.buffer)
        own, size = ITEMSIZE[self.buffer.dtype], ITEMSIZE[self.dtype]
        if own == size:
            if self.dtype == self.buffer.dtype:
                return self
            offset, pattern = self.offset, self.pattern
        elif size > own:
            ratio = size // own
            offset = self.offset * ratio
            pattern = tuple((stride * ratio, count) for stride, count in self.pattern)
            pattern = merged((*pattern, (1, ratio)))
        else:
            # From the first element that it touches to the last one.
            ratio = own // size
            offset = self.offset // ratio
            pattern = ((1, self.last // ratio - offset + 1),)
        return Access(self.buffer, offset, pattern, self.partitions, self.buffer.dtype, self.shape)

    @property
    def box(self) -> tuple[Progression, ...] | None:
        """Indices in each (free) dimension of the buffer, or None if these are not the elements."""
        if self._box == "unknown":
            box = _box(self)
            object.__setattr__(self, "_box", "none" if box is None else box)
        return None if isinstance(self._box, str) else self._box


def merged(pattern: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the same elements in the same order with as few dimensions as possible."""
    result: list[tuple[int, int]] = []
    for stride, count in reversed(pattern):
        if count == 1:
            continue
        if result and stride == result[-1][0] * result[-1][1] and stride:
            result[-1] = (result[-1][0], result[-1][1] * count)
        else:
            result.append((stride, count))
    return tuple(reversed(result))


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction.

    - `index`: its place in :attr:`Trace.steps`.
    - `op`: its name, without ``nisa.``.
    - `engine` ({"tensor", "vector", "scalar", "gpsimd", "dma"}): who executes it.
    - `line`: line of the kernel.
    - `dst`: access that it writes.
    - `results`: further accesses that it writes.
    - `srcs`: accesses that it reads, tile operands in the order of the parameters. The destination
      of an accumulating ``nc_matmul`` is among them.
    - `constants`: the other arguments: numbers, and names of elementwise operations such as
      ``"multiply"``. Arguments at their default are left out.
    - `operands`: which parameter each of `srcs` is.
    """

    index: int
    op: str
    engine: str
    line: int
    dst: Access | None
    srcs: tuple[Access, ...]
    constants: Mapping[str, Any]
    operands: tuple[str, ...] = ()
    results: tuple[Access, ...] = ()

    @property
    def written(self) -> tuple[Access, ...]:
        """Everything that it writes."""
        return self.results if self.dst is None else (self.dst, *self.results)

    @property
    def touched(self) -> tuple[Access, ...]:
        """Everything that it reads or writes."""
        return (*self.srcs, *self.written)


@dataclass(slots=True)
class Trace:
    """A walk over a kernel: its instructions with all loops unrolled, and its buffers.

    Attributes
    ----------
    name : str
        The kernel's.
    steps : list[Step]
        In program order.
    buffers : list[BufferInfo]
        By `BufferInfo.id`; arguments first.
    """

    name: str
    steps: list[Step] = field(default_factory=list)
    buffers: list[BufferInfo] = field(default_factory=list)


def _box(access: Access) -> tuple[Progression, ...] | None:
    """Split an access into one progression for each dimension of its buffer."""
    shape = access.buffer.shape if access.buffer.space == "hbm" else access.buffer.shape[1:]
    strides = access.buffer.strides
    rest = access.offset
    result: list[Progression] = []
    for stride in strides:
        result.append((rest // stride, 1, 1))
        rest %= stride
    for stride, count in access.pattern:
        if stride == 0:
            continue
        # Of several dimensions with the same stride, all but the first have size 1.
        at = next(i for i, own in enumerate(strides) if own <= stride)
        if stride % strides[at]:
            return None
        step = stride // strides[at]
        while True:
            start, _, taken = result[at]
            if taken > 1:
                return None  # two dimensions of the pattern move along one of the buffer
            if start + step * (count - 1) < shape[at]:
                result[at] = (start, step, count)
                break
            # Whole rows, and on along the dimension outside of them.
            row = shape[at] // step
            if shape[at] % step or start >= step or count % row or at == 0:
                return None
            result[at] = (start, step, row)
            count, step, at = count // row, 1, at - 1
    return tuple(result)


def _meet(one: Progression, two: Progression) -> bool:
    """Tell whether two progressions share a member."""
    (a, s, n), (b, t, m) = one, two
    low = max(a, b)
    high = min(a + s * (n - 1), b + t * (m - 1))
    shared = math.gcd(s, t)
    if low > high or (b - a) % shared:
        return False
    # The first member of `one` that is one of `two` as well, if both went on for ever.
    period = t // shared
    k = (b - a) // shared * pow(s // shared, -1, period) % period if period > 1 else 0
    first, cycle = a + k * s, s * period
    first += max(0, -(-(low - first) // cycle)) * cycle
    return first <= high
