"""The gradients of a causal depthwise convolution along one dimension, in TIR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import Size, check_activation, one_of
from .convolution import Convolution, convolution
from .data_checks import check_sequences
from .depthwise_blocks import LAYOUTS, layout_dims, with_column
from .writer import Index, Writer

DTYPES = ("float32", "float16", "bfloat16")


def depthwise_conv1d_backward(
    n: int | str,
    c: int,
    w: int | str,
    f: int,
    *,
    dilation: int = 1,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
    keep: bool = False,
    layout: str = "NCW",
    initial_state: bool = False,
    final_state: bool = False,
    sequences: bool = False,
) -> PrimFunc:
    """Compute the gradients of a causal depthwise convolution from those of its results.

    The forward function is :func:`depthwise_conv1d` with ``padding="causal"`` and the same
    arguments: ``sum`` is its sum over the taps with the bias, ``y = activation(sum)``. With
    S = dilation * (F - 1), `p` for the columns of the initial state (or zeros) and of x one after
    the other, and `dp` for its gradient::

        ds[n, c, i]   = dy[n, c, i] * activation'(sum[n, c, i])
        dp[n, c, m]   = sum_j  ds[n, c, m - j * dilation] * weight[c, j]
        dweight[c, j] = sum_ni  ds[n, c, i] * p[n, c, i + j * dilation]
        dbias[c]      = sum_ni  ds[n, c, i]

    The first S columns of dp are the gradient of the initial state, the others that of x; the
    gradient of a final state is added to the last S columns.

    Parameters
    ----------
    n, c, w, f, dilation, layout
        As of :func:`depthwise_conv1d`.
    dtype : {"float32", "float16", "bfloat16"}
        Type of all buffers but sums. The 16-bit types are summed in ``float32``.
    bias : bool
        Whether there is a bias, and so a gradient of it.
    activation : {None, "relu", "silu", "gelu"}
        Activation of the forward function. The derivative of ReLU is 0 at 0.
    keep : bool
        Whether the forward function has kept `sum`, which is a parameter then. If False, it is
        computed again where the activation needs it.
    initial_state, final_state, sequences : bool
        Whether the forward function has them: its initial state, the gradient of its final state,
        and its sequence numbers are parameters.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[N, C, W], or x[N, W, C]
        - weight[C, F]
        - bias[C], if `sum` is computed again
        - initial_state[N, C, S], or [N, S, C]
        - sequences[N, W]: ``int32``; numbers that decrease raise ValueError in the call
        - sums, if they are kept: ``float32``, of the shape of x
        - dy, of the shape of x
        - dfinal_state, of the shape of the initial state
        - dx, dweight, dbias, dinitial_state: the results, of the shape of what they are gradients
          of

        (those that there are) and one block for each step: "check_sequences", "pad", "conv" and
        "bias" if the sum is computed again, "slope" for ds, "dpadded", "dx", "dinitial_state",
        "dweight", "dbias", with "dweight_cast" and "dbias_cast" for the 16-bit types. The
        parameters must not overlap.

    Raises
    ------
    ValueError
        An argument is not possible. The message says which argument, what it was and what is
        possible.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> func = workloads.depthwise_conv1d_backward(8, 512, 2048, 4, activation="silu")
    >>> [param.name for param in func.params]
    ['x', 'weight', 'bias', 'dy', 'dx', 'dweight', 'dbias']
    """
    conv = convolution(
        n, c, w, f, padding="causal", stride=1, dilation=dilation, dtype=dtype, dtypes=DTYPES
    )
    one_of("bias", bias, (False, True))
    check_activation(activation, dtype)
    one_of("keep", keep, (False, True))
    if keep and activation is None:
        raise ValueError("keep must be False for activation = None, which needs no sum: True")
    one_of("layout", layout, LAYOUTS)
    given = {"initial_state": initial_state, "final_state": final_state, "sequences": sequences}
    for name, value in given.items():
        one_of(name, value, (False, True))
        if value and conv.left == 0 and name != "sequences":
            raise ValueError(f"{name} must be False for f = 1, which has no state: True")
    wanted = _Wanted(bias, activation, keep, initial_state, final_state, sequences)
    return _Writer(conv, layout, wanted).write()


@dataclass(frozen=True)
class _Wanted:
    """The arguments of that name."""

    bias: bool
    activation: str | None
    keep: bool
    initial_state: bool
    final_state: bool
    sequences: bool

    @property
    def recomputes(self) -> bool:
        """Whether the sum is computed again."""
        return self.activation is not None and not self.keep


class _Writer:
    """Writes the gradients into a function."""

    def __init__(self, conv: Convolution, layout: str, wanted: _Wanted) -> None:
        self.conv, self.wanted = conv, wanted
        self.dims = layout_dims(layout, conv.n, conv.c, conv.w)
        self.channel, self.column = layout.index("C"), layout.index("W")
        self.wide = conv.accumulator != conv.dtype
        self.writer = Writer(self.dims, conv.accumulator, conv.index_dtype, "dx")
        self.given: dict[str, Any] = {}

    def write(self) -> PrimFunc:
        """Write the function."""
        with self.writer.function():
            self.parameters()
            if self.wanted.sequences:
                check_sequences(self.writer, self.given["sequences"], self.conv.n, self.conv.w)
            padded = self.pad_block()
            ds = self.slope_block(padded)
            self.data_blocks(ds)
            self.weight_blocks(ds, padded)
        return self.writer.written()

    def parameters(self) -> None:
        """Declare the parameters."""
        conv, wanted, writer = self.conv, self.wanted, self.writer
        columns, state = self.dims, {**self.dims, "w": conv.left}
        taps, channels = {"c": conv.c, "f": conv.f}, {"c": conv.c}
        inputs: dict[str, tuple[bool, Mapping[str, Size], str]] = {
            "x": (True, columns, conv.dtype),
            "weight": (True, taps, conv.dtype),
            "bias": (wanted.bias and wanted.recomputes, channels, conv.dtype),
            "initial_state": (wanted.initial_state, state, conv.dtype),
            "sequences": (wanted.sequences, {"n": conv.n, "w": conv.w}, "int32"),
            "sums": (wanted.keep, columns, conv.accumulator),
            "dy": (True, columns, conv.dtype),
            "dfinal_state": (wanted.final_state, state, conv.dtype),
        }
        outputs = {
            "dx": (True, columns, conv.dtype),
            "dweight": (True, taps, conv.dtype),
            "dbias": (wanted.bias, channels, conv.dtype),
            "dinitial_state": (wanted.initial_state, state, conv.dtype),
        }
        for name, (there, dims, dtype) in {**inputs, **outputs}.items():
            if there:
                self.given[name] = writer.parameter(name, dims.values(), dtype)
        for name in outputs:
            if name in self.given:
                casts = self.wide and name in ("dweight", "dbias")
                writer.outputs[f"{name}_cast" if casts else name] = self.given[name]

    def pad_block(self) -> Any:
        """Write block "pad": the initial state or zeros, then x."""
        conv = self.conv
        if conv.left == 0:
            return self.given["x"]
        before = self.given.get("initial_state")
        dims = {**self.dims, "w": conv.w + conv.left}
        padded = self.writer.buffer("pad", "padded", dims, conv.dtype)
        with self.writer.block("pad", dims) as at:
            column = at[self.column]
            source = self.given["x"][with_column(at, self.column, column - conv.left)]
            outside = tirx.const(0, conv.dtype) if before is None else before[at]
            T.buffer_store(padded, T.if_then_else(column >= conv.left, source, outside), at)
        return padded

    def masked(self, image: Any, result: Any, source: Any, value: Any) -> Any:
        """Return a value where a column of the result reads one of x; 0 where it does not.

        A column of x below 0 is one of the initial state.
        """
        numbers = self.given.get("sequences")
        if numbers is None:
            return value
        same = numbers[image, T.max(source, 0)] == numbers[image, result]
        return T.if_then_else(same, value, tirx.const(0, value.ty.dtype))

    def element(self, padded: Any, at: Index, tap: Any) -> Any:
        """Return the element of x that a tap of a result reads."""
        column, moved = at[self.column], tap * self.conv.dilation
        value = padded[with_column(at, self.column, column + moved)]
        value = self.masked(at[0], column, column + moved - self.conv.left, value)
        return self.writer.cast(value)

    def slope_block(self, padded: Any) -> Any:
        """Write block "slope": the gradient of the sums; dy itself without an activation."""
        writer, wanted, weight = self.writer, self.wanted, self.given["weight"]
        if wanted.activation is None:
            return self.given["dy"]
        if wanted.keep:
            s = self.given["sums"]
        else:

            def step(s: Any, index: Index) -> Any:
                *at, tap = index
                factor = writer.cast(weight[at[self.channel], tap])
                return s + self.element(padded, tuple(at), tap) * factor

            s = writer.reduce("conv", "summed", {"f": self.conv.f}, 0, step)
            if wanted.bias:
                s = writer.add_bias(s, self.given["bias"], self.channel)
        return writer.each(
            "slope",
            "ds",
            lambda at: through(wanted.activation, writer.cast(self.given["dy"][at]), s[at]),
        )

    def data_blocks(self, ds: Any) -> None:
        """Write block "dpadded", and those that are parts of it: "dx" and "dinitial_state"."""
        conv, wanted, writer = self.conv, self.wanted, self.writer
        # Columns of dpadded before those of x.
        first = conv.left if wanted.initial_state else 0
        dims = {**self.dims, "w": conv.w + first}
        target = writer.buffer("dpadded", "dpadded", dims, conv.accumulator)
        with writer.block("dpadded", dims, {"f": conv.f}) as index:
            at, tap = index[:-1], index[-1]
            source = at[self.column] - first
            with T.init():
                T.buffer_store(target, tirx.const(0, conv.accumulator), at)
            T.buffer_store(target, target[at] + self._term(ds, at, source, tap), at)
        shapes = {"dx": (self.dims, first), "dinitial_state": ({**self.dims, "w": conv.left}, 0)}
        for name, (part, start) in shapes.items():
            if name not in self.given:
                continue
            with writer.block(name, part) as at:
                column = at[self.column]
                value = target[with_column(at, self.column, column + start)]
                if wanted.final_state:
                    value = value + self._after(at, column + start - first)
                T.buffer_store(self.given[name], T.cast(value, conv.dtype), at)

    def _term(self, ds: Any, at: Index, source: Any, tap: Any) -> Any:
        """Return the part that a tap adds to the gradient of a column of x."""
        conv = self.conv
        # The taps from the last to the first: so the columns of ds come in their order.
        result = source + tap * conv.dilation
        inside = [result < conv.w]
        if self.wanted.initial_state:
            inside.append(result >= 0)
        numbers = self.given.get("sequences")
        if numbers is not None:
            # One condition after the other: the second is read only where the first holds.
            own = numbers[at[0], T.max(source, 0)]
            there = T.if_then_else(tirx.all(*inside), numbers[at[0], result], own - 1)
            inside = [*inside, there == own]
        value = ds[with_column(at, self.column, result)]
        value = T.if_then_else(tirx.all(*inside), value, tirx.const(0, value.ty.dtype))
        weight = self.given["weight"][at[self.channel], conv.f - 1 - tap]
        return self.writer.cast(value) * self.writer.cast(weight)

    def _after(self, at: Index, source: Any) -> Any:
        """Return what the final state adds to the gradient of a column of x."""
        conv = self.conv
        place = source + conv.left - conv.w
        value = self.given["dfinal_state"][with_column(at, self.column, place)]
        value = self.masked(at[0], conv.w - 1, source, self.writer.cast(value))
        return T.if_then_else(place >= 0, value, tirx.const(0, conv.accumulator))

    def weight_blocks(self, ds: Any, padded: Any) -> None:
        """Write blocks "dweight" and "dbias", and the casts of their results."""
        conv, writer = self.conv, self.writer
        dims = {"c": conv.c, "f": conv.f}
        reduced = {"n": conv.n, "w": conv.w}

        def at_of(image: Any, channel: Any, column: Any) -> Index:
            return (image, channel, column) if self.column == 2 else (image, column, channel)

        for name, own in {"dweight": dims, "dbias": {"c": conv.c}}.items():
            if name not in self.given:
                continue
            target = writer.buffer(name, f"{name}_sum", own, conv.accumulator)
            with writer.block(name, own, reduced) as index:
                *spatial, image, column = index
                at = at_of(image, spatial[0], column)
                with T.init():
                    T.buffer_store(target, tirx.const(0, conv.accumulator), spatial)
                term = writer.cast(ds[at])
                if name == "dweight":
                    term = term * self.element(padded, at, spatial[1])
                T.buffer_store(target, target[spatial] + term, spatial)
            if self.wide:
                with writer.block(f"{name}_cast", own) as place:
                    value = T.cast(target[place], conv.dtype)
                    T.buffer_store(self.given[name], value, place)


def through(activation: str | None, dy: Any, s: Any) -> Any:
    """Return the gradient of a sum from that of its activation, as an expression."""

    def const(value: float) -> Any:
        return tirx.const(value, s.ty.dtype)

    if activation == "relu":
        return T.Select(s > const(0.0), dy, const(0.0))
    if activation == "silu":
        gate = T.sigmoid(s)
        return dy * (gate * (const(1.0) + s * (const(1.0) - gate)))
    # x * P(x) has the derivative P(x) + x * p(x), where P' = p is the density.
    below = const(0.5) + const(0.5) * T.erf(s * const(math.sqrt(0.5)))
    density = T.exp(s * s * const(-0.5)) * const(1 / math.sqrt(2 * math.pi))
    return dy * (below + s * density)
