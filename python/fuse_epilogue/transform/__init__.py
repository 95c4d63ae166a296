"""Passes over whole modules: every reduction with its epilogue, in every function.

- :class:`FuseReductionEpilogue` is the pass; it composes with TVM's own.
- :class:`FuseCascadedReductions` makes one loop of each cascade, such as attention;
  :func:`cascades_of` returns what became of each.
- :class:`ScheduleModule` is the pass that gives every function a kernel for a processor;
  :func:`schedules_of` returns what became of each.
- :func:`report_of` returns what it did, as a :class:`Report`, from the module that it returned.
"""

# Where things are:
#   fuse.py, fuse_one.py, policy.py, previous_runs.py    the pass that fuses; whether it is worth it
#   cascades.py, move_inputs.py                      the pass for cascades
#   schedule_module.py, kinds.py                     kernels: which kinds a function is offered to
#   chosen.py, timed.py, constants.py                which candidate is taken: predicted or timed
#   shared_lanes.py                                  one variable for all vectors, for TVM's sake
#   report.py, cascade_report.py                     what became of each function
#   functions.py                                     a module's functions in turn, and its report

from .cascade_report import CascadeOutcome, FunctionCascades, cascades_of
from .cascades import CASCADE_POLICIES, FuseCascadedReductions
from .fuse import FuseReductionEpilogue
from .policy import POLICIES
from .report import FunctionReport, ReductionReport, Report, report_of
from .schedule_module import FunctionSchedule, ScheduleModule, schedules_of

__all__ = [
    "CASCADE_POLICIES",
    "POLICIES",
    "CascadeOutcome",
    "FunctionCascades",
    "FunctionReport",
    "FunctionSchedule",
    "FuseCascadedReductions",
    "FuseReductionEpilogue",
    "ReductionReport",
    "Report",
    "ScheduleModule",
    "cascades_of",
    "report_of",
    "schedules_of",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
