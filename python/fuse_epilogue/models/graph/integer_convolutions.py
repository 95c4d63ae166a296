"""Convolutions of narrow integers in sums of 32 bits, with another number than 0 around images."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi

#: Convolutions by the names of their operators.
CONVOLUTIONS = {
    "relax.nn.conv1d": relax.op.nn.conv1d,
    "relax.nn.conv2d": relax.op.nn.conv2d,
    "relax.nn.conv3d": relax.op.nn.conv3d,
}
#: What is added to signed bytes to have unsigned ones, as processors' instructions take them.
_SHIFT = 128


def unbordered(call: Any, data: Any, weights: Any) -> Any:
    """Return a convolution like `call`, of other integers, in sums of 32 bits."""
    attrs = call.attrs
    return CONVOLUTIONS[call.op.name](
        data,
        weights,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=int(attrs.groups),
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_layout=str(attrs.out_layout),
        out_dtype="int32",
    )


def bordered(
    builder: Any, call: Any, data: Any, weights: Any, zero: Any, number: int
) -> tuple[Any, int]:
    """Return a convolution like `call` whose image has a zero point around it.

    - `builder`: tvm.relax.BlockBuilder.
    - `call` (tvm.ir.Call): a convolution with padding.
    - `data`, `weights` (tvm.relax.Expr): integers of 8 or 16 bits.
    - `zero` (tvm.relax.Expr or None): the zero point as a value of one element, of the type of
      `data`; None if it is constant.
    - `number`: the constant zero point, if `zero` is None.
    - Returns: the convolution, and the number that was added to the image and to its zero point:
      signed bytes become unsigned.
    """
    attrs = call.attrs
    layout = str(attrs.data_layout)
    signed = str(data.ty.dtype) == "int8"
    dtype = "uint8" if signed else str(data.ty.dtype)
    shift = _SHIFT if signed else 0
    padding = [int(each) for each in attrs.padding]
    spatial = [at for at, axis in enumerate(layout) if axis not in "NC"]
    before = dict(zip(spatial, padding, strict=False))
    after = dict(zip(spatial, padding[len(spatial) :], strict=True))

    def moved(value: Any) -> Any:
        # The other sign bit: the same as adding 128.
        return value.astype(dtype) ^ tirx.const(shift, dtype) if shift else value

    def computed(image: Any, filters: Any, *points: Any) -> Any:
        shape = [size + before.get(at, 0) + after.get(at, 0) for at, size in enumerate(image.shape)]

        def element(*places: Any) -> Any:
            source = [place - before.get(at, 0) for at, place in enumerate(places)]
            inside = [
                term for at in spatial for term in (source[at] >= 0, source[at] < image.shape[at])
            ]
            if points:
                around = moved(points[0](*[0] * len(points[0].shape)))
            else:
                around = tirx.const(number + shift, dtype)
            return tirx.if_then_else(tirx.all(*inside), moved(image(*source)), around)

        padded = te.compute(shape, element, name="pad_temp")
        return topi.nn.conv(
            padded,
            filters,
            stride=attrs.strides,
            padding=[0] * len(padding),
            dilation=attrs.dilation,
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=str(attrs.kernel_layout),
            out_dtype="int32",
        )

    arguments = [data, weights] if zero is None else [data, weights, zero]
    name = call.op.name.removeprefix("relax.nn.")
    return builder.call_te(computed, *arguments, primfunc_name_hint=name), shift
