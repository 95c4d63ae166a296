"""The arguments that workloads share: checked one by one, and what follows from them."""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Sequence
from typing import Any

from tvm import tirx

#: What a type is summed in; the activation is computed in the same type.
ACCUMULATORS = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
}
#: What a bias and a scale of such data are, and a result that is not requantised.
UNQUANTISED = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int32",
}
ACTIVATIONS = (None, "relu", "silu")

#: From so many elements on, an index into a buffer does not fit into 32 bits.
TOO_MANY_FOR_INT32 = 2**31

#: A number, or an expression in the symbolic sizes.
Size = Any


def whole(argument: str, value: Any, least: int = 1, most: int | None = None) -> int:  # noqa: ANN401
    """Return `value` as an int that lies between `least` and `most`.

    Raises
    ------
    ValueError
        It does not, or is a bool or something else.
    """
    wanted = f"an int >= {least}" if most is None else f"an int from {least} to {most}"
    number = as_int(value)
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


def as_int(value: Any) -> int | None:  # noqa: ANN401 - what the user passed
    """Return an int of Python or numpy; a bool is none, although Python says so."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def size(argument: str, value: Any, names: dict[str, tirx.Var]) -> Size:  # noqa: ANN401
    """Return a number, or the variable of that name; one name is one size.

    Parameters
    ----------
    argument, value
        Its name and what was given for it.
    names
        The variables so far; a new one is added.

    Raises
    ------
    ValueError
        It is neither an int >= 1 nor the name of a symbolic size.
    """
    if isinstance(value, str):
        if not value.isidentifier() or keyword.iskeyword(value):
            raise ValueError(
                f"{argument} must be an int >= 1, or a Python identifier that names a symbolic "
                f"size: {value!r}"
            )
        return names.setdefault(value, tirx.Var(value, "int64"))
    number = as_int(value)
    if number is None or number < 1:
        raise ValueError(
            f"{argument} must be an int >= 1, or a str that names a symbolic size: {value!r}"
        )
    return number


def check_activation(activation: Any, dtype: str) -> None:  # noqa: ANN401
    """Check that there is such an activation, and that the accumulator of `dtype` has it.

    Raises
    ------
    ValueError
        There is not, or it has not.
    """
    one_of("activation", activation, ACTIVATIONS)
    if dtype == "int8" and activation == "silu":
        raise ValueError("activation must be one of None, 'relu' for dtype = 'int8': 'silu'")


def index_dtype(*shapes: Sequence[Size]) -> str:
    """Return the type of loops and indices: ``int32`` where the buffers of these shapes allow it.

    They do if no size is symbolic and none of them has 2**31 elements.
    """
    for shape in shapes:
        numbers = [extent for extent in shape if isinstance(extent, int)]
        if len(numbers) < len(shape) or math.prod(numbers) >= TOO_MANY_FOR_INT32:
            return "int64"
    return "int32"
