"""Runs tests in a fork of this process that has a fault, until one of them notices."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import pytest

from . import PACKAGES
from .faults import Fault, uses_the_switch
from .recording import processor_time
from .store import Recorded, Store
from .swap import NotAFunctionError

KILLED, SURVIVED, UNTESTED = "killed", "survived", "no test executes it"
#: The fault does not fit into a running process: see `copied`.
FRESH = "for a fresh process"
#: Seconds without a word from a child, after which it counts as hanging.
SILENCE = 900


class Judge:
    """A plugin of pytest that judges faults instead of running the tests.

    - `store`: where the outcomes are kept.
    - `faults`: those to judge.
    - `budget`: seconds of processor that the tests of one fault take at most.
    - `fresh`: whether this process has the fault from its beginning.
    """

    def __init__(
        self, store: Store, faults: Sequence[Fault], budget: float, fresh: bool = False
    ) -> None:
        self.store, self.faults, self.budget, self.fresh = store, faults, budget, fresh

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge one fault after the other."""
        recorded = self.store.recorded()
        items = {item.nodeid: item for item in session.items}
        cpp = {
            name: codes_of(item)
            for name, item in items.items()
            if name in recorded.seconds
            and item.get_closest_marker("cpp")
            and not uses_the_switch(item.path)
        }
        if not self.fresh:
            load_packages()
        for number, fault in enumerate(self.faults, start=1):
            chosen = [items[name] for name in fault.tests(recorded, cpp) if name in items]
            outcome = self._outcome(session, fault, chosen, recorded)
            self.store.add(fault.name, {"kind": fault.kind, **fault.as_json(), **outcome})
            by = outcome.get("by", "")
            print(
                f"{number}/{len(self.faults)} {fault.name}: {outcome['verdict']} {by}",
                file=sys.__stderr__,
                flush=True,
            )
        return True

    def _outcome(
        self, session: pytest.Session, fault: Fault, items: list[pytest.Item], recorded: Recorded
    ) -> dict[str, Any]:
        if not items:
            return {"verdict": UNTESTED, "tests": 0}
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            self._run(session, fault, items, recorded, write)
        os.close(write)
        begun, last = [], None
        with os.fdopen(read, "rb", buffering=0) as pipe:
            for message in messages(pipe.fileno()):
                if isinstance(message, dict):
                    last = message
                    break
                begun.append(message)
        status = _end(child)
        if last is not None:
            return {**last, "tests": len(begun)}
        how = signal.Signals(status).name if status in set(signal.Signals) else str(status)
        return {
            "verdict": KILLED,
            "by": begun[-1] if begun else "",
            "how": how,
            "tests": len(begun),
        }

    def _run(
        self,
        session: pytest.Session,
        fault: Fault,
        items: list[pytest.Item],
        recorded: Recorded,
        write: int,
    ) -> NoReturn:
        """Run the tests in this process, a child; say which begins and what came of them."""

        def say(message: Any) -> None:
            os.write(write, json.dumps(message).encode() + b"\n")

        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        try:
            if not self.fresh:
                fault.install()
            say(self._until_one_fails(session, items, recorded, say))
        except NotAFunctionError:
            say({"verdict": FRESH})
        finally:
            os._exit(0)

    def _until_one_fails(
        self, session: pytest.Session, items: list[pytest.Item], recorded: Recorded, say: Any
    ) -> dict[str, Any]:
        start = processor_time()
        session.testsfailed = 0
        for item, following in itertools.zip_longest(items, items[1:]):
            if processor_time() - start > self.budget:
                return {"verdict": SURVIVED, "left": len(items) - items.index(item)}
            say(item.nodeid)
            allow(60 + 20 * recorded.seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return {"verdict": KILLED, "by": item.nodeid}
        return {"verdict": SURVIVED, "left": 0}


def codes_of(item: pytest.Item) -> tuple[str, ...]:
    """Return the refusal codes of the program of the corpus that a test is about."""
    parameters = getattr(item, "callspec", None)
    case = parameters.params.get("case") if parameters is not None else None
    return tuple(getattr(case, "codes", ()))


def load_packages() -> None:
    """Import all modules that are mutated, so that their functions are there."""
    for name in PACKAGES:
        package = importlib.import_module(f"fuse_epilogue.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def allow(seconds: float) -> None:
    """Let the system end this process after some more seconds of processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def messages(descriptor: int) -> Iterable[Any]:
    """Yield what a child says until it ends, or says nothing for long."""
    rest = b""
    deadline = time.monotonic() + SILENCE
    while select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0]:
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)
        deadline = time.monotonic() + SILENCE


def _end(child: int) -> int:
    """End a child with all that it started; returns the number of the signal that ended it."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
