"""The same layer as TVM's Relax makes one function of it."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from .arguments import ACTIVATIONS, check_below, one_of
from .convolution import convolution

# The types that the layer has in Relax today; int8 has no requantising there.
DTYPES = ("float32", "float16", "bfloat16")


def relax_depthwise_conv1d(
    n: int | str,
    c: int,
    w: int | str,
    f: int,
    *,
    padding: str | tuple[int, int] = "same",
    stride: int = 1,
    dilation: int = 1,
    dtype: str = "float32",
    bias: bool = True,
    activation: str | None = None,
) -> PrimFunc:
    """Convolve each channel with a filter of its own, in the form that Relax gives it.

    ``relax.op.nn.conv1d`` with C groups, an addition of the bias and an activation, which Relax
    legalizes and fuses. ``padding="causal"`` is what people write in PyTorch, ``conv(x)[..., :W]``
    with ``dilation * (F - 1)`` zeros on *both* sides: the convolution computes columns that are
    never read.

    Parameters
    ----------
    n, c, w, f, padding, stride, dilation, bias, activation
        As of :func:`depthwise_conv1d`, which computes the same. A symbolic W cannot be "causal":
        Relax does not fuse a slice of a symbolic size with anything.
    dtype : {"float32", "float16", "bfloat16"}
        Type of all buffers. Relax sums in this type and rounds after every step.

    Returns
    -------
    tvm.tirx.PrimFunc
        Named "main", unscheduled, with the parameters

        - x[N, C, W]
        - weight[C, 1, F]
        - bias[1, C, 1], if there is one: the addition broadcasts it
        - the result [N, C, W'], named after the last block

        Relax names the blocks: "pad_temp" (a copy, if there are no zeros), "group_conv1d_ncw"
        ("conv1d_ncw" for C = 1), "T_add" for the bias, "T_strided_slice_with_axes" for "causal"
        (a copy, if F = 1; "T_dynamic_strided_slice_with_axes" for a symbolic N), "compute" for
        ReLU, "compute" and "T_multiply" for SiLU. Loops and indices are ``int64``.

    Raises
    ------
    ValueError
        An argument is not possible; the message says which, what it was and what is possible.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> func = workloads.relax_depthwise_conv1d(1, 64, 128, 4, padding="causal", activation="silu")
    """
    one_of("bias", bias, (False, True))
    one_of("activation", activation, tuple(ACTIVATIONS))
    conv = convolution(
        n, c, w, f, padding=padding, stride=stride, dilation=dilation, dtype=dtype, dtypes=DTYPES
    )
    steps = {"c": conv.c, "f": conv.f, "stride": conv.stride, "dilation": conv.dilation}
    for argument, value in steps.items():
        check_below(argument, value, 31)
    check_below("padding", max(conv.left, conv.right), 31, padding)
    causal = padding == "causal"
    if causal and not isinstance(conv.w, int):
        raise ValueError(
            "w must be an int for padding = 'causal', because Relax does not fuse a slice of a "
            f"symbolic size; depthwise_conv1d has it: {w!r}"
        )
    x = relax.Var("x", relax.TensorType([conv.n, conv.c, conv.w], dtype))
    weight = relax.Var("weight", relax.TensorType([conv.c, 1, conv.f], dtype))
    offset = relax.Var("bias", relax.TensorType([1, conv.c, 1], dtype))

    builder = relax.BlockBuilder()
    with builder.function("layer", [x, weight, offset] if bias else [x, weight]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.nn.conv1d(
                    x,
                    weight,
                    strides=conv.stride,
                    padding=[conv.left, conv.left if causal else conv.right],
                    dilation=conv.dilation,
                    groups=conv.c,
                )
            )
            if bias:
                y = builder.emit(relax.op.add(y, offset))
            if causal:
                y = builder.emit(relax.op.strided_slice(y, axes=[2], begin=[0], end=[conv.columns]))
            if activation is not None:
                y = builder.emit(getattr(relax.op.nn, activation)(y))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return _only_function(builder.get()).with_attr("global_symbol", "main")


def _only_function(mod: tvm.IRModule) -> PrimFunc:
    """Fuse the operators of a module by Relax's own passes."""
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    fused = tvm.transform.Sequential(passes)(mod)
    functions = [func for func in fused.functions.values() if isinstance(func, PrimFunc)]
    assert len(functions) == 1, f"Relax made {len(functions)} functions of one layer: {fused}"
    return functions[0]
