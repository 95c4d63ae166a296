"""Resizing of images as torch does it, imported into Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from . import open_resampling


def resampling_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters by the names of the operators."""
    return {
        "upsample_nearest2d.vec": _nearest,
        "upsample_bilinear2d.vec": _interpolation("_upsample_bilinear2d"),
        "upsample_bicubic2d.vec": _interpolation("_upsample_bicubic2d"),
        "_upsample_bilinear2d_aa.default": _by_matrices,
        "_upsample_bicubic2d_aa.default": _by_matrices,
        "_adaptive_avg_pool2d.default": _adaptive_average,
        "adaptive_avg_pool2d.default": _adaptive_average,
    }


def _sizes(node: Any) -> tuple[list[Any], list[Any]]:
    """Return the sizes of the image and of the result."""
    return list(node.args[0].meta["val"].shape[2:]), list(node.meta["val"].shape[2:])


def _is_open(node: Any) -> bool:
    """Return whether a size of the image or of the result may differ from call to call."""
    given, wanted = _sizes(node)
    return not all(isinstance(size, int) for size in (*given, *wanted))


def _nearest(node: Any, importer: Any) -> Any:
    if _is_open(node):
        return open_resampling.nearest(node, importer)
    given, wanted = _sizes(node)
    # By whole factors, every rule of rounding finds the same pixel.
    if all(out % size == 0 for size, out in zip(given, wanted, strict=True)):
        return importer._upsample_nearest2d(node)
    x = importer.env[node.args[0]]
    for axis in (2, 3):
        places = _matrix(node, axis - 2).argmax(1).numpy()
        x = importer.block_builder.emit(relax.op.take(x, relax.const(places, "int64"), axis=axis))
    return x


def _interpolation(name: str) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        if _is_open(node):
            if "bilinear" in name:
                return open_resampling.bilinear(node, importer)
            raise ValueError(
                f"{node.target} of an image whose size may differ from call to call is not "
                "supported: use bilinear or nearest interpolation, or sizes that are constant"
            )
        given, wanted = _sizes(node)
        factors = node.args[-1] if isinstance(node.args[-1], list | tuple) else None
        # Relax has the ratio of the sizes only, which torch does not use if a factor is given.
        by_sizes = factors is None or all(
            size * factor == out for size, factor, out in zip(given, factors, wanted, strict=True)
        )
        # Relax divides by the number of steps between the corners.
        is_point = bool(node.args[2]) and 1 in wanted
        if not is_point and (node.args[1] is not None or by_sizes):
            return getattr(importer, name)(node)
        return _by_matrices(node, importer)

    return convert


def _adaptive_average(node: Any, importer: Any) -> Any:
    given, wanted = _sizes(node)
    if len(given) != 2 or _is_open(node):
        return importer._adaptive_avg_pool2d(node)
    # Windows of one size are known to kernels; others overlap, each in its own way.
    if all(size % out == 0 for size, out in zip(given, wanted, strict=True)):
        return importer._adaptive_avg_pool2d(node)
    return _by_matrices(node, importer)


def _by_matrices(node: Any, importer: Any) -> Any:
    """Emit a product with a matrix for each axis: all of these operators are linear in it."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    rows, columns = (
        relax.const(_matrix(node, axis).T.contiguous().numpy(), dtype) for axis in (0, 1)
    )
    x = emit(relax.op.matmul(x, columns))
    x = emit(relax.op.permute_dims(x, [0, 1, 3, 2]))
    return emit(relax.op.permute_dims(emit(relax.op.matmul(x, rows)), [0, 1, 3, 2]))


def _matrix(node: Any, axis: int) -> Any:
    """Return how an axis of the result depends on that of the image, as torch computes it."""
    import torch

    if _is_open(node):
        raise ValueError(
            f"{node.target} of an image whose size may differ from call to call is not supported: "
            "leave out antialias, or use sizes that are constant"
        )
    given, wanted = _sizes(node)
    size = given[axis]
    arguments = list(node.args[1:])
    # The other axis keeps its size, which leaves its values as they are.
    if len(arguments) and isinstance(arguments[-1], list | tuple) and arguments[0] is None:
        arguments[-1] = [arguments[-1][axis], 1.0]
    else:
        arguments[0] = [wanted[axis], size]
        if "_aa" in str(node.target) and len(arguments) > 2:
            scales = arguments[2:]
            arguments[2:] = [scales[axis] if axis < len(scales) else None, None]
    image = torch.eye(size)
    return node.target(image[None, None], *arguments)[0, 0]
