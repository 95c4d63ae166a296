"""The claims of a certificate about loops and index maps, each proved again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Range, prim
from tvm.sym.iter_affine_map import IterMapLevel, detect_iter_map

from ...tir.walk import handle, same_all
from ..proof.domain import (
    Domain,
    NotIndex,
    block_axes,
    evaluate_index,
    in_range,
    loop_domain,
    one_to_one,
)
from .subject import Subject, demand
from .tree import Block, free_variables


def check_variables(subject: Subject) -> None:
    """Demand that every expression of the certificate is one of what it may depend on.

    An inverse that mentioned the loops it is the inverse of would prove nothing.

    - Raises CertificateError: naming the expression.
    """
    certificate = subject.certificate
    outer = subject.outer
    elements = outer | {handle(var) for var, _, _ in subject.spatial}
    steps = elements | {handle(var) for var, _, _ in subject.reducing}
    hole = elements | {handle(certificate.hole)}
    alike = certificate.hole.ty.dtype == certificate.accumulator.ty.dtype.dtype
    demand(alike, "hole", f"it is not of the type of '{certificate.accumulator.name}'")
    _demand_variables("indices", certificate.indices, elements)
    _demand_variables("result_indices", certificate.result_indices, elements)
    _demand_variables("init", [certificate.init], elements)
    _demand_variables("absorbed", [certificate.absorbed], hole)
    _demand_variables("distributed", [certificate.distributed], hole)
    _demand_variables("inverse", certificate.inverse, steps)
    for place, (proof, block) in enumerate(
        zip(certificate.epilogues, subject.epilogues, strict=True)
    ):
        axes = [axis.var for axis in block.block.iter_vars]
        reason = f"not the axes of '{block.name}'"
        demand(same_all(axes, proof.axes), f"epilogues[{place}].axes", reason)
        own = outer | {handle(var) for var in proof.axes}
        _demand_variables(f"epilogues[{place}].h", proof.h, elements)
        _demand_variables(f"epilogues[{place}].inverse", proof.inverse, own)
    for place, proof in enumerate(certificate.tails):
        _demand_variables(f"tails[{place}].indices", proof.indices, elements)
        _demand_variables(f"tails[{place}].value", [proof.value], elements)


def _demand_variables(claim: str, exprs: Sequence[Any], allowed: set[int]) -> None:
    for expr in exprs:
        for var in free_variables(expr):
            free = handle(var) not in allowed and not isinstance(var.ty, tirx.BufferType)
            demand(not free, claim, f"it depends on '{var.name}'")


def check_loops(subject: Subject) -> None:
    """Prove that the loops of all blocks run every instance once.

    - Raises CertificateError: naming loops, inverse or h of the block for which that is not proved.
    """
    certificate = subject.certificate
    _check_block_loops(subject.reduction, certificate.loops, certificate.inverse, "", subject.sizes)
    for place, (proof, block) in enumerate(
        zip(certificate.epilogues, subject.epilogues, strict=True)
    ):
        claim = f"epilogues[{place}]."
        _check_block_loops(block, proof.loops, proof.inverse, claim, subject.sizes)
        _check_domain(subject, block, proof.h, f"{claim}h")


def _check_block_loops(
    block: Block, loops: Any, inverse: Any, claim: str, sizes: Sequence[Any]
) -> None:
    found = [loop.loop_var for loop in block.loops]
    demand(same_all(found, loops), f"{claim}loops", f"not the loops around '{block.name}'")
    failed = one_to_one(
        loop_domain(block.loops, block.realize.predicate, sizes),
        list(block.realize.iter_values),
        block_axes(block.block),
        list(inverse),
    )
    demand(not failed, f"{claim}inverse", failed)


def _check_domain(subject: Subject, block: Block, h: Any, claim: str) -> None:
    """Prove that h takes elements into the domain of an epilogue, and that both have one size.

    That needs no proof of its own: h is one to one since the epilogue's output is, as a function
    of the element.
    """
    axes = block_axes(block.block)
    demand(len(axes) == len(h), claim, "the number of axes differs")
    for (var, start, extent), value in zip(axes, h, strict=True):
        demand(
            subject.elements.holds(in_range(value, start, extent)),
            claim,
            f"{value} leaves the domain of '{var.name}'",
        )
    sizes = [_volume([axis[2] for axis in side]) for side in (subject.spatial, axes)]
    reason = f"'{block.name}' has another number of elements"
    demand(subject.elements.holds(prim.EQ(*sizes)), claim, reason)


def _volume(extents: Sequence[Any]) -> Any:
    total: Any = prim.IntImm("int64", 1)
    for extent in extents:
        total = prim.Mul(total, prim.Cast("int64", extent))
    return total


def injective(domain: Domain, exprs: Sequence[Any]) -> bool:
    """Whether different points of a domain are proved to have different indices."""
    free = domain.free
    try:
        for sizes in domain.samples(free):
            points = domain.points(sizes)
            if points is None:
                break
            count = max((len(values) for values in points.values()), default=1)
            rows = [
                np.broadcast_to(evaluate_index(expr, {**sizes, **points}), (count,))
                for expr in exprs
            ]
            distinct = np.unique(np.stack(rows, axis=1), axis=0).shape[0] if rows else min(count, 1)
            if distinct != count:
                return False
        else:
            if not free:
                return True
    except NotIndex:
        pass
    ranges = {var: Range.from_min_extent(start, extent) for var, start, extent in domain.axes}
    found = detect_iter_map(list(exprs), ranges, check_level=IterMapLevel.Bijective)
    return bool(len(found.indices))
