"""Instructions of the tensor engine."""

from __future__ import annotations

from . import shapes
from .execute import run_matmul, run_transpose
from .row import Instruction, parameters

ROWS = (
    Instruction(
        "nc_matmul",
        ("tensor",),
        parameters(
            "dst:dst stationary:tile moving:tile is_stationary_onezero:flag "
            "is_moving_onezero:flag is_transpose:flag accumulate:flag perf_mode:matmul_perf_mode",
            is_stationary_onezero=False,
            is_moving_onezero=False,
            is_transpose=False,
            accumulate=None,
            perf_mode="none",
        ),
        shapes.fit_matmul,
        run_matmul,
        # Which part of the square is used.
        ignored=("name", "tile_position", "tile_size"),
        reads_dst=lambda args: bool(args["accumulate"]),
    ),
    Instruction(
        "nc_transpose",
        ("tensor", "vector"),
        parameters("dst:dst data:tile"),
        shapes.fit_transpose,
        run_transpose,
    ),
)
