"""What one instruction costs on its engine: a table, and the function that reads it.

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

from .machine import Machine
from .trace import ITEMSIZE, Access, Step

COSTS = "AWS Neuron documentation, SDK 2.26, kernel language reference, estimated costs"
GUIDE2 = "AWS Neuron documentation, SDK 2.26, architecture guide of Trainium2"
ASSUMED = "not documented; assumed"


def always(step: Step) -> bool:
    """Accept any operands."""
    return True


def operand_in_psum(step: Step) -> bool:
    """Accept if a tile is read from PSUM."""
    return any(a.buffer.space == "psum" for a in step.srcs)


def narrow(step: Step) -> bool:
    """Accept if all tiles are of a 16-bit float type and in SBUF."""
    return all(
        a.dtype in ("bfloat16", "float16") and a.buffer.space == "sbuf"
        for a in _operands(step)
        # A column is one number for each partition: it is no stream of elements.
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

    Attributes
    ----------
    ops : tuple[str, ...]
        Instructions.
    machines : tuple[str, ...]
        Machines.
    when : Callable[[Step], bool]
        Operands.
    per_element : float
        Cycles for each free element.
    source : str
        Where the figure is from.
    """

    ops: tuple[str, ...]
    machines: tuple[str, ...]
    when: Callable[[Step], bool]
    per_element: float
    source: str


BOTH = ("trn1", "trn2")
SINGLE = ("tensor_scalar", "tensor_copy", "memset")

TABLE: tuple[Row, ...] = (
    # "up to four times faster": taken at its best.
    Row(SINGLE, ("trn2",), narrow_contiguous, 0.25, GUIDE2),
    Row(SINGLE, BOTH, always, 1.0, COSTS),
    Row(("tensor_tensor",), BOTH, narrow, 1.0, COSTS),
    Row(("tensor_tensor",), BOTH, operand_in_psum, 1.0, COSTS),
    Row(("tensor_tensor",), BOTH, always, 2.0, COSTS),
    Row(("scalar_tensor_tensor",), BOTH, operand_in_psum, 2.0, ASSUMED),
    Row(("scalar_tensor_tensor",), BOTH, always, 2.0, COSTS),
    Row(("tensor_reduce",), BOTH, always, 1.0, COSTS),
    Row(("activation",), BOTH, always, 1.0, COSTS),
    Row(("nc_matmul", "nc_transpose"), BOTH, always, 1.0, COSTS),
)

#: A float32 operand passes the tensor engine this many times (`COSTS`, nc_matmul).
FLOAT32_PASSES = 4


def cycles(step: Step, machine: Machine) -> float:
    """Return how many cycles of its engine's clock an instruction takes.

    Parameters
    ----------
    step : Step
        Any instruction but ``dma_copy``.
    machine : Machine
        Where it runs.

    Returns
    -------
    float
        For instance 2 * 2048 + 60 for a scalar_tensor_tensor of [128, 2048].

    Raises
    ------
    ValueError
        If the table has no row for the instruction.
    """
    for row in TABLE:
        if step.op in row.ops and machine.name in row.machines and row.when(step):
            streamed = row.per_element * _elements(step) + machine.access_cycles
            return max(float(machine.min_cycles), streamed)
    raise ValueError(f"line {step.line}: no cost is known for {step.op} on {machine.name}")


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
    return step.srcs if step.dst is None else (*step.srcs, step.dst)


@dataclass(frozen=True)
class Transfer:
    """Demand of a ``dma_copy`` on the DMA engines and on HBM.

    Attributes
    ----------
    seconds : float
        With all DMA engines and all of the core's bandwidth for itself.
    share : float
        The part of the DMA engines that it has pieces for, at most 1.
    hbm_read, hbm_written : int
        Bytes.
    """

    seconds: float
    share: float
    hbm_read: int
    hbm_written: int


def transfer(step: Step, machine: Machine) -> Transfer:
    """Return the cost of a ``dma_copy``.

    The copy is cut into its contiguous pieces (of the side that has the smaller ones; another
    partition is another piece), which are spread over the DMA engines. A piece below
    `Machine.dma_run_bytes` takes as long as one of that size: the guide says that the rate of
    pieces limits there, and gives no curve.
    """
    dst, (src,) = step.dst, step.srcs
    assert dst is not None
    size = max(dst.bytes, src.bytes)
    run = max(1, min(dst.contiguous_run, src.contiguous_run))
    if src.buffer.space == dst.buffer.space == "hbm":
        run = min(run, machine.dma_run_bytes)  # nothing keeps the rows of a copy within HBM whole
    pieces = max(1, size // run)
    moved = pieces * max(size / pieces, machine.dma_run_bytes)
    read = src.bytes if src.buffer.space == "hbm" else 0
    written = dst.bytes if dst.buffer.space == "hbm" else 0
    dma = moved / (machine.dma_gb_per_s * 1e9)
    hbm = (read + written) / (machine.hbm_gb_per_s * 1e9)
    share = min(1.0, pieces / machine.dma_engines)
    return Transfer(max(dma, hbm), share, read, written)
