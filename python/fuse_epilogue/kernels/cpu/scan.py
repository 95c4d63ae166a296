"""Running sums and products: vectors of scans that lie beside each other, or several rows at once.

    for vectors of columns, in parallel:          for eight rows, in parallel:
        total = x[0, columns]                         for k along the axis:
        for k along the axis:                             for each of the rows:
            total += x[k, columns]                            total[row] += x[row, k]
            y[k, columns] = total                             y[row, k] = total[row]

Each scan adds in the order of the axis, as TVM does. A scan alone waits for every addition; eight
of them hide that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.target import Target

from ...recognize.scan import Scan
from ...targets import vector_bits
from ...tir.types import bits_of
from ..scheduled import Scheduled, Way
from .costs import CALL_S, CLOCK_HZ, bytes_per_cycle, on_threads, sharing, threads_for
from .loops import FlatViews, index, loop, sequence

#: Rows that are computed at once, and vectors of columns.
ROWS, VECTORS = 8, 4
#: Seconds of an addition that waits for the one before it, shared by the rows.
_STEP_S = 1.5e-9


def schedule(scan: Scan, target: Target, threads: int = 1) -> Scheduled:
    """Schedule a scan.

    - `target`: target of kind "llvm".
    - `threads`: number of threads that parallel loops are made for.
    """
    shape = scan.shape
    outer, extent = math.prod(shape[: scan.axis]), shape[scan.axis]
    inner = math.prod(shape[scan.axis + 1 :])
    elements = outer * extent * inner
    views = FlatViews()
    # TVM's may lie anywhere in an array, which a view of the array would not know.
    params = [tirx.decl_buffer(each.shape, str(each.dtype), each.name) for each in scan.func.params]
    kernel = _Kernel(scan, params, views, extent, inner)
    predicted = elements * _STEP_S / min(ROWS, outer)
    if inner > 1:
        size = elements * (bits_of(scan.source.dtype) + bits_of(scan.result.dtype)) / 8
        predicted = size / bytes_per_cycle(size) / CLOCK_HZ
    if threads_for(predicted, threads) > 1:
        kernel.kind = tirx.ForKind.PARALLEL
    if inner > 1:
        widest = max(bits_of(scan.source.dtype), bits_of(scan.result.dtype))
        body = kernel.columns(outer, max(1, vector_bits(target) // widest))
    else:
        body = kernel.rows(outer)
    func = tirx.PrimFunc(
        params, sequence(views.declare(body)), scan.func.ret_type, attrs=scan.func.attrs
    )
    text = "vectors of columns" if inner > 1 else f"{min(ROWS, outer)} rows at a time"
    seconds = CALL_S + on_threads(predicted, threads)
    way = Way(text + sharing(predicted, threads), seconds)
    return Scheduled(func, "scan", predicted_s=seconds, ways=(way,))


class _Kernel:
    """Writes the loops.

    - `params` (Sequence of Buffer): the source and the result.
    - `extent`, `inner`: number of elements of a scan, and the distance between two of them.
    - `kind` (tvm.tirx.ForKind): kind of the loops over scans.
    """

    kind = tirx.ForKind.SERIAL

    def __init__(
        self, scan: Scan, params: Sequence[Any], views: FlatViews, extent: int, inner: int
    ) -> None:
        self.scan, self.extent, self.inner = scan, extent, inner
        self.source, self.result = map(views.of, params)
        self.dtype = str(scan.result.dtype)

    def columns(self, outer: int, lanes: int) -> Any:
        """Return loops over blocks of columns, each of up to some vectors."""
        while lanes > self.inner:
            lanes //= 2
        width = lanes * min(VECTORS, self.inner // lanes)
        blocks, rest = divmod(self.inner, width)
        parts = []
        if blocks:
            parts.append(self.blocks(outer, blocks, 0, width))
        begin = blocks * width
        while rest:
            size = 1 << (min(rest, lanes).bit_length() - 1)
            count = rest // size
            parts.append(self.blocks(outer, count, begin, size))
            begin, rest = begin + count * size, rest - count * size
        return sequence(parts)

    def blocks(self, outer: int, blocks: int, begin: int, width: int) -> Any:
        """Return the loop over blocks of one width in all planes."""

        def block(number: Any) -> Any:
            plane = tirx.floordiv(number, index(blocks))
            column = tirx.floormod(number, index(blocks)) * index(width) + index(begin)
            first = plane * index(self.extent * self.inner) + column

            def vector(body: Callable[[Any], Any]) -> Any:
                return loop("lane", 0, width, body, tirx.ForKind.VECTORIZED)

            return self.scans(width, first, index(1), vector)

        return loop("block", 0, outer * blocks, block, self.kind)

    def rows(self, outer: int) -> Any:
        """Return loops over rows, some at once."""
        whole, rest = divmod(outer, ROWS)
        parts = []
        if whole:
            parts.append(self.some_rows(0, whole, ROWS))
        if rest:
            parts.append(self.some_rows(whole * ROWS, 1, rest))
        return sequence(parts)

    def some_rows(self, begin: int, blocks: int, count: int) -> Any:
        """Return the loop over blocks of n rows, from a row on."""

        def block(number: Any) -> Any:
            first = (number * index(count) + index(begin)) * index(self.extent)

            def every(body: Callable[[Any], Any]) -> Any:
                return sequence([body(index(row)) for row in range(count)])

            return self.scans(count, first, index(self.extent), every)

        return loop("block", 0, blocks, block, self.kind)

    def scans(
        self, count: int, first: Any, apart: Any, every: Callable[[Callable[[Any], Any]], Any]
    ) -> Any:
        """Return the statements of n scans that begin at equal distances.

        - `first`, `apart` (Expr): offset of the first one, and the distance to the next.
        - `every`: makes statements for all of them, given what makes them for one.
        """
        total = tirx.decl_buffer([index(count)], self.dtype, "total", layout=None)

        def step(k: Any, is_first: bool) -> Any:
            def one(number: Any) -> Any:
                at = first + number * apart + k * index(self.inner)
                value = tirx.BufferLoad(self.source, [at]).astype(self.dtype)
                if not is_first:
                    before = tirx.BufferLoad(total, [number])
                    is_sum = self.scan.operator == "cumsum"
                    value = before + value if is_sum else before * value
                stored = tirx.BufferStore(total, value, [number])
                given = tirx.BufferLoad(total, [number])
                return sequence([stored, tirx.BufferStore(self.result, given, [at])])

            return every(one)

        return sequence(
            [
                tirx.AllocBuffer(total),
                step(index(0), True),
                *(
                    [loop("k", 1, self.extent - 1, lambda k: step(k, False))]
                    if self.extent > 1
                    else []
                ),
            ]
        )
