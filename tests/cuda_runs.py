"""Functions scheduled for CUDA, to be called like other compiled functions: on a CPU, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import cuda_on_cpu
from fuse_epilogue.schedules import cuda

CUDA = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})


class OnCpu:
    """The generated text, executed by the CPU in every order of threads."""

    def __init__(self, func: Any) -> None:
        self.program = cuda_on_cpu.build(func)

    def __call__(self, *tensors: Any) -> None:
        arrays = [np.array(tensor.numpy()) for tensor in tensors]
        self.program(*arrays)
        tensors[-1].copyfrom(arrays[-1])


class OnGpu:
    """The function, compiled by TVM for the GPU of this machine."""

    def __init__(self, func: Any) -> None:
        self.run = tvm.compile(func, target=tvm.target.Target.from_device("cuda"))["main"]

    def __call__(self, *tensors: Any) -> None:
        arrays = [tvm.runtime.tensor(tensor.numpy(), tvm.cuda()) for tensor in tensors]
        self.run(*arrays)
        tensors[-1].copyfrom(arrays[-1].numpy())


no_gxx = pytest.mark.skipif(cuda_on_cpu.missing() is not None, reason=str(cuda_on_cpu.missing()))
no_gpu = pytest.mark.skipif(not tvm.cuda().exist, reason="there is no GPU")

#: Every test of results is run on these.
on_machines = pytest.mark.parametrize(
    "machine",
    [
        pytest.param(OnCpu, marks=no_gxx, id="cpu"),
        pytest.param(OnGpu, marks=[no_gpu, pytest.mark.gpu], id="gpu"),
    ],
)


def scheduled(func: Any) -> Any:
    sch = cuda.DepthwiseConv1d().apply(func, CUDA)
    assert sch is not None
    return sch.mod["main"]
