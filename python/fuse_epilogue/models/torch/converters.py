"""Operators of torch that TVM's importer does not know, or imports as something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax


def further_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters by the names of the operators."""
    return {
        # TVM's importer takes the sums of any type in float32.
        **dict.fromkeys(("matmul.default", "mm.default", "bmm.default"), _product),
        **dict.fromkeys(("addmm.default", "baddbmm.default"), _product_and_sum),
        "convert_element_type.default": _converted,
        "convolution.default": _convolution,
        "amax.default": _reduction(relax.op.max),
        "amin.default": _reduction(relax.op.min),
        "prod.dim_int": _reduction(relax.op.prod),
        **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
        "rsub.Scalar": _reversed_difference,
        "rsub.Tensor": _reversed_difference,
        "div.Tensor_mode": _division,
        "div.Scalar_mode": _division,
        "pow.Scalar": _power,
        "pow.Tensor_Tensor": _power,
        **dict.fromkeys(
            ("__lshift__.Scalar", "__lshift__.Tensor", "bitwise_left_shift.Tensor"),
            _binary(relax.op.left_shift),
        ),
        **dict.fromkeys(
            ("__rshift__.Scalar", "__rshift__.Tensor", "bitwise_right_shift.Tensor"),
            _binary(relax.op.right_shift),
        ),
        "max_pool2d_with_indices.default": _max_pool("max_pool2d"),
        "max_pool3d_with_indices.default": _max_pool("max_pool3d"),
        "adaptive_max_pool2d.default": _adaptive_max_pool,
        "native_dropout.default": _dropout,
        "grid_sampler_2d.default": _grid_sample,
    }


