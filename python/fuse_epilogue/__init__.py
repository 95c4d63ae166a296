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


import importlib  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from tvm.relax import pipeline as _relax_pipeline  # noqa: E402

from .certificate import Certificate, EpilogueProof, TailProof  # noqa: E402
from .report import REFUSALS, FusionReport, FusionStep, Refusal, refusal_code  # noqa: E402
from .schedule import FusingSchedule as Schedule  # noqa: E402
from .schedule import analyze, fuse_reduction_epilogue  # noqa: E402

if TYPE_CHECKING:
    from . import cli, models, neuron, planner, schedules, transform, tune, verify, workloads
    from .models import compile, load
    from .planner import plan

__version__ = "0.1.0"

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
#: Functions by the subpackage that has them.
_FUNCTIONS = {"compile": "models", "load": "models", "plan": "planner"}

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
    "cli",
    "compile",
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


def _pipeline(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - a pass of TVM
    """Return the pipeline for whole models: :func:`fuse_epilogue.models.model_pipeline`."""
    return importlib.import_module(".models", __name__).model_pipeline(*args, **options)


# tvm.compile(mod, relax_pipeline="fuse_epilogue") needs nothing but `import tvm`.
_relax_pipeline.PIPELINE_MAP.setdefault("fuse_epilogue", _pipeline)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module, or a function of one
    """Load a subpackage, or a function of one, on first use."""
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f".{_FUNCTIONS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*__all__, "__version__"])
