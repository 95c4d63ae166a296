"""Operators in the shapes for which Trainium has kernels; reshapes of arrays are views.

    mean(x[n, c, h, w], (2, 3))    mean(x[n, c, h * w], 2)
    conv1d(x[n, c, w], f)          conv2d(x[n, c, 1, w], f[o, c, 1, k])
    group_norm(x[n, c, w], g)      layer_norm(x[n, g, c / g * w], 2) for the factors of channels

A convolution of each channel with its own filter has a kernel as it is.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..graph.rewriting import graph_pass, rewritten

_REDUCTIONS = tuple(f"relax.{name}" for name in ("sum", "mean", "max", "min", "variance"))


@graph_pass
def KnownShapes(mod: ir.IRModule) -> ir.IRModule:
    """Reduce one axis instead of several, and convolve images instead of lines."""
    return rewritten(mod, _Shapes)


@mutator
class _Shapes(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return the same in another shape, where a kernel has only that one."""
        call = super().visit_call_(call)
        name = getattr(call.op, "name", "")
        if name in _REDUCTIONS and call.attrs.axis is not None:
            return self._reduction(call, name)
        if name == "relax.nn.conv1d":
            return self._convolution(call)
        if name == "relax.nn.group_norm" and str(call.ty.dtype) == "float32":
            return self._groups(call)
        return call

    def _reduction(self, call: Any, name: str) -> Any:
        [x] = call.args
        rank = int(x.ty.ndim)
        axes = sorted(int(axis) % rank for axis in call.attrs.axis)
        if len(axes) < 2 or axes != [*range(rank - len(axes), rank)]:
            return call
        shape = [int(size) for size in x.ty.shape]
        first = axes[0]
        reduce = getattr(relax.op, name.removeprefix("relax."))
        flat = self._emit(relax.op.reshape(x, [*shape[:first], prod(shape[first:])]))
        made = reduce(flat, [first], keepdims=False)
        if not call.attrs.keepdims:
            return made
        return relax.op.reshape(self._emit(made), [*shape[:first], *[1] * len(axes)])

    def _convolution(self, call: Any) -> Any:
        x, weight = call.args
        attrs = call.attrs
        layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
        if int(attrs.groups) != 1 or layouts != ("NCW", "OIW", "NCW"):
            return call
        images, taps = (self._emit(relax.op.expand_dims(each, 2)) for each in (x, weight))
        left, right = (int(each) for each in attrs.padding)
        made = relax.op.nn.conv2d(
            images,
            taps,
            strides=(1, int(attrs.strides[0])),
            padding=(0, left, 0, right),
            dilation=(1, int(attrs.dilation[0])),
            out_dtype=attrs.out_dtype or None,
        )
        return relax.op.squeeze(self._emit(made), [2])

    def _groups(self, call: Any) -> Any:
        """Return the norm of rows, each all channels of a group, and the factors of channels."""
        x, *factors = call.args
        attrs, shape = call.attrs, [int(size) for size in x.ty.shape]
        rank, groups = len(shape), int(attrs.num_groups)
        axes = sorted(int(axis) % rank for axis in attrs.axes)
        if int(attrs.channel_axis) % rank != 1 or axes != [*range(2, rank)]:
            return call
        size = prod(shape[1:]) // groups
        rows = self._emit(relax.op.reshape(x, [shape[0], groups, size]))
        ones, zeros = (relax.const(np.full(size, value, "float32")) for value in (1, 0))
        norm = relax.op.nn.layer_norm(rows, ones, zeros, axes=[2], epsilon=float(attrs.epsilon))
        made = relax.op.reshape(self._emit(norm), [*shape[:2], prod(shape[2:])])
        for factor, wanted, op in zip(
            factors, (attrs.scale, attrs.center), (relax.op.multiply, relax.op.add), strict=True
        ):
            if wanted:
                column = self._emit(relax.op.reshape(factor, [1, shape[1], 1]))
                made = op(self._emit(made), column)
        return relax.op.reshape(self._emit(made), shape)

    def _emit(self, value: Any) -> Any:
        return self.builder_.emit(value)
