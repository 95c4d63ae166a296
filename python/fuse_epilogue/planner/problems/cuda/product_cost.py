"""The costs of a product's points on a GPU: predicted, not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....rewrites.epilogue import ABSORBED, NONE
from ...machines.gpu_table import Chip
from ..cost import Terms
from ..space import Points
from .kernel import ADDRESSES, SECTOR, Kernel, elementwise, terms, under_way

if TYPE_CHECKING:
    from .product import CudaProduct

#: Banks of shared memory, of a word of 4 bytes each: CUDA C++ Programming Guide, "Shared Memory".
_BANKS = 32


def kernel(problem: CudaProduct, p: Points) -> Kernel:
    """Return what the kernel of the product does."""
    chip, epilogue = problem.machine.chip, problem.epilogue
    m, n, k = (problem.sizes[letter] for letter in "mnk")
    rows, columns, step, vector = p["rows"], p["columns"], p["step"], p["vector"]
    threads = p["threads_m"] * p["threads_n"]
    tile_m, tile_n = problem.block_rows(p), problem.block_columns(p)
    blocks = (m // tile_m) * (n // tile_n)
    a, b, sums = problem.a.bytes, problem.b.bytes, rows * columns
    # Tiles of a step: loaded by all threads, stored, and read again by those that need them.
    loaded_a, loaded_b = (-(-tile * step // threads) for tile in (tile_m, tile_n))
    moved = loaded_a * max(1.0, a / 4) + loaded_b * max(1.0, b / 4)
    packed = np.ceil((loaded_a * a + loaded_b * b) / 4)
    words = np.where(vector > 1, packed, moved)
    loads = (loaded_a + loaded_b) / vector
    read, reads = _read(problem, p)
    converts = (rows + columns) * (problem.dtype not in ("float32", "int32"))
    fused = (p["fusion"] != NONE) & (epilogue.blocks > 0)
    absorbed = epilogue.absorbed * (p["fusion"] == ABSORBED)
    after = sums * (epilogue.operations - absorbed) * fused
    # An operand that depends on one axis only is loaded once for a row or column of the tile.
    others = sum(_elements(axes, rows, columns) for axes in epilogue.loads) * fused
    # An asynchronous copy is one instruction, not two, and nvcc keeps its address in a register and
    # not what it copies. Each step has two more: one ends a group of copies, one waits for a group.
    ahead = p["buffers"] - 1
    moves, around = np.where(ahead > 0, 1, 2) * loads, np.where(ahead > 0, 4.0, 2.0)
    kept = under_way(np.where(ahead > 0, loads, words))
    each = step * (sums + reads + converts) + moves
    chain = _steps(chip, k / step, each, ahead)
    chain = chain + chip.memory_latency + chip.latency * after / np.maximum(sums, 1)
    out = problem.stored_bytes(p)
    return Kernel(
        threads=threads,
        blocks=blocks,
        live=ADDRESSES + sums * problem.bits // 32 + rows + columns + kept,
        shared=p["buffers"] * step * (tile_m * a + tile_n * b),
        fma=k * sums + after,
        convert=k * converts,
        words=2 * k / step * words + k * read + sums * out / 4 + others,
        others=k / step * (around + moves) + k * reads + sums * out / 16 + others,
        chain=chain,
        held=k / step,
        memory=_memory(problem, p, blocks, out),
        cached=_cached(problem, p, blocks) + m * n * out,
    )


def _steps(chip: Chip, steps: Any, each: Any, ahead: Any) -> Any:
    """Return the clocks of a thread for all steps of k, if it waits for nothing but its own.

    Its instructions begin one a clock at best. With one buffer it waits in each step for the tiles
    twice: until they have come from the second cache and are stored, and until it has loaded from
    them after the barrier. So, in clocks c of instructions, l of the cache and s of shared memory:

        steps * (c + (l + s) + s)

    Where tiles are loaded `ahead` steps before they are used, l + s goes on at the same time as
    these steps: a step takes at least c + s, and `ahead` of them at least l + s. Before the first
    one there is nothing to do meanwhile:

        (l + s) + steps * max(c + s, (l + s) / ahead)
    """
    comes, used = chip.l2_latency + chip.shared_latency, each + chip.shared_latency
    meanwhile = comes + steps * np.maximum(used, comes / np.maximum(ahead, 1))
    return np.where(ahead > 0, meanwhile, steps * (used + comes))


def _elements(axes: frozenset[int], rows: Any, columns: Any) -> Any:
    """Return how many elements of an operand a tile needs that depends on some axes of y."""
    return np.where(0 in axes, rows, 1) * np.where(1 in axes, columns, 1)


def _read(problem: CudaProduct, p: Points) -> tuple[Any, Any]:
    """Return the clocks in which a warp reads shared memory for a k, and the instructions.

    Threads with the same rows read the same elements of a at the same time, which costs once. Where
    k runs along memory, elements of different rows may lie in the same bank.
    """
    warp = problem.machine.warp
    across = np.minimum(p["threads_n"], warp)
    down = np.maximum(1, warp // np.maximum(p["threads_n"], 1))
    clocks: Any = 0.0
    instructions: Any = 0.0
    for count, apart, distinct, along in (
        (p["rows"], p["rows"] * p["step"], down, problem.a.transposed),
        (p["columns"], p["columns"] * p["step"], across, not problem.b.transposed),
    ):
        # Side by side: whole vectors, of which a warp gets 32 words in a clock.
        packed = np.maximum(count * distinct / warp, count / 4)
        conflicts = np.minimum(distinct, np.gcd(apart, _BANKS))
        clocks = clocks + (packed if along else count * conflicts)
        instructions = instructions + (np.ceil(count / 4) if along else count)
    return clocks, instructions


def _cached(problem: CudaProduct, p: Points, blocks: Any) -> Any:
    """Return the bytes of the tiles that all blocks load, whole sectors."""
    k, step = problem.sizes["k"], p["step"]
    total: Any = 0.0
    for tile, size, along in (
        (problem.block_rows(p), problem.a.bytes, problem.a.transposed),
        (problem.block_columns(p), problem.b.bytes, not problem.b.transposed),
    ):
        run = np.where(along, tile, step) * size
        waste = np.ceil(run / SECTOR) * SECTOR / run
        total = total + blocks * tile * k * size * waste
    return total


def _memory(problem: CudaProduct, p: Points, blocks: Any, out: Any) -> Any:
    """Return the bytes that come from and go to the memory.

    Blocks that run at the same time share rows and columns; what one wave loaded, the next one
    loads again, unless the cache holds the whole matrix.
    """
    gpu = problem.machine
    m, n, k = (problem.sizes[letter] for letter in "mnk")
    all_a, all_b, y = m * k * problem.a.bytes, n * k * problem.b.bytes, m * n * out
    wave = gpu.chip.multiprocessors  # at least this many blocks at a time
    wide = np.maximum(1, n // problem.block_columns(p))
    waves = np.ceil(blocks / wave)
    columns = np.minimum(wide, wave)
    rows = np.ceil(np.minimum(blocks, wave) / wide)
    again_a = waves * rows * problem.block_rows(p) * k * problem.a.bytes
    again_b = waves * columns * problem.block_columns(p) * k * problem.b.bytes
    keeps_b = all_b <= gpu.chip.l2_bytes // 2
    once = all_a + all_b + y
    loaded = np.maximum(all_a, again_a) + np.where(keeps_b, all_b, np.maximum(all_b, again_b)) + y
    return np.where(once <= gpu.chip.l2_bytes, 0.0, loaded)


def costs(problem: CudaProduct, points: Points) -> Terms:
    """Return the terms of the cost of points."""
    epilogue, count = problem.epilogue, problem.sizes["m"] * problem.sizes["n"]
    after = elementwise(
        problem.machine,
        count,
        epilogue.operations,
        len(epilogue.loads),
        problem.bits // 8,
        problem.out_bytes,
    )
    apart = (points["fusion"] == NONE) & (epilogue.blocks > 0)
    return terms(problem.machine, ((1, kernel(problem, points)), (apart, after)), points.size)
