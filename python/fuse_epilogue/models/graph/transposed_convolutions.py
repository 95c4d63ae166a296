"""Transposed convolutions with constant weights as convolutions, one for each phase of the result.

A transposed convolution of stride s spreads its input with s - 1 zeros between neighbours, and sums
over mostly zeros. The results at u = s * q + r, for each r below s, are a convolution of the input
itself with every s-th tap:

    y[s * q + r] = sum over t of x[q - t] * w[s * t + r]

So all phases with as many taps are the channels of one convolution without a stride. Their results
are then moved into place. Of 3 taps and stride 2, the phase 0 has two taps and the phase 1 has one:
a tap of 0 in its place would make NaN of infinity.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from ...tir.walk import operator_name
from .rewriting import graph_pass, rewritten

#: The operators, their layouts and the convolution of as many dimensions.
_OPERATORS = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW", relax.op.nn.conv1d),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW", relax.op.nn.conv2d),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW", relax.op.nn.conv3d),
}


@graph_pass
def TransposedConvolutions(mod: ir.IRModule) -> ir.IRModule:
    """Compute transposed convolutions of one to three dimensions as convolutions.

    Only where the weights are constant, and every phase has a tap. TVM's own way is left for the
    others.
    """
    return rewritten(mod, _Converter)


class _Phases(NamedTuple):
    """Phases of a dimension that have as many taps."""

    first: int
    number: int
    taps: int


@mutator
class _Converter(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a convolution in place of a transposed one."""
        call = super().visit_call_(call)
        known = _OPERATORS.get(operator_name(call))
        if known is None:
            return call
        data, weight = call.args
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        if layouts != (known[0], known[1], known[0]) or not isinstance(weight, GenericConst):
            return call
        if data.ty.shape is None:
            return call
        taps = zip(list(weight.ty.shape)[2:], attrs.strides, attrs.dilation, strict=True)
        if any(int(size) < int(stride) or int(step) > 1 for size, stride, step in taps):
            return call
        return self._by_phase(call, known[2], weight.value.numpy())

    def _by_phase(self, call: Any, convolution: Any, weight: np.ndarray) -> Any:
        emit = self.builder_.emit
        data, attrs = call.args[0], call.attrs
        rank = weight.ndim - 2
        groups = int(attrs.groups)
        strides = [int(each) for each in attrs.strides]
        begins = [int(each) for each in attrs.padding][:rank]
        sizes = list(self.builder_.normalize(call).ty.shape)[2:]
        inputs = list(data.ty.shape)[2:]
        parts = [_phases_of(*each) for each in zip(weight.shape[2:], strides, strict=True)]
        # As many zeros after the image as the last result needs, whatever the size of the image is.
        simplify, equal = Analyzer().simplify, Analyzer().can_prove_equal
        after = [
            max(part[0].taps - 1, -(-int(simplify(begin + size - each * stride)) // stride))
            for part, begin, size, stride, each in zip(
                parts, begins, sizes, strides, inputs, strict=True
            )
        ]
        counts = [each + end for each, end in zip(inputs, after, strict=True)]
        channels = weight.shape[1] * groups
        found = []
        for some in product(*parts):
            kernel = _phase_weights(_taken(weight, some, strides), some, groups)
            result = emit(
                convolution(
                    data,
                    relax.const(kernel, str(weight.dtype)),
                    padding=[*(each.taps - 1 for each in some), *after],
                    groups=groups,
                    out_dtype=str(call.ty.dtype),
                )
            )
            shape = [data.ty.shape[0], channels, *(each.number for each in some), *counts]
            found.append(result if strides == [1] * rank else emit(relax.op.reshape(result, shape)))
        result = self._in_place(self._joined(found, parts), data.ty.shape[0], strides, counts)
        whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
        if all(map(equal, whole, sizes)):
            return result
        ends = [begin + size for begin, size in zip(begins, sizes, strict=True)]
        return relax.op.strided_slice(
            emit(result), list(range(2, 2 + rank)), begins, ends, assume_inbound=True
        )

    def _joined(self, found: list[Any], parts: list[list[_Phases]]) -> Any:
        """Return results for some phases as one for all, from the last dimension to the first."""
        for axis in reversed(range(len(parts))):
            count = len(parts[axis])
            if count > 1:
                together = [found[at : at + count] for at in range(0, len(found), count)]
                found = [self.builder_.emit(relax.op.concat(each, 2 + axis)) for each in together]
        return found[0]

    def _in_place(self, split: Any, batch: Any, strides: list[int], counts: list[Any]) -> Any:
        """Return phases, which are axes of their own, in their places."""
        emit, rank = self.builder_.emit, len(strides)
        if strides == [1] * rank:
            return split
        order = [0, 1]
        for axis in range(rank):
            order += [2 + rank + axis, 2 + axis]
        moved = emit(relax.op.permute_dims(split, order))
        whole = [count * stride for count, stride in zip(counts, strides, strict=True)]
        return relax.op.reshape(moved, [batch, split.ty.shape[1], *whole])


def _phases_of(size: int, stride: int) -> list[_Phases]:
    """Return the phases of a dimension by their number of taps, the most first."""
    taps, more = divmod(size, stride)
    parts = [_Phases(0, more, taps + 1), _Phases(more, stride - more, taps)]
    return [each for each in parts if each.number]


def _taken(weight: np.ndarray, some: tuple[_Phases, ...], strides: list[int]) -> np.ndarray:
    """Return the taps of some phases of each dimension: in order, the phases by turns."""
    for axis, (part, stride) in enumerate(zip(some, strides, strict=True), 2):
        places = [
            stride * tap + part.first + phase
            for tap in range(part.taps)
            for phase in range(part.number)
        ]
        weight = weight.take(places, axis)
    return weight


def _phase_weights(weight: np.ndarray, phases: tuple[_Phases, ...], groups: int) -> np.ndarray:
    """Return weights for some phases, as a convolution has them."""
    rank = len(phases)
    taps = [each.taps for each in phases]
    inputs, outputs = weight.shape[:2]
    # [groups, inputs, outputs, taps and phases by turns]
    pairs = [size for each in phases for size in (each.taps, each.number)]
    split = weight.reshape(groups, inputs // groups, outputs, *pairs)
    split = np.flip(split, axis=tuple(3 + 2 * axis for axis in range(rank)))
    order = [0, 2, *(4 + 2 * axis for axis in range(rank)), 1]
    order += [3 + 2 * axis for axis in range(rank)]
    made = split.transpose(order).reshape(-1, inputs // groups, *taps)
    return np.ascontiguousarray(made)
