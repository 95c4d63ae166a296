"""Quantised layers of ONNX models, and what they compute by ONNX's definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def model(
    nodes: list[Any],
    inputs: dict[str, np.ndarray],
    constants: dict[str, Any],
    results: list[str],
    opset: int = 17,
) -> Any:
    """A model of nodes, whose inputs have the types and shapes of arrays."""
    typed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    outputs = [onnx.ValueInfoProto(name=each) for each in results]
    graph = helper.make_graph(nodes, "quantised", typed, outputs, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(made)
    known = {each.name: each for each in inferred.graph.value_info}
    for each in inferred.graph.output:
        if not each.HasField("type") and each.name in known:
            each.CopyFrom(known[each.name])
    return inferred


def with_types(made: Any, **types: Any) -> Any:
    """A model with the types of results that shape inference does not know."""
    for each in made.graph.output:
        if each.name in types:
            element = helper.np_dtype_to_tensor_dtype(np.dtype(types[each.name]))
            each.CopyFrom(helper.make_tensor_value_info(each.name, element, None))
    return made


@dataclass
class Layer:
    """A product or a convolution of 8-bit integers, with its scales and zero points.

    - `operator`: "MatMul", "Gemm" or "Conv".
    - `x`, `w`: shapes of the input and of the weights.
    - `per_channel`: whether each column or filter has a scale of its own.
    - `bias`: "", "int32" or "float32".
    - `attributes` (dict): of the operator.
    - `between`: operator before the result is quantised: "", "Relu" or "Clip".
    """

    operator: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    x_type: str = "uint8"
    w_type: str = "int8"
    y_type: str = "uint8"
    x_zero: int = 0
    w_zero: int = 0
    y_zero: int = 117
    per_channel: bool = False
    bias: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    between: str = ""

    @property
    def channels_at(self) -> int:
        """The axis of the weights that has a scale for each place."""
        return 0 if self.operator == "Conv" or self.attributes.get("transB") else 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Integers, scales and zero points, by their names in the model."""
        rng = np.random.default_rng(0)
        channels = self.w[self.channels_at]

        def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
            ends = np.iinfo(dtype)
            return rng.integers(ends.min, ends.max + 1, shape).astype(dtype)

        w_scale = np.float32(0.01)
        if self.per_channel:
            w_scale = rng.uniform(0.002, 0.02, channels).astype("float32")
        w_zero = np.full(np.shape(w_scale), self.w_zero, self.w_type)
        x_scale = np.float32(0.017)
        arrays = {
            "x": drawn(self.x_type, self.x),
            "x_scale": x_scale,
            "x_zero": np.array(self.x_zero, self.x_type),
            "w": drawn(self.w_type, self.w),
            "w_scale": w_scale,
            "w_zero": w_zero,
            "y_zero": np.array(self.y_zero, self.y_type),
        }
        if self.bias == "int32":
            arrays["b"] = rng.integers(-3000, 3000, channels).astype("int32")
        elif self.bias:
            arrays["b"] = rng.standard_normal(channels).astype("float32")
        spread = np.std(self.numbers(arrays))
        # Most results are within 8 bits, some beyond.
        arrays["y_scale"] = np.float32(spread / 50)
        return arrays

    def sums(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The sums of integers without their zero points."""
        x = arrays["x"].astype("int64") - int(arrays["x_zero"])
        w = arrays["w"].astype("int64") - self.w_zero
        if self.operator != "Conv":
            x = x.T if self.attributes.get("transA") else x
            return x @ (w.T if self.attributes.get("transB") else w)
        return convolution(x, w, **self.attributes)

    def scales(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The scales of the sums, in the shape in which they broadcast."""
        scales = arrays["x_scale"] * arrays["w_scale"]
        several = self.operator == "Conv" and self.per_channel
        return scales.reshape(-1, *[1] * (len(self.w) - 2)) if several else scales

    def numbers(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """The results before they are quantised, in float64."""
        sums, scales = self.sums(arrays), self.scales(arrays).astype("float64")
        bias = arrays.get("b", np.zeros(1, "int32"))
        if self.operator == "Conv":
            bias = bias.reshape(-1, *[1] * (len(self.w) - 2))
        if bias.dtype == np.int32:
            numbers = (sums + bias) * scales
        else:
            numbers = sums * scales + bias
        return {
            "": numbers,
            "Relu": np.maximum(numbers, 0),
            "Clip": np.clip(numbers, -0.5, 1.5),
        }[self.between]

    def quantised(self, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The results, and which of them a rounding of float32 may change by 1."""
        steps = self.numbers(arrays) / arrays["y_scale"].astype("float64")
        ends = np.iinfo(self.y_type)
        near = np.abs(np.abs(steps - np.floor(steps)) - 0.5) < 1e-3
        whole = np.clip(np.rint(steps) + self.y_zero, ends.min, ends.max)
        return whole.astype(self.y_type), near

    def bias_nodes(self, arrays: dict[str, np.ndarray]) -> tuple[list[Any], list[str]]:
        """Nodes and names of the bias of the form with DequantizeLinear."""
        if self.bias != "int32":
            return [], ["b"] if self.bias else []
        scale = arrays["x_scale"] * arrays["w_scale"]
        arrays["b_scale"] = np.asarray(scale, "float32")
        arrays["b_zero"] = np.zeros(np.shape(scale), "int32")
        inputs = ["b", "b_scale", "b_zero"]
        return [helper.make_node("DequantizeLinear", inputs, ["bf"], axis=0)], ["bf"]

    def with_ends(self, results: tuple[str, ...] = ("y",)) -> tuple[Any, dict[str, np.ndarray]]:
        """The layer as DequantizeLinear, the operator, QuantizeLinear; and its arrays."""
        arrays = self.arrays()
        bias, names = self.bias_nodes(arrays)
        after = {
            "": [],
            "Relu": [helper.make_node("Relu", ["f"], ["g"])],
            "Clip": [helper.make_node("Clip", ["f", "low", "high"], ["g"])],
        }[self.between]
        if self.between == "Clip":
            arrays |= {"low": np.float32(-0.5), "high": np.float32(1.5)}
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"]),
            helper.make_node(
                "DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], axis=self.channels_at
            ),
            *bias,
            helper.make_node(self.operator, ["xf", "wf", *names], ["f"], **self.attributes),
            *after,
            helper.make_node(
                "QuantizeLinear", ["g" if after else "f", "y_scale", "y_zero"], ["y"], name="last"
            ),
        ]
        constants = {name: array for name, array in arrays.items() if name != "x"}
        return model(nodes, {"x": arrays["x"]}, constants, list(results)), arrays

    def in_one_node(self) -> tuple[Any, dict[str, np.ndarray]]:
        """The layer as QLinearMatMul, QGemm or QLinearConv, and its arrays."""
        arrays = self.arrays()
        sides = [f"{name}{part}" for name in "xw" for part in ("", "_scale", "_zero")]
        ends, bias = ["y_scale", "y_zero"], ["b"] if self.bias else []
        if self.operator == "Gemm":
            inputs, domain, name = [*sides, *(bias or [""]), *ends], "com.microsoft", "QGemm"
        else:
            inputs, domain, name = [*sides, *ends, *bias], "", f"QLinear{self.operator}"
        node = helper.make_node(name, inputs, ["y"], "layer", domain=domain, **self.attributes)
        constants = {each: array for each, array in arrays.items() if each != "x"}
        made = model([node], {"x": arrays["x"]}, constants, ["y"])
        return with_types(made, y=self.y_type), arrays


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    group: int = 1,
) -> np.ndarray:
    """A convolution of integers, exact."""
    count = x.ndim - 2
    pads, strides = pads or [0] * (2 * count), strides or [1] * count
    dilations = dilations or [1] * count
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:count], pads[count:], strict=True)])
    axes = tuple(range(2, 2 + count))
    reach = [(size - 1) * by + 1 for size, by in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    steps = tuple(slice(None, None, by) for by in strides)
    taps = tuple(slice(None, None, by) for by in dilations)
    windows = windows[(slice(None), slice(None), *steps, *taps)]
    parts = np.split(windows, group, axis=1), np.split(w, group, axis=0)
    kernel = "hij"[:count]
    done = [
        np.einsum(f"nc...{kernel},oc{kernel}->no...", *pair) for pair in zip(*parts, strict=True)
    ]
    return np.concatenate(done, axis=1)
