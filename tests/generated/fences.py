"""Arrays against unreadable pages: an access out of bounds ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import tvm_ffi

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect

# The side of an array on which an unreadable page touches it.
SIDES = ("end", "beginning")


class Fenced:
    """An array between two unreadable pages, one of which it touches.

    Generated functions take arrays of any alignment (see ``nests``): with the 64 bytes that TVM
    asks for otherwise, few arrays could end with their page.

    Parameters
    ----------
    content : numpy.ndarray
    side : str
        One of `SIDES`.

    Attributes
    ----------
    array : numpy.ndarray
        The memory.
    """

    def __init__(self, content: np.ndarray, side: str) -> None:
        pages = max(1, -(-content.nbytes // _PAGE))
        memory = mmap.mmap(-1, (pages + 2) * _PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in (0, pages + 1):
            if _mprotect(ctypes.c_void_p(base + page * _PAGE), _PAGE, _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "an unreadable page cannot be made")
        start = (pages + 1) * _PAGE - content.nbytes if side == "end" else _PAGE
        self.array = np.ndarray(content.shape, content.dtype, memory, start)
        self.array[...] = content

    def tensor(self) -> Any:
        """Return the array as a tensor of TVM, without a copy."""
        array = self.array
        if array.dtype.name != "bfloat16":
            return tvm_ffi.from_dlpack(array)
        # DLPack as numpy exports it does not know the type.
        same_bits = tvm_ffi.from_dlpack(array.view(np.uint16))
        return same_bits._create_view(array.shape, dtype="bfloat16")
