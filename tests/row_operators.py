"""Functions with reductions along rows, as Relax lowers and fuses its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx
from tvm.relax import op

Shapes = list[tuple[int, ...]]


def function(
    rule: Callable[..., Any], shapes: Sequence[tuple[int, ...]], dtype: str = "float32"
) -> Any:
    """Return the function that operators are lowered to, all of them fused into one."""
    builder = relax.BlockBuilder()
    args = [relax.Var(f"x{place}", relax.TensorType(s, dtype)) for place, s in enumerate(shapes)]
    with builder.function("fused", args, attrs={"Primitive": True}):
        with builder.dataflow():
            out = builder.emit_output(rule(*args))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    builder = relax.BlockBuilder(mod)
    args = [relax.Var(f"x{place}", relax.TensorType(s, dtype)) for place, s in enumerate(shapes)]
    (fused,) = [var for var in mod.functions if var.name_hint == "fused"]
    with builder.function("main", args):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(fused, args))
        builder.emit_func_output(out)
    mod = relax.transform.FuseTIR()(builder.get())
    (found,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return found


def _gated(u: Any) -> Any:
    v = op.exp(op.sin(u))
    return op.add(op.multiply(u, v), op.divide(u, op.add(v, relax.const(1.0))))


#: By name: the operators, and the shapes of their inputs for a size. Floats.
ROWS: dict[str, tuple[Callable[..., Any], Callable[[int], Shapes]]] = {
    "softmax": (lambda x: op.nn.softmax(x, -1), lambda n: [(5, n)]),
    "softmax-axis-1": (lambda x: op.nn.softmax(x, 1), lambda n: [(2, n, 3, 5)]),
    "softmax-scaled": (
        lambda x, m: op.nn.softmax(op.add(op.multiply(x, relax.const(0.5)), m), -1),
        lambda n: [(2, 3, n), (3, n)],
    ),
    "softmax-of-gelu": (lambda x: op.nn.softmax(op.nn.gelu(x), -1), lambda n: [(5, n)]),
    # Two dear stages whose last reader is the same: its output has room for one of them.
    "softmax-gated": (lambda x: _gated(op.exp(op.nn.softmax(x, -1))), lambda n: [(5, n)]),
    "softmax-reshaped": (
        lambda x: op.reshape(
            op.nn.softmax(op.reshape(x, (6, int(x.ty.shape[2]))), -1),
            (2, 3 * int(x.ty.shape[2])),
        ),
        lambda n: [(2, 3, n)],
    ),
    "softmax-transposed": (
        lambda x: op.permute_dims(op.nn.softmax(x, -1), [1, 0]),
        lambda n: [(33, n)],
    ),
    "log-softmax": (lambda x: op.nn.log_softmax(x, -1), lambda n: [(5, n)]),
    "layer-norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        lambda n: [(5, n), (n,), (n,)],
    ),
    "layer-norm-channels-first": (
        lambda x, g, b: op.permute_dims(
            op.nn.layer_norm(op.permute_dims(x, [0, 2, 3, 1]), g, b, axes=[-1]), [0, 3, 1, 2]
        ),
        lambda n: [(2, 3, n, 2), (3,), (3,)],
    ),
    "layer-norm-of-sum": (
        lambda x, y, g, b: op.nn.relu(op.nn.layer_norm(op.add(x, y), g, b, axes=[-2, -1])),
        lambda n: [(3, 2, n), (2, n), (2, n), (2, n)],
    ),
    "rms-norm": (
        lambda x, g: op.nn.rms_norm(x, g, axes=[-1]),
        lambda n: [(5, n), (n,)],
    ),
    "group-norm": (
        lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3]),
        lambda n: [(2, 6, n, 3), (6,), (6,)],
    ),
    "group-norm-silu": (
        lambda x, g, b: op.nn.silu(
            op.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2])
        ),
        lambda n: [(2, 6, n), (6,), (6,)],
    ),
    "instance-norm": (
        lambda x, g, b: op.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]),
        lambda n: [(2, 3, 2, n), (3,), (3,)],
    ),
    "batch-norm": (
        lambda x, g, b, m, v: op.nn.batch_norm(x, g, b, m, v, 1)[0],
        lambda n: [(3, 2, n), (2,), (2,), (2,), (2,)],
    ),
    "variance": (lambda x: op.variance(x, [-1]), lambda n: [(5, n)]),
    "std": (lambda x: op.std(x, [0]), lambda n: [(5, n)]),
    "norm": (
        lambda x: op.divide(x, op.sqrt(op.sum(op.multiply(x, x), [-1], keepdims=True))),
        lambda n: [(5, n)],
    ),
    "cosine": (lambda x, y: op.sum(op.multiply(x, y), [-1]), lambda n: [(5, n), (5, n)]),
    "cross-entropy": (
        lambda x, y: op.nn.cross_entropy_with_logits(op.nn.log_softmax(x, -1), y),
        lambda n: [(5, n), (5, n)],
    ),
    "mean-of-exp": (lambda x: op.mean(op.exp(x), [1]), lambda n: [(3, n, 5)]),
    "product": (lambda x: op.prod(op.multiply(x, relax.const(0.7)), [-1]), lambda n: [(5, n)]),
}

#: The same, whose results are exact for small whole numbers, in any order of the sums.
EXACT: dict[str, tuple[Callable[..., Any], Callable[[int], Shapes]]] = {
    "sum-last": (lambda x: op.sum(x, [-1]), lambda n: [(5, n)]),
    "sum-first": (lambda x: op.sum(x, [0]), lambda n: [(5, n)]),
    "sum-middle": (lambda x: op.sum(x, [1]), lambda n: [(3, n, 5)]),
    "sum-middle-long": (lambda x: op.sum(x, [1]), lambda n: [(2, 3, n)]),
    "sum-ends": (lambda x: op.sum(x, [0, 2]), lambda n: [(3, n, 5)]),
    "sum-all": (lambda x: op.sum(x), lambda n: [(3, n)]),
    "sum-keepdims": (lambda x: op.sum(x, [1, 2], keepdims=True), lambda n: [(3, n, 2)]),
    "max-last": (lambda x: op.max(x, [-1]), lambda n: [(5, n)]),
    "min-first": (lambda x: op.min(x, [0]), lambda n: [(7, n)]),
    "max-minus": (lambda x: op.subtract(x, op.max(x, [-1], keepdims=True)), lambda n: [(5, n)]),
    "argmax-last": (lambda x: op.argmax(x, -1), lambda n: [(5, n)]),
    "argmin-first": (lambda x: op.argmin(x, 0), lambda n: [(5, n)]),
    "argmax-all": (lambda x: op.argmax(x), lambda n: [(3, n)]),
    "sum-of-relu": (lambda x: op.nn.relu(op.sum(op.nn.relu(x), [-1])), lambda n: [(4, n)]),
    "centred": (
        lambda x: op.subtract(op.multiply(x, relax.const(4.0)), op.sum(x, [-1], keepdims=True)),
        lambda n: [(5, n)],
    ),
}


def _pools() -> dict[str, tuple[Callable[..., Any], Callable[[int], Shapes]]]:
    found: dict[str, tuple[Callable[..., Any], Callable[[int], Shapes]]] = {}
    for layout in ("NCHW", "NHWC"):

        def shapes(n: int, layout: str = layout) -> Shapes:
            return [(2, 3, n + 1, n + 2) if layout == "NCHW" else (2, n + 1, n + 2, 3)]

        def pool(kind: Any, *sizes: Any, layout: str = layout, **options: Any) -> Any:
            return lambda x: kind(x, *sizes, layout=layout, **options)

        found |= {
            f"max-3-2-1-{layout}": (pool(op.nn.max_pool2d, (3, 3), (2, 2), (1, 1)), shapes),
            f"max-2-2-{layout}": (pool(op.nn.max_pool2d, (2, 2), (2, 2)), shapes),
            f"max-2-1-{layout}": (pool(op.nn.max_pool2d, (2, 3), (1, 1), (1, 1)), shapes),
            f"max-dilated-{layout}": (
                pool(op.nn.max_pool2d, (2, 2), (1, 1), (1, 1), dilation=(2, 2)),
                shapes,
            ),
            f"max-ceil-{layout}": (
                pool(op.nn.max_pool2d, (3, 3), (2, 2), (1, 1), ceil_mode=True),
                shapes,
            ),
        }
    return found


#: Pooling whose results are exact.
POOLS = _pools()
#: Pooling that divides.
AVERAGES: dict[str, tuple[Callable[..., Any], Callable[[int], Shapes]]] = {
    f"avg-{name}-{layout}": (
        lambda x, layout=layout, options=options: op.nn.avg_pool2d(x, layout=layout, **options),
        lambda n, layout=layout: [
            (2, 3, n + 1, n + 2) if layout == "NCHW" else (2, n + 1, n + 2, 3)
        ],
    )
    for layout in ("NCHW", "NHWC")
    for name, options in {
        "3-2-1": {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
        "counted": {
            "pool_size": (3, 3),
            "strides": (2, 2),
            "padding": (1, 1),
            "count_include_pad": True,
        },
        "2-2": {"pool_size": (2, 2), "strides": (2, 2)},
    }.items()
} | {
    "global-NCHW": (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)), lambda n: [(2, 5, n, 3)]),
    "global-NHWC": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"),
        lambda n: [(2, n, 3, 5)],
    ),
}
