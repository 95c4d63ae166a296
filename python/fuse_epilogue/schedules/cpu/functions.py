"""exp, sigmoid and SiLU of float32 in vectors.

LLVM has no vectors of them: it calls the C library for each lane. What replaces them here keeps
infinities and NaN. In units in the last place, exp is within 2, the others within 6; SiLU, where
``exp(-x)`` is above 2**127, which is for x from -88.72 to -88, within 19. For x below that,
``exp(-x)`` is infinite: sigmoid is 0 and SiLU -0.0, as in TVM's own code.

A sigmoid or SiLU that is rounded to 16 bits at once needs less: there it is within 0.51 units in
the last place of float16 or bfloat16, of which the rounding is 0.5. It is zero where ``exp(-x)`` is
above 2**127.5, which is for x below -88.37.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, prim

# ln 2 in two parts: a multiple of the first by an integer below 2**9 is exact in float32.
_LN2_HIGH = 355 / 512
_LN2_LOW = math.log(2) - _LN2_HIGH

# exp(-104) rounds to zero and exp(89) to infinity.
_LEAST, _MOST = -104.0, 89.0
# exp(-80) is less than half a unit in the last place of 1.
_LEAST_BESIDE_ONE = -80.0

# The remainder of the Taylor series behind r**7, for |r| <= ln(2)/2, is 5e-9.
_TERMS = 8

# Of exp(-r) for |r| <= ln(2)/2: at the zeros of a Chebyshev polynomial, off by less than 3e-6.
_NARROW = np.polynomial.Chebyshev.interpolate(
    lambda r: np.exp(-r), 4, domain=[-math.log(2) / 2, math.log(2) / 2]
).convert(kind=np.polynomial.Polynomial)
# Added to a small number, it leaves the nearest integer plus 127 in the last bits of the sum.
_TO_EXPONENT = 1.5 * 2**23 + 127


def with_vector_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with exp and sigmoid of float32 written out.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Scheduled or not; stays as it is.

    Returns
    -------
    tvm.tirx.PrimFunc
        Sums and products in their place, which LLVM vectorizes.

    Example
    -------
    >>> from fuse_epilogue.schedules import cpu
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> func = depthwise_conv1d(1, 8, 64, 3, activation="silu")
    >>> "T.sigmoid" in func.script(), "T.sigmoid" in cpu.with_vector_functions(func).script()
    (True, False)
    """
    return func.with_body(in_vectors(func.body))


def in_vectors(node: Any) -> Any:
    """Return a node with exp and sigmoid of float32 written out.

    Parameters
    ----------
    node : Expr or Stmt
        Casts to 16 bits are still around what they round.
    """
    node = tvm_ffi.structural_map(node, (prim.Cast, _narrow), order="pre")
    node = tvm_ffi.structural_map(node, (prim.Mul, _silu), order="pre")
    return tvm_ffi.structural_map(node, (Call, _written_out))


def _narrow(cast: Any) -> Any:
    """Return what is accurate enough for 16 bits, where a sigmoid or SiLU is cast to them."""
    if str(cast.ty.dtype) not in ("float16", "bfloat16"):
        return cast
    x = _factor_of_silu(cast.value)
    if x is not None:
        return prim.Cast(cast.ty.dtype, x / _one_plus_exp_of_minus(x))
    if _is_call(cast.value, "tirx.sigmoid"):
        return prim.Cast(cast.ty.dtype, _float(1) / _one_plus_exp_of_minus(cast.value.args[0]))
    return cast


def _silu(product: Any) -> Any:
    """Return ``x / (1 + exp(-x))`` for ``x * sigmoid(x)``: a product less."""
    x = _factor_of_silu(product)
    return product if x is None else x / _one_plus_exp(_float(0) - x)


def _factor_of_silu(product: Any) -> Any:
    """Return x of ``x * sigmoid(x)``, None of anything else."""
    if not isinstance(product, prim.Mul):
        return None
    for x, call in ((product.a, product.b), (product.b, product.a)):
        if _is_call(call, "tirx.sigmoid") and tvm_ffi.structural_equal(call.args[0], x):
            return x
    return None


