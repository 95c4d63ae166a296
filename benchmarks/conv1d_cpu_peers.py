"""What a user would take instead of ours, for `conv1d_cpu.py`: torch, oneDNN, scipy and numpy.

Each gets what suits it best and costs no time that is measured: channels-last peers get their data
that way, oneDNN its weights packed, torch.compile has compiled. Peers whose interface has no `out`
allocate their result, which `conv1d_cpu.py` makes cheap. Those that can pad on both sides alike
only compute more columns and slice them off, as people write it in PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from conv1d_cpu_cases import SHIFT, Arrays, Case

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None
try:
    import scipy
    import scipy.ndimage
except ImportError:
    scipy = None

ZERO_POINT = 128  # quantized activations of torch are uint8


@dataclass(frozen=True)
class Version:
    """What is timed, and what makes it run once and gives its result as [N, C, W]."""

    run: Callable[[], Any]
    result: Callable[[], np.ndarray]


class Missing(Exception):
    """A peer is not there, or not for this type; says why."""


def prepare(threads: int) -> None:
    """Set the number of threads, and forget what torch.compile has compiled for another."""
    if torch is None:
        return
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch._dynamo.reset()
    torch._inductor.config.cpp.threads = threads
    for text in (".*quantized tensor creation.*", "Using padding='same'.*"):
        warnings.filterwarnings("ignore", message=text)


def versions_of_packages() -> dict[str, str | None]:
    """Return the versions of the packages, None for those that are missing."""
    return {
        "torch": torch.__version__ if torch is not None else None,
        "scipy": scipy.__version__ if scipy is not None else None,
    }


# ---- torch, in floating point --------------------------------------------------------------------


def tensor(array: np.ndarray) -> Any:
    """Copy an array into a tensor; numbers that numpy and torch do not share pass as float32."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype("float32")).to(torch.bfloat16)
    return torch.from_numpy(array).clone()


def numpy_of(y: Any) -> np.ndarray:
    """Return a tensor of three axes, or of four with a height of 1, as float32 in numpy."""
    flat = y.squeeze(2) if y.dim() == 4 else y
    return flat.to(torch.float32).contiguous().numpy()


def of_torch(run: Callable[[], Any]) -> Version:
    """Make a version of a function that returns a tensor."""
    return Version(run, lambda: numpy_of(run()))


def channels_last(x: Any) -> Any:
    """Return [N, C, W] as [N, C, 1, W] with the channels innermost in memory."""
    return x[:, :, None].contiguous(memory_format=torch.channels_last)


def padding_of(case: Case) -> tuple[int, slice | None]:
    """Return how much to pad on both sides alike, and which columns to take of the result."""
    left, right = case.zeros
    both = max(left, right)
    return both, None if left == right else slice(both - left, both - left + case.w)


def layer(case: Case, arrays: Arrays, dims: int, inplace: bool) -> tuple[Callable[[Any], Any], Any]:
    """Return a convolution with its activation, as people write it, and what to call it with."""
    x, weight, bias = (tensor(arrays[name]) for name in ("x", "weight", "bias"))
    weight = weight[:, None]
    both, columns = padding_of(case)
    padding: Any = both
    if dims == 2:
        x, weight, padding = channels_last(x), channels_last(weight), (0, both)
    convolution = F.conv1d if dims == 1 else F.conv2d
    if columns is not None and not case.causal:
        padding, columns = "same", None
    activation = {"relu": F.relu, "silu": F.silu}[case.activation]
    channels = case.c

    def forward(x: Any) -> Any:
        y = convolution(x, weight, bias, padding=padding, groups=channels)
        if columns is not None:
            y = y[..., columns]
        return activation(y, inplace=inplace)

    return forward, x


def torch_conv1d(case: Case, arrays: Arrays) -> Version:
    """torch, channels first."""
    forward, x = layer(case, arrays, 1, inplace=True)
    return of_torch(lambda: forward(x))


