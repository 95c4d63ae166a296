"""Whole models: imported, compiled, called with arrays, saved.

:func:`fuse_epilogue.compile` is the one call; ``fuse_epilogue.compile(PrimFunc, ...)`` still plans
a single function.
"""

# Where things are:
#   front.py, importing.py, pipeline.py                      the call, and its way to machine code
#   compiled.py, signature.py, arrays.py, sizes.py, report.py     the compiled model
#   saved.py, database.py                                    files
#   torch_*.py        torch: operators that TVM imports otherwise (torch_ops.py names them by file),
#                     the backend of torch.compile (torch_backend.py, torch_graph.py)
#   onnx_*.py         ONNX: operators (onnx_nodes.py), guards of its attention, quantised numbers
#   neuron_*.py       packages for Trainium
#   tir_main.py       functions that are not models
# Passes on Relax, which pipeline.py puts in order; rewriting.py is how one is written:
#   cleanup.py, pads.py, bools.py                          operators that change nothing, or little
#   channels_last.py, transposes.py                          layouts
#   reshapes.py, unflattened.py                            products
#   narrow_products.py, integer_convolutions.py              products of integers
#   transposed.py                                            transposed convolutions
#   attention_groups.py, one_function.py, constant_masks.py  attention as one function

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
