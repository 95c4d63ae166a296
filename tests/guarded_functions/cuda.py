"""Functions scheduled for CUDA: the text is executed by the CPU, which checks each access."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.s_tir import ScheduleError

import cuda_on_cpu
from cuda_on_cpu import CudaFault, CudaProgram, UnsupportedCuda
from fuse_epilogue import schedules
from fuse_epilogue.planner.machines.gpu import gpu
from fuse_epilogue.planner.problems import cuda as problems
from fuse_epilogue.planner.problems.request import Request

from .draw import draw
from .spec import Function
from .verdicts import Refused

OPTIONS = {"kind": "cuda", "arch": "sm_90"}
KINDS = ("conv", "conv", "conv", "product", "product", "rows", "largest")
DTYPES = ("float32", "int8", "int32")
_FIND = (problems.find_product, problems.find_rows, problems.find_conv)


def drawn(seed: int, number: int) -> tuple[Function, str]:
    """Return the n-th function of a seed, and the way to schedule it."""
    function = draw(f"{seed}/{number}", KINDS, DTYPES)
    ways = ("applied", "point", "point") + ("rule",) * (2 * (function.kind == "conv"))
    return function, random.Random(f"way {seed}/{number}").choice(ways)


def scheduled(func: tirx.PrimFunc, way: str, seed: str, kind: str) -> tirx.PrimFunc:
    """Schedule a function.

    - `way`: "applied" for what ``schedules.apply`` does, "rule" for the rule for convolutions,
      "point" for a random point of the planner's space.
    - `seed`: of the point.
    - `kind`: of the function.
    - Raises Refused: it is not scheduled.
    """
    target = tvm.target.Target(OPTIONS)
    if way == "rule":
        choice = schedules.cuda.DepthwiseConv1d().choose(func, target)
        if choice.schedule is None:
            raise Refused(choice.why)
        return choice.schedule.mod["main"]
    try:
        if way == "applied":
            return schedules.apply(func, target)["main"]
        request = Request(func, gpu(OPTIONS))
        found = [problem for find in _FIND if (problem := find(request)) is not None]
    except ValueError as why:
        raise Refused(_first_line(why)) from why
    except ScheduleError as why:
        raise Refused("TVM refuses its loops") from why
    if not found:
        raise Refused("the planner does not know it")
    points, _ = found[0].space.feasible()
    if not points.size:
        raise Refused("no point of the space is feasible")
    return found[0].apply(points.at(random.Random(seed).randrange(points.size))).mod["main"]


def _first_line(error: Exception) -> str:
    return str(error).split(":")[0].split("'")[0].strip()


class Runner:
    """Compiled programs of several functions; some may have failed."""

    def __init__(self, funcs: Sequence[tirx.PrimFunc]) -> None:
        self._programs: list[CudaProgram | Exception] = []
        try:
            self._programs += cuda_on_cpu.build_all(funcs)
        except Exception:
            # One of them is the reason: each alone.
            self._programs += [_caught(lambda f=func: cuda_on_cpu.build(f)) for func in funcs]

    def __call__(self, place: int, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Run one of them.

        - Raises CudaFault: it does what it must not.
        - Raises Refused: its text cannot be executed here.
        """
        program = self._programs[place]
        if isinstance(program, UnsupportedCuda):
            raise Refused(f"not covered by the emulation ({', '.join(program.constructs)})")
        if isinstance(program, Exception):
            raise program
        # Copied: a program writes into what it is given.
        copies = [array.copy() for array in arrays]
        program(*copies)
        return copies[-1]


def _caught(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return error


FAULTS = (CudaFault,)
#: Whether the sign of a zero counts.
SIGNED_ZEROS = True
