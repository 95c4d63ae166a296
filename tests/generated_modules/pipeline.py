"""Lowers a Relax module as users do, fuses it in both ways, compiles it for LLVM, and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline

from fuse_epilogue.transform import FuseReductionEpilogue

#: The pipelines that are compared: without the pass, and with it under either numerics.
VARIANTS = ("unfused", "exact", "reassociate")


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

    Parameters
    ----------
    mod : tvm.IRModule
    variant : str
        Of `VARIANTS`, but not "unfused".
    options : dict
        ``rows`` and ``distribute`` of the pass.
    """
    return FuseReductionEpilogue("always", numerics=variant, **options)(mod)


class Machine:
    """A lowered module, compiled."""

    def __init__(self, mod: tvm.IRModule) -> None:
        """Compile it by the rest of Relax's default pipeline."""
        target = tvm.target.Target("llvm")
        passes = [
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
        built = tvm.compile(mod, target, relax_pipeline=tvm.ir.transform.Sequential(passes))
        self._machine = relax.VirtualMachine(built, tvm.cpu())

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs on arrays that are aligned as the compiled code expects."""
        arguments: list[Any] = [tvm.runtime.from_dlpack(array) for array in arrays]
        return [np.array(each.numpy()) for each in self._machine["main"](*arguments)]
