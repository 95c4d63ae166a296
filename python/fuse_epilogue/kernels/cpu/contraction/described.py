"""Describes the plan of a contraction for reports."""

from __future__ import annotations

from collections.abc import Sequence

from ...scheduled import Way
from ..costs import CALL_S, CLOCK_HZ, on_threads, sharing
from .plan import Plan
from .winograd.plan import WinogradPlan

#: When the operand of the vectors is packed, by :attr:`.Plan.packing`.
_PACKED = {
    "constant": "packed when the model is compiled",
    "kernel": "packed in each call",
    "none": "read in place",
}


def ways(plans: Sequence[Plan | WinogradPlan], chosen: int, threads: int) -> tuple[Way, ...]:
    """Return descriptions of plans, the chosen one first.

    - `chosen`: place of the chosen one.
    - `threads`: number of threads that there are.
    """
    ordered = [plans[chosen], *plans[:chosen], *plans[chosen + 1 :]]
    return tuple(way(each, threads) for each in ordered)


def way(plan: Plan | WinogradPlan, threads: int) -> Way:
    """Return the description of a plan.

    - `threads`: number of threads that there are.
    """
    alone = plan.cycles / CLOCK_HZ
    seconds = CALL_S + on_threads(alone, threads)
    if isinstance(plan, WinogradPlan):
        text = f"{plan.transform.name}, {plan.tiles} tiles at a time"
        return Way(text + sharing(alone, threads), seconds)
    parts = {name: cycles / CLOCK_HZ for name, cycles in plan.cost._asdict().items() if cycles}
    return Way(_text(plan) + sharing(alone, threads), seconds, parts)


def _text(plan: Plan) -> str:
    contraction = plan.contraction

    def named(axes: Sequence[int]) -> str:
        names = (contraction.axis_name(axis).removeprefix("v_") for axis in axes)
        return ", ".join(f"'{name}'" for name in names)

    rows = max(group.rows for group in plan.groups)
    sums = f"tiles of {plan.vectors} vector{'s' if plan.vectors > 1 else ''} of {plan.lanes}"
    sums += f" along {named([plan.vector])}"
    if plan.rows:
        sums += f" x {rows} row{'s' if rows > 1 else ''} along {named(plan.rows)}"
    load = contraction.b.only_load()
    texts = [sums, f"'{load.source.name}' is {_PACKED[plan.packing]}"]
    if plan.words is not None:
        texts.append(f"{plan.words.count} products at a time by {plan.words.instruction.name}")
    if contraction.before:
        texts.append("the other operand is copied with its padding")
    return "; ".join(texts)
