"""A plan whose parts contradict each other is refused: each rule, by what may have been changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import fuse_epilogue
from fuse_epilogue.planner import Plan, Profile
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.planner.validate_plan import RULES, check
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_cuda import SMALL as ON_GPU
from planner_problems import SMALL, machine
from tiers import one_in

CPU = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
GPU = {"kind": "cuda", "arch": "sm_90"}
FUNC = matmul(64, 96, 32, activation="relu")
PLANS = {
    "cpu": fuse_epilogue.plan(FUNC, CPU),
    "gpu": fuse_epilogue.plan(FUNC, GPU),
    "trn1": fuse_epilogue.plan(row_reduce(64, 256, bias=True, activation="relu"), "trn1"),
    "part": fuse_epilogue.plan(FUNC, CPU, limit=1),
}


def timed(plan: Plan) -> Plan:
    """Return a plan as if its points, all of one way to fuse, had been timed."""
    way, best = next(item for item in plan.found.by_fusion.items() if item[1] == plan.found.best)
    alone = [each for each in plan.found.ranked if each.point["fusion"] == best.point["fusion"]]
    assert len(alone) > 1
    ranked = tuple(replace(each, measured=1e-3 * at) for at, each in enumerate(alone, 1))
    return replace(plan, found=replace(plan.found, ranked=ranked, by_fusion={way: ranked[0]}))


PLANS["timed"] = timed(PLANS["cpu"])
PLANS["no spill"] = fuse_epilogue.plan(FUNC, CPU, profile=Profile(machine(), Weights(gamma=0.0)))


def best(data: dict[str, Any]) -> dict[str, Any]:
    return data["found"]["ranked"][0]


def everywhere(data: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    for each in (*data["found"]["ranked"], *data["found"]["by_fusion"].values()):
        change(each)


def rename(data: dict[str, Any], old: str, new: str) -> None:
    ways = data["found"]["by_fusion"]
    ways[new] = ways.pop(old)


def cheaper(each: dict[str, Any], share: float) -> None:
    each["cost"] *= share
    each["parts"] = {name: share * value for name, value in each["parts"].items()}


def swap(data: dict[str, Any], one: str, other: str) -> None:
    ways = data["found"]["by_fusion"]
    ways[one], ways[other] = ways[other], ways[one]


#: What was changed, in which plan, how, and what is said of it.
CHANGES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a type that is none": ("cpu", lambda d: d.update(dtype="nosuch"), "dtype is not a type"),
    "no type": ("cpu", lambda d: d.update(dtype=""), "dtype is not a type"),
    "a type of no numbers": ("cpu", lambda d: d.update(dtype="handle"), "not a type of numbers"),
    "a type of vectors": ("gpu", lambda d: d.update(dtype="float32x4"), "not a type of numbers"),
    "no sizes": ("cpu", lambda d: d.update(sizes={}), "sizes are not those of its kind"),
    "another size": ("gpu", lambda d: d["sizes"].update(x=1), "sizes are not those of its kind"),
    "sizes of another kind": (
        "cpu",
        lambda d: d.update(kind="rows"),
        "sizes are not those of its kind",
    ),
    "a resolution that nothing has": (
        "gpu",
        lambda d: d.update(resolution=1e308),
        "resolution is above 10",
    ),
    "no variables": ("cpu", lambda d: best(d)["point"].clear(), "of the same variables"),
    "a variable less": ("cpu", lambda d: best(d)["point"].popitem(), "of the same variables"),
    "a variable more": ("gpu", lambda d: best(d)["point"].update(x=1), "of the same variables"),
    "variables of a way": (
        "gpu",
        lambda d: d["found"]["by_fusion"]["none"]["point"].update(x=1),
        "of the same variables",
    ),
    "one point twice": (
        "cpu",
        lambda d: d["found"]["ranked"].insert(0, best(d)),
        "are the same",
    ),
    "a negative term": (
        "cpu",
        lambda d: best(d)["parts"].update(spill=-best(d)["cost"]),
        "not above 0, or parallelism",
    ),
    "parallelism that costs": (
        "gpu",
        lambda d: best(d)["parts"].update(parallelism=1e-6),
        "or parallelism is",
    ),
    "half the cost": ("cpu", lambda d: best(d).update(cost=best(d)["cost"] / 2), "add up to it"),
    "twice the cost": ("gpu", lambda d: best(d).update(cost=best(d)["cost"] * 2), "add up to it"),
    "a cost below its bound": (
        "trn1",
        lambda d: best(d)["parts"].update(traffic=2 * best(d)["cost"]),
        "add up to it",
    ),
    "a term less": ("gpu", lambda d: best(d)["parts"].update(latency=0.0), "add up to it"),
    "a term of no weight": (
        "no spill",
        lambda d: best(d)["parts"].update(spill=best(d)["parts"]["latency"], latency=0.0),
        "its weight is 0",
    ),
    "one that was timed": ("cpu", lambda d: best(d).update(measured=1e-9), "measured and some not"),
    "one that was not timed": (
        "timed",
        lambda d: d["found"]["ranked"][-1].update(measured=None),
        "measured and some not",
    ),
    "a way that was not timed": (
        "timed",
        lambda d: [e.update(measured=None) for e in d["found"]["by_fusion"].values()],
        "measured and some not",
    ),
    "timed on a GPU": (
        "gpu",
        lambda d: everywhere(d, lambda each: each.update(measured=each["cost"])),
        "or on another machine",
    ),
    "timed on Trainium": (
        "trn1",
        lambda d: everywhere(d, lambda each: each.update(measured=each["cost"])),
        "or on another machine",
    ),
    "the other way round": ("timed", lambda d: d["found"]["ranked"].reverse(), "not in the order"),
    "the best at the end": (
        "gpu",
        lambda d: d["found"]["ranked"].append(d["found"]["ranked"].pop(0)),
        "not in the order",
    ),
    "an unknown label": ("cpu", lambda d: rename(d, "none", "nosuch"), "not that of its point"),
    "a label of Trainium": ("cpu", lambda d: rename(d, "tail", "fused"), "not that of its point"),
    "a label of processors": (
        "trn1",
        lambda d: rename(d, "fused", "tail"),
        "not that of its point",
    ),
    "labels exchanged": ("gpu", lambda d: swap(d, "none", "tail"), "not that of its point"),
    "another way to fuse": (
        "cpu",
        lambda d: everywhere(d, lambda each: each["point"].update(fusion=0)),
        "are the same|not that of its point",
    ),
    "a way that is none": (
        "cpu",
        lambda d: d["found"]["by_fusion"]["none"]["point"].update(fusion=7),
        "not that of its point",
    ),
    "ways of what has none": (
        "cpu",
        lambda d: everywhere(d, lambda each: each["point"].pop("fusion")),
        "are the same|not that of its point",
    ),
    "without the way that was chosen": (
        "cpu",
        lambda d: d["found"]["by_fusion"].pop(
            ("none", "tail", "absorbed")[best(d)["point"]["fusion"]]
        ),
        "the best point of each way",
    ),
    "without any way": ("cpu", lambda d: d["found"]["by_fusion"].clear(), "or there is none"),
    "without the best runner-up": (
        "gpu",
        lambda d: d["found"]["ranked"].pop(1),
        "do not agree on the best of a way",
    ),
    "a way that is as good as the plan": (
        "gpu",
        lambda d: cheaper(
            d["found"]["by_fusion"]["none"],
            best(d)["cost"] / d["found"]["by_fusion"]["none"]["cost"],
        ),
        "do not agree on the best of a way",
    ),
    "a way that was timed and is not ranked": (
        "timed",
        lambda d: d["found"]["by_fusion"].update(
            none={**best(d), "point": {**best(d)["point"], "fusion": 0}, "measured": 9.0}
        ),
        "do not agree on the best of a way",
    ),
    "a way that costs less than the plan": (
        "gpu",
        lambda d: cheaper(d["found"]["by_fusion"]["none"], 1e-3),
        "the best point of each way",
    ),
    "a plan that is not that of its way": (
        "gpu",
        lambda d: cheaper(best(d), 0.5),
        "the best point of each way",
    ),
    "more candidates than points": (
        "cpu",
        lambda d: d["found"].update(evaluated=0),
        "found.evaluated does not fit",
    ),
    "more points than there are": (
        "part",
        lambda d: d["found"].update(evaluated=d["found"]["size"] + 1),
        "found.evaluated does not fit",
    ),
    "more pruned than there are": (
        "cpu",
        lambda d: d["found"]["pruned"].update(tasks=10**9),
        "found.evaluated does not fit",
    ),
    "a small space": ("gpu", lambda d: d["found"].update(size=10), "found.evaluated does not fit"),
    "no runners-up": (
        "cpu",
        lambda d: d["found"]["ranked"].__delitem__(slice(1, 9)),
        "than are sh",
    ),
    "a runner-up less": (
        "gpu",
        lambda d: d["found"]["ranked"].pop(),
        "fewer points than are shown",
    ),
    "no gap that is known": ("cpu", lambda d: d["found"].update(gap=None), "found.gap is not"),
    "a gap": ("gpu", lambda d: d["found"].update(gap=1e-9), "found.gap is not"),
    "no gap of a search in part": (
        "part",
        lambda d: d["found"].update(gap=0.0),
        "found.gap is not",
    ),
    "a gap that nobody knows": ("part", lambda d: d["found"].update(gap=1e-9), "found.gap is not"),
    "a gap above the cost": (
        "trn1",
        lambda d: d["found"].update(gap=2 * best(d)["cost"]),
        "found.gap is not",
    ),
    "no gap, and points left out": (
        "trn1",
        lambda d: d["found"].update(gap=0.0),
        "found.gap is not",
    ),
    "fewer evaluated": (
        "cpu",
        lambda d: d["found"].update(evaluated=len(d["found"]["ranked"])),
        "found.pruned are fewer",
    ),
    "nothing pruned": ("cpu", lambda d: d["found"].update(pruned={}), "found.pruned are fewer"),
    "all points": (
        "part",
        lambda d: d["found"].update(exhaustive=True, pruned={}),
        "found.gap is not",
    ),
    "estimates on a processor": (
        "part",
        lambda d: d["found"].update(estimated=True),
        "is of Trainium",
    ),
    "estimates of all points": (
        "trn1",
        lambda d: d["found"].update(estimated=True, exhaustive=True, gap=0.0, pruned={}),
        "is of Trainium",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_contradicts_itself_is_refused(name: str) -> None:
    kind, change, message = CHANGES[name]
    text = PLANS[kind].to_json()
    assert Plan.from_json(text) == PLANS[kind]
    data = json.loads(text)
    change(data)
    assert json.dumps(data) != json.dumps(json.loads(text))
    with pytest.raises(ValueError, match=f"not the JSON of a plan: .*({message})"):
        Plan.from_json(json.dumps(data))


def test_every_rule_has_its_change() -> None:
    """By what the rule says: one that no change breaks could be deleted unnoticed."""
    broken = set()
    for kind, change, _ in CHANGES.values():
        data = json.loads(PLANS[kind].to_json())
        change(data)
        with pytest.raises(ValueError) as error:
            Plan.from_json(json.dumps(data))
        broken |= {rule.message for rule in RULES if str(error.value).endswith(rule.message)}
    assert broken >= {rule.message for rule in RULES}


@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_plans_for_processors_keep_the_rules(name: str) -> None:
    for limit in (1, 400_000):
        check(fuse_epilogue.plan(SMALL[name][1], CPU, limit=limit))


@pytest.mark.parametrize("name", one_in(3, ON_GPU))
def test_plans_for_gpus_keep_the_rules(name: str) -> None:
    for limit in (1, 400_000):
        check(fuse_epilogue.plan(ON_GPU[name][1], GPU, limit=limit))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_plans_for_trainium_keep_the_rules(target: str) -> None:
    for func in (
        depthwise_conv1d(1, 128, 64, 3, activation="relu"),
        depthwise_conv1d(32, 4096, 8192, 4),
        matmul(64, 64, 64, bias=False),
        row_reduce(64, 256, bias=True),
    ):
        check(fuse_epilogue.plan(func, target))
