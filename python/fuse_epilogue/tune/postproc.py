"""MetaSchedule's step that takes inits out of their loops, for inits that read a buffer.

TVM's ``RewriteReductionBlock`` calls TVM's ``decompose_reduction`` from C++, which takes every init
for a constant: of a fused block it would declare no reads, and lift the init above the bias that it
reads. Such blocks have to be decomposed before it comes; then it finds none of them.
"""

from __future__ import annotations

from typing import Any

from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.postproc.postproc import _PyPostproc

from .. import _core

_TVMS_OWN = "RewriteReductionBlock"


def decompose_fused() -> Postproc:
    """Return the postprocessor that decomposes every reduction whose init reads a buffer.

    Its work is in C++: MetaSchedule calls it thousands of times, from threads of its own.

    Returns
    -------
    tvm.s_tir.meta_schedule.Postproc
        Applied to a schedule, it returns false where the result would not be the same: where the
        bias is computed inside of the loop that the init would leave, or where a loop of the
        reduction is bound to threads, which TVM refuses later. MetaSchedule drops the candidate.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import tune, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(16, 16, 16))
    >>> print(sch.fuse_reduction_epilogue("matmul"))
    'matmul' absorbed bias[v_n] from 'bias' into T.init; 'summed' is gone. (numerics: reassociate)
    >>> sch.enter_postproc()
    >>> tune.decompose_fused().apply(sch)
    True
    """
    return _PyPostproc(lambda context: None, _core.DecomposeInitReads, decompose_fused)


def with_decompose_fused(postprocs: Any) -> list[Postproc]:  # noqa: ANN401 - a list or ffi array
    """Return postprocessors with :func:`decompose_fused` in front of TVM's own step.

    Parameters
    ----------
    postprocs : Sequence[tvm.s_tir.meta_schedule.Postproc]
        For example ``Postproc.create("llvm")``.

    Returns
    -------
    list[tvm.s_tir.meta_schedule.Postproc]
        The same where there is no ``RewriteReductionBlock`` among them.

    Example
    -------
    >>> from tvm.s_tir.meta_schedule import Postproc
    >>> from fuse_epilogue import tune
    >>> plain = Postproc.create("llvm")
    >>> len(tune.with_decompose_fused(plain)) - len(plain)
    1
    """
    safe: list[Postproc] = []
    for postproc in postprocs:
        if type(postproc).__name__ == _TVMS_OWN:
            safe.append(decompose_fused())
        safe.append(postproc)
    return safe
