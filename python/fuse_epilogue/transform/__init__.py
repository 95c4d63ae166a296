"""Passes over whole modules: every reduction with its epilogue, in every function.

- :class:`FuseReductionEpilogue` is the pass; it composes with TVM's own.
- :func:`report_of` returns what it did, as a :class:`Report`, from the module that it returned.
"""

from .decide import POLICIES
from .fuse import FuseReductionEpilogue
from .report import FunctionReport, ReductionReport, Report, report_of

__all__ = [
    "POLICIES",
    "FunctionReport",
    "FuseReductionEpilogue",
    "ReductionReport",
    "Report",
    "report_of",
]
