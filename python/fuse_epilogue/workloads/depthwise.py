"""A depthwise convolution along one dimension, its bias and its activation, in TIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import UNQUANTISED, check_activation, one_of, whole
from .convolution import Convolution, convolution
from .writer import Index, Writer, final_blocks

LAYOUTS = ("NCW", "NWC")
REQUANTISING_SHIFT = 7


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
        that is ``dilation * (F - 1)`` in all for a stride of 1, and the same for every other stride
        where W is symbolic. ``"valid"``: none. ``"causal"``: ``dilation * (F - 1)`` on the left, so
        that y[.., i] depends on no column after ``i * stride``. ``(l, r)``: l and r.
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
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> func = workloads.depthwise_conv1d(1, 64, "w", 4, padding="causal", activation="silu")
    >>> sch = tvm.s_tir.Schedule(func)
    >>> print(sch.fuse_reduction_epilogue("conv"))
    'conv' absorbed bias[v_c] from 'bias' into T.init; 'summed' is gone.
    'sigmoid' is part of 'silu' now; 'gate' is gone.
    'silu' computes x * T.sigmoid(x) once for each finished x: it uses the finished value in ...
    """
    conv = convolution(n, c, w, f, padding=padding, stride=stride, dilation=dilation, dtype=dtype)
    one_of("bias", bias, (False, True))
    check_activation(activation, dtype)
    one_of("layout", layout, LAYOUTS)
    whole("shift", shift, 0, 31)
    if dtype != "int8" and shift != REQUANTISING_SHIFT:
        raise ValueError(
            f'shift is for dtype = "int8" only; leave it out for dtype = {dtype!r}: {shift!r}'
        )
    return _Writer(conv, layout).write(bias, activation, shift)


class _Writer:
    """Writes the convolution into a function, and what follows it."""

    def __init__(self, conv: Convolution, layout: str) -> None:
        self.conv = conv
        of = {"n": conv.n, "c": conv.c, "w": conv.columns}
        self.dims = {letter: of[letter] for letter in layout.lower()}
        self.channel = layout.index("C")
        self.column = layout.index("W")

    def write(self, bias: bool, activation: str | None, shift: int) -> PrimFunc:
        """Write the function; its last block stores into y."""
        conv = self.conv
        acc = conv.accumulator
        requantises = conv.dtype == "int8"
        # Where y is requantised, there is nothing to convert.
        converted = acc if requantises else conv.dtype
        blocks = ["conv", *["bias"] * bias, *final_blocks(activation, acc, converted)]
        blocks += ["requantise"] * requantises
        writer = Writer(self.dims, acc, conv.index_dtype, blocks[-1])

        with writer.function():
            x = writer.parameter("x", {**self.dims, "w": conv.w}.values(), conv.dtype)
            weight = writer.parameter("weight", (conv.c, conv.f), conv.dtype)
            if bias:
                b = writer.parameter("bias", (conv.c,), UNQUANTISED[conv.dtype])
            writer.output("y", conv.dtype)

            s = self.conv_block(writer, self.pad_block(writer, x), weight)
            if bias:
                s = writer.add_bias(s, b, self.channel)
            s = writer.activate(s, activation)
            writer.convert(s, converted)
            if requantises:
                writer.each("requantise", "", lambda at: _requantised(s[at], shift), "int8")
        return writer.written()

    def pad_block(self, writer: Writer, x: Any) -> Any:
        """Write block "pad", x among zeros, if there are any."""
        conv = self.conv
        if conv.left == conv.right == 0:
            return x
        dims = {**self.dims, "w": conv.w + (conv.left + conv.right)}
        padded = writer.buffer("pad", "padded", dims, conv.dtype)
        with writer.block("pad", dims) as at:
            column = at[self.column]
            inside = [column >= conv.left] if conv.left else []
            if conv.right:
                inside.append(column < conv.w + conv.left)
            source = self.with_column(at, column - conv.left)
            zero = tirx.const(0, conv.dtype)
            T.buffer_store(padded, T.if_then_else(tirx.all(*inside), x[source], zero), at)
        return padded

    def conv_block(self, writer: Writer, x: Any, weight: Any) -> Any:
        """Write block "conv", the sum over the taps."""
        conv = self.conv

        def step(s: Any, index: Index) -> Any:
            *at, tap = index
            column = at[self.column] * conv.stride + tap * conv.dilation
            source = self.with_column(at, column)
            return s + writer.cast(x[source]) * writer.cast(weight[at[self.channel], tap])

        return writer.reduce("conv", "summed", {"f": conv.f}, 0, step)

    def with_column(self, at: Sequence[Any], column: Any) -> Index:
        """Move an index to another column."""
        return tuple(column if i == self.column else v for i, v in enumerate(at))


def _requantised(value: Any, shift: int) -> Any:
    if shift:
        value = T.shift_right(value + (1 << (shift - 1)), tirx.const(shift, "int32"))
    return T.cast(T.max(T.min(value, 127), -128), "int8")
