"""Draw the picture of the README: the loops and the memory of a function, before and after fusing.

    python examples/overview.py        writes docs/_static/overview.svg

Loops, statements and sizes are those of TIR as it is before and after the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm.tirx import PrimFunc

import checking
import fuse_epilogue  # noqa: F401 - where TVM does not load it by itself
from fuse_epilogue import workloads
from fuse_epilogue.planner.explanation.svg import LINE, Svg, length

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "_static" / "overview.svg"

MARGIN, INDENT, GAP, MEMORY = 16, 14, 22, 26
LOOP, STORED, LINK = "#dfeaf0", "#f1dfe7", "#8b3a62"
SHORTER = {r"\b[iv]_": "", r"T\.float32\(0\.0\)": "0", r"with T\.init\(\)": "init", r"T\.": ""}


@dataclass(frozen=True)
class Nest:
    """A loop nest: its loops and statements, each with its depth."""

    lines: tuple[tuple[int, str], ...]

    def reads(self, buffer: str) -> bool:
        """Whether a statement takes a value from a buffer."""
        return any(re.search(rf"= .*\b{buffer}\[", text) for _, text in self.lines)


def nests(func: PrimFunc) -> Iterator[Nest]:
    """Yield the loop nests of a function, from its script: loops, inits and stores."""
    lines: list[tuple[int, str]] = []
    depths: list[int] = []  # where the loops and inits around a line are in the script
    for line in func.script().split("\n"):
        depth, text = len(line) - len(line.lstrip()), line.strip()
        while depths and depths[-1] >= depth:
            depths.pop()
        loop = re.fullmatch(r"for (.*) in (?:T\.grid|range)\((.*)\):", text)
        opens = loop or text == "with T.init():"
        if not opens and not re.match(r"\w+\[.*\] = ", text):
            continue
        if not depths and lines:
            yield Nest(tuple(lines))
            lines = []
        lines.append((len(depths), _short(_loops(loop) if loop else text)))
        if opens:
            depths.append(depth)
    yield Nest(tuple(lines))


def _short(text: str) -> str:
    """Return a line without what a reader can do without: prefixes of names, types of literals."""
    for long, short in SHORTER.items():
        text = re.sub(long, short, text)
    return text


def _loops(loop: re.Match[str]) -> str:
    pairs = zip(loop[1].split(", "), loop[2].split(", "), strict=True)
    return "for " + ", ".join(f"{name} < {extent}" for name, extent in pairs)


def draw() -> str:
    """Return the picture as SVG."""
    sch = tvm.s_tir.Schedule(workloads.matmul(1024, 512, 16, activation="relu"))
    before = sch.mod["main"]
    sch.fuse_reduction_epilogue("matmul")
    functions = {"before": before, 'after sch.fuse_reduction_epilogue("matmul")': sch.mod["main"]}
    widths = [_width(func) for func in functions.values()]
    svg = Svg(sum(widths) + 3 * MARGIN)
    left, bottom = float(MARGIN), 0.0
    for (title, func), width in zip(functions.items(), widths, strict=True):
        bottom = max(bottom, _panel(svg, title, func, left, width))
        left += width + MARGIN
    return svg.document(bottom + MARGIN)


def _width(func: PrimFunc) -> float:
    lines = [line for nest in nests(func) for line in nest.lines]
    return max(depth * INDENT + length(text) for depth, text in lines) + MARGIN


def _panel(svg: Svg, title: str, func: PrimFunc, left: float, width: float) -> float:
    """Draw a function; returns where it ends."""
    svg.text(left, MARGIN + LINE, title, size=13)
    size = checking.intermediate_bytes(func)
    svg.text(left, MARGIN + 2 * LINE + 2, f"intermediate results take {_bytes(size)}")
    y = MARGIN + 3.0 * LINE
    waiting = list(nests(func))
    stored = {str(b.name): checking.buffer_bytes(b) for b in func.body.block.alloc_buffers}
    for place, nest in enumerate(waiting):
        y = _nest(svg, nest, left, y, width)
        for name, held in stored.items():
            if any(later.reads(name) for later in waiting[place + 1 : place + 2]):
                y = _through_memory(svg, f"{name}: {_bytes(held)}", left, y, width)
    return y


def _nest(svg: Svg, nest: Nest, left: float, top: float, width: float) -> float:
    height = (len(nest.lines) + 0.6) * LINE
    svg.box(left, top, width, height, LOOP)
    for number, (depth, text) in enumerate(nest.lines, start=1):
        svg.text(left + MARGIN / 2 + depth * INDENT, top + number * LINE, text)
    return top + height


def _through_memory(svg: Svg, text: str, left: float, top: float, width: float) -> float:
    middle = left + width / 2
    for start, verb in ((top, "written"), (top + GAP + MEMORY, "read again")):
        svg.line([(middle, start), (middle, start + GAP)], colour=LINK, rest='stroke-width="1.5"')
        tip = [(middle - 4, start + GAP - 6), (middle, start + GAP), (middle + 4, start + GAP - 6)]
        svg.line(tip, colour=LINK, rest='stroke-width="1.5"')
        svg.text(middle + 8, start + GAP - 7, verb)
    svg.box(left + width / 6, top + GAP, width * 2 / 3, MEMORY, STORED)
    svg.text(middle, top + GAP + MEMORY / 2 + 4, f"{text} of memory", anchor="middle")
    return top + 2 * GAP + MEMORY


def _bytes(count: int) -> str:
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count} bytes"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE.relative_to(PICTURE.parents[2]))
