"""A depthwise convolution of the next columns of streams, whose states it updates, in TIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import ACCUMULATORS, Size, index_dtype, one_of, size, whole
from .data_checks import check_indices, check_positions
from .depthwise_blocks import (
    LAYOUTS,
    REQUANTISING_SHIFT,
    ConvWriter,
    Epilogue,
    layout_dims,
    with_column,
)
from .writer import Index


def depthwise_conv1d_update(
    n: int | str,
    c: int,
    f: int,
    *,
    steps: int = 1,
    state_length: int | None = None,
    circular: bool = False,
    pool: int | str | None = None,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
    layout: str = "NCW",
    shift: int = REQUANTISING_SHIFT,
    gate: bool = False,
    residual: bool = False,
) -> PrimFunc:
    """Convolve the next columns of each stream; the state has the columns before them.

    With the columns of x after those of the state, and j over the F taps::

        y[n, c, i] = epilogue(sum_j  (state, x)[n, c, i + j - (F - 1)] * weight[c, j])

    counted from the first column of x. Afterwards the state has the last L columns of the stream.

    Parameters
    ----------
    n : int or str
        Streams N, at least 1. A str is the name of a symbolic size: an ``int64`` that the function
        takes from the shape of x.
    c, f : int
        Channels C, at least 1, and taps F, at least 2.
    steps : int
        Columns of x, at least 1.
    state_length : int, optional
        Columns L of a state, at least F - 1, which is the default.
    circular : bool
        Whether a state stays where it is in memory: column p of the stream, counted from 0, is at
        ``p % L``, and a parameter has the number of columns before this call. There are at most L
        steps then. If False, the last column of the stream is the last of the state.
    pool : int or str, optional
        Number of states P in one pool, from which a parameter picks one for each stream; a str is
        the name of a symbolic size. None: there are N states, one for each stream, in order.
    dtype, bias, activation, layout, shift, gate, residual
        As of :func:`depthwise_conv1d`, with the same epilogue.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[N, C] for one step, x[N, C, steps] or x[N, steps, C] for several
        - weight[C, F]
        - bias[C]: of `dtype`, and ``int32`` for ``"int8"``
        - state[P or N, C, L], or [P or N, L, C]: updated in place
        - positions[N], if `circular`: ``int32``; a negative one raises ValueError in the call
        - indices[N], if there is a pool: ``int32``; one outside of the pool, or two that are
          equal, raise ValueError in the call, which changes no state then
        - residual and z, of the shape of x
        - y, of the shape of x

        (those that are asked for) and one block for each step: "check_positions", "check_indices"
        and "check_distinct", "pad", which puts the state and x side by side, "conv", the blocks of
        the epilogue, "state". The parameters must not overlap. Loops and indices are ``int32``, or
        ``int64`` where a size is symbolic or a buffer has 2**31 elements.

    Raises
    ------
    ValueError
        An argument is not possible. The message says which argument, what it was and what is
        possible.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> func = workloads.depthwise_conv1d_update(64, 5120, 4, activation="silu", pool=256)
    >>> [param.name for param in func.params]
    ['x', 'weight', 'bias', 'state', 'indices', 'y']
    """
    one_of("dtype", dtype, tuple(ACCUMULATORS))
    names: dict[str, tirx.Var] = {}
    streams, c, f = size("n", n, names), whole("c", c), whole("f", f, 2)
    steps = whole("steps", steps)
    length = f - 1 if state_length is None else whole("state_length", state_length, f - 1)
    one_of("circular", circular, (False, True))
    if circular and steps > length:
        raise ValueError(
            f"steps must be at most state_length = {length} for a circular state: {steps!r}"
        )
    one_of("layout", layout, LAYOUTS)
    states = None if pool is None else size("pool", pool, names)
    epilogue = Epilogue(bias, activation, gate, residual, shift).check(dtype)
    return _Writer(streams, c, f, steps, length, circular, states, dtype, layout, epilogue).write()


@dataclass(frozen=True)
class _Writer:
    """Writes the convolution into a function, and the update of the state after it."""

    n: Size
    c: int
    f: int
    steps: int
    length: int
    circular: bool
    pool: Size | None
    dtype: str
    layout: str
    epilogue: Epilogue

    def dims(self, columns: Size, rows: Size | None = None) -> dict[str, Size]:
        """Return the sizes of a buffer, by its letters."""
        return layout_dims(self.layout, self.n if rows is None else rows, self.c, columns)

    @property
    def column(self) -> int:
        """The place of the columns."""
        return self.layout.index("W")

    @property
    def kept(self) -> int:
        """Columns of a state that are put before those of x."""
        return self.f - 1 if self.circular else self.length

    def write(self) -> PrimFunc:
        """Write the function; its last block stores into the state."""
        dims = self.dims(self.steps)
        if self.steps == 1:
            dims = {letter: extent for letter, extent in dims.items() if letter != "w"}
        together = {"n": self.n, "c": self.c, "state_length": self.kept + self.steps}
        state = {
            "n" if self.pool is None else "pool": self.n if self.pool is None else self.pool,
            "c": self.c,
            "state_length": self.length,
        }
        index = index_dtype(together, state, {"c": self.c, "f": self.f})
        writer = ConvWriter(dims, self.dtype, ACCUMULATORS[self.dtype], index, self.epilogue)
        with writer.function():
            x = writer.parameter("x", dims.values(), self.dtype)
            weight = writer.parameter("weight", (self.c, self.f), self.dtype)
            bias = writer.bias_parameter(self.c)
            shape = self.dims(self.length, self.pool).values()
            state = writer.parameter("state", shape, self.dtype)
            positions = indices = None
            if self.circular:
                positions = writer.parameter("positions", (self.n,), "int32")
            if self.pool is not None:
                indices = writer.parameter("indices", (self.n,), "int32")
            operands = writer.operands(bias)
            writer.output("y", self.dtype)
            writer.outputs["state"] = state

            if positions is not None:
                check_positions(writer, positions, self.n)
            if indices is not None:
                check_indices(writer, indices, self.n, self.pool)
            padded = self.pad_block(writer, x, positions, indices)
            writer.finish(writer.conv_block(self.element(padded), weight, self.f), operands)
            self.state_block(writer, padded, positions, indices)
        return writer.written()

    def in_state(self, at: Index, column: Any, positions: Any, indices: Any) -> Index:
        """Return the index in the state of a column, counted from the state's first one."""
        image = at[0]
        if positions is not None:
            # First the remainder: a position may be near the largest int32.
            start = T.floormod(positions[image], self.length)
            column = T.floormod(T.cast(start, column.ty.dtype) + column, self.length)
        row = image if indices is None else T.cast(indices[image], image.ty.dtype)
        return (row, *with_column(at, self.column, column)[1:])

    def pad_block(self, writer: ConvWriter, x: Any, positions: Any, indices: Any) -> Any:
        """Write block "pad": the columns of the state, then those of x."""
        dims = self.dims(self.kept + self.steps)
        padded = writer.buffer("pad", "padded", dims, self.dtype)
        with writer.block("pad", dims) as at:
            column = at[self.column]
            older = column if positions is None else column + (self.length - self.kept)
            before = writer.outputs["state"][self.in_state(at, older, positions, indices)]
            if self.steps == 1:
                new = x[tuple(v for place, v in enumerate(at) if place != self.column)]
            else:
                new = x[with_column(at, self.column, column - self.kept)]
            T.buffer_store(padded, T.if_then_else(column >= self.kept, new, before), at)
        return padded

    def element(self, padded: Any) -> Any:
        """Return the function that gives the element for an index and a tap."""
        first = self.kept - (self.f - 1)

        def element(at: Index, tap: Any) -> Any:
            if self.steps > 1:
                return padded[with_column(at, self.column, at[self.column] + tap + first)]
            image, channel = at
            return padded[
                (image, channel, tap + first) if self.column == 2 else (image, tap + first, channel)
            ]

        return element

    def state_block(self, writer: ConvWriter, padded: Any, positions: Any, indices: Any) -> None:
        """Write block "state": the columns that a later call needs."""
        columns = self.length if positions is None else self.steps
        first = self.steps if positions is None else self.kept
        with writer.block("state", self.dims(columns)) as at:
            column = at[self.column]
            place = self.in_state(at, column, positions, indices)
            value = padded[with_column(at, self.column, column + first)]
            T.buffer_store(writer.outputs["state"], value, place)
