"""Ctrl-C while TVM works: held until it is back in Python.

TVM's search calls Python on threads of its own. An exception that leaves such a call ends the
process with a segmentation fault, and the one of Ctrl-C may come anywhere.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def held() -> Iterator[None]:
    """Hold an interrupt back until the block is left, and then have it as if it came there.

    Python handles signals on its main thread only: on another one nothing is to be held. What has
    no handler in Python, ignored interrupts for example, is left alone.

    Raises
    ------
    KeyboardInterrupt
        There was one: by Python's own handler, unless the program has set another.
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
