"""Measuring in other processes and on other machines, by TVM's own RPC tracker and servers.

TVM's RPC trusts its network: anyone who reaches a tracker or a server may write files there and run
code; there is no password and nothing is encrypted. Trackers and servers started here listen on the
loopback interface unless another address is asked for; elsewhere, use a network of your own or a
tunnel.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner

from .._rpc import ServersGone, rpc_runner, servers_of

LOOPBACK = "127.0.0.1"
KEY = "fuse_epilogue"

#: Where TVM looks for free ports, for its trackers and its servers.
PORTS = (9190, 9999)

#: The most servers: each looks for its port among others, and so does the tracker.
MOST_SERVERS = PORTS[1] - PORTS[0] - 1

#: How often a process looks whether the one that started it is still there, in seconds.
_LOOK = 0.5

#: Seconds in which a process that was started has to answer.
_ANSWER = 120


class Cluster:
    """A tracker and servers of TVM on this machine, for as long as the block is open.

    Servers on one machine disturb each other's measurements unless each has cores of its own: with
    several, the figures are worth less. A server that dies costs the measurement it was at, and is
    replaced by :meth:`watch`. If this process is killed, all of them end by themselves.

    Parameters
    ----------
    servers : int
        From 1 to :data:`MOST_SERVERS`.
    host : str
        The address that tracker and servers listen on. Any other than that of the loopback lets
        everybody who reaches it run code here.
    key : str
        Key of the servers at the tracker.

    Raises
    ------
    ImportError
        A package that TVM's RPC needs is missing.
    ValueError
        `servers` is less than 1 or more than there are ports for, `host` is not an address of this
        machine, or there is no free port.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> with tune.Cluster(1) as cluster:
    ...     type(cluster.runner()).__name__  # for tune.tune(..., runner=, watch=cluster.watch)
    'RPCRunner'
    """

    def __init__(self, servers: int = 1, *, host: str = LOOPBACK, key: str = KEY) -> None:
        if servers < 1:
            raise ValueError(f"servers must be at least 1, not {servers}")
        if servers > MOST_SERVERS:
            raise ValueError(
                f"servers must be at most {MOST_SERVERS}, not {servers}: each needs a port of its "
                f"own from {PORTS[0]} to {PORTS[1]}, and so does the tracker"
            )
        try:
            from tvm.rpc import tracker
        except ImportError as error:
            raise ImportError(
                f"TVM's RPC needs more packages: pip install cloudpickle psutil tornado ({error})"
            ) from error
        _need_address(host)
        self.host, self.key = host, key
        self._servers: list[Any] = []
        # Each looks for a free port among others, so that they can start at the same time. To reuse
        # addresses would let two trackers that start at once bind one port, and one of them fail.
        low, high = PORTS
        self._ports = (high - low) // (servers + 1)
        self._tracker = tracker.Tracker(host, low, low + self._ports, silent=True, reuse_addr=False)
        try:
            _end_with_this_process(self._tracker.proc)
            with ThreadPoolExecutor(servers) as threads:
                starting = [threads.submit(self._start, place) for place in range(servers)]
            self._servers = [each.result() for each in starting if each.exception() is None]
            for each in starting:
                each.result()
            self._wait_for_all()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The tracker's port."""
        return int(self._tracker.port)

    @property
    def processes(self) -> list[int]:
        """The process ids of the servers; a replaced one has another."""
        return [server.proc._proc.pid for server in self._servers if server.proc._proc]

    def runner(self, *, seconds: int = 60, evaluator: EvaluatorConfig | None = None) -> RPCRunner:
        """Return what measures on these servers.

        Parameters
        ----------
        seconds, evaluator
            As of :func:`rpc_runner`.

        Returns
        -------
        tvm.s_tir.meta_schedule.runner.RPCRunner
            For ``tune.tune(..., runner=)``, as long as the cluster is open.

        Example
        -------
        >>> from fuse_epilogue import tune
        >>> with tune.Cluster(1) as cluster:
        ...     type(cluster.runner(seconds=10)).__name__
        'RPCRunner'
        """
        return rpc_runner(
            self.host, self.port, self.key, len(self._servers), seconds=seconds, evaluator=evaluator
        )

    def watch(self) -> int:
        """Replace the servers that have died.

        Returns
        -------
        int
            How many.

        Raises
        ------
        ServersGone
            The tracker has died: nothing can be measured any more.

        Example
        -------
        >>> from fuse_epilogue import tune
        >>> with tune.Cluster(1) as cluster:
        ...     cluster.watch()
        0
        """
        if not self._tracker.proc.is_alive():
            raise ServersGone(
                f"TVM's RPC tracker on port {self.port} has died; what was measured is in the "
                "database: run the same call again"
            )
        dead = [i for i, server in enumerate(self._servers) if not server.proc.is_alive()]
        for i in dead:
            self._servers[i].terminate()
            self._servers[i] = self._start(i)
        return len(dead)

    def close(self) -> None:
        """End all of the processes; a second call does nothing.

        Example
        -------
        >>> from fuse_epilogue import tune
        >>> cluster = tune.Cluster(1)
        >>> cluster.close()
        >>> cluster.processes
        []
        """
        # The tracker first, which would say of each server that it has gone.
        if self._tracker.proc is not None:
            # Not terminate(): that asks the tracker, which may be dead, under a fixed address.
            self._tracker.proc.kill()
            self._tracker.proc = None
        for server in self._servers:
            server.terminate()
        self._servers = []

    def __enter__(self) -> Cluster:
        """Return the cluster itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all of the processes."""
        self.close()

    def _start(self, place: int) -> Any:  # noqa: ANN401 - a server of TVM
        from tvm import rpc

        low = PORTS[0] + (place + 1) * self._ports
        server = rpc.Server(
            self.host,
            low,
            low + self._ports,
            tracker_addr=(self.host, self.port),
            key=self.key,
            silent=True,
            reuse_addr=False,
        )
        _end_with_this_process(server.proc)
        return server

    def _wait_for_all(self, seconds: float = 60) -> None:
        """Wait until the tracker knows the servers: each comes to it on a thread of its own."""
        config = RPCConfig(self.host, self.port, self.key)
        end = time.monotonic() + seconds
        while servers_of(config) < len(self._servers):
            if time.monotonic() > end:
                raise RuntimeError(f"TVM's RPC servers have not come up within {seconds} s")
            time.sleep(0.05)


def _need_address(host: str) -> None:
    """Return if a process on this machine can listen at an address."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            listening.bind(address)
    except OSError as error:
        raise ValueError(
            f"'{host}' is not an address of this machine ({error}); servers on other machines are "
            "started there, with python -m tvm.exec.rpc_server, and measured on with rpc_runner"
        ) from error


def _end_with_this_process(worker: Any) -> None:  # noqa: ANN401 - a PopenWorker of TVM
    """Have a worker that runs a thread of TVM's end when this process does."""
    worker.send(_end_without, (os.getpid(),))
    # One that cannot read the message ends its main thread only, and would be waited for forever.
    if not select.select([worker._reader], [], [], _ANSWER)[0]:
        raise RuntimeError(
            f"a process of TVM's RPC did not answer within {_ANSWER} s; it must be able to import "
            "fuse_epilogue: is there a relative path in PYTHONPATH?"
        )
    worker.recv()


def _end_without(parent: int) -> None:
    """In the worker: look whether its parent is still there, and end with it."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(0)

    threading.Thread(target=look, daemon=True).start()
