"""``tune``: measures schedules of a module's functions, fused and unfused, and keeps all of it."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from tvm import ir, tirx
from tvm.target import Target

from .._progress import Progress
from . import inputs, output, targets
from .output import Answer

if TYPE_CHECKING:
    from ..tune import Trial


def run(given: argparse.Namespace) -> Answer:
    """Tune, and say what is best of each function."""
    from ..tune import LeftOut, ServersGone, tune

    target = targets.target(given.target)
    if given.tracker is not None or given.key is not None:
        target = _remote_target(given, target)
    if not isinstance(target, Target):
        raise output.InputError(
            f"--target {given.target}: no machine measures kernels for it; fuse-epilogue plan "
            "predicts them"
        )
    funcs = inputs.functions(inputs.read(given.input, given.run_python), given.function)
    left_out: list[LeftOut] = []
    ran: list[Trial] = []
    shown = _Shown()

    def on_trial(trial: Trial) -> None:
        ran.append(trial)
        shown.show(trial)

    try:
        database = tune(
            ir.IRModule(funcs),
            target,
            given.out,
            trials=given.trials,
            servers=0 if given.tracker else given.servers,
            runner=_runner(given),
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
    bests = {name: _best(database, func, target) for name, func in funcs.items()}
    return _answer(given, bests, {each.task: each.reason for each in left_out}, shown)


def _answer(
    given: argparse.Namespace,
    bests: dict[str, tuple[float | None, bool]],
    left_out: dict[str, str],
    shown: _Shown,
) -> Answer:
    """Return what to say: the best schedule of each function, or the reason it was left out."""
    texts, data, code = [], {}, output.DONE
    for name, (seconds, fused) in bests.items():
        if name in left_out:
            texts.append(f"{name}: left out, {left_out[name]}")
            code = output.REFUSED
        elif seconds is None:
            texts.append(f"{name}: no schedule could be measured")
            code = output.REFUSED
        else:
            how = "fused" if fused else "unfused"
            other = shown.best.get((name, not fused))
            than = "" if other is None else f"; best {('un', '')[not fused]}fused {_us(other)}"
            texts.append(f"{name}: {_us(seconds)} measured, {how}{than}")
        data[name] = {
            "measured_s": seconds,
            "fused": fused,
            "database": given.out,
            "left_out": left_out.get(name),
        }
    words = ["tune", given.input, "--out", given.out, "--trials", str(2 * given.trials)]
    texts += [
        "",
        "next, with the other options as before; it goes on with what is measured:",
        f"  fuse-epilogue {shlex.join(words)}",
    ]
    return Answer("\n".join(texts), data, code)


def _remote_target(given: argparse.Namespace, target: Any) -> Any:  # noqa: ANN401 - TVM's
    """Return the target of the servers: by their own description where none is named."""
    from ..planner.measurement.remote import Remote

    host, port = targets.tracker(given)
    if given.target != "host":
        return target
    try:
        return Remote(host, port, given.key).target
    except (ImportError, ValueError) as error:
        raise output.InputError(str(error)) from error


def _runner(given: argparse.Namespace) -> Any:  # noqa: ANN401 - TVM's
    """Return what measures on the servers of a tracker; None without one."""
    from ..tune import rpc_runner

    if given.tracker is None:
        return None
    host, port = targets.tracker(given)
    return rpc_runner(host, port, given.key, max(1, given.servers))


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


class _Shown:
    """Shows the trials of each function, and the best times so far, fused and unfused."""

    def __init__(self) -> None:
        self.best: dict[tuple[str, bool], float] = {}
        self._progress: dict[str, Progress] = {}

    def show(self, trial: Trial) -> None:
        """Show one trial: what it took or why it failed, and the best of either kind."""
        took = trial.error.strip().splitlines()[-1][:40] if trial.error.strip() else "failed"
        if trial.seconds is not None:
            place = trial.task, trial.fused
            self.best[place] = min(trial.seconds, self.best.get(place, trial.seconds))
            took = _us(trial.seconds)
        bests = (
            f"best {name} {_us(self.best[trial.task, fused])}"
            for fused, name in ((False, "unfused"), (True, "fused"))
            if (trial.task, fused) in self.best
        )
        progress = self._progress.setdefault(trial.task, Progress())
        progress.show(trial.task, trial.number, trial.of, "; ".join((took, *bests)))


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.2f} us"