def _binary(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(op(*_operands(node, importer)))

    return convert


def _operands(node: Any, importer: Any) -> list[Any]:
    """Return two operands, a number as one of the other's type."""
    dtype = next(
        str(each.meta["val"].dtype).removeprefix("torch.")
        for each in node.args[:2]
        if hasattr(each, "meta")
    )
    return [
        importer.env[each] if hasattr(each, "meta") else relax.const(each, dtype)
        for each in node.args[:2]
    ]


def _converted(node: Any, importer: Any) -> Any:
    """Emit a conversion: torch.compile has this operator for numbers that may differ by call."""
    dtype = str(node.args[1]).removeprefix("torch.")
    return importer.block_builder.emit(relax.op.astype(importer.env[node.args[0]], dtype))


def _product(node: Any, importer: Any) -> Any:
    """Emit a product of matrices, summed in the type of its operands."""
    operands = [importer.env[each] for each in node.args[:2]]
    return importer.block_builder.emit(relax.op.matmul(*operands))


def _product_and_sum(node: Any, importer: Any) -> Any:
    """Emit a product of matrices and what is added to it, each times a factor."""
    emit = importer.block_builder.emit
    added, *operands = (importer.env[each] for each in node.args[:3])
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    result = emit(relax.op.matmul(*operands))
    alpha, beta = (node.kwargs.get(name, 1) for name in ("alpha", "beta"))
    if alpha != 1:
        result = emit(relax.op.multiply(result, relax.const(alpha, dtype)))
    if beta == 0:  # What would be added may be NaN.
        return result
    if beta != 1:
        added = emit(relax.op.multiply(added, relax.const(beta, dtype)))
    return emit(relax.op.add(result, added))


def _convolution(node: Any, importer: Any) -> Any:
    if str(node.meta["val"].dtype) == "torch.float64":
        raise ValueError("a convolution in float64, which Relax sums in float32, is not supported")
    data, weight, bias, strides, padding, dilation, transposed, more, groups = node.args
    if not transposed or len(node.meta["val"].shape) != 5:
        return importer._convolution(node)
    # TVM's importer knows those in one and two dimensions.
    emit = importer.block_builder.emit
    result = emit(
        relax.op.nn.conv3d_transpose(
            *(importer.env[data], importer.env[weight]),
            strides=strides,
            padding=padding,
            output_padding=more,
            dilation=dilation,
            groups=groups,
        )
    )
    if bias is None:
        return result
    return emit(relax.op.add(result, emit(relax.op.reshape(importer.env[bias], (-1, 1, 1, 1)))))


def _reduction(op: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        keeps = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
        axes = None if dims is None or dims == [] else dims
        return importer.block_builder.emit(op(importer.env[node.args[0]], axes, bool(keeps)))

    return convert


def _any(node: Any, importer: Any) -> Any:
    """Emit whether any element is not zero; Relax has no maximum of bools."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    if 0 in node.args[0].meta["val"].shape:
        shape = relax.ShapeExpr(list(node.meta["val"].shape))
        return emit(relax.op.broadcast_to(relax.const(False, "bool"), shape))
    if str(node.args[0].meta["val"].dtype) != "torch.bool":
        dtype = str(node.args[0].meta["val"].dtype).removeprefix("torch.")
        x = emit(relax.op.not_equal(x, relax.const(0, dtype)))
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    keeps = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
    axes = None if dims is None or dims == [] else dims
    number = emit(relax.op.astype(x, "int8"))
    most = emit(relax.op.max(number, axes, bool(keeps)))
    if not all(isinstance(size, int) for size in node.args[0].meta["val"].shape):
        # Of no elements, the largest is the least number there is.
        return emit(relax.op.greater(most, relax.const(0, "int8")))
    return emit(relax.op.astype(most, "bool"))


def _reversed_difference(node: Any, importer: Any) -> Any:
    first, second = _operands(node, importer)
    return importer.block_builder.emit(relax.op.subtract(second, first))


def _division(node: Any, importer: Any) -> Any:
    emit = importer.block_builder.emit
    operands = _operands(node, importer)
    mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("rounding_mode")
    if mode == "floor":
        return emit(relax.op.floor_divide(*operands))
    quotient = emit(relax.op.divide(*operands))
    # Relax divides integers as C does: towards zero.
    is_float = node.meta["val"].dtype.is_floating_point
    return emit(relax.op.trunc(quotient)) if mode == "trunc" and is_float else quotient


def _power(node: Any, importer: Any) -> Any:
    """Emit a power whose exponent is a tensor; Relax has it for floats."""
    base, exponent = _operands(node, importer)
    emit, result = importer.block_builder.emit, node.meta["val"].dtype
    if result.is_floating_point:
        return emit(relax.op.power(base, exponent))
    if node.args[0] != 2:
        raise ValueError("an integer base other than 2 with an integer exponent is not supported")
    dtype = str(result).removeprefix("torch.")
    one, zero = relax.const(1, dtype), relax.const(0, dtype)
    # 2 ** -1 is 0 in integers.
    shift = emit(relax.op.maximum(exponent, zero))
    is_whole = relax.op.greater_equal(exponent, zero)
    return emit(relax.op.where(is_whole, relax.op.left_shift(one, shift), zero))


def _only_values(node: Any, what: str) -> None:
    """Refuse an operator whose second result, the places of its values, is used."""
    import operator

    for user in node.users:
        if user.target is not operator.getitem or user.args[1] != 0:
            raise ValueError(f"the indices that {what} returns are not supported")


def _max_pool(what: str) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        _only_values(node, what)
        size, *others = node.args[1:]
        if others and not others[0]:  # as max_pool2d(x, 3, padding=1) has it
            node.args = (node.args[0], size, size, *others[1:])
        return getattr(importer, f"_{what}_with_indices")(node)

    return convert


def _adaptive_max_pool(node: Any, importer: Any) -> Any:
    """Emit maxima along one axis after the other: each cell of the result has its own window."""
    _only_values(node, "adaptive_max_pool2d")
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    sizes = importer.sizes.shape(node.args[0].meta["val"].shape)
    for axis, count in zip((-2, -1), node.args[1], strict=True):
        at, size = len(sizes) + axis, sizes[axis]
        begins = [i * size // count for i in range(count)]
        ends = [-(-(i + 1) * size // count) for i in range(count)]
        cells = [
            emit(
                relax.op.max(
                    emit(relax.op.strided_slice(x, [at], [begin], [end])), at, keepdims=True
                )
            )
            for begin, end in zip(begins, ends, strict=True)
        ]
        x = cells[0] if count == 1 else emit(relax.op.concat(cells, at))
    return x, None


def _dropout(node: Any, importer: Any) -> Any:
    """Refuse a dropout that is on, as ``functional.dropout(x)`` is; TVM leaves it out."""
    if node.args[1] and node.args[2]:
        raise ValueError(
            "dropout in inference draws random numbers, which is not supported: pass "
            "training=self.training"
        )
    return importer.env[node.args[0]], None


def _grid_sample(node: Any, importer: Any) -> Any:
    """Emit a sampling; Relax has the coordinates of a point before the image's axes."""
    data, grid = (importer.env[each] for each in node.args[:2])
    emit = importer.block_builder.emit
    modes, pads = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return emit(
        relax.op.image.grid_sample(
            data,
            emit(relax.op.permute_dims(grid, [0, 3, 1, 2])),
            method=modes[node.args[2]],
            layout="NCHW",
            padding_mode=pads[node.args[3]],
            align_corners=bool(node.args[4]),
        )
    )
