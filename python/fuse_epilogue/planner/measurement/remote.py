"""Measures points on another machine, by TVM's own RPC tracker and servers.

Everything is compiled here; the server gets objects, which it links with its own C++ compiler.
TVM's RPC trusts its network: see :mod:`fuse_epilogue.tune.rpc`.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RunnerInput
from tvm.support.tar import tar
from tvm.target import Target

from ..._rpc import Present, end, need_a_server, rpc_runner
from ...targets import of_processor
from ..machines.system import System
from ..problems.problem import Problem
from ..problems.space import Point
from .measure import SAMPLE_S, SAMPLES, build
from .measurement_log import NotMeasured

#: How often to look whether a measurement is ready, and whether there is a server, in seconds.
_POLL, _LOOK = 0.02, 1.0
_CPU = "target.llvm_get_system_cpu"
_TRIPLE = "target.llvm_get_system_triple"


class Remote:
    """The servers of a key at a tracker, all of them of one kind of machine.

    - `port`: the tracker's.
    - `key`: key of the servers at the tracker.
    - `seconds`: after how long a measurement is given up.
    - `wait`: how many seconds to wait for a server if there is none; `seconds` unless given.
    - `system` (System): description of the first server, by itself.
    - `target` (tvm.target.Target): the same, for TVM.
    - Raises ImportError: a package that TVM's RPC needs is missing.
    - Raises ValueError: there is no tracker, no server of that key, or its TVM has no LLVM.

    >>> remote = Remote("10.0.0.1", 9190, "xeon")               # doctest: +SKIP
    >>> machine = cpu(remote.target, remote.system)             # doctest: +SKIP
    >>> calibrate(machine, remote.target, measure=remote.measure)   # doctest: +SKIP
    """

    def __init__(
        self, host: str, port: int, key: str, *, seconds: int = 60, wait: int | None = None
    ) -> None:
        self.name = f"{key} at {host}:{port}"
        self._wait = seconds if wait is None else wait
        self._config = RPCConfig(host, port, key, session_timeout_sec=seconds)
        need_a_server(self._config)
        self.system, triple = _asked(self._config.connect_server(), self.name)
        here = tvm.get_global_func(_TRIPLE, allow_missing=True)
        self.target = of_processor(
            self.system.cpu,
            self.system.threads,
            triple.partition("-")[0],
            "" if here is not None and here() == triple else triple,
        )
        self._runner = partial(
            rpc_runner,
            host,
            port,
            key,
            1,
            seconds=seconds,
            session=partial(_session_on, self.system.cpu),
        )
        self._runners: dict[int, Any] = {}

    def measure(self, problem: Problem, point: Point, target: Target, least: float = 0.0) -> float:
        """Return how long a point takes there; see :func:`.measure.seconds`.

        - Raises NotMeasured: the server died, or the schedule fails there.
        - Raises ServersGone: there is no server any more.
        """
        repeat = max(SAMPLES, round(least / SAMPLE_S))
        if repeat not in self._runners:
            self._runners[repeat] = self._made(repeat)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "point.tar"
            build(problem, point, target).export_library(str(file), fcompile=tar)
            given = RunnerInput(str(file), "cpu", ArgInfo.from_prim_func(problem.func))
            result = self._result(repeat, given)
        if result.error_msg is None:
            return min(float(each) for each in result.run_secs)
        reason = str(result.error_msg).strip().splitlines()[-1]
        raise NotMeasured(f"{problem.space.describe(point)}: {reason}")

    def _made(self, repeat: int) -> Any:
        """Return TVM's runner for n samples."""
        config = EvaluatorConfig(number=1, repeat=repeat, min_repeat_ms=round(1e3 * SAMPLE_S))
        present = Present(self._config, self._wait)
        while True:
            try:
                return self._runner(evaluator=config)
            except ValueError:  # there is no server
                present.check()
            time.sleep(_LOOK)

    def _result(self, repeat: int, given: RunnerInput) -> Any:
        """Return what a runner has to say; it waits for a server, however long there is none."""
        (future,) = self._runners[repeat].run([given])
        present = Present(self._config, self._wait)
        try:
            while not future.done():
                time.sleep(_POLL)
                present.check()
        except BaseException:
            # Its process still waits, and this one would wait for it at its end.
            end(self._runners.pop(repeat))
            raise
        return future.result()


def _asked(session: Any, name: str) -> tuple[System, str]:
    """Return what a server says of its machine, and LLVM's triple of it."""

    def call(function: str) -> Any:
        return session.get_function(function)()

    files: dict[Path, str] = {}

    def read(place: Path) -> str:
        try:
            # Files of the system are shorter than the size that they report.
            files[place] = bytes(session.download(str(place))).rstrip(b"\0").decode().strip()
        except (RuntimeError, ValueError):
            return ""
        return files[place]

    try:
        cpu, triple = str(call(_CPU)), str(call(_TRIPLE))
    except (AttributeError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"the server {name} cannot name its processor: start one whose TVM has LLVM"
        ) from error
    present = read(Path("/sys/devices/system/cpu/present"))
    threads = int(call("runtime.NumThreads"))
    processors = int(present.rpartition("-")[2]) + 1 if present else threads
    system = System(cpu, processors, threads, read)
    # Asked for now: an open session keeps the server from serving others.
    _ = system.line, system.clock_hz, system.caches
    return replace(system, read=lambda place: files.get(place, "")), triple


def _session_on(cpu: str, config: RPCConfig) -> Any:
    """Return a session on a server, which has to be of the kind that is calibrated."""
    session = config.connect_server()
    found = str(session.get_function(_CPU)())
    if found != cpu:
        raise ValueError(
            f"a server of the key {config.tracker_key} is a {found}, another one a {cpu}: "
            "give each kind of machine a key of its own"
        )
    return session
