"""``python -m fuse_epilogue.planner calibrate``: measure this machine, or one of TVM's RPC."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from tvm.target import Target

from .._files import try_to_write, write
from .._interrupts import as_keyboard_interrupt, is_interrupt
from ..cli import output
from ..schedules import host
from .calibrate import POINTS, calibrate, here, solver
from .kept import Kept, Measure
from .machine import Cpu, cpu

_CALIBRATE = """
Measure a machine and write its profile. It takes minutes; every measurement is kept beside FILE as
soon as it is made, and the same command goes on after it was stopped. With --tracker and --key the
machine is another one, on which a server of TVM's RPC runs; servers of one key have to be of one
kind. TVM's RPC trusts its network: anyone who reaches a tracker or a server may run code there.
"""
_EXIT_CODES = """
exit codes:
  0    done
  1    it could not be done; what was measured is kept
  2    the command line is wrong: nothing was measured
  130  interrupted; what was measured is kept
"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; `arguments` are those of the command line if None.

    Raises
    ------
    SystemExit
        With another exit code than 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fuse_epilogue.planner",
        description=__doc__,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser(
        "calibrate",
        help="measure a machine and write its profile",
        description=_CALIBRATE,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    one.add_argument(
        "--points", type=int, default=POINTS, help="points of each kernel (default: %(default)s)"
    )
    one.add_argument("--tracker", metavar="HOST:PORT", help="of TVM's RPC (default: measure here)")
    one.add_argument("--key", help="what the servers are called at the tracker")
    parsed = parser.parse_args(arguments)
    if parsed.points < 2:
        parser.error(f"--points must be 2 or more, not {parsed.points}: kernels are compared")
    try:
        # Measuring takes minutes: what cannot be written is refused before.
        try_to_write(parsed.out)
    except OSError as error:
        parser.error(f"--out cannot be written: {error}")
    if (parsed.tracker is None) != (parsed.key is None):
        parser.error("--tracker and --key go together: the one names the other's servers")
    try:
        with as_keyboard_interrupt():
            _calibrate(parsed, parser)
    except KeyboardInterrupt as error:
        output.note("interrupted")
        raise SystemExit(output.INTERRUPTED) from error


def _calibrate(parsed: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    try:
        solver()
        machine, target, measure = _remote(parsed) if parsed.tracker else _here()
    except (ImportError, ValueError) as error:
        parser.error(str(error))
    try:
        kept = Kept(parsed.out, measure)
    except OSError as error:
        parser.error(f"--out needs another name, measurements cannot be kept beside it: {error}")
    try:
        if kept.found:
            _show(f"going on with {kept.found} measurements in {kept.file}")
        profile = calibrate(machine, target, parsed.points, kept.measure)
        write(parsed.out, profile.to_json())
    except (RuntimeError, OSError, KeyboardInterrupt) as error:
        what, code = f"error: {error}", output.REFUSED
        if isinstance(error, KeyboardInterrupt) or is_interrupt(error):
            what, code = "interrupted", output.INTERRUPTED
        output.note(f"{what}\nwhat was measured is in {kept.file}")
        raise SystemExit(code) from error
    kept.remove()
    ratios = np.abs([value for _, value in profile.residuals])
    try:
        _show(
            f"{profile.machine}: {profile.weights}; half of {len(ratios)} kernels are predicted "
            f"within a factor of {np.exp(np.median(ratios)):.2f}, all within "
            f"{np.exp(ratios.max()):.2f}"
        )
    except OSError as error:
        output.note(f"error: {error}; the profile is in {parsed.out}")
        raise SystemExit(output.REFUSED) from error


def _show(text: str) -> None:
    output.Answer(text, {}).show(as_json=False)


def _here() -> tuple[Cpu, Target, Measure]:
    # Before TVM's threads exist: without this it takes half of the processors.
    os.environ.setdefault("TVM_NUM_THREADS", str(os.cpu_count() or 1))
    target = host()
    return cpu(target), target, here


def _remote(parsed: argparse.Namespace) -> tuple[Cpu, Target, Measure]:
    from .remote import Remote

    name, _, port = parsed.tracker.rpartition(":")
    if not name or not port.isdigit():
        raise ValueError(f"--tracker must be HOST:PORT, not '{parsed.tracker}'")
    remote = Remote(name, int(port), parsed.key)
    return cpu(remote.target, remote.system), remote.target, remote.measure


if __name__ == "__main__":
    main()
