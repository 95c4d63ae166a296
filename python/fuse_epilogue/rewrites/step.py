"""A rewriting of a function as a step of its schedule."""

from __future__ import annotations

from typing import Any

from tvm import s_tir

#: What the names of all rewritings begin with, for TVM.
PREFIX = "fuse_epilogue."


class NotRewritten(ValueError):
    """A function is not one that a rewriting is for; the text says why."""


def rewrite(sch: s_tir.Schedule, block: Any, rewriting: str, **parameters: int) -> None:
    """Rewrite the function of a block, as a step that the trace keeps.

    A step of TVM's trace is a call of a primitive, and there is none for what TVM's primitives do
    not express. So this is a call of ``tensorize`` by an intrinsic that TVM does not know, whose
    name has everything: ``sch.tensorize(block, "fuse_epilogue.rows(lanes=16, ...)")``. The core
    takes such calls over, live or replayed from a trace or its JSON. TVM without this package
    refuses them: there is no intrinsic of that name.

    Random variables stay valid if they are of the root block, of a block whose name is that of one
    block before and after, or of a loop that keeps its variable (of one that is split, the first
    part). Others are so no more, as after ``compute_inline``.

    - `block` (SBlockRV): the block to rewrite; the root block for the whole function.
    - `rewriting`: a key of :data:`fuse_epilogue.kernels.steps.REWRITINGS`.
    - `**parameters`: its parameters, in their order.
    - Raises tvm.s_tir.ScheduleError: the function is not one that the rewriting is for
      (``"rewriting"`` is the code of the refusal). Module, trace and random variables are as they
      were.
    - Raises ValueError: there is no such rewriting, or it has other parameters.
    """
    values = ", ".join(f"{name}={int(value)}" for name, value in parameters.items())
    sch.tensorize(block, f"{PREFIX}{rewriting}({values})")
