"""The report of a model whose module is scheduled: its functions, and how often each is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tvm import ir
from tvm.target import Target

from ..tir.walk import operator_name
from ..transform import FunctionSchedule, schedules_of
from ..transform.functions import relax_calls
from .report import FunctionReport, ModelReport
from .sizes import function_name, label_of


def report_of_scheduled(
    mod: ir.IRModule, target: Target, threads: int, sizes: Sequence[Mapping[str, int]] = ()
) -> ModelReport:
    """Return the report of a module that :class:`ScheduleModule` has scheduled.

    - `sizes`: combinations of sizes that the module has functions for.
    """
    schedules = {each.name: each for each in schedules_of(mod) or ()}
    functions = []
    for known in (*sizes, {}):
        calls = [
            str(call.args[0].name_hint)
            for call in relax_calls(mod[function_name(known)])
            if operator_name(call) == "relax.call_tir"
        ]
        for name, count in Counter(calls).items():
            if name in schedules:
                functions.append(function_report(schedules[name], count, label_of(known)))
    return ModelReport(tuple(functions), str(target), threads)


def function_report(schedule: FunctionSchedule, calls: int, sizes: str) -> FunctionReport:
    """Return the row of a scheduled function."""
    return FunctionReport(
        schedule.name,
        schedule.kind,
        schedule.fusion,
        calls,
        schedule.predicted_s * calls,
        why=schedule.why,
        trials=schedule.trials,
        sizes=sizes,
        ways=schedule.ways,
    )
