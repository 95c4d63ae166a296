"""Functions of floats that Relax has no operator for, written in others.

Gamma functions and the inverse of erf are computed in float64 and rounded once: they are not where
a model spends its time, and float32 would lose what cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

#: From here on Stirling's series is exact in float64 with the terms below.
_STIRLING_FROM = 8
#: The Bernoulli numbers of even orders from 2 on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def special_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return functions by the operators that they decompose."""
    return {
        aten.fmax.default: lambda x, y: _unless_missing(x, y, torch.gt),
        aten.fmin.default: lambda x, y: _unless_missing(x, y, torch.lt),
        aten.hypot.default: _hypot,
        aten.signbit.default: _signbit,
        aten.special_xlog1py.default: _xlog1py,
        aten.ldexp.Tensor: lambda x, exponent: x * torch.pow(2.0, exponent),
        aten.erfinv.default: _erfinv,
        aten.lgamma.default: _lgamma,
        aten.digamma.default: _digamma,
    }


def is_negative(x: Tensor) -> Tensor:
    """Return whether numbers are below zero, or the zero below."""
    # No comparison sees the sign of a zero.
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _signbit(x: Tensor) -> Tensor:
    return is_negative(x) if x.dtype.is_floating_point else x < 0


def _unless_missing(x: Tensor, y: Tensor, is_better: Callable[..., Tensor]) -> Tensor:
    """Choose one of two numbers; the other one if one is NaN."""
    chosen = is_better(x, y)
    if y.dtype.is_floating_point:
        chosen = chosen | torch.isnan(y)
    return torch.where(chosen, x, y)


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """Take out the longer side first: its square may be infinite, or zero."""
    x, y = x.abs(), y.abs()
    is_longer = x > y
    long, short = torch.where(is_longer, x, y), torch.where(is_longer, y, x)
    ratio = short / torch.where(long == 0, 1.0, long)
    value = long * torch.sqrt(1 + ratio * ratio)
    return torch.where(torch.isinf(x) | torch.isinf(y), math.inf, value)


def _xlog1py(x: Tensor, y: Tensor) -> Tensor:
    product = torch.where(x == 0, 0.0, x * torch.log1p(y))
    return torch.where(torch.isnan(y), y, product)


def _wide(x: Tensor) -> tuple[Tensor, Any]:
    """Return numbers in float64, and the type of the result."""
    result = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    return x.to(torch.float64), result


def _erfinv(x: Tensor) -> Any:
    """Improve a first guess, off by 0.2 %, by Halley's method: each step triples its digits."""
    if x.dtype == torch.float64:  # 1 - x has too few digits next to 1.
        return NotImplemented
    x, result = _wide(x)
    bend = 0.147
    log = torch.log(1 - x * x)
    half = 2 / (math.pi * bend) + log * 0.5
    size = torch.sqrt(torch.sqrt(half * half - log / bend) - half)
    guess = torch.where(x < 0, -size, size)
    for _ in range(2):
        step = (torch.erf(guess) - x) * torch.exp(guess * guess) * (math.sqrt(math.pi) / 2)
        guess = guess - step / (1 + guess * step)
    value = torch.where(x.abs() < 1, guess, x * math.inf)
    value = torch.where(x.abs() > 1, math.nan, value)
    return torch.where(x == 0, x, value).to(result)


def _shifted(x: Tensor) -> Tensor:
    """Return numbers from 0.5 on, moved to where Stirling's series holds."""
    return torch.where(x < _STIRLING_FROM, x + _STIRLING_FROM, x)


def _lgamma_of_positive(x: Tensor) -> Tensor:
    y = _shifted(x)
    product = x
    for more in range(1, _STIRLING_FROM):
        product = product * (x + more)
    inverse = 1 / y
    series = torch.zeros_like(y)
    for order in range(len(_BERNOULLI), 0, -1):
        factor = _BERNOULLI[order - 1] / (2 * order * (2 * order - 1))
        series = series * (inverse * inverse) + factor
    value = (y - 0.5) * torch.log(y) - y + (0.5 * math.log(2 * math.pi) + series * inverse)
    return torch.where(x < _STIRLING_FROM, value - torch.log(product), value)


def _lgamma(x: Tensor) -> Tensor:
    x, result = _wide(x)
    is_reflected = x < 0.5
    value = _lgamma_of_positive(torch.where(is_reflected, 1 - x, x))
    # Of a whole number the sine is 0, and the result infinite.
    sine = torch.sin((x - torch.round(x)) * math.pi).abs()
    value = torch.where(is_reflected, torch.log(math.pi / sine) - value, value)
    return torch.where(torch.isinf(x), math.inf, value).to(result)


def _digamma_of_positive(x: Tensor) -> Tensor:
    y = _shifted(x)
    less = 1 / x
    for more in range(1, _STIRLING_FROM):
        less = less + 1 / (x + more)
    inverse = 1 / y
    square = inverse * inverse
    series = torch.zeros_like(y)
    for order in range(len(_BERNOULLI), 0, -1):
        series = (series + _BERNOULLI[order - 1] / (2 * order)) * square
    value = torch.log(y) - inverse * 0.5 - series
    return torch.where(x < _STIRLING_FROM, value - less, value)


def _digamma(x: Tensor) -> Tensor:
    x, result = _wide(x)
    is_reflected = x < 0.5
    value = _digamma_of_positive(torch.where(is_reflected, 1 - x, x))
    away = (x - torch.round(x)) * math.pi
    value = torch.where(is_reflected, value - math.pi * torch.cos(away) / torch.sin(away), value)
    is_pole = is_reflected & (x == torch.round(x))
    value = torch.where(is_pole, math.nan, value)
    # The limits on both sides of zero.
    value = torch.where(x == 0, torch.where(is_negative(x), math.inf, -math.inf), value)
    return torch.where(x == math.inf, math.inf, value).to(result)
