"""TVM's part: from a scheduled function to the CUDA text, its launches and the host code."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods


@dataclass(frozen=True)
class Lowered:
    """What TVM generates for a module with CUDA kernels.

    `host` is C: it checks the arguments, computes the launches' sizes and calls the kernels. The
    launch of a kernel passes its parameters and then one value for each of `launches[kernel]`.
    `entries` are the functions that a caller may call, by their symbols.
    """

    source: str
    host: str
    launches: dict[str, tuple[str, ...]]
    entries: tuple[str, ...]


def lower(func: tirx.PrimFunc | tvm.IRModule, arch: str) -> Lowered:
    """The texts, without driver, nvcc or GPU: as ``tvm.compile``, but with the host part as C."""
    mod = tvm.IRModule.from_expr(func) if isinstance(func, tirx.PrimFunc) else func
    names = [var.name_hint for var in mod.functions]
    target = Target({"kind": "cuda", "arch": arch}, host="c")
    pipeline, finish_host, finish_device = tirx.get_default_tir_pipeline(target)
    host, devices = split_host_device_mods(pipeline(tirx.transform.BindTarget(target)(mod)))
    if len(devices) != 1:
        raise ValueError(f"{names[0]} has no kernel: bind its loops to blockIdx and threadIdx")
    ((device_target, device),) = devices.items()
    device = finish_device()(device)
    launches = {}
    for kernel in device.functions.values():
        if "tirx.kernel_launch_params" in kernel.attrs:
            tags = map(str, kernel.attrs["tirx.kernel_launch_params"])
            launches[str(kernel.attrs["global_symbol"])] = tuple(tags)
    source = codegen_build(device, device_target).inspect_source()
    host = finish_host()(host)
    for var, part in host.functions.items():
        host.update_func(var, _without_min_max(part))
    host_source = codegen_build(host, target.host).inspect_source()
    return Lowered(source, host_source, launches, tuple(_symbol(mod, name) for name in names))


def _symbol(mod: tvm.IRModule, name: str) -> str:
    attributes = mod[name].attrs
    return str(attributes["global_symbol"]) if "global_symbol" in attributes else name


def _without_min_max(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with ``min`` and ``max`` as selections.

    TVM 0.27 prints the operands of these as declarations, which in the size of a workspace is in
    the middle of a statement.
    """
    return tvm_ffi.structural_map(
        func,
        [
            (tirx.Min, lambda e: tirx.Select(e.a < e.b, e.a, e.b)),
            (tirx.Max, lambda e: tirx.Select(e.a > e.b, e.a, e.b)),
        ],
    )
