"""What an installed package must be able to do; runs alone, in a new virtual environment."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def matmul_bias(
    A: T.Buffer((16, 16), "int32"),
    B: T.Buffer((16, 16), "int32"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
):
    temp = T.sblock_alloc_buffer((16, 16), "int32")
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = 0
            temp[vi, vj] += A[vi, vk] * B[vj, vk]
    for i, j in T.grid(16, 16):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


def fuses_after_import_tvm_alone() -> None:
    """The entry point has replaced TVM's own method, and what it makes computes the same."""
    sch = Schedule(matmul_bias)
    report = sch.fuse_reduction_epilogue("multiply")
    assert report.sentences == (
        "'multiply' absorbed C[vi, vj] from 'add' into T.init; 'temp' is gone.",
    )
    data = np.random.default_rng(0).integers(-9, 9, (3, 16, 16)).astype("int32")
    arrays = [tvm.runtime.tensor(array) for array in (*data, np.zeros_like(data[0]))]
    tvm.compile(sch.mod, target="llvm")["main"](*arrays)
    np.testing.assert_array_equal(arrays[-1].numpy(), data[0] @ data[1].T + data[2])


def refuses_with_a_code() -> None:
    import fuse_epilogue

    sch = Schedule(matmul_bias)
    sch.decompose_reduction("multiply", sch.get_loops("multiply")[-1])
    try:
        sch.fuse_reduction_epilogue("multiply_update")
    except ScheduleError as error:
        assert fuse_epilogue.refusal_code(error) == "no-init", error
    else:
        raise AssertionError("a reduction without T.init was accepted")


def lies_in_this_environment() -> None:
    import fuse_epilogue

    assert Path(fuse_epilogue.__file__).is_relative_to(sys.prefix)
    assert fuse_epilogue.__version__ == importlib.metadata.version("fuse_epilogue")


def brings_its_data() -> None:
    """The profile of a processor and the marker for type checkers are files, not modules."""
    import fuse_epilogue
    from fuse_epilogue import workloads

    assert Path(fuse_epilogue.__file__).with_name("py.typed").is_file()
    target = {"kind": "llvm", "mcpu": "znver5", "num-cores": 2}
    plan = fuse_epilogue.plan(workloads.matmul(64, 64, 8), target)
    assert "znver5" in plan.explain() and json.loads(plan.to_json())


def emits_a_kernel() -> None:
    from fuse_epilogue import neuron, schedules, workloads

    kernel = neuron.emit(schedules.apply(workloads.depthwise_conv1d(1, 128, 64, 3), "trn1"))
    kernel.check("trn1")


def has_a_command_line() -> None:
    command = [sys.executable, "-I", "-m", "fuse_epilogue", "--help"]
    assert "explain" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    steps = (
        fuses_after_import_tvm_alone,
        refuses_with_a_code,
        lies_in_this_environment,
        brings_its_data,
        emits_a_kernel,
        has_a_command_line,
    )
    for step in steps:
        step()
    print(", ".join(step.__name__.replace("_", " ") for step in steps))
