"""Instructions between the programs that share a kernel's work, and between machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Refused
from . import shapes
from .row import Arguments, Cost, Instruction, parameters

#: The source of what takes no time of an engine.
BARRIER = "not documented; assumed to take the least time of an instruction"


def _peers(args: Arguments, name: str) -> Any:
    if args["peers"] is None:
        raise Refused("language", f"{name} is for kernels that two programs share: programs=2")
    return args["peers"]


def run_exchange(dst: np.ndarray, args: Arguments) -> None:
    """Send a tile to another program and receive one."""
    peers = _peers(args, "sendrecv")
    to, source = args["send_to_rank"], args["recv_from_rank"]
    received = peers.exchange(args["program"], args["src"], to, source)
    if received.size != dst.size or received.dtype != dst.dtype:
        raise Refused("shapes", f"received {received.shape}, dst has shape {dst.shape}")
    dst[...] = received.reshape(dst.shape)


def fit_nothing(args: Arguments) -> None:
    """Accept any operands."""


def run_barrier(dst: Any, args: Arguments) -> None:
    """Wait until all programs are here."""
    _peers(args, "core_barrier").wait("core_barrier")


def run_collective(dst: Any, args: Arguments) -> None:
    """Refuse: there is one machine only."""
    raise Refused("language", "transfers between machines are not executed here")


def _collective(name: str, more: str = "", **defaults: Any) -> Instruction:
    return Instruction(
        name,
        ("dma",),
        parameters(f"srcs:tiles dsts:results {more}replica_group:any", **defaults),
        fit_nothing,
        run_collective,
        ignored=("name", "collective_dim", "channel_ids", "num_channels"),
        since="trn2",
        hbm=True,
        between_machines=True,
    )


ROWS = (
    Instruction(
        "sendrecv",
        ("dma",),
        parameters(
            "src:tile dst:dst send_to_rank:integer recv_from_rank:integer pipe_id:integer",
            pipe_id=0,
        ),
        shapes.fit_exchange,
        run_exchange,
        ignored=("name", "dma_engine", "use_gpsimd_dma"),
        since="trn2",
    ),
    Instruction(
        "core_barrier",
        ("gpsimd", "vector", "scalar", "tensor"),
        parameters("data:any cores:values"),
        fit_nothing,
        run_barrier,
        Cost(0.0, BARRIER),
        since="trn2",
        hbm=True,
    ),
)

#: Instructions of ``nki.collectives``.
COLLECTIVES = (
    _collective("all_reduce", "op:reducer "),
    _collective("all_gather"),
    _collective("reduce_scatter", "op:reducer "),
    _collective("all_to_all"),
)
