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
from .profile import UNKNOWN, Profile, profile_of

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
    """Return the machine of a plan's JSON."""
    if isinstance(data, str):
        return MACHINES[data]
    return (Gpu if "chip" in data else Cpu).from_json(json.dumps(data))


def described(target: Any, profile: Profile | None) -> tuple[Cpu | Gpu | Machine, Weights, float]:
    """Return the machine that a target names, the weights of the cost on it, its resolution."""
    if isinstance(target, str) and target in MACHINES:
        target = MACHINES[target]
    if isinstance(target, Machine):
        return target, Weights(), UNKNOWN
    target = target if isinstance(target, Target | Gpu) else Target(target)
    if isinstance(target, Gpu) or target.kind.name == "cuda":
        if profile is not None:
            raise ValueError("a profile is that of a processor: leave it out for a GPU")
        return (target if isinstance(target, Gpu) else gpu(target)), Weights(), UNKNOWN
    machine = cpu(target)
    profile = profile if profile is not None else profile_of(machine)
    if profile is None:
        return machine, Weights(), UNKNOWN
    return profile.on(machine), profile.weights, profile.resolution


def finders_for(machine: Cpu | Gpu | Machine, finite: bool) -> Finders:
    """Return what finds problems for a machine; `finite` is of Trainium, see :func:`.plan.plan`."""
    if isinstance(machine, Cpu | Gpu):
        return FINDERS if isinstance(machine, Cpu) else CUDA
    return TRAINIUM_FINITE if finite else TRAINIUM
