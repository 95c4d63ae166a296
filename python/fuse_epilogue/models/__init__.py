"""Whole models: imported, compiled, called with arrays, saved.

:func:`fuse_epilogue.compile` is the one call; ``fuse_epilogue.compile(PrimFunc, ...)`` still plans
a single function.
"""

from .compiled import CompiledModel
from .database import Database, DatabaseError
from .front import compile
from .importing import ImportRefusal, import_model
from .neuron_package import NeuronPackage
from .pipeline import model_pipeline
from .report import FunctionReport, ModelReport
from .saved import SavedModelError, load
from .signature import ArrayType, Signature

__all__ = [
    "ArrayType",
    "CompiledModel",
    "Database",
    "DatabaseError",
    "FunctionReport",
    "ImportRefusal",
    "ModelReport",
    "NeuronPackage",
    "SavedModelError",
    "Signature",
    "compile",
    "import_model",
    "load",
    "model_pipeline",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
