"""Make a program smaller while what is wrong with it stays: greedy, over the specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace

from .expressions import children, type_of, uses
from .spec import Epilogue, Expr, Program, Reduction
from .stages import stages_of

MAX_ATTEMPTS = 2000


def shrink(
    program: Program, still_wrong: Callable[[Program], bool], most: int = MAX_ATTEMPTS
) -> Program:
    """Return the smallest program found that is still wrong.

    Parameters
    ----------
    program : Program
        A wrong one.
    still_wrong : callable
        Whether a program shows the same fault; programs that cannot be built do not.
    most : int
        How many programs are tried.
    """
    attempts = 0
    progress = True
    while progress:
        progress = False
        for candidate in simpler(program):
            attempts += 1
            if attempts > most:
                return program
            if _holds(still_wrong, candidate):
                program, progress = candidate, True
                break
    return program


def _holds(still_wrong: Callable[[Program], bool], candidate: Program) -> bool:
    if not all(
        uses(e.expr, "x") and (e.other < 0 or uses(e.expr, "y")) for e in candidate.epilogues
    ):
        return False
    # A simplification may make nonsense of a program: an epilogue whose types do not fit.
    try:
        return still_wrong(candidate)
    except Exception:
        return False


def simpler(program: Program) -> Iterator[Program]:
    """Yield simpler programs, those that differ most first."""
    for number in range(len(program.steps)):
        yield replace(program, steps=_without(program.steps, number))
    for number in range(len(program.hazards)):
        yield replace(program, hazards=_without(program.hazards, number))
    for number in reversed(range(len(program.epilogues))):
        smaller = _without_epilogue(program, number)
        if smaller is not None:
            yield smaller
    for field in ("distribute", "symbolic", "index", "numerics", "call"):
        yield from _at_default(program, program, field, lambda p: p)
    for epilogue_number, epilogue in enumerate(program.epilogues):
        for simple in _simpler_epilogues(program, epilogue):
            yield _with_epilogue(program, epilogue_number, simple)
    yield from _simpler_reductions(program)


def _without(items: tuple, number: int) -> tuple:
    return items[:number] + items[number + 1 :]


def _at_default(program: Program, part: object, field: str, wrap: Callable) -> Iterator[Program]:
    (default,) = (f.default for f in dataclasses.fields(part) if f.name == field)  # type: ignore[arg-type]
    if getattr(part, field) != default:
        yield wrap(replace(part, **{field: default}))  # type: ignore[type-var]


def _with_epilogue(program: Program, number: int, epilogue: Epilogue) -> Program:
    epilogues = (*program.epilogues[:number], epilogue, *program.epilogues[number + 1 :])
    return replace(program, epilogues=epilogues)


def _without_epilogue(program: Program, number: int) -> Program | None:
    """Leave an epilogue out; what read it reads what it read."""
    removed = program.epilogues[number]
    if any(h.target == number for h in program.hazards):
        return None

    def moved(stage: int) -> int:
        if stage == number + 1:
            return removed.stage
        return stage - 1 if stage > number + 1 else stage

    epilogues = tuple(
        replace(e, stage=moved(e.stage), other=moved(e.other))
        for e in _without(program.epilogues, number)
    )
    hazards = tuple(
        replace(
            h,
            at=h.at - 1 if h.at > number + 1 else h.at,
            target=h.target - 1 if h.target > number else h.target,
        )
        for h in program.hazards
    )
    steps = tuple(
        replace(s, block=s.block - 1 if s.block > number else s.block)
        for s in program.steps
        if s.block != number
    )
    named = program.named - 1 if program.named > number else program.named
    if epilogues:
        epilogues = (*epilogues[:-1], replace(epilogues[-1], parameter=True))
    return replace(program, epilogues=epilogues, hazards=hazards, steps=steps, named=named)


def _simpler_epilogues(program: Program, epilogue: Epilogue) -> Iterator[Epilogue]:
    if epilogue.other >= 0:
        yield replace(epilogue, other=-1, expr=_renamed(epilogue.expr, "y", "x"))
    fields = ("fault", "predicate", "alias", "base", "backwards", "read", "write")
    for field in fields:
        default = getattr(Epilogue(), field)
        if getattr(epilogue, field) != default:
            yield replace(epilogue, **{field: default})
    if not epilogue.parameter:
        yield replace(epilogue, parameter=True)
    stages = stages_of(program)
    x = stages[epilogue.stage].dtype
    y = stages[epilogue.other].dtype if epilogue.other >= 0 else x
    for smaller in _simpler_expressions(epilogue.expr):
        yield replace(epilogue, expr=smaller, dtype=type_of(smaller, x, y))


def _renamed(expr: Expr, old: str, new: str) -> Expr:
    if expr == (old,):
        return (new,)
    return tuple(_renamed(part, old, new) if isinstance(part, tuple) else part for part in expr)


def _simpler_expressions(expr: Expr) -> Iterator[Expr]:
    """Yield the operands of a node, then the node with one of them simpler."""
    yield from children(expr)
    if expr[0] in ("elem", "row"):
        yield ("scalar", *expr[1:])
    for place, part in enumerate(expr):
        if place and isinstance(part, tuple):
            for smaller in _simpler_expressions(part):
                yield (*expr[:place], smaller, *expr[place + 1 :])


def _simpler_reductions(program: Program) -> Iterator[Program]:
    reduction = program.reduction

    def wrap(simple: Reduction) -> Program:
        return replace(program, reduction=simple)

    for field in ("term", "update", "init", "layout", "parameter", "fault", "literal"):
        yield from _at_default(program, reduction, field, wrap)
    if reduction.source != reduction.accumulator:
        yield wrap(replace(reduction, source=reduction.accumulator))
    rank = len(reduction.spatial)
    straight = tuple(range(rank + len(reduction.reduce)))
    if reduction.order != straight:
        yield wrap(replace(reduction, order=straight))
    for name in ("spatial", "reduce"):
        extents = getattr(reduction, name)
        first = 0 if name == "spatial" else rank
        for number, extent in enumerate(extents):
            if len(extents) > 1:
                order = tuple(
                    n - (n > first + number) for n in reduction.order if n != first + number
                )
                yield wrap(replace(reduction, **{name: _without(extents, number), "order": order}))
            for smaller in (2, extent - 1):
                if 1 <= smaller < extent:
                    changed = (*extents[:number], smaller, *extents[number + 1 :])
                    yield wrap(replace(reduction, **{name: changed}))
