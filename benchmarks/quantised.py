"""Products and convolutions of 8-bit integers, one by one, on one thread, beside ONNX Runtime's.

Each has constant weights, zero points of 0 except where the name says otherwise, and one of these
forms:

- sums: the sums of 32 bits (MatMulInteger, ConvInteger);
- requantised: scaled for each column, rounded and clipped to 8 bits (QLinearMatMul, QLinearConv);
- dynamic: an input in float32 that is quantised at each call, sums scaled to float32
  (DynamicQuantizeLinear, MatMulInteger, Mul: what ONNX Runtime's dynamic quantisation makes).

    python benchmarks/quantised.py             three minutes; writes results/quantised.json
    python benchmarks/quantised.py --only sums-u8s8-128x768x768     a part; writes nothing

Sums must be those of NumPy bit for bit, requantised results those of ONNX Runtime. A sample is the
median of as many runs as take 5 ms; parties take turns. Ours are the functions of the compiled
layer; ONNX Runtime's are its nodes, by its own profiler, which counts whole microseconds; for
both, without transposes at the ends. What to read: `ours/best`, as in `models.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import layers
import numpy as np
from layers import ONNX, OURS, Timer, compare, our_timer, run
from onnx import TensorProto, helper, numpy_helper

import fuse_epilogue
from fuse_epilogue.schedules import host

ZERO_POINT = 128  # of results of 8 bits
TYPES = {"u8": "uint8", "s8": "int8", "f32": "float32"}


@dataclass(frozen=True)
class Layer:
    """A product or a convolution.

    Attributes
    ----------
    form : str
        "sums", "requantised" or "dynamic".
    inputs : str
        Type of the input: "u8", "s8" or, if it is quantised at each call, "f32".
    shape : tuple[int, ...]
        Of the input: rows and products of a sum, or an image NCHW.
    weights : tuple[int, ...]
        Products of a sum and columns, or filters OIHW.
    stride, groups : int
        Of a convolution.
    """

    form: str
    inputs: str
    shape: tuple[int, ...]
    weights: tuple[int, ...]
    stride: int = 1
    groups: int = 1

    @property
    def is_conv(self) -> bool:
        """Whether it is a convolution."""
        return len(self.shape) == 4

    @property
    def padding(self) -> int:
        """Zeros at each side of an image."""
        return self.weights[2] // 2

    @property
    def name(self) -> str:
        """The form, types and sizes."""
        if not self.is_conv:
            sizes = f"{self.shape[0]}x{self.weights[1]}x{self.weights[0]}"
            return f"{self.form}-{self.inputs}s8-{sizes}"
        _, channels, height, width = self.shape
        kernel = f"{self.weights[2]}x{self.weights[3]}" + (
            f"s{self.stride}" if self.stride > 1 else ""
        )
        family = "depthwise" if self.groups > 1 else "conv"
        sizes = f"{channels}-{self.weights[0]}-{kernel}-{height}x{width}"
        return f"{self.form}-{self.inputs}s8-{family}-{sizes}"

    @property
    def family(self) -> str:
        """What a mean is taken of: ONNX Runtime has slow kernels only for two of them."""
        kind = "product" if not self.is_conv else "depthwise" if self.groups > 1 else "conv"
        if self.inputs == "s8":
            return f"{kind}, both signed"
        return f"{kind}, sums" if self.is_conv and self.form == "sums" else kind

    @property
    def scale(self) -> float:
        """The factor of sums that are requantised: most results are within 8 bits."""
        return 0.01 / math.sqrt(
            math.prod(self.weights[:1] if not self.is_conv else self.weights[1:])
        )

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return an input and weights."""
        rng = np.random.default_rng(0)
        if self.inputs == "f32":
            x: Any = rng.standard_normal(self.shape, "float32")
        else:
            ends = np.iinfo(TYPES[self.inputs])
            x = rng.integers(ends.min, ends.max + 1, self.shape).astype(TYPES[self.inputs])
        return x, rng.integers(-127, 128, self.weights).astype("int8")

    def sums(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return the sums by NumPy."""
        x, w = x.astype("int32"), w.astype("int32")
        if not self.is_conv:
            return x @ w
        pad = self.padding
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride]
        if self.groups > 1:
            return np.einsum("nchwij,cij->nchw", windows, w[:, 0])
        n, c, oh, ow, kh, kw = windows.shape
        rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, c * kh * kw)
        product = rows @ w.reshape(len(w), -1).T
        return product.reshape(n, oh, ow, len(w)).transpose(0, 3, 1, 2)


def _product(rows: int, columns: int, depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (rows, depth), (depth, columns)


SIZES = ((128, 768, 768), (128, 3072, 768), (128, 768, 3072), (512, 1024, 1024), (1, 4096, 4096))
LAYERS = (
    *(Layer("sums", "u8", *_product(*sizes)) for sizes in SIZES),
    *(Layer("sums", "s8", *_product(*sizes)) for sizes in (SIZES[0], SIZES[3], SIZES[4])),
    *(Layer("requantised", "u8", *_product(*sizes)) for sizes in SIZES),
    Layer("requantised", "s8", *_product(*SIZES[0])),
    *(Layer("dynamic", "f32", *_product(*sizes)) for sizes in (SIZES[0], SIZES[1], SIZES[4])),
    Layer("sums", "u8", (1, 64, 56, 56), (64, 64, 3, 3)),
    Layer("requantised", "u8", (1, 64, 56, 56), (64, 64, 3, 3)),
    Layer("requantised", "s8", (1, 64, 56, 56), (64, 64, 3, 3)),
    Layer("requantised", "u8", (1, 256, 56, 56), (64, 256, 1, 1)),
    Layer("requantised", "u8", (1, 128, 56, 56), (128, 128, 3, 3), 2),
    Layer("requantised", "u8", (1, 512, 7, 7), (512, 512, 3, 3)),
    Layer("requantised", "u8", (1, 3, 224, 224), (64, 3, 7, 7), 2),
    Layer("requantised", "u8", (1, 144, 56, 56), (144, 1, 3, 3), 1, 144),
    Layer("requantised", "s8", (1, 144, 56, 56), (144, 1, 3, 3), 1, 144),
    Layer("requantised", "u8", (1, 144, 56, 56), (144, 1, 3, 3), 2, 144),
)


# ---- The parties ---------------------------------------------------------------------------------


def onnx_model(layer: Layer, w: np.ndarray) -> Any:
    """Return a layer as a model of ONNX."""
    constants = {"w": w}

    def constant(name: str, value: Any, dtype: str) -> str:
        constants[name] = np.array(value, dtype)
        return name

    kind = TYPES[layer.inputs]
    attributes: dict[str, Any] = {}
    if layer.is_conv:
        attributes = {
            "pads": [layer.padding] * 4,
            "strides": [layer.stride] * 2,
            "group": layer.groups,
        }
    out = {"sums": "int32", "dynamic": "float32"}.get(layer.form, kind)
    if layer.form == "sums":
        operator = "ConvInteger" if layer.is_conv else "MatMulInteger"
        nodes = [helper.make_node(operator, ["x", "w"], ["y"], **attributes)]
    elif layer.form == "requantised":
        one = constant("one", 1.0, "float32")
        zero, of_w = constant("zero", 0, kind), constant("zero_w", 0, "int8")
        scale = constant("scale", 1 / layer.scale, "float32")
        point = constant("point", ZERO_POINT if kind == "uint8" else 0, kind)
        operator = "QLinearConv" if layer.is_conv else "QLinearMatMul"
        inputs = ["x", one, zero, "w", one, of_w, scale, point]
        nodes = [helper.make_node(operator, inputs, ["y"], **attributes)]
    else:
        factor = constant("factor", 0.02, "float32")
        of_w = constant("zero_w", 0, "int8")
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"]),
            helper.make_node("MatMulInteger", ["q", "w", "q_zero", of_w], ["sums"]),
            helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["q_scale", factor], ["scale"]),
            helper.make_node("Mul", ["floats", "scale"], ["y"]),
        ]
    types = {
        name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for name, dtype in (("x", kind), ("y", out))
    }
    graph = helper.make_graph(
        nodes,
        layer.name,
        [helper.make_tensor_value_info("x", types["x"], layer.shape)],
        [helper.make_tensor_value_info("y", types["y"], None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def of_us(layer: Layer, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, Timer]:
    """The functions of the compiled layer that are no conversions of its layout."""
    compiled = fuse_epilogue.compile(onnx_model(layer, w), host(1))
    return np.asarray(compiled(x)), our_timer(compiled, x)


def of_onnx_runtime(layer: Layer, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, Timer]:
    """The nodes that are no transposes."""
    model = onnx_model(layer, w).SerializeToString()
    return layers.of_onnx_runtime(model, x, lambda name: name != "Transpose")


PARTIES = {OURS: of_us, ONNX: of_onnx_runtime}


# ---- The measurement -----------------------------------------------------------------------------


def measure(layer: Layer, turns: int) -> dict[str, Any]:
    """Compare the parties' results and time them in turns."""
    x, w = layer.arrays()
    made = {name: make(layer, x, w) for name, make in PARTIES.items()}
    expected = layer.sums(x, w) if layer.form == "sums" else made[ONNX][0]
    tolerance = 1e-6 if layer.form == "dynamic" else 0.0
    return compare(layer.name, made, expected, tolerance, turns, (ONNX,))[0]


if __name__ == "__main__":
    run(
        "quantised",
        __doc__,
        lambda: {layer.name: layer for layer in LAYERS},
        measure,
        lambda layer: {"ours/best": layer.family},
    )
