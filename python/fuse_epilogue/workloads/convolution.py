"""The description of a depthwise convolution: checked, with the sizes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer

from .arguments import (
    ACCUMULATORS,
    TOO_MANY,
    Size,
    as_int,
    check_below,
    index_dtype,
    one_of,
    size,
    whole,
)

PADDINGS = ("same", "valid", "causal")


@dataclass(frozen=True)
class Convolution:
    """A depthwise convolution along one dimension, of sizes that fit together.

    - `n`, `c`, `w`, `f`: images, channels, columns and taps; `n` and `w` may be symbolic (an
      ``int64`` variable).
    - `left`, `right`: zeros before and after the columns.
    - `stride`, `dilation`: columns from one result to the next, and from one tap to the next.
    - `columns`: type of the result.
    - `dtype`, `accumulator`: type of the data, and the type it is summed in.
    - `index_dtype`: the type of loops and indices: ``int32`` where the largest buffer allows it.
    """

    n: Size
    c: int
    w: Size
    f: int
    left: int
    right: int
    stride: int
    dilation: int
    columns: Size
    dtype: str
    accumulator: str
    index_dtype: str


def convolution(
    n: int | str,
    c: int,
    w: int | str,
    f: int,
    *,
    padding: str | Sequence[int],
    stride: int,
    dilation: int,
    dtype: str,
    dtypes: Sequence[str] = tuple(ACCUMULATORS),
) -> Convolution:
    """Check the arguments of a workload.

    - `n`, `c`, `w`, `f`, `padding`, `stride`, `dilation`, `dtype`: as of
      :func:`fuse_epilogue.workloads.depthwise_conv1d`.
    - `dtypes`: the types that this workload has.
    - Raises ValueError: an argument is not possible; the message says which, what was given and
      what is possible.
    """
    one_of("dtype", dtype, dtypes)
    f, stride, dilation = whole("f", f), whole("stride", stride), whole("dilation", dilation)
    c = whole("c", c)
    names: dict[str, tirx.Var] = {}
    images, length = size("n", n, names), size("w", w, names)
    reach = dilation * (f - 1)
    if reach >= TOO_MANY:
        largest = "dilation" if dilation > f else "f"
        raise ValueError(
            f"{largest} must be smaller, because dilation * (f - 1) = {reach} is not an index of "
            f"64 bits: {max(dilation, f)!r}"
        )
    left, right = _zeros(padding, length, f, stride, dilation)
    check_below("padding", left + right, given=padding)
    columns = (length + (left + right - reach - 1)) // stride + 1
    if not isinstance(columns, int):
        columns = Analyzer().simplify(columns)
    elif columns < 1:
        raise ValueError(
            f"w must be at least {reach + 1 - left - right} for f = {f}, dilation = {dilation} and "
            f"padding = {padding!r}, or no result has all of its taps: {w!r}"
        )
    padded = "w with its padding" if left + right else "w"
    x = {"n": images, "c": c, padded: length + (left + right)}
    return Convolution(
        n=images,
        c=c,
        w=length,
        f=f,
        left=left,
        right=right,
        stride=stride,
        dilation=dilation,
        columns=columns,
        dtype=dtype,
        accumulator=ACCUMULATORS[dtype],
        index_dtype=index_dtype(x, {"c": c, "f": f}),
    )


def _zeros(padding: Any, w: Size, f: int, stride: int, dilation: int) -> tuple[int, int]:  # noqa: ANN401
    """Count the zeros before and after the columns."""
    reach = dilation * (f - 1)
    if isinstance(padding, str) and padding in PADDINGS:
        total = reach
        if isinstance(w, int) and stride > 1:
            # The last result starts at the largest multiple of the stride below w.
            total = max((w - 1) // stride * stride + reach + 1 - w, 0)
        zeros: Mapping[str, tuple[int, int]] = {
            "same": (total // 2, total - total // 2),
            "valid": (0, 0),
            "causal": (reach, 0),
        }
        return zeros[padding]
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        left, right = map(as_int, padding)
        if left is not None and right is not None and min(left, right) >= 0:
            return left, right
    raise ValueError(
        f"padding must be one of {', '.join(map(repr, PADDINGS))}, or (left, right) with two "
        f"ints >= 0: {padding!r}"
    )
