"""Parts of a thread's code: loops over lanes and taps, and elements of a convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx import BufferStore, For, IfThenElse
from tvm.tirx.stmt import ForKind

from ....recognize.depthwise import DepthwiseConv
from ....rewrites.fused_conv import FusedConv
from ....tir.types import bytes_of
from ....tir.walk import substitute, substitute_part

#: Bytes of the largest load and store of a thread.
VECTOR_BYTES = 16


def has_vectors(buffer: Any) -> bool:
    """Whether TVM loads and stores vectors of the elements of a buffer.

    Those of bool it takes for ushort2 or ushort4, two bytes for each element, which lie beyond the
    vector: `CodeGenCUDA::PrintType` of TVM 0.27.
    """
    return str(buffer.ty.dtype) != "bool"


def lanes_of(fused: FusedConv) -> int:
    """Return how many elements of both x and y the largest vector has."""
    both = (fused.buffer, fused.conv.data.source)
    return (
        VECTOR_BYTES // max(bytes_of(each.ty.dtype) for each in both)
        if all(map(has_vectors, both))
        else 1
    )


def is_compact(buffer: Any) -> bool:
    """Whether an element's place in memory follows from the shape."""
    return not list(buffer.ty.strides)


def unrolled(name: str, count: int, dtype: str, body: Callable[[Any], Any]) -> Any:
    """Return a loop that nvcc unrolls; for one step, the step."""
    if count == 1:
        return body(tirx.const(0, dtype))
    var = tirx.Var(name, dtype)
    zero = tirx.const(0, dtype)
    return For(var, zero, tirx.const(count, dtype), ForKind.UNROLLED, body(var))


def copied(lanes: int, dtype: str, store: Callable[[Any], tuple[Any, Sequence[Any], Any]]) -> Any:
    """Return one vector store; `store` gives the buffer, indices and value of a lane."""
    lane = tirx.Var("lane", dtype)
    buffer, indices, value = store(lane)
    body = BufferStore(buffer, value, list(indices))
    if lanes == 1:
        return substitute(body, {lane: tirx.const(0, dtype)})
    return For(lane, tirx.const(0, dtype), tirx.const(lanes, dtype), ForKind.VECTORIZED, body)


def outside(conv: DepthwiseConv) -> Any:
    """Return what x is beyond its borders."""
    dtype = conv.data.ty.dtype
    return tirx.const(0, dtype) if conv.outside is None else conv.outside


def added(conv: DepthwiseConv, x: Any) -> Any:
    """Return what is added for a tap, with an element of x or what is outside in its place."""
    return substitute_part(conv.term, conv.window, conv.cast(x))


def computed(
    fused: FusedConv,
    lanes: int,
    sums: Any,
    out: Any,
    x: Callable[[Any, Any], Any],
    at: Callable[[Any], dict[Any, Any]],
    inside: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Return the code of one vector of the result: T.init, the taps, the tail.

    - `sums`, `out` (tvm.tirx.Buffer): buffers of a thread: the accumulators, and the result.
    - `x`: the element of x for a tap and a lane.
    - `at`: values of the axes for a lane.
    - `inside`: the condition that a lane is one of the result's: nothing is computed for others.
    """
    conv = fused.conv
    dtype = str(conv.column.var.ty.dtype)

    def store(buffer: Any, value: Any, lane: Any) -> Any:
        stored = BufferStore(buffer, value, [lane])
        return stored if inside is None else IfThenElse(inside(lane), stored, None)

    def start(lane: Any) -> Any:
        return store(sums, substitute(fused.start, at(lane)), lane)

    def step(tap: Any, lane: Any) -> Any:
        term = substitute(added(conv, x(tap, lane)), {**at(lane), conv.tap.var: tap})
        return store(sums, sums[lane] + term, lane)

    def finish(lane: Any) -> Any:
        return store(out, substitute(fused.result, {**at(lane), fused.sum: sums[lane]}), lane)

    return [
        unrolled("lane", lanes, dtype, start),
        unrolled(
            "tap",
            conv.taps,
            dtype,
            lambda tap: unrolled("lane", lanes, dtype, lambda lane: step(tap, lane)),
        ),
        unrolled("lane", lanes, dtype, finish),
    ]
