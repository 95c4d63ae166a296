"""``make test-wheel``: judge the distributions in a folder, try the wheel on several Pythons."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from . import contents, fresh

#: The only library that a wheel may ask for and the system does not have: apache-tvm-ffi brings it.
EXPECTED_FROM_OTHERS = {"libtvm_ffi.so"}


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m packaged", description=__doc__)
    parser.add_argument("folder", type=Path, help="with wheels and one source distribution")
    parser.add_argument("--pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    options = parser.parse_args()
    wheels, sdists = (sorted(options.folder.glob(p)) for p in ("*.whl", "*.tar.gz"))
    if not wheels or len(sdists) != 1:
        print(f"{options.folder}: no wheel, or not one .tar.gz; run `make wheel`", file=sys.stderr)
        return 2
    objections = [f"{sdists[0].name}: {o}" for o in contents.objections_to_sdist(sdists[0])]
    for wheel in wheels:
        objections += [f"{wheel.name}: {o}" for o in contents.objections_to_wheel(wheel)]
        objections += audit(wheel)
    print(*objections, sep="\n", end="\n" if objections else "")
    here = [wheel for wheel in wheels if wheel.stem.endswith(platform.machine())]
    for wheel in set(wheels) - set(here):
        print(f"{wheel.name}: NOT tried, this machine is {platform.machine()}")
    failed = sum(try_on(wheel, options.pythons) for wheel in here)
    return 1 if objections or failed else 0


def audit(wheel: Path) -> list[str]:
    """Ask auditwheel what the library needs; returns objections."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", wheel]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    needed, others = found["sym_tag"], set(found["external_libs"])
    print(f"{wheel.name} needs what {needed} stands for, and {', '.join(others)}")
    wrong_tag = [] if needed in wheel.name else [f"{wheel.name}: needs {needed}"]
    return wrong_tag + [f"{wheel.name}: needs {lib}" for lib in others - EXPECTED_FROM_OTHERS]


def try_on(wheel: Path, pythons: list[str]) -> int:
    """Try the wheel on each Python that is there; returns on how many it failed."""
    failed = 0
    tried: list[str] = []
    for python in pythons:
        version = fresh.version_of(python)
        if version is None:
            print(f"{python}: skipped, no such Python runs here")
            continue
        tried.append(python)
        try:
            print(f"{python} ({version}): {fresh.try_wheel(wheel, python)}", end="", flush=True)
        except fresh.Failed as error:
            failed += 1
            print(f"{python} ({version}): FAILED\n{error}")
    left = ", ".join(each for each in pythons if each not in tried)
    print(
        f"the wheel was tried on {len(tried)} of {len(pythons)} Pythons"
        + (f": {', '.join(tried)}" if tried else "")
        + (f"; NOT tried on: {left} (make test-wheel PYTHONS=... names others)" if left else "")
    )
    return failed if tried else 1


if __name__ == "__main__":
    sys.exit(main())
