"""nvcc's judgement on a kernel's text, where there is an nvcc: no GPU is needed for that."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .compiler import run

#: Where toolkits are installed whose nvcc is not in PATH.
INSTALLED = Path("/usr/local/cuda/bin")


class NvccError(Exception):
    """nvcc or ptxas refuses the text; the message is theirs."""


@dataclass(frozen=True)
class Usage:
    """What one kernel takes of a multiprocessor, in registers of a thread and in bytes."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


@functools.cache
def find() -> str | None:
    """The path of nvcc, if there is one."""
    return shutil.which("nvcc") or shutil.which("nvcc", path=str(INSTALLED))


@functools.cache
def architectures() -> frozenset[str]:
    """What nvcc compiles for, as "sm_90"; empty without nvcc."""
    path = find()
    if path is None:
        return frozenset()
    done = run(path, "--list-gpu-arch")
    return frozenset(f"sm_{number}" for number in re.findall(r"compute_(\w+)", done.stdout))


def missing(arch: str) -> str | None:
    """Why nothing can be compiled for `arch` here, if so."""
    if find() is None:
        return "nvcc is not installed"
    if shutil.which("g++") is None:
        return "nvcc needs g++, which is not installed"
    if arch not in architectures():
        return f"this nvcc does not know {arch}"
    return None


def usage(source: str, arch: str) -> dict[str, Usage]:
    """Compile a text to machine code.

    - `source`: CUDA text as TVM generates it.
    - `arch`: for example "sm_90".
    - Returns: by the kernels' names.
    - Raises NvccError: the text is refused.
    """
    path = find()
    if path is None:
        raise NvccError("nvcc is not installed")
    with tempfile.TemporaryDirectory(prefix="cuda_nvcc_") as folder:
        text, out = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        text.write_text(source)
        options = ["-cubin", f"-arch={arch}", "-std=c++17", "-Xptxas", "-v"]
        done = run(path, *options, "-o", out, text)
    if done.returncode:
        raise NvccError(f"{arch}: {done.stdout}{done.stderr}")
    return _parse(done.stdout + done.stderr)


def _parse(report: str) -> dict[str, Usage]:
    """Each kernel's part begins with its name and ends with its registers."""
    found = {}
    for part in report.split("Compiling entry function '")[1:]:

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match[1]) if match else 0

        found[part.split("'")[0]] = Usage(
            registers=number(r"Used (\d+) registers"),
            stack=number(r"(\d+) bytes stack frame"),
            spill_stores=number(r"(\d+) bytes spill stores"),
            spill_loads=number(r"(\d+) bytes spill loads"),
            shared=number(r"(\d+) bytes smem"),
        )
    return found
