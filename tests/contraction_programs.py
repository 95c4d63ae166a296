"""Contractions as Relax's lowering makes them, in small: products of matrices and convolutions."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx, topi


def product(
    m: int,
    n: int,
    k: int,
    *,
    batch: int | None = None,
    shared: int = 1,
    turned_a: bool = False,
    turned_b: bool = False,
    types: tuple[str, str] = ("float32", "float32"),
) -> Any:
    """Return ``relu(a @ b + bias)``; `shared` matrices `a` use the same `b`."""
    dtype, total = types
    outer = () if batch is None else (batch,)
    inner = () if batch is None else (batch // shared,)
    a = te.placeholder((*outer, *((k, m) if turned_a else (m, k))), dtype, "a")
    b = te.placeholder((*inner, *((n, k) if turned_b else (k, n))), dtype, "b")
    bias = te.placeholder((n,), total, "bias")
    at = te.reduce_axis((0, k), "k")

    def element(*index: Any) -> Any:
        *h, i, j = index
        of_b = [each // shared for each in h]
        left = a[(*h, *((at, i) if turned_a else (i, at)))]
        right = b[(*of_b, *((j, at) if turned_b else (at, j)))]
        return te.sum(left.astype(total) * right.astype(total), at)

    y = te.compute((*outer, m, n), element, "product")
    return _finished([a, b, bias], y, bias, len(y.shape) - 1)


def conv(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    layout: str = "NHWC",
    dtype: str = "float32",
    residual: bool = False,
) -> Any:
    """Return ``relu(conv(x, w) + bias)``; `kernel` is the filters' number and their sizes.

    With `residual`, a further argument of the result's shape is added before ``relu``.
    """
    weights = {"NHWC": "OHWI", "NCHW": "OIHW", "NWC": "OWI", "NDHWC": "ODHWI"}[layout]
    channels = shape[layout.index("C")] // groups
    sizes = iter(kernel[1:])
    of_weight = tuple(
        kernel[0] if axis == "O" else channels if axis == "I" else next(sizes) for axis in weights
    )
    x = te.placeholder(shape, dtype, "x")
    w = te.placeholder(of_weight, dtype, "w")
    bias = te.placeholder((kernel[0],), dtype, "bias")
    y = topi.nn.conv(x, w, stride, padding, dilation, groups, layout, weights, dtype)
    if not residual:
        return _finished([x, w, bias], y, bias, layout.index("C"))
    other = te.placeholder(y.shape, dtype, "other")
    added = te.compute(y.shape, lambda *index: y[index] + other[index], "added")
    return _finished([x, w, bias, other], added, bias, layout.index("C"))


def permuted(m: int, heads: int, width: int, k: int) -> Any:
    """Return a product whose columns are divided among heads, which come first then."""
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((k, heads * width), "float32", "b")
    at = te.reduce_axis((0, k), "k")
    y = te.compute((m, heads * width), lambda i, j: te.sum(a[i, at] * b[at, j], at), "product")
    z = te.compute((heads, m, width), lambda h, i, j: y[i, h * width + j] * 2, "permuted")
    return te.create_prim_func([a, b, z]).with_attr("tirx.noalias", True)


def _finished(inputs: list[Any], y: Any, bias: Any, axis: int) -> Any:
    biased = te.compute(y.shape, lambda *index: y[index] + bias[index[axis]], "biased")
    zero = tirx.const(0, str(y.dtype))
    out = te.compute(y.shape, lambda *index: tirx.max(biased[index], zero), "out")
    return te.create_prim_func([*inputs, out]).with_attr("tirx.noalias", True)
