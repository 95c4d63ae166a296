"""TVM's RPC for tuning and calibrating: a runner, and a check that servers answer.

TVM's RPC trusts its network: see :mod:`fuse_epilogue.tune.rpc`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RPCConfig, RPCRunner
from tvm.support.popen_pool import PopenPoolExecutor

#: Seconds after which a machine that does not answer is not taken for a tracker.
_ANSWER_S = 30.0

#: How often to look whether there is a server, and whether a process has ended, in seconds.
_LOOK_S, _END_S = 1.0, 0.02


class ServersGone(RuntimeError):
    """There has been no server for a while: what was measured is kept, and the run can go on."""


def rpc_runner(
    host: str,
    port: int,
    key: str,
    servers: int,
    *,
    seconds: int = 60,
    evaluator: EvaluatorConfig | None = None,
    session: Callable[[RPCConfig], Any] | None = None,
) -> RPCRunner:
    """Return what measures on the servers of a running tracker.

    Start TVM's tracker on one machine, and a server on each of those to measure on, each bound to
    an address of a network that you trust (without ``--host`` TVM listens on all of them)::

        python -m tvm.exec.rpc_tracker --host 10.0.0.1 --port 9190
        python -m tvm.exec.rpc_server --host 10.0.0.11 --tracker 10.0.0.1:9190 --key xeon

    Parameters
    ----------
    host : str
    port : int
        The tracker's.
    key : str
        The kind of machine to measure on, as given to the servers.
    servers : int
        How many measurements run at once, at least 1: the number of servers of that key.
    seconds : int
        After how long the server gives up a measurement.
    evaluator : EvaluatorConfig, optional
        How often each is repeated; TVM's default is at least 100 ms.
    session : callable, optional
        Connects to a server, in a process of its own; TVM's way if None.

    Returns
    -------
    tvm.s_tir.meta_schedule.runner.RPCRunner
        For :func:`fuse_epilogue.tune.tune`, and for TVM's ``tune_tir``.

    Raises
    ------
    ValueError
        There is no tracker, no server of that key, or `servers` is less than 1.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> with tune.Cluster(1) as cluster:
    ...     runner = tune.rpc_runner(cluster.host, cluster.port, cluster.key, servers=1)
    >>> type(runner).__name__
    'RPCRunner'
    """
    if servers < 1:
        raise ValueError(f"servers must be at least 1, not {servers}")
    config = RPCConfig(host, port, key, session_timeout_sec=seconds)
    need_a_server(config)
    return RPCRunner(config, evaluator, f_create_session=session, max_workers=servers)


def need_a_server(config: RPCConfig) -> None:
    """Return if a tracker has a server of a key.

    - Raises ValueError: the tracker has none, or there is no tracker.
    """
    if servers_of(config) == 0:
        raise ValueError(
            f"the tracker at {_address(config)} has no server with the key "
            f"'{config.tracker_key}': start one with python -m tvm.exec.rpc_server "
            f"--tracker {_address(config)} --key {config.tracker_key}"
        )


def servers_of(config: RPCConfig) -> int:
    """Return how many servers of a key a tracker has, those that measure just now included.

    - Raises ValueError: there is no tracker; that is said at once, where TVM would try again for a
      minute.
    """
    from tvm.rpc import base

    address = _address(config)
    where = (config.tracker_host, config.tracker_port)
    if not 0 < where[1] < 1 << 16:  # the system would take what is left of it
        raise ValueError(f"there is no RPC tracker at {address}: ports are from 1 to 65535")
    try:
        with socket.create_connection(where, _ANSWER_S) as connection:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            (answer,) = struct.unpack("<i", base.recvall(connection, 4))
    except OSError as error:
        raise ValueError(
            f"there is no RPC tracker at {address} ({error}): start one with "
            "python -m tvm.exec.rpc_tracker"
        ) from error
    if answer != base.RPC_TRACKER_MAGIC:
        raise ValueError(f"{address} answers, but is not an RPC tracker of TVM: check the port")
    return int(config.count_num_servers())


class Present:
    """Looks whether a tracker has a server, for a caller that waits for measurements.

    TVM waits for a server however long there is none.

    - `wait`: how long there may be none, in seconds.
    """

    def __init__(self, config: RPCConfig, wait: float) -> None:
        self._config, self._wait = config, wait
        self._seen = self._looked = time.monotonic()

    def check(self) -> None:
        """Look, if the last time is a while ago.

        - Raises ServersGone: there has been no server for too long, or no tracker.
        """
        if time.monotonic() - self._looked < _LOOK_S:
            return
        try:
            found = servers_of(self._config)
        except (OSError, RuntimeError, ValueError):  # whatever a tracker that ends may answer
            found = 0
        self._looked = time.monotonic()
        if found:
            self._seen = self._looked
        elif self._looked - self._seen > self._wait:
            raise gone(self._config)


def gone(config: RPCConfig) -> ServersGone:
    """Return the error that says so."""
    return ServersGone(
        f"there is no server {config.tracker_key} at {_address(config)} any more: start one, and "
        "run the same command again, which goes on"
    )


def end(runner: RPCRunner) -> None:
    """End a runner's processes, whatever they wait for; it gets new ones when it is used again."""
    pool = runner.pool
    runner.pool = PopenPoolExecutor(max_workers=pool._threadpool._max_workers)
    # Work that has not begun would start processes again.
    pool._threadpool.shutdown(wait=False, cancel_futures=True)
    while any(thread.is_alive() for thread in pool._threadpool._threads):
        for worker in list(pool._worker_map.values()):
            # Not its kill(): that closes the pipe which another thread reads, and waits for it.
            process = worker._proc
            if process is not None:
                process.kill()
        time.sleep(_END_S)
    pool.shutdown()


def _address(config: RPCConfig) -> str:
    return f"{config.tracker_host}:{config.tracker_port}"
