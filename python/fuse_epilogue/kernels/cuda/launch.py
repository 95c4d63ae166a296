"""A grid of threads, each of which computes one part of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.tirx import BufferRegion, For, IterVar
from tvm.tirx.stmt import ForKind

from ...recognize.stages import Axis
from ...rewrites.fused_conv import FusedConv
from ...tir.affine import as_constant
from ...tir.build import in_root
from ...tir.unfold import unfold
from ...tir.walk import handle, substitute

#: Threads of a block, at most, where nothing says how many.
THREADS = 256
# With fewer threads than these, some multiprocessors of a large GPU have too little to do.
ENOUGH_THREADS = 1 << 16


def enough(threads: Any) -> bool:
    """Return whether n threads keep a large GPU busy; an unknown number does."""
    return not isinstance(threads, int) or threads >= ENOUGH_THREADS


def product(sizes: Sequence[Any]) -> Any:
    """Return the product: an int, or an expression if one of them is."""
    return reduce(lambda a, b: a * b, map(as_constant, sizes), 1)


def ceil_div(a: Any, b: int) -> Any:
    """Divide and round up: an int, or an expression for an expression."""
    return -(-a // b) if isinstance(a, int) else tirx.floordiv(a + (b - 1), b)


def threads_for(total: Any, dtype: str, most: int = THREADS) -> int:
    """Return the threads of a block, up to a limit, for n in all, counted in a type."""
    if not isinstance(total, int):
        return most
    threads = min(most, total)
    # The last block may not count beyond its type.
    while dtype == "int32" and total + threads > 2**31 and total % threads:
        threads //= 2
    return threads


def axis(name: str, extent: Any, dtype: str) -> IterVar:
    """Return an axis of parts for :func:`in_threads`."""
    size = tirx.const(extent, dtype) if isinstance(extent, int) else extent
    return IterVar(Range.from_min_extent(0, size), tirx.Var(name, dtype), IterVar.DataPar)


def in_threads(
    func: tirx.PrimFunc,
    fused: FusedConv,
    axes: Sequence[IterVar],
    body: Any,
    local: Sequence[Any],
    most: int,
) -> tirx.PrimFunc:
    """Return a function in which a thread runs `body` for each element of a space.

    Neighbouring threads differ in the last axis. The grid has one dimension: the other two of a
    GPU's are limited to 65535 blocks.

    - `fused`: buffers that `body` reads and writes.
    - `axes`: the space.
    - `body` (Stmt): in the variables of the axes.
    - `local`: buffers of a thread.
    - `most`: threads of a block, at most.
    """
    extents = [as_constant(each.dom.extent) for each in axes]
    reads = {handle(load.source): load.source for load in fused.reads}
    regions = [_whole(buffer) for buffer in reads.values()]
    # nvcc unrolls: the text stays short, and arrays become registers all the same.
    body = tirx.AttrStmt(0, "pragma_unroll_explicit", 0, body)
    part = s_tir.SBlock(
        list(axes), regions, [_whole(fused.buffer)], "part", body, alloc_buffers=list(local)
    )

    def of_thread(number: Any, inside: Any) -> Any:
        return s_tir.SBlockRealize(unfold(number, extents), inside, part)

    dtype = str(axes[-1].var.ty.dtype)
    return func.with_body(in_root(_numbered(product(extents), dtype, most, of_thread)))


def in_grid(axes: Sequence[Axis], body: Any) -> For:
    """Return the loops of a grid in which a thread runs `body` for each point of a space.

    Neighbouring threads differ in the last axis.

    - `axes`: the space.
    - `body` (Stmt): in the variables of the axes; what it writes at one point, nothing touches at
      another one.
    """
    extents = [axis.extent for axis in axes]

    def of_thread(number: Any, inside: Any) -> Any:
        values = unfold(number, extents)
        types = (str(axis.var.ty.dtype) for axis in axes)
        cast = [value.astype(dtype) for value, dtype in zip(values, types, strict=True)]
        moved = substitute(body, dict(zip((axis.var for axis in axes), cast, strict=True)))
        return moved if inside is True else tirx.IfThenElse(inside, moved, None)

    return _numbered(product(extents), str(axes[-1].var.ty.dtype), THREADS, of_thread)


def _numbered(total: Any, dtype: str, most: int, of_thread: Callable[[Any, Any], Any]) -> For:
    """Return the loops of a grid; `of_thread` takes a thread's number, and whether it is one."""
    threads = threads_for(total, dtype, most)
    block, thread = tirx.Var("block", dtype), tirx.Var("thread", dtype)
    number = block * threads + thread
    inside: Any = True
    if not isinstance(total, int) or total % threads:
        inside = number < total
    blocks = ceil_div(total, threads)
    loops = _bound(thread, tirx.const(threads, dtype), "threadIdx.x", of_thread(number, inside))
    extent = tirx.const(blocks, dtype) if isinstance(blocks, int) else blocks
    return _bound(block, extent, "blockIdx.x", loops)


def _bound(var: Any, extent: Any, tag: str, body: Any) -> For:
    dtype = str(var.ty.dtype)
    domain = Range.from_min_extent(tirx.const(0, dtype), extent)
    binding = IterVar(domain, tirx.Var(tag, dtype), IterVar.ThreadIndex, tag)
    return For(var, tirx.const(0, dtype), extent, ForKind.THREAD_BINDING, body, binding)


def _whole(buffer: Any) -> BufferRegion:
    return BufferRegion(buffer, [Range.from_min_extent(0, size) for size in buffer.ty.shape])
