"""Accepting programs with other reductions than a matrix product: conv, pooling, sums, batches."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from . import lazy
from .builders import K, M, N
from .case import accepted


@lazy.prim_func(s_tir=True)
def conv2d(
    X: T.Buffer((1, 6, 7, 3), "float32"),
    W: T.Buffer((2, 3, 3, 4), "float32"),
    C: T.Buffer((4,), "float32"),
    D: T.Buffer((1, 5, 5, 4), "float32"),
):
    temp = T.sblock_alloc_buffer((1, 5, 5, 4), "float32")
    for n, h, w, f, rh, rw, rc in T.grid(1, 5, 5, 4, 2, 3, 3):
        with T.sblock("mm"):
            vn, vh, vw, vf, vrh, vrw, vrc = T.axis.remap("SSSSRRR", [n, h, w, f, rh, rw, rc])
            with T.init():
                temp[vn, vh, vw, vf] = T.float32(0)
            temp[vn, vh, vw, vf] += X[vn, vh + vrh, vw + vrw, vrc] * W[vrh, vrw, vrc, vf]
    for n, h, w, f in T.grid(1, 5, 5, 4):
        with T.sblock("add"):
            vn, vh, vw, vf = T.axis.remap("SSSS", [n, h, w, f])
            D[vn, vh, vw, vf] = temp[vn, vh, vw, vf] + C[vf]


# NCHW written from NHWC: the layout change that follows many convolutions.
@lazy.prim_func(s_tir=True)
def conv2d_to_channels_first(
    X: T.Buffer((6, 7, 3), "float32"),
    W: T.Buffer((2, 3, 3, 4), "float32"),
    C: T.Buffer((4,), "float32"),
    D: T.Buffer((4, 5, 5), "float32"),
):
    temp = T.sblock_alloc_buffer((5, 5, 4), "float32")
    for rh, rw, h, w, f, rc in T.grid(2, 3, 5, 5, 4, 3):
        with T.sblock("mm"):
            vrh, vrw, vh, vw, vf, vrc = T.axis.remap("RRSSSR", [rh, rw, h, w, f, rc])
            with T.init():
                temp[vh, vw, vf] = T.float32(0)
            temp[vh, vw, vf] += X[vh + vrh, vw + vrw, vrc] * W[vrh, vrw, vrc, vf]
    for f, h, w in T.grid(4, 5, 5):
        with T.sblock("add"):
            vf, vh, vw = T.axis.remap("SSS", [f, h, w])
            D[vf, vh, vw] = temp[vh, vw, vf] + C[vf]


# Overlapping windows of three, two apart, and a residual.
@lazy.prim_func(s_tir=True)
def pooling_sum(
    X: T.Buffer((4, 11), "float32"), C: T.Buffer((4, 5), "float32"), D: T.Buffer((4, 5), "float32")
):
    temp = T.sblock_alloc_buffer((4, 5), "float32")
    for c, w, r in T.grid(4, 5, 3):
        with T.sblock("mm"):
            vc, vw, vr = T.axis.remap("SSR", [c, w, r])
            with T.init():
                temp[vc, vw] = T.float32(0)
            temp[vc, vw] = temp[vc, vw] + X[vc, vw * 2 + vr]
    for c, w in T.grid(4, 5):
        with T.sblock("add"):
            vc, vw = T.axis.remap("SS", [c, w])
            D[vc, vw] = temp[vc, vw] + C[vc, vw]


@lazy.prim_func(s_tir=True)
def row_sum(A: T.Buffer((M, K), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


@lazy.prim_func(s_tir=True)
def full_sum_of_one_element(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((1,), "int32"), D: T.Buffer((1,), "int32")
):
    temp = T.sblock_alloc_buffer((1,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("RR", [i, k])
            with T.init():
                temp[0] = 0
            temp[0] = temp[0] + A[vi, vk]
    with T.sblock("add"):
        D[0] = temp[0] + C[0]


@lazy.prim_func(s_tir=True)
def full_sum_of_zero_dimensions(
    A: T.Buffer((M, K), "int32"), C: T.Buffer((), "int32"), D: T.Buffer((), "int32")
):
    temp = T.sblock_alloc_buffer((), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("RR", [i, k])
            with T.init():
                temp[()] = 0
            temp[()] = temp[()] + A[vi, vk]
    with T.sblock("add"):
        D[()] = temp[()] - C[()]


@lazy.prim_func(s_tir=True)
def matvec(
    A: T.Buffer((M, K), "float32"),
    x: T.Buffer((K,), "float32"),
    y: T.Buffer((M,), "float32"),
    D: T.Buffer((M,), "float32"),
):
    temp = T.sblock_alloc_buffer((M,), "float32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float32(0)
            temp[vi] = temp[vi] + A[vi, vk] * x[vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = y[vi] + temp[vi]


@lazy.prim_func(s_tir=True)
def batch_matmul(
    A: T.Buffer((3, M, K), "int8"),
    B: T.Buffer((3, N, K), "int8"),
    C: T.Buffer((3, 1, N), "int32"),
    D: T.Buffer((3, M, N), "int32"),
):
    temp = T.sblock_alloc_buffer((3, M, N), "int32")
    for b, i, j, k in T.grid(3, M, N, K):
        with T.sblock("mm"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                temp[vb, vi, vj] = 0
            temp[vb, vi, vj] += T.Cast("int32", A[vb, vi, vk]) * T.Cast("int32", B[vb, vj, vk])
    for b, i, j in T.grid(3, M, N):
        with T.sblock("add"):
            vb, vi, vj = T.axis.remap("SSS", [b, i, j])
            D[vb, vi, vj] = temp[vb, vi, vj] + C[vb, 0, vj]


# Causal: the filter looks back, and what lies before the beginning is 0.
@lazy.prim_func(s_tir=True)
def depthwise_conv1d(
    X: T.Buffer((5, 12), "float32"),
    W: T.Buffer((5, 4), "float32"),
    C: T.Buffer((5,), "float32"),
    D: T.Buffer((5, 12), "float32"),
):
    temp = T.sblock_alloc_buffer((5, 12), "float32")
    for c, t, r in T.grid(5, 12, 4):
        with T.sblock("mm"):
            vc, vt, vr = T.axis.remap("SSR", [c, t, r])
            with T.init():
                temp[vc, vt] = T.float32(0)
            temp[vc, vt] += (
                T.if_then_else(vt + vr >= 3, X[vc, vt + vr - 3], T.float32(0)) * W[vc, vr]
            )
    for c, t in T.grid(5, 12):
        with T.sblock("add"):
            vc, vt = T.axis.remap("SS", [c, t])
            D[vc, vt] = temp[vc, vt] + C[vc]


@lazy.prim_func(s_tir=True)
def depthwise_conv1d_padded_first(
    X: T.Buffer((5, 12), "float32"),
    W: T.Buffer((5, 4), "float32"),
    C: T.Buffer((5,), "float32"),
    D: T.Buffer((5, 12), "float32"),
):
    pad = T.sblock_alloc_buffer((5, 15), "float32")
    temp = T.sblock_alloc_buffer((5, 12), "float32")
    for c, t in T.grid(5, 15):
        with T.sblock("pad"):
            vc, vt = T.axis.remap("SS", [c, t])
            pad[vc, vt] = T.if_then_else(vt >= 3, X[vc, vt - 3], T.float32(0))
    for c, t, r in T.grid(5, 12, 4):
        with T.sblock("mm"):
            vc, vt, vr = T.axis.remap("SSR", [c, t, r])
            with T.init():
                temp[vc, vt] = T.float32(0)
            temp[vc, vt] += pad[vc, vt + vr] * W[vc, vr]
    for c, t in T.grid(5, 12):
        with T.sblock("add"):
            vc, vt = T.axis.remap("SS", [c, t])
            D[vc, vt] = temp[vc, vt] + C[vc]


# The reduction axis has its own offset; the sum starts at its smallest value, which is 2.
@lazy.prim_func(s_tir=True)
def reduction_axis_from_two(
    A: T.Buffer((M, K + 2), "int32"), C: T.Buffer((M,), "int32"), D: T.Buffer((M,), "int32")
):
    temp = T.sblock_alloc_buffer((M,), "int32")
    for i, k in T.grid(M, K):
        with T.sblock("mm"):
            vi = T.axis.spatial(M, i)
            vk = T.axis.reduce((2, K + 2), k + 2)
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(M):
        with T.sblock("add"):
            vi = T.axis.spatial(M, i)
            D[vi] = temp[vi] + C[vi]


def _conv2d(X, W, C):
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(X), (2, 3), axis=(-3, -2))
    return np.einsum("...cab,abcf->...f", windows, np.asarray(W)) + C


def _conv1d(X, W, C):
    padded = np.pad(np.asarray(X), ((0, 0), (3, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4, axis=1)
    return np.einsum("ctr,cr->ct", windows, np.asarray(W)) + C[:, None]


def _pooling(X, C):
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(X), 3, axis=1)[:, ::2]
    return windows.sum(axis=-1) + C


def _total(A):
    """Sum of all elements, modulo 2^32."""
    return A.sum(dtype="int32")


ACCEPT = [
    accepted(conv2d, _conv2d, "C[vf]", "C[vf]", "broadcasting_epilogue"),
    accepted(
        conv2d_to_channels_first,
        lambda X, W, C: np.moveaxis(_conv2d(X, W, C), -1, 0),
        "C[vf]",
        "C[vf]",
        "broadcasting_epilogue",
    ),
    accepted(pooling_sum, _pooling, "C[vc, vw]", "C[vc, vw]", "relu_inside_the_reduction"),
    accepted(
        row_sum,
        lambda A, C: A.sum(axis=1, dtype="int32") + C,
        "C[vi]",
        "C[vi]",
        "horner",
    ),
    accepted(
        full_sum_of_one_element,
        lambda A, C: _total(A) + C,
        "C[0]",
        "C[0]",
        "output_element_collides",
    ),
    accepted(
        full_sum_of_zero_dimensions,
        lambda A, C: np.asarray(_total(A) - C, "int32"),
        "C[()]",
        "0 - C[()]",
        "output_element_collides",
    ),
    accepted(matvec, lambda A, x, y: A @ x + y, "y[vi]", "y[vi]", "horner"),
    accepted(
        batch_matmul,
        lambda A, B, C: A.astype("int32") @ B.astype("int32").swapaxes(1, 2) + C,
        "C[vb, 0, vj]",
        "C[vb, 0, vj]",
        "broadcasting_epilogue",
    ),
    accepted(depthwise_conv1d, _conv1d, "C[vc]", "C[vc]", "shifted_read"),
    accepted(depthwise_conv1d_padded_first, _conv1d, "C[vc]", "C[vc]", "padding_epilogue"),
    accepted(
        reduction_axis_from_two,
        lambda A, C: A[:, 2:].sum(axis=1, dtype="int32") + C,
        "C[vi]",
        "C[vi]",
        "late_start_of_the_reduction",
    ),
]
