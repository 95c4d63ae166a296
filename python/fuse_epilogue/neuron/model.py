"""The latency model: when each instruction of a kernel would start and end.

This is a model: nothing was measured on Trainium, and its results are predictions. Its assumptions:

- The engines and the DMA queues work in parallel, each in the order of the program. There are two
  queues, one for transfers out of SBUF and one for all others.
- An instruction waits for those before it that touch the same elements (`dependences`). If one of
  them ran on another engine, it starts `Machine.semaphore_cycles` after its end. After one of its
  own engine it starts at once: the documentation speaks of about 100 cycles there too, but the
  published profile of such pairs (`costs`) has no room for them.
- The descriptors of a transfer are made when what it waits for is done, those of a queue one after
  the other (`Machine.dma_issue_us`); it starts `Machine.dma_start_us` later, or when its turn
  comes. All transfers share the bandwidth, the first in the program takes first
  (`resources.Bandwidth`).
- Every ``nl.ndarray`` in SBUF and PSUM is a tile of its own. As many are in flight as there is
  space (`resources.Space`).
- Two engines that cannot be in a memory at once take turns (`Machine.exclusive`); the one that is
  first in the program takes first.
- Launching the kernel takes no time.

What the documents leave open gives a range around the prediction: :func:`bounds`.
"""

from __future__ import annotations

from collections import Counter

from .costs import Transfer, cycles, transfer
from .dependences import Dependences, written_once
from .machine import Machine, machine
from .prediction import Prediction
from .resources import Bandwidth, Port, Space
from .trace import Access, Step, Trace

ENGINES = ("tensor", "vector", "scalar", "gpsimd")
#: The queues: engines, and those of the DMA engines.
QUEUES = (*ENGINES, "dma in", "dma out")
DMA_IN, DMA_OUT = len(ENGINES), len(ENGINES) + 1
#: Published kernels take up to this many times what their busiest engine, or DMA, has to do.
OVERLAP = 1.4


def predict(trace: Trace, target: str | Machine = "trn1") -> Prediction:
    """Predict how long a kernel takes.

    - `trace`: a walk over it, executed or not.
    - `target`: ``"trn1"``, ``"trn2"`` or ``"trn3"``.
    - Returns: its ``str()`` is a table.
    - Raises ValueError: if the machine or the cost of an instruction is not known.
    """
    return _Schedule(trace, machine(target)).run()


def bounds(trace: Trace, target: Machine) -> tuple[float, float]:
    """Return the least and the most that a kernel takes, as far as the documents leave it open.

    The least is the prediction for `Machine.quickest`, the most that for `Machine.slowest`. As
    engines overlap less well than the model has it, the most is at least `OVERLAP` times what the
    busiest one has to do there.

    - `trace`: a walk over the kernel, executed or not.
    - `target`: where it runs.
    - Returns: milliseconds.
    """
    least = _Schedule(trace, target.quickest()).run().latency_ms
    slow = _Schedule(trace, target.slowest()).run()
    busy = [slow.busy_ms[name] for name in ENGINES] + [slow.dma_busy_ms]
    return least, max(slow.latency_ms, OVERLAP * max(busy))


