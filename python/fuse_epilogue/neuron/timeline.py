"""A predicted timeline: as a trace file, and as a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .prediction import Prediction

WIDTH, ROW, BAR = 1000, 26, 18  # of the whole axis, of a queue, of a box, in pixels
LEFT, TOP, BOTTOM = 80, 46, 68
LEGEND = 5  # kinds of instructions in a row of the legend
# One for each instruction that there is.
COLOURS = (
    *("#1f6f8b", "#c9a227", "#8b3a62", "#4f8a4c", "#5b5ea6"),
    *("#b5651d", "#777777", "#2b2b2b", "#6fa8dc", "#cc4125"),
)


@dataclass(frozen=True)
class Unit:
    """The unit in which the times of a kernel are shown, and its digits: 0.1 us each."""

    name: str
    per_ms: float
    places: int

    @staticmethod
    def of(latency_ms: float) -> Unit:
        """Return microseconds for a kernel of less than a millisecond, milliseconds otherwise.

        >>> unit = Unit.of(0.0169)
        >>> unit.text(0.0169), unit.name
        ('16.9', 'us')
        """
        return Unit("us", 1e3, 1) if latency_ms < 1 else Unit("ms", 1.0, 4)

    def text(self, ms: float) -> str:
        """Return a time in this unit."""
        return f"{ms * self.per_ms:.{self.places}f}"


def write_trace(prediction: Prediction, path: str | Path) -> None:
    """Write the trace event format: one track for each engine and DMA queue, in microseconds."""
    label = f"predicted {prediction.kernel} on {prediction.machine.name}"
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": label}}
    ]
    for track, name in enumerate(prediction.queues):
        meta = {"ph": "M", "pid": 1, "tid": track}
        events.append({**meta, "name": "thread_name", "args": {"name": name}})
        events.append({**meta, "name": "thread_sort_index", "args": {"sort_index": track}})
    rows = zip(prediction.steps, prediction.queue, prediction.start, prediction.end, strict=True)
    for step, track, start, end in rows:
        events.append(
            {
                "ph": "X",
                "name": step.op,
                "pid": 1,
                "tid": track,
                "ts": round(start * 1e6, 4),
                "dur": round((end - start) * 1e6, 4),
                "args": {"line": step.line, "index": step.index},
            }
        )
    document = {"displayTimeUnit": "ns", "traceEvents": events}
    Path(path).write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


def plot(prediction: Prediction, path: str | Path) -> None:
    """Draw a row for each engine and DMA queue that does anything, as SVG.

    Instructions of a kind at a distance of less than half a pixel become one box.

    - Raises ValueError: the path does not end in ".svg".
    """
    if Path(path).suffix.lower() != ".svg":
        raise ValueError(f"'{path}': plot draws SVG and nothing else, use a name that ends in .svg")
    used = sorted(set(prediction.queue))
    ops = sorted(prediction.counts)
    colour = {op: COLOURS[i % len(COLOURS)] for i, op in enumerate(ops)}
    height = TOP + ROW * len(used) + BOTTOM
    unit = Unit.of(prediction.latency_ms)
    title = (
        f"predicted: {prediction.kernel} on {prediction.machine.name},"
        f" {unit.text(prediction.latency_ms)} {unit.name}"
    )
    size = f'width="{LEFT + WIDTH + 30}" height="{height}"'
    font = 'font-family="sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    axis = TOP + ROW * len(used) + 4
    for tick in range(6):
        x = LEFT + WIDTH * tick / 5
        at = prediction.latency_ms * tick / 5
        parts.append(f'<line x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{axis}" stroke="#cccccc"/>')
        label = f"{unit.text(at)} {unit.name}"
        parts.append(f'<text x="{x}" y="{axis + 12}" text-anchor="middle">{label}</text>')
    for place, queue in enumerate(used):
        y = TOP + ROW * place
        parts.append(f'<text x="6" y="{y + 13}">{escape(prediction.queues[queue])}</text>')
        for op, x, width in _boxes(prediction, queue):
            parts.append(
                f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{BAR}"'
                f' fill="{colour[op]}"><title>{escape(op)}</title></rect>'
            )
    for place, op in enumerate(ops):
        x, y = LEFT + place % LEGEND * 200, axis + 22 + place // LEGEND * 16
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour[op]}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 9}">{escape(op)}</text>')
    parts.append("</svg>\n")
    Path(path).write_text("\n".join(parts), encoding="utf-8")


def _boxes(prediction: Prediction, queue: int) -> list[tuple[str, float, float]]:
    """Return (instruction, left edge, width) in pixels of what a queue does, neighbours joined."""
    scale = WIDTH / max(prediction.latency_ms * 1e-3, 1e-12)
    boxes: list[tuple[str, float, float]] = []
    rows = zip(prediction.steps, prediction.queue, prediction.start, prediction.end, strict=True)
    for step, own, start, end in rows:
        if own != queue:
            continue
        left, right = LEFT + start * scale, LEFT + end * scale
        if boxes:
            op, x, width = boxes[-1]
            small = right - left < 0.5 or op == step.op
            if small and left - (x + width) < 0.5:
                boxes[-1] = (op, x, right - x)
                continue
        boxes.append((step.op, left, right - left))
    return boxes
