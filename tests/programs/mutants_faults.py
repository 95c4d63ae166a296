"""Programs that end the process where a check is missing: compiled, a quotient of 0 is computed.

As TIR they are right with the check and without it; it is TVM that computes more than TIR says.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from generated.child import Job, outcomes
from mutation import Mutant, mutant
from oracles import compile_together

from . import repeated_divisions
from .builders import K, M


# A row of sums is a vector, in which a Select computes both of its values for all lanes.
@T.prim_func(s_tir=True)
def select_beside_vectors(
    A: T.Buffer((M, K, 8), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((M, 8), "int32")
):
    temp = T.sblock_alloc_buffer((M, 8), "int32")
    for i, k in T.grid(M, K):
        for j in T.vectorized(8):
            with T.sblock("mm"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    temp[vi, vj] = 0
                temp[vi, vj] = temp[vi, vj] + A[vi, vk, vj]
    for i, j in T.grid(M, 8):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.Select(C[vj] != 0, temp[vi, vj] + T.truncdiv(1000, C[vj]), 0)


def ends_the_process(before: PrimFunc, after: PrimFunc) -> str:
    """Run both functions compiled, in a process that may die of a division by zero."""
    built = compile_together({"before": before, "after": after})
    rows = int(before.params[-1].ty.shape[1])
    given = {"A": np.ones((M, K, rows), "int32"), "C": np.arange(rows, dtype="int32") % 2, "n": 3}

    def job(name: str) -> Job:
        results = [tvm.runtime.tensor(np.zeros((M, rows), "int32")) for _ in range(2)]
        taken = iter(results)
        arguments = []
        for param in before.params:
            value = given.get(param.name)
            if value is None:
                arguments.append(next(taken))
            else:
                arguments.append(value if isinstance(value, int) else tvm.runtime.tensor(value))
        return lambda _: built[name](*arguments) or str([each.numpy() for each in results])

    alone, fused = outcomes([job("before"), job("after")])
    assert not alone.crash
    return fused.crash or ("another result" if fused.found != alone.found else "")


DECISIONS: list[Mutant] = [
    mutant(
        "lazy-select",
        "a value that is not selected is not computed in vectors either",
        select_beside_vectors,
        judge=ends_the_process,
    ),
    mutant(
        "pinned-division",
        "a division that is repeated in a loop stays behind its conditions",
        repeated_divisions.quotients_of_two_consumers,
        judge=ends_the_process,
    ),
]
