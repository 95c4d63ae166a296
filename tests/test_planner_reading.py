"""JSON of plans, profiles and machines: what it must hold is asked for when it is read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Annotated

import pytest

import fuse_epilogue
from fuse_epilogue.planner import Plan, Profile
from fuse_epilogue.planner.json_schema import Must, Positive, read
from fuse_epilogue.planner.machines.cpu import Cpu
from fuse_epilogue.planner.machines.gpu import Gpu, gpu
from fuse_epilogue.planner.plan_record import ANY
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.workloads import matmul
from planner_problems import SMALL, machine

TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
PLAN = fuse_epilogue.plan(SMALL["product"][1], TARGET).to_json()
ON_GPU = fuse_epilogue.plan(SMALL["product"][1], {"kind": "cuda", "arch": "sm_90"}).to_json()
PROFILE = Profile(machine(), Weights(), (("f: a", 0.5),)).to_json()
BEST = "found.ranked.0."


def changed(text, path, value):
    """Return JSON with another value at a path; of a new name, with one more."""
    data = json.loads(text)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place = data
    for step in steps:
        place = place[step]
    place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("found.ranked", [], "found.ranked must be at least one candidate"),
        ("found.ranked", None, "found.ranked must be a list, not None"),
        (BEST + "parts", {}, "parts must be of traffic, latency, spill, parallelism"),
        (BEST + "parts.spill", "x", "parts.spill must be a number"),
        (BEST + "cost", 0, "cost must be above 0"),
        (BEST + "cost", float("nan"), "cost must be a number, not nan"),
        (BEST + "cost", 10**400, "cost must be a number"),
        (BEST + "point", [1], "point must be an object"),
        (BEST + "point.rows", 2.0, "point.rows must be an integer, not 2.0"),
        (BEST + "point.rows", True, "point.rows must be an integer, not True"),
        ("found.by_fusion.tail", None, "by_fusion.tail must be an object"),
        ("found.pruned", None, "found.pruned must be an object"),
        ("found.gap", "x", "found.gap must be a number"),
        ("found", None, "found must be an object"),
        ("kind", "nosuch", "kind must be one of product, rows, conv, not 'nosuch'"),
        ("kind", None, "kind must be a text"),
        ("sizes", None, "sizes must be an object"),
        ("sizes.m", 0, "sizes.m must be from 1"),
        ("known", {"func": 1}, "it has 'known', which is not a field of Plan"),
        ("finite", "x", "finite must be true or false"),
        ("finite", True, "finite is for Trainium"),
        ("round_shares", 1, "round_shares must be true or false"),
        ("round_shares", True, "round_shares is for Trainium"),
        ("resolution", -1, "resolution must be 0 or above"),
        ("identity", 3, "identity must be a text"),
        ("identity", "", "identity must be 16 hexadecimal digits, or 'any', not ''"),
        ("identity", "0123456789ABCDEF", "identity must be 16 hexadecimal digits"),
        ("identity", "123", "identity must be 16 hexadecimal digits"),
        (BEST + "point.rows", -1, "point.rows must be from 0"),
        (BEST + "point.rows", 10**400, "point.rows must be from 0"),
        ("version", 3, "not of version"),
        ("version", True, "not of version"),
        ("version", 4.0, "not of version"),
        ("version", "4", "not of version"),
        ("weights.alpha", -1, "alpha must be a number of at least 0"),
        ("weights.beta", "x", "weights.beta must be a number"),
        ("weights", dict.fromkeys(("alpha", "beta", "gamma", "delta"), 0), "are all 0: then noth"),
        ("machine", "nosuch", "machine must be one of trn1, trn2, trn3 or an object"),
        ("machine", None, "machine must be one of"),
        ("machine.name", "a\n\nchosen: x", r"name must be printable, in one line, not 'a\\n"),
        ("machine.name", "\x1b[31m", "name must be printable"),
        ("machine.name", "", "name must be printable"),
        ("machine.levels.0.name", "a\u2028b", "name must be printable"),
        ("sizes.a\nb", 1, r"a name in it.sizes must be printable, in one line, not 'a\\nb'"),
        ("found.pruned.a\rb", 0, "a name in it.found.pruned must be printable"),
        (BEST + "point.a\tb", 0, "a name in .*point must be printable"),
        ("machine.levels", [], "levels must be at least a cache and the memory"),
        ("machine.levels.0.bytes", "x", r"levels\[0\].bytes must be an integer"),
        ("machine.registers", 10**6, "registers must be from 1 to 1024, not 1000000"),
        ("machine.vector_bytes", 3, "vector_bytes must be a power of two"),
        ("machine.cores", 0, "cores must be from 1"),
        ("machine.core", None, "core must be an object"),
        ("machine.core.fma", 0, "core.fma must be from 1e-06 to 1e[+]06, not 0"),
        ("machine.core.fma", 1e-320, "core.fma must be from"),
        ("machine.core.latency", 1e308, "core.latency must be from"),
        ("machine.core.pages", 2**62, r"core.pages must be from 1 to 2.14748e\+09"),
        ("machine.clock_hz", 1e-320, "clock_hz must be from"),
        ("machine.clock_hz", 1e308, "clock_hz must be from"),
        ("machine.launch_s", 1e308, "launch_s must be from"),
        ("machine.levels.1.bytes_per_s", 1e-320, "bytes_per_s must be from"),
        ("machine.levels.0.ways", 2**62, "ways must be from"),
        ("machine.levels.0.ways", 2**40, r"levels\[0\] must be of bytes for a set or more"),
    ],
)
def test_a_changed_plan_is_refused(path, value, message):
    assert Plan.from_json(PLAN).to_json() == PLAN
    with pytest.raises(ValueError, match=f"this is not the JSON of a plan: .*{message}"):
        Plan.from_json(changed(PLAN, path, value))


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "NaN", '"x"', b"\xff", None, 3])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError, match="this is not the JSON of a plan: it "):
        Plan.from_json(text)
    with pytest.raises(ValueError, match="this is not a profile of a machine: it "):
        Profile.from_json(text)


def members(data, path=()):
    """Return the paths to all members of objects, but of those whose names are up to the plan."""
    if isinstance(data, list):
        data = dict(enumerate(data))
    elif isinstance(data, dict):
        yield from ((*path, name) for name in data)
    for name, each in data.items() if isinstance(data, dict) else ():
        if name not in ("sizes", "point", "parts", "pruned", "by_fusion"):
            yield from members(each, (*path, name))


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Plan, PLAN), (Plan, ON_GPU), (Profile, PROFILE)],
    ids=["plan", "plan for a GPU", "profile"],
)
def test_nothing_may_be_left_out(kind, text):
    paths = list(members(json.loads(text)))
    assert {("weights",), ("weights", "alpha"), ("machine", "launch_s")} <= set(paths)
    message = "lacks '{}'|has no version|machine must be one of|not a field of Cpu"
    for path in paths:
        data = json.loads(text)
        place = data
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        with pytest.raises(ValueError, match=message.format(path[-1])):
            kind.from_json(json.dumps(data))


def test_a_plan_made_by_hand_says_so():
    by_hand = replace(Plan.from_json(PLAN), identity=ANY)
    again = Plan.from_json(by_hand.to_json())
    assert again == by_hand and json.loads(by_hand.to_json())["identity"] == "any"
    other = matmul(16, 32, 8, activation="silu")
    assert again.apply(other).trace
    with pytest.raises(ValueError, match="for another function"):
        Plan.from_json(PLAN).apply(other)


@pytest.mark.parametrize("text", [PLAN, ON_GPU], ids=["cpu", "gpu"])
def test_an_integer_where_a_number_belongs_is_one(text):
    plan = Plan.from_json(changed(text, "weights.gamma", 2**64))
    assert type(plan.weights.gamma) is float and plan.weights.gamma == 2**64
    assert "what another size would change (" in plan.explain(SMALL["product"][1], verbose=True)
    read_back = read(tuple[float | None, ...], [None, 3, -(2**70)], "it")
    assert read_back == (None, 3.0, -(2.0**70))
    assert [type(each) for each in read_back[1:]] == [float, float]


def test_an_object_with_a_name_twice_is_refused():
    twice = PLAN.replace('"kind": "product"', '"kind": "rows", "kind": "product"')
    assert twice != PLAN
    with pytest.raises(ValueError, match="an object has 'kind' twice"):
        Plan.from_json(twice)


def test_a_search_of_another_space_is_not_that_of_the_function():
    data = json.loads(PLAN)["found"]
    more = changed(PLAN, "found.size", data["size"] + 5)
    bigger = changed(more, "found.evaluated", data["evaluated"] + 5)
    fewer = {name: count for name, count in data["pruned"].items() if count}
    assert fewer != data["pruned"]
    less = changed(PLAN, "found.pruned", fewer)
    for text in (bigger, less, changed(PLAN, "found.pruned.nosuch", 0)):
        plan = Plan.from_json(text)
        for use in (plan.apply, plan.explain):
            with pytest.raises(ValueError, match="of another space; plan again"):
                use(SMALL["product"][1])


@pytest.mark.parametrize("text", [PLAN, ON_GPU], ids=["cpu", "gpu"])
def test_counts_are_those_of_the_constraints(text):
    func, found = SMALL["product"][1], json.loads(text)["found"]
    counts, looked = found["pruned"], found["evaluated"]
    least, most = (pick(counts, key=counts.__getitem__) for pick in (min, max))
    assert counts[least] < counts[most] and looked > 9
    exchanged = changed(text, f"found.pruned.{least}", counts[most])
    exchanged = changed(exchanged, f"found.pruned.{most}", counts[least])
    fewer = changed(text, f"found.pruned.{most}", counts[most] + looked - 9)
    fewer = changed(fewer, "found.evaluated", 9)
    assert Plan.from_json(text).explain(func, verbose=True) and Plan.from_json(text).apply(func)
    for each in (exchanged, fewer):
        plan = Plan.from_json(each)
        for use in (plan.apply, plan.explain):
            with pytest.raises(ValueError, match="not those that the constraints rule out; plan"):
                use(func)


@pytest.mark.parametrize("target", [TARGET, {"kind": "cuda", "arch": "sm_90"}], ids=["cpu", "gpu"])
def test_a_way_to_fuse_that_was_left_out_is_noticed(target):
    func = SMALL["product"][1]

    def without(limit):
        data = json.loads(fuse_epilogue.plan(func, target, limit=limit).to_json())
        ranked = {each["point"]["fusion"] for each in data["found"]["ranked"]}
        del data["found"]["by_fusion"]["none"]
        assert 0 not in ranked
        return Plan.from_json(json.dumps(data))

    whole, part = without(10**6), without(1)
    for use in (whole.apply, whole.explain):
        with pytest.raises(ValueError, match="lacks 'none', one of the ways to fuse; plan ag"):
            use(func)
    # A search in part does not say which ways it came across.
    assert part.explain(func, verbose=True)


def test_a_point_without_a_variable_is_no_point_of_the_function():
    data = json.loads(PLAN)
    points = [each["point"] for each in data["found"]["ranked"]]
    points += [each["point"] for each in data["found"]["by_fusion"].values()]
    name = next(name for name in points[0] if len({each[name] for each in points}) == 1)
    for each in points:
        each.pop(name)
    plan = Plan.from_json(json.dumps(data))
    for use in (plan.apply, plan.explain):
        with pytest.raises(ValueError, match=f"the point has no value for '{name}'"):
            use(SMALL["product"][1])


def test_machines_and_profiles_are_read_the_same_way():
    assert Profile.from_json(PROFILE).to_json() == PROFILE
    with pytest.raises(ValueError, match="not a profile of a machine: .*must be a list of 2"):
        Profile.from_json(changed(PROFILE, "residuals", [["f: a"]]))
    with pytest.raises(
        ValueError, match="not a description of a processor: .*call_s must be from 0"
    ):
        Cpu.from_json(changed(machine().to_json(), "call_s", -1))
    one = gpu({"kind": "cuda", "arch": "sm_90"}).to_json()
    with pytest.raises(
        ValueError, match="not a description of a GPU: .*chip.threads must be from 1"
    ):
        Gpu.from_json(changed(one, "chip.threads", 0))
    for path in ("name", "chip.arch"):
        with pytest.raises(ValueError, match=f"{path} must be printable"):
            Gpu.from_json(changed(one, path, "a\nb"))


_EVEN = Must("even", lambda value: value % 2 == 0)


@dataclass(frozen=True)
class Pair:
    left: Annotated[int, _EVEN]
    right: Positive | None = None


def test_a_reader_follows_the_types():
    assert read(Pair, {"left": 2, "right": None}, "it") == Pair(2)
    assert read(tuple[Pair, ...], [{"left": 2, "right": 1}], "it") == (Pair(2, 1),)
    assert read(tuple[str, float], ["a", 1.5], "it") == ("a", 1.5)
    for data, message in (
        ([{"left": 3, "right": 1}], "it[0].left must be even, not 3"),
        ([{"left": 2}], "it[0] lacks 'right'"),
        ([{"left": 2, "right": 0.0}], "it[0].right must be above 0, not 0.0"),
        ([{"right": 1.0}], "it[0] lacks 'left'"),
        ([{"left": 2, "up": 1}], "it[0] has 'up', which is not a field of Pair"),
        ({}, "it must be a list, not {}"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            read(tuple[Pair, ...], data, "it")
