"""Drawing programs: one description, for hypothesis and for long runs with Python's generator.

A program is drawn so that it means something: types fit, a buffer is written before it is read,
loops stay short. Whether the primitive should fuse it is not decided here, but in ``truth``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

from . import layouts
from .expressions import uses
from .monoids import ROWS
from .spec import (
    EPILOGUE_FAULTS,
    FLOATS,
    REDUCTION_FAULTS,
    SIGNED,
    STEPS,
    TERMS,
    UNSIGNED,
    Epilogue,
    Expr,
    Hazard,
    Program,
    Reduction,
    Step,
    bits,
    is_float,
)
from .stages import axes_of, stages_of
from .values import draw_value

Item = TypeVar("Item")

MAX_POINTS = 90  # iterations of the reduction

# Stands for an extent that is not known.
UNKNOWN = 1009

# Steps that move a block, and those that add one.
COPYING = ("cache_read", "cache_write")
MOVING = ("compute_at", "reverse_compute_at", *COPYING)


class Source(Protocol):
    """Where decisions come from."""

    def pick(self, options: Sequence[Item]) -> Item:
        """Choose one; an option that stands there twice is twice as likely."""

    def chance(self, percent: int) -> bool:
        """Say yes so often."""

    def number(self, low: int, high: int) -> int:
        """Choose an integer; both ends are possible."""


class RandomSource:
    """Decisions of Python's generator: quick, and the same for the same seed everywhere."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def pick(self, options: Sequence[Item]) -> Item:
        return options[int(self._random.random() * len(options))]

    def chance(self, percent: int) -> bool:
        return self._random.random() * 100 < percent

    def number(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))


