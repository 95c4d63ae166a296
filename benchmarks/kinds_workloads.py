"""The workloads of kinds.py: functions of every kind of problem for processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from operators import lower
from tvm import ir, relax, te, tirx, topi

from fuse_epilogue.workloads import depthwise_conv1d, depthwise_conv1d_update, row_reduce

op, nn = relax.op, relax.op.nn


@dataclass(frozen=True)
class Workload:
    """A function to schedule.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
    constants : frozenset[int]
        Indices of the parameters that are constants at every call.
    unfused : tuple[tvm.tirx.PrimFunc, ...]
        Functions that compute the same one after the other; none if there is only one step.
    """

    func: tirx.PrimFunc
    constants: frozenset[int] = frozenset()
    unfused: tuple[tirx.PrimFunc, ...] = ()


def product(
    m: int, n: int, k: int, dtype: str = "float32", constant: bool = True, by_rows: bool = False
) -> Workload:
    """Return a product of matrices; the second one has a row for each column of the result."""
    x = te.placeholder((m, k), dtype, "x")
    of_weights, total = ("int8", "int32") if dtype == "uint8" else (dtype, dtype)
    w = te.placeholder((n, k) if by_rows else (k, n), of_weights, "w")
    at = te.reduce_axis((0, k), "k")

    def element(i: Any, j: Any) -> Any:
        weight = w[j, at] if by_rows else w[at, j]
        return te.sum(x[i, at].astype(total) * weight.astype(total), at)

    y = te.compute((m, n), element, "y")
    func = te.create_prim_func([x, w, y]).with_attr("tirx.noalias", True)
    return Workload(func, frozenset({1} if constant else ()))


def conv(
    shape: tuple[int, ...], filters: int, size: int, stride: int = 1, **given: Any
) -> Workload:
    """Return a convolution in one to three dimensions, channels last unless a layout is given."""
    dtype, groups = given.get("dtype", "float32"), given.get("groups", 1)
    spatial = "DHW"[-(len(shape) - 2) :]
    layout = given.get("layout", f"N{spatial}C")
    kernel = f"O{spatial}I" if layout.endswith("C") else f"OI{spatial}"
    channels = shape[layout.index("C")]
    of_weights, total = ("int8", "int32") if dtype == "uint8" else (dtype, dtype)
    extents = {"O": filters, "I": channels // groups}
    x = te.placeholder(shape, dtype, "x")
    w = te.placeholder([extents.get(axis, size) for axis in kernel], of_weights, "w")
    y = topi.nn.conv(x, w, stride, size // 2, 1, groups, layout, kernel, total)
    func = te.create_prim_func([x, w, y]).with_attr("tirx.noalias", True)
    return Workload(func, frozenset({1}))


def operator(
    build: Callable[..., Any], *shapes: tuple[int, ...], constants: frozenset[int] = frozenset()
) -> Workload:
    """Return operators of Relax as one function, and as one for each step."""
    fused = functions_of(lower(shapes, build))
    if len(fused) != 1:
        raise RuntimeError(f"the operators are {len(fused)} functions")
    steps = functions_of(lower(shapes, build, fused=False))
    return Workload(fused[0], constants, tuple(steps if len(steps) > 1 else ()))


def functions_of(mod: ir.IRModule) -> list[tirx.PrimFunc]:
    """Return the PrimFuncs of a module."""
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def _layer(x: Any, w: Any, b: Any) -> Any:
    return nn.gelu(op.add(op.matmul(x, w), b))


def _conv_layer(x: Any, w: Any, b: Any) -> Any:
    y = nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="OHWI")
    return nn.relu(op.add(y, b))


def _norm(x: Any, scale: Any, bias: Any) -> Any:
    return nn.layer_norm(x, scale, bias, axes=[-1])


def _pool(kind: str, layout: str, size: int, stride: int, pad: int) -> Callable[[Any], Any]:
    function = nn.max_pool2d if kind == "max" else nn.avg_pool2d
    return lambda x: function(x, (size, size), stride, pad, layout=layout)


def _rows(x: Any) -> Any:
    indices = np.random.default_rng(0).integers(0, 1000, 128).astype("int64")
    return op.take(x, relax.const(indices), axis=0)


def _permuted(*axes: int) -> Callable[[Any], Any]:
    return lambda x: op.permute_dims(x, axes)


WEIGHTS = frozenset({1})

#: By name.
WORKLOADS: dict[str, Callable[[], Workload]] = {
    # Products of matrices: square, odd, few rows, few columns, one row, both operands given.
    "product-64x128x128": lambda: product(64, 128, 128),
    "product-128x768x768": lambda: product(128, 768, 768),
    "product-196x256x64": lambda: product(196, 256, 64),
    "product-7x512x300": lambda: product(7, 512, 300),
    "product-3x1000x200": lambda: product(3, 1000, 200),
    "product-1x1024x1024": lambda: product(1, 1024, 1024),
    "product-300x10x512": lambda: product(300, 10, 512),
    "product-37x41x43": lambda: product(37, 41, 43),
    "product-129x257x65": lambda: product(129, 257, 65),
    "product-50x200x120-by-rows": lambda: product(50, 200, 120, by_rows=True),
    "product-100x100x100-given": lambda: product(100, 100, 100, constant=False),
    "product-192x384x64-given-by-rows": lambda: product(192, 384, 64, constant=False, by_rows=True),
    "product-bytes-128x768x768": lambda: product(128, 768, 768, "uint8"),
    "product-bytes-33x100x70": lambda: product(33, 100, 70, "uint8"),
    "product-64x512x128-bias-gelu": lambda: operator(
        _layer, (64, 128), (128, 512), (512,), constants=WEIGHTS
    ),
    "products-12x64x64x48": lambda: operator(op.matmul, (12, 64, 48), (12, 48, 64)),
    "products-24x17x17x33": lambda: operator(op.matmul, (24, 17, 33), (24, 33, 17)),
    # Convolutions.
    "conv-64-64-3x3-56": lambda: conv((1, 56, 56, 64), 64, 3),
    "conv-128-128-3x3s2-28": lambda: conv((1, 28, 28, 128), 128, 3, 2),
    "conv-256-64-1x1-28": lambda: conv((1, 28, 28, 256), 64, 1),
    "conv-512-512-3x3-7": lambda: conv((1, 7, 7, 512), 512, 3),
    "conv-3-32-3x3s2-112": lambda: conv((1, 112, 112, 3), 32, 3, 2),
    "conv-32-48-3x3-28-bias-relu": lambda: operator(
        _conv_layer, (1, 28, 28, 32), (48, 3, 3, 32), (48,), constants=WEIGHTS
    ),
    "conv-16-24-3x3-31-nchw": lambda: conv((1, 16, 31, 31), 24, 3, layout="NCHW"),
    "conv-96-96-3x3-28-depthwise": lambda: conv((1, 28, 28, 96), 96, 3, groups=96),
    "conv-144-144-5x5s2-29-depthwise": lambda: conv((1, 29, 29, 144), 144, 5, 2, groups=144),
    "conv-64-64-3x3-28-4-groups": lambda: conv((1, 28, 28, 64), 64, 3, groups=4),
    "conv-bytes-64-64-3x3-28": lambda: conv((1, 28, 28, 64), 64, 3, dtype="uint8"),
    "conv1d-48-96-5-200": lambda: conv((1, 200, 48), 96, 5),
    "conv3d-16-32-3x3x3-14": lambda: conv((1, 8, 14, 14, 16), 32, 3),
    # Row programs.
    "softmax-96x1000": lambda: operator(lambda x: nn.softmax(x, 1), (96, 1000)),
    "softmax-500x17": lambda: operator(lambda x: nn.softmax(x, 1), (500, 17)),
    "log-softmax-axis1-8x21x300": lambda: operator(lambda x: nn.log_softmax(x, 1), (8, 21, 300)),
    "layer-norm-128x768": lambda: operator(_norm, (128, 768), (768,), (768,)),
    "rms-norm-64x300": lambda: operator(
        lambda x, w: nn.rms_norm(x, w, axes=[-1]), (64, 300), (300,)
    ),
    "sum-axis0-200x333": lambda: operator(lambda x: op.sum(x, 0), (200, 333)),
    "sum-silu-200x512": lambda: Workload(row_reduce(200, 512, activation="silu")),
    "mean-axes1-2-4x49x96": lambda: operator(lambda x: op.mean(x, [1, 2]), (4, 7, 7, 96)),
    "argmax-100x1000": lambda: operator(lambda x: op.argmax(x, 1), (100, 1000)),
    "pool-max-3x3s2-56x56x64": lambda: operator(_pool("max", "NHWC", 3, 2, 1), (1, 56, 56, 64)),
    "pool-avg-2x2s2-16x60x60-nchw": lambda: operator(
        _pool("avg", "NCHW", 2, 2, 0), (1, 16, 60, 60)
    ),
    # Elementwise work and data movement.
    "add-relu-64x3136": lambda: operator(
        lambda x, y: nn.relu(op.add(x, y)), (64, 3136), (64, 3136)
    ),
    "gelu-128x1000": lambda: operator(nn.gelu, (128, 1000)),
    "tanh-33x65": lambda: operator(op.tanh, (33, 65)),
    "broadcast-mul-add-200x130": lambda: operator(
        lambda x, y, z: op.add(op.multiply(x, y), z), (200, 130), (130,), (200, 1)
    ),
    "transpose-300x500": lambda: operator(_permuted(1, 0), (300, 500)),
    "transpose-128x12x64-heads": lambda: operator(_permuted(1, 0, 2), (128, 12, 64)),
    "transpose-32x28x28-channels-last": lambda: operator(_permuted(0, 2, 3, 1), (1, 32, 28, 28)),
    "concat-28x28x24-40": lambda: operator(
        lambda *x: op.concat(x, 3), (1, 28, 28, 24), (1, 28, 28, 40)
    ),
    "take-128-of-1000x256": lambda: operator(_rows, (1000, 256)),
    "pad-30x30x50": lambda: operator(
        lambda x: nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0]), (1, 30, 30, 50)
    ),
    # Running sums, and functions on streams.
    "cumsum-100x300": lambda: operator(lambda x: op.cumsum(x, 1), (100, 300)),
    "stream-conv1d-4x96x300": lambda: Workload(
        depthwise_conv1d(4, 96, 300, 4, padding="causal", activation="silu", initial_state=True)
    ),
    "stream-update-16x256": lambda: Workload(depthwise_conv1d_update(16, 256, 4)),
}
