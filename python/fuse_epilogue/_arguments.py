"""Checks of arguments that several functions have, and the types of those arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, TypeAlias, get_args

from tvm import s_tir, tirx

#: What may happen to a float.
Numerics: TypeAlias = Literal["reassociate", "exact"]


def word(argument: str, value: Any, known: Collection[str]) -> None:  # noqa: ANN401
    """Return if a value is one of some strings.

    - Raises TypeError: the value is not a str.
    - Raises ValueError: the value is not one of the allowed ones.

    >>> word("numerics", "exat", ("reassociate", "exact"))
    Traceback (most recent call last):
    ValueError: numerics must be one of 'reassociate', 'exact': 'exat'
    """
    message = f"{argument} must be one of {', '.join(map(repr, known))}: {value!r}"
    if not isinstance(value, str):
        raise TypeError(message)
    if value not in known:
        raise ValueError(message)


def check_numerics(value: Any) -> None:  # noqa: ANN401
    """Return if a value is one of :data:`Numerics`; raise what :func:`word` does if not."""
    word("numerics", value, get_args(Numerics))


def flag(argument: str, value: Any) -> None:  # noqa: ANN401
    """Return if a value is a bool; every other one is true or false, too, such as ``"no"``.

    >>> flag("distribute", "no")
    Traceback (most recent call last):
    TypeError: distribute must be True or False: 'no'
    """
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be True or False: {value!r}")


def at_least_one(argument: str, value: object) -> int:
    """Return a number if it is an int from 1.

    - Raises TypeError: the value is not an int.
    - Raises ValueError: the value is less than 1.

    >>> at_least_one("factor", 0)
    Traceback (most recent call last):
    ValueError: factor must be at least 1, not 0
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument} must be an int, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{argument} must be at least 1, not {value}")
    return value


def prim_func(argument: str, value: Any) -> tirx.PrimFunc:  # noqa: ANN401
    """Return a function of TIR; of a schedule, the function that it works on.

    - Raises TypeError: the value is neither a function nor a schedule.
    - Raises ValueError: the schedule works on no function: it has several, and none is called
      "main".

    >>> prim_func("before", None)
    Traceback (most recent call last):
    TypeError: before must be a PrimFunc or a Schedule, not NoneType
    """
    if isinstance(value, s_tir.Schedule):
        chosen = value.func_working_on
        if chosen is None:
            names = ", ".join(str(var.name_hint) for var in value.mod.get_global_vars())
            raise ValueError(
                f"{argument}: the schedule works on no function of {names or 'its module'}: call "
                "sch.work_on(name) first, or pass the function, sch.mod[name]"
            )
        return value.mod[chosen]
    if not isinstance(value, tirx.PrimFunc):
        hint = ": of a module, pass mod[name]" if hasattr(value, "functions") else ""
        name = type(value).__name__
        raise TypeError(f"{argument} must be a PrimFunc or a Schedule, not {name}{hint}")
    return value


def seconds(argument: str, value: Any) -> float:  # noqa: ANN401
    """Return a number of seconds as a float.

    - Raises TypeError: `value` is not a number.
    - Raises ValueError: the number is not finite, or not above 0.

    >>> seconds("measure", 0)
    Traceback (most recent call last):
    ValueError: measure must be a number of seconds above 0: 0
    """
    message = f"{argument} must be a number of seconds above 0: {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(message)
    if not 0 < value < float("inf"):
        raise ValueError(message)
    return float(value)
