"""Rows of a matrix: reduced to one number each, or changed element by element, in TIR."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import (
    ACCUMULATORS,
    ACTIVATIONS,
    UNQUANTISED,
    check_activation,
    index_dtype,
    one_of,
    size,
)
from .writer import Index, Writer, final_blocks

OPERATIONS = ("sum", "max")
FLOATS = ("float32", "float16", "bfloat16")


def row_reduce(
    m: int | str,
    n: int | str,
    *,
    op: str = "sum",
    dtype: str = "float32",
    scale: bool = False,
    bias: bool = False,
    activation: str | None = None,
) -> PrimFunc:
    """Reduce each row of a matrix to one number.

    ::

        reduced[m] = op_n  x[m, n]
        y[m]       = activation(reduced[m] * scale[m] + bias[m])

    Parameters
    ----------
    m, n : int or str
        Rows M and columns N of x, at least 1. A str is the name of a symbolic size: an ``int64``
        that the function takes from the shape of x. The same name is the same size.
    op : {"sum", "max"}
        The sum of the columns, or the largest of them. Which maximum a row with a NaN has, is not
        defined.
    dtype : {"float32", "float16", "bfloat16", "int8"}
        Type of x. For the 16-bit types everything is computed in ``float32`` and rounded once, at
        the end; for ``"int8"`` in ``int32``, as which it stays, and where it has to fit.
    scale, bias : bool
        Whether there is a scale, whether there is a bias: one number for each row.
    activation : {None, "relu", "silu", "gelu"}
        As of :func:`matmul`.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[M, N]
        - scale[M], if there is one: of `dtype`, and ``int32`` for ``"int8"``
        - bias[M], if there is one: likewise
        - y[M], of the same type

        and one block for each step: "reduce", "scale", "bias", "relu", "gelu" or "sigmoid" and
        "silu", "cast" for the 16-bit types. The parameters must not overlap. Loops and indices are
        ``int32``, or ``int64`` where a size is symbolic or a buffer has 2**31 elements.

    Raises
    ------
    ValueError
        An argument is not possible; the message says which, what it was and what is possible.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> func = workloads.row_reduce(128, "n", op="max", scale=True)
    """
    names: dict[str, tirx.Var] = {}
    rows, columns = size("m", m, names), size("n", n, names)
    one_of("op", op, OPERATIONS)
    one_of("dtype", dtype, tuple(ACCUMULATORS))
    one_of("scale", scale, (False, True))
    one_of("bias", bias, (False, True))
    check_activation(activation, dtype)

    accumulator, result = ACCUMULATORS[dtype], UNQUANTISED[dtype]
    blocks = ["reduce", *["scale"] * scale, *["bias"] * bias]
    blocks += final_blocks(activation, accumulator, result)
    writer = Writer({"m": rows}, accumulator, index_dtype({"m": rows, "n": columns}), blocks[-1])
    start: float = 0
    if op == "max":
        start = -(2**31) if accumulator == "int32" else -math.inf

    def step(s: Any, index: Index) -> Any:
        value = writer.cast(x[index])
        return s + value if op == "sum" else T.max(s, value)

    with writer.function():
        x = writer.parameter("x", (rows, columns), dtype)
        factor = writer.parameter("scale", (rows,), result) if scale else None
        offset = writer.parameter("bias", (rows,), result) if bias else None
        writer.output("y", result)

        s = writer.reduce("reduce", "reduced", {"n": columns}, start, step)
        s = _scaled_and_biased(writer, s, factor, offset)
        writer.convert(writer.activate(s, activation), result)
    return writer.written()


def elementwise(
    m: int | str,
    n: int | str,
    *,
    dtype: str = "float32",
    scale: bool = False,
    bias: bool = True,
    residual: bool = False,
    activation: str | None = None,
) -> PrimFunc:
    """Scale the rows of a matrix, add to them and bend them.

    ::

        y[m, n] = activation(x[m, n] * scale[m] + bias[m] + residual[m, n])

    Parameters
    ----------
    m, n : int or str
        Rows M and columns N, at least 1. A str is the name of a symbolic size: an ``int64`` that
        the function takes from the shape of x. The same name is the same size.
    dtype : {"float32", "float16", "bfloat16"}
        Type of all buffers. For the 16-bit types everything is computed in ``float32`` and rounded
        once, at the end.
    scale, bias : bool
        Whether there is a scale, whether there is a bias: one number for each row.
    residual : bool
        Whether a second matrix is added, before the activation.
    activation : {None, "relu", "silu", "gelu"}
        As of :func:`matmul`.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[M, N]
        - scale[M], bias[M], residual[M, N]: those that there are
        - y[M, N]

        and one block for each step: "scale", "bias", "residual", "relu", "gelu" or "sigmoid" and
        "silu", "cast" for the 16-bit types. The parameters must not overlap. Loops and indices are
        ``int32``, or ``int64`` where a size is symbolic or a buffer has 2**31 elements.

    Raises
    ------
    ValueError
        An argument is not possible, or there is nothing to compute. The message says which
        argument, what it was and what is possible.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> func = workloads.elementwise(128, "n", scale=True, residual=True, activation="relu")
    """
    names: dict[str, tirx.Var] = {}
    rows, columns = size("m", m, names), size("n", n, names)
    one_of("dtype", dtype, FLOATS)
    one_of("scale", scale, (False, True))
    one_of("bias", bias, (False, True))
    one_of("residual", residual, (False, True))
    one_of("activation", activation, tuple(ACTIVATIONS))
    if not (scale or bias or residual or activation):
        raise ValueError(
            "scale, bias or residual must be True, or activation not None: there is nothing to "
            "compute"
        )

    accumulator = ACCUMULATORS[dtype]
    blocks = [*["scale"] * scale, *["bias"] * bias, *["residual"] * residual]
    blocks += final_blocks(activation, accumulator, dtype)
    shape = (rows, columns)
    dims = {"m": rows, "n": columns}
    writer = Writer(dims, accumulator, index_dtype(dims), blocks[-1])

    with writer.function():
        x = writer.parameter("x", shape, dtype)
        factor = writer.parameter("scale", (rows,), dtype) if scale else None
        offset = writer.parameter("bias", (rows,), dtype) if bias else None
        other = writer.parameter("residual", shape, dtype) if residual else None
        writer.output("y", dtype)

        s = before = _scaled_and_biased(writer, x, factor, offset)
        if other is not None:
            s = writer.each(
                "residual", "added", lambda at: writer.cast(before[at]) + writer.cast(other[at])
            )
        writer.convert(writer.activate(s, activation), dtype)
    return writer.written()


def _scaled_and_biased(writer: Writer, s: Any, scale: Any, bias: Any) -> Any:
    """Write blocks "scale" and "bias" for the parameters that there are; one number a row."""
    before = s
    if scale is not None:
        s = writer.each(
            "scale", "scaled", lambda at: writer.cast(before[at]) * writer.cast(scale[at[0]])
        )
    return s if bias is None else writer.add_bias(s, bias, 0)
