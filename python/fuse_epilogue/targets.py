"""Targets: the machine at hand, machines by their names."""

from __future__ import annotations

import os
import platform
from types import MappingProxyType
from typing import Any

import tvm
from tvm.target import Target

from .neuron.machine import MACHINES
from .workloads.arguments import whole

#: GPUs by the name that a target may be given by, and CUDA's name of their instructions.
GPUS = MappingProxyType({"v100": "sm_70", "a100": "sm_80", "h100": "sm_90", "h200": "sm_90"})

#: More than any machine has: a target with more "num-cores" is a mistake.
MOST_CORES = 1 << 20


def host(threads: int | None = None) -> Target:
    """Return this machine as a target, with its processor's name and its widest vectors.

    A plain ``"llvm"`` is a processor of 2003: on x86 it has vectors of 128 bits.

    Parameters
    ----------
    threads : int, optional
        Value of "num-cores" for MetaSchedule and the planner, which makes no parallel loops for 1;
        all processors if None. On how many threads a parallel loop runs is up to TVM_NUM_THREADS.

    Returns
    -------
    tvm.target.Target
        Target of kind "llvm".

    Raises
    ------
    ValueError
        `threads` is not an int from 1.

    Example
    -------
    >>> from fuse_epilogue import schedules
    >>> schedules.host(2).kind.name
    'llvm'
    """
    cores = (os.cpu_count() or 1) if threads is None else whole("threads", threads)
    name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return of_processor(name() if name is not None else "", cores, platform.machine())


def named(target: Any) -> Any:  # noqa: ANN401 - whatever a caller passes for a target
    """Return the target that a name means; anything else is returned as it is.

    - `target`: ``None``, ``"host"`` and ``"cpu"`` mean this machine, a name of :data:`GPUS` in any
      case means that GPU.

    >>> named("H100").kind.name, named("llvm")
    ('cuda', 'llvm')
    """
    if target is None or (isinstance(target, str) and target in ("host", "cpu")):
        return host()
    if isinstance(target, str) and target.lower() in GPUS:
        arch = GPUS[target.lower()]
        return Target({"kind": "cuda", "arch": arch, "model": target.upper()})
    return target


def as_target(target: Any) -> Target:  # noqa: ANN401 - whatever a caller passes for a target
    """Return a target of TVM, from what :func:`named` takes or TVM does.

    - Raises TypeError: `target` is not a Target, str or dict.
    - Raises ValueError: it names no target.

    >>> as_target("h9")
    Traceback (most recent call last):
    ValueError: target 'h9' is neither 'host', a GPU by name (v100, a100, ...
    """
    target = named(target)
    if isinstance(target, Target):
        return target
    if not isinstance(target, str | dict):
        raise TypeError(
            f"target must be a tvm.target.Target, a str or a dict, not {type(target).__name__}"
        )
    if isinstance(target, str) and target in MACHINES:
        raise ValueError(
            f"target {target!r} is Trainium, for which TVM has no code generator: "
            "fuse_epilogue.compile, plan and schedules.apply take it"
        )
    try:
        return Target(target)
    except Exception as error:  # TVM's errors are of several types
        raise ValueError(
            f"target {target!r} is neither 'host', a GPU by name ({', '.join(GPUS)}), "
            f"{', '.join(MACHINES)}, nor one that TVM knows, such as "
            f'{{"kind": "cuda", "arch": "sm_90"}}: {error}'
        ) from error


def of_processor(name: str, cores: int, architecture: str, triple: str = "") -> Target:
    """Return a processor as a target, with its widest vectors.

    - `name`: LLVM's; any processor if empty.
    - `architecture`: its kind, such as "x86_64".
    - `triple`: LLVM's, where it is not that of this machine.
    """
    target: dict[str, Any] = {"kind": "llvm", "num-cores": cores}
    if name:
        target["mcpu"] = name
    if triple:
        target["mtriple"] = triple
    if architecture in ("x86_64", "AMD64"):
        # LLVM prefers 256 bits where it vectorizes itself.
        target["mattr"] = ["-prefer-256-bit"]
    return Target(target)


def vector_bits(target: Target) -> int:
    """Return the bits of a vector register of a processor.

    - `target`: target of kind "llvm".
    """
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    if has("sse2", target):
        # TVM says 512 bits for all of x86; code for a target without a processor has 128.
        return 512 if has("avx512f", target) else 256 if has("avx", target) else 128
    return int(tvm.get_global_func("target.llvm_get_vector_width")(target))
