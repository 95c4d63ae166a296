"""g++, and what its messages mean here."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import tvm
import tvm_ffi

from .errors import UnsupportedCuda
from .lowered import Lowered
from .text import kernels, to_cpp

HERE = Path(__file__).parent

COMMON = ["-std=c++17", "-O1", "-g1", "-fno-pie", "-U_FORTIFY_SOURCE", "-Wno-deprecated"]
RUNTIME = ["main", "block", "copies", "memory", "sanitizer"]
#: What the text of every kernel includes.
PRELUDE = ["cuda.h", "cuda_bf16.h", "sm_61_intrinsics.h", f"{HERE}/runtime/call.h"]
KERNELS = [
    *COMMON,
    "-fno-exceptions",
    "-fno-rtti",
    # The text reads half2 from uint4 and lets integers wrap around.
    "-fno-strict-aliasing",
    "-fwrapv",
    "-ffp-contract=off",
    # See runtime/sanitizer.cc.
    "-fsanitize=thread",
    "-fsanitize=bounds,object-size,alignment",
    "-w",
]

# Bytes of shared memory that a block can have, in KiB.
SHARED = {"80": 163, "86": 99, "87": 163, "89": 99, "90": 227, "100": 227, "103": 227, "120": 99}

# Of g++'s messages, those that name what it does not know.
UNKNOWN = [
    re.compile(r"error: '([\w:]+)' (?:was not declared|has not been declared|does not name)"),
    re.compile(r"error: '(\w+)' is not a (?:class|member)"),
    re.compile(r"error: call to '[^']*' declared with attribute error: ([\w ]+)"),
]
# Types of vectors as TVM's C has them.
VECTORS = re.compile(r"\b((?:u?int(?:8|16|32|64)_t|float|double|half)(?:2|3|4|8|16))\*")
MESSAGE = re.compile(r"kernels\.cu:(\d+):\d+: (?:fatal )?error: (.*)")


def missing() -> str | None:
    """Why nothing can be executed here, if so."""
    for tool in ("g++", "addr2line"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return None


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="cuda_on_cpu_")


def run(*command: str | Path, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program: messages in English, and no library that was loaded into Python for a test."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment["LC_ALL"] = "C"
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
    )


def _gxx(*options: str | Path) -> subprocess.CompletedProcess[str]:
    return run("g++", *options)


def _includes() -> list[str]:
    folders = [
        str(HERE / "include"),
        str(Path(tvm.__file__).parent / "include"),
        *tvm_ffi.libinfo.include_paths(),
    ]
    return [f"-I{folder}" for folder in folders]


@functools.cache
def _runtime() -> list[Path]:
    """The object files of the runtime, compiled once."""
    out = []
    for name in RUNTIME:
        target = Path(_folder().name) / f"{name}.o"
        source = HERE / "runtime" / f"{name}.cc"
        done = _gxx(
            *COMMON, "-Wall", "-Wno-unknown-pragmas", *_includes(), "-c", source, "-o", target
        )
        if done.returncode:
            raise RuntimeError(f"g++ cannot compile {source}:\n{done.stderr}")
        out.append(target)
    return out


def compile_program(lowered: Lowered, source: str, arch: str) -> Path:
    """A program that executes `source`, launched as TVM's host code does."""
    cpp = to_cpp(source)
    key = hashlib.sha256("\0".join([cpp, lowered.host, arch]).encode()).hexdigest()[:20]
    folder = Path(_folder().name) / key
    program = folder / "program"
    if program.exists():
        return program
    folder.mkdir(exist_ok=True)
    number = re.sub(r"\D", "", arch)
    prelude = _prelude(number)
    (folder / "kernels.cc").write_text(_kernels_text(lowered, source, cpp, number, prelude))
    done = _gxx(*_for_kernels(number), "-c", folder / "kernels.cc", "-o", folder / "kernels.o")
    if done.returncode:
        raise _explain(done.stderr, source)
    (folder / "host.cc").write_text(_host_text(lowered))
    done = _gxx(
        *COMMON, "-w", *_includes(), "-no-pie", folder / "host.cc", folder / "kernels.o",
        *_runtime(), "-o", program,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"g++ cannot compile TVM's host code:\n{done.stderr}")
    return program


