"""A module with CUDA kernels as something to call with numpy arrays."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from .compiler import compile_program, line_of, run
from .errors import CudaFault, UnsupportedCuda
from .lowered import Lowered, lower

#: The orders in which the blocks of a grid, and the threads of a block, can run.
ORDERS = ("forward", "reverse", "random")

# DLPack's codes of types, by numpy's kind; ml_dtypes' types are of kind "V" for numpy.
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


@dataclass(frozen=True)
class CudaProgram:
    """A compiled program. Calling it changes the arrays that the function writes, as TVM does.

    - `source`: the CUDA text.
    """

    source: str
    arch: str
    path: Path
    lowered: Lowered
    entry: int = 0

    def __call__(
        self,
        *arguments: np.ndarray | int | float,
        orders: Sequence[str] = ORDERS,
        seed: int = 0,
        timeout: float = 60.0,
    ) -> None:
        """Run the function once in each order of threads.

        - `*arguments`: as the function takes them. Arrays are contiguous.
        - `orders`: some of `ORDERS`. With several, the results must be equal bit for bit.
        - `seed`: for the random order.
        - `timeout`: seconds for all orders together.
        - Raises CudaFault: the program did what it must not; `kind` tells what.
        """
        unknown = [order for order in orders if order not in ORDERS]
        if unknown or not orders:
            raise ValueError(f"orders are some of {ORDERS}, not {orders}")
        with tempfile.TemporaryDirectory(prefix="cuda_on_cpu_") as name:
            given, results = Path(name) / "arguments", Path(name) / "results"
            given.write_bytes(_pack(arguments))
            try:
                done = run(
                    self.path, given, results, str(seed), str(self.entry), *orders, timeout=timeout
                )
            except subprocess.TimeoutExpired:
                raise CudaFault("timeout", f"not finished after {timeout} s") from None
            if done.returncode:
                raise self._fault(done)
            _unpack(results.read_bytes(), arguments)

    def with_source(self, source: str) -> CudaProgram:
        """The same program with another text of its kernels."""
        return replace(self, source=source, path=compile_program(self.lowered, source, self.arch))

    def _fault(self, done: subprocess.CompletedProcess[str]) -> Exception:
        words = done.stdout.splitlines()
        if len(words) < 6:
            text = done.stdout + done.stderr
            return CudaFault("crash", f"the program ended with {done.returncode}: {text}")
        kind, address, line, message, place, order = words[:6]
        if kind == "harness":
            return RuntimeError(message)
        if kind == "unsupported":
            return UnsupportedCuda([message])
        number = int(line) or line_of(self.path, int(address, 16))
        if place:
            message += f" ({place}, order {order})"
        if number:
            message += f"\n  line {number}: {self.source.splitlines()[number - 1].strip()}"
        return CudaFault(kind, message)


def build(func: tirx.PrimFunc | tvm.IRModule, arch: str = "sm_90") -> CudaProgram:
    """Compile the CUDA text that TVM generates for `func`, for this machine's CPU.

    Parameters
    ----------
    func : tirx.PrimFunc or IRModule
        A scheduled function with loops bound to threads, or a module with one.
    arch : str
        The architecture that TVM generates the text for.

    Raises
    ------
    UnsupportedCuda
        The text has something that cannot be executed here; the message names it.

    Examples
    --------
    >>> program = build(sch.mod)
    >>> program(x, y)  # computes y
    """
    if isinstance(func, tvm.IRModule) and len(func.functions) != 1:
        names = [var.name_hint for var in func.functions]
        raise ValueError(f"one function is expected, and the module has {names}")
    lowered = lower(func, arch)
    path = compile_program(lowered, lowered.source, arch)
    return CudaProgram(lowered.source, arch, path, lowered)


def build_all(funcs: Sequence[tirx.PrimFunc], arch: str = "sm_90") -> list[CudaProgram]:
    """Compile several functions together: the compiler's start is most of what one takes.

    - `funcs`: scheduled functions, as for `build`; they get other names.
    - Raises UnsupportedCuda: the text of one of them has something that cannot be executed here.
    """
    if not funcs:
        return []
    named = {f"f{number}": func for number, func in enumerate(funcs)}
    mod = tvm.IRModule({n: func.with_attr("global_symbol", n) for n, func in named.items()})
    lowered = lower(mod, arch)
    path = compile_program(lowered, lowered.source, arch)
    return [
        CudaProgram(lowered.source, arch, path, lowered, lowered.entries.index(name))
        for name in named
    ]


def _pack(arguments: Sequence[np.ndarray | int | float]) -> bytes:
    out = [struct.pack("=I", len(arguments))]
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            if not argument.flags.c_contiguous:
                raise ValueError("arrays must be contiguous")
            dtype = argument.dtype
            code = 4 if dtype.name == "bfloat16" else CODES[dtype.kind]
            out.append(struct.pack("=cBBi", b"t", code, dtype.itemsize * 8, argument.ndim))
            out.append(struct.pack(f"={argument.ndim + 1}q", *argument.shape, argument.nbytes))
            out.append(argument.tobytes())
        elif isinstance(argument, (int, np.integer)):
            out.append(struct.pack("=cq", b"i", int(argument)))
        else:
            out.append(struct.pack("=cd", b"f", float(argument)))
    return b"".join(out)


def _unpack(data: bytes, arguments: Sequence[np.ndarray | int | float]) -> None:
    at = 0
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            flat = np.frombuffer(data, argument.dtype, argument.size, at)
            if argument.flags.writeable:
                argument[...] = flat.reshape(argument.shape)
            at += argument.nbytes
