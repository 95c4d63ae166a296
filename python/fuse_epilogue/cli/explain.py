"""``explain``: says what can be fused in a module, and why the rest cannot."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tvm import ir, tirx

from ..report import FusionReport
from ..transform import (
    CascadeOutcome,
    FunctionReport,
    FuseCascadedReductions,
    FuseReductionEpilogue,
    ReductionReport,
    cascades_of,
    report_of,
)
from ..transform.previous_runs import fused_before
from ..transform.report import FUNCTION_ATTR
from . import fuse, inputs
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Analyse, without fusing."""
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    # Without what earlier runs say of themselves the report is of what is left.
    bare = ir.IRModule({name: func.without_attr(FUNCTION_ATTR) for name, func in funcs.items()})
    looking = FuseReductionEpilogue("never", numerics=given.numerics)
    reports = report_of(ir.transform.Sequential([looking])(bare)).functions
    chains = ir.transform.Sequential([FuseCascadedReductions("never", numerics=given.numerics)])
    cascades = {each.name: each.cascades for each in cascades_of(chains(bare)) or ()}
    texts, data = [], {}
    for each in reports:
        head = f"{each.name}: {len(each.reductions)} reduction{'s' * (len(each.reductions) != 1)}"
        if each.left_alone:
            head = f"{each.name}: not looked into: {each.reason}"
        earlier = _earlier(funcs[each.name], each)
        both = list(zip(each.reductions, earlier, strict=True))
        lines = [line for now, was in both for line in _lines(now, was)]
        lines += [line for found in cascades[each.name] for line in _chain(found)]
        texts.append("\n".join([head, *lines]))
        data[each.name] = {
            "left_alone": each.left_alone,
            "reductions": [_data(now, was) for now, was in both],
            "cascades": [vars(found) for found in cascades[each.name]],
        }
    return Answer("\n".join(texts), data, fuse.code(reports))


def _earlier(func: tirx.PrimFunc, now: FunctionReport) -> list[FusionReport | None]:
    """Return what each reduction was fused with by an earlier run; None if with nothing."""
    before = fused_before(func)
    if [each.reduction for each in before] != [each.reduction for each in now.reductions]:
        return [None] * len(now.reductions)  # the function has become another one
    return [each.fusion if each.fused else None for each in before]


def _lines(now: ReductionReport, earlier: FusionReport | None) -> Iterator[str]:
    """Yield what has been done with a reduction, and what can be."""
    name, more = f"'{now.reduction}'", " further" if earlier else ""
    if earlier is not None:
        yield from _under(f"{name} is fused already:", earlier)
    if now.fusion.fusable:
        yield from _under(f"{name} can be fused{more}:", now.fusion)
    elif earlier is None:
        yield from _under(f"{name} stays as it is:", now.fusion)


def _chain(found: CascadeOutcome) -> list[str]:
    """Return what becomes of reductions that read each other's results by rows."""
    names = " -> ".join(f"'{name}'" for name in found.reductions)
    verdict = "cannot be one loop"
    if found.rules:
        verdict = "are one loop already" if found.fused else "can be one loop"
    laws = f" ({', '.join(found.rules)})" if found.rules else ""
    lines = (f"        {line}" for line in found.text.splitlines())
    return [f"    {names} {verdict}{laws}, by fuse_cascaded_reductions:", *lines]


def _under(head: str, fusion: FusionReport) -> list[str]:
    return [f"    {head}", *(f"        {line}" for line in str(fusion).splitlines())]


def _data(now: ReductionReport, earlier: FusionReport | None) -> dict[str, Any]:
    """Return the same for machines."""
    stopped = now.fusion.stopped
    return {
        "reduction": now.reduction,
        "fused_already": [vars(step) for step in earlier.steps] if earlier else [],
        "fusable": now.fusion.fusable,
        "bytes_saved": now.bytes_saved,
        "steps": [vars(step) for step in now.fusion.steps],
        "refused": None if stopped is None else vars(stopped),
    }
