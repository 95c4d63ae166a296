"""``plan``: chooses schedules for a module's functions, and says why."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm.target import Target

from .._files import write
from .._progress import Progress
from . import inputs, output, targets
from .output import Answer


def run(given: argparse.Namespace) -> Answer:
    """Plan, and write what was asked for."""
    target = targets.planned_target(given.target)
    _check(given, target)
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    if len(funcs) > 1 and (given.out or given.picture):
        raise output.InputError(
            f"--out and --picture are for one function: pick one of {', '.join(funcs)} "
            "with --function"
        )
    texts: list[str] = []
    # A message that several functions share is said once.
    refused: dict[str, list[str]] = {}
    data: dict[str, Any] = {}
    code, progress = output.DONE, Progress()
    for number, (name, func) in enumerate(funcs.items()):
        if not given.measure:
            progress.show(name, number, len(funcs))
        what = f"{number + 1} of {len(funcs)}: {name}" if len(funcs) > 1 else name
        try:
            text, data[name] = _planned(given, func, target, functools.partial(progress.show, what))
        except ValueError as error:
            text, data[name] = "", {"error": str(error)}
            refused.setdefault(str(error), []).append(name)
            code = output.REFUSED
        if text:
            texts.append(f"{name}: {text}")
    if not given.measure:
        progress.show("planned", len(funcs), len(funcs))
    texts += [f"{', '.join(names)}: {message}" for message, names in refused.items()]
    return Answer("\n\n".join(texts), data, code)


def _check(given: argparse.Namespace, target: Any) -> None:
    """Refuse options that are for another target, and files that cannot be written."""
    for option, value in (("finite", given.finite), ("round-shares", given.round_shares)):
        if value and isinstance(target, Target):
            raise output.InputError(f"--{option} is for Trainium: leave it out for {given.target}")
    if given.measure:
        _check_measure(target)
    output.check_file("--out", given.out)
    output.check_file("--picture", given.picture)
    if given.picture and Path(given.picture).suffix.lower() != ".svg":
        raise output.InputError(f"--picture '{given.picture}': a picture is SVG, name it .svg")


def _planned(
    given: argparse.Namespace, func: Any, target: Any, bar: Callable[[int, int], None]
) -> tuple[str, dict[str, Any]]:
    """Plan a function, write what was asked for, and return what to say of it.

    - Raises ValueError: as for planning.
    """
    from ..planner import plan

    chosen = plan(
        func,
        target,
        finite=given.finite,
        round_shares=given.round_shares,
        measure=given.measure,
        on_trial=bar,
    )
    # The text takes several times as long as the plan.
    text = "" if given.json else chosen.explain(verbose=given.verbose)
    if given.out:
        write(given.out, chosen.to_json() + "\n")
    if given.picture:
        chosen.picture(given.picture)
    return text, {
        "kind": chosen.kind,
        "point": chosen.point,
        "predicted_s": chosen.cost,
        "measured_s": chosen.found.best.measured,
        "fused": chosen.fused,
        "by_fusion": {way: each.seconds for way, each in chosen.found.by_fusion.items()},
    }


def _check_measure(target: Any) -> None:
    """Refuse to time on another machine than this one."""
    from ..planner.search.trials import check_here

    if not isinstance(target, Target):
        raise output.InputError(f"--measure is for this machine: leave it out for {target}")
    try:
        check_here(target)
    except ValueError as error:
        raise output.InputError(f"--measure: {error}") from error
