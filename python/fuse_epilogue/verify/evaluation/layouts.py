"""Arrays whose elements are not one after the other: declared strides and offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from .scalar_ops import RUNTIME
from .scalars import UnsupportedError

#: Types of which NumPy passes no arrays with strides.
NOT_PASSED = ("bfloat16",)
# What TVM asks of the memory of an array, unless the function declares less.
_ALIGNMENT = 64


def overlap(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether strides put two elements of an array into one place, as far as this can see.

    From the smallest stride on, each must be larger than what the axes before it reach together.
    """
    span = 1
    for step, extent in sorted(zip(map(abs, strides), shape, strict=True)):
        if extent > 1:
            if step < span:
                return True
            span += step * (extent - 1)
    return False


def choose_sizes(program: Any, given: Mapping[str, int] | None) -> dict[str, int]:
    """Return a value for each size of a program: those given, and different primes.

    Strides that are variables keep elements separate, and offsets are 0.

    - `program` (Program): the program.
    - `given`: some of the values.
    """
    primes = iter((7, 5, 11, 3, 13, 17, 19, 23, 29, 31))
    names = {code: name for name, code in program.sizes.items()}
    given = given or {}
    values = {code: int(given[name]) for code, name in names.items() if name in given}
    extents = " ".join(code for param in program.parameters for code in param.codes)
    for code in names:
        if code not in values and re.search(rf"\b{code}\b", extents):
            values[code] = next(primes)
    for param in program.parameters:
        if param.offset in names:
            values.setdefault(param.offset, 0)
        reach = 0
        for code, stride in [*zip(param.codes, param.strides, strict=False)][::-1]:
            count = _value(code, values)
            if stride in names:
                values.setdefault(stride, reach + 2)
            reach += abs(_value(stride, values)) * (count - 1)
    return {name: values[code] if code in values else next(primes) for code, name in names.items()}


def _value(code: str, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent or a stride; 1 if a variable in it has none yet."""
    try:
        return int(eval(code, dict(RUNTIME), dict(sizes)))
    except NameError:
        return 1


def strides_of(param: Any, shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the strides of a parameter; none if its elements are one after the other.

    - `param` (Parameter): the parameter.
    - `sizes`: by argument name.
    - Raises UnsupportedError: if no array of numpy's is like that.
    """
    offset = _value(param.offset, sizes)
    if offset:
        raise UnsupportedError(f"'{param.name}' begins {offset} elements after its array does")
    strides = tuple(_value(code, sizes) for code in param.strides)
    if overlap(strides, shape[: len(strides)]):
        raise UnsupportedError(
            f"the elements of '{param.name}' share places by its strides, {strides}: data have a "
            "place for each"
        )
    if any(step < 0 for step in strides):
        raise UnsupportedError(f"'{param.name}' has a negative stride: {strides}")
    return strides


def placed(array: np.ndarray, strides: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return a copy of an array for TVM, with strides in elements, and its memory."""
    size = array.itemsize
    reach = sum(step * (extent - 1) for step, extent in zip(strides, array.shape, strict=True))
    count = max(reach, 0) + 1
    memory = np.zeros(count * size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    flat = memory[start : start + count * size].view(array.dtype)
    by_strides = np.lib.stride_tricks.as_strided(flat, array.shape, [s * size for s in strides])
    by_strides[...] = array
    return tvm_ffi.from_dlpack(by_strides), by_strides
