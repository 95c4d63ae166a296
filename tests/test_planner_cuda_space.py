"""What is chosen from on a GPU, what forbids some of it, and what a kernel is predicted to cost."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.cuda.kernel import (
    Kernel,
    beyond_cache,
    elementwise,
    near_powers,
    terms,
)
from fuse_epilogue.planner.problems.request import Request
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.rewrites.epilogue import ABSORBED, NONE, TAIL
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_cuda import FIND, SMALL, machine, problem
from planner_problems import assert_constraints_prune
from tiers import one_in

# ---- Spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_constraints_prune_what_they_say(name):
    assert_constraints_prune(problem(name).space)


@pytest.mark.parametrize("name", SMALL)
def test_each_way_to_fuse_is_feasible(name):
    found = problem(name)
    kept, _ = found.space.feasible()
    assert set(kept["fusion"].tolist()) == set(found.epilogue.modes)


def pruned(found, constraint):
    return found.space.feasible()[1][constraint]


LARGE = {
    "product": matmul(256, 256, 64, activation="relu"),
    "rows": row_reduce(256, 1024, bias=True, activation="relu"),
    "conv": depthwise_conv1d(4, 64, 256, 3, activation="relu"),
}


def large(kind, **changed):
    found = FIND[kind](Request(LARGE[kind], machine(**changed)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "constraint", "wide", "narrow"),
    [
        ("product", "threads", {}, {"block_threads": 64}),
        ("product", "shared memory", {"block_shared": 1 << 20}, {}),
        ("product", "registers", {"thread_registers": 4096}, {"thread_registers": 64}),
        ("product", "occupancy", {"block_shared": 1 << 20, "shared": 1 << 24}, {"shared": 49152}),
        ("rows", "threads", {"block_threads": 1 << 18}, {}),
        ("rows", "registers", {}, {"thread_registers": 32}),
        ("rows", "occupancy", {}, {"blocks": 4}),
        ("conv", "registers", {}, {"thread_registers": 64}),
        ("conv", "occupancy", {}, {"registers": 8192}),
    ],
)
def test_limits_come_from_the_machine(kind, constraint, wide, narrow):
    """With more of it nothing is pruned; with less some is, and no point is beyond the limit."""
    found = large(kind, **wide)
    if kind == "rows" and constraint == "threads":
        # With as many threads as there may be, lanes of a row alone are within any limit.
        assert pruned(replace(found, sizes={"m": 1, "n": 1024}), constraint) == 0
    else:
        assert pruned(found, constraint) == 0
    found = large(kind, **narrow)
    assert pruned(found, constraint) > 0
    [limit] = [each for each in found.space.constraints if each.name == constraint]
    kept, _ = found.space.feasible()
    assert np.max(limit.used(kept)) <= limit.limit


def test_a_limit_of_the_target_is_that_of_the_space():
    from fuse_epilogue.planner.machines.gpu import gpu

    few = gpu({"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 8192})
    pruned_by = []
    for on, limit in ((machine(), 49152), (few, 8192)):
        found = FIND["product"](Request(LARGE["product"], on))
        limits = {each.name: each.limit for each in found.space.constraints}
        assert limits["shared memory"] == limit
        kept, counts = found.space.feasible()
        tiles = found.block_rows(kept) + found.block_columns(kept)
        assert np.max(4 * kept["step"] * tiles) <= limit
        pruned_by.append(counts["shared memory"])
    assert pruned_by[0] < pruned_by[1]


def block_threads(sch):
    """Return the threads of the blocks of each kernel."""
    found = {}
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        loops = [sch.get(loop) for loop in sch.get_loops(block)]
        bound = [loop for loop in loops if loop.thread_binding is not None]
        # Tiles are loaded by the threads of the block, in a loop inside of theirs.
        tags = {str(t.thread_binding.thread_tag): int(t.extent) for t in bound}
        threads = [extent for tag, extent in tags.items() if "threadIdx" in tag]
        found[sch.get(block).name_hint] = prod(threads)
    return found


@pytest.mark.parametrize("most", [1, 16, 40])
@pytest.mark.parametrize("kind", LARGE)
def test_no_kernel_has_more_threads_than_the_target_allows(kind, most):
    found = large(kind, block_threads=most)
    points, _ = found.space.feasible()
    assert set(points["fusion"].tolist()) == set(found.epilogue.modes) > {NONE}
    for mode in found.epilogue.modes:
        at = int(np.nonzero(points["fusion"] == mode)[0][-1])
        threads = block_threads(found.apply(points.at(at)))
        assert 1 <= max(threads.values()) <= most, (mode, threads)
        if mode == NONE and kind != "conv":
            # What follows is a kernel of its own, of as many threads as there may be.
            assert list(threads.values())[-1] == most


def test_a_kernel_of_its_own_costs_the_threads_that_it_has():
    for most, threads, blocks in ((1024, 256, 4), (16, 16, 63)):
        after = elementwise(machine(block_threads=most), 1000, 1, 0, 4, 4)
        assert (after.threads, after.blocks) == (threads, blocks)
    [few, many] = [large("rows", block_threads=most) for most in (16, 1024)]
    points, _ = few.space.feasible()
    apart = points.take(points["fusion"] == NONE)
    assert np.all(few.cost(apart).latency >= many.cost(apart).latency)


def test_several_threads_of_a_row_leave_the_bias_to_the_tail():
    found = large("rows")
    kept, counts = found.space.feasible()
    assert counts["start"] > 0
    assert not np.any((kept["lanes"] > 1) & (kept["fusion"] == ABSORBED))
    assert np.any((kept["lanes"] == 1) & (kept["fusion"] == ABSORBED))
    assert np.any((kept["lanes"] > 1) & (kept["fusion"] == TAIL))
    [start] = [each for each in found.space.constraints if each.name == "start"]
    assert "cross-thread reduction starts from the neutral element" in start.meaning
    twin = FIND["rows"](Request(row_reduce(256, 1024), machine()))
    assert pruned(twin, "start") == 0


def test_without_a_neutral_element_a_row_has_one_thread():
    largest = problem("rows, largest")
    assert not largest.splits and set(largest.space.feasible()[0]["lanes"].tolist()) == {1}
    whole = FIND["rows"](Request(row_reduce(16, 32, op="max", dtype="int8", bias=True), machine()))
    assert whole.splits and whole.space.feasible()[0]["lanes"].max() == 32


def test_rows_beyond_a_warp_have_whole_warps_or_company():
    kept, counts = FIND["rows"](Request(row_reduce(4, 200), machine())).space.feasible()
    assert counts["whole warps"] > 0
    broken = (kept["lanes"] > 32) & (kept["lanes"] % 32 > 0)
    assert np.any(broken) and not np.any(broken & (kept["rows"] == 1))
    assert pruned(large("rows"), "whole warps") == 0


@pytest.mark.parametrize(
    "name", ["product, odd sizes", "product of halves", "product, both turned"]
)
def test_vectors_are_whole_in_both_matrices(name):
    found = problem(name)
    kept, counts = found.space.feasible()
    m, n, k = (found.sizes[letter] for letter in "mnk")
    wide = kept.take(kept["vector"] > 1)
    assert counts["whole vectors"] > 0
    if name == "product, odd sizes":
        assert wide.size == 0
        return
    a_rows, b_rows = (
        (m, k) if found.a.transposed else (k, k),
        (k, n) if found.b.transposed else (n, n),
    )
    assert (
        wide.size
        and not np.any(a_rows[0] % wide["vector"])
        and not np.any(b_rows[0] % wide["vector"])
    )
    threads = wide["threads_m"] * wide["threads_n"] * wide["vector"]
    assert not np.any(found.block_rows(wide) * wide["step"] % threads)
    assert not np.any(found.block_columns(wide) * wide["step"] % threads)


def test_forms_of_a_convolution_are_those_that_can_be_written():
    labels = {name: problem(name).space.by_name["form"].labels for name in SMALL if "conv" in name}
    assert labels["conv"] == ("loops", "elements", "rows")
    assert labels["conv, channels last"] == ("loops", "elements", "channels")
    assert labels["conv, stride"] == ("loops", "elements")
    found = problem("conv")
    kept, counts = found.space.feasible()
    assert counts["one pass"] > 0 and counts["parts"] > 0
    # Only loops leave what follows in a kernel of its own.
    assert set(kept["form"][kept["fusion"] == NONE].tolist()) == {0}
    assert set(kept["parts"][kept["form"] < 2].tolist()) == {1}
    twin = FIND["conv"](Request(depthwise_conv1d(2, 3, 64, 3, bias=False), machine()))
    assert pruned(twin, "one pass") == 0


def test_divisors_near_powers_of_two():
    assert near_powers(64, 32) == (1, 2, 4, 8, 16, 32)
    assert near_powers(45, 1024) == (1, 3, 5, 15, 45)
    assert near_powers(1, 8) == (1,)
    assert near_powers(7, 4) == (1,)


# ---- Kernels -------------------------------------------------------------------------------------


def test_blocks_of_a_multiprocessor_are_limited_by_each_of_four():
    """The numbers are those of CUDA's occupancy calculator for compute capability 9.0."""
    on = machine()
    assert int(Kernel(threads=256, blocks=1, live=32).resident(on)) == 8  # threads: 2048
    assert int(Kernel(threads=32, blocks=1, live=16).resident(on)) == 32  # places for blocks
    assert int(Kernel(threads=256, blocks=1, live=128).resident(on)) == 2  # 65536 registers
    assert int(Kernel(threads=64, blocks=1, live=32, shared=49152).resident(on)) == 4  # 228 KiB
    assert int(Kernel(threads=64, blocks=1, live=32, shared=49152).idle_warps(on)) == 64 - 8
    assert int(Kernel(threads=33, blocks=1, live=32).idle_warps(on)) == 0  # two warps each


