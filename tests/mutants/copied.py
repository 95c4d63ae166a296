"""Copies of the sources with a fault in them, for what does not fit into a running process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from . import ROOT, SOURCES


def environment(folder: Path, changes: Mapping[str, str]) -> dict[str, str]:
    """Copy the sources, with other texts of some files; return the variables that make them used.

    A change of the library's sources is compiled, in a folder that stays: only what is changed.

    - `folder`: where the copies are; of an earlier call, they are brought up to date.
    - `changes`: texts by path below the root of the repository.
    """
    variables = dict(os.environ)
    python = folder / "python"
    shutil.rmtree(python, ignore_errors=True)
    shutil.copytree(SOURCES, python, ignore=shutil.ignore_patterns("__pycache__"))
    if any(path.startswith("cpp/") for path in changes):
        _bring_up_to_date(ROOT / "cpp", folder / "cpp", changes)
        shutil.copy2(ROOT / "CMakeLists.txt", folder)
        variables["FUSE_EPILOGUE_LIBRARY"] = str(_compiled(folder))
    for path, text in changes.items():
        (folder / path).write_text(text, encoding="utf-8")
    variables["PYTHONPATH"] = os.pathsep.join(
        [str(python), str(ROOT / "tests"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    )
    return variables


def _bring_up_to_date(source: Path, target: Path, changes: Mapping[str, str]) -> None:
    """Write the files that are other than they should be, and no others."""
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        text = changes.get(str(path.relative_to(ROOT))) or path.read_text(encoding="utf-8")
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


def _compiled(folder: Path) -> Path:
    build = folder / "build"
    scripts = Path(sys.executable).parent
    cmake, ninja = str(scripts / "cmake"), str(scripts / "ninja")
    if not (build / "build.ninja").exists():
        more = [f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DPython_EXECUTABLE={sys.executable}"]
        subprocess.run([cmake, "-S", folder, "-B", build, "-G", "Ninja", *more], check=True)
    subprocess.run([cmake, "--build", build], check=True)
    return build / "libfuse_epilogue.so"
