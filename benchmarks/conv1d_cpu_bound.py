"""The least time that the arithmetic of a case in `conv1d_cpu_cases.py` takes, from a profile.

Counted are instructions on vectors of 32-bit lanes that no kernel can leave out: products with
their additions, conversions of x, which is converted once for all taps, and what follows the sum.
Loads, stores, shuffles, addresses and the latency of chains are not counted, and a division counts
as one instruction: the time is a bound, not a prediction.
"""

from __future__ import annotations

from typing import Any

from conv1d_cpu_cases import Case
from tvm import tirx
from tvm.ir import Call, prim
from tvm.target import Target

from fuse_epilogue.kernels.cpu.contraction.dot_products import instructions_of
from fuse_epilogue.kernels.cpu.vector_math import with_vector_functions
from fuse_epilogue.planner.machines.cpu import Cpu, cpu
from fuse_epilogue.planner.measurement.profile import profile_of
from fuse_epilogue.tir.walk import operator_name, parts_of

#: After a sum of int8's products: a shift, and a narrowing that saturates; the rounding is part of
#: the bias, and a narrowing to unsigned values is the ReLU.
REQUANTISED = 2


def processor(target: Target) -> Cpu:
    """Return the processor of a target with its measured clock, if there is a profile of it."""
    machine = cpu(target)
    profile = profile_of(machine)
    return machine if profile is None else profile.on(machine)


def instructions(value: Any) -> tuple[int, int]:
    """Return the multiplications of an expression, with an addition or not, and the others."""
    value = with_vector_functions(value)
    products = parts_of(value, prim.Mul, prim.Div)
    sums = parts_of(value, prim.Add, prim.Sub)
    alone = [each for each in sums if not {type(each.a), type(each.b)} & {prim.Mul, prim.Div}]
    others = parts_of(value, prim.Min, prim.Max, prim.Cast, prim.LShift)
    floors = [each for each in parts_of(value, Call) if operator_name(each) == "tirx.floor"]
    return len(products), len(alone) + len(others) + len(floors)


def of_vector(case: Case, target: Target) -> tuple[float, int]:
    """Return the multiplications for a vector of sums, and its other instructions."""
    if case.dtype == "int8":
        words = instructions_of(target)
        return -(-case.f // (words[0][0].count if words else 1)), REQUANTISED
    total = tirx.Var("total", "float32")
    value = prim.Max(total, tirx.const(0, "float32"))
    if case.activation == "silu":
        value = total * tirx.sigmoid(total)
    converted = case.dtype != "float32"
    # float16 for both types of 16 bits: the form for bfloat16 repeats what LLVM computes once.
    products, others = instructions(prim.Cast("float16", value) if converted else value)
    return case.f + products, others + converted


def arithmetic_s(case: Case, machine: Cpu, target: Target, threads: int) -> float:
    """Return the least seconds of the arithmetic of a case on some threads.

    - `machine`: what executes it, see :func:`processor`.
    - `target`: what says which instructions it has.
    """
    products, others = of_vector(case, target)
    core = machine.core
    clocks = max(products / core.fma, (products + others) / (core.fma + core.add))
    vectors = case.n * case.c * case.w / machine.lanes(32)
    return vectors * clocks / machine.clock_hz / threads
