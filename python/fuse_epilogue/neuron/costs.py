"""The cost of an instruction on its engine: a table, and the function that reads it.

A row says how many cycles each free element takes. An instruction then occupies its engine for
``max(machine.min_cycles, row * elements + machine.access_cycles)`` cycles: the documented smallest
interval between two instructions, or reaching the memories and streaming the elements. That this is
a maximum and not a sum agrees with the only published profile of short vector instructions
(Autocomp, UC Berkeley SLICE lab, November 2025; trn1): 65.6 cycles at 3 elements and 70.4 at 12,
where the formula gives 64 and 72, and 437 or so at 384, where it gives 444. It was not fitted to
them: 64 and 60 are the documentation's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .isa import INSTRUCTIONS
from .machine import Machine
from .trace import ITEMSIZE, Access, Step

COSTS = "AWS Neuron documentation, SDK 2.26, kernel language reference, estimated costs"
GUIDE2 = "AWS Neuron documentation, SDK 2.26, architecture guide of Trainium2"
ENGINES = "AWS Neuron documentation 2.33, NKI API reference, engine selection"
ASSUMED = "not documented; assumed"


def always(step: Step) -> bool:
    """Accept any operands."""
    return True


def operand_in_psum(step: Step) -> bool:
    """Accept if a tile is read from PSUM."""
    return any(a.buffer.space == "psum" for a in step.srcs)


def on_vector(step: Step) -> bool:
    """Accept an instruction of the vector engine."""
    return step.engine == "vector"


def narrow(step: Step) -> bool:
    """Accept if all tiles are of a 16-bit float type and in SBUF."""
    return all(
        a.dtype in ("bfloat16", "float16") and a.buffer.space == "sbuf"
        for a in _operands(step)
        # A column is one number for each partition: it is not a stream of elements.
        if a.free_elements > 1
    )


def narrow_contiguous(step: Step) -> bool:
    """Accept if all tiles are of a 16-bit float type, in SBUF, without gaps."""
    return narrow(step) and all(
        a.contiguous_run == a.free_elements * ITEMSIZE[a.dtype] for a in _operands(step)
    )


@dataclass(frozen=True)
class Row:
    """One row of the table; of those that fit an instruction, the first one counts.

    - `ops`: instructions.
    - `machines`: machines.
    - `when`: operands.
    - `per_element`: cycles for each free element.
    - `source`: where the figure is from.
    """

    ops: tuple[str, ...]
    machines: tuple[str, ...]
    when: Callable[[Step], bool]
    per_element: float
    source: str


ALL = ("trn1", "trn2", "trn3")
SINGLE = ("tensor_scalar", "tensor_copy", "memset")

TABLE: tuple[Row, ...] = (
    # "up to four times faster": taken at its best.
    Row(SINGLE, ("trn2", "trn3"), narrow_contiguous, 0.25, GUIDE2),
    Row(SINGLE, ALL, always, 1.0, COSTS),
    Row(("tensor_tensor",), ALL, narrow, 1.0, COSTS),
    Row(("tensor_tensor",), ALL, operand_in_psum, 1.0, COSTS),
    Row(("tensor_tensor",), ALL, always, 2.0, COSTS),
    Row(("scalar_tensor_tensor",), ALL, operand_in_psum, 2.0, ASSUMED),
    Row(("scalar_tensor_tensor",), ALL, always, 2.0, COSTS),
    Row(("tensor_reduce",), ALL, always, 1.0, COSTS),
    Row(("activation",), ALL, always, 1.0, COSTS),
    Row(("reciprocal",), ALL, on_vector, 8.0, ENGINES),
    Row(("reciprocal",), ALL, always, 1.0, ENGINES),
    Row(("nc_matmul", "nc_transpose"), ALL, always, 1.0, COSTS),
)

#: The smallest interval after an instruction with an operand on the chip whose place data say
#: (`COSTS`, tensor_copy_dynamic_dst).
PLACED_CYCLES = 600

#: A float32 operand passes the tensor engine this many times (`COSTS`, nc_matmul).
FLOAT32_PASSES = 4


def cycles(step: Step, machine: Machine) -> float:
    """Return how many cycles of its engine's clock an instruction takes.

    - `step`: any instruction but ``dma_copy``.
    - `machine`: where it runs.
    - Returns: for instance 2 * 2048 + 60 for a scalar_tensor_tensor of [128, 2048].
    - Raises ValueError: if the table has no row for the instruction.
    """
    for row in (*TABLE, *_rows_of(step.op)):
        if step.op in row.ops and machine.name in row.machines and row.when(step):
            streamed = row.per_element * _elements(step) + machine.access_cycles
            placed = any(a.indirect and a.partitions is not None for a in _operands(step))
            return max(float(PLACED_CYCLES if placed else machine.min_cycles), streamed)
    raise ValueError(f"line {step.line}: no cost is known for {step.op} on {machine.name}")


def _rows_of(op: str) -> tuple[Row, ...]:
    """Return the row that an instruction of `fuse_epilogue.neuron.isa` brings with it."""
    cost = INSTRUCTIONS[op].cost if op in INSTRUCTIONS else None
    return (
        () if cost is None else (Row((op,), cost.machines, always, cost.per_element, cost.source),)
    )


def _elements(step: Step) -> float:
    """Count the elements of a partition that go through the engine."""
    if step.engine == "tensor":
        # The moving operand's columns leave in the destination; the stationary one is loaded.
        moving = step.dst.free_elements if step.dst is not None else 0
        loaded = step.srcs[0].free_elements if step.srcs else 0
        passes = FLOAT32_PASSES if step.srcs and step.srcs[0].dtype == "float32" else 1
        return float(max(min(64, loaded), moving) * passes)
    return float(max((a.free_elements for a in _operands(step)), default=0))


def _operands(step: Step) -> tuple[Access, ...]:
    return step.touched


@dataclass(frozen=True)
class Transfer:
    """Demand of a ``dma_copy`` on the DMA engines and on HBM.

    - `seconds`: with all DMA engines and all of the core's bandwidth for itself.
    - `share`: the part of the DMA engines that it has pieces for, at most 1.
    - `hbm_read`, `hbm_written`: bytes.
    """

    seconds: float
    share: float
    hbm_read: int
    hbm_written: int


def transfer(step: Step, machine: Machine) -> Transfer:
    """Return the cost of a ``dma_copy``.

    The copy is cut into its contiguous pieces (of the side that has the smaller ones; another
    partition is another piece), which are spread over the DMA engines. A piece takes the longer of

    - its bytes at the rate that long pieces sustain, and
    - its bytes at the theoretical rate, and `Machine.dma_piece_ns`.

    The transfer of a ``dma_transpose`` is taken to cost as much as a copy: no document says it.

    A piece below `Machine.dma_least_bytes` takes as long as one of that size. The documents do not
    agree on short pieces: see `Machine.slowest`.
    """
    dst = step.dst
    assert dst is not None
    sides = (dst, *step.srcs)
    size = max(side.bytes for side in sides)
    run = max(1, min(side.contiguous_run for side in sides if side.bytes * 2 > size))
    if all(side.buffer.space == "hbm" for side in sides):
        run = min(run, machine.dma_run_bytes)  # nothing keeps the rows of a copy within HBM whole
    pieces = max(1, size // run)
    read = sum(src.bytes for src in step.srcs if src.buffer.space == "hbm")
    written = dst.bytes if dst.buffer.space == "hbm" else 0
    dma = pieces * piece_seconds(size / pieces, machine) / machine.dma_engines
    hbm = (read + written) / (machine.hbm_gb_per_s * 1e9)
    share = min(1.0, pieces / machine.dma_engines)
    return Transfer(max(dma, hbm), share, read, written)


def piece_seconds(size: float, machine: Machine) -> float:
    """Return how long a DMA engine takes for one contiguous piece.

    - `size`: bytes.
    - `machine`: where it is moved.
    """
    size = max(size, machine.dma_least_bytes)
    engines = machine.dma_engines
    sustained = size * engines / (machine.dma_gb_per_s * 1e9)
    short = machine.dma_piece_ns * 1e-9 + size * engines / (machine.dma_peak_gb_per_s * 1e9)
    return max(sustained, short)
