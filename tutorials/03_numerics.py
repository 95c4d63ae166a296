"""
Numerics: what may happen to a float
====================================

Fused integers stay equal bit for bit. Floats are another matter, because the order in which they
are added decides how they are rounded. Who calls the primitive decides whether the order may
change: ``numerics="reassociate"`` (the default) lets a sum start from its bias,
``numerics="exact"`` keeps every bit.

This tutorial looks at both on data: at three numbers first, then at random ones of growing size, at
the special ones, and at types so narrow that the primitive refuses. The last section checks a
fusion independently of the code that made it.
"""

# %%
# Three terms and a bias
# ----------------------
# A sum of each row, then a bias. Three terms are enough to see the difference.

import dataclasses

import numpy as np
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import verify

try:
    from pictures import curves, show
except ImportError:  # the tutorial alone, without its folder: no drawings
    curves = show = lambda *_, **__: None


def sum_and_bias(rows: int, terms: int, dtype: str = "float32") -> tvm.tirx.PrimFunc:
    """Return a function that adds up rows, and then a bias to each sum."""

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((rows, terms), dtype),
        bias: T.Buffer((rows,), dtype),
        out: T.Buffer((rows,), dtype),
    ) -> None:
        acc = T.sblock_alloc_buffer((rows,), dtype)
        for i, k in T.grid(rows, terms):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    acc[vi] = T.Cast(dtype, 0)
                acc[vi] += x[vi, vk]
        for i in range(rows):
            with T.sblock("add_bias"):
                vi = T.axis.remap("S", [i])
                out[vi] = acc[vi] + bias[vi]

    return main


def three_ways(func: tvm.tirx.PrimFunc) -> dict[str, tvm.IRModule]:
    """Return a function as it is, and fused in both ways."""
    ways = {"as written": Schedule(func).mod}
    for numerics in ("reassociate", "exact"):
        sch = Schedule(func, debug_mask="all")
        print(f"{numerics}: {sch.fuse_reduction_epilogue('sum', numerics=numerics)}")
        ways[numerics] = sch.mod
    return ways


def run(mod: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    """Compile for LLVM, call, and return the last parameter, which is as long as the one before."""
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, np.zeros_like(arrays[-1]))]
    tvm.compile(mod, target={"kind": "llvm"})["main"](*tensors)
    return tensors[-1].numpy()


three = three_ways(sum_and_bias(1, 3))
terms, half = np.array([[1e8, 1, -1e8]], "float32"), np.array([0.5], "float32")
outcomes = {name: run(mod, terms, half) for name, mod in three.items()}
for name, outcome in outcomes.items():
    print(f"{name:12} {outcome[0]}")

# %%
# The true value is 1.5, and all of them miss it, because around 1e8 ``float32`` knows only every
# eighth integer. As written the sum is ``((1e8 + 1) - 1e8) + 0.5``: the 1 is lost and the bias is
# not. Absorbed, it is ``((0.5 + 1e8) + 1) - 1e8``: both are lost. Neither order is better in
# general, and both keep the bound that numerical analysis gives for a sum in any order: with n
# additions, n times half a unit of rounding times the sum of the absolute values.