def torch_conv2d(case: Case, arrays: Arrays) -> Version:
    """torch, channels last, which only tensors of four axes can be."""
    forward, x = layer(case, arrays, 2, inplace=True)
    return of_torch(lambda: forward(x))


def compiled_conv1d(case: Case, arrays: Arrays) -> Version:
    """torch.compile, channels first."""
    forward, x = layer(case, arrays, 1, inplace=False)
    compiled = torch.compile(forward, dynamic=False)
    return of_torch(lambda: compiled(x))


def compiled_conv2d(case: Case, arrays: Arrays) -> Version:
    """torch.compile, channels last."""
    forward, x = layer(case, arrays, 2, inplace=False)
    compiled = torch.compile(forward, dynamic=False)
    return of_torch(lambda: compiled(x))


def onednn(case: Case, arrays: Arrays) -> Version:
    """oneDNN, channels last, with packed weights and the activation fused."""
    x, weight, bias = (tensor(arrays[name]) for name in ("x", "weight", "bias"))
    x, both, columns, one = channels_last(x), *padding_of(case), [1, 1]
    pack = torch.ops.mkldnn._reorder_convolution_weight
    packed = pack(weight[:, None, None], [0, both], one, one, case.c, list(x.shape))
    operator = torch.ops.mkldnn._convolution_pointwise
    post = {"relu": "relu", "silu": "swish"}[case.activation]
    channels = case.c

    def run() -> Any:
        y = operator(x, packed, bias, [0, both], one, one, channels, post, [], "")
        return y if columns is None else y[..., columns]

    return of_torch(run)


# ---- torch, in int8 ------------------------------------------------------------------------------


def quantized(case: Case, arrays: Arrays) -> tuple[Any, Any, Any]:
    """Return x as uint8, weight and bias, all scaled by 1."""
    x = (tensor(arrays["x"]).to(torch.int32) + ZERO_POINT).to(torch.uint8)
    bias = tensor(arrays["bias"]).to(torch.float32)
    return x, tensor(arrays["weight"])[:, None], bias


def onednn_int8(case: Case, arrays: Arrays) -> Version:
    """oneDNN's quantized convolution, channels last, with packed weights and the ReLU fused."""
    x, weight, bias = quantized(case, arrays)
    x, both, columns, one = channels_last(x), *padding_of(case), [1, 1]
    if columns is not None:
        raise Missing("written for as much padding on both sides")
    scales, points = torch.ones(case.c), torch.zeros(case.c, dtype=torch.int32)
    shape, channels, scale = list(x.shape), case.c, 2.0**SHIFT
    pack, operator = torch.ops.onednn.qconv_prepack, torch.ops.onednn.qconv2d_pointwise
    padding = [0, both]
    packed = pack(weight[:, :, None], scales, 1.0, ZERO_POINT, one, padding, one, channels, shape)

    def run() -> Any:
        return operator(
            *(x, 1.0, ZERO_POINT, packed, scales, points, bias, one, padding, one, channels),
            *(scale, ZERO_POINT, torch.uint8, "relu", [], ""),
        )

    return Version(run, lambda: numpy_of(run()) - ZERO_POINT)


def quantized_conv(case: Case, arrays: Arrays, dims: int) -> Version:
    """The quantized convolution of torch.ao, with oneDNN below it.

    The engines "x86" and "fbgemm" take hundreds of times as long for such filters.
    """
    if "onednn" not in torch.backends.quantized.supported_engines:
        raise Missing("torch has no quantized engine 'onednn' here")
    torch.backends.quantized.engine = "onednn"
    x, weight, bias = quantized(case, arrays)
    both, columns = padding_of(case)
    if columns is not None:
        raise Missing("written for as much padding on both sides")
    padding, one = ([both], [1]) if dims == 1 else ([0, both], [1, 1])
    if dims == 2:
        x, weight = channels_last(x), weight[:, :, None]
    scales, points = torch.ones(case.c, dtype=torch.float64), torch.zeros(case.c, dtype=torch.int64)
    quantized_x = torch._make_per_tensor_quantized_tensor(x, 1.0, ZERO_POINT)
    quantized_w = torch._make_per_channel_quantized_tensor(weight, scales, points, 0)
    operators = torch.ops.quantized
    pack = operators.conv1d_prepack if dims == 1 else operators.conv2d_prepack
    operator = operators.conv1d_relu if dims == 1 else operators.conv2d_relu
    packed = pack(quantized_w, bias, one, padding, one, case.c)
    scale = 2.0**SHIFT

    def run() -> Any:
        return operator(quantized_x, packed, scale, ZERO_POINT)

    return Version(run, lambda: numpy_of(run().int_repr()) - ZERO_POINT)


