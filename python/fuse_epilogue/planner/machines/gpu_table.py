"""A table of GPUs, by product, with the source of each number beside it.

[CC]      NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and
          "Throughput of Native Arithmetic Instructions"
[A100]    NVIDIA A100 Tensor Core GPU Architecture, a white paper: table 4 and the section on the
          second cache, which compare it with V100; table 5 for the limits of a multiprocessor
[H100]    NVIDIA H100 Tensor Core GPU Architecture, a white paper: tables 3 and 4
[PAGE]    NVIDIA, product pages of H100 and H200
[OCC]     NVIDIA, cuda_occupancy.h of the CUDA toolkit
[VOLTA]   Jia and others, Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking (2018)
[HOPPER]  Luo and others, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (2024),
          table IV, which measures an A100 and an H800, a sibling of H100, both PCIe

The time of a launch after another, in :mod:`.gpu`, is from NVIDIA, Getting Started with CUDA Graphs
(2019): 3.8 us for each kernel of 2.9 us; not compared.

All numbers were compared with these documents, or with tables that quote them by page, but for
those that say "not compared": of these no copy was at hand. Nothing was measured by this project.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import MappingProxyType

from ..json_schema import Amount, Factor, Many, Name, PerSecond

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """A product.

    - `arch`: CUDA's name of its instructions, such as "sm_90".
    - `threads`, `blocks`: numbers that a multiprocessor has at a time, at most.
    - `shared`: bytes of shared memory of a multiprocessor.
    - `reserved`: bytes of it that CUDA takes for itself, of each block.
    - `clock_hz`: the boost clock.
    - `fma`, `convert`, `load`: results of a multiprocessor in a clock: of additions and
      multiplications in float32, of conversions between types, and words of 4 bytes that are loaded
      or stored.
    - `l2_bytes`: bytes of the second cache.
    - `latency`, `shared_latency`, `l2_latency`, `memory_latency`: clocks from an instruction to one
      that takes its result: arithmetic, and loads from each kind of memory.
    """

    arch: Name
    multiprocessors: Many
    threads: Many
    blocks: Many
    shared: Many
    reserved: Amount
    clock_hz: PerSecond
    fma: Many
    convert: Many
    load: Many
    l2_bytes: Amount
    l2_bytes_per_clock: Factor
    memory_bytes_per_s: PerSecond
    latency: Factor
    shared_latency: Factor
    l2_latency: Factor
    memory_latency: Factor


_V100 = Chip(
    arch="sm_70",  # [CC]
    multiprocessors=80,  # [A100]
    threads=2048,  # [A100]
    blocks=32,  # [A100]
    shared=96 * KIB,  # [A100]
    reserved=0,  # [OCC]: from compute capability 8.0 on
    clock_hz=1.53e9,  # [A100]
    fma=64,  # [CC]
    convert=16,  # [CC]
    load=32,  # [CC]: 32 banks
    l2_bytes=6144 * KIB,  # [A100]
    l2_bytes_per_clock=2048.0,  # [A100]
    memory_bytes_per_s=900e9,  # [A100]
    latency=4.0,  # [VOLTA]
    shared_latency=19.0,  # [VOLTA]
    l2_latency=193.0,  # [VOLTA]
    memory_latency=375.0,  # [VOLTA], not compared
)
_A100 = Chip(
    arch="sm_80",  # [CC]
    multiprocessors=108,  # [A100]
    threads=2048,  # [A100]
    blocks=32,  # [A100]
    shared=164 * KIB,  # [A100]
    reserved=KIB,  # [OCC]
    clock_hz=1.41e9,  # [A100]
    fma=64,  # [CC]
    convert=16,  # [CC], not compared
    load=32,  # [CC]: 32 banks
    l2_bytes=40960 * KIB,  # [A100]
    l2_bytes_per_clock=5120.0,  # [A100]
    memory_bytes_per_s=1555e9,  # [A100]
    latency=4.0,  # as V100
    shared_latency=29.0,  # [HOPPER]
    l2_latency=262.0,  # [HOPPER]: 261.5
    memory_latency=466.0,  # [HOPPER]: 466.3
)
_H100 = Chip(
    arch="sm_90",  # [CC]
    multiprocessors=132,  # [H100]
    threads=2048,  # [H100]
    blocks=32,  # [H100]
    shared=228 * KIB,  # [H100]
    reserved=KIB,  # [OCC]
    clock_hz=1.98e9,  # [PAGE]: 67e12 operations in a second, 2 * 132 * 128 in a clock
    fma=128,  # [H100]
    convert=64,  # [CC]: from 16 to 32 bits; to bfloat16 it is 16
    load=32,  # [CC]: 32 banks
    l2_bytes=51200 * KIB,  # [H100]
    l2_bytes_per_clock=5120.0,  # as A100: none is stated; [HOPPER] gets 4472 out of an H800
    memory_bytes_per_s=3352e9,  # [PAGE]: 3.35 TB/s
    latency=4.0,  # as V100
    shared_latency=29.0,  # [HOPPER], H800
    l2_latency=263.0,  # [HOPPER], H800
    memory_latency=479.0,  # [HOPPER], H800: 478.8
)

#: Products by name, those with 40 GB (A100) or 80 GB (H100) on SXM boards; of several with the same
#: instructions, the first stands for a target that names only those.
CHIPS = MappingProxyType(
    {
        "V100": _V100,
        "A100": _A100,
        "H100": _H100,
        "H200": Chip(**{**asdict(_H100), "memory_bytes_per_s": 4.8e12}),  # [PAGE]
    }
)
