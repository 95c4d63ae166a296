"""Whole models: imported, compiled, called with arrays, saved.

:func:`fuse_epilogue.compile` is the one call; ``fuse_epilogue.compile(PrimFunc, ...)`` still plans
a single function.
"""

from .compiled import CompiledModel
from .front import compile
from .importing import ImportRefusal, import_model
from .pipeline import model_pipeline
from .report import FunctionReport, ModelReport
from .signature import ArrayType, Signature

__all__ = [
    "ArrayType",
    "CompiledModel",
    "FunctionReport",
    "ImportRefusal",
    "ModelReport",
    "Signature",
    "compile",
    "import_model",
    "model_pipeline",
]
