"""The compilation of candidates, in processes of their own."""

from __future__ import annotations

from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.target import Target

from ..workloads.arguments import whole


def local_builder(workers: int, seconds: float = 120) -> LocalBuilder:
    """Return TVM's builder, without what it imports in each of its processes and never uses.

    TVM's default build function imports all of TVM's tensor intrinsics, which takes 15 s of
    processor time on a core of 2026 and comes to more than compiling a batch. They are for
    schedules that are yet to be tensorised; a candidate is one that has been.

    Parameters
    ----------
    workers : int
        How many candidates are compiled at once, from 1.
    seconds : float
        After how long one is given up.

    Returns
    -------
    tvm.s_tir.meta_schedule.builder.LocalBuilder

    Raises
    ------
    ImportError
        A package that TVM needs for it is missing.
    ValueError
        `workers` is not an int from 1, or `seconds` is not a positive number.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> type(tune.local_builder(2)).__name__
    'LocalBuilder'
    """
    # TVM's pool of processes looks at the number too late: what is half made of it fails once more.
    whole("workers", workers)
    if not seconds > 0:
        raise ValueError(f"seconds must be positive: {seconds!r}")
    return LocalBuilder(max_workers=workers, timeout_sec=seconds, f_build=_build)


def _build(mod: IRModule, target: Target, params: Any) -> Any:  # noqa: ANN401 - a module of TVM
    """Compile, as TVM's default does."""
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target=target)
