"""Functions of float32 in vectors, written as sums, products, quotients and bits.

LLVM has no vectors of them: it calls the C library for each lane, which takes 8 to 40 cycles per
element. Infinities, NaN and signed zeros come out as the C library returns them.

========  ==========================================================  =======  ======
function  form                                                        max ulp  cycles
========  ==========================================================  =======  ======
exp       2**n by two powers, Taylor series of degree 7               2        1.5
exp2      2**n by two powers, polynomial of degree 6                  2        1.4
sigmoid   1 / (1 + exp(-x)), one power                                6        1.4
SiLU      x / (1 + exp(-x)), one power                                6        1.4
tanh      x * P(x**2) / Q(x**2), degrees 6 and 3, up to 9.02          8        1.5
erf       x * P(x**2) / Q(x**2), degrees 6 and 4, up to 3.93          8        1.7
log       exponent, and a polynomial of degree 10 of the mantissa     2        2.0
log1p     log(1 + x), corrected for the rounding of 1 + x             4        3.5
sin, cos  turns in float64, polynomials of degrees 7 and 8            2        4.9
pow       products and roots, where the exponent is a small constant  2        0.5
========  ==========================================================  =======  ======

The largest errors, in units in the last place, are bounds which ``test_kernels_vector_math.py``
and ``test_schedules_functions.py`` in the tests check; sin and cos are that exact for all finite
numbers. The cycles are per element of 8192, on a Zen 3 core with AVX2; those of sin and cos are
derived from exp's by the ratio of both on a Zen 5 core, 3.3 (with AVX-512 it is 2.2), and those of
sigmoid and SiLU are of an earlier form with seven instructions more.

TVM itself writes GELU and softplus with these functions. sqrt needs no replacement: processors have
it. rsqrt is written as 1 / sqrt(x), which is what it is compiled to, since TVM computes it lane by
lane. pow of a variable exponent is left to the C library.

For x below -88.72, ``exp(-x)`` is infinite: sigmoid is 0 and SiLU -0.0, as in TVM's own code.

A sigmoid or SiLU that is rounded to 16 bits at once needs less: there it is within 0.51 units in
the last place of float16 or bfloat16, of which the rounding is 0.5. It is zero where ``exp(-x)`` is
above 2**127.5, which is for x below -88.37.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, prim

from ...tir.walk import substitute

# ln 2 in two parts: a multiple of the first by an integer below 2**9 is exact in float32.
_LN2_HIGH = 355 / 512
_LN2_LOW = math.log(2) - _LN2_HIGH

# exp(-104) rounds to zero and exp(89) to infinity.
_LEAST, _MOST = -104.0, 89.0
# exp(-80) is less than half a unit in the last place of 1.
_LEAST_BESIDE_ONE = -80.0

# The remainder of the Taylor series after r**7, for |r| <= ln(2)/2, is 5e-9.
_TERMS = 8

# Coefficients of exp(-r) for |r| <= ln(2)/2: at the zeros of a Chebyshev polynomial, off by less
# than 3e-6.
_NARROW_SERIES = np.polynomial.Chebyshev.interpolate(
    lambda r: np.exp(-r), 4, domain=[-math.log(2) / 2, math.log(2) / 2]
)
_NARROW = [float(c) for c in _NARROW_SERIES.convert(kind=np.polynomial.Polynomial).coef]
# Coefficients of 2**r for |r| <= 1/2, from the constant on: off by less than 2e-9.
_EXP2 = (1.0, 0.693147206, 0.240226469, 0.0555032878, 0.00961848897, 0.00133999312, 0.000153458095)
# Coefficients of exp(r) for |r| <= ln(2)/2, from the constant on, which is 1: off by less than
# 1e-7.
_SHORT_EXP = (1.0, 0.999999702, 0.499991506, 0.166676372, 0.0418979749, 0.00829030667)

# tanh(x) / x and erf(x) / x in powers of x**2, by least squares that are weighted until the largest
# relative errors are equal: off by less than 8e-9 and 6e-8. The target is multiplied by 1 + 2.5e-7
# * (x / bound)**16, so that the quotient at the bound exceeds 1 whatever the roundings, and becomes
# exactly 1 when it is limited to that.
_TANH_BOUND, _ERF_BOUND = 9.02, 3.93
_TANH = (
    (
        0.999999993,
        0.13081407,
        0.00310102706,
        1.11228266e-05,
        -2.00899361e-08,
        5.20631071e-11,
        -8.27662642e-14,
    ),
    (1.0, 0.464147338, 0.0244835759, 0.000254183542),
)
_ERF = (
    (
        1.12837911,
        0.200650482,
        0.0506699754,
        0.00373078172,
        0.000142407842,
        -1.95674848e-06,
        1.98548676e-08,
    ),
    (1.0, 0.511153478, 0.115298697, 0.0144144434, 0.000962621046),
)
# (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2), fitted in the same way.
_LOG = (
    0.333333317096945,
    -0.25000821056247735,
    0.20001226667335503,
    -0.16623356478220508,
    0.1420176247050858,
    -0.13160195067973016,
    0.12761550337565425,
    -0.07634429837285897,
)
# 1 / (2 * pi) in parts of 29 bits, whose products with the 24 bits of a float32 are exact in
# float64, and one of 53: for numbers below 2**76 from the first bit on, for others from bit 54 on,
# as their products with the bits before are integers. Products with the last part are below 2**-12.
_LARGE = 2.0**76
_OF_A_TURN = tuple(
    (float.fromhex(part), float.fromhex(part_for_large))
    for part, part_for_large in (
        ("0x1.45f306dp-3", "0x1.529fc27p-54"),
        ("0x1.9391054p-32", "0x1.5f47d4cp-84"),
        ("0x1.4fe13abp-61", "0x1.377036dp-112"),
        ("0x1.d1f534ddc0db6p-90", "0x1.14acc9e21c82p-141"),
    )
)
# (sin(x) - x) / x**3 and (cos(x) - 1 + x**2 / 2) / x**4 in powers of x**2 for |x| <= pi / 4, fitted
# in the same way: off by less than 4e-9 and 2e-10.
_SIN = (-0.166666552, 0.00833216052, -0.000195152959)
_COS = (0.0416666457, -0.00138873163, 2.44331568e-05)
_ROOT_OF_HALF_BITS = int(np.float32(math.sqrt(0.5)).view("int32"))
_SMALLEST_NORMAL = float(np.finfo("float32").tiny)
_LARGEST = float(np.finfo("float32").max)

# Added to a small number, it leaves the nearest integer plus 127 in the last bits of the sum.
_TO_EXPONENT = 1.5 * 2**23 + 127
# Added to a small number of float64, it leaves the nearest multiple of 1 / 4 in the last bits.
_TO_QUARTERS = 1.5 * 2**50


def with_vector_functions(node: Any) -> Any:
    """Return a node with the transcendental functions of float32 written out.

    - `node` (Expr or Stmt): casts to 16 bits are still around what they round.
    """
    node = tvm_ffi.structural_map(node, (prim.Cast, _narrow), order="pre")
    node = tvm_ffi.structural_map(node, (prim.Mul, _silu), order="pre")
    node = tvm_ffi.structural_map(node, (Call, _written_out))
    node = tvm_ffi.structural_map(node, (prim.Cast, _without_variables))
    return tvm_ffi.structural_map(node, (prim.Let, _with_widened_values))


def _with_widened_values(let: Any) -> Any:
    """Return an expression of a variable that is not cast from bfloat16 by TVM.

    TVM stores bfloat16 as integers. In the value of a variable, it casts the integer itself.
    """
    value = tvm_ffi.structural_map(let.value, (prim.Cast, _widened))
    return let if value.same_as(let.value) else prim.Let(let.var, value, let.body)


def _widened(cast: Any) -> Any:
    """Return a cast from bfloat16 to float32 by bits, any other cast as it is."""
    if (str(cast.value.ty.dtype), str(cast.ty.dtype)) != ("bfloat16", "float32"):
        return cast
    bits = tirx.reinterpret("uint16", cast.value).astype("uint32")
    return tirx.reinterpret("float32", bits << tirx.const(16, "uint32"))


def _without_variables(cast: Any) -> Any:
    """Return a cast to bfloat16 of an expression that has no variables of its own.

    TVM rounds by reading the bits three times: with variables they would be three expressions, of
    which its vectorizer demands that they be the same. LLVM computes equal ones once.
    """
    if str(cast.ty.dtype) != "bfloat16":
        return cast
    return tvm_ffi.structural_map(
        cast, (prim.Let, lambda let: substitute(let.body, {let.var: let.value}))
    )


def _narrow(cast: Any) -> Any:
    """Return what is accurate enough for 16 bits, where a sigmoid or SiLU is cast to them."""
    if str(cast.ty.dtype) not in ("float16", "bfloat16"):
        return cast
    x = _factor_of_silu(cast.value)
    if x is not None:
        return prim.Cast(cast.ty.dtype, _let(x, lambda x: x / _rounded_one_plus_exp_of_minus(x)))
    if _is_call(cast.value, "tirx.sigmoid"):
        return prim.Cast(
            cast.ty.dtype, _float(1) / _rounded_one_plus_exp_of_minus(cast.value.args[0])
        )
    return cast


def _silu(product: Any) -> Any:
    """Return ``x / (1 + exp(-x))`` for ``x * sigmoid(x)``: a product less."""
    x = _factor_of_silu(product)
    return product if x is None else _let(x, lambda x: x / _one_plus_exp_of_minus(x))


def _factor_of_silu(product: Any) -> Any:
    """Return x of ``x * sigmoid(x)``, None of anything else."""
    if not isinstance(product, prim.Mul):
        return None
    for x, call in ((product.a, product.b), (product.b, product.a)):
        if _is_call(call, "tirx.sigmoid") and tvm_ffi.structural_equal(call.args[0], x):
            return x
    return None


def _written_out(call: Any) -> Any:
    if _is_call(call, "tirx.pow"):
        return vector_power(*call.args)
    for name, rule in _RULES.items():
        if _is_call(call, name):
            return rule(call.args[0])
    return call


def _is_call(node: Any, name: str) -> bool:
    named = isinstance(node, Call) and getattr(node.op, "name", "") == name
    return named and str(node.ty.dtype) == "float32"


def _let(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return an expression of a value that is computed once."""
    var = tirx.Var("value", str(value.ty.dtype))
    return prim.Let(var, value, body(var))


