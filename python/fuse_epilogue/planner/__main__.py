"""``python -m fuse_epilogue.planner calibrate``: measure this machine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from .._files import try_to_write, write
from ..schedules import host
from .calibrate import POINTS, calibrate
from .machine import cpu


def main(arguments: list[str] | None = None) -> None:
    """Run a command; `arguments` are those of the command line if None."""
    parser = argparse.ArgumentParser(prog="python -m fuse_epilogue.planner", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("calibrate", help="measure this machine and write its profile")
    one.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    one.add_argument(
        "--points", type=int, default=POINTS, help="points of each kernel (default: %(default)s)"
    )
    parsed = parser.parse_args(arguments)
    if parsed.points < 2:
        parser.error(f"--points must be 2 or more, not {parsed.points}: kernels are compared")
    try:
        # Measuring takes minutes: what cannot be written is refused before.
        try_to_write(parsed.out)
    except OSError as error:
        parser.error(f"--out cannot be written: {error}")
    # Before TVM's threads exist: without this it takes half of the processors.
    os.environ.setdefault("TVM_NUM_THREADS", str(os.cpu_count() or 1))
    target = host()
    profile = calibrate(cpu(target), target, parsed.points)
    write(parsed.out, profile.to_json())
    ratios = np.abs([value for _, value in profile.residuals])
    print(
        f"{profile.weights}; half of {len(ratios)} kernels are predicted within a factor of "
        f"{np.exp(np.median(ratios)):.2f}, all within {np.exp(ratios.max()):.2f}"
    )


if __name__ == "__main__":
    main()