def _host_text(lowered: Lowered) -> str:
    # Pointers to 16-bit floats are only passed on. The entries have one name in every program.
    cases = "".join(
        f" if (entry == {number}) return __tvm_ffi_{symbol}(self, args, count, result);"
        for number, symbol in enumerate(lowered.entries)
    )
    return (
        "struct half; struct nv_bfloat16; typedef half __half; typedef nv_bfloat16 __nv_bfloat16;\n"
        # So are those to vectors, where kernels share memory that all of them access in vectors.
        + "".join(f"struct {name};\n" for name in sorted(set(VECTORS.findall(lowered.host))))
        + lowered.host
        + '\nextern "C" int32_t on_cpu_entry(int32_t entry, void* self, void* args, int32_t count,'
        + f" void* result) {{{cases} return -1; }}\n"
    )


def _for_kernels(number: str) -> list[str]:
    """The options that kernels are compiled with, and what is compiled for them in advance."""
    return [*KERNELS, f"-D__CUDA_ARCH__={number}0", *_includes()]


@functools.cache
def _prelude(number: str) -> Path:
    """What every kernel includes, compiled once for an architecture: that is half of the work."""
    header = Path(_folder().name) / f"prelude_{number}.h"
    header.write_text("".join(f'#include "{name}"\n' for name in PRELUDE))
    done = _gxx(*_for_kernels(number), "-x", "c++-header", header, "-o", f"{header}.gch")
    if done.returncode:
        raise RuntimeError(f"g++ cannot compile {header}:\n{done.stderr}")
    return header


def _kernels_text(lowered: Lowered, source: str, cpp: str, number: str, prelude: Path) -> str:
    """The kernels and the table of them; the CUDA text's lines are called kernels.cu."""
    declared = {kernel.name: kernel for kernel in kernels(source)}
    tables, rows = [], []
    for name, tags in lowered.launches.items():
        if name not in declared:
            raise UnsupportedCuda([f"the declaration of {name}"])
        kernel = declared[name]
        names = [parameter for _, parameter in kernel.parameters] + ["end"]
        tables += [
            f"const char* const names_{name}[] = {_strings(names)};",
            f"const char* const launch_{name}[] = {_strings([*tags, 'end'])};",
            f"const size_t elements_{name}[] = {{"
            + ", ".join(
                f"on_cpu::element<{type_.replace('__restrict__', '')}>()"
                for type_, _ in kernel.parameters
            )
            + ("" if kernel.parameters else "0")
            + "};",
            f"void call_{name}(const TVMFFIAny* values) {{ on_cpu::call({name}, values); }}",
        ]
        rows.append(
            f'  {{"{name}", {len(kernel.parameters)}, names_{name}, elements_{name}, {len(tags)}, '
            f"launch_{name}, {kernel.most_threads}, call_{name}}},"
        )
    return "\n".join(
        [
            f'#include "{prelude}"',
            "namespace {",
            # TVM's text has overloads of them for 16 bits, which would hide all the others.
            "using ::max;",
            "using ::min;",
            '#line 1 "kernels.cu"',
            cpp,
            '#line 1 "table"',
            *tables,
            "}  // namespace",
            "namespace on_cpu {",
            "const Kernel kKernels[] = {",
            *rows,
            "};",
            f"const int kNumKernels = {len(rows)};",
            f"const size_t kSharedLimit = {SHARED.get(number, 99)} * 1024;",
            "}  // namespace on_cpu",
            "",
        ]
    )


def _strings(words: list[str]) -> str:
    return "{" + ", ".join(f'"{word}"' for word in words) + "}"


def _explain(errors: str, source: str) -> Exception:
    """What g++ does not know, by name; else its first complaint with the line it is about."""
    names = [found for each in UNKNOWN for found in each.findall(errors)]
    lines = source.splitlines()
    messages = [
        f"line {number}: {text}\n    {lines[int(number) - 1].strip()}"
        for number, text in MESSAGE.findall(errors)
        if int(number) <= len(lines)
    ]
    if names:
        return UnsupportedCuda(list(dict.fromkeys(names)), messages[0] if messages else "")
    if messages:
        complaint, _, line = messages[0].partition("\n")
        return UnsupportedCuda([complaint], line)
    return RuntimeError(f"g++ cannot compile the kernels:\n{errors}")


def line_of(program: Path, address: int) -> int | None:
    """The line of the CUDA text that an address of the program belongs to."""
    done = run("addr2line", "-i", "-e", program, hex(address))
    found = re.search(r"kernels\.cu:(\d+)", done.stdout)
    return int(found[1]) if found else None
