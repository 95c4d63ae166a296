"""Norms of groups of channels as functions of TIR, whose variance has a pass of its own.

TVM's functions compute the mean of the squares less the square of the mean: where the mean is much
larger than the deviations, that has none of their digits, and may be negative. Like TVM's own for
``nn.layer_norm``, these have two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from tvm import te, topi


def _group_norm(builder: Any, call: Any) -> Any:
    """Return the call of a function for ``nn.group_norm``."""
    return _called(builder, call, "group_norm", int(call.attrs.num_groups))


def _instance_norm(builder: Any, call: Any) -> Any:
    """Return the call of a function for ``nn.instance_norm``."""
    return _called(builder, call, "instance_norm", None)


def _called(builder: Any, call: Any, name: str, groups: int | None) -> Any:
    """Return the call of a function that normalises channels, or groups of them.

    - `groups`: number of groups, None if each channel is normalised alone.
    """
    attributes, rank = call.attrs, int(call.args[0].ty.ndim)
    channel = int(attributes.channel_axis) % rank
    axes = [int(axis) % rank for axis in attributes.axes]

    def norm(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        shape, dtype = list(data.shape), str(data.dtype)
        # Sums of 16 bits would have few digits.
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        own = [size if axis == channel else 1 for axis, size in enumerate(shape)]
        gamma, beta = (topi.reshape(topi.cast(each, wide), own) for each in (gamma, beta))
        x, reduced = topi.cast(data, wide), axes
        if groups is not None:
            split = [groups, shape[channel] // groups]
            x = topi.reshape(x, [*shape[:channel], *split, *shape[channel + 1 :]])
            reduced = [channel + 1, *(axis + (axis > channel) for axis in axes)]
        normal = topi.reshape(_normalized(x, reduced, float(attributes.epsilon)), shape)
        return topi.cast(normal * gamma + beta, dtype)

    return builder.call_te(norm, *call.args, primfunc_name_hint=name)


def _normalized(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """Return a tensor less its mean along some axes, divided by its standard deviation."""
    count = reduce(mul, (x.shape[axis] for axis in axes)).astype(x.dtype)
    apart = x - topi.sum(x, axes, keepdims=True) / count
    variance = topi.sum(apart * apart, axes, keepdims=True) / count
    return apart * topi.rsqrt(variance + epsilon)


#: What ``LegalizeOps`` takes instead of TVM's own.
TWO_PASS_NORMS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
}
