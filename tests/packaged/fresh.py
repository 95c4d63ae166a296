"""Installs a wheel into a new virtual environment, outside of the source tree, and tries it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py")


class Failed(Exception):
    """A step that went wrong; the message holds what it printed."""


def version_of(python: str) -> str | None:
    """Return the version of an interpreter, or None if no such program runs."""
    program = shutil.which(python)
    if program is None:
        return None
    # A shim may be there without a Python behind it.
    code = "import platform; print(platform.python_version())"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def try_wheel(wheel: Path, python: str) -> str:
    """Install ``wheel`` for ``python`` and run `smoke`; returns what that printed.

    - Raises Failed: a step did not end with exit code 0.
    """
    with tempfile.TemporaryDirectory(prefix="fuse_epilogue-") as name:
        folder = Path(name)
        program = folder / "venv" / "bin" / "python"
        _run(folder, python, "-m", "venv", "venv")
        _run(
            folder, program, "-m", "pip", "install", "--disable-pip-version-check", wheel.resolve()
        )
        _run(folder, program, "-m", "pip", "check")
        # A copy: beside the original, the modules of the tests could be imported.
        smoke = shutil.copy(SMOKE, folder)
        return _run(folder, program, "-I", smoke)


def _run(folder: Path, *command: str | Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FUSE_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout
