"""Operators of torch, written in others that Relax's importer knows and computes as torch does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import attention_decompositions
from .encoder import encoder_decompositions
from .norms import norm_decompositions
from .places import places_decompositions
from .scans import scan_decompositions
from .special_functions import is_negative, special_decompositions

aten = torch.ops.aten
#: Below this, the difference of an exponential and one loses more than a series does.
_SMALL = 0.25


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.clamp.default: _clamp,
        aten.neg.default: lambda x: NotImplemented if x.dtype.is_signed else 0 - x,
        aten.elu.default: _elu,
        aten.celu.default: lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1.0 / alpha),
        aten.selu.default: lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805),
        aten.expm1.default: _expm1,
        aten.log1p.default: _log1p,
        aten.exp2.default: lambda x: torch.exp(_float(x) * math.log(2)),
        aten.erfc.default: lambda x: 1 - torch.erf(_float(x)),
        aten.copysign.Tensor: _copysign,
        aten.rrelu_with_noise_functional.default: _rrelu,
        aten.var.correction: _var,
        aten.var_mean.correction: _var_mean,
        aten.aminmax.default: _aminmax,
        aten.max.dim: lambda x, dim, keepdim=False: (
            torch.amax(x, dim, keepdim),
            torch.argmax(x, dim, keepdim),
        ),
        aten.min.dim: lambda x, dim, keepdim=False: (
            torch.amin(x, dim, keepdim),
            torch.argmin(x, dim, keepdim),
        ),
        aten.avg_pool2d.default: _average,
        aten.avg_pool3d.default: _average,
        aten.unfold.default: _windows,
        aten.kthvalue.default: _kth,
        aten.addmv.default: lambda a, x, y, beta=1, alpha=1: torch.addmm(
            a.unsqueeze(-1), x, y.unsqueeze(-1), beta=beta, alpha=alpha
        ).squeeze(-1),
        aten.addbmm.default: lambda a, x, y, beta=1, alpha=1: (
            beta * a + alpha * torch.bmm(x, y).sum(0)
        ),
        # torch's and TVM's sorts are stable.
        aten.sort.stable: lambda x, *, stable=None, dim=-1, descending=False: torch.sort(
            x, dim, descending
        ),
        aten.put.default: lambda x, index, source, accumulate=False: (
            x.reshape(-1)
            .index_put((index.reshape(-1),), source.reshape(-1), accumulate)
            .reshape(x.shape)
        ),
        aten.bilinear.default: _bilinear,
        aten._trilinear.default: _trilinear,
        aten._cdist_forward.default: _cdist,
        aten.linalg_vector_norm.default: _vector_norm,
        **attention_decompositions(),
        **encoder_decompositions(),
        **norm_decompositions(),
        **places_decompositions(),
        **scan_decompositions(),
        **special_decompositions(),
        aten.cat.default: _cat,
        aten.view.default: _view,
        aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantize,
        aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantize_channels,
    }


def _float(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Any:
    """Take the upper bound where bounds contradict each other; TVM takes the lower one."""
    if low is None or high is None or not low > high:
        return NotImplemented
    return torch.clamp(torch.clamp(x, min=low), max=high)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    below = _expm1(x if input_scale == 1 else x * input_scale)
    below = below if alpha * scale == 1 else below * (alpha * scale)
    return torch.where(x > 0, x if scale == 1 else x * scale, below)


def _expm1(x: Tensor) -> Tensor:
    """Compute small values by a series, which does not subtract what is nearly equal."""
    x = _float(x)
    # 1 / 2!, ... 1 / 9!: the next term is below 2^-24 of the first.
    series = torch.full_like(x, 1 / math.factorial(9))
    for order in range(8, 0, -1):
        series = series * x + 1 / math.factorial(order)
    return torch.where(x.abs() < _SMALL, series * x, torch.exp(x) - 1)


def _log1p(x: Tensor) -> Tensor:
    """Compute small values by the series of an area tangent; 1 + x would lose their digits."""
    x = _float(x)
    ratio = x / (2 + x)
    square = ratio * ratio
    # 2 (1 + s^2 / 3 + s^4 / 5 + ...): for s below 1/6 the next term is below 2^-24.
    series = torch.full_like(x, 2 / 11)
    for order in (9, 7, 5, 3, 1):
        series = series * square + 2 / order
    return torch.where(x.abs() < _SMALL, series * ratio, torch.log(1 + x))


def _copysign(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(is_negative(y), -x.abs(), x.abs())


def _rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    if training:
        return NotImplemented
    return torch.where(x > 0, x, x * ((lower + upper) / 2)), noise


def _var(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Write out a variance whose divisor is not constant."""
    dims = list(range(x.dim())) if dim is None or len(dim) == 0 else list(dim)
    count = math.prod(x.shape[each] for each in dims)
    if isinstance(count, int):
        return NotImplemented
    away = x - x.mean(dims, keepdim=True)
    lost = 1 if correction is None else correction
    # A whole number: torch would make a float of the size, which Relax has not.
    divisor = count - (int(lost) if lost == int(lost) else lost)
    return (away * away).sum(dims, keepdim) / divisor


def _var_mean(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(range(x.dim())) if dim is None or len(dim) == 0 else dim
    return (
        aten.var.correction(x, dims, correction=correction, keepdim=keepdim),
        torch.mean(x, dims, keepdim),
    )


def _aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = list(range(x.dim())) if dim is None else [dim]
    return torch.amin(x, dims, keepdim), torch.amax(x, dims, keepdim)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Leave out empty vectors, which torch takes beside tensors of any shape.

    A cache of keys and values begins as one.
    """
    kept = [each for each in tensors if tuple(each.shape) != (0,)]
    return NotImplemented if len(kept) in (0, len(tensors)) else aten.cat.default(kept, dim)


def _view(x: Tensor, size: Sequence[int]) -> Any:
    """Copy what is not contiguous first.

    The operand may come from a decomposition, in another layout than that of the operator it
    replaces. In Relax every tensor is contiguous.
    """
    return NotImplemented if x.is_contiguous() else aten.view.default(x.contiguous(), size)


def _fake_quantize(x: Tensor, scale: Any, zero: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    # torch multiplies by the reciprocal, and rounds before it adds the zero.
    places = torch.round(x * (1.0 / scale)) + zero
    inside = (places >= low) & (places <= high)
    return (torch.clamp(places, low, high) - zero) * scale, inside


def _fake_quantize_channels(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
    return _fake_quantize(x, scale.reshape(shape), zero.reshape(shape), low, high)


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out, width, depth = weight.shape
    left = x.reshape(-1, width) @ weight.transpose(0, 1).reshape(width, out * depth)
    result = (left.reshape(-1, out, depth) * y.reshape(-1, 1, depth)).sum(-1)
    result = result.reshape(*x.shape[:-1], out)
    return result if bias is None else result + bias


def _trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    for dim in expand_x:
        x = x.unsqueeze(dim)
    for dim in expand_y:
        y = y.unsqueeze(dim)
    for dim in expand_z:
        z = z.unsqueeze(dim)
    product = x * y * z
    return product.sum(list(summed)) if len(summed) else product


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Any:
    away = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 2:
        return (away * away).sum(-1).sqrt()
    if p == 1:
        return away.sum(-1)
    if p == math.inf:
        return away.amax(-1)
    return (away**p).sum(-1) ** (1 / p) if p > 0 else NotImplemented


def _vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if x.is_complex() or (dtype is not None and dtype.is_complex):
        return NotImplemented
    given = x.dtype if dtype is None else dtype
    # As torch does, 16-bit floats are summed in 32 bits.
    x = x.to(torch.float32 if given in (torch.float16, torch.bfloat16) else given)
    dims = list(range(x.dim())) if dim is None or dim == [] else dim
    away = x.abs()
    if ord == math.inf:
        result = torch.amax(away, dims, keepdim)
    elif ord == -math.inf:
        result = torch.amin(away, dims, keepdim)
    elif ord == 0:
        result = (x != 0).to(x.dtype).sum(dims, keepdim)
    elif ord == 1:
        result = away.sum(dims, keepdim)
    elif ord == 2:
        result = (x * x).sum(dims, keepdim).sqrt()
    else:
        result = (away**ord).sum(dims, keepdim) ** (1 / ord)
    return result.to(given)


def _average(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Write averages with a divisor of the caller's as sums of whole windows."""
    if divisor_override is None or ceil_mode:
        return NotImplemented
    pool = aten.avg_pool2d.default if len(kernel_size) == 2 else aten.avg_pool3d.default
    mean = pool(x, kernel_size, stride, padding, False, True)
    return mean * (math.prod(kernel_size) / divisor_override)


def max_pool_with_indices(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Any:
    """Return maxima of windows, and where they are in a plane of the image.

    The parameters are those of torch's operator, with two numbers each or one for both axes.
    """
    size, pad, spread = (_pair(each) for each in (kernel_size, padding, dilation))
    step = _pair(stride) if len(stride) else size
    pooled = aten.max_pool2d.default(x, size, step, pad, spread, ceil_mode)
    counts = pooled.shape[-2:]
    reach = [(counts[i] - 1) * step[i] + (size[i] - 1) * spread[i] + 1 for i in (0, 1)]
    after = [max(0, reach[i] - pad[i] - x.shape[i - 2]) for i in (0, 1)]
    wide = F.pad(x, (pad[1], after[1], pad[0], after[0]), value=-math.inf)
    taps = [
        wide[
            ...,
            row * spread[0] : row * spread[0] + (counts[0] - 1) * step[0] + 1 : step[0],
            column * spread[1] : column * spread[1] + (counts[1] - 1) * step[1] + 1 : step[1],
        ]
        for row in range(size[0])
        for column in range(size[1])
    ]
    every = torch.stack(taps)
    tap = every.argmax(0)
    begins = [torch.arange(counts[i], device=x.device) * step[i] - pad[i] for i in (0, 1)]
    row = begins[0][:, None] + torch.div(tap, size[1], rounding_mode="floor") * spread[0]
    column = begins[1] + tap % size[1] * spread[1]
    return every.amax(0), row * x.shape[-1] + column


def _pair(value: Any) -> tuple[int, int]:
    first, *others = value if isinstance(value, list | tuple) else [value]
    return int(first), int(others[0] if others else first)


def _windows(x: Tensor, dim: int, size: int, step: int) -> Any:
    if x.dim() == 0 or not isinstance(x.shape[dim], int):
        return NotImplemented
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    begins = torch.arange(count, device=x.device) * step
    places = (begins[:, None] + torch.arange(size, device=x.device)).reshape(-1)
    found = torch.index_select(x, dim, places)
    shape = [*x.shape[:dim], count, size, *x.shape[dim + 1 :]]
    return found.reshape(shape).movedim(dim + 1, -1)


def _kth(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim)
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))
