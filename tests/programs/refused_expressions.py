"""Refusing programs that call a function that may do anything, in the epilogue or the reduction.

Everything else can be moved behind the reduction's loops: see `expressions` and the files after it.
"""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from .builders import matmul_then
from .case import Case, matmul

REFUSE = [
    Case(
        name="impure_bias",
        func=matmul_then(
            lambda t, C, E, S, i, j: t + T.call_extern("int32", "abs", C[i, j]),
        ),
        reference=lambda A, B, C, E, S: matmul(A, B) + np.abs(C),
        code="impure",
    ),
    Case(
        name="impure_call_of_the_sum",
        func=matmul_then(
            lambda t, C, E, S, i, j: T.call_extern("int32", "abs", t) + C[i, j],
        ),
        reference=lambda A, B, C, E, S: np.abs(matmul(A, B)) + C,
        code="impure",
    ),
    # It may raise, after which the epilogue as written never runs.
    Case(
        name="impure_term",
        func=matmul_then(
            lambda t, C, E, S, i, j: t + C[i, j],
            update=lambda total, term, e: total + T.call_extern("int32", "abs", term),
        ),
        reference=lambda A, B, C, E, S: (
            np.abs(A[:, None].astype("int32") * B).sum(2, dtype="int32") + C
        ),
        code="impure",
    ),
    Case(
        name="impure_init",
        func=matmul_then(
            lambda t, C, E, S, i, j: T.max(t, C[i, j]),
            init=lambda start, S, i, j: T.call_extern("int32", "abs", -3),
        ),
        reference=lambda A, B, C, E, S: np.maximum(matmul(A, B) + 3, C),
        code="impure",
    ),
]
