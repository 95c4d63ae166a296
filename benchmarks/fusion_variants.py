"""The three versions of a program that `fusion.py` times against one another.

All start from the same tiling of the reduction, and all end with its init taken out of the
reduction loops. They differ in what becomes of the epilogue:

- unfused: one pass of its own over the finished output, parallel and in vectors. All blocks of the
  epilogue are merged into that pass first.
- by hand: merged in the same way, then placed with TVM's `reverse_compute_at` in the innermost loop
  around the reduction; its loops are unrolled and in vectors like those of the reduction.
- ours: `sch.fuse_reduction_epilogue(reduction)`. A part of the epilogue that has to stay behind all
  loops becomes a pass of its own, as in the unfused version.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from fusion_programs import HAND, OURS, UNFUSED, VECTOR, Program, Tiling
from tvm.s_tir import Schedule, ScheduleError

import fuse_epilogue  # noqa: F401 - gives the schedule its method


@dataclass(frozen=True)
class Variant:
    """A scheduled version of a program, and what the fusion said about it (ours only)."""

    function: tvm.IRModule
    said: str = ""


def variants(program: Program) -> tuple[dict[str, Variant], dict[str, str]]:
    """Schedule all versions of a program; those that TVM refuses are in the second result, why."""
    built = {UNFUSED: unfused(program), OURS: ours(program)}
    refused = {}
    try:
        built[HAND] = by_hand(program)
    except ScheduleError as error:
        refused["reverse_compute_at"] = reason(error)
    try:
        inlined(program)
    except ScheduleError as error:
        refused["reverse_compute_inline"] = reason(error)
    return {name: built[name] for name in (UNFUSED, HAND, OURS) if name in built}, refused


def unfused(program: Program) -> Variant:
    """Leave the epilogue a pass of its own."""
    sch = Schedule(program.function)
    tiling = program.tile(sch)
    own_pass(sch, merged(sch, program))
    return finished(sch, program, tiling)


def by_hand(program: Program) -> Variant:
    """Place the epilogue at the tile with `reverse_compute_at`; raise TVM's error if it refuses."""
    sch = Schedule(program.function)
    tiling = program.tile(sch)
    epilogue = merged(sch, program)
    sch.reverse_compute_at(epilogue, sch.get_loops(program.reduction)[tiling.depth - 1])
    *outer, last = sch.get_loops(epilogue)[tiling.depth :]
    between, vector = sch.split(last, [None, VECTOR])
    sch.vectorize(vector)
    if tiling.unrolled:
        for loop in [*outer, between]:
            sch.unroll(loop)
    return finished(sch, program, tiling)


def inlined(program: Program) -> Variant:
    """Inline the epilogue with `reverse_compute_inline`; raise TVM's error if it refuses."""
    sch = Schedule(program.function)
    sch.reverse_compute_inline(merged(sch, program))
    return finished(sch, program, program.tile(sch))


def ours(program: Program) -> Variant:
    """Fuse with the primitive of this package."""
    sch = Schedule(program.function)
    tiling = program.tile(sch)
    report = sch.fuse_reduction_epilogue(program.reduction)
    for name in alone(sch, program):
        own_pass(sch, name)
    return finished(sch, program, tiling, str(report))


# ---- Steps of the schedules ----------------------------------------------------------------------


def merged(sch: Schedule, program: Program) -> str:
    """Merge the blocks of the epilogue into its last one, and return that one's name."""
    *inner, last = program.blocks
    for name in inner:
        sch.compute_inline(name)
    return last


def own_pass(sch: Schedule, name: str) -> None:
    """Schedule an elementwise block as a good pass over memory."""
    outermost, *_, last = sch.get_loops(name)
    _, vector = sch.split(last, [None, VECTOR])
    sch.parallel(outermost)
    sch.vectorize(vector)


def alone(sch: Schedule, program: Program) -> list[str]:
    """Return the blocks of the epilogue that share no loop with the reduction."""
    nest = sch.get(sch.get_loops(program.reduction)[0])
    names = {sch.get(block).name_hint for block in sch.get_child_blocks(sch.get_sblock("root"))}
    return [
        name
        for name in program.blocks
        if name in names and not sch.get(sch.get_loops(name)[0]).same_as(nest)
    ]


def finished(sch: Schedule, program: Program, tiling: Tiling, said: str = "") -> Variant:
    """Take the init out of the reduction loops, which ends every version."""
    sch.decompose_reduction(program.reduction, tiling.first)
    return Variant(sch.mod, said)


def reason(error: ScheduleError) -> str:
    """Return the sentence of a refusal, without the program it shows."""
    return " ".join(str(error).rpartition("Error message: ")[2].split())
