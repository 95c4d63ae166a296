"""The layout of images that convolutions work on: chosen once, with the conversions in the cost."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax
from tvm.ir import GenericConst, prim

from ..._interrupts import raise_interrupt
from ...tir.walk import operator_name
from ...transform.functions import relax_calls
from .cleanup import FoldNoOps
from .rewriting import graph_pass
from .transposes import SinkTransposes

#: Products of convolutions from which the layout NHWC pays for transposing one element. Measured on
#: Zen 5 without transposes: on images of layout NCHW, a product takes 0.7 ps (56 x 56) to 1.5 ps
#: (7 x 7) longer, of 7.5; transposing an element takes 60 to 100 ps. Of integers, NCHW takes much
#: longer.
PRODUCTS_PER_ELEMENT = 64


@graph_pass
def ChannelsLast(mod: ir.IRModule) -> ir.IRModule:
    """Compute 2-D convolutions on images of layout NHWC, where that pays.

    Relax's conversion fails on some operators that follow a convolution: then nothing is converted.
    Nor is it where transposing what comes in and goes out takes longer than the layout saves, as
    for a single convolution to one channel.
    """
    convolution = "relax.nn.conv2d"
    names = set(map(operator_name, relax_calls(*mod.functions.values())))
    # TVM has no transposed convolution on images of layout NHWC.
    if convolution not in names or f"{convolution}_transpose" in names:
        return mod
    to_nhwc = relax.transform.ConvertLayout({convolution: ["NHWC", "OHWI"]})
    try:
        converted = ir.transform.Sequential([to_nhwc, SinkTransposes(), FoldNoOps()])(mod)
    except Exception as error:  # noqa: BLE001 - TVM's errors are of several types
        raise_interrupt(error)
        return mod
    return converted if _pays(mod, converted) else mod


def _pays(mod: ir.IRModule, converted: ir.IRModule) -> bool:
    """Return whether the layout saves more time than the transposes take that it adds."""
    before, after = (relax_calls(*each.functions.values()) for each in (mod, converted))
    convolutions = [call for call in before if operator_name(call) == "relax.nn.conv2d"]
    if any("float" not in str(call.ty.dtype) for call in convolutions):
        return True
    counts = [_products(call) for call in convolutions]
    moved = [sum(map(_transposed, calls)) for calls in (after, before)]
    return sum(counts) >= PRODUCTS_PER_ELEMENT * (moved[0] - moved[1])


def _products(call: Any) -> float:
    """Return the number of products of a convolution; infinite for sizes with names."""
    _filters, *each = _sizes(call.args[1])
    return math.prod(_sizes(call)) * math.prod(each)


def _transposed(call: Any) -> float:
    """Return the elements that a call transposes at run time."""
    if operator_name(call) != "relax.permute_dims" or isinstance(call.args[0], GenericConst):
        return 0
    found = math.prod(_sizes(call))
    # Of sizes with names, nothing is known.
    return found if math.isfinite(found) else 0


def _sizes(value: Any) -> list[float]:
    sizes = list(value.ty.shape) if isinstance(value.ty.shape, relax.ShapeExpr) else [None]
    return [int(size) if isinstance(size, prim.IntImm) else math.inf for size in sizes]
