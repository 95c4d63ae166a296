"""A depthwise convolution along one dimension, its bias and its activation, in TIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import index_dtype, one_of, whole
from .convolution import Convolution, convolution
from .data_checks import check_sequences
from .depthwise_blocks import (
    LAYOUTS,
    REQUANTISING_SHIFT,
    ConvWriter,
    Epilogue,
    layout_dims,
    with_column,
)
from .writer import Index


def depthwise_conv1d(
    n: int | str,
    c: int,
    w: int | str,
    f: int,
    *,
    padding: str | tuple[int, int] | None = None,
    stride: int = 1,
    dilation: int = 1,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
    layout: str = "NCW",
    shift: int = REQUANTISING_SHIFT,
    initial_state: bool = False,
    final_state: bool = False,
    sequences: bool | int = False,
    gate: bool = False,
    residual: bool = False,
) -> PrimFunc:
    """Convolve each channel with a filter of its own.

    With x taken as 0 outside of its W columns, l zeros on the left, and j over the F taps::

        sum[n, c, i] = sum_j  x[n, c, i * stride + j * dilation - l] * weight[c, j]
        y[n, c, i]   = activation(sum[n, c, i] + bias[c]) * silu(z[n, c, i]) + residual[n, c, i]

    A stream of columns that is computed a piece at a time hands over a state: the last
    S = dilation * (F - 1) columns before a piece. They take the place of the zeros on the left.

    Parameters
    ----------
    n, w : int or str
        Images N and columns W, at least 1. A str is the name of a symbolic size: an ``int64``
        that the function takes from the shape of x. The same name is the same size.
    c, f : int
        Channels C and taps F, at least 1.
    padding : {"same", "valid", "causal"} or (int, int), optional
        How many zeros go to the left and right of x. Left out, it is ``"causal"`` where there is a
        state or there are sequences, which need it, and ``"same"`` otherwise.

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
    activation : {None, "relu", "silu", "gelu"}
        ``max(x, 0)``, ``x * sigmoid(x)``, or x times the probability that a standard normal
        variable is below x. ``"int8"`` does not have the last two.
    layout : {"NCW", "NWC"}
        Order of the dimensions of x and y, and of the loops.
    shift : int
        For ``"int8"`` only: how many bits requantising drops, 0 to 31; 0 only clips. The sum, with
        the bias and the half that is added for rounding, has to fit into 32 bits.
    initial_state, final_state : bool
        Whether the state before the first column is a parameter, and whether the one after the
        last column is a result. Both are for causal padding, a stride of 1 and an S of 1 or more,
        as are `sequences`. A W below S is possible.
    sequences : bool or int
        Whether the columns of an image are of several sequences, packed one after the other: x
        counts as 0 where a tap leaves the sequence of its result. The initial state belongs to the
        first sequence of an image, and the final state to its last one. An int B from 1 stands for
        sequences 0 to B - 1 of each image: then there is a final state for each of them, 0 where
        an image has no column of that sequence.
    gate, residual : bool
        Whether the result is multiplied with SiLU of a parameter z, whether a parameter is added
        to it at the end. ``"int8"`` has neither.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[N, C, W], or x[N, W, C]
        - weight[C, F], in both layouts
        - bias[C], if there is one: of `dtype`, and ``int32`` for ``"int8"``
        - initial_state[N, C, S], or [N, S, C]
        - sequences[N, W]: ``int32``; numbers that decrease, or are not below B, raise ValueError
          in the call
        - residual and z, of the shape of y
        - y[N, C, W'], or y[N, W', C], with W' = (W + l + r - dilation * (F - 1) - 1) // stride + 1
        - final_state, of the shape of the initial one; [N, B, C, S] or [N, B, S, C] for B sequences

        (those that are asked for) and one block for each step: "check_sequences", "pad" (if there
        are zeros or a state), "conv", "bias", "relu", "gelu" or "sigmoid" and "silu",
        "gate", "residual", "cast" for the 16-bit types, "requantise" for
        ``"int8"``, "ends" for B sequences, "final_state". The parameters must not overlap. Loops
        and indices are ``int32``, or ``int64`` where a size is symbolic or a buffer has 2**31
        elements.

    Raises
    ------
    ValueError
        An argument is not possible, or W' would be less than 1. The message says which argument,
        what it was and what is possible. A symbolic W is not checked: where W' is less than 1,
        there is no y to pass.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> func = workloads.depthwise_conv1d(1, 64, "w", 4, padding="causal", activation="silu")
    >>> sch = tvm.s_tir.Schedule(func)
    >>> print(sch.fuse_reduction_epilogue("conv"))
    'conv' absorbed bias[v_c] from 'bias' into T.init; 'summed' is gone. (numerics: reassociate)
    'sigmoid' is part of 'silu' now; 'gate' is gone.
    'silu' computes x * T.sigmoid(x) once for each finished x: it uses the finished value in ...
    """
    streams = _Streams(initial_state, final_state, sequences)
    if padding is None:
        padding = "causal" if streams.any() else "same"
    conv = convolution(n, c, w, f, padding=padding, stride=stride, dilation=dilation, dtype=dtype)
    one_of("layout", layout, LAYOUTS)
    epilogue = Epilogue(bias, activation, gate, residual, shift).check(dtype)
    return _Writer(conv, layout, epilogue, streams.check(conv, padding)).write()


@dataclass(frozen=True)
class _Streams:
    """The arguments of that name."""

    initial_state: bool
    final_state: bool
    sequences: bool | int

    def any(self) -> bool:
        """Whether one of them is asked for."""
        return any(
            each is not False for each in (self.initial_state, self.final_state, self.sequences)
        )

    def check(self, conv: Convolution, padding: Any) -> _Streams:
        one_of("initial_state", self.initial_state, (False, True))
        one_of("final_state", self.final_state, (False, True))
        if not isinstance(self.sequences, bool):
            whole("sequences", self.sequences, 1, 2**31 - 1)
        for name in ("initial_state", "final_state", "sequences"):
            if getattr(self, name) is False:
                continue
            if padding != "causal":
                raise ValueError(f"{name} is for padding = 'causal' only: {padding!r}")
            if conv.stride != 1:
                raise ValueError(f"{name} is for stride = 1 only: {conv.stride!r}")
            if conv.left == 0 and name != "sequences":
                raise ValueError(f"{name} must be False for f = 1, which has no state: True")
        return self


class _Writer:
    """Writes the convolution into a function, and what follows it."""

    def __init__(
        self, conv: Convolution, layout: str, epilogue: Epilogue, streams: _Streams
    ) -> None:
        self.conv, self.epilogue, self.streams = conv, epilogue, streams
        self.dims = layout_dims(layout, conv.n, conv.c, conv.columns)
        self.channel = layout.index("C")
        self.column = layout.index("W")
        #: Sequences of an image that have a final state each; None if there is one state.
        self.count = None if isinstance(streams.sequences, bool) else int(streams.sequences)
        self.state_dims = {**self.dims, "w": conv.left}
        if self.count is not None:
            letters = {"n": conv.n, "s": self.count, **self.state_dims}
            self.state_dims = {k: letters[k] for k in ("n", "s", *layout.lower()[1:])}

    def write(self) -> PrimFunc:
        """Write the function; its last block stores into y, or into the final state."""
        conv, epilogue, streams = self.conv, self.epilogue, self.streams
        writer = ConvWriter(self.dims, conv.dtype, conv.accumulator, self.index_dtype(), epilogue)
        with writer.function():
            x = writer.parameter("x", {**self.dims, "w": conv.w}.values(), conv.dtype)
            weight = writer.parameter("weight", (conv.c, conv.f), conv.dtype)
            bias = writer.bias_parameter(conv.c)
            before = numbers = None
            if streams.initial_state:
                shape = {**self.dims, "w": conv.left}.values()
                before = writer.parameter("initial_state", shape, conv.dtype)
            if streams.sequences is not False:
                numbers = writer.parameter("sequences", (conv.n, conv.w), "int32")
            operands = writer.operands(bias)
            writer.output("y", conv.dtype)
            if streams.final_state:
                shape = self.state_dims.values()
                after = writer.parameter("final_state", shape, conv.dtype)
                writer.outputs["final_state"] = after

            if numbers is not None:
                check_sequences(writer, numbers, conv.n, conv.w, self.count)
            padded = self.pad_block(writer, x, before)
            s = writer.conv_block(self.element(padded, numbers), weight, conv.f)
            writer.finish(s, operands)
            if streams.final_state:
                self.final_state_block(writer, padded, numbers)
        return writer.written()

    def index_dtype(self) -> str:
        """Return the type of indices; a final state for each sequence may be the largest buffer."""
        if self.count is None or not self.streams.final_state:
            return self.conv.index_dtype
        names = {"s": "sequences", "w": "f"}
        states = {names.get(k, k): size for k, size in self.state_dims.items()}
        return max(self.conv.index_dtype, index_dtype(states))

    def pad_block(self, writer: ConvWriter, x: Any, before: Any) -> Any:
        """Write block "pad", x among zeros or after its state, if there are any."""
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
            source = x[with_column(at, self.column, column - conv.left)]
            outside = tirx.const(0, conv.dtype) if before is None else before[at]
            T.buffer_store(padded, T.if_then_else(tirx.all(*inside), source, outside), at)
        return padded

    def element(self, padded: Any, numbers: Any) -> Any:
        """Return the function that gives the element of x for an index and a tap."""
        conv = self.conv

        def element(at: Index, tap: Any) -> Any:
            column = at[self.column]
            value = padded[with_column(at, self.column, column * conv.stride + tap * conv.dilation)]
            if numbers is None:
                return value
            own = numbers[at[0], column]
            number = numbers[at[0], T.max(column + tap * conv.dilation - conv.left, 0)]
            return T.if_then_else(number == own, value, tirx.const(0, conv.dtype))

        return element

    def final_state_block(self, writer: ConvWriter, padded: Any, numbers: Any) -> None:
        """Write block "final_state": the last columns, of the last sequence or of each."""
        conv = self.conv
        ends = None if self.count is None else self.ends_block(writer, numbers)
        with writer.block("final_state", self.state_dims) as at:
            variables = dict(zip(self.state_dims, at, strict=True))
            image = variables["n"]
            end = conv.w if ends is None else ends[image, variables["s"]]
            # The state's column among those of x: before its first one in the initial state, or
            # among zeros.
            column = end + variables["w"] - conv.left
            variables["w"] = end + variables["w"]
            value = padded[tuple(v for k, v in variables.items() if k != "s")]
            if numbers is not None:
                number = numbers[image, T.max(column, 0)]
                if ends is None:
                    same = number == numbers[image, conv.w - 1]
                else:
                    same = tirx.all(end > 0, number == T.cast(variables["s"], "int32"))
                value = T.if_then_else(same, value, tirx.const(0, conv.dtype))
            T.buffer_store(writer.outputs["final_state"], value, at)

    def ends_block(self, writer: ConvWriter, numbers: Any) -> Any:
        """Write block "ends": the column after the last one of each sequence, 0 if it has none."""
        conv = self.conv
        dims = {"n": conv.n, "s": self.count}
        ends = writer.buffer("ends", "ends", dims, "int32")
        with writer.block("ends", dims, {"w": conv.w}) as (image, number, column):
            with T.init():
                T.buffer_store(ends, tirx.const(0, "int32"), (image, number))
            end = tirx.Select(
                numbers[image, column] == T.cast(number, "int32"),
                T.cast(column, "int32") + 1,
                tirx.const(0, "int32"),
            )
            T.buffer_store(ends, T.max(ends[image, number], end), (image, number))
        return ends
