"""Runs a function in a process of its own: that it crashes, or does not end, is a result."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

#: Seconds that a module may take.
LIMIT = 120


@dataclass
class Ended:
    """What a process has sent, and how it ended.

    - `messages` (dict[str, object]): by the names of the stages, as far as it went.
    - `stage`: the one that it was in at the end.
    - `fault`: why it ended before the last stage was done; empty if it was not so.
    """

    messages: dict[str, Any] = field(default_factory=dict)
    stage: str = ""
    fault: str = ""


#: Yields the name of a stage before it is begun, and its name and result when it is done.
Stages = Callable[[], Iterator[tuple[str, Any]]]

_BEGUN = "begun"


def begins(stage: str) -> tuple[str, Any]:
    """Return what a function yields before a stage."""
    return _BEGUN, stage


def in_child(stages: Stages, limit: int = LIMIT) -> Ended:
    """Run a function in a copy of this process.

    - `limit`: seconds, after which the process is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(stages, writing, limit)
    os.close(writing)
    ended = Ended()
    error = ""
    with os.fdopen(reading, "rb") as pipe:
        while True:
            try:
                name, value = pickle.load(pipe)
            except (EOFError, pickle.UnpicklingError):
                break
            if name == _BEGUN:
                ended.stage = value
            elif name == "error":
                error = value
            else:
                ended.messages[name] = value
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        late = number == signal.SIGALRM
        ended.fault = f"did not end in {limit} s" if late else signal.Signals(number).name
    elif error or status:
        ended.fault = error or f"exit status {os.WEXITSTATUS(status)}"
    return ended


def _be_child(stages: Stages, writing: int, limit: int) -> None:
    """Send what the function yields, and end."""
    status = 1
    try:
        faulthandler.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 2)
        with os.fdopen(writing, "wb") as pipe:

            def send(message: tuple[str, Any]) -> None:
                pickle.dump(message, pipe)
                pipe.flush()

            try:
                for message in stages():
                    send(message)
            except Exception as error:
                lines = str(error).strip().splitlines() or ["no message"]
                send(("error", f"{type(error).__name__}: {lines[-1]}"[:300]))
        status = 0
    finally:
        os._exit(status)
