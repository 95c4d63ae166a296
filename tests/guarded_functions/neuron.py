"""Functions scheduled for Trainium: kernels run on the interpreter, which checks each access."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.s_tir import ScheduleError

from fuse_epilogue import neuron, schedules
from fuse_epilogue.neuron import CheckError, EmitError, KernelError
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.planner.problems import trainium as problems
from fuse_epilogue.planner.problems.request import Request

from .draw import draw
from .spec import Function
from .verdicts import Refused

KINDS = ("conv", "conv", "product", "product", "rows", "largest", "elements")
# A kernel has no branch that depends on data, and loads whole tiles: it is refused what most
# operands need, and most of these can be loaded without their guard.
OPERANDS = (
    *("all there", "plain") * 10,
    *("short", "late", "short rows", "one element", "chosen", "gather", "quotient", "cast"),
)
GUARDS = (*("if", "unless", "both", "nested below") * 5, "nested")
_RULES = {
    "conv": schedules.neuron.DepthwiseConv1d,
    "product": schedules.neuron.Matmul,
    "rows": schedules.neuron.RowReduce,
    "largest": schedules.neuron.RowReduce,
    "elements": schedules.neuron.Elementwise,
}
_FIND = (problems.find_product, problems.find_rows, problems.find_conv)


def drawn(seed: int, number: int) -> tuple[Function, str]:
    """Return the n-th function of a seed, and the way to schedule it."""
    function = draw(f"{seed}/{number}", KINDS, ("float32",), OPERANDS, GUARDS, large=True)
    ways = ("applied", "rule") + ("point",) * (2 * (function.kind != "elements"))
    return function, random.Random(f"way {seed}/{number}").choice(ways)


def scheduled(func: tirx.PrimFunc, way: str, seed: str, kind: str) -> Any:
    """Schedule a function.

    - `way`: "applied" for what ``schedules.apply`` does, "rule" for the rule for its kind, "point"
      for a random point of the planner's space.
    - `seed`: of the point, and the machine.
    - `kind`: of the function.
    - Raises Refused: it is not scheduled, or no kernel can be made.
    """
    rng = random.Random(seed)
    machine = rng.choice(sorted(MACHINES))
    try:
        if way == "applied":
            made = schedules.apply(func, machine)
        elif way == "rule":
            choice = _RULES[kind]().choose(func, MACHINES[machine])
            if choice.schedule is None:
                raise Refused(_without_names(choice.why))
            made = choice.schedule
        else:
            made = _at_a_point(func, MACHINES[machine], rng)
    except ValueError as why:
        raise Refused(_kind_of(why)) from why
    except ScheduleError as why:
        raise Refused("TVM refuses its loops") from why
    try:
        kernel = neuron.emit(made)
        kernel.check(machine)
    except EmitError as why:
        raise Refused(_kind_of(why)) from why
    except CheckError as why:
        rules = sorted({violation.rule for violation in why.violations})
        if "out-of-bounds" in rules:
            raise  # Some guard was lost.
        raise Refused(f"a point that breaks {', '.join(rules)}") from why
    return kernel


def _at_a_point(func: tirx.PrimFunc, machine: Any, rng: random.Random) -> Any:
    request = Request(func, machine)
    found = [problem for find in _FIND if (problem := find(request)) is not None]
    if not found:
        raise ValueError("the planner does not know it")
    points, _ = found[0].space.feasible()
    if not points.size:
        raise ValueError("no point of the space is feasible")
    return found[0].apply(points.at(rng.randrange(points.size)))


def _kind_of(error: Exception) -> str:
    code = getattr(error, "code", None)
    if code is not None:
        return f"[{code}]"
    return _without_names(str(error))


def _without_names(text: str) -> str:
    """Return a reason as one that functions share: a code, or words without names and numbers."""
    if "beyond its end" in text:
        return "an operand is read beyond its end but for a condition"
    codes = re.findall(r"\[[a-z-]+\]", text)
    if codes:
        return str(codes[-1])
    return re.sub(r"'[^']*'|\d+", "..", text.split(";")[0].split(":")[0]).strip()


class Runner:
    """Kernels of several functions."""

    def __init__(self, kernels: Sequence[Any]) -> None:
        self._kernels = list(kernels)

    def __call__(self, place: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Run one of them.

        - Raises KernelError: it does what has no meaning.
        """
        result: np.ndarray = self._kernels[place](*arrays[:-1])
        return result


FAULTS = (KernelError,)
#: Whether the sign of a zero counts: a sum need not begin with 0 + x, as `neuron.emit` says.
SIGNED_ZEROS = False
