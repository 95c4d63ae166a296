"""The short explanation of a plan: one screen, honest digits, limits that bind only."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tvm import tirx

import fuse_epilogue
from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.machines.gpu_table import CHIPS
from fuse_epilogue.targets import GPUS, as_target
from tiers import crossed

FUNCTIONS = {
    "product": workloads.matmul(64, 96, 128, activation="relu"),
    "rows": workloads.row_reduce(32, 512),
    "conv": workloads.depthwise_conv1d(2, 16, 256, 3, activation="relu"),
}
TARGETS = ("llvm", "h100", "trn1")


def planned(name: str, target: str) -> tuple[tirx.PrimFunc, Plan]:
    func = FUNCTIONS[name]
    return func, fuse_epilogue.plan(func, target)


@crossed(name=tuple(FUNCTIONS), target=TARGETS)
def test_it_fits_a_screen(name: str, target: str) -> None:
    func, plan = planned(name, target)
    text = plan.explain()
    assert len(text.splitlines()) <= 20
    assert text == plan.explain(func)
    # The long one says all that the short one says of the choice, and more.
    long = plan.explain(verbose=True)
    chosen = next(line for line in text.splitlines() if line.startswith("chosen: "))
    assert chosen in long and len(long) > 2 * len(text)


def test_times_have_the_digits_that_the_cost_can_tell() -> None:
    plan = planned("product", "llvm")[1]
    for resolution, digits in ((0.05, 2), (0.005, 3), (0.0005, 4)):
        text = replace(plan, resolution=resolution).explain()
        (time,) = re.findall(r"predicted ([\d.,]+) [um]s", text)
        assert len(re.sub(r"[.,]", "", time).lstrip("0")) == digits


def test_costs_that_are_too_close_are_ties() -> None:
    plan = planned("product", "llvm")[1]
    assert plan.found.by_fusion["absorbed"].cost == plan.found.by_fusion["tail"].cost
    fusion = next(line for line in plan.explain().splitlines() if line.startswith("fusion: "))
    assert fusion.count("(chosen)") == 1 and "(a tie)" in fusion
    none = plan.found.by_fusion["none"].cost / plan.cost - 1
    text = replace(plan, resolution=none / 2).explain()
    assert re.search(rf"none [\d.,]+ us \(\+{100 * none:.0f} %\)", text)


def test_only_limits_that_bind_are_shown() -> None:
    func = workloads.matmul(512, 512, 512)
    plan = fuse_epilogue.plan(func, "llvm")
    problem = plan.problem(func)
    used = problem.space.used(plan.point)
    limits = {each.name: each.limit for each in problem.space.constraints}
    assert used["L2"] == limits["L2"] and 4 * used["L1"] < limits["L1"]
    shown = plan.explain().partition("limits that bind:")[2]
    assert f"L2 ({used['L2']:,} of {limits['L2']:,} bytes)" in shown
    assert "L1" not in shown
    assert "no limit binds" in planned("rows", "llvm")[1].explain()


def test_a_plan_from_json_leaves_out_the_limits_and_says_so() -> None:
    func, plan = planned("product", "llvm")
    again = Plan.from_json(plan.to_json())
    assert "limits that bind" not in again.explain() and "no limit binds" not in again.explain()
    assert again.explain().endswith("for which it needs the function")
    assert again.explain(func) == plan.explain()


def test_verbose_is_a_flag() -> None:
    with pytest.raises(TypeError, match="verbose must be True or False: 1"):
        planned("rows", "llvm")[1].explain(verbose=1)  # type: ignore[arg-type]


def test_targets_have_names() -> None:
    func = FUNCTIONS["rows"]
    here = fuse_epilogue.plan(func, schedules.host())
    assert fuse_epilogue.plan(func) == here
    assert fuse_epilogue.plan(func, "host") == here == fuse_epilogue.plan(func, "cpu")
    assert {name.upper(): arch for name, arch in GPUS.items()} == {
        name: chip.arch for name, chip in CHIPS.items()
    }
    for name in GPUS:
        assert fuse_epilogue.plan(func, name).machine.name == name.upper()
    with pytest.raises(ValueError, match="'trn2' is Trainium, for which TVM has no code generator"):
        as_target("trn2")
    with pytest.raises(ValueError, match="'h1000' is neither 'host', a GPU by name"):
        fuse_epilogue.plan(func, "h1000")


def test_a_picture_is_returned(tmp_path) -> None:
    plan = planned("rows", "llvm")[1]
    path = tmp_path / "plan.svg"
    assert plan.picture(path) == plan.picture() == path.read_text()
