"""Gives vectors of one length one variable, before TVM lowers a module.

TVM keeps what it knows of the variable of every loop of a function, and goes through all of it to
simplify an index. That takes the square of the number of loops: 25 s for the 1,500 vectors in the
tiles of a convolution with 80 taps, and less than 1 s with one variable.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.ir import prim

from ..tir.build import replace, with_fields
from ..tir.walk import parts_of, substitute


@tvm.transform.module_pass(opt_level=0, name="ShareLanes")
def share_lanes(mod: ir.IRModule, _context: Any) -> ir.IRModule:
    """Let all vectors of one length in a function have one variable, which TVM's kernels allow."""
    functions = {
        var: _with_shared_lanes(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions.items()
    }
    return ir.IRModule(functions, mod.attrs, mod.global_infos)


def keeping_lanes() -> Any:
    """Return the current PassContext, with shared variables kept until there are vectors.

    ``InjectSoftwarePipeline`` renames them, and does nothing else to kernels for processors. A
    context with instruments stays: to leave another one with them would end their measurements.
    """
    now = tvm.transform.PassContext.current()
    if now.instruments:
        return contextlib.nullcontext()
    return tvm.transform.PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=[*now.disabled_pass, "s_tir.InjectSoftwarePipeline"],
        config=dict(now.config),
    )


def _with_shared_lanes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    shared: dict[tuple[str, int], Any] = {}

    def with_shared(loop: Any) -> Any:
        constant = isinstance(loop.min, prim.IntImm) and isinstance(loop.extent, prim.IntImm)
        if loop.kind != tirx.ForKind.VECTORIZED or not constant or int(loop.min) != 0:
            return loop
        if any(each.kind == tirx.ForKind.VECTORIZED for each in parts_of(loop.body, tirx.For)):
            return loop  # Its variable must not be that of a vector in it.
        own = loop.loop_var
        var = shared.setdefault((str(own.ty.dtype), int(loop.extent)), own)
        if var.same_as(own):
            return loop
        return with_fields(loop, loop_var=var, body=substitute(loop.body, {own: var}))

    return func.with_body(replace(func.body, tirx.For, with_shared))