# ---- scipy and numpy -----------------------------------------------------------------------------


def aligned(array: np.ndarray) -> np.ndarray:
    """Copy an array to where TVM and torch would have it: at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def with_scipy(case: Case, arrays: Arrays) -> Version:
    """scipy.ndimage, which filters all rows of a channel at once."""
    x, weight, bias = aligned(arrays["x"]), arrays["weight"], arrays["bias"][:, None]
    y = aligned(x)
    origin = case.zeros[0] - case.f // 2
    correlate = scipy.ndimage.correlate1d

    def run() -> np.ndarray:
        for c in range(case.c):
            correlate(x[:, c], weight[c], 1, y[:, c], mode="constant", origin=origin)
        np.add(y, bias, out=y)
        return in_place(case, y)

    return Version(run, run)


def with_numpy(case: Case, arrays: Arrays) -> Version:
    """numpy, a tap at a time on all of x, in memory that is reused."""
    x, weight, bias = aligned(arrays["x"]), arrays["weight"], arrays["bias"][:, None]
    y, product = aligned(x), aligned(x)
    left = case.zeros[0]

    def run() -> np.ndarray:
        y[...] = bias
        for j in range(case.f):
            shift = j - left  # y[i] takes x[i + shift]
            first, behind = max(0, -shift), min(case.w, case.w - shift)
            part = product[:, :, first:behind]
            np.multiply(x[:, :, first + shift : behind + shift], weight[:, j, None], out=part)
            y[:, :, first:behind] += part
        return in_place(case, y)

    return Version(run, run)


def in_place(case: Case, y: np.ndarray) -> np.ndarray:
    """Apply the activation."""
    if case.activation == "relu":
        return np.maximum(y, 0, out=y)
    with np.errstate(over="ignore"):
        return np.divide(y, 1 + np.exp(-y), out=y)


# ---- All of them ---------------------------------------------------------------------------------

Maker = Callable[[Case, Arrays], Version]

IN_FLOAT: dict[str, Maker] = {
    "torch conv1d": torch_conv1d,
    "torch conv2d channels-last": torch_conv2d,
    "torch.compile conv1d": compiled_conv1d,
    "torch.compile conv2d channels-last": compiled_conv2d,
    "oneDNN fused, prepacked": onednn,
}
IN_INT8: dict[str, Maker] = {
    "torch quantized conv1d": lambda case, arrays: quantized_conv(case, arrays, 1),
    "torch quantized conv2d channels-last": lambda case, arrays: quantized_conv(case, arrays, 2),
    "oneDNN fused, prepacked": onednn_int8,
}
# They know no threads, and of the types that convolutions have only this one.
ALONE: dict[str, Maker] = {"scipy.ndimage": with_scipy, "numpy": with_numpy}


def makers(case: Case, threads: int) -> dict[str, Maker]:
    """Return what makes each of the peers for a case."""
    found = dict(IN_INT8 if case.dtype == "int8" else IN_FLOAT)
    if case.dtype == "float32" and threads == 1:
        found |= ALONE
    return found


def make(name: str, case: Case, arrays: Arrays, threads: int) -> Version:
    """Make a peer.

    Raises
    ------
    Missing
        It is not installed.
    """
    package = {"scipy.ndimage": scipy, "numpy": np}.get(name, torch)
    if package is None:
        raise Missing("scipy is not installed" if name in ALONE else "torch is not installed")
    return makers(case, threads)[name](case, arrays)
