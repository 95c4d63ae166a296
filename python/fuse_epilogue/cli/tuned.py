"""``tune``: measures schedules of a module's functions, fused and unfused, and keeps all of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tvm import ir, tirx
from tvm.target import Target

from . import inputs, options, output
from .output import Answer

if TYPE_CHECKING:
    from ..tune import Trial

HELP = "search schedules by measuring them, with fusion in the search space; goes on if stopped"
DESCRIPTION = """
Tune each function with TVM's MetaSchedule, with fused and unfused reductions in the search space.
Every measurement is in the database in FOLDER as soon as it is made: a run that was stopped goes on
when it is started again with the same folder. With --servers, measurements run in processes of
TVM's RPC on this machine, which listen on the loopback interface only: TVM's RPC trusts its
network, and anyone who reaches a server may run code there.
"""
EXAMPLE = """
  python -m fuse_epilogue tune model.json --out tuned --trials 64
  python -m fuse_epilogue tune model.json --out tuned --trials 256 --servers 1 --function matmul
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", required=True, help="where the database is"
    )
    parser.add_argument(
        "--trials", type=int, default=64, help="measurements of each function (default: 64)"
    )
    parser.add_argument(
        "--target", default="host", help=f"{options.TARGETS}; with num-cores (default: host)"
    )
    parser.add_argument("--function", metavar="NAME", help="tune this one only (default: all)")
    parser.add_argument(
        "--servers", type=int, default=0, help="processes that measure (default: 0, this one does)"
    )
    parser.add_argument(
        "--cost-model",
        choices=["xgb", "random"],
        default="xgb",
        help="what chooses what is measured; xgb needs the package xgboost (default: xgb)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")


def run(given: argparse.Namespace) -> Answer:
    """Tune, and say what is best of each function."""
    from ..tune import LeftOut, ServersGone, tune

    target = options.target(given.target)
    if not isinstance(target, Target):
        raise inputs.InputError(f"--target {given.target}: there is nothing to measure on")
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
        raise inputs.InputError(str(error)) from error
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
