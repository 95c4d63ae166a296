"""Transposed convolutions with constant weights as convolutions, one for each phase of the result.

A transposed convolution of stride s spreads its input with s - 1 zeros between neighbours, and sums
over mostly zeros. The results at u = s * q + r, for each r below s, are a convolution of the input
itself with every s-th tap:

    y[s * q + r] = sum over t of x[q - t] * w[s * t + r]

So all phases are the channels of one convolution without a stride, which are then moved into place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from .rewriting import graph_pass, rewritten

#: The operators, their layouts and the convolution of as many dimensions.
_OPERATORS = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW", relax.op.nn.conv1d),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW", relax.op.nn.conv2d),
}


@graph_pass
def TransposedConvolutions(mod: ir.IRModule) -> ir.IRModule:
    """Compute transposed convolutions of one and two dimensions as convolutions.

    Only where the weights are constant, the sizes of the image are numbers, and every phase has as
    many taps: a tap of 0 would make NaN of infinity. TVM's own way is left for the others.
    """
    return rewritten(mod, _Converter)


@mutator
class _Converter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a convolution in place of a transposed one."""
        call = super().visit_call_(call)
        known = _OPERATORS.get(getattr(call.op, "name", ""))
        if known is None:
            return call
        data, weight = call.args
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        shape = data.ty.shape
        if layouts != (known[0], known[1], known[0]) or not isinstance(weight, GenericConst):
            return call
        if shape is None or not all(isinstance(size, tirx.IntImm) for size in list(shape)[1:]):
            return call
        taps = zip(list(weight.ty.shape)[2:], attrs.strides, attrs.dilation, strict=True)
        if any(int(size) % int(stride) or int(step) > 1 for size, stride, step in taps):
            return call
        return self._phases(call, known[2], weight.value.numpy())

    def _phases(self, call: Any, convolution: Any, weight: np.ndarray) -> Any:
        emit = self.builder_.emit
        data, attrs = call.args[0], call.attrs
        rank = weight.ndim - 2
        groups = int(attrs.groups)
        strides = [int(each) for each in attrs.strides]
        begins = [int(each) for each in attrs.padding][:rank]
        sizes = [int(each) for each in list(self.builder_.normalize(call).ty.shape)[2:]]
        kernel, taps = _phase_weights(weight, strides, groups)
        inputs = [int(each) for each in list(data.ty.shape)[2:]]
        # As many zeros after the image as the last result needs.
        after = [
            max(t - 1, -(-(begin + size) // stride) - each)
            for t, begin, size, stride, each in zip(
                taps, begins, sizes, strides, inputs, strict=True
            )
        ]
        result = emit(
            convolution(
                data,
                relax.const(kernel, str(weight.dtype)),
                padding=[*(t - 1 for t in taps), *after],
                groups=groups,
                out_dtype=str(call.ty.dtype),
            )
        )
        counts = [each + end for each, end in zip(inputs, after, strict=True)]
        result = self._shuffled(result, data.ty.shape[0], kernel.shape[0], strides, counts)
        whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
        if whole == sizes:
            return result
        ends = [begin + size for begin, size in zip(begins, sizes, strict=True)]
        return relax.op.strided_slice(emit(result), list(range(2, 2 + rank)), begins, ends)

    def _shuffled(
        self, result: Any, batch: Any, channels: int, strides: list[int], counts: list[int]
    ) -> Any:
        """Return phases, which are channels, in their places."""
        factor = int(np.prod(strides))
        if factor == 1:
            return result
        emit, rank = self.builder_.emit, len(strides)
        split = emit(relax.op.reshape(result, [batch, channels // factor, *strides, *counts]))
        order = [0, 1]
        for axis in range(rank):
            order += [2 + rank + axis, 2 + axis]
        moved = emit(relax.op.permute_dims(split, order))
        whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
        return relax.op.reshape(moved, [batch, channels // factor, *whole])


def _phase_weights(
    weight: np.ndarray, strides: list[int], groups: int
) -> tuple[np.ndarray, list[int]]:
    """Return weights for all phases, as a convolution has them, and the taps of each dimension."""
    rank = len(strides)
    taps = [size // stride for size, stride in zip(weight.shape[2:], strides, strict=True)]
    inputs, outputs = weight.shape[:2]
    # [groups, inputs, outputs, taps and phases by turns]
    pairs = [size for t, s in zip(taps, strides, strict=True) for size in (t, s)]
    split = weight.reshape(groups, inputs // groups, outputs, *pairs)
    split = np.flip(split, axis=tuple(3 + 2 * axis for axis in range(rank)))
    order = [0, 2, *(4 + 2 * axis for axis in range(rank)), 1]
    order += [3 + 2 * axis for axis in range(rank)]
    made = split.transpose(order).reshape(-1, inputs // groups, *taps)
    return np.ascontiguousarray(made), taps
