"""Reads running sums and products along an axis: ``y[i] = y[i - 1] + x[i]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import te, tirx, topi
from tvm.ir import prim

#: The operators, by what TVM calls their blocks.
_OPERATORS: dict[str, Callable[..., Any]] = {"cumsum": topi.cumsum, "cumprod": topi.cumprod}


@dataclass(frozen=True)
class Scan:
    """A function that computes running sums or products.

    - `operator`: "cumsum" or "cumprod".
    - `axis`: axis of both buffers.
    """

    func: tirx.PrimFunc
    operator: str
    axis: int

    @property
    def source(self) -> Any:
        """The buffer that is read."""
        return self.func.params[0]

    @property
    def result(self) -> Any:
        """The buffer that is written, of the same shape."""
        return self.func.params[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of both buffers."""
        return tuple(int(size) for size in self.source.shape)


def read_scan(func: tirx.PrimFunc) -> Scan | None:
    """Return a function as a scan.

    TVM writes scans as loops over flat offsets. A function is one if it equals what TVM writes.

    - Returns: None for any other function, for shapes that are not constant, and for exclusive
      scans.
    """
    params = list(func.params)
    if len(params) != 2 or not all(hasattr(param, "shape") for param in params):
        return None
    shapes = [list(param.shape) for param in params]
    if not all(isinstance(size, prim.IntImm) for shape in shapes for size in shape):
        return None
    sizes = [[int(size) for size in shape] for shape in shapes]
    if sizes[0] != sizes[1] or not sizes[0] or min(sizes[0]) < 1:
        return None
    text = str(func)
    for name, operator in _OPERATORS.items():
        for axis in range(len(sizes[0])) if name in text else ():
            x = te.placeholder(shapes[0], str(params[0].dtype), "x")
            tensors = [x, operator(x, axis, str(params[1].dtype))]
            # Relax lets indices have 64 bits.
            known = [te.create_prim_func(tensors), te.create_prim_func(tensors, "int64")]
            if any(_is_equal(each, func) for each in known):
                return Scan(func, name, axis)
    return None


def _is_equal(known: tirx.PrimFunc, func: tirx.PrimFunc) -> bool:
    """Return whether two functions are equal but for their attributes."""
    bare = tirx.PrimFunc(func.params, func.body, func.ret_type)
    other = tirx.PrimFunc(known.params, known.body, known.ret_type)
    return bool(tvm_ffi.structural_equal(bare, other, map_free_vars=True))