def test_the_last_wave_leaves_multiprocessors_idle():
    on = machine()
    work = Kernel(threads=128, blocks=np.array([132, 133, 264]), live=32, fma=1e6)
    one, two, three = work.clocks(on, 132)
    assert two == three == 2 * one
    np.testing.assert_allclose(work.clocks(on, 1), [132 * one, 133 * one, 264 * one])


def test_few_warps_wait_for_their_own_results():
    on = machine()
    alone = Kernel(threads=32, blocks=1, live=32, fma=100.0, chain=400.0)
    assert float(alone.clocks(on, 132)) == 400.0
    full = replace(alone, threads=1024, blocks=2 * 132)
    assert float(full.clocks(on, 132)) == 2 * 1024 * 100 / 128


def test_what_has_no_register_is_stored_and_loaded():
    """TVM tells nvcc the threads of a block: of 1024, each has 64 registers."""
    on = machine()
    for threads, over in ((1024, 36), (512, 0)):
        work = Kernel(threads=threads, blocks=132, live=100, held=10.0)
        assert float(work.spilled(on)) == 2 * over * 10 * threads / 32


def test_each_term_is_what_it_says():
    on = machine(multiprocessors=2, clock_hz=1e9, memory_bytes_per_s=1e9, l2_bytes_per_clock=4.0)
    work = Kernel(threads=32, blocks=4, live=32, fma=128.0, memory=1000.0, cached=4000.0)
    found = terms(on, ((1, work), (np.array([0, 1]), work)), 2)
    np.testing.assert_allclose(found.traffic, [2e-6, 4e-6])
    np.testing.assert_allclose(found.latency - [on.launch_s, 2 * on.launch_s], [128e-9, 256e-9])
    np.testing.assert_allclose(found.parallelism, [64e-9, 128e-9])
    np.testing.assert_array_equal(found.spill, 0)


