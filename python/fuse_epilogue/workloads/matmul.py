"""A product of two matrices, its bias and its activation, in TIR."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import PrimFunc

from .arguments import ACCUMULATORS, UNQUANTISED, check_activation, index_dtype, one_of, size
from .writer import Index, Writer, final_blocks

AXES = ("n", "m")


def matmul(
    m: int | str,
    n: int | str,
    k: int | str,
    *,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
    bias_axis: str = "n",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> PrimFunc:
    """Multiply two matrices.

    ::

        sum[m, n] = sum_k  a[m, k] * b[k, n]
        y[m, n]   = activation(sum[m, n] + bias[n])

    Parameters
    ----------
    m, n, k : int or str
        Rows M and columns N of y, and length K of the sums, at least 1. A str is the name of a
        symbolic size: an ``int64`` that the function takes from the shapes of a and b. The same
        name is the same size.
    dtype : {"float32", "float16", "bfloat16", "int8"}
        Type of a and b. The 16-bit types are summed in ``float32``, where the bias and the
        activation are computed too, and rounded once, at the end. ``"int8"`` is summed in
        ``int32``, as which it stays: nothing requantises y. The sum, with the bias, has to fit.
    bias : bool
        Whether there is a bias.
    activation : {None, "relu", "silu", "gelu"}
        ``max(x, 0)``, ``x * sigmoid(x)`` or ``x * (1 + erf(x / sqrt(2))) / 2``; ``"int8"`` has the
        first only.
    bias_axis : {"n", "m"}
        Whether each column of y has a bias of its own, ``bias[n]``, or each row, ``bias[m]``. Of a
        layer whose features are the rows of y, the bias is the latter.
    transpose_a, transpose_b : bool
        Whether a is stored as a[K, M], b as b[N, K].

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - a[M, K], or a[K, M]
        - b[K, N], or b[N, K]
        - bias[N], or bias[M], if there is one: of `dtype`, and ``int32`` for ``"int8"``
        - y[M, N], of the same type as the bias

        and one block for each step: "matmul", "bias", "relu", "gelu" or "sigmoid" and "silu",
        "cast" for the 16-bit types. The parameters must not overlap. Loops and indices are
        ``int32``, or ``int64`` where a size is symbolic or a buffer has 2**31 elements.

    Raises
    ------
    ValueError
        An argument is not possible, or there is a `bias_axis` other than the default without a
        bias. The message says which argument, what it was and what is possible.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> func = workloads.matmul("m", 256, 512, dtype="bfloat16", transpose_b=True)
    >>> sch = tvm.s_tir.Schedule(func)
    >>> print(sch.fuse_reduction_epilogue("matmul", "bias"))
    'matmul' absorbed T.Cast("float32", bias[v_n]) from 'bias' into T.init; 'summed' is gone. ...
    """
    names: dict[str, tirx.Var] = {}
    rows, columns, depth = size("m", m, names), size("n", n, names), size("k", k, names)
    one_of("dtype", dtype, tuple(ACCUMULATORS))
    one_of("bias", bias, (False, True))
    check_activation(activation, dtype)
    one_of("bias_axis", bias_axis, AXES)
    one_of("transpose_a", transpose_a, (False, True))
    one_of("transpose_b", transpose_b, (False, True))
    if not bias and bias_axis != AXES[0]:
        raise ValueError(
            f"bias_axis is for bias = True only; leave it out for bias = False: {bias_axis!r}"
        )

    accumulator, result = ACCUMULATORS[dtype], UNQUANTISED[dtype]
    of_a = (depth, rows) if transpose_a else (rows, depth)
    of_b = (columns, depth) if transpose_b else (depth, columns)
    dims = {"m": rows, "n": columns}
    indices = index_dtype({"m": rows, "k": depth}, {"k": depth, "n": columns}, dims)
    blocks = ["matmul", *["bias"] * bias, *final_blocks(activation, accumulator, result)]
    writer = Writer(dims, accumulator, indices, blocks[-1])

    def step(s: Any, index: Index) -> Any:
        v_m, v_n, v_k = index
        left = a[v_k, v_m] if transpose_a else a[v_m, v_k]
        right = b[v_n, v_k] if transpose_b else b[v_k, v_n]
        return s + writer.cast(left) * writer.cast(right)

    with writer.function():
        a = writer.parameter("a", of_a, dtype)
        b = writer.parameter("b", of_b, dtype)
        if bias:
            offset = writer.parameter("bias", (dims[bias_axis],), result)
        writer.output("y", result)

        s = writer.reduce("matmul", "summed", {"k": depth}, 0, step)
        if bias:
            s = writer.add_bias(s, offset, list(dims).index(bias_axis))
        writer.convert(writer.activate(s, activation), result)
    return writer.written()
