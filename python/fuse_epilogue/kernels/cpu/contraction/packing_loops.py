"""Loops that pack an operand into panels when the function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..costs import CLOCK_HZ, threads_for
from ..loops import FlatViews, index, loop, sequence
from .dot_products import WORD, add_dot_products
from .panels import Layout, Panel, packed_type, panels_of
from .plan import PACK_CYCLES, Plan
from .vectors import as_index, at

#: The statement for one panel: of values of the outer axes, a panel, and its number.
OfPanel = Callable[[dict[int, Any], Panel, Any], Any]


def packing_loops(plan: Plan, layout: Layout, views: FlatViews, packed: Any, threads: int) -> Any:
    """Return loops that pack the operand."""
    source = views.of(plan.contraction.b.only_load().source)
    seconds = layout.size * PACK_CYCLES / CLOCK_HZ
    parallel = threads_for(seconds, threads) > 1
    kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL

    def pack(env: dict[int, Any], panel: Panel, number: Any) -> Any:
        def row(env: dict[int, Any]) -> Any:
            def element(lane: Any) -> Any:
                place = number * panel.width + (panel.start + lane)
                return _element(plan, source, {**env, plan.vector: place})

            return _stores(plan, packed, panel, layout.offset(env, panel, number), element)

        return _over_taps(plan, layout.taps, env, row)

    nests = [_for_panels(layout, panel, pack, kind) for panel in panels_of(plan)]
    if layout.corrected:
        nests.append(_corrections(plan, layout, packed))
    return sequence(nests)


def _for_panels(
    layout: Layout, panel: Panel, body: OfPanel, kind: tirx.ForKind = tirx.ForKind.SERIAL
) -> Any:
    """Return loops over the outer axes and over panels of one width; `kind` is the first one's."""
    contraction = layout.contraction

    def outer(env: dict[int, Any], left: tuple[int, ...]) -> Any:
        own = kind if len(left) == len(layout.outer) else tirx.ForKind.SERIAL
        if not left:
            return loop("panel", 0, panel.count, lambda number: body(env, panel, number), own)
        name, extent = contraction.axis_name(left[0]), contraction.extents[left[0]]
        return loop(name, 0, extent, lambda var: outer({**env, left[0]: var}, left[1:]), own)

    return outer({}, layout.outer)


def _over_taps(
    plan: Plan, taps: tuple[int, ...], env: dict[int, Any], body: Callable[[dict[int, Any]], Any]
) -> Any:
    """Return loops over reduced axes; a last word that is not full comes after the loop."""
    if not taps:
        return body(env)
    extent, words = plan.contraction.extents[taps[0]], plan.words

    def of(tap: Any) -> Any:
        return _over_taps(plan, taps[1:], {**env, taps[0]: tap}, body)

    if words is not None and taps[0] == words.axis and words.extent % words.count:
        rest = of(extent - 1)
        return sequence([loop("p", 0, extent - 1, of), rest] if extent > 1 else [rest])
    return loop("p", 0, extent, of)


def _stores(plan: Plan, packed: Any, panel: Panel, base: Any, element: Callable[[Any], Any]) -> Any:
    """Return the stores of a row of a panel: whole vectors, then single elements and zeros."""
    dtype = packed_type(plan)

    def store(lane: Any) -> Any:
        return tirx.BufferStore(packed, element(lane), [base + lane])

    statements = []
    whole = panel.valid // plan.lanes * plan.lanes
    if whole:
        statements.append(loop("lane", 0, whole, store, tirx.ForKind.VECTORIZED))
    for lane in range(whole, panel.width):
        value = element(lane) if lane < panel.valid else tirx.const(0, dtype)
        statements.append(tirx.BufferStore(packed, value, [base + lane]))
    return sequence(statements)


def _element(plan: Plan, source: Any, env: dict[int, Any]) -> Any:
    """Return an element of the packed operand, for values of all axes: one value, or a word."""
    (access,) = plan.contraction.b.accesses.values()
    words, dtype = plan.words, packed_type(plan)
    if words is None:
        return tirx.BufferLoad(source, [at(access, env)])
    first = env[words.axis] * words.count
    bits = WORD // words.count
    word: Any = None
    for k in range(words.count):
        # The last word of an axis is made for a number, not for a variable.
        if isinstance(first, int) and first + k >= words.extent:
            break
        value = tirx.BufferLoad(source, [at(access, {**env, words.axis: first + k})])
        value = value.astype(dtype)
        if k + 1 < words.count:
            value = value & tirx.const((1 << bits) - 1, dtype)
        value = value << tirx.const(bits * k, dtype) if k else value
        word = value if word is None else word | value
    return word


def _corrections(plan: Plan, layout: Layout, packed: Any) -> Any:
    """Return loops that sum up what is packed, for what the sums of the kernel begin with."""
    words, lanes = plan.words, plan.lanes
    assert words is not None
    bits = WORD // words.count
    ones = sum(words.shift << (bits * k) for k in range(words.count))
    every = tirx.Broadcast(tirx.const(ones - (1 << WORD), f"int{WORD}"), lanes)

    def vector(env: dict[int, Any], panel: Panel, number: Any, start: Any) -> Any:
        sums = tirx.decl_buffer((index(lanes),), f"int{WORD}", "sums")
        zero = tirx.Broadcast(tirx.const(0, f"int{WORD}"), lanes)
        whole = [tirx.Ramp(index(0), index(1), lanes)]

        def steps(env: dict[int, Any], taps: tuple[int, ...]) -> Any:
            if taps:
                extent = plan.contraction.extents[taps[0]]
                return loop("p", 0, extent, lambda p: steps({**env, taps[0]: p}, taps[1:]))
            place = as_index(layout.offset(env, panel, number) + start)
            values = tirx.BufferLoad(packed, [tirx.Ramp(place, index(1), lanes)])
            return add_dot_products(words.instruction, (sums, 0), every, values, lanes)

        place = as_index(layout.correction(env, panel, number) + start)
        total = zero - tirx.BufferLoad(sums, whole)
        return sequence(
            [
                tirx.AllocBuffer(sums),
                tirx.BufferStore(sums, zero, whole),
                steps(env, layout.taps),
                tirx.BufferStore(packed, total, [tirx.Ramp(place, index(1), lanes)]),
            ]
        )

    def panel_of(env: dict[int, Any], panel: Panel, number: Any) -> Any:
        count = panel.width // lanes
        return loop("v", 0, count, lambda v: vector(env, panel, number, v * index(lanes)))

    return sequence([_for_panels(layout, panel, panel_of) for panel in panels_of(plan)])
