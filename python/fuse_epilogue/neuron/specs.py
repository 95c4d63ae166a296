"""Arguments of kernels: shapes and types of tensors, and other values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .language.program import Code
from .limits import MOST_DIMS
from .trace import ITEMSIZE
from .values import dtype_of
from .walk import Spec


def spec_of(value: Any) -> Any:
    """Return the shape and the type of an array, or of a pair that says them; others as they are.

    A value is an integer, a number, a text, None, a tuple of them or of tensors, or `Code`.
    """
    if isinstance(value, np.ndarray):
        return _checked(value.shape, dtype_of(value))
    if isinstance(value, Spec) or _is_pair(value):
        shape, dtype = value
        name = str(dtype)
        if name not in ITEMSIZE:
            raise TypeError(f"{name} is not a type that kernels have: {', '.join(ITEMSIZE)}")
        return _checked(tuple(int(n) for n in shape), name)
    if isinstance(value, tuple):
        return tuple(spec_of(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, Code, str)):
        return value
    raise TypeError(f"a kernel takes arrays, numbers and tuples of them, not {value!r}")


def named_spec(name: str, value: Any) -> Any:
    """Return what :func:`spec_of` returns; a refusal names the parameter."""
    try:
        return spec_of(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _is_pair(value: Any) -> bool:
    """Tell whether a value is a pair of a shape and a type."""
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and isinstance(value[0], (tuple, list))
        and not isinstance(value[1], (tuple, list, int, float, type(None)))
    )


def _checked(shape: tuple[int, ...], dtype: str) -> Spec:
    """Return what a tensor is, refused if no tensor is that."""
    if min(shape, default=1) < 1:
        raise ValueError(f"{shape} is not the shape of a tensor")
    if len(shape) > MOST_DIMS:
        raise ValueError(f"an input has {len(shape)} dimensions, at most {MOST_DIMS}")
    # Tensors of kernels have a dimension: one that has none becomes one of a single element.
    return Spec(shape or (1,), dtype)
