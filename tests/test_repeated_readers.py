"""What reads the reduction's result again and again, and where TVM then lets it write.

TVM gives the output of the last block that reads a buffer the memory of that buffer, also where a
loop repeats the block. A later reader, which keeps the two apart, must not move in front of it.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import PrimFunc

from oracles import compile_together

pytestmark = pytest.mark.cpp


def program(times: int = 2, reads: str = "R[vi] + 6") -> PrimFunc:
    return tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(X: T.Buffer((8, 4), "int32"), D: T.Buffer((8,), "int32"), E: T.Buffer((8,), "int32")):
    R = T.sblock_alloc_buffer((8,), "int32")
    Q = T.sblock_alloc_buffer((8,), "int32")
    for i, k in T.grid(8, 4):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                R[vi] = 0
            R[vi] += X[vi, vk]
    for again, i in T.grid({times}, 8):
        with T.sblock("repeated"):
            vi = T.axis.spatial(8, i)
            Q[vi] = {reads}
    for i in range(8):
        with T.sblock("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = Q[vi]
    for i in range(8):
        with T.sblock("E"):
            vi = T.axis.spatial(8, i)
            E[vi] = R[vi] * 3
""")


def test_a_reader_after_a_repeated_one_stays() -> None:
    func = program()
    sch = Schedule(func)
    before, steps = sch.mod, str(sch.trace)
    with pytest.raises(ScheduleError, match=r"\[consumer-domain\] a loop repeats block 'repeated'"):
        sch.fuse_reduction_epilogue("sum", "E")
    assert sch.mod.same_as(before)
    assert str(sch.trace) == steps


@pytest.mark.parametrize("twin", [program(times=1), program(reads="X[vi, 0] + 6")])
def test_its_twins_are_fused(twin: PrimFunc) -> None:
    sch = Schedule(twin)
    sch.fuse_reduction_epilogue("sum", "E")
    built = compile_together({"before": twin, "after": sch.mod["main"]})
    data = np.arange(32, dtype="int32").reshape(8, 4)
    for function in built.values():
        outputs = [tvm.runtime.tensor(np.zeros(8, "int32")) for _ in "DE"]
        function(tvm.runtime.tensor(data), *outputs)
        np.testing.assert_array_equal(outputs[1].numpy(), data.sum(1) * 3)
