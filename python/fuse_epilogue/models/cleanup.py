"""Removes operators that change nothing, and joins transposes that follow each other."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax
from tvm.ir import Call, GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import rewritten

#: Operators that return their argument if the type of the result is that of the argument.
_KEEPING = frozenset({"relax.broadcast_to", "relax.reshape", "relax.astype"})


@tvm.transform.module_pass(opt_level=0, name="FoldNoOps")
class FoldNoOps:
    """Remove reshapes, broadcasts and casts to the type an array has; join transposes.

    Frontends emit them, and each would become a pass over memory where it separates two operators
    that cannot be fused.
    """

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module without such operators.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        return rewritten(mod, _Folder)


@mutator
class _Folder(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return an operator's argument if the operator changes nothing."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name in _KEEPING:
            source = call.args[0]
            return source if _same_type(self.builder_.normalize(call), source) else call
        if name == "relax.permute_dims":
            return self._permuted(call)
        if name == "relax.full" and isinstance(call.args[1], GenericConst):
            # TVM's lowering of it fails for infinity.
            dtype = str(call.ty.dtype)
            value = relax.const(call.args[1].value.numpy().astype(dtype), dtype)
            return relax.op.broadcast_to(value, call.args[0])
        if name == "relax.clip" and "int" in str(call.args[0].ty.dtype):
            return self._clipped(call)
        return call

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
        axes = _axes(call)
        source = call.args[0]
        before = self.lookup_binding(source) if isinstance(source, relax.Var) else None
        if isinstance(before, Call) and getattr(before.op, "name", "") == "relax.permute_dims":
            inner = _axes(before)
            axes, source = [inner[axis] for axis in axes], before.args[0]
        if axes == sorted(axes):
            return source
        return relax.op.permute_dims(source, axes)


def _axes(call: Any) -> list[int]:
    """Return the axes of a transpose; the reverse order is what no axes mean."""
    rank = int(call.args[0].ty.ndim)
    given = call.attrs.axes
    if given is None:
        return list(reversed(range(rank)))
    return [int(axis) % rank for axis in given]


def _same_type(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one.ty, other.ty))
