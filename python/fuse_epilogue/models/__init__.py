"""Whole models, and single functions: imported, compiled, called with arrays, saved.

:func:`fuse_epilogue.compile` is the one call.
"""

# Where things are:
#   front.py, importing.py, pipeline.py, compiling.py    the call, and its way to machine code
#   import_refusal.py                                    the error for what cannot be imported
#   torch_backend.py, torch_graph.py                     the call as a backend of torch.compile
#   compiled.py, signature.py, arrays.py, sizes.py       the compiled model
#   derived_sizes.py                                     inputs of sizes such as 32*d
#   compiled_function.py                                 a compiled function
#   index_errors.py                                      the error for an index that is outside
#   report.py, scheduled_report.py                       its table of functions
#   saved.py, manifest.py, database.py                   files
#   tir_main.py                                          functions that are not models
#   torch/, onnx/     operators that TVM imports otherwise
#   graph/            passes on Relax, which pipeline.py puts in order
#   neuron/           packages for Trainium

from .compiled import CompiledModel
from .compiled_function import CompiledFunction
from .database import Database, DatabaseError
from .front import compile
from .import_refusal import ImportRefusal
from .importing import import_model
from .manifest import SavedModelError
from .neuron.package import NeuronPackage
from .pipeline import model_pipeline
from .report import FunctionReport, ModelReport
from .saved import load
from .signature import ArrayType, Signature

__all__ = [
    "ArrayType",
    "CompiledFunction",
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
