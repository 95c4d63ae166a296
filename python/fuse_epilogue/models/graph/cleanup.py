"""Removes operators that change nothing, and joins transposes that follow each other.

Ranges of numbers and their running sums, of which masks are made, become constants, so that TVM
folds the masks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import axes_of, bound_call, graph_pass, known_shape, rewritten

#: Operators that return their argument if the type of the result is that of the argument.
_KEEPING = frozenset({"relax.broadcast_to", "relax.reshape", "relax.astype"})


@graph_pass
def FoldNoOps(mod: ir.IRModule) -> ir.IRModule:
    """Remove reshapes, broadcasts and casts to the type an array has; join transposes; fold ranges.

    Choices by a constant condition that is the same everywhere are removed too.

    Frontends emit them, and each would become a pass over memory where it separates two operators
    that cannot be fused.
    """
    return rewritten(mod, _Folder)


@mutator
class _Folder(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return an operator's argument if the operator changes nothing."""
        call = super().visit_call_(call)
        name = operator_name(call)
        if name in _KEEPING:
            source = call.args[0]
            return source if _same_type(self.builder_.normalize(call), source) else call
        if name == "relax.permute_dims":
            return self._permuted(call)
        if name in ("relax.full", "relax.full_like") and isinstance(call.args[1], GenericConst):
            return self._filled(call)
        if name == "relax.where" and isinstance(call.args[0], GenericConst):
            return self._chosen(call)
        if name == "relax.arange":
            return _counted(call)
        if name == "relax.cumsum" and isinstance(call.args[0], GenericConst):
            return _summed(call)
        if name == "relax.clip" and "int" in str(call.args[0].ty.dtype):
            return self._clipped(call)
        return call

    def _filled(self, call: Any) -> Any:
        """Return a number broadcast to a shape; TVM's lowering of it fails for infinity."""
        shape = known_shape(self.builder_.normalize(call))
        if shape is None:
            return call
        dtype = str(call.ty.dtype)
        value = relax.const(call.args[1].value.numpy().astype(dtype), dtype)
        return relax.op.broadcast_to(value, shape)

    def _chosen(self, call: Any) -> Any:
        """Return what a constant condition chooses everywhere."""
        condition, *values = call.args
        shown = condition.value.numpy()
        shape = known_shape(self.builder_.normalize(call))
        if shape is None or (shown.any() and not shown.all()):
            return call
        value = values[0] if shown.all() else values[1]
        same = known_shape(value) == shape
        return value if same else relax.op.broadcast_to(value, shape)

    def _clipped(self, call: Any) -> Any:
        """Return a clip of integers whose bound is infinite, which no integer is."""
        value, *bounds = call.args
        low, high = (float(each.value if hasattr(each, "value") else each) for each in bounds)
        if math.isfinite(low) and math.isfinite(high):
            return call
        dtype = str(value.ty.dtype)
        if math.isfinite(low):
            value = relax.op.maximum(value, relax.const(math.ceil(low), dtype))
        if math.isfinite(high):
            value = relax.op.minimum(value, relax.const(math.floor(high), dtype))
        return value

    def _permuted(self, call: Any) -> Any:
        axes, source = axes_of(call), call.args[0]
        before = bound_call(self, source, "relax.permute_dims")
        if before is not None:
            inner = axes_of(before)
            axes, source = [inner[axis] for axis in axes], before.args[0]
        if axes == sorted(axes):
            return source
        return relax.op.permute_dims(source, axes)


def _counted(call: Any) -> Any:
    """Return numbers that are counted as a constant, so that masks of places are folded."""
    if not all(isinstance(each, tirx.IntImm) for each in call.args):
        return call
    begin, end, step = map(int, call.args)
    counted = np.arange(begin, end, step, dtype=str(call.ty.dtype))
    return relax.const(counted, str(call.ty.dtype))


def _summed(call: Any) -> Any:
    """Return running sums of constant integers as a constant."""
    values, dtype = call.args[0].value.numpy(), str(call.ty.dtype)
    if values.dtype.kind != "i" or call.attrs.axis is None or bool(call.attrs.exclusive):
        return call
    return relax.const(np.cumsum(values, int(call.attrs.axis), dtype), dtype)


def _same_type(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one.ty, other.ty))
