"""Contractions on processors: products of matrices and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from ....recognize.contraction import Contraction, read_contraction
from ....recognize.stages import Program
from ....targets import vector_bits
from ....tir.build import with_fields
from ....tir.walk import same
from ...scheduled import Packing, Scheduled
from .. import elementwise
from ..costs import CALL_S, CLOCK_HZ, on_threads
from ..loops import FlatViews, index, sequence
from .described import ways
from .dot_products import instructions_of
from .kernel import Kernel
from .packing_loops import packing_loops
from .panels import Layout, packed_type, packing_of
from .plan import Machine, Plan, all_plans, choose
from .taps import tap_order
from .winograd import WinogradPlan, scheduled_winograd, winograd_plans

__all__ = ["alternatives", "constant_operands", "machine_of", "packed_alike", "scheduled"]

#: Ways of a function that are worth a measurement.
ALTERNATIVES = 4


def machine_of(target: Target, threads: int) -> Machine:
    """Return what a kernel needs of a target of kind "llvm"."""
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    few = has("sse2", target) and not has("avx512f", target)
    lanes = max(1, vector_bits(target) // 32)
    return Machine(lanes, 16 if few else 32, threads, instructions_of(target))


def alternatives(
    program: Program,
    target: Target,
    threads: int = 1,
    constants: frozenset[int] = frozenset(),
    winograd: bool = False,
) -> Iterator[Scheduled]:
    """Yield ways to schedule a function whose only reduction is a sum of products.

    The fastest by prediction comes first. Each differs from those before it in more than the size
    of its tile, or has another tile that is predicted to be nearly as fast.

    - `program`: there is no way if it is another function.
    - `target`: target of kind "llvm".
    - `threads`: number of threads that parallel loops are made for.
    - `constants`: indices of the parameters that are constants at every call; an operand among them
      is packed when the module is compiled.
    - `winograd`: whether convolutions may be computed by Winograd's algorithms, which round
      otherwise.
    """
    machine = machine_of(target, threads)
    found = list(_plans(program, machine, constants, choose))
    plans: list[Plan | WinogradPlan] = []
    plans += sorted(found, key=lambda plan: plan.cycles)[:ALTERNATIVES]
    why = ""
    if winograd and plans:
        transformed, why = winograd_plans(program, machine, constants, plans[0].cycles)
        plans = sorted([*plans, *transformed], key=lambda plan: plan.cycles)
    for place, plan in enumerate(plans):
        made = (
            scheduled_winograd(plan, machine)
            if isinstance(plan, WinogradPlan)
            else replace(scheduled(plan, target, threads), why=why)
        )
        yield replace(made, ways=ways(plans, place, threads))


def packed_alike(
    programs: Sequence[Program], target: Target, threads: int, constants: frozenset[int]
) -> list[Scheduled] | None:
    """Schedule contractions that differ in the number of rows, with constants packed alike.

    - `target`, `threads`, `constants`: as for :func:`schedule`.
    - Returns: None if a program is not a contraction, or no layout of the constants serves all of
      them. Of several layouts, the one by which the programs lose the least against the best one of
      each.
    """
    machine = machine_of(target, threads)
    best: list[dict[Packing | None, Plan]] = []
    for program in programs:
        of_layout: dict[Packing | None, Plan] = {}
        for plan in _plans(program, machine, constants, all_plans):
            key = None
            if plan.packing == "constant":
                key = packing_of(plan, Layout.of(plan, tap_order(plan)))
            known = of_layout.get(key)
            if known is None or (plan.cycles, -plan.vectors) < (known.cycles, -known.vectors):
                of_layout[key] = plan
        best.append(of_layout)
    if not best:
        return None
    least = [min((plan.cycles for plan in each.values()), default=1.0) for each in best]
    common = [key for key in best[0] if all(key in each for each in best)]
    if not common:
        return None

    def loss(key: Packing | None) -> float:
        return math.prod(each[key].cycles / one for each, one in zip(best, least, strict=True))

    chosen = min(common, key=loss)
    return [scheduled(each[chosen], target, threads) for each in best]


def _plans(
    program: Program,
    machine: Machine,
    constants: frozenset[int],
    of: Callable[[Contraction, Machine, tuple[bool, bool]], Iterable[Plan]],
) -> Iterator[Plan]:
    """Yield the plans of a program as a contraction, with its padding as bounds and as a copy."""
    read: list[Contraction] = []
    for pad in (False, True):
        contraction = read_contraction(program, pad)
        if contraction is None or not _is_known(contraction):
            continue
        # Without padding, both are the same.
        if any(len(each.before) == len(contraction.before) for each in read):
            continue
        read.append(contraction)
        constant = constant_operands(contraction, constants)
        # What is left out at a border is 0 times a weight: NaN if the weight is infinite. Constant
        # weights are taken to be finite.
        if (contraction.a.bounds and not constant[1]) or (contraction.b.bounds and not constant[0]):
            continue
        yield from of(contraction, machine, constant)


def _is_known(contraction: Contraction) -> bool:
    """Whether every bound is of one axis of the result and one that is reduced."""
    bounds = (*contraction.a.bounds, *contraction.b.bounds)
    return contraction.dtype in ("float32", "int32", "float64", "int64") and all(
        bound.tap >= 0 for bound in bounds
    )


def constant_operands(contraction: Contraction, constants: frozenset[int]) -> tuple[bool, bool]:
    """Return whether each operand is constant at every call.

    - `constants`: indices of the parameters that are.
    """
    params = contraction.program.params

    def is_constant(load: Any) -> bool:
        return load is not None and any(
            place in constants and same(param, load.source) for place, param in enumerate(params)
        )

    return is_constant(contraction.a.only_load()), is_constant(contraction.b.only_load())


def scheduled(plan: Plan, target: Target, threads: int) -> Scheduled:
    """Return the kernel of a plan."""
    contraction = plan.contraction
    func = contraction.program.func
    views = FlatViews()
    layout = Layout.of(plan, tap_order(plan))
    load = contraction.b.only_load()
    params, packing = list(func.params), {}
    statements: list[Any] = [views.allocate(stage.output) for stage in contraction.before]
    lanes = max(1, vector_bits(target) // 32)
    nests = [elementwise.nest(stage, views, lanes, threads) for stage in contraction.before]
    copy = None if plan.words is None else plan.words.copy(views)
    if copy is not None:
        statements.append(views.allocate(copy.output))
        nests.append(elementwise.nest(copy, views, lanes, threads))
    packed = None
    if plan.packing != "none":
        packed = tirx.decl_buffer((index(layout.allocated),), packed_type(plan), "packed")
    if plan.packing == "constant":
        place = next(at for at, p in enumerate(params) if same(p, load.source))
        params[place] = packed
        packing[place] = packing_of(plan, layout)
    elif plan.packing == "kernel":
        statements.append(tirx.AllocBuffer(packed))
        nests.append(packing_loops(plan, layout, views, packed, threads))
    nests += Kernel(plan, views, packed, threads).loops()
    body = sequence([*statements, *views.declare(sequence(nests))])
    made = with_fields(func, params=params, body=body)
    fused = not same(contraction.sums, contraction.out)
    return Scheduled(
        made,
        "contraction",
        "tail" if fused else "none",
        CALL_S + on_threads(plan.cycles / CLOCK_HZ, threads),
        packing,
    )
