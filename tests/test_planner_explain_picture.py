"""The picture of a plan: its lengths are the costs, its points the roofline, its texts legible."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue.planner import Plan, Profile
from fuse_epilogue.planner.explanation.picture import candidates
from fuse_epilogue.planner.explanation.roofline import roofline
from fuse_epilogue.planner.explanation.svg import fitted
from fuse_epilogue.planner.problems.cost import Weights
from fuse_epilogue.workloads import depthwise_conv1d, matmul, row_reduce
from planner_problems import machine

TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
ONE = {**TARGET, "num-cores": 1}
SVG = "{http://www.w3.org/2000/svg}"
FUNCS = {
    "product": matmul(512, 512, 8, activation="relu"),
    "rows": row_reduce(64, 4096, bias=True, activation="relu"),
    "conv, in the first cache": depthwise_conv1d(2, 3, 64, 3, activation="relu"),
}


@cache
def planned(name):
    profile = Profile(machine(), Weights())
    return fuse_epilogue.plan(FUNCS[name], TARGET, profile=profile)


def drawn(plan, tmp_path, **given):
    plan.picture(tmp_path / "plan.svg", **given)
    return ElementTree.fromstring((tmp_path / "plan.svg").read_text())


@pytest.mark.parametrize("width", [360, 420, 759, 760, 1000, 1600])
@pytest.mark.parametrize("name", FUNCS)
def test_no_text_is_on_another_one_or_outside(name, width, tmp_path):
    svg = drawn(planned(name), tmp_path, width=width)
    height = float(svg.get("height"))
    assert float(svg.get("width")) == width
    boxes = []
    for text in svg.iter(f"{SVG}text"):
        size = float(text.get("font-size"))
        # Wider than DejaVu Sans, one of the widest, is on average.
        long = 0.58 * size * len(text.text)
        x = (
            float(text.get("x"))
            - {"start": 0, "middle": long / 2, "end": long}[text.get("text-anchor")]
        )
        y = float(text.get("y"))
        boxes.append((x, x + long, y - 0.8 * size, y + 0.2 * size, text.text))
    for left, right, top, bottom, _ in boxes:
        assert left >= 0 and right <= width and top >= 0 and bottom <= height
    for one, other in combinations(boxes, 2):
        apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
        assert apart, (one[4], other[4])
    texts = [text for *_, text in boxes]
    assert texts[0].startswith("predicted: ")
    assert any("flop/byte" in text for text in texts)


@pytest.mark.parametrize("name", FUNCS)
def test_bars_are_as_long_as_the_terms(name, tmp_path):
    plan = planned(name)
    svg = drawn(plan, tmp_path)
    named = dict(candidates(plan, plan.known))
    bars = {}
    for box in svg.iter(f"{SVG}rect"):
        title = box.find(f"{SVG}title")
        if title is not None and title.text:
            what, _, message = title.text.rpartition(": ")
            bars.setdefault(what, []).append((float(box.get("width")), message))
    assert set(bars) == set(named)
    scales = []
    for what, each in named.items():
        *terms, (saved, message) = bars[what]
        assert "parallelism takes off" in message
        scales.append((sum(width for width, _ in terms) - saved) / each.cost)
        for width, message in terms:
            term = message.split()[0]
            assert width == pytest.approx(scales[0] * each.parts[term], abs=0.2)
        assert saved == pytest.approx(-scales[0] * each.parts["parallelism"], abs=0.2)
    np.testing.assert_allclose(scales, scales[0], rtol=0.01)


def test_bars_of_which_nearly_all_is_saved_are_cut_off(tmp_path):
    plan = planned("rows")
    cut, whole = ({**plan.found.best.parts}, {**plan.found.best.parts})
    cut["latency"] += 50 * plan.cost
    cut["parallelism"] -= 50 * plan.cost
    for parts, broken in ((cut, 1), (whole, 0)):
        best = replace(plan.found.best, parts=parts)
        alone = replace(plan, found=replace(plan.found, ranked=(best,), by_fusion={}), known=None)
        svg = drawn(alone, tmp_path)
        ends = [
            float(b.get("x")) + float(b.get("width"))
            for b in svg.iter(f"{SVG}rect")
            if b.get("x") and b.find(f"{SVG}title") is not None
        ]
        assert max(ends) <= 1000
        marks = [line for line in svg.iter(f"{SVG}polyline") if line.get("stroke") == "white"]
        assert len(marks) == broken
        assert f"= {1e6 * plan.cost:.2f} us" in _texts(svg)


def test_all_that_is_compared_is_drawn_once():
    plan = planned("product")
    named = candidates(plan, plan.known)
    points = [tuple(each.point.items()) for _, each in named]
    assert len(set(points)) == len(points)
    wanted = [*plan.found.ranked, *plan.found.by_fusion.values()]
    assert set(points) == {tuple(each.point.items()) for each in wanted}
    assert named[0][1] == plan.found.best and named[0][0].startswith("chosen, ")


# ---- The roofline --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCS)
def test_no_point_is_above_a_roof(name):
    plan = planned(name)
    every = [each for _, each in candidates(plan, plan.known)]
    found = roofline(plan, plan.known, every)
    for intensity, speed, each in zip(found.intensity, found.speed, every, strict=True):
        assert speed <= max(found.flops.values())
        assert speed <= 1.001 * intensity * found.bandwidths[found.level]
        assert speed * each.cost == pytest.approx(found.speed[0] * every[0].cost)


def test_operations_and_bytes_are_those_of_the_function():
    # Larger than all caches: x comes out of memory once.
    m, n = 64, 1 << 20
    func = row_reduce(m, n, bias=True, activation="relu")
    plan = fuse_epilogue.plan(func, TARGET, profile=Profile(machine(), Weights()))
    found = roofline(plan, plan.known, [plan.found.best])
    assert found.level == "memory"
    assert found.speed[0] * plan.cost == pytest.approx(m * n, rel=1e-3)
    assert m * n / found.intensity[0] == pytest.approx(4 * m * n, rel=0.01)


def test_what_fits_into_the_first_cache_moves_nothing(tmp_path):
    plan = planned("conv, in the first cache")
    found = roofline(plan, plan.known, [plan.found.best])
    assert found.intensity == (np.inf,)
    assert "no byte comes from there" in _texts(drawn(plan, tmp_path))
    assert "no byte comes from there" not in _texts(drawn(planned("product"), tmp_path))


def test_points_above_a_roof_have_their_reason(tmp_path):
    faster = Profile(machine(), Weights(beta=0.5))
    plan = fuse_epilogue.plan(matmul(64, 64, 256), ONE, profile=faster)
    assert "above a roof: by its profile" in _texts(drawn(plan, tmp_path))
    assert "above a roof" not in _texts(drawn(planned("product"), tmp_path))


def test_parallelism_is_told_of_where_it_saves_something(tmp_path):
    saves = planned("product")
    assert saves.found.best.parts["parallelism"] < 0
    for plan, taken_off in ((saves, True), (fuse_epilogue.plan(FUNCS["rows"], ONE), False)):
        texts = _texts(drawn(plan, tmp_path))
        assert ("parallelism takes some off" in texts) == ("taken off by" in texts) == taken_off


def _texts(svg):
    return " ".join(text.text for text in svg.iter(f"{SVG}text"))


def test_points_of_the_roofline_are_where_they_belong(tmp_path):
    plan = planned("product")
    svg = drawn(plan, tmp_path)
    named = candidates(plan, plan.known)
    found = roofline(plan, plan.known, [each for _, each in named])
    rings = [ring for ring in svg.iter(f"{SVG}circle") if "flop/byte" in ring[0].text]
    assert [ring[0].text.partition(":")[0] for ring in rings] == [
        name.partition(":")[0] for name, _ in named
    ]
    x, y = (np.array([float(ring.get(key)) for ring in rings]) for key in ("cx", "cy"))
    # Straight lines on logarithmic axes, to the right and upwards.
    for pixels, values in ((x, found.intensity), (-y, found.speed)):
        slope, offset = np.polyfit(np.log(values), pixels, 1)
        assert slope > 0
        np.testing.assert_allclose(pixels, slope * np.log(values) + offset, atol=0.2)
    # Those in one place are rings around one another.
    places = {}
    for at_x, at_y, ring in zip(x.round(), y.round(), rings, strict=True):
        places.setdefault((at_x, at_y), []).append(ring.get("r"))
    assert all(len(set(radii)) == len(radii) for radii in places.values())


def test_trainium_has_a_roofline_too(tmp_path):
    plan = fuse_epilogue.plan(depthwise_conv1d(1, 128, 64, 3, activation="relu"), "trn1")
    found = roofline(plan, plan.known, [plan.found.best])
    assert set(found.flops) == {"vector", "tensor"} and found.level == "HBM"
    assert found.speed[0] < found.intensity[0] * found.bandwidths["HBM"]
    text = _texts(drawn(plan, tmp_path))
    assert "flop/byte out of HBM" in text and "beyond the terms" in text


# ---- What can be left out, and mistakes ----------------------------------------------------------


def test_without_the_function_there_are_only_bars(tmp_path):
    plan = planned("rows")
    again = Plan.from_json(plan.to_json())
    assert "flop/byte" not in _texts(drawn(again, tmp_path))
    assert "flop/byte" in _texts(drawn(again, tmp_path, func=FUNCS["rows"]))


def test_the_same_plan_gives_the_same_file(tmp_path):
    plan = planned("rows")
    for name in "ab":
        plan.picture(tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("name", "width", "error", "message"),
    [
        ("plan.png", 1000, ValueError, "use a name in .svg"),
        ("plan.svg", 100, ValueError, "width must be 360 or above, not 100"),
        ("plan.svg", 400.5, TypeError, "width must be an integer, not float"),
        ("plan.svg", "1000", TypeError, "width must be an integer, not str"),
        ("none/plan.svg", 1000, OSError, "there is no folder"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(name, width, error, message, tmp_path):
    with pytest.raises(error, match=message):
        planned("rows").picture(tmp_path / name, width=width)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [3, b"plan.svg"])
def test_what_is_no_path_is_named(path):
    with pytest.raises(TypeError, match="path must be a str or a Path, not"):
        planned("rows").picture(path)


def test_a_long_text_is_cut():
    assert fitted("runner-up: rows 4", 1000) == "runner-up: rows 4"
    assert fitted("runner-up: rows 4", 60).endswith("…") and len(fitted("x" * 99, 60)) < 10