def vector_exp(x: Any) -> Any:
    """Return exp(x) as sums and products.

    ``exp(x) = 2**n * exp(r)`` with ``n = round(x / ln 2)`` and ``r = x - n * ln 2``; exp(r) by its
    Taylor series, 2**n as the product of two powers whose exponents fit into float32.

    - `x` (Expr): float32.

    >>> str(vector_exp(tirx.Var("x", "float32")).ty.dtype)
    'float32'
    """
    return _let(
        _clamp(x, _LEAST, _MOST),
        lambda x: _let(_rounded_quotient(x), lambda n: _scaled(_series(x, n), _integer(n, -150))),
    )


def vector_exp2(x: Any) -> Any:
    """Return 2**x as sums and products, for x of float32."""
    return _let(
        _clamp(x, -151.0, 129.0),
        lambda x: _let(
            tirx.floor(x + _float(0.5)),
            lambda n: _let(x - n, lambda r: _scaled(_polynomial(r, _EXP2), _integer(n, -152))),
        ),
    )


def exp_up_to_zero(x: Any) -> Any:
    """Return exp(x) for x of float32 up to 0; for x below -87.7, 0.

    A softmax takes it of differences from the largest value: one power is enough there, and so is
    ln 2 as one number where a product is added before it is rounded. exp(0) is 1. The error is
    within 3 units in the last place down to -20, 5 down to -87.3, and 1.2e-38 below.

    - `x` (Expr): float32; the result for x above 0 is undefined.
    """

    def power(x: Any, bits: Any) -> Any:
        n = tirx.reinterpret("float32", bits) - _float(_TO_EXPONENT)
        exponent = tirx.reinterpret("float32", prim.LShift(bits, _int(23)))
        r = x - n * _float(math.log(2))
        return _let(r, lambda r: _polynomial(r, _SHORT_EXP)) * exponent

    def reduced(x: Any) -> Any:
        # As bits: see _in_powers.
        shifted = x * _float(1 / math.log(2)) + _float(_TO_EXPONENT)
        return _let(tirx.reinterpret("int32", shifted), lambda bits: power(x, bits))

    # -88 rounds to n = -127, whose power has the bits of zero.
    return _let(prim.Max(_float(-88.0), x), reduced)


