"""Random schedules for kernels, of ordinary primitives: the same number gives the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import neuron_workloads
from neuron_drawn import APART, PSUM, SBUF, Drawn

#: The kind of a schedule is this at its number, over and over.
KINDS = ("conv", "conv", "conv", "matmul", "reduce", "elementwise")


def drawn(number: int) -> Drawn:
    """Draw a workload, and a schedule of it."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    make, schedule = {
        "conv": (neuron_workloads.depthwise, _conv),
        "matmul": (neuron_workloads.matmul, _matmul),
        "reduce": (neuron_workloads.row_reduce, _reduce),
        "elementwise": (neuron_workloads.elementwise, _elementwise),
    }[kind]
    made = Drawn(kind, make(rng), rng)
    schedule(made)
    return made


def _conv(d: Drawn) -> None:
    """Schedule a depthwise convolution: channels on partitions, columns along them."""
    when = d.one("before", "after", "never")
    names = [d.name(block) for block in d.blocks()]
    name = next(each for each in names if "conv" in each)
    conv = d.fuse(name, "" if when == "after" else when)
    sch = d.sch
    pad = sch.get_sblock(names[0]) if "pad" in names[0] else None
    d.inline(0.15)
    inlined = pad is not None and d.maybe(0.25)
    if inlined and d.attempt("padding inlined", lambda: sch.compute_inline(pad)):
        pad = None
    product = None
    if d.maybe(0.15):
        product = d.attempt("products", lambda: sch.rfactor(sch.get_loops(conv)[-1], 3))
    n, c, w, *taps = sch.get_loops(conv)
    outer, free = d.shuffled([n, *taps]), []
    c_outer, lane = d.split(c, 128)
    outer.insert(d.rng.randint(0, len(outer)), c_outer)
    if product is not None or d.maybe(0.05):
        free.append(outer.pop(outer.index(taps[-1])))
        d.risks.add("reduction")
    style = d.one("whole", "whole", "tiles", "columns")
    if style == "whole":
        free.insert(0, w)
    elif style == "tiles":
        w_outer, w_inner = d.split(w, 8)
        outer.insert(d.rng.randint(0, len(outer)), w_outer)
        free.insert(0, w_inner)
    else:
        outer.append(w)
    if d.maybe(0.1) and n in outer:
        outer.remove(n)
        free.insert(0, n)
    d.steps.append(f"{style}, {len(outer)} loops outside")
    sch.reorder(*outer, lane, *free)
    if d.maybe(0.95):
        d.mark(P=lane, **{f"F{i}": loop for i, loop in enumerate(free)})
    else:
        d.unmarked()
    if when == "after":
        conv = d.fuse(name, when)
    if product is not None:
        sch.set_scope(product, 0, SBUF)
        if inlined:
            # One instruction for all taps: where the columns are depends on the tap.
            d.risks.add("not-affine")
        if outer and d.maybe(0.8):
            at = d.rng.randrange(len(outer))
            d.attempt(f"products in loop {at + 1}", lambda: sch.compute_at(product, outer[at]))
    d.on_chip(conv, _finished(outer, taps), first=[product] if product is not None else [])
    if pad is not None:
        _padding(d, pad, outer)


def _finished(outer: Sequence[Any], summed: Sequence[Any]) -> list[Any]:
    """The loops in which a sum is finished: those outside of all that it runs over."""
    inside = [i for i, loop in enumerate(outer) if any(loop is each for each in summed)]
    return list(outer[: min(inside, default=len(outer))])


def _padding(d: Drawn, pad: Any, loops: Sequence[Any]) -> None:
    """Fill the padded columns: on the chip, where they are used or before."""
    sch = d.sch
    if d.maybe(0.03):
        # In HBM nothing computes, not even zeros.
        d.steps.append("padding in HBM")
        d.risks.update(("writes-hbm", "reads-hbm"))
        return
    sch.set_scope(pad, 0, SBUF)
    at = d.rng.randint(0, len(loops)) if d.maybe(0.9) else 0
    if not at or not d.attempt(f"padding in loop {at}", lambda: sch.compute_at(pad, loops[at - 1])):
        d.risks.update(APART)
        at = 0
    if d.maybe(0.4):
        own = sch.get_loops(pad)[at]
        d.attempt("zeros apart", lambda: sch.decompose_padding(pad, own))


def _matmul(d: Drawn) -> None:
    """Schedule a product of matrices: k on partitions, in PSUM."""
    when = d.one("before", "after", "after", "never")
    product = d.fuse("matmul", "" if when == "after" else when)
    sch = d.sch
    d.inline(0.15)
    i, j, k = sch.get_loops(product)
    swapped = d.maybe(0.4)
    i_outer, i_inner = d.split(i, 512 if swapped else 128)
    j_outer, j_inner = d.split(j, 128 if swapped else 512)
    k_outer, k_inner = d.split(k, 128)
    outer = [*d.shuffled([i_outer, j_outer]), k_outer]
    if d.maybe(0.1):
        outer = d.shuffled(outer)
    sch.reorder(*outer, k_inner, i_inner, j_inner)
    if swapped:
        d.steps.append("b stays")
        d.mark(P=k_inner, lhs_F=j_inner, rhs_F=i_inner)
    else:
        d.mark(P=k_inner, lhs_F=i_inner, rhs_F=j_inner)
    if when == "after":
        product = d.fuse("matmul", when)
    if any("bias" in d.name(block) for block in d.blocks()):
        # A bias along the rows of PSUM is one partition that all would read.
        d.risks.add("broadcast")
    d.on_chip(product, _finished(outer, [k_outer]), PSUM)


def _reduce(d: Drawn) -> None:
    """Schedule a reduction of rows: rows on partitions."""
    when = d.one("before", "before", "never", "never", "after")
    block = d.fuse("reduce", "" if when == "after" else when)
    sch = d.sch
    d.inline(0.15)
    i, j = sch.get_loops(block)
    i_outer, lane = d.split(i, 128)
    outer = [i_outer]
    summed = []
    if d.maybe(0.5):
        j_outer, j = d.split(j, 16)
        summed.append(j_outer)
        outer = d.shuffled([*outer, j_outer]) if d.maybe(0.2) else [*outer, j_outer]
    if d.maybe(0.1):
        d.steps.append("columns one by one")
        outer, summed = [*outer, j], [*summed, j]
        sch.reorder(*outer, lane)
        d.mark(P=lane)
    else:
        sch.reorder(*outer, lane, j)
        if d.maybe(0.9):
            d.mark(P=lane, F=j)
        else:
            d.unmarked()
    if when == "after":
        block = d.fuse("reduce", when)
    d.on_chip(block, _finished(outer, summed))


def _elementwise(d: Drawn) -> None:
    """Schedule work without a reduction."""
    sch = d.sch
    d.inline(0.4)
    block = d.blocks()[0]
    i, j = sch.get_loops(block)
    i_outer, lane = d.split(i, 128)
    outer, free = [i_outer], [j]
    if d.maybe(0.5):
        j_outer, j_inner = d.split(j, 16)
        outer, free = d.shuffled([i_outer, j_outer]), [j_inner]
    sch.reorder(*outer, lane, *free)
    if d.maybe(0.8):
        d.mark(P=lane, F=free[0])
    else:
        d.unmarked()
    d.on_chip(block, outer)
