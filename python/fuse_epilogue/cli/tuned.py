"""``tune``: measures schedules of a module's functions, fused and unfused, and keeps all of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tvm import ir, tirx
from tvm.target import Target

from . import inputs, output, targets
from .output import Answer

if TYPE_CHECKING:
    from ..tune import Trial


def run(given: argparse.Namespace) -> Answer:
    """Tune, and say what is best of each function."""
    from ..tune import LeftOut, ServersGone, tune

    target = targets.target(given.target)
    if not isinstance(target, Target):
        raise output.InputError(f"--target {given.target}: there is nothing to measure on")
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    left_out: list[LeftOut] = []
    ran: list[Trial] = []

    def on_trial(trial: Trial) -> None:
        ran.append(trial)
        _progress(trial)

    try:
        database = tune(
            ir.IRModule(funcs),
            target,
            given.out,
            trials=given.trials,
            servers=given.servers,
            cost_model=given.cost_model,
            seed=given.seed,
            on_trial=on_trial,
            on_left_out=left_out.append,
        )
    except (ImportError, ValueError) as error:
        if ran:  # the mistake is not the user's, and something was done
            return _stopped(error)
        raise output.InputError(str(error)) from error
    except ServersGone as error:
        return _stopped(error)
    reasons = {each.task: each.reason for each in left_out}
    texts, data, code = [], {}, output.DONE
    for name, func in funcs.items():
        seconds, fused = _best(database, func, target)
        if name in reasons:
            texts.append(f"{name}: left out, {reasons[name]}")
            code = output.REFUSED
        elif seconds is None:
            texts.append(f"{name}: no schedule could be measured")
            code = output.REFUSED
        else:
            how = "fused" if fused else "unfused"
            texts.append(f"{name}: {1e6 * seconds:.2f} us measured, {how}")
        data[name] = {
            "measured_s": seconds,
            "fused": fused,
            "database": given.out,
            "left_out": reasons.get(name),
        }
    return Answer("\n".join(texts), data, code)


def _stopped(error: Exception) -> Answer:
    """Return what to say of a run that ended before its trials did."""
    return Answer(f"stopped: {error}", {"stopped": str(error)}, output.REFUSED)


def _best(database: Any, func: tirx.PrimFunc, target: Target) -> tuple[float | None, bool]:
    """Return the mean seconds of the best schedule of a function, and whether it is fused."""
    from ..tune.strategy import fusions, mean

    alone = ir.IRModule({"main": func.with_attr("global_symbol", "main")})
    record = database.query_tuning_record(alone, target, "main")
    if record is None:
        return None, False
    return mean(record.run_secs), fusions(record.trace) > 0


def _progress(trial: Trial) -> None:
    """Redraw the progress bar, with what the last trial took or why it failed."""
    took = trial.error.strip().splitlines()[-1][:40] if trial.seconds is None else ""
    took = took or f"{1e6 * (trial.seconds or 0):.1f} us"
    output.progress(trial.task, trial.number, trial.of, took)
