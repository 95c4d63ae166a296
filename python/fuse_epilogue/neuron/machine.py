"""The machines that kernels are checked and timed for, as data: one NeuronCore of each.

Sources, named beside each row: the AWS Neuron documentation, SDK 2.26 (kernel language reference
and performance guide), its architecture guides of Trainium (NeuronCore-v2), Trainium2
(NeuronCore-v3) and Trainium3 (NeuronCore-v4), and of its 2.29 edition the introduction to DMA, the
DMA bandwidth guide and the reference of descriptor generation. Nothing here was measured by this
project, and nothing is fitted to the latency of a kernel.

Where two documents disagree, the prediction takes the later one, and `Machine.quickest` and
`Machine.slowest` are the ends of what they allow: :attr:`.prediction.Prediction.range_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

KIB = 1024
GIB = 1024**3


@dataclass(frozen=True)
class Machine:
    """One NeuronCore, its share of the memory and its DMA engines.

    Attributes
    ----------
    name : str
        The name of the instance family: ``"trn1"``, ``"trn2"`` or ``"trn3"``.
    core : str
        Its generation, ``"NeuronCore-v2"`` to ``"NeuronCore-v4"``.
    clock_ghz : Mapping[str, float]
        Clock of each engine.
    partitions : int
        Number of partitions of SBUF and PSUM.
    sbuf_bytes, psum_bytes : int
        Bytes of one partition.
    psum_bank_bytes : int
        Bytes of one partition of one bank; a tensor in PSUM starts at a bank.
    sbuf_elements, psum_elements : int
        Most free elements of an operand.
    free_dims : int
        Most free dimensions of an operand.
    matmul_stationary, matmul_moving : int
        Most free elements of the two operands of a matmul with results in float32.
    matmul_results : tuple[str, ...]
        Types that a matmul may have in PSUM.
    dma_engines : int
        Among which the pieces of a transfer are spread.
    dma_gb_per_s : float
        Bandwidth of all of these together that long pieces sustain.
    dma_peak_gb_per_s : float
        Their theoretical bandwidth.
    dma_piece_ns : float
        Time that each contiguous piece takes beyond its bytes at the theoretical bandwidth: what
        limits short pieces.
    dma_run_bytes : int
        The least size of a piece that the guides call efficient.
    dma_least_bytes : int
        A piece smaller than this occupies its DMA engine as long as one of this size.
    dma_start_us : float
        From the semaphore that releases a transfer to its first byte.
    dma_issue_us : float
        To make the descriptors of one transfer; those of a queue are made one after the other,
        while earlier transfers are under way.
    hbm_gb_per_s : float
        The core's share of the memory's bandwidth.
    hbm_bytes : int
        Bandwidth of the chip, which its cores share.
    min_cycles : int
        Shortest interval between two instructions of an engine.
    access_cycles : int
        Cycles that an instruction spends on reaching SBUF or PSUM before its first element.
    semaphore_cycles : int
        Delay of the waiting engine, from the end of what it waits for to its own start.
    exclusive : tuple[tuple[str, str, str], ...]
        (engine, engine, space): the two cannot be in that memory at the same time.
    """

    name: str
    core: str
    clock_ghz: Mapping[str, float]
    sbuf_bytes: int
    dma_gb_per_s: float
    dma_peak_gb_per_s: float
    dma_issue_us: float
    hbm_gb_per_s: float
    hbm_bytes: int
    exclusive: tuple[tuple[str, str, str], ...]
    partitions: int = 128  # architecture guides
    psum_bytes: int = 16 * KIB  # architecture guides
    psum_bank_bytes: int = 2 * KIB  # architecture guides
    sbuf_elements: int = 64 * KIB  # kernel language reference
    psum_elements: int = 4 * KIB  # kernel language reference
    free_dims: int = 4  # kernel language reference
    matmul_stationary: int = 128  # kernel language reference, nc_matmul
    matmul_moving: int = 512  # of float32; kernel language reference, nc_matmul
    matmul_results: tuple[str, ...] = ("float32",)  # kernel language reference, nc_matmul
    dma_engines: int = 16  # DMA bandwidth guide
    # performance guide, its profiles on trn2: a piece of 512 bytes takes 31 to 34 ns and one of
    # 2 KiB about 90, of which 19 and 75 are the bytes at the theoretical bandwidth
    dma_piece_ns: float = 13.0
    dma_run_bytes: int = 2 * KIB  # DMA bandwidth guide: the least that it recommends
    dma_least_bytes: int = 1  # see `slowest`
    dma_start_us: float = 1.3  # DMA bandwidth guide
    min_cycles: int = 64  # SDK 2.26, instruction costs
    access_cycles: int = 60  # performance guide: about 60 cycles
    semaphore_cycles: int = 100  # performance guide: about 100 cycles in a chain of dependences

    def __str__(self) -> str:
        """Return its name and its generation."""
        return f"{self.name} ({self.core})"

    def quickest(self) -> Machine:
        """Return the machine at the fast end of its documents.

        Transfers of long pieces reach the theoretical bandwidth of the DMA engines, as far as HBM
        has it. Reaching SBUF and PSUM is hidden by the instruction before. Nothing waits for
        space there: a compiler may order instructions in another way than the text.
        """
        return replace(
            self,
            dma_gb_per_s=self.dma_peak_gb_per_s,
            access_cycles=0,
            sbuf_bytes=self.hbm_bytes,
            psum_bytes=self.hbm_bytes,
        )

    def slowest(self) -> Machine:
        """Return the machine at the slow end of its documents.

        A piece below `dma_run_bytes` takes as long as one of that size, as in the picture of the
        introduction to DMA: the throughput of 1 KiB, 512 and 256 bytes for each partition is half,
        a quarter and an eighth of that of 2 KiB.
        """
        return replace(self, dma_least_bytes=self.dma_run_bytes)

    def roofs(self, bits: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return what no kernel exceeds: operations and bytes in a second, each by name.

        The vector engine executes one operation for each partition in a cycle; the tensor engine
        multiplies and adds in a square of as many, in four passes for elements of 32 bits.
        """
        from .costs import FLOAT32_PASSES  # which needs this module

        passes = FLOAT32_PASSES if bits == 32 else 1
        flops = {
            "vector": 1e9 * self.partitions * self.clock_ghz["vector"],
            "tensor": 2e9 * self.partitions**2 * self.clock_ghz["tensor"] / passes,
        }
        return flops, {"HBM": 1e9 * self.dma_gb_per_s}


