"""What is known of GPUs, by product: a table with its sources.

- Limits of a multiprocessor and results in a clock: NVIDIA, CUDA C++ Programming Guide, sections
  "Technical Specifications per Compute Capability" and "Throughput of Native Arithmetic
  Instructions".
- Multiprocessors, clock and caches: NVIDIA, white papers on the architectures of V100, A100 (whose
  second cache gives 5120 bytes in a clock, V100's 2048) and H100, and the data sheet of H200. For
  H100 and H200 no such number is stated: that of A100 is taken.
- Latencies: Jia and others, Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking
  (2018); Luo and others, Benchmarking and Dissecting the Nvidia Hopper GPU Architecture (2024),
  for A100 and H100.
- The time of a launch behind another: NVIDIA, Getting Started with CUDA Graphs (2019), 3.8 us for
  each kernel of 2.9 us.

Nothing of it was measured by this project, and the numbers have not been compared with these
documents since they were written down: check a number before you rely on it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import MappingProxyType

from .reading import Count, Natural, Positive

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """A product.

    Attributes
    ----------
    arch : str
        CUDA's name of its instructions, such as "sm_90".
    multiprocessors : int
    threads, blocks : int
        That a multiprocessor has at a time, at most.
    shared : int
        Bytes of shared memory of a multiprocessor.
    reserved : int
        Bytes of it that CUDA takes for itself, of each block.
    clock_hz : float
        The boost clock.
    fma, convert, load : int
        Results of a multiprocessor in a clock: of additions and multiplications in float32, of
        conversions between types, and words of 4 bytes that are loaded or stored.
    l2_bytes : int
        Of the second cache.
    l2_bytes_per_clock : float
    memory_bytes_per_s : float
    latency, shared_latency, l2_latency, memory_latency : float
        Clocks from an instruction to one that takes its result: arithmetic, and loads from each
        kind of memory.
    """

    arch: str
    multiprocessors: Count
    threads: Count
    blocks: Count
    shared: Count
    reserved: Natural
    clock_hz: Positive
    fma: Count
    convert: Count
    load: Count
    l2_bytes: Count
    l2_bytes_per_clock: Positive
    memory_bytes_per_s: Positive
    latency: Positive
    shared_latency: Positive
    l2_latency: Positive
    memory_latency: Positive


_V100 = Chip(
    arch="sm_70",
    multiprocessors=80,
    threads=2048,
    blocks=32,
    shared=96 * KIB,
    reserved=0,
    clock_hz=1.53e9,
    fma=64,
    convert=16,
    load=32,
    l2_bytes=6144 * KIB,
    l2_bytes_per_clock=2048.0,
    memory_bytes_per_s=900e9,
    latency=4.0,
    shared_latency=19.0,
    l2_latency=193.0,
    memory_latency=375.0,
)
_A100 = Chip(
    arch="sm_80",
    multiprocessors=108,
    threads=2048,
    blocks=32,
    shared=164 * KIB,
    reserved=KIB,
    clock_hz=1.41e9,
    fma=64,
    convert=16,
    load=32,
    l2_bytes=40960 * KIB,
    l2_bytes_per_clock=5120.0,
    memory_bytes_per_s=1555e9,
    latency=4.0,
    shared_latency=29.0,
    l2_latency=262.0,
    memory_latency=466.0,
)
_H100 = Chip(
    arch="sm_90",
    multiprocessors=132,
    threads=2048,
    blocks=32,
    shared=228 * KIB,
    reserved=KIB,
    clock_hz=1.98e9,
    fma=128,
    convert=64,
    load=32,
    l2_bytes=51200 * KIB,
    l2_bytes_per_clock=5120.0,
    memory_bytes_per_s=3352e9,
    latency=4.0,
    shared_latency=29.0,
    l2_latency=263.0,
    memory_latency=479.0,
)

#: Products by name, those with 40 GB (A100) or 80 GB (H100) on SXM boards; of several with the same
#: instructions, the first stands for a target that names only those.
CHIPS = MappingProxyType(
    {
        "V100": _V100,
        "A100": _A100,
        "H100": _H100,
        "H200": Chip(**{**asdict(_H100), "memory_bytes_per_s": 4.8e12}),
    }
)
