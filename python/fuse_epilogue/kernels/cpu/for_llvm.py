"""The last rewriting of every function that LLVM compiles for a processor."""

from __future__ import annotations

from tvm import tirx

from .conditional_division import with_conditional_divisions
from .vector_math import with_vector_functions


def for_llvm(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function as it is compiled for a processor.

    The transcendental functions of float32 are sums and products, which LLVM vectorizes: see
    :mod:`fuse_epilogue.kernels.cpu.vector_math`. Integers are divided only where a choice asks for
    the quotient: see :mod:`fuse_epilogue.kernels.cpu.conditional_division`.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Scheduled or not; stays as it is.

    Returns
    -------
    tvm.tirx.PrimFunc

    Example
    -------
    >>> from fuse_epilogue.schedules import cpu
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> func = depthwise_conv1d(1, 8, 64, 3, activation="silu")
    >>> "T.sigmoid" in func.script(), "T.sigmoid" in cpu.for_llvm(func).script()
    (True, False)
    """
    return func.with_body(with_conditional_divisions(with_vector_functions(func.body)))
