"""The C++ core: loaded once, checked against the running TVM, its functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi

from . import _lib
from .tir.renamed import alias_fields

#: The TVM releases whose IR the core was written for.
SUPPORTED_SERIES = "0.27"


def unsupported_message(missing: list[str]) -> str:
    """Say that the running TVM lacks what the core needs.

    - `missing`: entries such as ``"type tirx.For"`` or ``"field tirx.For.step"``; not empty.
    - Returns: one sentence that names the supported series and the running version.
    """
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return (
        f"fuse_epilogue supports Apache TVM {SUPPORTED_SERIES}, but this is TVM {tvm.__version__}, "
        f"which lacks {', '.join(missing[:3])}{more}; install 'apache-tvm=={SUPPORTED_SERIES}.*'."
    )


def _initialize() -> None:
    _lib.load()
    missing = [str(item) for item in _function("Initialize")()]
    if missing:
        raise ImportError(unsupported_message(missing))
    alias_fields([tuple(map(str, row)) for row in _function("RenamedFields")()])


def _function(name: str) -> Any:  # noqa: ANN401 - an ffi function takes and returns anything
    return tvm_ffi.get_global_func(f"fuse_epilogue.{name}")


_initialize()

AnalyzeCascadedReductions = _function("AnalyzeCascadedReductions")
AnalyzeReductionEpilogue = _function("AnalyzeReductionEpilogue")
FuseCascadedReductions = _function("FuseCascadedReductions")
FuseFunction = _function("FuseFunction")
FuseReductionEpilogue = _function("FuseReductionEpilogue")
DecomposeReduction = _function("DecomposeReduction")
DecomposeInitReads = _function("DecomposeInitReads")
Guarded = _function("Guarded")
MissingFrom = _function("MissingFrom")
Reductions = _function("Reductions")
Refusals = _function("Refusals")


def register_rewriting(rewritten: Callable[[Any, Any, str], Any]) -> None:
    """Name the one function that the core calls: a step of a schedule that is a rewriting.

    - `rewritten`: from a function, one of its blocks and the name of a step, as
      :func:`fuse_epilogue.kernels.steps.rewritten`.
    """
    tvm_ffi.register_global_func("fuse_epilogue.Rewritten", rewritten, override=True)
