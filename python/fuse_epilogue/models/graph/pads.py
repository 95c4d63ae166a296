"""Makes zeros around images the padding of the convolution that reads them.

Models that pad as TensorFlow does, by more after an image than before it, have an operator for it.
FuseOps joins that to the convolution before it, which no kernel computes together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...tir.walk import operator_name
from .rewriting import bound_call, graph_pass, rewritten

#: By the name of a convolution, the operator and the layout of its images.
_CONVOLUTIONS = {
    "relax.nn.conv1d": (relax.op.nn.conv1d, "NCW"),
    "relax.nn.conv2d": (relax.op.nn.conv2d, "NCHW"),
    "relax.nn.conv3d": (relax.op.nn.conv3d, "NCDHW"),
}


@graph_pass
def FoldPads(mod: ir.IRModule) -> ir.IRModule:
    """Add the widths of pads with zeros to the padding of convolutions with constant weights.

    A weight that is infinite or NaN makes NaN of a zero that is read, and nothing of padding that
    is not: such weights keep their pad.
    """
    return rewritten(mod, _Folder)


@mutator
class _Folder(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a convolution of the image that its operand pads."""
        call = super().visit_call_(call)
        convolution, layout = _CONVOLUTIONS.get(operator_name(call), (None, ""))
        if convolution is None or not _is_finite(call.args[1]):
            return call
        attrs = call.attrs
        data, weight = call.args
        source = bound_call(self, data, "relax.nn.pad")
        if source is None or str(attrs.data_layout) != layout:
            return call
        widths = _zeros_around(source)
        if widths is None or any(widths[:4]):
            return call
        around = [*widths[4::2], *widths[5::2]]
        return convolution(
            source.args[0],
            weight,
            strides=attrs.strides,
            padding=[int(a) + b for a, b in zip(attrs.padding, around, strict=True)],
            dilation=attrs.dilation,
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=attrs.out_dtype,
        )


def _is_finite(weight: Any) -> bool:
    """Whether a weight is a constant without infinite values and NaN."""
    return isinstance(weight, GenericConst) and bool(np.isfinite(weight.value.numpy()).all())


def _zeros_around(call: Any) -> list[int] | None:
    """Return the widths of a pad with zeros, two for each axis; None for another pad."""
    if str(call.attrs.pad_mode) != "constant":
        return None
    widths = [int(each) for each in call.attrs.pad_width]
    return widths if float(call.attrs.pad_value) == 0 and min(widths) >= 0 else None
