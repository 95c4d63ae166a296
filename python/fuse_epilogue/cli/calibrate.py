"""``calibrate``: measures this machine, or one of TVM's RPC, and writes its profile."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tvm.target import Target

from .._files import write
from .._interrupts import is_interrupt
from ..targets import host
from . import output, targets
from .output import Answer, InputError

if TYPE_CHECKING:
    from ..planner.machines.cpu import Cpu
    from ..planner.measurement.measurement_log import Kept, Measure
    from ..planner.measurement.profile import Profile


def run(given: argparse.Namespace) -> Answer:
    """Measure, and write the profile."""
    from ..planner.measurement import calibrate as calibration
    from ..planner.measurement.load import Load

    _check(given)
    try:
        calibration.solver()
        machine, target, measure = _remote(given) if given.tracker else _here()
    except (ImportError, ValueError) as error:
        raise InputError(str(error)) from error
    out = given.out or _own(machine)
    before = _before(machine)
    kept = _kept(out, measure)
    load = None if given.tracker else Load()
    try:
        profile = calibration.calibrate(machine, target, given.points, kept.measure)
        write(out, profile.to_json())
    except (RuntimeError, OSError, KeyboardInterrupt) as error:
        output.note(f"what was measured is in {kept.file}")
        if isinstance(error, KeyboardInterrupt) or is_interrupt(error):
            raise KeyboardInterrupt from error
        return Answer(f"error: {error}", {"error": str(error)}, output.REFUSED)
    others = 0.0 if load is None else load.others()
    kept.remove()
    output.note(f"the profile is in {out}")
    return _answer(out, profile, before, _read_by(given.out, machine), others)


def _check(given: argparse.Namespace) -> None:
    """Refuse options that nothing could be measured with: measuring takes minutes."""
    if given.points < 2:
        raise InputError(f"--points must be 2 or more, not {given.points}: kernels are compared")
    if given.out is not None:
        output.check_file("--out", str(given.out))
    if given.tracker is not None or given.key is not None:
        targets.tracker(given)


def _kept(out: Path, measure: Measure) -> Kept:
    """Return the log of measurements beside a profile, which an interrupted run has begun."""
    from ..planner.measurement.measurement_log import Kept

    try:
        kept = Kept(out, measure)
    except OSError as error:
        raise InputError(
            f"--out needs another name, measurements cannot be kept beside it: {error}"
        ) from error
    if kept.found:
        output.note(f"going on with {kept.found} measurements in {kept.file}")
    return kept


def _answer(
    out: Path, profile: Profile, before: Profile | None, read_by: str, others: float
) -> Answer:
    """Return what to say of a profile.

    - `before`: the one that planning has read.
    - `read_by`: who reads the new one.
    - `others`: cores that other processes used meanwhile.
    """
    from ..planner.measurement.profile import differences

    changed = differences(before, profile)
    ratios = np.abs([value for _, value in profile.residuals])
    half, most = float(np.exp(np.median(ratios))), float(np.exp(ratios.max()))
    lines = [
        f"{profile.machine}: {profile.weights}; half of {len(ratios)} kernels are predicted "
        f"within a factor of {half:.2f}, all within {most:.2f}",
        "changed:" if changed else "nothing changed",
        *(f"  {line}" for line in changed),
        read_by,
        *_loaded(others),
    ]
    data = {
        "out": str(out),
        "kernels": len(ratios),
        "median": half,
        "largest": most,
        "changed": changed,
        "cores_used_by_others": others,
    }
    return Answer("\n".join(lines), data)


def _own(machine: Cpu) -> Path:
    """Return where planning reads the profile of a machine, with the folder made."""
    from ..planner.measurement.profile import own_profile

    path = own_profile(machine.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"name a file with --out: no folder can be made for it: {error}"
        ) from error
    output.check_file("the profile", str(path))
    return path


def _before(machine: Cpu) -> Profile | None:
    """Return the profile that planning has read for a machine; None if there was no good one."""
    from ..planner.measurement.profile import profile_of

    try:
        return profile_of(machine)
    except ValueError as error:
        output.note(str(error))
        return None


def _read_by(out: Path | None, machine: Cpu) -> str:
    """Return who reads the profile."""
    if out is None:
        return f"planning for {machine.name} reads it from now on"
    return (
        "planning reads it where it is passed, plan(func, profile=Profile.from_json(text)); "
        "without --out it is written where planning finds it"
    )


def _loaded(others: float) -> list[str]:
    """Return what to say of a machine that other processes used meanwhile."""
    from ..planner.measurement.load import LOADED

    if others <= LOADED:
        return []
    return [
        f"warning: other processes used {others:.1f} cores meanwhile, so that times are too long: "
        "calibrate again when nothing else runs"
    ]


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

    remote = Remote(*targets.tracker(given), given.key)
    return cpu(remote.target, remote.system), remote.target, remote.measure
