"""What the planner knows of each target: its machine, and the kinds of problems for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.target import Target

from ..neuron.machine import MACHINES, Machine
from .cost import Weights
from .gpu import Gpu, gpu
from .machine import Cpu, cpu
from .problems import cuda, trainium
from .problems.conv import find_conv
from .problems.problem import Problem
from .problems.product import find_product
from .problems.rows import find_rows
from .profile import UNKNOWN, Profile, profile_of, weights_elsewhere

#: What finds a problem of each kind in a function for a processor, a GPU, or Trainium, in order.
Finders = dict[str, Callable[[tirx.PrimFunc, Any], Problem | None]]
FINDERS: Finders = {
    "product": find_product,
    "rows": find_rows,
    "conv": find_conv,
}
CUDA: Finders = {
    "product": cuda.find_product,
    "rows": cuda.find_rows,
    "conv": cuda.find_conv,
}
TRAINIUM: Finders = {
    "conv": trainium.find_conv,
    "product": trainium.find_product,
    "rows": trainium.find_rows,
}
TRAINIUM_FINITE: Finders = {
    **TRAINIUM,
    "conv": lambda func, core: trainium.find_conv(func, core, True),
}


def machine_of(data: Any) -> Cpu | Gpu | Machine:
    """Return the machine of a plan's JSON.

    Raises
    ------
    ValueError
        `data` is neither the name of a Trainium machine nor the description of another.
    """
    if isinstance(data, str) and data in MACHINES:
        return MACHINES[data]
    if not isinstance(data, dict):
        raise ValueError(f"its machine must be one of {', '.join(MACHINES)} or an object: {data!r}")
    return (Gpu if "chip" in data else Cpu).from_json(json.dumps(data))


def described(target: Any, profile: Profile | None) -> tuple[Cpu | Gpu | Machine, Weights, float]:
    """Return the machine that a target names, the weights of the cost on it, its resolution.

    Raises
    ------
    TypeError
        `target` or `profile` is something else.
    ValueError
        The target names no machine that is known, or a profile is given for a GPU or Trainium.
    """
    if profile is not None and not isinstance(profile, Profile):
        raise TypeError(
            f"profile must be a Profile, not {type(profile).__name__}: "
            "read one from a file with Profile.from_json(Path(...).read_text())"
        )
    if profile is not None and not (
        isinstance(profile.machine, Cpu) and isinstance(profile.weights, Weights)
    ):
        raise TypeError("profile must have a planner.machine.Cpu and planner.cost.Weights")
    if isinstance(target, str) and target in MACHINES:
        target = MACHINES[target]
    if isinstance(target, Machine):
        if profile is not None:
            raise ValueError("a profile is that of a processor: leave it out for Trainium")
        return target, Weights(), UNKNOWN
    target = target if isinstance(target, Target | Gpu) else _target(target)
    if isinstance(target, Gpu) or target.kind.name == "cuda":
        if profile is not None:
            raise ValueError("a profile is that of a processor: leave it out for a GPU")
        return (target if isinstance(target, Gpu) else gpu(target)), Weights(), UNKNOWN
    if target.kind.name != "llvm":
        raise ValueError(
            f"the planner does not know targets of kind '{target.kind.name}', only 'llvm', such as "
            "schedules.host(), and 'cuda', such as {'kind': 'cuda', 'arch': 'sm_90'}; and "
            f"{' and '.join(MACHINES)} by name"
        )
    machine = cpu(target)
    profile = profile if profile is not None else profile_of(machine)
    if profile is None:
        return machine, weights_elsewhere(), UNKNOWN
    return profile.on(machine), profile.weights, profile.resolution


def _target(given: Any) -> Target:
    if not isinstance(given, str | dict):
        told = type(given).__name__
        raise TypeError(f"target must be a Target, a Gpu, a Machine, a str or a dict, not {told}")
    try:
        return Target(given)
    except Exception as error:  # TVM's errors are of several types
        raise ValueError(
            f"target {given!r} is neither one that TVM knows, such as schedules.host() or "
            f"{{'kind': 'cuda', 'arch': 'sm_90'}}, nor {' or '.join(MACHINES)}: {error}"
        ) from error


def finders_for(machine: Cpu | Gpu | Machine, finite: bool) -> Finders:
    """Return what finds problems for a machine; `finite` is of Trainium, see :func:`.choose.plan`.

    Raises
    ------
    ValueError
        `finite` is asked for on another machine, where it changes nothing.
    """
    if isinstance(machine, Cpu | Gpu):
        if finite:
            raise ValueError(f"finite is for Trainium: leave it out for {machine}")
        return FINDERS if isinstance(machine, Cpu) else CUDA
    return TRAINIUM_FINITE if finite else TRAINIUM