class _Schedule:
    def __init__(self, trace: Trace, target: Machine) -> None:
        self.trace = trace
        self.machine = target
        self.free = [0.0] * len(QUEUES)
        self.described = [0.0] * len(QUEUES)
        self.queue = [0] * len(trace.steps)
        self.start = [0.0] * len(trace.steps)
        self.end = [0.0] * len(trace.steps)
        self.busy = [0.0] * len(QUEUES)
        self.dependences = Dependences(written_once(trace.steps))
        self.bandwidth = Bandwidth()
        self.spaces = {
            "sbuf": Space(target.sbuf_bytes, 1),
            "psum": Space(target.psum_bytes, target.psum_bank_bytes),
        }
        used = {step.engine for step in trace.steps}
        self.ports = [
            (space, Port(one, other))
            for one, other, space in target.exclusive
            if {one, other} <= used
        ]
        self.semaphore = [
            target.semaphore_cycles / (target.clock_ghz[engine] * 1e9) for engine in ENGINES
        ]
        self.seconds: dict[tuple[object, ...], float] = {}
        self.transfers: dict[tuple[object, ...], Transfer] = {}
        self.dma_busy = 0.0
        self.read = self.written = 0

    def run(self) -> Prediction:
        steps = self.trace.steps
        touched = [operands(step) for step in steps]
        last = {access.buffer.id: i for i, each in enumerate(touched) for access in each}
        there_since: dict[int, float] = {}
        done: dict[int, float] = {}
        for i, step in enumerate(steps):
            buffers = [access.buffer for access in touched[i]]
            for buffer in buffers:
                if buffer.space in self.spaces and buffer.id not in there_since:
                    space = self.spaces[buffer.space]
                    there_since[buffer.id] = space.allocate(buffer.partition_bytes)
            since = max((there_since.get(buffer.id, 0.0) for buffer in buffers), default=0.0)
            self._place(i, step, since)
            for buffer in buffers:
                done[buffer.id] = max(done.get(buffer.id, 0.0), self.end[i])
                if last[buffer.id] == i:
                    last[buffer.id] = -1  # an operand may name it twice
                    self.dependences.forget(buffer.id)
                    when = done.pop(buffer.id)
                    if buffer.space in self.spaces:
                        self.spaces[buffer.space].release(buffer.partition_bytes, when)
        return Prediction(
            trace=self.trace,
            machine=self.machine,
            latency_ms=max(self.end, default=0.0) * 1e3,
            busy_ms={name: self.busy[q] * 1e3 for q, name in enumerate(QUEUES)},
            dma_busy_ms=self.dma_busy * 1e3,
            counts=dict(sorted(Counter(step.op for step in steps).items())),
            hbm_read=self.read,
            hbm_written=self.written,
            sbuf_peak=self.spaces["sbuf"].peak,
            psum_peak=self.spaces["psum"].peak,
            queues=QUEUES,
            queue=self.queue,
            start=self.start,
            end=self.end,
        )

    def _place(self, index: int, step: Step, since: float) -> None:
        """Give an instruction its time."""
        queue = ENGINES.index(step.engine) if step.engine in ENGINES else _dma_queue(step)
        self.queue[index] = queue
        found: set[int] = set()
        for access in step.srcs:
            self.dependences.of_read(access, found)
        for access in step.written:
            self.dependences.of_write(access, found)
        found.discard(-1)
        if queue < DMA_IN:
            self._compute(index, step, queue, since, found)
        else:
            self._transfer(index, step, queue, since, found)
        for access in step.srcs:
            self.dependences.read(access, queue, index)
        for access in step.written:
            self.dependences.wrote(access, index)

    def _compute(self, index: int, step: Step, queue: int, since: float, found: set[int]) -> None:
        start, semaphore = self.free[queue], self.semaphore[queue]
        if since:
            start = max(start, since + semaphore)
        for other in found:
            if self.queue[other] != queue:
                start = max(start, self.end[other] + semaphore)
        seconds = self._seconds(step)
        ports = [
            port
            for space, port in self.ports
            if step.engine in port.rival and any(a.buffer.space == space for a in operands(step))
        ]
        waited = -1.0
        while waited != start:
            waited = start
            for port in ports:
                start = port.first(step.engine, start, seconds)
        self.start[index] = start
        self.end[index] = self.free[queue] = start + seconds
        self.busy[queue] += seconds
        for port in ports:
            port.take(step.engine, start, start + seconds)

    def _transfer(self, index: int, step: Step, queue: int, since: float, found: set[int]) -> None:
        key = shape_of(step)
        cost = self.transfers.get(key)
        if cost is None:
            cost = self.transfers[key] = transfer(step, self.machine)
        released = max([since, *(self.end[other] for other in found)])
        described = max(released, self.described[queue]) + self.machine.dma_issue_us * 1e-6
        ready = max(described + self.machine.dma_start_us * 1e-6, self.free[queue])
        start, end = self.bandwidth.take(ready, cost.seconds, cost.share)
        self.start[index], self.end[index] = start, end
        self.described[queue], self.free[queue] = described, end
        self.busy[queue] += end - start
        self.dma_busy += cost.seconds
        self.read += cost.hbm_read
        self.written += cost.hbm_written

    def _seconds(self, step: Step) -> float:
        key = shape_of(step)
        seconds = self.seconds.get(key)
        if seconds is None:
            clock = self.machine.clock_ghz[step.engine] * 1e9
            seconds = self.seconds[key] = cycles(step, self.machine) / clock
        return seconds


def operands(step: Step) -> tuple[Access, ...]:
    """Return all that an instruction touches."""
    return step.touched


def shape_of(step: Step) -> tuple[object, ...]:
    """Return what the cost of an instruction depends on."""
    return (
        step.op,
        step.engine,
        *((a.buffer.space, a.dtype, a.partitions, a.pattern) for a in operands(step)),
    )


def _dma_queue(step: Step) -> int:
    if step.dst is not None and step.dst.buffer.space == "hbm":
        return DMA_OUT if any(a.buffer.space != "hbm" for a in step.srcs) else DMA_IN
    return DMA_IN
