"""The time and the resources that a kernel takes on a GPU: residency, instructions, waves.

A multiprocessor has as many blocks at a time as its threads, registers, shared memory and places
for blocks allow. Their warps share its units: a kernel takes at least the clocks of the unit that
is used most. Each warp also waits for its own instructions, one after the other: a wave of blocks
takes at least the clocks of that chain, so that few warps leave the units idle.

All of this is predicted from :mod:`fuse_epilogue.planner.machines.gpu_table`. Nothing was measured
on a GPU: the weights of the terms are 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...machines.gpu import Gpu
from ..cost import Terms
from ..space import Constraint, Points, divisors

#: A number for each point, or one for all.
Array = Any

#: Registers of a thread for indices and addresses, besides the values that a schedule names. nvcc
#: decides how many there are: an estimate.
ADDRESSES = 24
#: Values loaded and not used yet that have a register each, and one in this many of more: nvcc puts
#: the loads that a schedule would have under way all at once after each other. Chosen after what it
#: gave to the kernels of benchmarks/results/cuda_registers.json.
_UNDER_WAY, _BEYOND = 16, 4
#: Registers are given out in steps of this many for a thread: CUDA's occupancy calculator.
_STEP = 8
#: Bytes that a load of global memory moves at least: a sector, and a line that the first cache
#: keeps together. CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
SECTOR, LINE = 32, 128
#: Threads of a block of a kernel that changes single elements, where the machine allows as many.
_ELEMENTS = 256
#: Warps for each scheduler that a multiprocessor must have room for: while one waits for its
#: operands, another one begins.
_WARPS = 2


@dataclass(frozen=True)
class Kernel:
    """The work of a kernel; each attribute is a number for each point, or one for all.

    - `threads`: threads of a block.
    - `live`: values that a thread holds at a time, in registers of 32 bits.
    - `shared`: bytes of shared memory of a block.
    - `fma`, `convert`, `words`, `others`: what a thread executes: operations in float32 or int32,
      conversions, words that the units for loads and stores move, and other instructions; loads and
      stores are among these, one for a vector.
    - `chain`: clocks of a thread from its begin to its end if it waits for nothing but its own
      results.
    - `held`: how often a thread uses all that it holds: what has no register is stored and loaded
      so often.
    - `memory`, `cached`: bytes that come from or go to the memory, and the second cache.
    """

    threads: Array
    blocks: Array
    live: Array
    shared: Array = 0
    fma: Array = 0.0
    convert: Array = 0.0
    words: Array = 0.0
    others: Array = 0.0
    chain: Array = 0.0
    held: Array = 1.0
    memory: Array = 0.0
    cached: Array = 0.0

    def registers(self, gpu: Gpu) -> Array:
        """Return the registers that a thread can have: TVM tells nvcc the threads of a block."""
        most = gpu.block_registers // np.maximum(self.threads, gpu.warp) // _STEP * _STEP
        return np.minimum(most, gpu.thread_registers)

    def resident(self, gpu: Gpu) -> Array:
        """Return the blocks that a multiprocessor has at a time; 0 where none fits."""
        chip = gpu.chip
        warps = -(-np.asarray(self.threads) // gpu.warp)
        taken = np.minimum(-(-np.asarray(self.live) // _STEP) * _STEP, self.registers(gpu))
        return np.minimum.reduce(
            np.broadcast_arrays(
                chip.blocks,
                gpu.warps // warps,
                gpu.registers // (warps * gpu.warp * np.maximum(taken, _STEP)),
                chip.shared // np.maximum(self.shared + np.asarray(chip.reserved), 1),
            )
        )

    def idle_warps(self, gpu: Gpu) -> Array:
        """Return the number of warp slots of a multiprocessor that no block can fill."""
        return gpu.warps - self.resident(gpu) * -(-np.asarray(self.threads) // gpu.warp)

    def clocks(self, gpu: Gpu, multiprocessors: int) -> Array:
        """Return the clocks of the kernel on n multiprocessors."""
        chip = gpu.chip
        warps = -(-np.asarray(self.threads) // gpu.warp)
        total = self.fma + self.convert + self.others
        busy = np.maximum.reduce(
            np.broadcast_arrays(
                np.asarray(self.fma, float) / chip.fma,
                self.convert / chip.convert,
                self.words / chip.load,
                total / (gpu.schedulers * gpu.warp),
            )
        )
        each = np.ceil(self.blocks / multiprocessors)
        waves = np.ceil(each / np.maximum(1, self.resident(gpu)))
        return np.maximum(each * warps * gpu.warp * busy, waves * self.chain)

    def spilled(self, gpu: Gpu) -> Array:
        """Return the clocks of all multiprocessors for spilled registers."""
        over = np.maximum(0, np.asarray(self.live) - self.registers(gpu))
        words = 2.0 * over * self.held * self.threads * self.blocks
        return words / gpu.chip.load / gpu.chip.multiprocessors


def under_way(words: Array) -> Array:
    """Return the registers of words that a schedule would load before it uses the first of them."""
    return np.ceil(np.minimum(words, _UNDER_WAY) + np.maximum(words - _UNDER_WAY, 0) / _BEYOND)


def terms(gpu: Gpu, kernels: Sequence[tuple[Array, Kernel]], size: int) -> Terms:
    """Return the terms of the cost of kernels that run one after the other.

    - `kernels`: each with whether points have it.
    - `size`: number of points.
    - Returns: in seconds. traffic: what goes to and from the memory and the second cache, each at
      its bandwidth. latency: all instructions on one multiprocessor, or what they wait for each
      other, wave after wave; and the launches. spill: loads and stores of what has no register, on
      the whole machine. parallelism: what many multiprocessors save of the latency; the last wave
      may leave some idle. How much of the traffic goes on while others compute was not measured:
      the terms are added, so that less of either is better.
    """
    sums, chip = [np.zeros(size) for _ in range(4)], gpu.chip
    for has, kernel in kernels:
        one, every = (
            kernel.clocks(gpu, count) / chip.clock_hz for count in (1, chip.multiprocessors)
        )
        moved = kernel.memory / chip.memory_bytes_per_s + kernel.cached / gpu.l2_bytes_per_s
        spill = kernel.spilled(gpu) / chip.clock_hz
        own = (moved, one + gpu.launch_s, spill, one - every)
        sums = [total + has * term for total, term in zip(sums, own, strict=True)]
    return Terms(*sums)


def limits(gpu: Gpu, kernel: Callable[[Points], Kernel]) -> tuple[Constraint, ...]:
    """Return what a GPU forbids of a kernel."""
    return (
        Constraint(
            "threads",
            gpu.block_threads,
            "threads",
            lambda p: kernel(p).threads,
            "a block has no more of them",
        ),
        Constraint(
            "shared memory",
            gpu.block_shared,
            "bytes",
            lambda p: kernel(p).shared,
            "tiles of a block stay in the shared memory that it has",
        ),
        Constraint(
            "registers",
            gpu.thread_registers,
            "registers",
            lambda p: kernel(p).live,
            "what a thread computes with has registers",
        ),
        Constraint(
            "occupancy",
            gpu.warps - _WARPS * gpu.schedulers,
            "places for warps left empty",
            lambda p: kernel(p).idle_warps(gpu),
            f"a multiprocessor has room for {_WARPS} warps for each of its schedulers",
        ),
    )


def near_powers(size: int, most: int) -> tuple[int, ...]:
    """Return the largest divisors of a size up to 1, 2, 4, ... and a last power of two."""
    powers = (1 << at for at in range(most.bit_length()))
    return tuple(dict.fromkeys(max(divisors(size, power)) for power in powers))


def beyond_cache(gpu: Gpu, *sizes: Array) -> Array:
    """Return the bytes of tensors that come from the memory: none where all fit into the cache.

    As on a processor, a function is called again and again.
    """
    total: Array = sum(sizes)
    return np.where(np.asarray(total) <= gpu.chip.l2_bytes, 0.0, total)


def element_threads(gpu: Gpu) -> int:
    """Return the threads of a block of a kernel that changes single elements, at most."""
    return min(_ELEMENTS, gpu.block_threads)


def elementwise(
    gpu: Gpu, count: int, operations: int, loads: int, read: int, written: int
) -> Kernel:
    """Return a kernel of its own for what follows a reduction.

    - `count`: elements of the result, one for each thread.
    - `operations`, `loads`: loads of each element, besides that of the sum.
    - `read`, `written`: bytes of a sum, and of an element of the result.
    """
    chip, threads = gpu.chip, element_threads(gpu)
    return Kernel(
        threads=min(threads, count),
        blocks=-(-count // threads),
        live=ADDRESSES,
        fma=float(operations),
        words=2.0 + loads,
        others=2.0 + loads,
        chain=chip.memory_latency + chip.latency * operations,
        memory=beyond_cache(gpu, count * (read + written)),
        cached=float(count * (read + written)),
    )
