"""A depthwise convolution of 8-bit integers along the rows of memory, by dot products of words.

An instruction multiplies four neighbours of x by four taps and adds the products to a sum of 32
bits, see :mod:`..contraction.dot_products`. A vector of x has the words of every fourth column, so
that four windows, each a column further, make all columns of a vector of results::

    sums 0: columns 0, 4, 8, ...       x[b : b + 64]
    sums 1: columns 1, 5, 9, ...       x[b + 1 : b + 65]          and so on

After the tail, a result is a byte, and the four of neighbouring columns are one word of y: packed
by instructions that saturate where the tail is a shift and limits, see :mod:`.narrowing`. Signed
values of x are made unsigned by adding 128, zeros outside of a row as well, for which the sums
begin with -128 times the taps of their channel. Sums wrap around at 2^32 as those of the function
do: the result is exact for all values.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad, prim
from tvm.target import Target
from tvm.tirx import BufferStore
from tvm.tirx.stmt import ForKind

from ....rewrites.fused_conv import FusedConv
from ....tir.build import sequence
from ....tir.walk import substitute, uses
from ..contraction.dot_products import INSTRUCTIONS, WORD, Instruction, add_dot_products
from ..contraction.words import SHIFT
from .contiguous_conv import Rows
from .narrowing import narrowing_of

#: The instruction with sums of four products.
VNNI: Instruction = INSTRUCTIONS[0]
_BYTES = ("int8", "uint8")


def word_lanes(fused: FusedConv, target: Target) -> int:
    """Return the sums of a vector that a target's instruction adds to, 0 if it has none of use.

    - `fused`: the convolution; :func:`why_not_words` may have something against it.
    """
    lanes = VNNI.lanes(target)
    columns = min(fused.conv.width, fused.conv.columns)
    while lanes in VNNI.names and lanes * VNNI.count > columns:
        lanes //= 2
    return lanes if lanes in VNNI.names else 0


def why_not_words(fused: FusedConv, lanes: int) -> str | None:
    """Return why a convolution is not computed by words, None if it can be.

    - `fused`: one that can be computed in rows of `4 * lanes` lanes, see
      :func:`.row_limits.why_not_rows`.
    - `lanes`: sums of a vector.
    """
    conv = fused.conv
    if lanes not in VNNI.names or min(conv.width, conv.columns) < lanes * VNNI.count:
        return "there is no instruction for vectors of this length"
    if conv.dilation != 1:
        return "its taps are not neighbours"
    if str(conv.data.ty.dtype) not in _BYTES or str(fused.buffer.ty.dtype) not in _BYTES:
        return "its input and its result are not integers of 8 bits"
    if str(conv.out.ty.dtype) != "int32" or _taps(fused) is None:
        return "its terms are not products of an element and a signed tap of 8 bits, in 32 bits"
    if any(uses(each, conv.column.var) for each in (fused.start, fused.result)):
        return "what it adds or what follows depends on the column"
    return None


def in_words(
    func: tirx.PrimFunc, fused: FusedConv, lanes: int, stream: bool, parallel: bool
) -> tirx.PrimFunc:
    """Return a function that computes a fused convolution in words along its rows.

    - `func`: the function with the convolution and nothing else.
    - `fused`, `lanes`: as of :func:`why_not_words`, which has nothing against them.
    - `stream`, `parallel`: as of :func:`.contiguous_conv.in_rows`.
    """
    kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
    return _Words(fused, lanes, stream, kind).function(func)


def _taps(fused: FusedConv) -> Any:
    """Return the tap of a term, in 8 bits, None if the term is not such a product."""
    term, window = fused.conv.term, fused.conv.window
    if not isinstance(term, prim.Mul) or not isinstance(window, prim.Cast):
        return None
    if str(window.ty.dtype) != "int32" or isinstance(window.value, prim.Cast):
        return None
    factors = [each for each in (term.a, term.b) if not each.same_as(window)]
    if len(factors) != 1 or not isinstance(factors[0], prim.Cast):
        return None
    tap = factors[0].value
    return tap if isinstance(tap, TensorLoad) and str(tap.ty.dtype) == "int8" else None


class _Words(Rows):
    """Writes the code for one row."""

    def __init__(self, fused: FusedConv, lanes: int, stream: bool, kind: ForKind) -> None:
        self.signed = str(fused.conv.data.ty.dtype) == "int8"
        self.count = -(-fused.conv.taps // VNNI.count)
        super().__init__(fused, lanes * VNNI.count, stream, kind)
        self.sum_lanes = lanes
        self.narrowing = narrowing_of(fused.result, fused.sum)
        # Of a channel: the words of its taps, and what its sums begin with.
        self.words = tirx.decl_buffer((self.count,), f"int{WORD}", "words")
        self.begin = tirx.decl_buffer((lanes,), f"int{WORD}", "begin")
        self.packed = tirx.decl_buffer((lanes,), f"int{WORD}", "packed")
        self.chunks = tirx.decl_buffer(self.chunks.ty.shape, "int8", "chunks")
        self.window = tirx.decl_buffer((self.lanes,), "int8", "window")
        self.allocated[:2] = [self.chunks, self.window]
        self.allocated += [self.words, self.begin, self.packed]

    def _offsets(self) -> list[int]:
        return [self.conv.start + place for place in range(self.count * VNNI.count)]

    def _outside(self) -> Any:
        return tirx.const(-SHIFT if self.signed else 0, "int8")

    def _x(self, column: Any) -> Any:
        data = self.conv.data
        bits = tirx.reinterpret("int8", data.source[(*data.indices[:-1], column)])
        return tirx.bitwise_xor(bits, tirx.const(-SHIFT, "int8")) if self.signed else bits

    def _row(self) -> Any:
        """Return the code of a row, after the words of its taps."""
        lanes, start = self.sum_lanes, self.fused.start
        whole = prim.Ramp(0, 1, lanes)
        statements: list[Any] = [
            BufferStore(self.words, self._word(place), [place]) for place in range(self.count)
        ]
        if self.narrowing is not None:
            start = start + tirx.const(self.narrowing.half, "int32")
        begin: Any = prim.Broadcast(start, lanes)
        if self.signed:
            statements.append(
                BufferStore(self.begin, prim.Broadcast(tirx.const(0, "int32"), lanes), [whole])
            )
            shift = prim.Broadcast(tirx.const(-SHIFT, "int8"), self.lanes)
            statements += [self._added((self.begin, 0), shift, at) for at in range(self.count)]
            begin = begin - self.begin[whole]
        return sequence([*statements, BufferStore(self.begin, begin, [whole]), super()._row()])

    def _word(self, place: int) -> Any:
        """Return four taps side by side, as many as there are."""
        first, count = place * VNNI.count, VNNI.count
        parts = []
        for at in range(min(count, self.conv.taps - first)):
            tap = tirx.bitwise_and(self._tap_of(first + at), tirx.const(255, "int32"))
            parts.append(prim.LShift(tap, tirx.const(8 * at, "int32")))
        return reduce(tirx.bitwise_or, parts)

    def _tap_of(self, place: int) -> Any:
        tap = self.conv.tap.var
        value = substitute(_taps(self.fused), {tap: tirx.const(place, tap.ty.dtype)})
        return prim.Cast("int32", value)

    def _added(self, sums: tuple[Any, int], window: Any, place: int) -> Any:
        """Return the statement that adds the products of a window and a word to sums."""
        word = prim.Broadcast(self.words[place], self.sum_lanes)
        return add_dot_products(VNNI, sums, window, word, self.sum_lanes)

    def _vector(self, base: Any) -> list[Any]:
        """Return the code of one vector: sums of every fourth column, tails, bytes of y."""
        lanes, count = self.sum_lanes, VNNI.count
        whole = prim.Ramp(0, 1, self.lanes)
        begin = self.begin[prim.Ramp(0, 1, lanes)]
        statements: list[Any] = []
        for first in range(count):
            at = first * lanes
            statements.append(BufferStore(self.sums, begin, [prim.Ramp(at, 1, lanes)]))
            for place in range(self.count):
                window = self._at_offset(self.conv.start + first + place * count)
                statements += [
                    BufferStore(self.window, window, [whole]),
                    self._added((self.sums, at), self.window[whole], place),
                ]
        dtype = str(self.fused.buffer.ty.dtype)
        if self.narrowing is None:
            statements.append(self._packed())
            word = self.packed[prim.Ramp(0, 1, lanes)]
            result = tirx.reinterpret(f"{dtype}x{self.lanes}", word)
        else:
            result = self.narrowing.packed(
                lambda place: self.sums[prim.Ramp(place * lanes, 1, lanes)], lanes
            )
        buffer, outer = self.fused.buffer, self.fused.indices[:-1]
        if self.stream:
            return [*statements, self.stream.store(buffer[(*outer, base)], result)]
        store = BufferStore(buffer, result, [*outer, prim.Ramp(base, 1, self.lanes)])
        return [*statements, store]

    def _packed(self) -> Any:
        """Return the loop that puts the results of four sums side by side, for any tail."""
        lane = tirx.Var("lane", self.conv.column.var.ty)
        bytes_of_word = [self._byte(lane, first) for first in range(VNNI.count)]
        packed = BufferStore(self.packed, reduce(tirx.bitwise_or, bytes_of_word), [lane])
        zero = tirx.const(0, lane.ty.dtype)
        return tirx.For(lane, zero, self.sum_lanes, ForKind.VECTORIZED, packed)

    def _byte(self, lane: Any, place: int) -> Any:
        """Return the result of a sum, at its place in a word."""
        total = self.sums[lane + place * self.sum_lanes]
        value = substitute(self.fused.result, {self.fused.sum: total})
        value = value.value if isinstance(value, prim.Cast) else value
        if str(value.ty.dtype) != "int32":
            value = prim.Cast("int32", value)
        if place < VNNI.count - 1:
            value = tirx.bitwise_and(value, tirx.const(255, "int32"))
        return prim.LShift(value, tirx.const(8 * place, "int32")) if place else value
