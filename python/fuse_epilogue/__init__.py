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
'matmul' absorbed bias[v_n] from 'bias' into T.init; 'summed' is gone. (numerics: reassociate)
"""


# Defined before tvm is imported: `import tvm` calls it while this module is still being loaded.
def _autoload() -> None:
    """Entry point of the group ``tvm.backends``: importing this module is all there is to do."""


import importlib  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from ._extend import extend_tvm  # noqa: E402
from ._version import VERSION  # noqa: E402

if TYPE_CHECKING:
    from . import cli, models, neuron, planner, schedules, transform, tune, verify, workloads
    from .cascade import CascadeReport, analyze_cascade, fuse_cascaded_reductions
    from .cascade_certificate import CascadeCertificate, CascadeStage
    from .certificate import Certificate, EpilogueProof, TailProof
    from .models import compile, load
    from .planner import plan
    from .report import REFUSALS, FusionReport, FusionStep, Refusal, refusal_code
    from .schedule import FusingSchedule as Schedule
    from .schedule import analyze, fuse_reduction_epilogue

__version__ = VERSION

# Loaded when they are asked for: `import tvm` alone needs none of them.
_SUBMODULES = (
    "cli",
    "models",
    "neuron",
    "planner",
    "schedules",
    "transform",
    "tune",
    "verify",
    "workloads",
)
#: What is public here, by the module that has it, and the name that it has there.
_NAMES = {
    "CascadeCertificate": ("cascade_certificate", "CascadeCertificate"),
    "CascadeReport": ("cascade", "CascadeReport"),
    "CascadeStage": ("cascade_certificate", "CascadeStage"),
    "Certificate": ("certificate", "Certificate"),
    "EpilogueProof": ("certificate", "EpilogueProof"),
    "FusionReport": ("report", "FusionReport"),
    "FusionStep": ("report", "FusionStep"),
    "REFUSALS": ("report", "REFUSALS"),
    "Refusal": ("report", "Refusal"),
    "Schedule": ("schedule", "FusingSchedule"),
    "TailProof": ("certificate", "TailProof"),
    "analyze": ("schedule", "analyze"),
    "analyze_cascade": ("cascade", "analyze_cascade"),
    "compile": ("models", "compile"),
    "fuse_cascaded_reductions": ("cascade", "fuse_cascaded_reductions"),
    "fuse_reduction_epilogue": ("schedule", "fuse_reduction_epilogue"),
    "load": ("models", "load"),
    "plan": ("planner", "plan"),
    "refusal_code": ("report", "refusal_code"),
}

__all__ = [
    "REFUSALS",
    "CascadeCertificate",
    "CascadeReport",
    "CascadeStage",
    "Certificate",
    "EpilogueProof",
    "FusionReport",
    "FusionStep",
    "Refusal",
    "Schedule",
    "TailProof",
    "analyze",
    "analyze_cascade",
    "cli",
    "compile",
    "fuse_cascaded_reductions",
    "fuse_reduction_epilogue",
    "load",
    "models",
    "neuron",
    "plan",
    "planner",
    "refusal_code",
    "schedules",
    "transform",
    "tune",
    "verify",
    "workloads",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module, or what one has
    """Load a subpackage, or what another module has, on first use."""
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        module, there = _NAMES[name]
        return getattr(importlib.import_module(f".{module}", __name__), there)
    # With both names, Python 3.12 and later add a similar name of __dir__ to the message.
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*__all__, "__version__"])


def _is_command_line() -> bool:
    """Whether Python was started for the command line, whose help has no need of TVM."""
    words = getattr(sys, "orig_argv", [])
    as_module = any(pair == ("-m", __name__) for pair in zip(words, words[1:], strict=False))
    return as_module or os.path.basename(sys.argv[0] if sys.argv else "") == "fuse-epilogue"


if "tvm" in sys.modules or not _is_command_line():
    extend_tvm()
