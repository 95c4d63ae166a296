"""A depthwise convolution along one dimension, its bias and its activation, in TIR."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import ACTIVATIONS, Convolution, convolution, one_of, whole

LAYOUTS = ("NCW", "NWC")
REQUANTISING_SHIFT = 7

Index = tuple[Any, ...]


def depthwise_conv1d(
    n: int | str,
    c: int,
    w: int | str,
    f: int,
    *,
    padding: str | tuple[int, int] = "same",
    stride: int = 1,
    dilation: int = 1,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
    layout: str = "NCW",
    shift: int = REQUANTISING_SHIFT,
) -> PrimFunc:
    """Convolve each channel with a filter of its own.

    With x taken as 0 outside of its W columns, l zeros on the left, and j over the F taps::

        sum[n, c, i] = sum_j  x[n, c, i * stride + j * dilation - l] * weight[c, j]
        y[n, c, i]   = activation(sum[n, c, i] + bias[c])

    Parameters
    ----------
    n, w : int or str
        Images N and columns W, at least 1. A str is the name of a symbolic size: an ``int64``
        that the function takes from the shape of x. The same name is the same size.
    c, f : int
        Channels C and taps F, at least 1.
    padding : {"same", "valid", "causal"} or (int, int)
        How many zeros go to the left and right of x.

        ``"same"``: as many as make W' = ceil(W / stride), half of them (rounded down) on the left;
        that is ``dilation * (F - 1)`` in all for a stride of 1, and so many also for every other
        stride where W is symbolic. ``"valid"``: none. ``"causal"``: ``dilation * (F - 1)`` on the
        left, so that y[.., i] depends on no column after ``i * stride``. ``(l, r)``: l and r.
    stride, dilation : int
        Columns of x from one result to the next, and from one tap to the next; at least 1.
    dtype : {"float32", "float16", "bfloat16", "int8"}
        Type of x, weight and y. The 16-bit types are summed in ``float32``, where the bias and the
        activation are computed too, and rounded once, at the end. ``"int8"`` is summed in ``int32``
        and requantised at the end, ``y = clip((x + 2**(shift - 1)) >> shift, -128, 127)``.
    bias : bool
        Whether there is a bias.
    activation : {None, "relu", "silu"}
        ``max(x, 0)``, or ``x * sigmoid(x)``, which ``"int8"`` does not have.
    layout : {"NCW", "NWC"}
        Order of the dimensions of x and y, and of the loops.
    shift : int
        For ``"int8"`` only: how many bits requantising drops, 0 to 31; 0 only clips. The sum, with
        the bias and the half that is added for rounding, has to fit into 32 bits.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[N, C, W], or x[N, W, C]
        - weight[C, F], in both layouts
        - bias[C], if there is one: of `dtype`, and ``int32`` for ``"int8"``
        - y[N, C, W'], or y[N, W', C], with W' = (W + l + r - dilation * (F - 1) - 1) // stride + 1

        and one block for each step: "pad" (if there are zeros), "conv", "bias", "relu" or "sigmoid"
        and "silu", "cast" for the 16-bit types, "requantise" for ``"int8"``. The parameters must
        not overlap. Loops and indices are ``int32``, or ``int64`` where a size is symbolic or a
        buffer has 2**31 elements.

    Raises
    ------
    ValueError
        An argument is not possible, or W' would be less than 1. The message says which argument,
        what it was and what is possible. Nobody checks a symbolic W: where W' is less than 1,
        there is no y to pass.

    Example
    -------
    >>> func = depthwise_conv1d(1, 64, "w", 4, padding="causal", activation="silu")
    >>> sch = tvm.s_tir.Schedule(func)                          # doctest: +SKIP
    >>> print(sch.fuse_reduction_epilogue("conv"))              # doctest: +SKIP
    'conv' absorbed bias[v_c] from 'bias' into T.init; 'summed' is gone.
    """
    conv = convolution(n, c, w, f, padding=padding, stride=stride, dilation=dilation, dtype=dtype)
    one_of("bias", bias, (False, True))
    one_of("activation", activation, ACTIVATIONS)
    one_of("layout", layout, LAYOUTS)
    whole("shift", shift, 0, 31)
    if dtype != "int8" and shift != REQUANTISING_SHIFT:
        raise ValueError(
            f'shift is for dtype = "int8" only; leave it out for dtype = {dtype!r}: {shift!r}'
        )
    if dtype == "int8" and activation == "silu":
        raise ValueError("activation must be one of None, 'relu' for dtype = 'int8': 'silu'")
    return _Writer(conv, layout).write(bias, activation, shift)


class _Writer:
    """Writes the blocks one after the other, each over all elements of its result."""

    def __init__(self, conv: Convolution, layout: str) -> None:
        self.conv = conv
        self.layout = layout
        self.channel = layout.index("C")
        self.column = layout.index("W")
        self.y: Any = None
        self.last_block = ""

    def write(self, bias: bool, activation: str | None, shift: int) -> PrimFunc:
        """Write the function; its last block stores into y."""
        conv = self.conv
        acc = conv.accumulator
        ends = {"float32": [], "int8": ["requantise"]}.get(conv.dtype, ["cast"])
        bends = {None: [], "relu": ["relu"], "silu": ["sigmoid", "silu"]}[activation]
        self.last_block = ["conv", *["bias"] * bias, *bends, *ends][-1]

        with IRBuilder() as builder, T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            x = self.parameter("x", self.shape(conv.w), conv.dtype)
            weight = self.parameter("weight", (conv.c, conv.f), conv.dtype)
            if bias:
                b = self.parameter("bias", (conv.c,), "int32" if acc == "int32" else conv.dtype)
            self.y = self.parameter("y", self.shape(conv.columns), conv.dtype)

            s = self.conv_block(self.pad_block(x), weight)
            if bias:
                s = self.each("bias", "biased", acc, lambda at: s[at] + self.cast(b[self.of(at)]))
            if activation == "relu":
                s = self.each("relu", "rectified", acc, lambda at: T.max(s[at], tirx.const(0, acc)))
            if activation == "silu":
                gate = self.each("sigmoid", "gate", acc, lambda at: T.sigmoid(s[at]))
                s = self.each("silu", "gated", acc, lambda at: s[at] * gate[at])
            if ends == ["cast"]:
                self.each("cast", "", conv.dtype, lambda at: T.cast(s[at], conv.dtype))
            if ends == ["requantise"]:
                self.each("requantise", "", "int8", lambda at: _requantised(s[at], shift))
        return builder.get()

    def pad_block(self, x: Any) -> Any:
        """Write block "pad", x among zeros, if there are any."""
        conv = self.conv
        if conv.left == conv.right == 0:
            return x
        shape = self.shape(conv.w + (conv.left + conv.right))
        padded = self.buffer("pad", "padded", shape, conv.dtype)
        with self.block("pad", shape) as at:
            column = at[self.column]
            inside = [column >= conv.left] if conv.left else []
            if conv.right:
                inside.append(column < conv.w + conv.left)
            source = self.with_column(at, column - conv.left)
            zero = tirx.const(0, conv.dtype)
            T.buffer_store(padded, T.if_then_else(tirx.all(*inside), x[source], zero), at)
        return padded

    def conv_block(self, x: Any, weight: Any) -> Any:
        """Write block "conv", the sum over the taps."""
        conv = self.conv
        shape = self.shape(conv.columns)
        summed = self.buffer("conv", "summed", shape, conv.accumulator)
        with self.block("conv", shape, taps=conv.f) as (*at, tap):
            column = at[self.column] * conv.stride + tap * conv.dilation
            term = self.cast(x[self.with_column(at, column)]) * self.cast(weight[self.of(at), tap])
            with T.init():
                T.buffer_store(summed, tirx.const(0, conv.accumulator), at)
            T.buffer_store(summed, summed[tuple(at)] + term, at)
        return summed

    def each(self, block: str, buffer: str, dtype: str, element: Callable[[Index], Any]) -> Any:
        """Write one more block, which stores ``element(index)`` at every index of the result."""
        shape = self.shape(self.conv.columns)
        target = self.buffer(block, buffer, shape, dtype)
        with self.block(block, shape) as at:
            T.buffer_store(target, element(tuple(at)), at)
        return target

    @contextlib.contextmanager
    def block(self, name: str, shape: Sequence[Any], taps: int | None = None) -> Iterator[Index]:
        """Open a block in loops over a shape, and over taps; yield its variables."""
        names = [*self.layout.lower(), *["f"] * (taps is not None)]
        extents = [*shape, *self.sizes([taps] * (taps is not None))]
        with T.grid(*extents) as loops:
            for loop, letter in zip(loops, names, strict=True):
                IRBuilder.name(f"i_{letter}", loop)
            with T.sblock(name):
                variables = T.axis.remap("SSSR"[: len(names)], loops)
                for variable, letter in zip(variables, names, strict=True):
                    IRBuilder.name(f"v_{letter}", variable)
                yield tuple(variables)

    def buffer(self, block: str, name: str, shape: Sequence[Any], dtype: str) -> Any:
        """Make the buffer that `block` stores into; that of the last one is y."""
        if block == self.last_block:
            return self.y
        made = T.sblock_alloc_buffer(shape, dtype)
        IRBuilder.name(name, made)
        return made

    def parameter(self, name: str, shape: Sequence[Any], dtype: str) -> Any:
        """Declare a buffer that the function is called with."""
        return T.arg(name, T.buffer(self.sizes(shape), dtype))

    def shape(self, columns: Any) -> list[Any]:
        """Order N, C and so many columns as the layout does."""
        of = {"N": self.conv.n, "C": self.conv.c, "W": columns}
        return self.sizes(of[letter] for letter in self.layout)

    def sizes(self, values: Iterable[Any]) -> list[Any]:
        """Give numbers the type of all indices."""
        dtype = self.conv.index_dtype
        return [tirx.const(v, dtype) if isinstance(v, int) else v for v in values]

    def with_column(self, at: Sequence[Any], column: Any) -> Index:
        """Move an index to another column."""
        return tuple(column if i == self.column else v for i, v in enumerate(at))

    def of(self, at: Sequence[Any]) -> Any:
        """Tell the channel of an index."""
        return at[self.channel]

    def cast(self, value: Any) -> Any:
        """Convert a value to the type of the sum."""
        return T.cast(value, self.conv.accumulator)


def _requantised(value: Any, shift: int) -> Any:
    if shift:
        value = T.shift_right(value + (1 << (shift - 1)), tirx.const(shift, "int32"))
    return T.cast(T.max(T.min(value, 127), -128), "int8")
