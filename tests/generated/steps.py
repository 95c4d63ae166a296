"""Schedule steps before the fusion. What TVM refuses is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

from .build import REDUCTION, epilogue_name
from .spec import Program, Step

_get_realize = tvm_ffi.get_global_func("s_tir.schedule.GetSBlockRealize")


def scheduled(
    func: tirx.PrimFunc, program: Program, **options: Any
) -> tuple[s_tir.Schedule, tuple[Step, ...]]:
    """Return a schedule on which the program's steps have been done, and those that were.

    Parameters
    ----------
    func : tirx.PrimFunc
        The program without its steps.
    program : Program
    options
        For the schedule.
    """
    steps = list(program.steps)
    while True:
        sch = s_tir.Schedule(func, **options)
        done = []
        for number, step in enumerate(steps):
            try:
                with contextlib.suppress(s_tir.ScheduleError, NoSuchLoop):
                    _STEPS[step.kind](sch, step)
                    done.append(step)
            except Exception:
                # TVM broke off in the middle: again without this step.
                del steps[number]
                break
        else:
            return sch, tuple(done)


class NoSuchLoop(Exception):
    """A step names a loop that there is not."""


def _block(sch: s_tir.Schedule, step: Step) -> Any:
    return sch.get_sblock(REDUCTION if step.block < 0 else epilogue_name(step.block))


def _loop(sch: s_tir.Schedule, step: Step) -> Any:
    loops = _loops(sch, step)
    return loops[step.numbers[0] % len(loops)]


def _loops(sch: s_tir.Schedule, step: Step, least: int = 1) -> list[Any]:
    loops = list(sch.get_loops(_block(sch, step)))
    if len(loops) < least:
        raise NoSuchLoop
    return loops


def _split(sch: s_tir.Schedule, step: Step) -> None:
    factor = 2 + step.numbers[1] % 3
    sch.split(_loop(sch, step), [None, factor])


def _reorder(sch: s_tir.Schedule, step: Step) -> None:
    loops = _loops(sch, step)
    first = step.numbers[0] % len(loops)
    second = step.numbers[1] % len(loops)
    if first == second:
        raise NoSuchLoop
    sch.reorder(loops[max(first, second)], loops[min(first, second)])


def _fuse(sch: s_tir.Schedule, step: Step) -> None:
    loops = _loops(sch, step, least=2)
    first = step.numbers[0] % (len(loops) - 1)
    sch.fuse(loops[first], loops[first + 1])


def _mark(name: str) -> Callable[[s_tir.Schedule, Step], None]:
    def apply(sch: s_tir.Schedule, step: Step) -> None:
        getattr(sch, name)(_loop(sch, step))

    return apply


def _annotate(sch: s_tir.Schedule, step: Step) -> None:
    sch.annotate(_loop(sch, step), "generated", 1)


def spatial_prefix(sch: s_tir.Schedule, block: Any) -> int:
    """Return how many of a block's loops, from the outermost, no reduction axis depends on."""
    realize = _get_realize(sch, block)
    reduction_loops = set()
    for value, iter_var in zip(realize.iter_values, realize.block.iter_vars, strict=True):
        if iter_var.iter_type != tirx.IterVar.DataPar:
            reduction_loops |= {var.name for var in _vars(value)}
    count = 0
    for loop in sch.get_loops(block):
        if sch.get(loop).loop_var.name in reduction_loops:
            break
        count += 1
    return count


def _vars(value: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(value, [(Var, found.append)])
    return found


def _reverse_compute_at(sch: s_tir.Schedule, step: Step) -> None:
    reduction = sch.get_sblock(REDUCTION)
    count = spatial_prefix(sch, reduction)
    if count == 0 or step.block < 0:
        raise NoSuchLoop
    # Below a loop of the reduction axes the epilogue would run on unfinished values.
    sch.reverse_compute_at(_block(sch, step), sch.get_loops(reduction)[step.numbers[0] % count])


def _compute_at(sch: s_tir.Schedule, step: Step) -> None:
    if step.block < 0:
        raise NoSuchLoop
    sch.compute_at(sch.get_sblock(REDUCTION), _loop(sch, step))


def _cache_read(sch: s_tir.Schedule, step: Step) -> None:
    scope = ("global", "local", "shared")[step.numbers[1] % 3]
    sch.cache_read(_block(sch, step), step.numbers[0] % 2, scope)


def _cache_write(sch: s_tir.Schedule, step: Step) -> None:
    scope = ("global", "local", "shared")[step.numbers[1] % 3]
    sch.cache_write(_block(sch, step), 0, scope)


def _set_scope(sch: s_tir.Schedule, step: Step) -> None:
    sch.set_scope(_block(sch, step), 0, ("shared", "local")[step.numbers[1] % 2])


def _rfactor(sch: s_tir.Schedule, step: Step) -> None:
    block = sch.get_sblock(REDUCTION)
    loops = sch.get_loops(block)
    number = spatial_prefix(sch, block) + step.numbers[0] % 2
    if number >= len(loops):
        raise NoSuchLoop
    sch.rfactor(loops[number], 0)


def _decompose(sch: s_tir.Schedule, step: Step) -> None:
    if step.block >= 0:
        raise NoSuchLoop
    sch.decompose_reduction(sch.get_sblock(REDUCTION), _loops(sch, step)[0])


_STEPS: dict[str, Callable[[s_tir.Schedule, Step], None]] = {
    "split": _split,
    "reorder": _reorder,
    "fuse": _fuse,
    "parallel": _mark("parallel"),
    "vectorize": _mark("vectorize"),
    "unroll": _mark("unroll"),
    "reverse_compute_at": _reverse_compute_at,
    "compute_at": _compute_at,
    "cache_read": _cache_read,
    "cache_write": _cache_write,
    "set_scope": _set_scope,
    "rfactor": _rfactor,
    "decompose_reduction": _decompose,
    "annotate": _annotate,
}
