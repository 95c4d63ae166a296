"""Run compiled code in a child process, which a trap ends instead of this process."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import Any

#: Signals by which generated code ends a process. TVM's handlers of them print a stack.
_TRAPS = ("SIGSEGV", "SIGFPE", "SIGBUS", "SIGABRT", "SIGILL")
#: Seconds after which a child is ended.
LIMIT = 120


class Died(Exception):
    """A child process ended without a result; the message says how."""


def run_isolated(function: Callable[[], Any], limit: int = LIMIT) -> Any:
    """Call a function in a child process.

    - `function` (Callable): starts no threads. Changes that it makes in memory are lost. Where the
      system has no ``fork``, it is called in this process.
    - `limit`: seconds after which the child is ended.
    - Returns: the function's result, which can be pickled.
    - Raises Died: a signal ended the child, the time was up, or the function raised an exception.
    """
    if not hasattr(os, "fork"):
        return function()
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Of threads that the child does not have: it calls nothing that waits for one.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _report(function, write, limit)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        reply = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:
            raise Died(f"it does not end within {limit} s")
        raise Died(f"it ends the process by {signal.Signals(number).name}")
    result, error = pickle.loads(reply)
    if error:
        raise Died(f"it raises {error}")
    return result


def _report(function: Callable[[], Any], write: int, limit: int) -> None:
    """Write what a function returns, and end the process, which is a child."""
    try:
        for name in _TRAPS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit)
        try:
            reply = pickle.dumps((function(), ""))
        except Exception as error:
            reply = pickle.dumps((None, f"{type(error).__name__}: {error}"))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(reply)
    finally:
        os._exit(0)
