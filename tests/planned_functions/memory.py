"""Arrays that end, or begin, at memory that cannot be read, and running functions on them."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from .build import Array

_PAGE = mmap.PAGESIZE
#: Of the memory on each side that cannot be read, in bytes.
_FENCE = 1 << 23
_LINE = 64
#: How long a child may take, in seconds: a function that does not end is one that died.
_LIMIT = 120

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def fenced(content: np.ndarray, end: bool, alignment: int) -> np.ndarray:
    """Return a copy of an array next to memory that cannot be read. It is never freed.

    - `end`: whether it ends there, else it begins there.
    - `alignment`: of its first element, in bytes: it ends there exactly if that divides its size.
    """
    size = -(-content.nbytes // alignment) * alignment
    pages = -(-max(size, 1) // _PAGE) * _PAGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    base = _LIBC.mmap(None, pages + 2 * _FENCE, 0, flags, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError("no memory for an array between unreadable pages")
    start = base + _FENCE
    if _LIBC.mprotect(start, pages, mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "mprotect")
    address = start + pages - size if end else start
    raw = (ctypes.c_char * max(content.nbytes, 1)).from_address(address)
    made = np.frombuffer(raw, content.dtype, content.size).reshape(content.shape)
    made[...] = content
    return made


def contents(arrays: Sequence[Array], seed: Sequence[int]) -> list[np.ndarray]:
    """Return data for arrays; in the result is what nobody computes."""
    rng = np.random.default_rng(list(seed))
    made = []
    for array in arrays:
        values = np.full(array.shape, 77) if array.draw is None else array.draw(rng, array.shape)
        made.append(values.astype(array.dtype))
    return made


def run(function: Any, inputs: Sequence[np.ndarray], end: bool, tight: bool) -> np.ndarray:
    """Return the last array after a call of a compiled function on fenced arrays."""
    placed = [fenced(each, end, each.itemsize if tight else _LINE) for each in inputs]
    function(*(tvm_ffi.from_dlpack(each) for each in placed))
    for before, after in zip(inputs[:-1], placed[:-1], strict=True):
        if before.tobytes() != after.tobytes():
            raise ValueError("an input was written")
    return placed[-1].copy()


def in_child(steps: Sequence[Callable[[], str]]) -> list[str]:
    """Return what steps return, called one after the other in a child process.

    A step that ends the process gives "died of signal n"; those after it are run in a new child. An
    exception gives its text.
    """
    results: list[str] = []
    while len(results) < len(steps):
        results += _some(steps[len(results) :])
    return results


def _some(steps: Sequence[Callable[[], str]]) -> list[str]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _report(steps, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().split("\0")[:-1]
    _, status = os.waitpid(child, 0)
    if len(lines) < len(steps):
        died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1
        lines.append(f"died of signal {died}")
    return lines


def _report(steps: Sequence[Callable[[], str]], write: int) -> None:
    """Run steps in a child, and end it."""
    try:
        # TVM's handlers print a stack: that is no news here.
        for number in (signal.SIGSEGV, signal.SIGFPE, signal.SIGBUS, signal.SIGABRT, signal.SIGILL):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(_LIMIT)
        for step in steps:
            try:
                text = step()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            os.write(write, (text.replace("\0", "") + "\0").encode())
    finally:
        os._exit(0)
