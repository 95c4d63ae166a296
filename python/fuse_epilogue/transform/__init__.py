"""Passes over whole modules: every reduction with its epilogue, in every function.

- :class:`FuseReductionEpilogue` is the pass; it composes with TVM's own.
- :class:`ScheduleModule` is the pass that gives every function a kernel for a processor;
  :func:`schedules_of` returns what became of each.
- :func:`report_of` returns what it did, as a :class:`Report`, from the module that it returned.
"""

from .decide import POLICIES
from .fuse import FuseReductionEpilogue
from .report import FunctionReport, ReductionReport, Report, report_of
from .schedule_module import FunctionSchedule, ScheduleModule, schedules_of

__all__ = [
    "POLICIES",
    "FunctionReport",
    "FunctionSchedule",
    "FuseReductionEpilogue",
    "ReductionReport",
    "Report",
    "ScheduleModule",
    "report_of",
    "schedules_of",
]