class _DrawnSource:
    """Decisions of hypothesis: the first option and the lowest number are the simplest."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def pick(self, options: Sequence[Item]) -> Item:
        return self._draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def programs(draw: Any) -> Program:
    """Draw a program with hypothesis."""
    return draw_program(_DrawnSource(draw))


def random_program(seed: int | str) -> Program:
    """Return the program of a seed."""
    return draw_program(RandomSource(seed))


# What may be wrong with a program. Which of these really forbid fusing is told by ``truth``: many
# draws end up harmless, for example a hazard in front of the reduction.
TROUBLES = (
    *["read"] * 4,
    *["write"] * 2,
    *["predicate"] * 2,
    *["hazard"] * 9,
    *["alias"] * 2,
    *["reduction"] * 3,
    *["epilogue"] * 4,
    *["call"] * 2,
)


def draw_program(source: Source) -> Program:
    """Return a program.

    Parameters
    ----------
    source : Source
        Makes the decisions; the same decisions give the same program.
    """
    trouble = source.pick(TROUBLES) if source.chance(36) else ""
    symbolic = not trouble and source.chance(8)
    reduction = _draw_reduction(source, symbolic)
    if trouble == "reduction":
        reduction = _with_fault(source, reduction)
    numerics = source.pick(("reassociate", "reassociate", "exact"))
    program = Program(
        reduction=reduction,
        numerics=numerics,
        distribute=source.chance(30),
        symbolic=symbolic,
        index="int64" if source.chance(6) else "int32",
    )
    program = _with_epilogues(source, program, trouble)
    program = _with_hazards(source, program, trouble)
    program = _with_call(source, program, trouble)
    if trouble in ("", "alias", "predicate", "read") or (trouble != "call" and source.chance(30)):
        program = _with_steps(source, program, trouble)
    return program


# ---- The reduction -------------------------------------------------------------------------------


def _draw_reduction(source: Source, symbolic: bool) -> Reduction:
    monoid = source.pick(("sum", "sum", "sum", "max", "product", *ROWS))
    accumulator = source.pick(ROWS[monoid].accumulators)
    rank = source.pick((2, 1, 2, 2, 3))
    depth = source.pick((1, 1, 1, 2))
    spatial, reduce = _draw_extents(source, rank, depth)
    order = list(range(rank + depth))
    if source.chance(25):
        order = _shuffled(source, order)
    writes = [
        name for name, row in layouts.WRITES.items() if row.fits(spatial) and name != "strided"
    ]
    if symbolic:
        writes = [name for name in writes if layouts.WRITES[name].symbolic]
    term = source.pick(TERMS)
    # The shape of a window has two unknown extents in one.
    if (accumulator == "bool" and term in ("product", "less one")) or (
        symbolic and term == "window"
    ):
        term = "load"
    updates = ["accumulator first", "accumulator first", "term first"]
    if monoid == "sum":
        updates.append("subtracted")
    return Reduction(
        monoid=monoid,
        source=_draw_source_type(source, accumulator),
        accumulator=accumulator,
        spatial=spatial,
        reduce=reduce,
        term=term,
        update=source.pick(updates),
        init=source.pick(("identity",) * 6 + ("literal", "buffer", "scalar")),
        literal=source.number(0, 5),
        layout=source.pick(writes) if source.chance(20) else "identity",
        order=tuple(order),
        parameter=source.chance(8),
    )


def _draw_source_type(source: Source, accumulator: str) -> str:
    if source.chance(60) or accumulator == "bool":
        return accumulator
    if is_float(accumulator):
        return source.pick([t for t in FLOATS if bits(t) <= bits(accumulator)])
    family = SIGNED if accumulator in SIGNED else UNSIGNED
    return source.pick([t for t in family if bits(t) <= bits(accumulator)])


def _draw_extents(source: Source, rank: int, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = (4, 3, 2, 5, 6, 4, 3, 1)
    spatial = [source.pick(sizes) for _ in range(rank)]
    reduce = [source.pick((3, 5, 2, 4, 7, 6, 1)) for _ in range(depth)]
    extents = spatial + reduce
    while True:
        points = 1
        for extent in extents:
            points *= extent
        if points <= MAX_POINTS:
            return tuple(extents[:rank]), tuple(extents[rank:])
        largest = extents.index(max(extents))
        extents[largest] -= 1


def _shuffled(source: Source, items: list[int]) -> list[int]:
    rest, result = list(items), []
    while rest:
        result.append(rest.pop(source.number(0, len(rest) - 1)))
    return result


def _with_fault(source: Source, reduction: Reduction) -> Reduction:
    fault = source.pick(REDUCTION_FAULTS)
    reduction = replace(reduction, reduce=(max(2, reduction.reduce[0]), *reduction.reduce[1:]))
    if fault == "reversed":
        # The steps before T.init would read memory that nobody has written.
        reduction = replace(reduction, parameter=True)
    if fault == "clamped" and reduction.monoid in ("max", "min", "logical and", "logical or"):
        reduction = replace(reduction, monoid="sum", accumulator="int32", source="int8")
    if fault == "init of itself":
        reduction = replace(reduction, parameter=True)
    if fault in ("init by step", "init of itself") and reduction.accumulator == "bool":
        fault = "no init"
    return replace(reduction, fault=fault)


# ---- The epilogues -------------------------------------------------------------------------------


def _with_epilogues(source: Source, program: Program, trouble: str) -> Program:
    count = source.pick((1, 1, 2, 2, 3, 4))
    troubled = source.number(0, count - 1) if source.chance(40) else 0
    for number in range(count):
        stage = _draw_stage(source, program)
        epilogue = _draw_epilogue(source, program, stage, last=number == count - 1)
        if trouble in ("read", "write", "predicate", "alias", "epilogue") and number == troubled:
            epilogue = _troubled(source, program, epilogue, trouble)
        program = replace(program, epilogues=(*program.epilogues, epilogue))
    return _keep_readable(program)


def _draw_stage(source: Source, program: Program) -> int:
    last = len(program.epilogues)
    if last and source.chance(20):
        return source.number(0, last)
    return last


def _draw_epilogue(source: Source, program: Program, stage: int, last: bool) -> Epilogue:
    # An unknown extent equals nothing but itself.
    unknown = (UNKNOWN, *program.reduction.spatial[1:])
    stages = stages_of(program, unknown if program.symbolic else None)
    dims = stages[stage].dims
    read = "identity"
    if source.chance(25):
        read = source.pick(_fitting(layouts.READS, dims, program.symbolic))
    other = -1
    if stage > 0 and read == "identity" and source.chance(35):
        same = [n for n, s in enumerate(stages) if n != stage and s.dims == dims]
        if same:
            other = source.pick(same)
    axes = layouts.ALL_READS[read].axes(dims)
    expr, dtype = draw_value(
        source,
        program.reduction.monoid if stage == 0 or source.chance(50) else "",
        stages[stage].dtype,
        stages[other].dtype if other >= 0 else "",
        axes[-1] if axes else 0,
    )
    if other >= 0 and not uses(expr, "y"):
        other = -1
    writes = _fitting(layouts.WRITES, axes, program.symbolic)
    return Epilogue(
        expr=expr,
        dtype=dtype,
        stage=stage,
        other=other,
        read=read,
        write=source.pick(writes) if source.chance(20) else "identity",
        base=source.pick((1, 2)) if source.chance(8) else 0,
        backwards=source.chance(15),
        parameter=last or source.chance(15),
    )


def _fitting(rows: Any, dims: tuple[int, ...], symbolic: bool) -> list[str]:
    return [n for n, row in rows.items() if row.fits(dims) and (row.symbolic or not symbolic)]


def _troubled(source: Source, program: Program, epilogue: Epilogue, trouble: str) -> Epilogue:
    dims = stages_of(program)[epilogue.stage].dims
    if trouble == "read":
        rows = {**layouts.READS_WRONG, **layouts.READS_WRONG, **layouts.READS_BEYOND}
        names = [name for name, row in rows.items() if row.fits(dims)]
        read = source.pick(names)
        if epilogue.other >= 0:
            epilogue = replace(
                epilogue, other=-1, expr=("x",), dtype=_stage_type(program, epilogue)
            )
        epilogue = replace(epilogue, read=read, write="identity")
        if read == "neighbours":
            return _reading_neighbour(source, program, epilogue)
        return epilogue
    axes = axes_of(program, epilogue)
    if trouble == "write":
        rows = {**layouts.WRITES_WRONG, **layouts.WRITES_BEYOND}
        names = [name for name, row in rows.items() if row.fits(axes)]
        return replace(epilogue, write=source.pick(names))
    if trouble == "predicate":
        # What the predicate leaves out keeps what the caller passed.
        return replace(epilogue, predicate=source.pick(("cut", "always")), parameter=True)
    if trouble == "epilogue":
        return _with_epilogue_fault(source, program, epilogue)
    return _aliased(source, program, epilogue)


def _stage_type(program: Program, epilogue: Epilogue) -> str:
    return stages_of(program)[epilogue.stage].dtype


def _reading_neighbour(source: Source, program: Program, epilogue: Epilogue) -> Epilogue:
    dtype = _stage_type(program, epilogue)
    operator = "or" if dtype == "bool" else source.pick(("add", "max"))
    return replace(epilogue, expr=(operator, ("x",), ("next",)), dtype=dtype)


def _with_epilogue_fault(source: Source, program: Program, epilogue: Epilogue) -> Epilogue:
    fault = source.pick(EPILOGUE_FAULTS)
    dtype = _stage_type(program, epilogue)
    if fault == "impure":
        return replace(epilogue, fault=fault, expr=("impure", epilogue.expr))
    if fault in ("branch inside", "branch around"):
        return replace(epilogue, fault=fault, parameter=True)
    if fault == "scatter" and (is_float(dtype) or dtype == "bool"):
        fault = "nested"
    if fault in ("scatter", "init"):
        return replace(
            epilogue,
            fault=fault,
            write="identity",
            parameter=True,
            expr=("x",),
            dtype=dtype,
            other=-1,
        )
    return replace(epilogue, fault=fault)


def _aliased(source: Source, program: Program, epilogue: Epilogue) -> Epilogue:
    alias = source.pick(("bias", "bias", "shifted bias", "source"))
    if alias == "source":
        reduction = program.reduction
        dims = axes_of(program, epilogue)
        # The source has the spatial and the reduction extents as its shape.
        fits = (
            len(reduction.reduce) == 1
            and epilogue.read == "identity"
            and len(dims) == len(reduction.spatial)
            and reduction.layout == "identity"
            and reduction.term in ("load", "masked")
            and epilogue.dtype == reduction.source
        )
        if fits:
            return replace(epilogue, alias=alias, write="identity", parameter=True)
        alias = "bias"
    operator = "or" if epilogue.dtype == "bool" else source.pick(("add", "max"))
    expr: Expr = (operator, epilogue.expr, ("elem", epilogue.dtype, 9))
    return replace(epilogue, alias=alias, write="identity", parameter=True, expr=expr)


def _keep_readable(program: Program) -> Program:
    """Let nobody read what an epilogue leaves unwritten: such an output is a parameter."""
    epilogues = []
    for epilogue in program.epilogues:
        wrong = epilogue.write in layouts.WRITES_WRONG or epilogue.predicate == "cut"
        if wrong or epilogue.fault in ("scatter", "branch inside", "branch around"):
            epilogue = replace(epilogue, parameter=True)
        epilogues.append(epilogue)
    # What nobody reads must be seen by the caller, or it would not matter.
    read = {n for e in epilogues for n in (e.stage, e.other)}
    epilogues = [
        e if number + 1 in read else replace(e, parameter=True)
        for number, e in enumerate(epilogues)
    ]
    return replace(program, epilogues=tuple(epilogues))


# ---- Hazards, steps, call ------------------------------------------------------------------------


def _with_hazards(source: Source, program: Program, trouble: str) -> Program:
    if trouble != "hazard":
        if source.chance(4):
            at = source.number(0, len(program.epilogues) + 1)
            return replace(program, hazards=(Hazard("unrelated", at),))
        return program
    kind = source.pick(
        (
            *["write bias"] * 3,
            *["read output"] * 2,
            *["write output"] * 2,
            "write result",
            "total",
            "nested reader",
            "address of result",
            "address of bias",
            "address of output",
        )
    )
    count = len(program.epilogues)
    target = source.number(0, count - 1) if source.chance(50) else 0
    # In front of the reduction, between it and the epilogue, or behind: mostly between.
    at = source.number(1, target + 1) if source.chance(65) else source.number(0, count + 1)
    epilogue = program.epilogues[target]
    if kind in ("write bias", "address of bias"):
        operator = "or" if epilogue.dtype == "bool" else source.pick(("add", "max", "mul"))
        epilogue = replace(
            epilogue, expr=(operator, epilogue.expr, ("elem", epilogue.dtype, 9)), alias=""
        )
    if kind in ("read output", "write output"):
        epilogue = replace(epilogue, parameter=True)
        at = min(at, target + 1) if kind == "read output" else at
    if kind in ("total", "nested reader", "write result"):
        at = max(1, at) if kind != "write result" else at
        if kind == "write result" and at > 1:
            at = 1
    epilogues = (*program.epilogues[:target], epilogue, *program.epilogues[target + 1 :])
    return replace(program, epilogues=epilogues, hazards=(Hazard(kind, at, target),))


def _with_call(source: Source, program: Program, trouble: str) -> Program:
    readers = [n for n, e in enumerate(program.epilogues) if e.stage == 0 and e.other <= 0]
    if trouble == "call":
        call = source.pick(("stranger", "wrong pair"))
        others = [n for n, e in enumerate(program.epilogues) if 0 not in (e.stage, e.other)]
        if call == "wrong pair" and others:
            return replace(program, call=call, named=source.pick(others))
        if call == "stranger":
            return replace(program, call=call, hazards=(Hazard("unrelated", 0),))
        return replace(program, epilogues=(), reduction=replace(program.reduction, parameter=True))
    call = source.pick(("reduction", "reduction", "reduction", "consumer", "pair"))
    # An epilogue that is a reduction itself would be the reduction of the call.
    readers = [n for n in readers if program.epilogues[n].fault != "init"]
    if not readers:
        call = "reduction"
    return replace(program, call=call, named=source.pick(readers) if readers else 0)


def _with_steps(source: Source, program: Program, trouble: str) -> Program:
    if source.chance(45):
        return program
    steps = []
    for _ in range(source.pick((1, 1, 2, 3))):
        kind = source.pick((*STEPS, "split", "split", "reorder", "fuse", "reverse_compute_at"))
        if kind == "decompose_reduction" and source.chance(70):
            kind = "split"
        # Moving a block past a hazard, or putting a copy there, would make another program of it.
        if kind in MOVING and (trouble or program.hazards):
            continue
        # A copy between the blocks that the call names would make another call of it, and a copy of
        # an output that has gaps would read what nobody wrote.
        gaps = program.reduction.layout == "offset" or any(
            epilogue.write in ("offset", "strided") for epilogue in program.epilogues
        )
        if kind in COPYING and (gaps or program.call != "reduction"):
            continue
        block = -1
        if program.epilogues and (kind == "reverse_compute_at" or source.chance(35)):
            block = source.number(0, len(program.epilogues) - 1)
        numbers = (source.number(0, 11), source.number(0, 11))
        steps.append(Step(kind, block, numbers))
    return replace(program, steps=tuple(steps))
