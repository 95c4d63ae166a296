"""Checks of what a search needs, before anything is compiled: TVM notices most of it later."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .._printed import last_line
from ..targets import MOST_CORES
from .rpc import MOST_SERVERS

#: What MetaSchedule reads of a target, by its kind or by one of its keys, and a value for example.
_NEEDED: tuple[tuple[str, dict[str, int]], ...] = (
    ("llvm", {"num-cores": 8}),
    (
        "gpu",
        {
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": 49152,
            "thread_warp_size": 32,
        },
    ),
)

#: The least and the most that a number may be. TVM's search adds two numbers of trials in 32 bits.
_NUMBERS = {
    "trials": (1, 1 << 30),
    "batch": (1, 1 << 30),
    "servers": (0, MOST_SERVERS),
    "seed": (0, (1 << 32) - 1),  # NumPy's
}


def check_numbers(**given: int) -> None:
    """Return if numbers are what a search can take.

    - `**given`: by the names of :data:`_NUMBERS`.
    """
    for name, number in given.items():
        low, high = _NUMBERS[name]
        if not low <= number <= high:
            limit = f"at least {low}" if number < low else f"at most {high}"
            raise ValueError(f"{name} must be {limit}, not {number}")


def check_cores(target: Target) -> None:
    """Return if a target has a number of cores, or says none."""
    cores = int(target.attrs.get("num-cores", 1))
    if not 1 <= cores <= MOST_CORES:
        raise ValueError(
            f"'num-cores' of the target must be from 1 to {MOST_CORES}, not {cores}: it is how "
            "many cores the function may use"
        )


def check_packages(cost_model: Any) -> None:  # noqa: ANN401 - what TVM takes
    """Return if the packages are there that TVM imports in the middle of its work."""
    for package in ("cloudpickle", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"MetaSchedule needs the package {package}: pip install {package}")
    if cost_model == "xgb" and importlib.util.find_spec("xgboost") is None:
        raise ImportError(
            "the cost model xgb needs the package xgboost: pip install xgboost-cpu, or use the "
            "cost model random, which needs no package"
        )


def tvm_space(target: Target) -> ms.space_generator.PostOrderApply:
    """Return TVM's own search space for a target, initialised.

    TVM chooses its rules by the target when a generator is initialised, in C++ only; what the
    target does not say ends there in an error of TVM that does not name it.

    - Raises ValueError: MetaSchedule has no rules for the target, or does not find in it what they
      read.
    """
    names = {str(target.kind.name), *map(str, target.keys)}
    for name, needed in _NEEDED:
        missing = [each for each in needed if each not in target.attrs]
        if name in names and missing:
            whole = {"kind": str(target.kind.name), **{each: needed[each] for each in missing}}
            raise ValueError(
                f"the target '{target.kind.name}' does not say its {', '.join(missing)}, which "
                f"MetaSchedule needs: name it, for example as {json.dumps(whole)}"
            )
    made = ms.space_generator.PostOrderApply()
    try:
        ms.TuneContext(IRModule(), target=target, space_generator=made, num_threads=1)
    except Exception as error:  # TVM's errors are of several types
        raise ValueError(
            f"MetaSchedule has no rules for the target '{target.kind.name}' "
            f"({last_line(error)}): take another target, "
            "such as llvm or cuda"
        ) from error
    return made


def check_device(target: Target) -> None:
    """Return if this machine has what code for a target runs on."""
    if not tvm.runtime.device(target.get_target_device_type(), 0).exist:
        raise ValueError(
            f"this machine has no device for the target '{target.kind.name}': measure on a machine "
            "that has, with tune.rpc_runner"
        )


def check(target: Target, space: Any, runner: ms.Runner | None, cost_model: Any) -> None:  # noqa: ANN401
    """Return if a search can begin; the arguments are those of :func:`.session.tune`.

    - Raises ImportError: a package is missing.
    - Raises ValueError: there are no rules for the target, it does not say enough of the machine or
      has no number of cores, or this machine has no such device.
    """
    check_packages(cost_model)
    check_cores(target)
    if space is None:
        tvm_space(target)
    if runner is None:
        check_device(target)
