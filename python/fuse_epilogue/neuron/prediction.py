"""The prediction of the latency model for a kernel."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from . import timeline
from .machine import Machine
from .timeline import Unit
from .trace import Step, Trace

#: A resource that is busy for at least this part of the time bounds the kernel.
BOUND = 0.8


@dataclass(frozen=True, repr=False)
class Prediction:
    """The predicted time of a kernel, and where it goes.

    Attributes
    ----------
    trace : Trace
        The instructions of the kernel.
    machine : Machine
        Where it would run.
    latency_ms : float
        From the first instruction's start to the last one's end, in milliseconds.
    busy_ms : Mapping[str, float]
        How long each engine and each DMA queue has something to do.
    dma_busy_ms : float
        How long the DMA engines would take for all transfers, one after the other.
    counts : Mapping[str, int]
        Instructions of each kind.
    hbm_read, hbm_written : int
        Bytes.
    sbuf_peak, psum_peak : int
        The most bytes of a partition that are needed at once if nothing overlaps; with overlap it
        is more, up to what there is.
    queues : Sequence[str]
        Names of the engines and DMA queues.
    queue, start, end : Sequence
        For each instruction its place in `queues`, and its first and last moment in seconds.
    """

    trace: Trace = field(repr=False)
    machine: Machine
    latency_ms: float
    busy_ms: Mapping[str, float]
    dma_busy_ms: float
    counts: Mapping[str, int]
    hbm_read: int
    hbm_written: int
    sbuf_peak: int
    psum_peak: int
    queues: Sequence[str] = field(repr=False)
    queue: Sequence[int] = field(repr=False)
    start: Sequence[float] = field(repr=False)
    end: Sequence[float] = field(repr=False)

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self.trace.name

    @property
    def steps(self) -> Sequence[Step]:
        """The instructions."""
        return self.trace.steps

    @cached_property
    def range_ms(self) -> tuple[float, float]:
        """The least and the most that the kernel takes, in milliseconds; around `latency_ms`.

        Its ends are what the documents of the machine leave open: how long short transfers take,
        how near the theoretical bandwidth long ones come, and how well engines overlap. See
        :func:`fuse_epilogue.neuron.model.bounds`.
        """
        from .model import bounds

        least, most = bounds(self.trace, self.machine)
        return min(least, self.latency_ms), max(most, self.latency_ms)

    @property
    def utilisation(self) -> dict[str, float]:
        """The part of the time that each engine, and the DMA engines together, are busy."""
        busy = {name: ms for name, ms in self.busy_ms.items() if not name.startswith("dma")}
        busy["dma"] = self.dma_busy_ms
        return {name: ms / self.latency_ms if ms else 0.0 for name, ms in busy.items()}

    @property
    def op_ms(self) -> dict[str, float]:
        """Milliseconds that the instructions of each kind take together."""
        total = dict.fromkeys(self.counts, 0.0)
        for step, start, end in zip(self.steps, self.start, self.end, strict=True):
            total[step.op] += (end - start) * 1e3
        return total

    @property
    def bound_by(self) -> str:
        """The busiest of `utilisation`, or ``"latency"`` if even that one mostly waits."""
        name, part = max(self.utilisation.items(), key=lambda item: item[1])
        return name if part >= BOUND else "latency"

    def __str__(self) -> str:
        """Return a table."""
        unit = Unit.of(self.latency_ms)
        lines = [
            f"predicted {unit.text(self.latency_ms)} {unit.name} for {self.kernel} on"
            f" {self.machine.name} ({self.machine.core}), bound by {self.bound_by}",
            "  {} to {} {} by what the documents leave open".format(
                *map(unit.text, self.range_ms), unit.name
            ),
            f"  {'':8} {f'busy {unit.name}':>9} {'busy':>6}",
        ]
        for name, part in self.utilisation.items():
            lines.append(f"  {name:8} {unit.text(part * self.latency_ms):>9} {part:6.1%}")
        counts = ", ".join(f"{count} {op}" for op, count in self.counts.items())
        lines.append(f"  instructions: {counts}")
        lines.append(f"  HBM: {self.hbm_read:,} bytes read, {self.hbm_written:,} written")
        lines.append(
            f"  peak of a partition: SBUF {self.sbuf_peak:,} of {self.machine.sbuf_bytes:,} bytes,"
            f" PSUM {self.psum_peak:,} of {self.machine.psum_bytes:,}"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the first line of the table."""
        return f"<Prediction: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        """Return how busy each engine is as a table, for notebooks."""
        unit = Unit.of(self.latency_ms)
        busy = {name: part * self.latency_ms for name, part in self.utilisation.items()}
        rows = "".join(
            f"<tr><td>{name}</td><td>{unit.text(ms)}</td><td>{self.utilisation[name]:.1%}</td></tr>"
            for name, ms in busy.items()
        )
        head = f"<tr><th>engine</th><th>busy, {unit.name}</th><th>busy</th></tr>"
        caption = html.escape(str(self).splitlines()[0])
        return f"<table><caption>{caption}</caption>{head}{rows}</table>"

    def write_trace(self, path: str | Path) -> None:
        """Write the timeline as a file for Perfetto and ``chrome://tracing``.

        Parameters
        ----------
        path : str or Path
            Path of the JSON file.
        """
        timeline.write_trace(self, path)

    def plot(self, path: str | Path) -> None:
        """Draw the timeline.

        Parameters
        ----------
        path : str or Path
            Path of the SVG file, ends in ".svg".

        Raises
        ------
        ValueError
            Another ending: no other format can be drawn.
        """
        timeline.plot(self, path)
