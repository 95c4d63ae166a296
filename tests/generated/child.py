"""Running compiled functions in a child process, which may die of what they do.

The child is a fork of this process, so that it needs nothing but the jobs; there is one for many
jobs, and a new one only after a crash.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

# A job is given a function with which it says what it is about to do, and returns what it found.
Job = Callable[[Callable[[str], None]], str]

# A child that says nothing for this many seconds is ended.
PATIENCE = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    found : str
        What it returned.
    crash : str
        What ended the process: mostly the name of a signal; empty if nothing did.
    doing : str
        What the job said last.
    """

    found: str = ""
    crash: str = ""
    doing: str = ""


def outcomes(jobs: Sequence[Job], patience: float = PATIENCE) -> Iterator[Outcome]:
    """Yield what becomes of each job, in order.

    Parameters
    ----------
    jobs : sequence of callable
    patience : float
        Seconds without a message after which a child is ended.
    """
    done = 0
    while done < len(jobs):
        child = _Child(jobs[done:], patience)
        doing = ""
        try:
            for kind, text in child.messages():
                if kind == "doing":
                    doing = text
                else:
                    yield Outcome(text, "", doing)
                    doing = ""
                    done += 1
        finally:
            crash = child.end()
        if done < len(jobs):
            yield Outcome("", crash, doing)
            done += 1


class _Child:
    """A process that works through jobs."""

    def __init__(self, jobs: Sequence[Job], patience: float) -> None:
        self._patience = patience
        self._from, to = os.pipe()
        with warnings.catch_warnings():
            # Only the thread that forks goes on in the child, and that needs no other.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _work(jobs, to)
        os.close(to)

    def messages(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the text of each message, until the child ends or hangs."""
        rest = b""
        while select.select([self._from], [], [], self._patience)[0]:
            content = os.read(self._from, 1 << 16)
            if not content:
                return
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                kind, text = json.loads(line)
                yield kind, text

    def end(self) -> str:
        """End the child if it still works; return how it ended."""
        os.close(self._from)
        # It has said all that it had to say, it is dead, or it hangs.
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            status = os.waitpid(self._pid, 0)[1]
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return f"exit status {os.waitstatus_to_exitcode(status)}"


def _work(jobs: Sequence[Job], to: int) -> NoReturn:
    """Do the jobs, in the child."""

    def say(kind: str, text: str) -> None:
        os.write(to, json.dumps([kind, text]).encode() + b"\n")

    status = 1
    try:
        # A crash is expected: it is to leave nothing but its signal.
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for job in jobs:
            say("done", job(lambda text: say("doing", text)))
        status = 0
    except BaseException as error:
        say("doing", f"{type(error).__name__}: {error}"[-300:])
    finally:
        # Nothing of what the parent has opened is closed or flushed here.
        os._exit(status)
