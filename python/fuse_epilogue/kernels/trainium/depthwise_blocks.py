"""Rewrites a depthwise convolution with a block for each operation of an engine.

    loaded    x with its zeros, as far as the windows of the result reach
    conv      the sum over the taps, from T.init on
    out       what follows it, if anything does
    stored    y

Some of the taps may be left to the tensor engine, which multiplies matrices only: the weights of
one tap on the diagonal of a matrix, times the channels of x, is that tap for 128 channels at once.

    identity  ones on the diagonal
    diagonal  identity[k, p] * weight[channel of k, tap]
    products  the sum over those taps and over k of  diagonal[tap, k, p] * loaded[channel of k, ..]
    out       what follows  conv + products

Others may be left to the scalar engine, which multiplies while the vector engine adds:

    scaled    the last taps, each in PSUM, whose operands are added at the speed of one
    out       what follows  conv + scaled[0] + scaled[1] ..., in the order of the taps

0 times infinity is NaN: with such data, or weights, taps on the tensor engine would spoil the other
channels. So they are for finite values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim
from tvm.script.ir_builder import tirx as T

from ...recognize.depthwise import DepthwiseConv, find_depthwise_conv
from ...rewrites.fused_conv import FusedConv, find_fused_conv
from ...rewrites.prepare import Prepare, prepare
from ...tir.expressions import uncast
from ...tir.walk import substitute, substitute_part, uses
from ...workloads.writer import Writer
from .match import PreparedMatch
from .tiles import declared, is_fixed, matched_reduction


@dataclass(frozen=True)
class ChannelConv(PreparedMatch):
    """A fused depthwise convolution with one weight for each channel and tap.

    - `sch`, `block`: as of :class:`.match.PreparedMatch`.
    - `fused`: the convolution that it computes.
    - `channel` (tvm.tirx.IterVar): the axis that the weights depend on.
    - `images`: the other axes, columns aside.
    - `weight` (tvm.ir.TensorLoad): an element of the weights, in the channel and the tap.
    """

    fused: FusedConv
    channel: Any
    images: tuple[Any, ...]
    weight: Any

    @property
    def conv(self) -> DepthwiseConv:
        """The convolution."""
        return self.fused.conv

    @property
    def dtype(self) -> str:
        """Type of x."""
        return str(self.conv.data.source.ty.dtype)

    @property
    def channels(self) -> int:
        """Number of channels."""
        return int(self.channel.dom.extent)

    def loops(self, partitions: int) -> int:
        """Return the number of loops of the rewritten function: see :func:`rewritten`."""
        return len(self.images) + (1 if self.channels % partitions else 2) + 1

    @property
    def reach(self) -> int:
        """Columns of x, zeros included, that the result depends on."""
        conv = self.conv
        return int((conv.columns - 1) * conv.stride + (conv.taps - 1) * conv.dilation + 1)


def find_channel_conv(func: tirx.PrimFunc, prepared: Prepare = prepare) -> ChannelConv | None:
    """Return the convolution that a function is; see :func:`.tiles.matched_reduction`."""
    return matched_reduction(
        prepared(func), lambda block: find_depthwise_conv(block) is not None, conv_in
    )


def conv_in(sch: s_tir.Schedule, reduction: Any) -> ChannelConv | None:
    """Return the convolution that a function is, None if it is something else.

    - `sch`: prepared, and fused: see :func:`.tiles.fuse_all`.
    - `reduction`: SBlockRV.
    """
    fused = find_fused_conv(sch, reduction) if is_fixed(sch.mod["main"]) else None
    if fused is None or str(fused.conv.out.ty.dtype) != "float32":
        return None
    conv = fused.conv
    if any(uses(part, fused.buffer) for part in (fused.start, conv.term, fused.result)):
        return None  # It reads what it stores.
    product = conv.term
    if not isinstance(product, prim.Mul):
        return None
    sides = (product.a, product.b)
    others = [side for side in sides if not side.same_as(conv.window)]
    weight = uncast(others[0]) if len(others) == 1 else None
    if not isinstance(weight, TensorLoad) or uses(weight, conv.column.var):
        return None
    channels = [axis for axis in conv.outer if uses(weight, axis.var)]
    if len(channels) != 1:
        return None
    images = tuple(axis for axis in conv.outer if axis is not channels[0])
    name = str(fused.conv.block.name_hint)
    return ChannelConv(sch, name, fused, channels[0], images, weight)


def rewritten(
    conv: ChannelConv, partitions: int, on_tensor: int = 0, on_scalar: int = 0
) -> tirx.PrimFunc:
    """Rewrite the convolution.

    - `conv`: the convolution to write.
    - `partitions`: channels that one instruction computes. If they divide the channels there is an
      axis for them: channel ``p * rest + r``, so that the weights of a partition are neighbours.
    - `on_tensor`: how many taps are products of matrices, the first ones.
    - `on_scalar`: how many taps the scalar engine multiplies, the last ones.
    - Returns: not scheduled, with the same parameters as the function.
    - Raises ValueError: there are fewer taps, no tap is left to begin the sum, or the partitions do
      not divide the channels though there are taps on the tensor engine.
    """
    if not 0 <= on_tensor <= conv.conv.taps:
        raise ValueError(f"on_tensor must be from 0 to {conv.conv.taps}, not {on_tensor}")
    if on_tensor and conv.channels % partitions:
        raise ValueError(f"{partitions} partitions do not divide {conv.channels} channels")
    if on_scalar and not 0 < on_scalar < conv.conv.taps - on_tensor:
        raise ValueError(
            f"on_scalar must be from 0 to {conv.conv.taps - on_tensor - 1}, not {on_scalar}"
        )
    return _Rewriter(conv, partitions, on_tensor, on_scalar).write()


class _Rewriter:
    def __init__(self, conv: ChannelConv, partitions: int, on_tensor: int, on_scalar: int) -> None:
        self.conv = conv
        self.on_tensor, self.on_scalar = on_tensor, on_scalar
        self.partitions = partitions
        self.rest = conv.channels // partitions if conv.channels % partitions == 0 else 0
        letters = [f"n{i}" if i else "n" for i in range(len(conv.images))]
        self.images = dict(zip(letters, [int(a.dom.extent) for a in conv.images], strict=True))
        if self.rest:
            self.channels = {"r": self.rest, "p": partitions}
        else:
            self.channels = {"c": conv.channels}
        self.columns = {"w": conv.conv.columns}
        dims = {**self.images, **self.channels, **self.columns}
        self.writer = Writer(dims, "float32", "int32", "stored")
        self.renamed: dict[Any, Any] = {}
        # Where all that follows is rounding, the last tap rounds its sum while it stores it.
        result, taps = conv.fused.result, conv.conv.taps
        rounds = isinstance(result, prim.Cast) and result.value.same_as(conv.fused.sum)
        self.with_out = 1 if rounds and taps > 1 and not (on_tensor or on_scalar) else 0

    def write(self) -> tirx.PrimFunc:
        """Write everything."""
        conv, writer = self.conv, self.writer
        fused, taps = conv.fused, conv.conv.taps
        with writer.function():
            self.renamed.update(declared(writer, conv.func))
            loaded = self.load()
            products = self.products(loaded) if self.on_tensor else None
            total = self.sum(loaded) if self.on_tensor < taps else None
            scaled = self.scaled(loaded) if self.on_scalar else None
            tile = self.out(loaded, total, products, scaled)
            with writer.block("stored", writer.dims) as at:
                places = [substitute(i, self.axes(at)) for i in fused.indices]
                T.buffer_store(self.renamed[fused.buffer], tile[tuple(at)], places)
        return writer.written()

    def axes(self, at: Any, tap: Any = None) -> dict[Any, Any]:
        """Return the values of the convolution's axes at an index of the result."""
        conv = self.conv
        images, rest = at[: len(self.images)], at[len(self.images) :]
        values = {a.var: v for a, v in zip(conv.images, images, strict=True)}
        values[conv.channel.var] = self.channel(rest)
        values[conv.conv.column.var] = rest[-1]
        if tap is not None:
            values[conv.conv.tap.var] = tap
        return values

    def channel(self, at: Any) -> Any:
        """Return the channel at an index that begins with its axes."""
        return at[1] * self.rest + at[0] if self.rest else at[0]

    def load(self) -> Any:
        """Write block "loaded"."""
        conv, writer = self.conv.conv, self.writer
        dims = {**self.images, **self.channels, "w": self.conv.reach}
        loaded = writer.buffer("loaded", "x_tile", dims, self.conv.dtype)
        with writer.block("loaded", dims) as at:
            column = at[-1] + conv.start
            values = self.axes(at)
            places = [substitute(index, values) for index in conv.data.indices]
            places[conv.axis] = column
            value = self.renamed[conv.data.source][tuple(places)]
            if conv.outside is not None:
                inside = tirx.all(column >= 0, column < conv.width)
                value = T.if_then_else(inside, value, conv.outside)
            T.buffer_store(loaded, value, at)
        return loaded

    def window(self, loaded: Any, at: Any, tap: Any) -> Any:
        """Return the element of x, or the zero, of a tap."""
        conv = self.conv.conv
        return loaded[(*at[:-1], at[-1] * conv.stride + tap * conv.dilation)]

    def sum(self, loaded: Any) -> Any:
        """Write block "conv": the taps that are summed one by one."""
        conv, writer, fused = self.conv.conv, self.writer, self.conv.fused
        total = writer.buffer("conv", "total", writer.dims, "float32")
        taps = conv.taps - self.on_tensor - self.with_out - self.on_scalar
        with writer.block("conv", writer.dims, {"f": taps}) as index:
            *at, tap = index
            tap = tap + self.on_tensor
            with T.init():
                T.buffer_store(total, self.placed(fused.start, self.axes(at)), at)
            T.buffer_store(total, total[tuple(at)] + self.term(loaded, at, tap), at)
        return total

    def term(self, loaded: Any, at: Any, tap: Any) -> Any:
        """Return what a tap adds."""
        conv = self.conv.conv
        window = conv.cast(self.window(loaded, at, tap))
        term = substitute_part(conv.term, conv.window, window)
        return self.placed(term, self.axes(at, tap))

    def scaled(self, loaded: Any) -> Any:
        """Write block "scaled": the taps that the scalar engine multiplies."""
        writer, first = self.writer, self.conv.conv.taps - self.on_scalar
        dims = {"g": self.on_scalar, **writer.dims}
        scaled = writer.buffer("scaled", "scaled", dims, "float32")
        with writer.block("scaled", dims) as index:
            tap, *at = index
            T.buffer_store(scaled, self.term(loaded, at, tap + first), index)
        return scaled

    def products(self, loaded: Any) -> Any:
        """Write the taps that are products of matrices."""
        conv, writer, size = self.conv, self.writer, self.partitions
        square = {"k": size, "p": size}
        identity = writer.buffer("identity", "identity", square, conv.dtype)
        with writer.block("identity", square) as (k, p):
            one, zero = tirx.const(1, conv.dtype), tirx.const(0, conv.dtype)
            T.buffer_store(identity, T.if_then_else(k == p, one, zero), (k, p))
        dims = {"f": self.on_tensor, "r": self.rest, **square}
        diagonal = writer.buffer("diagonal", "diagonal", dims, conv.dtype)
        with writer.block("diagonal", dims) as (f, r, k, p):
            values = {conv.channel.var: self.channel((r, k)), conv.conv.tap.var: f}
            weight = self.placed(conv.weight, values)
            product = T.cast(identity[k, p], "float32") * T.cast(weight, "float32")
            T.buffer_store(diagonal, T.cast(product, conv.dtype), (f, r, k, p))
        products = writer.buffer("products", "products", writer.dims, "float32")
        with writer.block("products", writer.dims, {"f": self.on_tensor, "k": size}) as index:
            *at, f, k = index
            r, p = at[-3], at[-2]
            left = T.cast(diagonal[f, r, k, p], "float32")
            right = T.cast(self.window(loaded, (*at[:-2], k, at[-1]), f), "float32")
            with T.init():
                T.buffer_store(products, tirx.const(0, "float32"), at)
            T.buffer_store(products, products[tuple(at)] + left * right, at)
        return products

    def out(self, loaded: Any, total: Any, products: Any, scaled: Any) -> Any:
        """Write block "out"; return the buffer that holds what is stored."""
        writer, fused = self.writer, self.conv.fused
        if products is None and scaled is None and fused.result.same_as(fused.sum):
            return total
        tile = writer.buffer("out", "y_tile", writer.dims, str(fused.buffer.ty.dtype))
        with writer.block("out", writer.dims) as at:
            start = self.placed(fused.start, self.axes(at))
            finished = start if total is None else total[tuple(at)]
            finished = finished if products is None else finished + products[tuple(at)]
            for tap in range(self.on_scalar):
                finished = finished + scaled[(tirx.const(tap, "int32"), *at)]
            if self.with_out:
                last = tirx.const(self.conv.conv.taps - 1, "int32")
                finished = finished + self.term(loaded, at, last)
            value = substitute(self.placed(fused.result, self.axes(at)), {fused.sum: finished})
            T.buffer_store(tile, value, at)
        return tile

    def placed(self, expr: Any, values: dict[Any, Any]) -> Any:
        """Return an expression of the convolution at an index, over the new parameters."""
        return substitute(substitute(expr, values), self.renamed)
