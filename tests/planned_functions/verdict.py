"""Judging a generated function: every schedule of it against what TVM makes of it as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir

import fuse_epilogue
from fuse_epilogue import schedules
from fuse_epilogue.kernels.cpu.depthwise import forms
from fuse_epilogue.kernels.cpu.depthwise.contiguous_conv import streams
from fuse_epilogue.kernels.cpu.depthwise.forms import Form
from fuse_epilogue.kernels.cpu.depthwise.row_limits import why_not_rows
from fuse_epilogue.recognize.depthwise import find_depthwise_conv
from fuse_epilogue.rewrites.fused_conv import find_fused_conv, fuse_followers
from fuse_epilogue.rewrites.prepare import prepare
from fuse_epilogue.schedules import cpu
from fuse_epilogue.transform import ScheduleModule, schedules_of
from fuse_epilogue.transform.schedule_module import DEFAULT

from .build import Built, build
from .memory import contents, in_child, run
from .spec import Function

SAME, NOT_SCHEDULED, NOT_COMPILED, DIFFERENT, DIED, ERROR, INVALID = (
    "same",
    "not-scheduled",
    "not-compiled",
    "different",
    "died",
    "error",
    "invalid",
)
#: All verdicts; those that must not be. TVM does not compile every function as it is. One that dies
#: as it is, is not valid: it is the generator that is wrong.
VERDICTS = (SAME, NOT_SCHEDULED, NOT_COMPILED, DIFFERENT, DIED, ERROR, INVALID)
WRONG = (DIFFERENT, DIED, ERROR, INVALID)


def targets() -> list[Any]:
    """Return this machine, as TVM knows it, and with vectors of 128 bits."""
    return [schedules.host(2), tvm.target.Target({"kind": "llvm", "num-cores": 1})]


@dataclass(frozen=True)
class Verdict:
    """What became of a function.

    - `kind`: one of :data:`VERDICTS`.
    - `detail`: which schedule it is about, and what is wrong; or why there is none.
    - `schedules`: how many different ones were compared.
    - `ways`: how they were made, see :func:`ways`.
    """

    kind: str
    detail: str = ""
    schedules: int = 0
    ways: tuple[str, ...] = ()


def judge(function: Function, seed: int = 0) -> Verdict:
    """Schedule a function in several ways, and compare each with the function as it is.

    - `seed`: of the data, of the target and of what is drawn of the planner's space.
    """
    built = build(function)
    target = targets()[seed % 3 == 0]
    try:
        made, reason = ways(built.func, target, seed)
    except Exception as error:  # what is not a refusal is a fault, of any type
        return Verdict(ERROR, f"{type(error).__name__}: {str(error).strip()[-300:]}")
    if not made:
        return Verdict(NOT_SCHEDULED, reason)
    compiled = _compiled(built, made, target)
    if isinstance(compiled, str):
        alone = _compiled(built, {}, target)
        if isinstance(alone, str):
            return Verdict(NOT_COMPILED, alone)
        return Verdict(ERROR, f"compiling {', '.join(made)}: {compiled}")
    kind, detail = _compare(function, built, compiled, seed)
    return Verdict(kind, detail, len(made), tuple(made))


def ways(func: Any, target: Any, seed: int) -> tuple[dict[str, Any], str]:
    """Return scheduled functions by how they were made, and why there are no more.

    - `func` (tvm.tirx.PrimFunc)
    - `target` (tvm.target.Target)
    - `seed`: of the points that are drawn of the planner's space.
    """
    found: dict[str, Any] = {}
    reason = ""

    def put(name: str, made: Any) -> None:
        if not any(tvm_ffi.structural_equal(made, other) for other in found.values()):
            found[name] = made

    try:
        put("apply", schedules.apply(func, target)["main"].without_attr("tirx.is_scheduled"))
    except ValueError as error:
        reason = str(error)
    try:
        plan = fuse_epilogue.plan(func, target)
    except (ValueError, s_tir.ScheduleError) as error:
        reason = reason or str(error)
    else:
        put("plan", plan.apply(func).mod["main"])
        problem = plan.problem(func)
        for name, point in _points(problem, seed):
            put(name, problem.apply(point).mod["main"])
    mod = ScheduleModule(target, threads=1 + seed % 2)(tvm.IRModule({"main": func}))
    [made] = schedules_of(mod) or ()
    if made.kind != DEFAULT:
        put(f"module with a kernel of kind {made.kind}", mod["main"])
    streamed = _streamed(func, seed)
    if streamed is not None:
        put("streamed", streamed)
    rng = random.Random(f"rule/{seed}")
    rule = cpu.DepthwiseConv1d(rng.choice((1, 2, 3)), rng.choice((2, 4, 8, 16)))
    sch = rule.apply(func, target)
    if sch is not None:
        put(f"rule with {rule.unroll} x {rule.lanes} lanes", sch.mod["main"])
    return found, reason


def _streamed(func: Any, seed: int) -> Any:
    """Return a convolution in rows that are stored around the caches, None if that cannot be."""
    prepared = prepare(func)
    if prepared is None or find_depthwise_conv(prepared[0].get(prepared[1])) is None:
        return None
    sch, conv = prepared
    lanes, fusing = random.Random(f"streamed/{seed}").choice((4, 8, 16)), sch.copy()
    try:
        fuse_followers(fusing, conv)
    except s_tir.ScheduleError:
        return None
    fused = find_fused_conv(fusing, conv)
    if fused is None or why_not_rows(fused, lanes) is not None or not streams(fused, lanes):
        return None
    return forms.written(sch, conv, Form(forms.ROWS, lanes, stream=True)).mod["main"]


def _points(problem: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield a feasible point of each way to fuse, drawn at random."""
    rng = random.Random(f"points/{seed}")
    points, _ = problem.space.feasible()
    by_mode: dict[int, list[int]] = {}
    for place, mode in enumerate(np.broadcast_to(points["fusion"], points.size)):
        by_mode.setdefault(int(mode), []).append(place)
    for places in by_mode.values():
        point = points.at(rng.choice(places))
        yield f"point {problem.space.describe(point)}", point