def bound(terms: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return how far a float32 sum of each row and its bias may be off, in whatever order."""
    magnitudes = abs(terms.astype("float64")).sum(axis=1) + abs(bias.astype("float64"))
    return (terms.shape[1] + 1) * 2.0**-24 * magnitudes


one, big, small = np.float32(1), np.float32(1e8), np.float32(0.5)
assert outcomes["as written"][0] == ((big + one) - big) + small == np.float32(0.5)
assert outcomes["reassociate"][0] == ((small + big) + one) - big == np.float32(0)
assert outcomes["exact"].tobytes() == outcomes["as written"].tobytes()
assert all(abs(outcome[0] - 1.5) <= bound(terms, half)[0] for outcome in outcomes.values())
print(f"a sum in any order: 1.5, plus or minus {bound(terms, half)[0]:.1f}")

# %%
# Random numbers, and a bias that grows
# -------------------------------------
# 512 rows of 256 normals each, and biases from the size of a term to ten million times that. The
# largest error of each way, against a sum in ``float64``:

rng = np.random.default_rng(0)
normals = rng.standard_normal((512, 256)).astype("float32")
long = three_ways(sum_and_bias(*normals.shape))
errors: dict[str, list[tuple[float, float]]] = {name: [] for name in (*long, "bound")}
for power in range(8):
    bias = (10.0**power * rng.uniform(1, 2, 512)).astype("float32")
    true = normals.astype("float64").sum(axis=1) + bias
    results = {name: run(mod, normals, bias) for name, mod in long.items()}
    for name, result in results.items():
        errors[name].append((10.0**power, float(abs(result - true).max())))
        assert (abs(result - true) <= bound(normals, bias)).all()
    errors["bound"].append((10.0**power, float(bound(normals, bias).max())))
    assert results["exact"].tobytes() == results["as written"].tobytes()
print(f"{'bias':>8}  " + "".join(f"{name:>14}" for name in errors))
for row in zip(*errors.values(), strict=True):
    print(f"{row[0][0]:8.0e}  " + "".join(f"{error:14.2e}" for _, error in row))
title = "largest error of 512 sums of 256 normals and a bias, float32"
lines = {"as written, exact": errors["exact"], **errors}
del lines["as written"], lines["exact"]
assert errors["reassociate"][-1][1] > 4 * errors["exact"][-1][1]
show("numerics_bias", curves(title, "size of the bias", "error", lines))

# %%
# As long as the bias is no larger than the sums, nothing is to be seen. Then the fused sum loses
# more: every one of the 256 additions is rounded to what fits beside the bias, and not just the
# last. It stays within its bound, far below it in fact, and 1e7 is a strange bias for terms of size
# 1. But if you compare bits, or have such data, ``numerics="exact"`` is for you: nothing of a float
# is absorbed, the whole epilogue runs after the sum, and it is one pass over memory all the same.
#
# Special numbers
# ---------------
# Zeros have signs, and a sum may overflow on its way in one order and not in the other.

huge = float(np.finfo("float32").max)
special = {
    "negative zeros": ([-0.0, -0.0, -0.0], -0.0),
    "too large on the way": ([huge, -huge, 0.0], huge),
    "infinite": ([float("inf"), 1.0, 2.0], -1.0),
    "not a number": ([float("nan"), 1.0, 2.0], -1.0),
}
for what, (numbers, number) in special.items():
    row, bias = np.array([numbers], "float32"), np.array([number], "float32")
    found = {name: run(mod, row, bias) for name, mod in three.items()}
    assert found["exact"].tobytes() == found["as written"].tobytes()
    print(f"{what:21}" + "".join(f" {name} {value[0]:<12.5g}" for name, value in found.items()))

# %%
# As written a sum starts from 0, and ``0.0 + -0.0`` is ``0.0``. Starting from the bias it is
# ``-0.0``. And ``huge + huge`` is infinite, although the next term would have taken it back. Such
# differences are what "reassociate" allows, besides rounding.
#
# Maxima and minima do not round, so there the two differ in signs of zeros and in NaN alone.
#
# Integers
# --------
# Sums modulo 256 do not depend on their order. Either call gives the same bits, although the sums
# of these ``int8`` overflow all the time.

small_numbers = rng.integers(-128, 128, (512, 256)).astype("int8")
small_bias = rng.integers(-128, 128, 512).astype("int8")
wrapped = [
    run(mod, small_numbers, small_bias)
    for mod in three_ways(sum_and_bias(512, 256, "int8")).values()
]
expected = (small_numbers.sum(axis=1, dtype="int64") + small_bias).astype("int8")
assert all(np.array_equal(result, expected) for result in wrapped)

# %%
# Narrow accumulators
# -------------------
# The unit of rounding of ``float16`` is 8192 times as large. Add up 64 terms of 0.5 and a bias of
# 2048:

halves, big = np.full(64, 0.5, "float16"), np.float16(2048)
bias_first = big
for term in halves:
    bias_first = bias_first + term
bias_last = np.float16(0)
for term in halves:
    bias_last = bias_last + term
bias_last = bias_last + big
print(f"bias last: {bias_last:.0f} | bias first: {bias_first:.0f}")
assert bias_last == 2080 and bias_first == 2048

# %%
# Next to 2048 every single term is rounded away, however many there are. So a floating sum or
# product of fewer than 32 bits absorbs nothing: its bias is a tail, and the report says why. To
# have it absorbed, accumulate in ``float32``.

narrow = Schedule(sum_and_bias(1, 64, "float16"), debug_mask="all")
print(narrow.fuse_reduction_epilogue("sum"))
assert run(narrow.mod, halves[None], big[None])[0] == 2080

# %%
# Trust, and check
# ----------------
# Every report of a fusion carries a certificate: what was proved, as data. ``verify.check`` takes
# the functions before and after, and proves each claim again. It shares no code with the library
# that did the fusing, and it returns nothing, or raises.

func = sum_and_bias(8, 16)
sch = Schedule(func, debug_mask="all")
before = sch.mod["main"]
certificate = sch.fuse_reduction_epilogue("sum").certificate
after = sch.mod["main"]
verify.check(before, after, certificate)
print("a", certificate.monoid, "that starts from", certificate.init)
print("floating operations in another order:", certificate.reassociates)

# %%
# Would it notice? Let a forged certificate claim that the sum still starts from 0, or that nothing
# was reordered. The first is a lie about the program, the second about its rounding:


def verdict_on(claims: fuse_epilogue.Certificate) -> str:
    """Return the claim that the checker rejects, or an empty text."""
    try:
        verify.check(before, after, claims)
    except verify.CertificateError as error:
        return str(error)
    return ""


forged = [
    dataclasses.replace(certificate, init=tvm.tirx.const(0, "float32")),
    dataclasses.replace(certificate, reassociates=False),
]
for claims in forged:
    print(verdict_on(claims))
assert all(verdict_on(claims) for claims in forged) and not verdict_on(certificate)

# %%
# ``verify.equivalent`` does without a certificate. It runs two functions, both compiled by TVM and
# executed by an evaluator of its own, on whole numbers, on normals, and on the nasty ones: signed
# zeros, infinities, NaN, denormals. And it unrolls them, puts an unknown in the place of every
# element, and proves that they store the same. It knows both meanings of "the same":

print(verify.equivalent(before, after))
difference = None
try:
    verify.equivalent(before, after, numerics="exact")
except verify.NotEquivalent as error:
    difference = error
print(difference)
assert difference is not None
