"""Lowers a Relax module as users do, fuses it in both ways, compiles it for LLVM, and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax
from tvm.relax.backend.cpu_generic import pipeline

from fuse_epilogue.schedules import host
from fuse_epilogue.transform import FuseReductionEpilogue

#: The pipelines that are compared: without the pass, and with it under either numerics.
VARIANTS = ("unfused", "exact", "reassociate")

#: What modules are compiled for as models: this machine.
PROCESSOR = host(1)


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module of Relax as `FuseTIR` leaves it."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.ir.transform.Sequential(passes)(mod)


def fused(mod: tvm.IRModule, variant: str, options: dict[str, bool]) -> tvm.IRModule:
    """Return a lowered module with whatever is fusable fused.

    - `variant`: of `VARIANTS`, but not "unfused".
    - `options`: ``rows`` and ``distribute`` of the pass.
    """
    return FuseReductionEpilogue("always", numerics=variant, **options)(mod)


def together(variants: dict[str, tvm.IRModule]) -> tvm.IRModule:
    """Return several variants of a lowered module as one, for one call of the compiler.

    - `variants`: by name; the function ``main`` of each becomes one of that name. Functions of TIR
      that are the same object as in the first variant are compiled once.
    """
    functions: dict[Any, Any] = {}
    first: dict[str, tuple[Any, Any]] = {}
    for variant, mod in variants.items():
        named = {}
        for var, func in mod.functions.items():
            if isinstance(func, relax.Function):
                continue
            name = str(var.name_hint)
            first.setdefault(name, (var, func))
            if first[name][1].same_as(func):
                named[name] = first[name][0]
            else:
                named[name] = ir.GlobalVar(f"{name}_{variant}")
                relax.expr._update_type(named[name], var.ty)
            functions[named[name]] = func
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                renamed = [(ir.GlobalVar, lambda var, of=named: of[str(var.name_hint)])]
                main = tvm_ffi.structural_map(func, renamed)
                functions[ir.GlobalVar(variant)] = main.with_attr("global_symbol", variant)
    mod = next(iter(variants.values()))
    return ir.IRModule(functions, mod.attrs, mod.global_infos)


class Machine:
    """Variants of a lowered module, compiled together."""

    def __init__(self, variants: dict[str, tvm.IRModule]) -> None:
        """Compile them by the rest of Relax's default pipeline."""
        target = tvm.target.Target("llvm")
        passes = [
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
        built = tvm.compile(
            together(variants), target, relax_pipeline=tvm.ir.transform.Sequential(passes)
        )
        self._machine = relax.VirtualMachine(built, tvm.cpu())

    def __call__(self, variant: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs on arrays that are aligned as the compiled code expects."""
        arguments: list[Any] = [tvm.runtime.from_dlpack(array) for array in arrays]
        return [np.array(each.numpy()) for each in self._machine[variant](*arguments)]