def _compiled(built: Built, made: dict[str, Any], target: Any) -> dict[str, Any] | str:
    """Return the function as it is and its schedules, compiled; or the error."""
    functions = {"as it is": built.func, **made}
    module = {
        f"f{place}": func.with_attr("global_symbol", f"f{place}")
        for place, func in enumerate(functions.values())
    }
    try:
        library = tvm.compile(tvm.IRModule(module), target=target)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()[-300:]}"
    return {name: library[f"f{place}"] for place, name in enumerate(functions)}


def _compare(
    function: Function, built: Built, compiled: dict[str, Any], seed: int
) -> tuple[str, str]:
    """Return a kind of verdict and its detail."""
    steps, names = [], []
    for end in (True, False):
        inputs = contents(built.arrays, (seed, int(end)))
        for name, call in compiled.items():
            names.append((name, end))

            def step(call: Any = call, inputs: Any = inputs, end: bool = end) -> str:
                found = run(call, inputs, end, function.tight)
                # Where a loop is unrolled, TVM makes 0.0 of x * 0.0 with a factor that depends on
                # the loop: zeros of either sign are the same, as where sums are reassociated.
                return (found + found.dtype.type(0)).tobytes().hex()

            steps.append(step)
    results = dict(zip(names, in_child(steps), strict=True))
    for (name, end), got in results.items():
        wanted = results["as it is", end]
        where = f"{name}, arrays that {'end' if end else 'begin'} at unreadable memory"
        if not _is_data(wanted):
            return INVALID, f"as it is, {where}: {wanted}"
        if got.startswith("died"):
            return DIED, f"{where}: {got}"
        if not _is_data(got):
            return ERROR, f"{where}: {got}"
        if got != wanted:
            return DIFFERENT, where
    return SAME, ""


def _is_data(result: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in result)
