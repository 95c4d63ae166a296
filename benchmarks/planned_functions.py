"""Functions of a transformer for `neuron_planned`, as TVM's tensor expressions write them."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx, topi


def _wide(value: Any, dtype: str) -> Any:
    return value if dtype == "float32" else value.astype("float32")


def attention(heads: int, length: int, size: int, dtype: str = "bfloat16") -> tirx.PrimFunc:
    """Return attention with a scale: queries, keys and values are rows of features."""
    shape = (heads, length, size)
    q, k, v = (te.placeholder(shape, dtype, name) for name in "qkv")
    d = te.reduce_axis((0, size), "d")
    j = [te.reduce_axis((0, length), f"j{place}") for place in range(3)]
    scale = tirx.const(size**-0.5, "float32")
    scores = te.compute(
        (heads, length, length),
        lambda h, i, c: te.sum(_wide(q[h, i, d], dtype) * _wide(k[h, c, d], dtype), d),
        "scores",
    )
    top = te.compute((heads, length), lambda h, i: te.max(scores[h, i, j[0]] * scale, j[0]), "top")

    def share(h: Any, i: Any, c: Any) -> Any:
        return te.exp(scores[h, i, c] * scale - top[h, i])

    total = te.compute((heads, length), lambda h, i: te.sum(share(h, i, j[1]), j[1]), "total")
    out = te.compute(
        shape,
        lambda h, i, c: te.sum(share(h, i, j[2]) / total[h, i] * _wide(v[h, j[2], c], dtype), j[2]),
        "out",
    )
    made = [out] if dtype == "float32" else [te.compute(shape, lambda *at: out[at].astype(dtype))]
    return te.create_prim_func([q, k, v, *made])


def softmax(rows: int, columns: int, dtype: str = "float32") -> tirx.PrimFunc:
    """Return a softmax along rows."""
    x = te.placeholder((rows, columns), dtype, "x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def rms_norm(rows: int, columns: int, dtype: str) -> tirx.PrimFunc:
    """Return an RMS norm along rows, computed in float32."""
    x = te.placeholder((rows, columns), dtype, "x")
    gamma = te.placeholder((columns,), dtype, "gamma")
    return te.create_prim_func([x, gamma, topi.nn.rms_norm(x, gamma, [1], 1e-6)])


def layer_norm(rows: int, columns: int, dtype: str) -> tirx.PrimFunc:
    """Return a layer norm along rows, computed in float32."""
    x = te.placeholder((rows, columns), dtype, "x")
    gamma, beta = (te.placeholder((columns,), dtype, name) for name in ("gamma", "beta"))
    return te.create_prim_func([x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1], 1e-6)])
