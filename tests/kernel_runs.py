"""Running kernels on inputs at unreadable pages, and finding what they write beyond results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm

from fuse_epilogue.schedules import host
from generated.fences import Fenced

_ALIGNED, _ZONE, _UNTOUCHED = 64, 64, 99


def fenced(array: np.ndarray) -> Any:
    """Return an array as a tensor that ends at an unreadable page if it is aligned there."""
    return Fenced(array, "beginning" if array.nbytes % _ALIGNED else "end").tensor()


class Result:
    """A result of a kernel, `tensor`, and elements after it that stay as they are."""

    def __init__(self, shape: Iterable[int], dtype: str) -> None:
        self.shape = tuple(shape)
        self.size = math.prod(self.shape)
        self.untouched = np.full(_ZONE, _UNTOUCHED).astype(dtype)
        self.memory = tvm.runtime.tensor(np.full(self.size + _ZONE, _UNTOUCHED).astype(dtype))
        self.tensor = self.memory._create_view(self.shape)

    def read(self) -> np.ndarray:
        """Return what was stored."""
        content = self.memory.numpy()
        assert np.array_equal(content[self.size :], self.untouched)
        return content[: self.size].reshape(self.shape)


def run(
    func: Any,
    arrays: Iterable[np.ndarray],
    shape: tuple[int, ...],
    dtype: str = "float32",
    target: Any = None,
) -> np.ndarray:
    """Return the result of a function, compiled for one thread unless there is another target."""
    built = tvm.compile(func.with_attr("global_symbol", "main"), target or host(1))
    result = Result(shape, dtype)
    built["main"](*map(fenced, arrays), result.tensor)
    return result.read()
