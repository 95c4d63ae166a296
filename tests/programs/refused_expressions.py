"""Refusing programs whose epilogue calls a function that may do anything.

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
]
