"""What a search needs, looked at before anything is compiled: TVM notices most of it later."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .rule import space as default_space

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


def check_packages(cost_model: Any) -> None:  # noqa: ANN401 - what TVM takes
    """Return if the packages are there that TVM imports in the middle of its work.

    Raises
    ------
    ImportError
    """
    install = "pip install 'fuse_epilogue[tune]'"
    for package in ("cloudpickle", "psutil"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"MetaSchedule needs the package {package}: {install}")
    if cost_model == "xgb" and importlib.util.find_spec("xgboost") is None:
        raise ImportError(
            f"the cost model xgb needs the package xgboost: {install}, or take the cost model "
            "random, which needs none"
        )


def check_target(target: Target) -> None:
    """Return if MetaSchedule has rules for a target, and finds in it what they read.

    Raises
    ------
    ValueError
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
    try:
        default_space(target)
    except Exception as error:  # TVM's errors are of several types
        raise ValueError(
            f"MetaSchedule has no rules for the target '{target.kind.name}' "
            f"({(str(error).strip().splitlines() or ['no message'])[-1]}): take another target, "
            "such as llvm or cuda"
        ) from error


def check_device(target: Target) -> None:
    """Return if this machine has what code for a target runs on.

    Raises
    ------
    ValueError
    """
    if not tvm.runtime.device(target.get_target_device_type(), 0).exist:
        raise ValueError(
            f"this machine has no device for the target '{target.kind.name}': measure on a machine "
            "that has, with tune.rpc_runner"
        )


def check(target: Target, space: Any, runner: ms.Runner | None, cost_model: Any) -> None:  # noqa: ANN401
    """Return if a search can begin; the arguments are those of :func:`.session.tune`.

    Raises
    ------
    ImportError
        A package is missing.
    ValueError
        There are no rules for the target, it does not say enough of the machine, or this machine
        has no such device.
    """
    check_packages(cost_model)
    if space is None:
        check_target(target)
    if runner is None:
        check_device(target)
