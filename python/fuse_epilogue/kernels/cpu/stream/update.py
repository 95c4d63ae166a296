"""The next columns of streams: one pass over the states, which are updated in place.

    for the streams, four at a time, in parallel:
        for the channels:
            for each of the four, unrolled:
                totals and columns of the state, from the state and x
                y[...] = f(total)
                state[...] = columns

All loads of one stream's channel come before its stores. If their number is not a multiple of four
for each thread, streams are computed one at a time. Loops over channels are left to LLVM,
which loads states of a few columns in vectors and takes them to pieces.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import prim

from ....recognize.stream_update import Update, read_update
from ....recognize.streams import Streams
from ....tir.build import in_root, sequence
from ....tir.walk import substitute
from ...scheduled import Scheduled, Way
from ...stream.elements import updated_channel
from ..costs import CALL_S, CLOCK_HZ, bytes_per_cycle, on_threads, sharing, threads_for

#: Streams that are computed side by side: they share a channel's weights, which cost as much to
#: take to pieces as the state, and their activations do not wait for each other.
BESIDE = 4


def update(streams: Streams, threads: int) -> Scheduled | None:
    """Schedule a function that updates a parameter in place.

    - `streams`: at least one of its results is read, too.
    - `threads`: number of threads that parallel loops are made for.
    - Returns: None where :func:`fuse_epilogue.recognize.stream_update.read_update` returns None.
    """
    found = read_update(streams)
    if found is None:
        return None
    body = [each.statement for each in streams.checks]
    touched = sum(prod(map(int, buffer.shape)) for buffer in streams.func.params) * 4
    seconds = touched / bytes_per_cycle(touched) / CLOCK_HZ
    body.append(_pass(found, threads_for(seconds, threads)))
    func = streams.func.with_body(in_root(sequence(body), []))
    predicted = CALL_S + on_threads(seconds, threads)
    way = Way("one pass over the states" + sharing(seconds, threads), predicted)
    return Scheduled(func, "stream update", "tail", predicted, ways=(way,))


def _pass(update: Update, threads: int) -> Any:
    """Return the loops over streams and channels."""
    axes = update.axes
    body = updated_channel(update)
    channels = axes[-1]
    parts = 1
    if prod(axis.extent for axis in axes[:-1]) < threads:
        parts = next(k for k in range(threads, 0, -1) if channels.extent % k == 0)
    index = str(channels.var.ty.dtype)

    def const(value: int) -> Any:
        return prim.IntImm(index, value)

    serial = tirx.ForKind.SERIAL
    inner = tirx.Var("channel", index)
    rest = tirx.Var("part", index)
    size = channels.extent // parts
    body = substitute(body, {channels.var: rest * size + inner if parts > 1 else inner})
    outer = [(axis.var, axis.extent) for axis in axes[:-1]] + [(rest, parts)] * (parts > 1)
    if not outer:
        return tirx.For(inner, const(0), const(size), serial, body)
    total = prod(extent for _, extent in outer)
    beside = BESIDE if parts == 1 and total % (BESIDE * threads) == 0 else 1
    member = tirx.Var("beside", index)
    together = tirx.Var("stream", index)
    left: Any = together * beside + member if beside > 1 else together
    values: dict[Any, Any] = {}
    for var, extent in reversed(outer):
        whole = len(values) == len(outer) - 1
        values[var] = left if whole else tirx.floormod(left, extent)
        left = tirx.floordiv(left, extent)
    kind = tirx.ForKind.PARALLEL if threads > 1 else serial
    body = substitute(body, values)
    if beside > 1:
        body = tirx.For(member, const(0), const(beside), tirx.ForKind.UNROLLED, body)
    body = tirx.For(inner, const(0), const(size), serial, body)
    return tirx.For(together, const(0), const(total // beside), kind, body)
