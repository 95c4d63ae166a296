"""Plans for GPUs: the machine, the plan as data, its reasons, what is refused."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields, replace

import pytest
import tvm

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.planner import Plan, Profile
from fuse_epilogue.planner.machines import gpu_table
from fuse_epilogue.planner.machines.gpu import Gpu, gpu
from fuse_epilogue.planner.machines.gpu_table import CHIPS
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.problems.cuda.kernel import elementwise
from fuse_epilogue.planner.problems.space import Points
from fuse_epilogue.planner.search.search import search
from planner_cuda import SMALL, TARGET, machine, problem
from planner_problems import machine as processor
from tiers import one_in

# ---- The machine ---------------------------------------------------------------------------------


def test_a_target_names_its_gpu():
    for arch, name in (("sm_70", "V100"), ("sm_80", "A100"), ("sm_90", "H100"), ("sm_90a", "H100")):
        made = gpu({"kind": "cuda", "arch": arch})
        assert (made.name, made.chip) == (name, CHIPS[name])
    made = gpu({"kind": "cuda", "arch": "sm_90", "model": "H200"})
    assert made.chip.memory_bytes_per_s > gpu(TARGET).chip.memory_bytes_per_s
    assert made.chip.multiprocessors == gpu(TARGET).chip.multiprocessors


def test_what_the_target_states_of_a_block_is_taken():
    stated = {
        "max_threads_per_block": 512,
        "max_num_threads": 512,
        "registers_per_block": 32768,
        "max_shared_memory_per_block": 16384,
    }
    made = gpu({**TARGET, **stated})
    assert (made.block_threads, made.block_registers, made.block_shared) == (512, 32768, 16384)
    assert made.warp == tvm.target.Target(TARGET).attrs["thread_warp_size"]
    assert gpu(tvm.target.Target("nvidia/nvidia-a100")).chip == CHIPS["A100"]
    for name in stated:
        for count in (0, -5, 1 << 40):
            with pytest.raises(ValueError, match=f"'{name}' of the target must be .* not {count}"):
                gpu({**TARGET, name: count})


def test_peaks_are_those_of_the_data_sheets():
    for name, teraflops in (("V100", 15.7), ("A100", 19.5), ("H100", 66.9)):
        made = Gpu(name, CHIPS[name])
        flops, rates = made.roofs(32)
        assert sum(flops.values()) == pytest.approx(1e12 * teraflops, rel=0.01)
        assert rates["memory"] == made.chip.memory_bytes_per_s < rates["L2"]


def test_each_number_of_the_table_has_its_source():
    sources = set(re.findall(r"^\[([A-Z0-9]+)\]", gpu_table.__doc__, re.M))
    rows = re.findall(r"^    (\w+)=(.*?),(.*)$", inspect.getsource(gpu_table), re.M)
    chips = {each.name for each in fields(gpu_table.Chip)}
    assert len(rows) == 3 * len(chips) and {name for name, _, _ in rows} == chips
    named = set()
    for name, value, comment in rows:
        source = re.match(r"  # (?:\[([A-Z0-9]+)\]|as [VA]100)", comment)
        assert source, (name, value)
        named.add(source[1])
    assert named - {None} == sources


def test_a_gpu_survives_json():
    made = machine(launch_s=1e-5, clock_hz=1e9)
    assert Gpu.from_json(made.to_json()) == made
    for text in ("{}", "[]", '{"name": "x", "chip": {}}'):
        with pytest.raises(ValueError, match="not a description of a GPU"):
            Gpu.from_json(text)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm", "of kind 'cuda', not for 'llvm'"),
        ({"kind": "cuda", "arch": "sm_61"}, "a GPU of architecture 'sm_61', only sm_70"),
    ],
)
def test_an_unknown_gpu_is_named(target, message):
    with pytest.raises(ValueError, match=message):
        gpu(target)


# ---- Plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_a_plan_is_the_cheapest_feasible_point(name):
    plan = fuse_epilogue.plan(SMALL[name][1], TARGET)
    found = problem(name)
    points, _ = found.space.feasible()
    assert plan.kind == SMALL[name][0]
    assert plan.cost == Weights().cost(found.cost(points)).min()
    assert plan.cost == pytest.approx(sum(plan.found.best.parts.values()))


@pytest.mark.parametrize("name", ["product", "rows", "conv", "conv, channels last"])
def test_a_plan_survives_json(name):
    func = SMALL[name][1]
    plan = fuse_epilogue.plan(func, TARGET)
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.to_json() == plan.to_json()
    assert json.loads(plan.to_json())["machine"]["name"] == "H100"
    tvm.ir.assert_structural_equal(again.apply(func).mod, plan.apply(func).mod)
    assert again.explain(func, verbose=True) == plan.explain(func, verbose=True)


def test_a_gpu_is_a_target_itself():
    few = machine(block_shared=1024)
    plan = fuse_epilogue.plan(SMALL["product"][1], few)
    assert plan.machine == few and Plan.from_json(plan.to_json()).machine == few


def test_a_plan_is_explained():
    func = SMALL["product"][1]
    plan = fuse_epilogue.plan(func, TARGET)
    text = plan.explain(verbose=True)
    for part in ("H100 (sm_90, 132 multiprocessors)", "predicted", "none", "tail", "absorbed"):
        assert part in text
    assert "threads_m" in plan.table()


def test_a_plan_is_drawn(tmp_path):
    fuse_epilogue.plan(SMALL["rows"][1], TARGET).picture(tmp_path / "plan.svg")
    assert "H100" in (tmp_path / "plan.svg").read_text()


@pytest.mark.skipif(tvm.runtime.enabled("cuda"), reason="this TVM has CUDA")
def test_without_cuda_nothing_is_compiled():
    with pytest.raises(RuntimeError, match="built without CUDA.* need none"):
        fuse_epilogue.compile(SMALL["rows"][1], TARGET)


def test_a_profile_is_for_a_processor():
    with pytest.raises(ValueError, match="a profile describes a processor"):
        fuse_epilogue.plan(SMALL["rows"][1], TARGET, profile=Profile(processor(), Weights()))


def test_other_functions_are_refused():
    with pytest.raises(ValueError, match="it knows product, rows, conv"):
        fuse_epilogue.plan(workloads.elementwise(8, 8), TARGET)
    with pytest.raises(ValueError, match="does not know this function"):
        fuse_epilogue.plan(workloads.matmul("m", 8, 8), TARGET)


def test_the_largest_space_is_searched_in_full():
    """That of a product of many divisors."""
    func = workloads.matmul(4096, 4096, 4096, dtype="float16", activation="silu")
    plan = fuse_epilogue.plan(func, TARGET)
    assert 10_000 < plan.found.size < 100_000 and plan.found.exhaustive


# ---- Regimes of fusion ---------------------------------------------------------------------------


def test_the_tail_is_preferred_where_absorbing_forbids_a_cross_thread_reduction():
    """It is the constraint that decides: without it, absorbing would cost less."""
    func = workloads.row_reduce(4096, 4096, bias=True, activation="relu")
    plan = fuse_epilogue.plan(func, TARGET)
    ways = plan.found.by_fusion
    assert plan.point == ways["tail"].point and plan.point["lanes"] > 1
    assert ways["absorbed"].point["lanes"] == 1 and ways["absorbed"].cost > 1.5 * plan.cost
    assert plan.found.pruned["start"] > 0
    found = plan.known
    across = Points.of([{**plan.point, "fusion": 2}])
    assert Weights().cost(found.cost(across))[0] < plan.cost
    with pytest.raises(ValueError, match="none can start from a bias"):
        found.apply(across.at(0))
    assert "cross-thread reduction starts from the neutral element" in plan.explain(verbose=True)


def test_of_short_rows_a_thread_takes_each_and_absorbs_the_bias():
    short, long = (
        fuse_epilogue.plan(workloads.row_reduce(1 << 20, columns, bias=True), TARGET)
        for columns in (4, 4096)
    )
    assert short.point["lanes"] == 1 and short.point == short.found.by_fusion["absorbed"].point
    assert long.point["lanes"] > 1 and long.found.by_fusion["absorbed"].cost > 1.5 * long.cost


def test_fusing_matters_less_the_longer_the_sums():
    gains = []
    for k in (16, 256, 4096):
        by = fuse_epilogue.plan(
            workloads.matmul(2048, 2048, k, activation="relu"), TARGET
        ).found.by_fusion
        gains.append(by["none"].cost / min(by["tail"].cost, by["absorbed"].cost) - 1)
        assert by["absorbed"].cost <= by["tail"].cost
    assert gains[0] > gains[1] > gains[2] > 0
    assert gains[0] > 0.3 and gains[2] < 0.05


def test_a_convolution_is_one_pass_of_vectors():
    for layout, form in (("NCW", "rows"), ("NWC", "channels")):
        func = workloads.depthwise_conv1d(8, 512, 2048, 3, layout=layout, activation="relu")
        plan = fuse_epilogue.plan(func, TARGET)
        assert plan.known.space.by_name["form"].label(plan.point["form"]) == form
        assert plan.fused and plan.found.by_fusion["none"].cost > 1.5 * plan.cost


def test_a_faster_memory_shifts_the_bound():
    """What is memory-bound on one GPU gains as much as the memory does."""
    func = workloads.row_reduce(1 << 14, 4096, bias=True)
    slow, fast = (
        fuse_epilogue.plan(func, {"kind": "cuda", "arch": "sm_90", "model": model})
        for model in ("H100", "H200")
    )
    gained = slow.found.best.parts["traffic"] / fast.found.best.parts["traffic"]
    assert 1.2 < gained < 4800 / 3352


def test_each_term_counts():
    """Without any of the weights, another point is chosen."""
    plan = fuse_epilogue.plan(workloads.matmul(8192, 8192, 32, activation="relu"), TARGET)
    for name in ("alpha", "beta", "gamma", "delta"):
        other = search(plan.known, replace(Weights(), **{name: 0.0})).best.point
        assert other != plan.point, name


def test_an_elementwise_kernel_waits_for_memory_and_for_each_operation():
    chip = machine().chip
    chains = [elementwise(machine(), 4096, n, 1, 4, 4).chain for n in (0, 1, 5)]
    assert chains[0] == chip.memory_latency
    assert [chain - chains[0] for chain in chains] == [0, chip.latency, 5 * chip.latency]
