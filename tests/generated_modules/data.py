"""Data for a module: whole numbers, or whatever floats there are, each array against a page.

An array ends where a page begins that may not be read, and begins behind another one, so that a
read out of bounds ends the process instead of finding something.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from .spec import Module, Parameter, is_float

KINDS = ("whole", "nasty")

#: What generated code relies on.
ALIGNMENT = 64
_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def arrays(module: Module, seed: str, kind: str) -> list[np.ndarray]:
    """Return an array for every parameter.

    - `kind`: "whole": whole numbers, with which float sums are exact. "nasty": floats have signed
      zeros, infinities, NaN and denormals among them; integers are as before.
    """
    digest = [ord(character) for character in f"{seed}/{kind}"]
    rng = np.random.default_rng(digest)
    return [_array(each, rng, kind) for each in module.parameters]


def _array(parameter: Parameter, rng: np.random.Generator, kind: str) -> np.ndarray:
    value, low, high = parameter.value, parameter.low, parameter.high
    if parameter.kind == "positive":
        low = 1
    drawn = rng.integers(low, high + 1, value.shape)
    if parameter.kind == "divisors":
        drawn = np.where(rng.random(value.shape) < 0.4, 0, drawn)
    if parameter.kind == "wild":
        far = rng.choice([-1, -(2**30), 2**30, -4097], value.shape)
        drawn = np.where(rng.random(value.shape) < 0.4, far, drawn)
    result = np.asarray(drawn.astype(value.dtype))
    if kind == "nasty" and is_float(value.dtype) and parameter.kind == "data":
        result = _nasty(result, rng)
    return result


def _nasty(whole: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    info = np.finfo(whole.dtype)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, info.smallest_subnormal, -info.tiny, info.max],
        whole.dtype,
    )
    ordinary = (whole + rng.standard_normal(whole.shape)).astype(whole.dtype)
    chosen = rng.choice(special, whole.shape)
    return np.asarray(np.where(rng.random(whole.shape) < 0.08, chosen, ordinary))


class Fenced:
    """Memory between two pages that may not be read.

    - `array`: the copy, whose end is at most 63 bytes before the page behind it.
    """

    def __init__(self, array: np.ndarray) -> None:
        """Copy an array to where reading beyond it ends the process."""
        size = -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        inner = -(-size // _PAGE) * _PAGE
        self._memory = mmap.mmap(-1, inner + 2 * _PAGE)
        whole = np.frombuffer(self._memory, np.uint8)
        start = _PAGE + inner - size
        self.array = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        base = whole.ctypes.data
        for page in (base, base + _PAGE + inner):
            if _libc.mprotect(page, _PAGE, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect failed")