TRN1 = Machine(
    name="trn1",
    core="NeuronCore-v2",
    # architecture guide of Trainium
    clock_ghz=MappingProxyType({"tensor": 2.8, "vector": 1.12, "scalar": 1.4, "gpsimd": 1.4}),
    sbuf_bytes=192 * KIB,  # architecture guide: 24 MiB in 128 partitions
    dma_gb_per_s=272.0,  # DMA bandwidth guide: 16 engines of 17 GB/s
    dma_peak_gb_per_s=16 * 27.2,  # introduction to DMA
    dma_issue_us=0.0,  # descriptors are made before the kernel starts
    hbm_gb_per_s=410.0,  # architecture guide: 820 GB/s for two cores
    hbm_bytes=32 * GIB,  # architecture guide
    # architecture guide, engines' access to the memories
    exclusive=(("vector", "gpsimd", "sbuf"), ("vector", "scalar", "psum")),
)

TRN2 = Machine(
    name="trn2",
    core="NeuronCore-v3",
    # architecture guide of Trainium2
    clock_ghz=MappingProxyType({"tensor": 2.4, "vector": 0.96, "scalar": 1.2, "gpsimd": 1.2}),
    sbuf_bytes=224 * KIB,  # architecture guide, the part that kernels may use
    dma_gb_per_s=368.0,  # DMA bandwidth guide: 16 engines of 23 GB/s
    dma_peak_gb_per_s=16 * 27.2,  # introduction to DMA
    dma_issue_us=0.6,  # descriptor generation, by hardware
    hbm_gb_per_s=362.0,  # architecture guide: 2.9 TB/s for eight cores
    hbm_bytes=96 * GIB,  # architecture guide
    exclusive=(),  # architecture guide: only within one bank of PSUM
)

TRN3 = Machine(
    name="trn3",
    core="NeuronCore-v4",
    # architecture guide of Trainium3
    clock_ghz=MappingProxyType({"tensor": 2.4, "vector": 1.2, "scalar": 1.2, "gpsimd": 1.2}),
    sbuf_bytes=256 * KIB,  # architecture guide: 32 MiB in 128 partitions
    dma_gb_per_s=528.0,  # DMA bandwidth guide: 16 engines of 33 GB/s
    dma_peak_gb_per_s=16 * 38.4,  # introduction to DMA
    dma_issue_us=0.6,  # descriptor generation, by hardware
    hbm_gb_per_s=587.5,  # architecture guide: 4.7 TB/s for eight cores
    hbm_bytes=144 * GIB,  # architecture guide
    matmul_moving=4096,  # kernel language reference, nc_matmul from NeuronCore-v4 on
    matmul_results=("float32", "bfloat16"),  # as above
    exclusive=(),  # as on trn2
)

#: The machines by name.
MACHINES: Mapping[str, Machine] = MappingProxyType({m.name: m for m in (TRN1, TRN2, TRN3)})


def machine(name: str | Machine) -> Machine:
    """Return a machine by its name.

    - `name`: ``"trn1"``, ``"trn2"`` or ``"trn3"``; a `Machine` is returned as it is.
    - Raises ValueError: if there is no such machine.
    """
    if isinstance(name, Machine):
        return name
    try:
        return MACHINES[name]
    except KeyError:
        known = ", ".join(repr(each) for each in MACHINES)
        raise ValueError(f"there is no machine {name!r}, only {known}") from None
