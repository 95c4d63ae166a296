"""Chains of epilogues: bias, residual, activation, scale, cast, each a block of its own.

A value may have several readers inside the chain, as SiLU has where it is a sigmoid and a product:
both read the biased sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .activations import np_sigmoid
from .builders import K, M, N, sum_products, sum_rows
from .case import WITH_F, Case, matmul, row_sums


@lazy.prim_func(s_tir=True)
def bias_residual_relu(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    C: T.Buffer((M, N), "float32"),
    E: T.Buffer((N,), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    biased = T.sblock_alloc_buffer((M, N), "float32")
    total = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + E[vj]
    for i, j in T.grid(M, N):
        with T.sblock("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            total[vi, vj] = biased[vi, vj] + C[vi, vj]
    for i, j in T.grid(M, N):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(total[vi, vj], T.float32(0))


# The residual comes after the activation: it is part of the tail.
@lazy.prim_func(s_tir=True)
def bias_relu_residual_scale_cast(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    C: T.Buffer((M, N), "float32"),
    E: T.Buffer((N,), "float32"),
    D: T.Buffer((M, N), "float16"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    biased = T.sblock_alloc_buffer((M, N), "float32")
    bent = T.sblock_alloc_buffer((M, N), "float32")
    total = T.sblock_alloc_buffer((M, N), "float32")
    scaled = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + E[vj]
    for i, j in T.grid(M, N):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            bent[vi, vj] = T.max(biased[vi, vj], T.float32(0))
    for i, j in T.grid(M, N):
        with T.sblock("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            total[vi, vj] = C[vi, vj] + bent[vi, vj]
    for i, j in T.grid(M, N):
        with T.sblock("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            scaled[vi, vj] = total[vi, vj] * T.float32(0.25)
    for i, j in T.grid(M, N):
        with T.sblock("cast"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.Cast("float16", scaled[vi, vj])


# The second block reads what the first leaves, transposed, and so does the third.
@lazy.prim_func(s_tir=True)
def transposing_tails(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    C: T.Buffer((N, M), "int32"),
    D: T.Buffer((M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    turned = T.sblock_alloc_buffer((N, M), "int32")
    bent = T.sblock_alloc_buffer((N, M), "int32")
    sum_products(A, B, temp)
    for j, i in T.grid(N, M):
        with T.sblock("turn"):
            vj, vi = T.axis.remap("SS", [j, i])
            turned[vj, vi] = temp[vi, vj] + C[vj, vi]
    for j, i in T.grid(N, M):
        with T.sblock("bend"):
            vj, vi = T.axis.remap("SS", [j, i])
            bent[vj, vi] = T.max(turned[vj, vi], C[vj, vi])
    for i, j in T.grid(M, N):
        with T.sblock("back"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = bent[vj, vi] - 1


@lazy.prim_func(s_tir=True)
def silu_of_two_blocks(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    E: T.Buffer((N,), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    biased = T.sblock_alloc_buffer((M, N), "float32")
    gate = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + E[vj]
    for i, j in T.grid(M, N):
        with T.sblock("sigmoid"):
            vi, vj = T.axis.remap("SS", [i, j])
            gate[vi, vj] = T.sigmoid(biased[vi, vj])
    for i, j in T.grid(M, N):
        with T.sblock("multiply"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = biased[vi, vj] * gate[vi, vj]


# The same without a bias: the sum itself has both readers.
@lazy.prim_func(s_tir=True)
def silu_of_the_sum(
    A: T.Buffer((M, K), "float32"),
    B: T.Buffer((N, K), "float32"),
    D: T.Buffer((M, N), "float32"),
):
    temp = T.sblock_alloc_buffer((M, N), "float32")
    gate = T.sblock_alloc_buffer((M, N), "float32")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("sigmoid"):
            vi, vj = T.axis.remap("SS", [i, j])
            gate[vi, vj] = T.sigmoid(temp[vi, vj])
    for i, j in T.grid(M, N):
        with T.sblock("multiply"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] * gate[vi, vj]


# As TVM's Relax makes it of a convolution with groups, SiLU, a residual and a conversion.
@lazy.prim_func(s_tir=True)
def conv1d_silu_residual_cast(
    x: T.Buffer((T.int64(1), T.int64(4), T.int64(10)), "float32"),
    weight: T.Buffer((T.int64(4), T.int64(1), T.int64(3)), "float32"),
    bias: T.Buffer((T.int64(1), T.int64(4), T.int64(1)), "float32"),
    skip: T.Buffer((T.int64(1), T.int64(4), T.int64(10)), "float32"),
    D: T.Buffer((T.int64(1), T.int64(4), T.int64(10)), "float16"),
):
    pad_temp = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(12)))
    conv = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(10)))
    add = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(10)))
    compute = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(10)))
    multiply = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(10)))
    residual = T.sblock_alloc_buffer((T.int64(1), T.int64(4), T.int64(10)))
    for i0, i1, i2 in T.grid(T.int64(1), T.int64(4), T.int64(12)):
        with T.sblock("pad_temp"):
            v0, v1, v2 = T.axis.remap("SSS", [i0, i1, i2])
            pad_temp[v0, v1, v2] = T.if_then_else(
                T.int64(1) <= v2 and v2 < T.int64(11), x[v0, v1, v2 - T.int64(1)], T.float32(0)
            )
    for nn, ff, yy, rc, ry in T.grid(T.int64(1), T.int64(4), T.int64(10), T.int64(1), T.int64(3)):
        with T.sblock("group_conv1d_ncw"):
            v0, v1, v2, vrc, vry = T.axis.remap("SSSRR", [nn, ff, yy, rc, ry])
            with T.init():
                conv[v0, v1, v2] = T.float32(0)
            conv[v0, v1, v2] = (
                conv[v0, v1, v2] + pad_temp[v0, v1 + vrc, v2 + vry] * weight[v1, vrc, vry]
            )
    for ax0, ax1, ax2 in T.grid(T.int64(1), T.int64(4), T.int64(10)):
        with T.sblock("T_add"):
            v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
            add[v0, v1, v2] = conv[v0, v1, v2] + bias[T.int64(0), v1, T.int64(0)]
    for i0, i1, i2 in T.grid(T.int64(1), T.int64(4), T.int64(10)):
        with T.sblock("compute"):
            v0, v1, v2 = T.axis.remap("SSS", [i0, i1, i2])
            compute[v0, v1, v2] = T.sigmoid(add[v0, v1, v2])
    for ax0, ax1, ax2 in T.grid(T.int64(1), T.int64(4), T.int64(10)):
        with T.sblock("T_multiply"):
            v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
            multiply[v0, v1, v2] = add[v0, v1, v2] * compute[v0, v1, v2]
    for ax0, ax1, ax2 in T.grid(T.int64(1), T.int64(4), T.int64(10)):
        with T.sblock("T_add_1"):
            v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
            residual[v0, v1, v2] = multiply[v0, v1, v2] + skip[v0, v1, v2]
    for i0, i1, i2 in T.grid(T.int64(1), T.int64(4), T.int64(10)):
        with T.sblock("compute_1"):
            v0, v1, v2 = T.axis.remap("SSS", [i0, i1, i2])
            D[v0, v1, v2] = T.Cast("float16", residual[v0, v1, v2])


# Integers all the way: bias, requantisation, and a ReLU in eight bits.
@lazy.prim_func(s_tir=True)
def quantised_layer(
    A: T.Buffer((M, K), "int8"),
    B: T.Buffer((N, K), "int8"),
    E: T.Buffer((N,), "int32"),
    D: T.Buffer((M, N), "int8"),
):
    temp = T.sblock_alloc_buffer((M, N), "int32")
    biased = T.sblock_alloc_buffer((M, N), "int32")
    scaled = T.sblock_alloc_buffer((M, N), "int32")
    narrow = T.sblock_alloc_buffer((M, N), "int8")
    sum_products(A, B, temp)
    for i, j in T.grid(M, N):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = temp[vi, vj] + T.shift_right(E[vj], 8)
    for i, j in T.grid(M, N):
        with T.sblock("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            scaled[vi, vj] = T.shift_right(biased[vi, vj] + 64, 7)
    for i, j in T.grid(M, N):
        with T.sblock("clamp"):
            vi, vj = T.axis.remap("SS", [i, j])
            narrow[vi, vj] = T.Cast("int8", T.min(T.max(scaled[vi, vj], -128), 127))
    for i, j in T.grid(M, N):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(narrow[vi, vj], T.int8(0))


# bfloat16 rounds where it is stored: two such blocks must not become one expression.
@lazy.prim_func(s_tir=True)
def rounding_twice(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "bfloat16"),
    D: T.Buffer((M,), "bfloat16"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    short = T.sblock_alloc_buffer((M,), "bfloat16")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("shorten"):
            vi = T.axis.spatial(M, i)
            short[vi] = T.Cast("bfloat16", temp[vi])
    for i in range(M):
        with T.sblock("scale"):
            vi = T.axis.spatial(M, i)
            D[vi] = short[vi] * C[vi]


# float16 rounds in every operation, stored or not: these may become one expression.
@lazy.prim_func(s_tir=True)
def half_precision_chain(
    A: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float16"),
    E: T.Buffer((M,), "float16"),
    D: T.Buffer((M,), "float16"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    short = T.sblock_alloc_buffer((M,), "float16")
    scaled = T.sblock_alloc_buffer((M,), "float16")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("shorten"):
            vi = T.axis.spatial(M, i)
            short[vi] = T.Cast("float16", temp[vi])
    for i in range(M):
        with T.sblock("scale"):
            vi = T.axis.spatial(M, i)
            scaled[vi] = short[vi] * C[vi]
    for i in range(M):
        with T.sblock("residual"):
            vi = T.axis.spatial(M, i)
            D[vi] = scaled[vi] + E[vi]


# Eight bits wrap around, stored or not.
@lazy.prim_func(s_tir=True)
def wrapping_chain(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int8"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    narrow = T.sblock_alloc_buffer((M,), "int8")
    added = T.sblock_alloc_buffer((M,), "int8")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("shorten"):
            vi = T.axis.spatial(M, i)
            narrow[vi] = T.Cast("int8", temp[vi])
    for i in range(M):
        with T.sblock("bias"):
            vi = T.axis.spatial(M, i)
            added[vi] = narrow[vi] + C[vi]
    for i in range(M):
        with T.sblock("widen"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.Cast("int32", added[vi]) * 1000


# The last block uses the bent value twice.
@lazy.prim_func(s_tir=True)
def used_twice_at_the_end(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    bent = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("bend"):
            vi = T.axis.spatial(M, i)
            bent[vi] = T.max(temp[vi], C[vi])
    for i in range(M):
        with T.sblock("square"):
            vi = T.axis.spatial(M, i)
            D[vi] = bent[vi] * bent[vi] + C[vi]


# A maximum over a window, normalised: x - x_max of the same row does not change the order.
@lazy.prim_func(s_tir=True)
def pooled_then_scaled(
    X: T.Buffer((M, K), "float32"),
    C: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    bounded = T.sblock_alloc_buffer((M,), "float32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.min_value("float32")
            temp[vi] = T.max(temp[vi], X[vi, vk])
    for i in range(M):
        with T.sblock("relu"):
            vi = T.axis.spatial(M, i)
            bounded[vi] = T.max(temp[vi], T.float32(0))
    for i in range(M):
        with T.sblock("scale"):
            vi = T.axis.spatial(M, i)
            D[vi] = bounded[vi] * C[vi]


# The bent value is wanted beside the scaled one: both blocks stay, one after the other.
@lazy.prim_func(s_tir=True)
def two_outputs(
    A: T.Buffer((M, K), "int32"),
    C: T.Buffer((M,), "int32"),
    D: T.Buffer((M,), "int32"),
    F: T.Buffer((M,), "int32"),
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    sum_rows(A, temp)
    for i in range(M):
        with T.sblock("bend"):
            vi = T.axis.spatial(M, i)
            D[vi] = T.max(temp[vi] + C[vi], 0)
    for i in range(M):
        with T.sblock("scale"):
            vi = T.axis.spatial(M, i)
            F[vi] = D[vi] * 3


def _conv(x: Any, weight: Any, bias: Any) -> Any:
    padded = np.pad(np.asarray(x), ((0, 0), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=2)
    return np.einsum("nctr,cr->nct", windows, np.asarray(weight)[:, 0]) + np.asarray(bias)


def _in_half(value: np.ndarray) -> np.ndarray:
    """`value` in float16, except where the reference is being evaluated in float64."""
    return value if value.dtype == "float64" else value.astype("float16")


def _half_precision(A: np.ndarray, C: np.ndarray, E: np.ndarray) -> np.ndarray:
    return _in_half(row_sums(A)) * C + E


def _quantised(A: np.ndarray, B: np.ndarray, E: np.ndarray) -> np.ndarray:
    scaled = (matmul(A, B) + (E >> 8) + 64) >> 7
    return np.maximum(np.clip(scaled, -128, 127), 0).astype("int8")


def _rounding_twice(A: np.ndarray, C: np.ndarray) -> np.ndarray:
    total = row_sums(A)
    return (total if C.dtype == "float64" else total.astype(C.dtype)) * C


ACCEPT = [
    Case(
        name="bias_residual_relu",
        func=bias_residual_relu,
        epilogues=("bias", "residual", "relu"),
        reference=lambda A, B, C, E: np.maximum(A @ B.T + E + C, 0),
        absorbed=("E[vj]", "C[vi, vj]", ""),
        tails={"relu": "T.max(x, T.float32(0.0))"},
        twin="bias_made_between",
    ),
    Case(
        name="bias_relu_residual_scale_cast",
        func=bias_relu_residual_scale_cast,
        epilogues=("bias", "relu", "residual", "scale", "cast"),
        reference=lambda A, B, C, E: _in_half((C + np.maximum(A @ B.T + E, 0)) * 0.25),
        absorbed=("E[vj]", "", "", "", ""),
        tails={"cast": 'T.Cast("float16", '},
        init="E[vj]",
        twin="bias_made_between",
    ),
    Case(
        name="transposing_tails",
        func=transposing_tails,
        epilogues=("turn", "bend", "back"),
        reference=lambda A, B, C: np.maximum(matmul(A, B) + C.T, C.T) - 1,
        absorbed=("C[vj, vi]", "", ""),
        tails={"back": "T.max(x, "},
        twin="diagonal_read",
    ),
    Case(
        name="silu_of_two_blocks",
        func=silu_of_two_blocks,
        epilogues=("bias", "sigmoid", "multiply"),
        reference=lambda A, B, E: (A @ B.T + E) * np_sigmoid(A @ B.T + E),
        magnitude=lambda A, B, E: 1.1 * (A @ B.T + E),
        approximate=True,
        absorbed=("E[vj]", "", ""),
        tails={"multiply": "x * T.sigmoid(x)"},
        init="E[vj]",
        one_by_one=False,
        twin="bias_made_between",
    ),
    Case(
        name="silu_of_the_sum",
        func=silu_of_the_sum,
        epilogues=("sigmoid", "multiply"),
        reference=lambda A, B: (A @ B.T) * np_sigmoid(A @ B.T),
        magnitude=lambda A, B: 1.1 * (A @ B.T),
        approximate=True,
        absorbed=("", ""),
        tails={"multiply": "x * T.sigmoid(x)"},
        one_by_one=False,
        twin="bias_made_between",
    ),
    Case(
        name="conv1d_silu_residual_cast",
        func=conv1d_silu_residual_cast,
        reduction="group_conv1d_ncw",
        epilogues=("T_add", "compute", "T_multiply", "T_add_1", "compute_1"),
        reference=lambda x, weight, bias, skip: _in_half(
            _conv(x, weight, bias) * np_sigmoid(_conv(x, weight, bias)) + skip
        ),
        magnitude=lambda x, weight, bias, skip: 1.1 * _conv(x, weight, bias) + skip,
        approximate=True,
        absorbed=("bias[0, v1, 0]", "", "", "", ""),
        tails={"compute_1": 'T.Cast("float16", x * T.sigmoid(x) + skip['},
        one_by_one=False,
        twin="bias_made_between",
    ),
    Case(
        name="quantised_layer",
        func=quantised_layer,
        epilogues=("bias", "scale", "clamp", "relu"),
        reference=_quantised,
        absorbed=("E[vj] >> 8", "64", "", ""),
        tails={"relu": "T.max("},
        twin="bias_made_between",
    ),
    Case(
        name="rounding_twice",
        func=rounding_twice,
        epilogues=("shorten", "scale"),
        reference=_rounding_twice,
        absorbed=("", ""),
        tails={"shorten": 'T.Cast("bfloat16", x)', "scale": "short[vi] * C[vi]"},
        one_by_one=False,
    ),
    Case(
        name="half_precision_chain",
        func=half_precision_chain,
        epilogues=("shorten", "scale", "residual"),
        reference=_half_precision,
        absorbed=("", "", ""),
        tails={"residual": 'T.Cast("float16", x) * C[vi] + E[vi]'},
        special="finite",
    ),
    Case(
        name="wrapping_chain",
        func=wrapping_chain,
        epilogues=("shorten", "bias", "widen"),
        reference=lambda A, C: (row_sums(A).astype("int8") + C).astype("int32") * 1000,
        absorbed=("", "", ""),
        tails={"widen": 'T.Cast("int32", T.Cast("int8", x) + C[vi]) * 1000'},
        twin="bias_made_between",
    ),
    Case(
        name="pooled_then_scaled",
        func=pooled_then_scaled,
        epilogues=("relu", "scale"),
        reference=lambda X, C: np.maximum(X.max(axis=1), 0) * C,
        absorbed=("T.float32(0.0)", ""),
        tails={"scale": "x * C[vi]"},
        special="finite",
        twin="bias_made_between",
    ),
    Case(
        name="two_outputs",
        func=two_outputs,
        epilogues=("bend", "scale"),
        reference=lambda A, C: {
            "D": np.maximum(row_sums(A) + C, 0),
            "F": np.maximum(row_sums(A) + C, 0) * 3,
        },
        absorbed=("C[vi]", ""),
        tails={"bend": "T.max(x, 0)", "scale": "D[vi] * 3"},
        one_by_one=False,
        twin="bias_made_between",
        **WITH_F,
    ),
]

# Computing it twice or keeping it in a buffer: both are right.
EITHER = [
    Case(
        name="used_twice_at_the_end",
        func=used_twice_at_the_end,
        epilogues=("bend", "square"),
        reference=lambda A, C: np.square(np.maximum(row_sums(A), C)) + C,
        either=True,
    ),
]
