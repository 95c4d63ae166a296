"""Fuse a reduction and the elementwise work that follows it into one pass over memory.

An extension of Apache TVM. ``import tvm`` loads it (through the ``tvm.backends`` entry point);
where autoload is off, ``import fuse_epilogue`` does the same. Either adds to
:class:`tvm.s_tir.Schedule` the sound primitive
:func:`~fuse_epilogue.fuse_reduction_epilogue`. Type checkers see what was added in
``fuse_epilogue.Schedule``, which is the same class.

Example
-------
>>> import tvm
>>> from fuse_epilogue import workloads
>>> sch = tvm.s_tir.Schedule(workloads.matmul(64, 64, 16))
>>> print(sch.fuse_reduction_epilogue("matmul"))
'matmul' absorbed bias[v_n] from 'bias' into T.init; 'summed' is gone.
"""


# Defined before tvm is imported: `import tvm` calls it while this module is still being loaded.
def _autoload() -> None:
    """Entry point of the group ``tvm.backends``: importing this module is all there is to do."""


from typing import TYPE_CHECKING, Any  # noqa: E402

from .certificate import Certificate, EpilogueProof, TailProof  # noqa: E402
from .report import REFUSALS, FusionReport, FusionStep, Refusal, refusal_code  # noqa: E402
from .schedule import FusingSchedule as Schedule  # noqa: E402
from .schedule import analyze, fuse_reduction_epilogue  # noqa: E402

if TYPE_CHECKING:
    from .planner import compile, plan

__version__ = "0.1.0"

__all__ = [
    "REFUSALS",
    "Certificate",
    "EpilogueProof",
    "FusionReport",
    "FusionStep",
    "Refusal",
    "Schedule",
    "TailProof",
    "analyze",
    "compile",
    "fuse_reduction_epilogue",
    "plan",
    "refusal_code",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function of the planner
    """Load the planner when it is asked for: `import tvm` alone does not need it."""
    if name in ("compile", "plan"):
        from . import planner

        return getattr(planner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
