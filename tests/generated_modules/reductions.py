"""The reductions that are drawn: products, convolutions, pooling, and sums along axes."""

from __future__ import annotations

import math

from .draw import MAX_WORK, Drawing, any_type
from .spec import Value, is_float


def _source(drawing: Drawing, rank: tuple[int, ...], small: bool = False) -> int:
    """Return a value of one of these ranks: one that there is already, or a new parameter."""
    rng = drawing.rng

    def accept(value: Value) -> bool:
        return len(value.shape) in rank and value.dtype != "bool" and max(value.shape) <= 64

    if rng.random() < 0.55:
        found = drawing.some_value(accept)
        if found is not None:
            return found
    ndim = rng.choice(rank)
    largest = {1: 40, 2: 20, 3: 10, 4: 8}[ndim]
    shape = tuple(rng.randint(1, largest) for _ in range(ndim))
    return drawing.parameter(shape, any_type(rng), 2 if small else 4)


def _accumulator(drawing: Drawing, dtype: str) -> str:
    """Return the type that a sum of products is accumulated in."""
    if dtype == "int8":
        return "int32"
    if dtype == "float16" and drawing.rng.random() < 0.6:
        return "float32"
    return dtype


def matmul(drawing: Drawing) -> int | None:
    """Multiply matrices, batches of them too; the second one may be read transposed."""
    rng = drawing.rng
    left = _source(drawing, (2, 2, 3))
    a = drawing.value(left)
    inner = a.shape[-1]
    columns = rng.randint(1, 24)
    transposed = rng.random() < 0.4
    batch = a.shape[:-2] if len(a.shape) == 3 and rng.random() < 0.4 else ()
    shape = (*batch, columns, inner) if transposed else (*batch, inner, columns)
    right = drawing.parameter(shape, a.dtype, 3)
    out = (*a.shape[:-1], columns)
    if math.prod(out) * inner > MAX_WORK:
        return None
    return drawing.node(
        "matmul",
        (left, right),
        out,
        a.bound * 3 * inner,
        dtype=_accumulator(drawing, a.dtype),
        transposed=transposed,
        ndim=len(shape),
    )


def gram(drawing: Drawing) -> int | None:
    """Multiply a matrix with its own transpose: the operands are shared."""
    left = _source(drawing, (2,))
    a = drawing.value(left)
    bound = a.bound * a.bound * a.shape[1]
    dtype = _accumulator(drawing, a.dtype)
    shape = (a.shape[0], a.shape[0])
    return drawing.node("matmul", (left, left), shape, bound, dtype=dtype, transposed=True, ndim=2)


def conv(drawing: Drawing) -> int | None:
    """Convolve one or two spatial axes: strides, padding, dilation, groups."""
    rng = drawing.rng
    ndim = rng.choice((1, 2))
    source = _source(drawing, (ndim + 2,))
    x = drawing.value(source)
    channels = x.shape[1]
    groups = rng.choice([g for g in (1, 1, channels, 2, 3) if channels % g == 0])
    per_group = rng.randint(1, 8 if groups == 1 else 2)
    kernel = [rng.randint(1, 3) for _ in range(ndim)]
    strides = [rng.choice((1, 1, 2)) for _ in range(ndim)]
    padding = [rng.randint(0, size - 1) for size in kernel]
    dilation = [rng.choice((1, 1, 2)) for _ in range(ndim)]
    out = []
    for extent, k, s, p, d in zip(x.shape[2:], kernel, strides, padding, dilation, strict=True):
        span = extent + 2 * p - d * (k - 1) - 1
        if span < 0:
            return None
        out.append(span // s + 1)
    inner = channels // groups
    shape = (x.shape[0], groups * per_group, *out)
    terms = inner * math.prod(kernel)
    if math.prod(shape) * terms > MAX_WORK:
        return None
    weight = drawing.parameter((groups * per_group, inner, *kernel), x.dtype, 2)
    return drawing.node(
        "conv",
        (source, weight),
        shape,
        x.bound * 2 * terms,
        dtype=_accumulator(drawing, x.dtype),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


def pool(drawing: Drawing) -> int | None:
    """Take the largest element or the mean of windows."""
    rng = drawing.rng
    source = _source(drawing, (4, 3))
    x = drawing.value(source)
    ndim = len(x.shape) - 2
    kernel = [rng.randint(1, 3) for _ in range(ndim)]
    strides = [rng.choice((1, 2)) for _ in range(ndim)]
    padding = [rng.randint(0, size // 2) for size in kernel]
    out = []
    for extent, k, s, p in zip(x.shape[2:], kernel, strides, padding, strict=True):
        if extent + 2 * p < k:
            return None
        out.append((extent + 2 * p - k) // s + 1)
    average = is_float(x.dtype) and rng.random() < 0.5
    attrs = {"kernel": kernel, "strides": strides, "padding": padding}
    shape = (*x.shape[:2], *out)
    if average:
        attrs["include"] = rng.random() < 0.5
        bound = x.bound * math.prod(kernel)
        return drawing.node("avg_pool", (source,), shape, bound, exact=False, **attrs)
    return drawing.node("max_pool", (source,), shape, x.bound, **attrs)


def reduce(drawing: Drawing) -> int | None:
    """Reduce axes by a sum, a mean, the largest or the smallest element, or a product."""
    rng = drawing.rng
    source = _source(drawing, (2, 3, 4))
    x = drawing.value(source)
    axes = sorted(rng.sample(range(len(x.shape)), rng.randint(1, len(x.shape) - 1)))
    count = math.prod(x.shape[axis] for axis in axes)
    kinds = ["sum", "sum", "max", "min"]
    kinds += ["mean"] if is_float(x.dtype) else []
    kinds += ["prod"] if count <= 4 and x.bound**count <= 2**20 else []
    kind = rng.choice(kinds)
    keepdims = rng.random() < 0.3
    shape = tuple(
        1 if axis in axes else extent
        for axis, extent in enumerate(x.shape)
        if keepdims or axis not in axes
    )
    bound = x.bound
    if kind in ("sum", "mean"):
        bound *= count
    elif kind == "prod":
        bound = max(bound, 1) ** count
    return drawing.node(
        kind,
        (source,),
        shape,
        bound,
        exact=x.exact and kind != "mean",
        axes=axes,
        keepdims=keepdims,
    )


REDUCTIONS = (matmul, matmul, matmul, gram, conv, conv, conv, pool, reduce, reduce)
