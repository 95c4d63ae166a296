"""Operators of ONNX on sizes that have names, of which TVM's importer reads numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx


def converted(operator: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return what an operator becomes, None if TVM's importer converts it.

    - `inputs`: expressions of Relax; sizes are shapes, and expressions of integers.
    """
    sizes = open_sizes(inputs) if operator == "Resize" else None
    return None if sizes is None else resized(inputs[0], sizes, attrs)


def open_sizes(inputs: Sequence[Any]) -> list[Any] | None:
    """Return the new height and width of images, of which one has a name; None for other images.

    - `inputs`: those of a node Resize. Factors of images whose size has a name are whole numbers.
    """
    x, (scales, sizes) = inputs[0], [*inputs[2:], None, None][:2]
    if x.ty.shape is None or len(x.ty.shape) != 4:
        return None
    if isinstance(sizes, relax.ShapeExpr):
        found = list(sizes.values)[2:]
    elif isinstance(scales, ir.GenericConst):
        factors = scales.value.numpy().tolist()
        both = zip(list(x.ty.shape)[2:], factors[2:], strict=True)
        found = [size * int(factor) for size, factor in both]
    else:
        return None
    return None if all(isinstance(size, tirx.IntImm) for size in found) else found


def resized(x: Any, sizes: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return images of another size, which has a name."""

    def text(name: str, default: str) -> str:
        value = attrs.get(name, default)
        return value.decode("ascii") if isinstance(value, bytes) else str(value)

    mode = text("mode", "nearest")
    places = text("coordinate_transformation_mode", "half_pixel")
    rounding = text("nearest_mode", "round_prefer_floor")
    return relax.op.image.resize2d(
        x,
        size=relax.ShapeExpr(list(sizes)),
        layout="NCHW",
        method="nearest_neighbor" if mode == "nearest" else mode,
        coordinate_transformation_mode=places,
        rounding_method=rounding,
        cubic_alpha=attrs.get("cubic_coeff_a", -0.75),
        cubic_exclude=attrs.get("exclude_outside", 0),
        extrapolation_value=attrs.get("extrapolation_value", 0.0),
    )
