"""Calibration asks for points that the machine at hand has, however wide its vectors are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fuse_epilogue import plan
from fuse_epilogue.planner.machines.cpu import cpu
from fuse_epilogue.planner.measurement.calibrate import calibrate
from fuse_epilogue.planner.measurement.profile import SHIPPED, Profile
from fuse_epilogue.planner.problems.space import Point
from fuse_epilogue.workloads import matmul

TARGETS = {
    "no vectors known": {"kind": "llvm"},
    "SSE": {"kind": "llvm", "mcpu": "x86-64-v2"},
    "AVX2": {"kind": "llvm", "mcpu": "znver3"},
    "AVX-512": {"kind": "llvm", "mcpu": "skylake-avx512"},
    "NEON": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"},
}


@pytest.mark.full
@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_measured_is_in_the_space(name: str, cores: int) -> None:
    machine = cpu({**TARGETS[name], "num-cores": cores})
    measured = []

    def measure(problem: Any, point: Point, _target: Any, _least: float) -> float:
        problem.space.check(point)
        measured.append(point)
        shapes = [param.ty.shape for param in problem.func.params]
        size = sum(math.prod(int(extent) for extent in shape) for shape in shapes)
        return 1e-6 + 1e-9 * size / point["threads"]

    profile = calibrate(machine, None, 2, measure)  # type: ignore[arg-type]
    assert len(measured) > len(profile.residuals) > 0
    assert {name.split()[0] for name, _ in profile.residuals} == {"product", "rows", "conv"}


def test_without_a_profile_weights_are_the_means_of_those_that_come_along() -> None:
    known = [Profile.from_json(path.read_text()).weights for path in SHIPPED.glob("*.json")]
    made = plan(matmul(64, 64, 64), {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    assert len(known) > 1
    for letter in ("alpha", "beta", "gamma", "delta"):
        each = [getattr(weights, letter) for weights in known]
        assert getattr(made.weights, letter) == pytest.approx(sum(each) / len(each))
