"""``calibrate``: measures this machine, or one of TVM's RPC, and writes its profile."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import numpy as np
from tvm.target import Target

from .._files import write
from .._interrupts import is_interrupt
from ..targets import host
from . import output
from .output import Answer, InputError

if TYPE_CHECKING:
    from ..planner.machines.cpu import Cpu
    from ..planner.measurement.measurement_log import Measure


def run(given: argparse.Namespace) -> Answer:
    """Measure, and write the profile."""
    from ..planner.measurement import calibrate as calibration
    from ..planner.measurement.measurement_log import Kept

    if given.points < 2:
        raise InputError(f"--points must be 2 or more, not {given.points}: kernels are compared")
    # Measuring takes minutes: what cannot be written is refused before.
    output.check_file("--out", str(given.out))
    if (given.tracker is None) != (given.key is None):
        raise InputError("--tracker and --key go together: the one names the other's servers")
    try:
        calibration.solver()
        machine, target, measure = _remote(given) if given.tracker else _here()
    except (ImportError, ValueError) as error:
        raise InputError(str(error)) from error
    try:
        kept = Kept(given.out, measure)
    except OSError as error:
        raise InputError(
            f"--out needs another name, measurements cannot be kept beside it: {error}"
        ) from error
    if kept.found:
        output.note(f"going on with {kept.found} measurements in {kept.file}")
    try:
        profile = calibration.calibrate(machine, target, given.points, kept.measure)
        write(given.out, profile.to_json())
    except (RuntimeError, OSError, KeyboardInterrupt) as error:
        output.note(f"what was measured is in {kept.file}")
        if isinstance(error, KeyboardInterrupt) or is_interrupt(error):
            raise KeyboardInterrupt from error
        return Answer(f"error: {error}", {"error": str(error)}, output.REFUSED)
    kept.remove()
    output.note(f"the profile is in {given.out}")
    ratios = np.abs([value for _, value in profile.residuals])
    half, most = float(np.exp(np.median(ratios))), float(np.exp(ratios.max()))
    return Answer(
        f"{profile.machine}: {profile.weights}; half of {len(ratios)} kernels are predicted "
        f"within a factor of {half:.2f}, all within {most:.2f}",
        {"out": str(given.out), "kernels": len(ratios), "median": half, "largest": most},
    )


def _here() -> tuple[Cpu, Target, Measure]:
    from ..planner.machines.cpu import cpu
    from ..planner.measurement.calibrate import here

    # Before TVM's threads exist: without this it takes half of the processors.
    os.environ.setdefault("TVM_NUM_THREADS", str(os.cpu_count() or 1))
    target = host()
    return cpu(target), target, here


def _remote(given: argparse.Namespace) -> tuple[Cpu, Target, Measure]:
    from ..planner.machines.cpu import cpu
    from ..planner.measurement.remote import Remote

    name, _, port = given.tracker.rpartition(":")
    if not name or not port.isdigit():
        raise ValueError(f"--tracker must be HOST:PORT, not '{given.tracker}'")
    remote = Remote(name, int(port), given.key)
    return cpu(remote.target, remote.system), remote.target, remote.measure
