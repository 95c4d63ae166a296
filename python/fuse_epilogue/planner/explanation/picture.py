"""The candidates of a plan as a picture: a roofline, and what each term of their cost is."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from math import ceil, floor, isfinite, log10
from pathlib import Path

from ..._files import write
from ..json_schema import whole_number
from ..plan_record import PlanRecord
from ..problems.problem import Problem
from ..search.search import Candidate
from .compare import point
from .roofline import Roofline, roofline
from .svg import FONT, LINE, Svg, fitted, length

#: Pixels: the narrowest picture, that with one part under the other below, and the height of a
#: roofline, of a candidate among the bars, and of a bar.
NARROWEST, SIDE_BY_SIDE = 360, 760
_ROOFLINE, _ROW, _BAR = 300, 44, 14
_MARGIN, _AXIS = 16, 44
#: Pixels within which two points are in one place; times a roof that a point is above it.
_SAME, _ABOVE = 8, 1.001
_DASHES = ("", "8 3", "4 3", "2 2", "1 3")
#: Times its cost that a bar shows, and how one that is cut off is marked.
_SHOWN, _BROKEN = 4, 'stroke-width="3"'
#: Of terms, of what is beyond a bound, and of the candidates.
_COLOURS = {"traffic": "#1f6f8b", "latency": "#c9a227", "spill": "#cc4125"}
_BEYOND = "#999999"
_RINGS = ("#2b2b2b", "#8b3a62", "#4f8a4c", "#5b5ea6", "#b5651d", "#6fa8dc", "#777777", "#c9a227")

Named = list[tuple[str, Candidate]]


def draw(plan: PlanRecord, problem: Problem | None, path: str | Path | None, width: int) -> str:
    """Draw a plan; see :meth:`fuse_epilogue.planner.Plan.picture`."""
    if path is not None and not isinstance(path, str | Path):
        raise TypeError(f"path must be a str or a Path, not {type(path).__name__}")
    if path is not None and Path(path).suffix.lower() != ".svg":
        raise ValueError(f"'{path}': a picture is SVG and nothing else, use a name in .svg")
    whole_number("width", width, NARROWEST, "the width of the picture in pixels")
    picture = drawn(plan, problem, width)
    if path is not None:
        write(path, picture)
    return picture


def drawn(plan: PlanRecord, problem: Problem | None, width: int) -> str:
    """Return the picture of a plan, as SVG."""
    named = candidates(plan, problem)
    roofs = None if problem is None else roofline(plan, problem, [each for _, each in named])
    svg = Svg(width)
    sizes = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
    title = f"predicted: {plan.kind} of {plan.dtype}, {sizes}, on {plan.machine}"
    top = _MARGIN + 6.0
    for line in textwrap.wrap(title, int((width - 2 * _MARGIN) / length("x", FONT + 2))):
        svg.text(_MARGIN, top, line, size=FONT + 2)
        top += LINE + 2
    left = 0.0
    part = (width - 3 * _MARGIN) / 2 if width >= SIDE_BY_SIDE else width - 2.0 * _MARGIN
    if roofs is not None:
        left = _roofs(svg, roofs, named, _MARGIN, top, part)
    beside = roofs is not None and width >= SIDE_BY_SIDE
    if roofs is None:
        part = width - 2.0 * _MARGIN
    bottom = _bars(
        svg,
        named,
        2 * _MARGIN + part if beside else _MARGIN,
        top if beside or roofs is None else left + LINE,
        part,
    )
    return svg.document(max(left, bottom) + _MARGIN)


def candidates(plan: PlanRecord, problem: Problem | None) -> Named:
    """Return what is drawn, with its name: the plan, the best of each way to fuse, runners-up."""
    found, best = plan.found, plan.found.best
    own = next((name for name, each in found.by_fusion.items() if each.point == best.point), "")
    named = [(f"chosen{', ' * bool(own)}{own}", best)]
    ways = [(f"{name}, at best", each) for name, each in found.by_fusion.items()]
    others = [(f"runner-up: {point(c, problem, best)}", c) for c in found.runners_up]
    for name, each in (*ways, *others):
        if all(each.point != known.point for _, known in named):
            named.append((name, each))
    return named


# ---- The roofline --------------------------------------------------------------------------------


def _roofs(svg: Svg, roofs: Roofline, named: Named, x: float, y: float, width: float) -> float:
    """Draw the roofline; return where it ends."""
    finite = [each for each in roofs.intensity if isfinite(each)]
    peak = max(roofs.flops.values())
    slowest, fastest = min(roofs.bandwidths.values()), max(roofs.bandwidths.values())
    ridges = [peak / slowest, peak / fastest]
    first, last = min([*finite, *ridges]) / 6, max([*finite, *ridges]) * 4
    lowest = min(*roofs.speed, peak / 10) / 3
    svg.text(x, y + FONT, fitted(f"Gflop/s over flop/byte out of {roofs.level}", width))
    left, top, right, bottom = x + _AXIS, y + 2 * LINE, x + width - 4, y + 2 * LINE + _ROOFLINE
    across = _logarithmic(first, last, left, right)
    up = _logarithmic(lowest, peak * 1.6, bottom, top)
    for tick in _decades(first, last):
        svg.line([(across(tick), top), (across(tick), bottom)], colour="#e4e4e4")
        svg.text(across(tick), bottom + LINE, f"{tick:g}", anchor="middle")
    for tick in _decades(lowest / 1e9, peak * 1.6 / 1e9):
        svg.line([(left, up(tick * 1e9)), (right, up(tick * 1e9))], colour="#e4e4e4")
        svg.text(left - 5, up(tick * 1e9) + 4, f"{tick:g}", anchor="end")
    keys = []
    for (name, rate), dash in zip(roofs.bandwidths.items(), _DASHES, strict=False):
        own = name == roofs.level
        rest = f'stroke-width="{2.4 if own else 1.2}" stroke-dasharray="{dash}"'
        start = max(first, lowest / rate)
        places = [(start, start * rate), (peak / rate, peak)]
        svg.line([(across(a), up(b)) for a, b in places], colour="#444444", rest=rest)
        keys.append((f"{name} {_round(rate / 1e9)} GB/s", "#444444", rest))
    for (name, rate), dash in zip(roofs.flops.items(), reversed(_DASHES), strict=False):
        rest = f'stroke-width="1.6" stroke-dasharray="{dash}"'
        start = max(first, rate / fastest)
        svg.line([(across(start), up(rate)), (right, up(rate))], colour="#8b3a62", rest=rest)
        keys.append((f"{name} {_round(rate / 1e9)} Gflop/s", "#8b3a62", rest))
    svg.line([(left, top), (left, bottom), (right, bottom)], colour="#999999")
    drawn: list[tuple[float, float]] = []
    rows = zip(named, roofs.intensity, roofs.speed, strict=True)
    for place, ((name, _), intensity, speed) in enumerate(rows):
        at = across(intensity) if isfinite(intensity) else right - 24, up(speed)
        caption = f"{name}: {speed / 1e9:.3g} Gflop/s at {intensity:.3g} flop/byte, predicted"
        # Points in one place are rings around one another.
        inside = sum(abs(x - at[0]) + abs(y - at[1]) < _SAME for x, y in drawn)
        svg.ring(*at, 4 + 3 * inside, _ring(place), place == 0, caption)
        drawn.append(at)
    end = bottom + 2 * LINE + 4
    if len(finite) < len(roofs.intensity):
        svg.text(x, end, fitted("at the right end: no byte comes from there", width))
        end += LINE
    rates = [min(peak, roofs.bandwidths[roofs.level] * each) for each in roofs.intensity]
    if any(speed > _ABOVE * rate for speed, rate in zip(roofs.speed, rates, strict=True)):
        caption = "above a roof: by its profile, the machine is faster than its description"
        svg.text(x, end, fitted(caption, width))
        end += LINE
    return _legend(svg, x, end, width, keys)


def _legend(svg: Svg, x: float, y: float, width: float, keys: list[tuple[str, str, str]]) -> float:
    """Write what each kind of line is, as many in a row as fit; return where that ends."""
    at = x
    for name, colour, rest in keys:
        needs = 34 + length(name)
        if at > x and at + needs > x + width:
            at, y = x, y + LINE
        svg.line([(at, y - 4), (at + 24, y - 4)], colour=colour, rest=rest)
        svg.text(at + 28, y, name)
        at += needs + 8
    return y


def _logarithmic(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    per_decade = (end - start) / (log10(high) - log10(low))
    return lambda value: start + per_decade * (log10(value) - log10(low))


def _decades(low: float, high: float) -> Iterator[float]:
    """Return the powers of ten within a range; with twice and five times, if they are few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1, 2, 5) if log10(high / low) < 2 else (1,)
    every = 1 + (len(powers) > 8)
    for power in powers:
        for step in steps:
            if low <= step * 10.0**power <= high and power % every == 0:
                yield step * 10.0**power