def _written_out(call: Any) -> Any:
    if _is_call(call, "tirx.exp"):
        return vector_exp(call.args[0])
    if _is_call(call, "tirx.sigmoid"):
        return _float(1) / _one_plus_exp(_float(0) - call.args[0])
    return call


def _is_call(node: Any, name: str) -> bool:
    named = isinstance(node, Call) and getattr(node.op, "name", "") == name
    return named and str(node.ty.dtype) == "float32"


def vector_exp(x: Any) -> Any:
    """Return exp(x) as sums and products.

    ``exp(x) = 2**n * exp(r)`` with ``n = round(x / ln 2)`` and ``r = x - n * ln 2``; exp(r) by its
    Taylor series, 2**n as the product of two powers whose exponents fit into float32.

    Parameters
    ----------
    x : Expr
        float32.
    """
    x = _clamp(x, _LEAST, _MOST)
    n = _rounded_quotient(x)
    whole = _integer(n, -150)
    half = prim.RShift(whole, _int(1))
    return _series(x, n) * _power_of_two(half) * _power_of_two(whole - half)


def _one_plus_exp(x: Any) -> Any:
    """Return 1 + exp(x): of that the small values do not matter, and one power is enough."""
    x = _clamp(x, _LEAST_BESIDE_ONE, _MOST)
    n = prim.Min(_float(127), _rounded_quotient(x))
    return _float(1) + _series(x, n) * _power_of_two(_integer(n, -126))


def _one_plus_exp_of_minus(x: Any) -> Any:
    """Return 1 + exp(-x), off by less than 1e-5 of it: infinity from exp(-x) = 2**127.5 on."""
    x = _clamp(x, -_MOST, -_LEAST_BESIDE_ONE)
    # As bits: TVM would simplify the sum minus its constant, as if floats were numbers.
    bits = tirx.reinterpret("int32", x * _float(-1 / math.log(2)) + _float(_TO_EXPONENT))
    n = tirx.reinterpret("float32", bits) - _float(_TO_EXPONENT)
    r = x + n * _float(math.log(2))
    series = _float(_NARROW.coef[-1])
    for coefficient in reversed(_NARROW.coef[:-1]):
        series = series * r + _float(coefficient)
    # The integer becomes the exponent; all other bits of the sum are shifted out.
    power = tirx.reinterpret("float32", prim.LShift(bits, _int(23)))
    return _float(1) + series * power


def _clamp(x: Any, least: float, most: float) -> Any:
    # The constant comes first: then a NaN stays a NaN (TVM compiles max(a, b) as a > b ? a : b).
    return prim.Min(_float(most), prim.Max(_float(least), x))


def _rounded_quotient(x: Any) -> Any:
    return tirx.floor(x * _float(1 / math.log(2)) + _float(0.5))


def _integer(n: Any, least: int) -> Any:
    """Return a whole number that is not below `least` as an integer.

    A NaN becomes `least`: to cast one is undefined. (TVM compiles max(a, b) as a > b ? a : b.)
    """
    return prim.Cast("int32", prim.Max(n, _float(least)))


def _series(x: Any, n: Any) -> Any:
    """Return exp(x - n * ln 2)."""
    r = (x - n * _float(_LN2_HIGH)) - n * _float(_LN2_LOW)
    series = _float(1 / math.factorial(_TERMS - 1))
    for k in reversed(range(_TERMS - 1)):
        series = series * r + _float(1 / math.factorial(k))
    return series


def _power_of_two(n: Any) -> Any:
    """Return 2.0**n for -127 < n < 128: the bits of its exponent."""
    return tirx.reinterpret("float32", prim.LShift(n + _int(127), _int(23)))


def _float(value: float) -> Any:
    return tirx.const(float(value), "float32")


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
