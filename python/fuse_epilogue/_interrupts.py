"""Ctrl-C while TVM runs: it arrives as an error that says nothing, or ends the process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is what TVM makes of an interrupt.

    TVM's ffi carries every exception of Python from C++ to its caller by its name, and knows none
    that is not an ``Exception``: a ``KeyboardInterrupt`` becomes a ``RuntimeError`` without a
    message. TVM's own errors have one.

    >>> is_interrupt(RuntimeError("")), is_interrupt(RuntimeError("no luck"))
    (True, False)
    """
    return type(error) is RuntimeError and not str(error).strip()


def raise_interrupt(error: BaseException) -> None:
    """Raise ``KeyboardInterrupt`` if an error is what TVM makes of one."""
    if is_interrupt(error):
        raise KeyboardInterrupt from error


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Make ``KeyboardInterrupt`` of whatever error ends the block after Ctrl-C was pressed."""
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    # The parent may have chosen otherwise: a shell ignores it for background processes.
    chosen = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if chosen or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold an interrupt back until the block is left, and then have it as if it came there.

    TVM's search calls Python on threads of its own. An exception that leaves such a call ends the
    process with a segmentation fault, and the one of Ctrl-C may come anywhere.

    Python handles signals on its main thread only: on another one nothing is to be held. Signals
    without a handler in Python, ignored interrupts for example, are left alone.

    - Raises KeyboardInterrupt: there was one: by Python's own handler, unless the program has set
      another.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, came[-1])
