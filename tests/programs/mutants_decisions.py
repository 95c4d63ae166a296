"""Programs that come out wrong where a decision between absorbing, merging and a tail is wrong.

Nothing is refused here: each program is fused, and is fused wrong if the decision is taken the
other way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from fuse_epilogue.verify import EvaluationError, compile_function
from mutation import Arrays, Mutant, mutant

from . import mutants_faults
from .builders import K, M, add_rows, sum_rows

# ---------------------------------------------------------------------------------------------
# What is peeled off
# ---------------------------------------------------------------------------------------------


# An init that is zero in a roundabout way: by what it starts from.
@T.prim_func(s_tir=True)
def zero_of_itself(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = temp[vi] - temp[vi]
            temp[vi] = temp[vi] + A[vi, vk]
    add_rows(temp, C, D)


# The caller gets the bare sum as well.
@T.prim_func(s_tir=True)
def sum_for_the_caller(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    sum_rows(A, P)
    add_rows(P, C, D)


# Another block reads the bare sum, and cannot become a tail.
@T.prim_func(s_tir=True)
def sum_for_a_mirror(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M // 2,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    add_rows(temp, C, D)
    for i in range(M // 2):
        with T.sblock("half"):
            vi = T.axis.spatial(M // 2, i)
            P[vi] = temp[vi * 2]


# Distributed, every term would be multiplied by what the output has become by then.
@T.prim_func(s_tir=True)
def scaled_by_the_old_output(A: T.Buffer((M, K), "float32"), D: T.Buffer((M,), "float32")):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] * D[vi]


# An allocated bfloat16 buffer is kept in float32 by TVM, the caller's is not.
@T.prim_func(s_tir=True)
def narrow_sum_copied(A: T.Buffer((M, K), "bfloat16"), D: T.Buffer((M,), "bfloat16")):
    temp = T.sblock_alloc_buffer((M,), "bfloat16")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi]


def ones_behind_256() -> Arrays:
    """256 + 1 is 256 in bfloat16, 256 + 4 is not."""
    terms = np.ones((M, K), "bfloat16")
    terms[:, 0] = 256
    return {"A": terms}


@T.prim_func(s_tir=True)
def small_terms_and_a_large_bias(
    A: T.Buffer((M, K), "float16"), C: T.Buffer((M,), "float16"), D: T.Buffer((M,), "float16")
):
    temp = T.sblock_alloc_buffer((M,), "float16")
    sum_rows(A, temp)
    add_rows(temp, C, D)


def ones_and_2048() -> dict[str, np.ndarray]:
    """2048 + 1 is 2048 in float16, 2048 + 6 is not."""
    return {"A": np.ones((M, K), "float16"), "C": np.full(M, 2048, "float16")}


# Absorbed, the quotient would be computed for the rows without a divisor as well.
@T.prim_func(s_tir=True)
def quotient_of_some_rows(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "float32")
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.if_then_else(
                C[vi] != 0, temp[vi] + T.cast(T.truncdiv(1000, C[vi]), "float32"), T.float32(0)
            )


def some_divisors() -> Arrays:
    """Every second one is 0."""
    return {"C": np.arange(M, dtype="int32") % 2}


# Once the sum is true, no further term is evaluated; with C in each of them it would stay false.
@T.prim_func(s_tir=True)
def terms_behind_the_accumulator(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "bool")
):
    temp = T.sblock_alloc_buffer((M,), "bool")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.bool(False)
            temp[vi] = temp[vi] or T.truncdiv(6, A[vi, vk]) > 2
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] and C[vi] != 0


def evaluated_until_decided(before: PrimFunc, after: PrimFunc) -> str:
    """Run both functions as C does: the right operand of `or` only if the left one is false."""

    def decided(node: Any) -> Any:
        conjunction = isinstance(node, prim.And)
        no, yes = prim.IntImm("bool", 0), prim.IntImm("bool", 1)
        return (
            tirx.if_then_else(node.a, node.b, no)
            if conjunction
            else tirx.if_then_else(node.a, yes, node.b)
        )

    # The second term is true, no element of C is, and the fourth term divides by 0.
    terms = np.arange(3, 3 - K, -1, "int32") + np.zeros((M, 1), "int32")
    for func in (before, after):
        arrays = {"A": terms, "C": np.zeros(M, "int32"), "D": np.zeros(M, "bool")}
        body = tvm_ffi.structural_map(func.body, ((prim.And, prim.Or), decided))
        try:
            compile_function(func.with_body(body)).run(arrays, {})
        except EvaluationError as error:
            assert func is after
            return str(error)
    return ""


# ---------------------------------------------------------------------------------------------
# Which tails become one
# ---------------------------------------------------------------------------------------------


# The caller gets what is between the two tails.
@T.prim_func(s_tir=True)
def clipped_for_the_caller(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            P[vi] = T.max(temp[vi], 0)
    add_rows(P, C, D)


# The product is rounded before something is added to it.
@T.prim_func(s_tir=True)
def rounded_between(
    A: T.Buffer((M, K), "bfloat16"),
    C: T.Buffer((M,), "bfloat16"),
    E: T.Buffer((M,), "bfloat16"),
    D: T.Buffer((M,), "bfloat16"),
):
    temp = T.sblock_alloc_buffer((M,), "bfloat16")
    product = T.sblock_alloc_buffer((M,), "bfloat16")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.min_value("bfloat16")
            temp[vi] = T.max(temp[vi], A[vi, vk])
    for i in range(M):
        with T.sblock("scale"):
            vi = T.axis.spatial(M, i)
            product[vi] = temp[vi] * C[vi]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = product[vi] - E[vi]


def almost_the_same() -> Arrays:
    """1.0078125 squared is 1.01568603515625, and 1.015625 in bfloat16: what is left is 0."""
    near = np.float32(1.0078125)
    return {
        "A": np.full((M, K), near, "bfloat16"),
        "C": np.full(M, near, "bfloat16"),
        "E": np.full(M, 1.015625, "bfloat16"),
    }


# What is between the two tails starts from itself, in a roundabout way.
@T.prim_func(s_tir=True)
def clipped_in_place(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    clipped = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            clipped[vi] = T.max(temp[vi], 0) + (clipped[vi] - clipped[vi])
    add_rows(clipped, C, D)


# Another block reads what is between the two tails, and cannot become one.
@T.prim_func(s_tir=True)
def clipped_for_a_mirror(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    P: T.Buffer((M // 2,), "int32"),
    D: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    clipped = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            clipped[vi] = T.max(temp[vi], 0)
    add_rows(clipped, C, D)
    for i in range(M // 2):
        with T.sblock("half"):
            vi = T.axis.spatial(M // 2, i)
            P[vi] = clipped[vi * 2]


# All in the loop of a row: the first tail reads what the second one replaces.
@T.prim_func(s_tir=True)
def bias_replaced_by_the_next_tail(
    A: T.Buffer((M, K), "int32"), P: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    clipped = T.sblock_alloc_buffer((M,), "int32")
    for i in range(M):
        for k in range(K):
            with T.sblock("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    temp[vi] = 0
                temp[vi] = temp[vi] + A[vi, vk]
        with T.sblock("clip"):
            vi = T.axis.spatial(M, i)
            clipped[vi] = T.max(temp[vi], P[vi])
        with T.sblock("replace"):
            vi = T.axis.spatial(M, i)
            P[vi] = T.max(temp[vi], 1) * 3
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = clipped[vi] * 2


# Start values and operands that are -inf, which only a finite term may be combined with.
@T.prim_func(s_tir=True)
def log_sum_from_minus_infinity(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    E: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = E[vi]
            temp[vi] = T.max(temp[vi], A[vi, vk]) + T.log1p(T.exp(-T.abs(temp[vi] - A[vi, vk])))
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi], C[vi]) + T.log1p(T.exp(-T.abs(temp[vi] - C[vi])))


def nothing_but_terms() -> Arrays:
    rng = np.random.default_rng(0)
    nothing = np.full(M, -np.inf, "float32")
    return {"A": rng.random((M, K), "float32"), "C": nothing, "E": nothing, "D": 0 * nothing}


# In one expression, TVM makes `C <= temp` of these two, which does not hold for a NaN.
@T.prim_func(s_tir=True)
def comparison_negated_later(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((M,), "float32"), D: T.Buffer((M,), "bool")
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    less = T.sblock_alloc_buffer((M,), "bool")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("compare"):
            vi = T.axis.spatial(M, i)
            less[vi] = temp[vi] < C[vi]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = not less[vi]


# The same of each term, if the negation moves into the terms.
@T.prim_func(s_tir=True)
def comparisons_negated_later(
    A: T.Buffer((M, K), "float32"), C: T.Buffer((K,), "float32"), D: T.Buffer((M,), "bool")
):
    temp = T.sblock_alloc_buffer((M,), "bool")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.bool(True)
            temp[vi] = temp[vi] and A[vi, vk] < C[vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = not temp[vi]


def compared_with_nan(extent: int) -> Arrays:
    return {"A": np.zeros((M, K), "float32"), "C": np.full(extent, np.nan, "float32")}


# Of both at once, TVM makes the conversion alone: it takes no uint8 for negative.
@T.prim_func(s_tir=True)
def wrapped_then_clipped(A: T.Buffer((M, K), "uint8"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "uint8")
    wide = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.uint8(0)
            temp[vi] = T.max(temp[vi], A[vi, vk])
    for i in range(M):
        with T.sblock("widen"):
            vi = T.axis.spatial(M, i)
            wide[vi] = T.Cast("int32", T.Cast("int8", temp[vi]))
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(wide[vi], 0)


# In T.init, TVM takes C + 1 for a number above -128.
@T.prim_func(s_tir=True)
def wrapped_start_clipped(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int8"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    larger = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.min_value("int32")
            temp[vi] = T.max(temp[vi], A[vi, vk])
    for i in range(M):
        with T.sblock("larger"):
            vi = T.axis.spatial(M, i)
            larger[vi] = T.max(temp[vi], T.Cast("int32", C[vi] + T.int8(1)))
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(larger[vi], -127)


def numbers_that_wrap() -> Arrays:
    return {"A": np.full((M, K), 200, "uint8")}


def starts_that_wrap() -> Arrays:
    return {"A": np.full((M, K), -1000, "int32"), "C": np.full(M, 127, "int8")}


DECISIONS: list[Mutant] = [
    mutant("kept-for-its-init", "a buffer that the init reads stays", zero_of_itself),
    mutant("kept-for-the-caller", "the caller gets the bare sum", sum_for_the_caller, keeps=("P",)),
    mutant("kept-for-a-reader", "another block gets the bare sum", sum_for_a_mirror, keeps=("P",)),
    mutant(
        "output-in-a-term",
        "no term reads what is being accumulated",
        scaled_by_the_old_output,
        keeps=("D",),
        distribute=True,
    ),
    mutant(
        "rounds-in-every-step",
        "a sum does not move to where its steps are rounded",
        narrow_sum_copied,
        inputs=ones_behind_256,
        compiled=True,
    ),
    mutant(
        "narrow-accumulator",
        "a large bias does not swallow small terms",
        small_terms_and_a_large_bias,
        inputs=ones_and_2048,
    ),
    mutant(
        "undefined-operand",
        "an operand stays behind its guard",
        quotient_of_some_rows,
        inputs=some_divisors,
    ),
    mutant(
        "operand-guards-term",
        "a term stays behind the accumulator",
        terms_behind_the_accumulator,
        judge=evaluated_until_decided,
        distribute=True,
    ),
    *mutants_faults.DECISIONS,
    mutant(
        "infinite-start",
        "two start values of which both may be -inf are not combined before a term is",
        log_sum_from_minus_infinity,
        inputs=nothing_but_terms,
    ),
    mutant(
        "merged-for-the-caller",
        "the caller gets what is between",
        clipped_for_the_caller,
        keeps=("P",),
    ),
    mutant(
        "merged-rounding",
        "what is between is rounded",
        rounded_between,
        inputs=almost_the_same,
    ),
    mutant("merged-in-place", "a buffer that its own writer reads stays", clipped_in_place),
    mutant(
        "merged-folded",
        "TVM does not simplify two stores as one",
        comparison_negated_later,
        inputs=lambda: compared_with_nan(M),
        compiled=True,
    ),
    mutant(
        "merged-folded",
        "TVM takes no narrow integer of two stores for one that does not wrap",
        wrapped_then_clipped,
        inputs=numbers_that_wrap,
        compiled=True,
    ),
    mutant(
        "folded-step",
        "TVM does not simplify a term with what is put around it",
        comparisons_negated_later,
        inputs=lambda: compared_with_nan(K),
        compiled=True,
        distribute=True,
    ),
    mutant(
        "folded-step",
        "TVM takes no narrow start for one that does not wrap",
        wrapped_start_clipped,
        inputs=starts_that_wrap,
        compiled=True,
    ),
    mutant(
        "merged-for-a-reader",
        "another block gets what is between",
        clipped_for_a_mirror,
        keeps=("P",),
    ),
    mutant(
        "merged-past-a-store",
        "what is read is not replaced before",
        bias_replaced_by_the_next_tail,
        keeps=("P",),
    ),
]
