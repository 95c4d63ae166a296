"""What describes a depthwise convolution: checked, and with the sizes that follow from it."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer

#: What a type is summed in; the activation is computed in the same type.
ACCUMULATORS = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
}
PADDINGS = ("same", "valid", "causal")
ACTIVATIONS = (None, "relu", "silu")

#: From so many elements on, an index into a buffer does not fit into 32 bits.
TOO_MANY_FOR_INT32 = 2**31

#: A number, or an expression in the symbolic sizes.
Size = Any


@dataclass(frozen=True)
class Convolution:
    """A depthwise convolution along one dimension, of sizes that fit together.

    Attributes
    ----------
    n, c, w, f
        Images, channels, columns and taps; `n` and `w` may be symbolic (an ``int64`` variable).
    left, right
        Zeros before and after the columns.
    stride, dilation
        Columns from one result to the next, and from one tap to the next.
    columns
        Of the result.
    dtype, accumulator
        Type of the data, and the type it is summed in.
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

    @property
    def index_dtype(self) -> str:
        """The type of loops and indices: ``int32`` where the largest buffer allows it."""
        padded = self.w + self.left + self.right
        if isinstance(self.n, int) and isinstance(padded, int):
            most = self.c * max(self.n * padded, self.f)
            if most < TOO_MANY_FOR_INT32:
                return "int32"
        return "int64"


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

    Parameters
    ----------
    n, c, w, f, padding, stride, dilation, dtype
        As of :func:`fuse_epilogue.workloads.depthwise_conv1d`.
    dtypes
        The types that this workload has.

    Raises
    ------
    ValueError
        An argument is not possible; the message says which, what was given and what is possible.
    """
    one_of("dtype", dtype, dtypes)
    f, stride, dilation = whole("f", f), whole("stride", stride), whole("dilation", dilation)
    c = whole("c", c)
    names: dict[str, tirx.Var] = {}
    images, length = _size("n", n, names), _size("w", w, names)
    left, right = _zeros(padding, length, f, stride, dilation)
    reach = dilation * (f - 1)
    columns = (length + (left + right - reach - 1)) // stride + 1
    if not isinstance(columns, int):
        columns = Analyzer().simplify(columns)
    elif columns < 1:
        raise ValueError(
            f"w must be at least {reach + 1 - left - right} for f = {f}, dilation = {dilation} and "
            f"padding = {padding!r}, or no result has all of its taps: {w!r}"
        )
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
    )


def whole(argument: str, value: Any, least: int = 1, most: int | None = None) -> int:  # noqa: ANN401
    """Return `value` as an int that lies between `least` and `most`.

    Raises
    ------
    ValueError
        It does not, or is a bool or something else.
    """
    wanted = f"an int >= {least}" if most is None else f"an int from {least} to {most}"
    number = _as_int(value)
    if number is None or number < least or (most is not None and number > most):
        raise ValueError(f"{argument} must be {wanted}: {value!r}")
    return number


def one_of(argument: str, value: Any, possible: Sequence[Any]) -> None:  # noqa: ANN401
    """Check that `value` is one of a few.

    Raises
    ------
    ValueError
        It is not.
    """
    # Compared with its type: 1 is not True.
    if not any(type(value) is type(choice) and value == choice for choice in possible):
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, possible))}: {value!r}")


def _as_int(value: Any) -> int | None:  # noqa: ANN401 - what the user passed
    """Return an int of Python or numpy; a bool is none, although Python says so."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _size(argument: str, value: Any, names: dict[str, tirx.Var]) -> Size:  # noqa: ANN401
    """Return a number, or the variable of that name; one name is one size."""
    if isinstance(value, str):
        if not value.isidentifier() or keyword.iskeyword(value):
            raise ValueError(
                f"{argument} must be an int >= 1, or a Python identifier that names a symbolic "
                f"size: {value!r}"
            )
        return names.setdefault(value, tirx.Var(value, "int64"))
    number = _as_int(value)
    if number is None or number < 1:
        raise ValueError(
            f"{argument} must be an int >= 1, or a str that names a symbolic size: {value!r}"
        )
    return number


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
        left, right = map(_as_int, padding)
        if left is not None and right is not None and min(left, right) >= 0:
            return left, right
    raise ValueError(
        f"padding must be one of {', '.join(map(repr, PADDINGS))}, or (left, right) with two "
        f"ints >= 0: {padding!r}"
    )