def _round(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ring(place: int) -> str:
    return _RINGS[place % len(_RINGS)]


# ---- The bars ------------------------------------------------------------------------------------


def _bars(svg: Svg, named: Named, x: float, y: float, width: float) -> float:
    """Draw what each term is of the cost of each candidate; return where that ends."""
    saves = any(each.parts["parallelism"] for _, each in named)
    caption = "cost: terms add up" + ", parallelism takes some off" * saves
    svg.text(x, y + FONT, fitted(caption, width))
    # Where thousands of threads save nearly all, what is left would not be seen: a bar ends there.
    longest = max(min(_gross(each), _SHOWN * each.cost) for _, each in named)
    scale = (width - 2) / longest
    top = y + 2 * LINE
    for place, (name, each) in enumerate(named):
        at = top + place * _ROW
        cost = f"{1e6 * each.cost:.2f} us"
        if each.parts["parallelism"]:
            saved = -1e6 * each.parts["parallelism"]
            cost = f"{1e6 * _gross(each):.2f} - {saved:.2f} = {cost}"
        svg.ring(x + 6, at + 7, 4, _ring(place), place == 0, name)
        svg.text(x + 16, at + 11, fitted(name, width - length(cost) - 24))
        svg.text(x + width, at + 11, cost, anchor="end")
        left, edge = x, x + width - 2
        for term, size, colour in _added(each):
            caption = f"{name}: {term} {1e6 * size:.2f} us, predicted"
            svg.box(left, at + 16, min(scale * size, edge - left), _BAR, colour, caption)
            left = min(left + scale * size, edge)
        end = x + scale * each.cost
        caption = (
            f"{name}: parallelism takes off {-1e6 * each.parts['parallelism']:.2f} us, predicted"
        )
        svg.box(end, at + 16, max(0.0, left - end), _BAR, "url(#saved)", caption)
        if x + scale * _gross(each) > edge + 1:
            svg.line([(edge - 4, at + 18 + _BAR), (edge, at + 14)], colour="white", rest=_BROKEN)
        svg.line([(end, at + 13), (end, at + 19 + _BAR)], colour="#2b2b2b", rest='stroke-width="2"')
    at, y = x, top + len(named) * _ROW + LINE
    kinds = {term: colour for _, each in named for term, _, colour in _added(each)}
    if saves:
        kinds["taken off by parallelism"] = "url(#saved)"
    for term, colour in kinds.items():
        needs = 18 + length(term)
        if at > x and at + needs > x + width:
            at, y = x, y + LINE
        svg.box(at, y - 9, 12, 10, colour)
        svg.text(at + 16, y, term)
        at += needs + 8
    return y


def _gross(each: Candidate) -> float:
    return sum(size for _, size, _ in _added(each))


def _added(each: Candidate) -> list[tuple[str, float, str]]:
    """Return name, seconds and colour of what adds up, before parallelism takes some off."""
    parts = [(name, each.parts[name], c) for name, c in _COLOURS.items() if each.parts[name] > 0]
    rest = each.cost - sum(each.parts.values())
    if rest > 1e-9 * each.cost:
        parts.append(("beyond the terms", rest, _BEYOND))
    return parts
