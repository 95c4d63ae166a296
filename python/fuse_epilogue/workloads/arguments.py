"""The arguments that workloads share: checked one by one, and what follows from them."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping, Sequence
from numbers import Integral
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
#: The activations of all workloads, and the blocks that compute them.
ACTIVATIONS: dict[str | None, tuple[str, ...]] = {
    None: (),
    "relu": ("relu",),
    "silu": ("sigmoid", "silu"),
    "gelu": ("gelu",),
}
#: Those that integers have.
INTEGER_ACTIVATIONS = (None, "relu")

#: From this many elements on, an index into a buffer does not fit into 32 bits.
TOO_MANY_FOR_INT32 = 2**31
#: From this many on, there is no index at all.
TOO_MANY = 2**63

#: A number, or an expression in the symbolic sizes.
Size = Any


def whole(argument: str, value: Any, least: int = 1, most: int | None = None) -> int:  # noqa: ANN401
    """Return `value` as an int that lies between `least` and `most`.

    - Raises ValueError: the value does not divide, is a bool or not an integer, or does not fit
      into 64 bits.
    """
    wanted = f"an int >= {least}" if most is None else f"an int from {least} to {most}"
    number = as_int(value)
    if number is None or number < least or (most is not None and number > most):
        raise ValueError(f"{argument} must be {wanted}: {value!r}")
    check_below(argument, number, given=value)
    return number


def check_below(argument: str, value: int, bits: int = 63, given: Any = None) -> None:  # noqa: ANN401
    """Check that a number is not too large.

    - `argument`, `value`: the name of an argument, and a number that follows from it.
    - `bits`: what it has at most, without a sign: 63, as an index has, or 31, which is the limit of
      an attribute in Relax.
    - `given`: the value given for the argument, if not that number.
    - Raises ValueError: the buffer has more.
    """
    if value >= 1 << bits:
        why = "Relax computes with it in 32 bits" if bits == 31 else "indices have 64 bits"
        shown = value if given is None else given
        raise ValueError(f"{argument} must be below 2**{bits}, because {why}: {shown!r}")


def one_of(argument: str, value: Any, possible: Sequence[Any]) -> None:  # noqa: ANN401
    """Check that `value` is one of a few.

    - Raises ValueError: the value is not one of them.
    """
    # Compared with its type: 1 is not True.
    if not any(type(value) is type(choice) and value == choice for choice in possible):
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, possible))}: {value!r}")


def as_int(value: Any) -> int | None:  # noqa: ANN401 - what the user passed
    """Return an integer of Python or numpy as an int, None for bools and any other value."""
    return int(value) if not isinstance(value, bool) and isinstance(value, Integral) else None


def size(argument: str, value: Any, names: dict[str, tirx.Var]) -> Size:  # noqa: ANN401
    """Return a number, or the variable of that name; one name is one size.

    - `argument`, `value`: its name and what was given for it.
    - `names`: the variables so far; a new one is added.
    - Raises ValueError: the size is neither an int from 1 to 2**63 - 1 nor the name of a symbolic
      size.
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
    check_below(argument, number, given=value)
    return number


def check_activation(
    activation: Any,  # noqa: ANN401
    dtype: str,
) -> None:
    """Check that there is such an activation, and that the accumulator of `dtype` has it.

    - `activation`, `dtype`: as of the workloads.
    - Raises ValueError: there is not, or it has not.
    """
    one_of("activation", activation, tuple(ACTIVATIONS))
    if dtype == "int8" and activation not in INTEGER_ACTIVATIONS:
        raise ValueError(
            f"activation must be one of None, 'relu' for dtype = 'int8': {activation!r}"
        )


def index_dtype(*shapes: Mapping[str, Size]) -> str:
    """Return the type of loops and indices: ``int32`` where the buffers of these shapes allow it.

    They do if no size is symbolic and none of them has 2**31 elements.

    - `shapes`: sizes of each buffer, by the argument that determines them.
    - Raises ValueError: a buffer has 2**63 elements: the largest of its sizes is to blame.
    """
    dtype = "int32"
    for shape in shapes:
        numbers = {name: extent for name, extent in shape.items() if isinstance(extent, int)}
        elements = math.prod(numbers.values())
        if elements >= TOO_MANY:
            largest = max(numbers, key=lambda name: numbers[name])
            others = elements // numbers[largest]
            raise ValueError(
                f"{largest} must be at most {(TOO_MANY - 1) // others}, because indices have 64 "
                f"bits and there are {others} elements for each: {numbers[largest]}"
            )
        if len(numbers) < len(shape) or elements >= TOO_MANY_FOR_INT32:
            dtype = "int64"
    return dtype
