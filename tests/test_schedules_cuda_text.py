"""The kernels' text: how memory is read and written, launches, and what nvcc makes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm_ffi
from tvm.tirx import For

from cuda_on_cpu import nvcc
from cuda_on_cpu.lowered import lower
from cuda_runs import scheduled
from fuse_epilogue.workloads import depthwise_conv1d
from test_schedules_cuda import residual

# Many small processes, and nothing of it is about memory in our own library.
pytestmark = pytest.mark.slow

VECTORS = {"float32": "float4", "float16": "uint4", "bfloat16": "uint4", "int8": "int4"}


def kernel(*sizes: Any, **options: Any) -> str:
    source = lower(scheduled(depthwise_conv1d(*sizes, **options)), "sm_90").source
    return source[source.rindex('extern "C"') :]


def vectors(text: str, buffer: str) -> list[str]:
    """The types of the vectors that are loaded from or stored into a parameter."""
    return re.findall(rf"\*\((\w+)\*\)\({buffer}_ptr", text)


@pytest.mark.parametrize("dtype", VECTORS)
@pytest.mark.parametrize("w", [2048, 2047, "w"])
def test_rows_are_read_in_vectors(dtype: str, w: int | str) -> None:
    """Two vectors of y in a thread, and for each the same of x and its two neighbours."""
    text = kernel(8, 512, w, 3, dtype=dtype, activation="relu")
    assert vectors(text, "x") == [VECTORS[dtype]] * 6
    assert vectors(text, "y") == [VECTORS[dtype]] * 2
    # All loads come before the first store.
    assert text.rindex("(x_ptr +") < text.index("(y_ptr +")


def test_only_borders_have_conditions() -> None:
    text = kernel(8, 512, 2048, 3, activation="relu")
    assert re.findall(r"if \((.*)\) {", text) == [
        "1 <= ((int)threadIdx.x)",
        "((int)threadIdx.x) < 255",
    ]
    assert "if (" not in kernel(8, 512, 2048, 1)


@pytest.mark.parametrize("dtype", VECTORS)
def test_channels_are_read_in_vectors(dtype: str) -> None:
    """Eight columns of y in a thread need ten of x."""
    text = kernel("n", 512, 2048, 3, dtype=dtype, layout="NWC")
    assert vectors(text, "x") == [VECTORS[dtype]] * 10
    assert vectors(text, "y") == [VECTORS[dtype]]


def test_nothing_is_kept_outside_of_registers() -> None:
    """No intermediate in global memory, and no second kernel: one pass."""
    for layout in ("NCW", "NWC"):
        source = lower(
            scheduled(depthwise_conv1d(8, 64, 100, 3, stride=2, activation="silu", layout=layout)),
            "sm_90",
        ).source
        names = re.findall(r"__restrict__ (\w+)", source[source.rindex('extern "C"') :])
        assert sorted(names) == ["bias_ptr", "weight_ptr", "x_ptr", "y_ptr"]
        assert len(set(re.findall(r"__launch_bounds__\(\d+\) (\w+)", source))) == 1


def test_the_epilogue_reads_nothing_outside_of_a_row() -> None:
    """Where a vector goes beyond a row, every load of the tail has a condition of its own."""
    source = lower(scheduled(residual), "sm_90").source
    loads = re.findall(r"(\w+) = skip_ptr\[", source)
    assert loads and all(name.startswith("condval") for name in loads)
    assert source.count("skip_ptr[") == len(loads)


# A large W in one row; more rows than the second dimension of a grid may have; and as many
# elements as an int32 counts, not a multiple of a block.
LAUNCHES = [
    ((1, 1, 2**30, 3), {}),
    ((2**10, 2**10, 3, 3), {}),
    ((1, 1, 2**31 - 2, 1), {"padding": (1, 0)}),
    ((2**12, 2**10, 2**10, 3), {"dtype": "int8"}),
    ((1, 3, 5, 2), {}),
    ((2**10, 2**10, 3, 3), {"layout": "NWC"}),
]


@pytest.mark.parametrize(("sizes", "options"), LAUNCHES)
def test_launches(sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    loops: dict[str, int] = {}

    def see(loop: Any) -> None:
        if loop.thread_binding is not None:
            loops[str(loop.thread_binding.thread_tag)] = int(loop.extent)
            last = int(loop.extent) * loops.get("threadIdx.x", 1) - 1
            assert str(loop.loop_var.ty.dtype) == "int64" or last < 2**31

    tvm_ffi.structural_walk(scheduled(depthwise_conv1d(*sizes, **options)), (For, see))
    assert sorted(loops) == ["blockIdx.x", "threadIdx.x"]
    assert loops["blockIdx.x"] < 2**31 and 1 <= loops["threadIdx.x"] <= 256


KERNELS: dict[str, Any] = {
    "rows": ((8, 512, 2048, 3), {"activation": "relu"}),
    "odd-half": ((8, 512, 2047, 16), {"dtype": "float16", "activation": "silu"}),
    "symbolic-bfloat16": (("n", 512, "w", 4), {"dtype": "bfloat16", "padding": "causal"}),
    "channels-int8": ((8, 512, 2048, 7), {"dtype": "int8", "layout": "NWC"}),
    "channels-half": ((2, 96, 16000, 16), {"dtype": "float16", "layout": "NWC"}),
    "loops": ((4, 64, 1000, 5), {"stride": 2, "activation": "silu"}),
}
ARCHITECTURES = [
    pytest.param(
        arch,
        marks=pytest.mark.skipif(nvcc.missing(arch) is not None, reason=str(nvcc.missing(arch))),
    )
    for arch in ("sm_80", "sm_90", "sm_100")
]


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_nvcc_keeps_everything_in_registers(name: str, arch: str) -> None:
    sizes, options = KERNELS[name]
    source = lower(scheduled(depthwise_conv1d(*sizes, **options)), arch).source
    (usage,) = nvcc.usage(source, arch).values()
    assert (usage.stack, usage.spill_stores, usage.spill_loads) == (0, 0, 0)
    # A multiprocessor has registers for 512 such threads at least; with rows, for 1024.
    assert usage.registers <= 65536 // (512 if options.get("layout") == "NWC" else 1024)
