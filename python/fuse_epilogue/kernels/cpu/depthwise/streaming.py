"""Stores that go around the caches, for results that would not fit into them.

A plain store first loads the line it writes to, which is a third of all the traffic of a function
that reads one array and writes another. TVM has no such stores, but it links in text of LLVM.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from ....tir.affine import as_constant
from ....tir.types import bits_of, bytes_of

# LLVM's names of types. bfloat16 is not here: TVM stores it as integers of 16 bits.
_TYPES = {"float32": "float", "float16": "half", "int8": "i8", "int32": "i32"}

#: Results from this size on are streamed, in bytes: the last-level cache of a large server core
#: complex. Below, the next reader of the result finds it in a cache.
STREAM_FROM = 32 << 20


class StreamingStore:
    """A store of a whole, aligned vector.

    - `pragma` (dict[str, str]): the annotation that a loop around all uses needs.
    """

    def __init__(self, dtype: str, lanes: int) -> None:
        self.name = f"fuse_epilogue_stream_{dtype}x{lanes}"
        size = lanes * bytes_of(dtype)
        self.pragma = {
            "pragma_import_llvm": f"""
define void @{self.name}(ptr %address, <{lanes} x {_TYPES[dtype]}> %value) alwaysinline {{
  store <{lanes} x {_TYPES[dtype]}> %value, ptr %address, align {size}, !nontemporal !0
  ret void
}}
define void @fuse_epilogue_stream_end() alwaysinline {{
  call void @llvm.x86.sse.sfence()
  ret void
}}
declare void @llvm.x86.sse.sfence()
!0 = !{{i32 1}}
"""
        }

    def store(self, element: Any, value: Any) -> Any:
        """Return the statement that stores a vector from an element on."""
        return tirx.Evaluate(tirx.call_extern("void", self.name, tirx.address_of(element), value))

    def end(self) -> Any:
        """Return the statement after which other threads see what this one has stored."""
        return tirx.Evaluate(tirx.call_extern("void", "fuse_epilogue_stream_end"))


def has_streaming_stores(target: Target) -> bool:
    """Whether a processor is one whose stores around the caches are known here: x86."""
    return bool(tvm.get_global_func("target.llvm_cpu_has_feature")("sse2", target))


def size_of(buffer: Any) -> int | None:
    """Return the bytes of a result, None if they are not known before it runs."""
    elements = as_constant(reduce(lambda a, b: a * b, buffer.ty.shape))
    return elements * bits_of(buffer.ty.dtype) // 8 if isinstance(elements, int) else None


def is_large(buffer: Any) -> bool:
    """Whether a result would not fit into the caches, whichever they are."""
    size = size_of(buffer)
    return size is not None and size >= STREAM_FROM


def can_stream(buffer: Any, lanes: int, columns: int) -> bool:
    """Whether a result can be streamed: of a known size, each vector of it whole and aligned.

    - `buffer` (tvm.ir.Var): the result.
    - `lanes`: elements of a vector.
    - `columns`: elements of a row that are written, from its start.
    """
    result = buffer.ty
    dtype = str(result.dtype)
    if size_of(buffer) is None or dtype not in _TYPES:
        return False
    # Neighbours in a row, the next row, and the whole: TVM checks its address when it is passed.
    vector = lanes * bytes_of(dtype)
    if columns % lanes or as_constant(result.shape[-1]) % lanes:
        return False
    if (
        len(result.strides)
        or as_constant(result.elem_offset) != 0
        or result.data_alignment % vector
    ):
        return False
    return vector in (16, 32, 64)