def test_nothing_comes_from_the_memory_that_the_cache_has():
    on = machine(l2_bytes=1000)
    np.testing.assert_array_equal(beyond_cache(on, np.array([400, 600]), 500), [0, 1100])


# ---- Costs of problems ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_all_points_at_once_cost_what_each_costs(name):
    found = problem(name)
    points, _ = found.space.feasible()
    terms_of_all = found.cost(points).matrix()
    assert np.all(np.isfinite(terms_of_all)) and np.all(terms_of_all[:, :3] >= 0)
    assert np.all(Weights().cost(found.cost(points)) > 0)
    for index in range(0, points.size, max(1, points.size // 7)):
        alone = found.cost(Points.of([points.at(index)])).matrix()[0]
        np.testing.assert_allclose(terms_of_all[index], alone, rtol=1e-12)


@pytest.mark.parametrize("kind", LARGE)
def test_a_kernel_of_its_own_is_launched_and_moves_more(kind):
    found = large(kind, l2_bytes=1)
    points, _ = found.space.feasible()
    apart = points.take(points["fusion"] == NONE)
    tail = Points({**apart.values, "fusion": np.full(apart.size, TAIL)})
    one, two = found.cost(tail), found.cost(apart)
    assert np.all(two.traffic > one.traffic)
    more = Weights().cost(two).min() - Weights().cost(one).min()
    assert more > found.machine.launch_s


def test_matrices_that_do_not_fit_are_loaded_once_at_least():
    found = large("product", l2_bytes=1000)
    points, _ = found.space.feasible()
    points = points.take(points["fusion"] == TAIL)
    bytes_moved = found.cost(points).traffic * found.machine.chip.memory_bytes_per_s
    assert np.all(bytes_moved >= 4 * (256 * 64 + 64 * 256 + 256 * 256))


def test_larger_tiles_move_less_through_the_cache():
    found = large("product")
    point = {"fusion": TAIL, "rows": 4, "columns": 4, "threads_m": 8, "threads_n": 8, "step": 8}
    points = Points.of([{**point, "vector": 1, "buffers": 1, "rows": rows} for rows in (2, 4, 8)])
    traffic = found.cost(points).traffic
    assert traffic[0] > traffic[1] > traffic[2]


def test_one_machine_moves_the_bytes_of_one_level():
    found = large("rows", l2_bytes=1)
    points, _ = found.space.feasible()
    x, y = 4 * 256 * 1024, 4 * 256
    one = replace(found, machine=found.machine.only("memory")).cost(points)
    np.testing.assert_allclose(one.traffic[points["fusion"] == TAIL], x + y)


@pytest.mark.parametrize("kind", LARGE)
def test_a_problem_of_another_size_is_costed(kind):
    found = large(kind)
    for name, size in found.sizes.items():
        twice = found.resized(name, 2 * size)
        points, _ = twice.space.feasible()
        more = Weights().cost(twice.cost(points)).min()
        points, _ = found.space.feasible()
        assert more > Weights().cost(found.cost(points)).min()
    assert found.resized("nothing", 4) is None and found.resized(name, 0) is None