def vector_sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) for x of float32."""
    return _float(1) / _one_plus_exp_of_minus(x)


def vector_tanh(x: Any) -> Any:
    """Return tanh(x) as a quotient of polynomials, for x of float32."""
    return _odd_quotient(x, _TANH_BOUND, *_TANH)


def vector_erf(x: Any) -> Any:
    """Return erf(x) as a quotient of polynomials, for x of float32."""
    return _odd_quotient(x, _ERF_BOUND, *_ERF)


def vector_log(x: Any) -> Any:
    """Return log(x) for x of float32.

    ``log(x) = e * ln 2 + log(1 + f)`` with ``x = 2**e * (1 + f)`` and ``1 + f`` near 1.
    """

    def mantissa(x: Any, bits: Any) -> Any:
        exponent = prim.RShift(bits - _int(_ROOT_OF_HALF_BITS), _int(23))

        def result(e: Any) -> Any:
            whole = tirx.reinterpret("float32", bits - prim.LShift(e, _int(23)))
            denormal = prim.Select(x < _float(_SMALLEST_NORMAL), _float(23), _float(0))
            added = prim.Cast("float32", e) - denormal
            return _let(whole - _float(1), lambda f: _let(added, lambda n: series(f, n)))

        return _let(exponent, result)

    def series(f: Any, n: Any) -> Any:
        small = f * f * f * _polynomial(f, _LOG) + n * _float(_LN2_LOW)
        return (small - f * f * _float(0.5) + f) + n * _float(_LN2_HIGH)

    def special(x: Any) -> Any:
        normal = prim.Select(x < _float(_SMALLEST_NORMAL), x * _float(2.0**23), x)
        # Without the sign: what is computed for a negative number is discarded.
        bits = tirx.bitwise_and(tirx.reinterpret("int32", normal), _int(0x7FFFFFFF))
        value = _let(bits, lambda bits: mantissa(x, bits))
        positive = prim.Select(x <= _float(_LARGEST), value, x)
        none = prim.Select(x.equal(_float(0)), _float(-math.inf), _float(math.nan))
        return prim.Select(x > _float(0), positive, none)

    return _let(x, special)


def vector_log1p(x: Any) -> Any:
    """Return log(1 + x) for x of float32.

    ``log(u) + c / u`` where u is 1 + x rounded and c what the rounding lost.
    """

    def corrected(x: Any, u: Any) -> Any:
        limited = prim.Min(_float(_LARGEST), u)
        lost = prim.Min(_float(_LARGEST), x) - (limited - _float(1))
        value = vector_log(u) + lost / prim.Max(_float(_SMALLEST_NORMAL), limited)
        return prim.Select(u.equal(_float(1)), x, value)

    def rounded(x: Any) -> Any:
        # As bits: TVM would simplify 1 + x - 1.
        bits = tirx.reinterpret("int32", x + _float(1))
        return _let(tirx.reinterpret("float32", bits), lambda u: corrected(x, u))

    return _let(x, rounded)


def vector_sin(x: Any) -> Any:
    """Return sin(x) for x of float32."""

    def signed(x: Any) -> Any:
        # sin(-x) is -sin(x), zeros included.
        sign = tirx.bitwise_and(tirx.reinterpret("int32", x), _int(-(2**31)))
        return _flipped(_sin_of_positive(tirx.abs(x), 0), sign)

    return _let(x, signed)


def vector_cos(x: Any) -> Any:
    """Return cos(x) for x of float32: the sine a quarter of a turn later."""
    return _sin_of_positive(tirx.abs(x), 1)


def _sin_of_positive(x: Any, quarters: int) -> Any:
    """Return the sine of x and some quarters of a turn, for x of float32 from 0 on, or NaN.

    x is a number of turns, of which only the fraction matters: that of each product with a part of
    1 / (2 * pi) is exact. The nearest quarter is taken off before the rest, within an eighth of a
    turn, becomes a float32.
    """

    def rest(turns: Any, bits: Any) -> Any:
        nearest = tirx.reinterpret("float64", bits) - _double(_TO_QUARTERS)
        angle = prim.Cast("float32", (turns - nearest) * _double(2 * math.pi))
        place = prim.Cast("int32", tirx.bitwise_and(bits, tirx.const(3, "int64"))) + _int(quarters)
        return _let(place, lambda place: _let(angle, lambda a: chosen(a, place)))

    def chosen(a: Any, place: Any) -> Any:
        def value(square: Any) -> Any:
            sin = a + a * square * _polynomial(square, _SIN)
            cos = _polynomial(square, (1.0, -0.5, *_COS))
            is_odd = tirx.bitwise_and(place, _int(1)).equal(_int(1))
            sign = prim.LShift(tirx.bitwise_and(place, _int(2)), _int(30))
            return _flipped(prim.Select(is_odd, cos, sin), sign)

        return _let(a * a, value)

    def in_quarters(turns: Any) -> Any:
        # As bits: see _in_powers.
        bits = tirx.reinterpret("int64", turns + _double(_TO_QUARTERS))
        return _let(bits, lambda bits: rest(turns, bits))

    return _let(prim.Cast("float64", x), lambda x: _turns(x, in_quarters))


def _turns(x: Any, body: Callable[[Any], Any]) -> Any:
    """Return an expression of x / (2 * pi) without most whole turns, for x of float64, from 0 on.

    Infinity has no fraction: it becomes NaN.
    """

    def factor(place: int) -> Any:
        small, large = map(_double, _OF_A_TURN[place])
        return prim.Select(x >= _double(_LARGE), large, small)

    def summed(place: int, total: Any) -> Any:
        def added(turns: Any) -> Any:
            fraction = turns - tirx.floor(turns + _double(0.5))
            return summed(place + 1, fraction if total is None else total + fraction)

        product = x * factor(place)
        if place == len(_OF_A_TURN) - 1:
            return _let(total + product, body)
        return _let(product, added)

    return summed(0, None)


def _flipped(value: Any, sign: Any) -> Any:
    """Return a value with the other sign where the bit of the sign is set."""
    return tirx.reinterpret("float32", tirx.bitwise_xor(tirx.reinterpret("int32", value), sign))


def vector_power(x: Any, exponent: Any) -> Any:
    """Return ``x**exponent``, as products and roots where the exponent is a small constant."""
    if not isinstance(exponent, prim.FloatImm) or float(exponent.value) not in _POWERS:
        return tirx.pow(x, exponent)
    return _let(x, _POWERS[float(exponent.value)])


def _root(x: Any) -> Any:
    """Return ``x**0.5``: other than the square root, 0 for -0.0 and infinite for -inf."""
    root = prim.Select(x.equal(_float(0)), _float(0), tirx.sqrt(x))
    return prim.Select(x < _float(-_LARGEST), _float(math.inf), root)


_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: _let(x * x, lambda square: square * square),
    -1.0: lambda x: _float(1) / x,
    -2.0: lambda x: _float(1) / (x * x),
    0.5: _root,
    -0.5: lambda x: _float(1) / _root(x),
}

_RULES: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": vector_exp,
    "tirx.exp2": vector_exp2,
    "tirx.sigmoid": vector_sigmoid,
    "tirx.tanh": vector_tanh,
    "tirx.erf": vector_erf,
    "tirx.log": vector_log,
    "tirx.log1p": vector_log1p,
    "tirx.sin": vector_sin,
    "tirx.cos": vector_cos,
    "tirx.rsqrt": lambda x: _float(1) / tirx.sqrt(x),
    # Both are LLVM's nearbyint, but TVM takes this one apart where there is a vector of it.
    "tirx.nearbyint": tirx.round,
}


def _odd_quotient(x: Any, bound: float, above: Sequence[float], below: Sequence[float]) -> Any:
    """Return ``x * above(x**2) / below(x**2)`` limited to -1 .. 1, for x limited to the bound."""

    def quotient(x: Any) -> Any:
        value = _let(x * x, lambda t: (x * _polynomial(t, above)) / _polynomial(t, below))
        return _clamp(value, -1.0, 1.0)

    return _let(_clamp(x, -bound, bound), quotient)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Return a polynomial; the coefficients are from the constant on."""
    value = _float(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _float(coefficient)
    return value


def _scaled(value: Any, n: Any) -> Any:
    """Return ``value * 2**n`` for an integer n from -252 to 254."""

    def product(n: Any) -> Any:
        return _let(
            prim.RShift(n, _int(1)),
            lambda half: value * _power_of_two(half) * _power_of_two(n - half),
        )

    return _let(n, product)


def _one_plus_exp_of_minus(x: Any) -> Any:
    """Return 1 + exp(-x): a small exp(-x) does not matter beside 1, so one power is enough."""
    to_half = _TO_EXPONENT - 1

    def value(x: Any, bits: Any) -> Any:
        # n is 128 at most, and 2**128 is not a float32: half the power, and twice the series.
        half = tirx.reinterpret("float32", prim.LShift(bits, _int(23)))
        twice = [2 * coefficient * (-1) ** k for k, coefficient in enumerate(_SHORT_EXP)]
        n = tirx.reinterpret("float32", bits) - _float(to_half)
        return _let(
            _let(n, lambda n: (x + n * _float(_LN2_HIGH)) + n * _float(_LN2_LOW)),
            lambda r: _float(1) + _polynomial(r, twice) * half,
        )

    return _in_powers(x, to_half, value)


def _rounded_one_plus_exp_of_minus(x: Any) -> Any:
    """Return 1 + exp(-x), off by less than 1e-5 of it: infinity from exp(-x) = 2**127.5 on."""

    def value(x: Any, bits: Any) -> Any:
        n = tirx.reinterpret("float32", bits) - _float(_TO_EXPONENT)
        # The integer becomes the exponent; all other bits of the sum are shifted out.
        power = tirx.reinterpret("float32", prim.LShift(bits, _int(23)))
        series = _let(x + n * _float(math.log(2)), lambda r: _polynomial(r, _NARROW))
        return _float(1) + series * power

    return _in_powers(x, _TO_EXPONENT, value)


def _in_powers(x: Any, bias: float, value: Callable[[Any, Any], Any]) -> Any:
    """Return a value of x, limited, and of the bits of the nearest integer to -x / ln 2.

    - `bias`: number that is added to that integer.
    """

    def shifted(x: Any) -> Any:
        # As bits: TVM would simplify the sum minus its constant, as if floats were numbers.
        bits = tirx.reinterpret("int32", x * _float(-1 / math.log(2)) + _float(bias))
        return _let(bits, lambda bits: value(x, bits))

    return _let(_clamp(x, -_MOST, -_LEAST_BESIDE_ONE), shifted)


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
    coefficients = [1 / math.factorial(k) for k in range(_TERMS)]
    return _let(_remainder(x, n), lambda r: _polynomial(r, coefficients))


def _remainder(x: Any, n: Any) -> Any:
    """Return x - n * ln 2."""
    return (x - n * _float(_LN2_HIGH)) - n * _float(_LN2_LOW)


def _power_of_two(n: Any) -> Any:
    """Return 2.0**n for -127 < n < 128: the bits of its exponent."""
    return tirx.reinterpret("float32", prim.LShift(n + _int(127), _int(23)))


def _float(value: float) -> Any:
    return tirx.const(float(value), "float32")


def _double(value: float) -> Any:
    return tirx.const(float(value), "float64")


def _int(value: int) -> Any:
    return tirx.const(value, "int32")
