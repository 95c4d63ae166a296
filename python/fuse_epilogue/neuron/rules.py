"""The rules for one instruction on a machine, as a table.

Sources, named beside each row: the AWS Neuron documentation, SDK 2.26 (kernel language reference,
pages of ``nki.isa``) and its architecture guides. Where it leaves a choice, the stricter reading is
taken: every operand obeys the rule of start partitions, transfers too, and a dimension of size 1
counts as a dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .isa.arithmetic import BITWISE
from .liveness import accesses
from .machine import Machine
from .trace import ITEMSIZE, Access, Step

Check = Callable[[Step, Machine], "str | None"]

LANGUAGE = "kernel language reference"
ISA = "nki.isa"
GUIDE = "architecture guide"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    - `name`: how violations name it.
    - `what`: condition that has to hold.
    - `source`: which part of the documentation says so.
    - `check`: returns what is wrong with an instruction. None: not about one instruction alone, or
      found while the kernel is walked.
    - `ops`: the instructions it is about, empty for all.
    """

    name: str
    what: str
    source: str
    check: Check | None = None
    ops: frozenset[str] = frozenset()


def operand(step: Step, name: str) -> Access | None:
    """Return an operand that is a tile, None if it is a constant."""
    return step.srcs[step.operands.index(name)] if name in step.operands else None


def _on_chip(step: Step) -> Iterator[tuple[Access, int, int]]:
    """Yield each access to SBUF or PSUM with its first partition and their number."""
    for access in accesses(step):
        if access.partitions is not None:
            yield access, *access.partitions


def _start_partition(step: Step, machine: Machine) -> str | None:
    if step.engine == "dma":
        return None  # Transfers reach every partition.
    for access, start, count in _on_chip(step):
        allowed = (0,) if count > 64 else (0, 64) if count > 32 else (0, 32, 64, 96)
        if start not in allowed and start < machine.partitions:
            starts = " or ".join(map(str, allowed))
            return (
                f"'{access.buffer.name}': {count} partitions start at {start}, "
                f"that many start at {starts}"
            )
    return None


def _free_size(step: Step, machine: Machine) -> str | None:
    for access, _, _ in _on_chip(step):
        sbuf = access.buffer.space == "sbuf"
        most = machine.sbuf_elements if sbuf else machine.psum_elements
        if access.free_elements > most:
            return (
                f"'{access.buffer.name}': {access.free_elements} elements in a partition, "
                f"at most {most} at once in {access.buffer.space.upper()}"
            )
    return None


def _pattern_dims(step: Step, machine: Machine) -> str | None:
    for access, _, _ in _on_chip(step):
        dims = max(len(access.shape) - 1, len(access.pattern))
        if dims > machine.free_dims:
            return (
                f"'{access.buffer.name}': {dims} free dimensions, at most {machine.free_dims} in "
                "one access pattern"
            )
    return None


def _bank_crossing(step: Step, machine: Machine) -> str | None:
    dst = step.dst
    if dst is None or dst.buffer.space != "psum":
        return None
    if step.op == "nc_matmul" and machine.matmul_moving * 4 > machine.psum_bank_bytes:
        return None
    bank = machine.psum_bank_bytes // ITEMSIZE[dst.dtype]
    # What no bank can hold breaks the rule about the size of a matmul.
    if dst.offset // bank == dst.last // bank or dst.free_elements > bank:
        return None
    return (
        f"'{dst.buffer.name}': elements {dst.offset} to {dst.last} of a partition lie in several "
        f"banks of PSUM, of {bank} {dst.dtype} each"
    )


def _vector_type(step: Step, machine: Machine) -> str | None:
    for name in ("operand0", "operand1", "scale"):
        access = operand(step, name)
        if access is not None and access.dtype != "float32":
            return f"{name} is a tile of {access.dtype}, it has to be a constant or float32"
    return None


def _bits(step: Step, machine: Machine) -> str | None:
    for name in ("op", "op0", "op1"):
        if step.constants.get(name) in BITWISE:
            types = sorted({access.dtype for access in step.srcs})
            if len(types) > 1 or "float" in types[0]:
                return f"nl.{step.constants[name]} on {' and '.join(types)}: integers of one type"
    return None


def _constant_bias(step: Step, machine: Machine) -> str | None:
    if "bias" in step.constants and machine.name == "trn1":
        return "a constant bias is only there from trn2 on: fill a (P, 1) tile by memset"
    return None


def _both_psum(step: Step, machine: Machine) -> str | None:
    names = ("data1", "data2") if step.op == "tensor_tensor" else ("data", "operand1")
    tiles = [operand(step, name) for name in names]
    if all(tile is not None and tile.buffer.space == "psum" for tile in tiles):
        return f"{names[0]} and {names[1]} are both in PSUM: copy one of them to SBUF"
    return None


def _matmul_memory(step: Step, machine: Machine) -> str | None:
    if step.engine != "tensor":
        return None
    for name, access in zip(step.operands, step.srcs, strict=True):
        if name != "dst" and access.buffer.space != "sbuf":
            return f"{name} is in {access.buffer.space.upper()}, the tensor engine reads SBUF"
    if step.dst is not None and step.dst.buffer.space != "psum":
        return "dst is in SBUF, the tensor engine writes PSUM: copy it on from there"
    return None


def _matmul_types(step: Step, machine: Machine) -> str | None:
    types = [access.dtype for name in ("stationary", "moving") if (access := operand(step, name))]
    wide = {dtype == "float32" for dtype in types}
    if any("float" not in dtype for dtype in types) or len(wide) > 1:
        return f"{' and '.join(types)}: both operands are float32, or both 16-bit floats"
    if step.constants.get("is_transpose"):
        if step.dst is not None and step.dst.dtype not in (*types, "float32"):
            return f"dst is {step.dst.dtype}, a transposition keeps the type"
    elif step.dst is not None and step.dst.dtype not in machine.matmul_results:
        return f"dst is {step.dst.dtype}, here it is {' or '.join(machine.matmul_results)}"
    if step.constants.get("perf_mode") == "double_row" and machine.name == "trn1":
        return "perf_mode=double_row is there from trn2 on"
    if step.constants.get("perf_mode") == "double_row" and "float8" not in types[0]:
        return f"{types[0]}: perf_mode=double_row is for numbers of 8 bits"
    return None


def _matmul_size(step: Step, machine: Machine) -> str | None:
    pairs = 2 if step.constants.get("perf_mode") == "double_row" else 1
    moving = machine.psum_bank_bytes // 4 if step.op == "nc_matmul_mx" else machine.matmul_moving
    if "bfloat16" in machine.matmul_results and step.dst is not None:
        # As many results as there is room for.
        moving = moving * 4 // ITEMSIZE[step.dst.dtype]
    for name, most in (("stationary", machine.matmul_stationary), ("moving", moving)):
        access = operand(step, name)
        if access is not None and access.free_elements > most * pairs:
            return f"{name} has {access.free_elements} free elements, at most {most * pairs}"
    return None


def _mx_types(step: Step, machine: Machine) -> str | None:
    left = operand(step, "stationary")
    if step.dst is not None and step.dst.dtype not in machine.matmul_results:
        return f"dst is {step.dst.dtype}, here it is {' or '.join(machine.matmul_results)}"
    if left is not None and left.free_elements % 2:
        return f"stationary has {left.free_elements} free elements, an even number"
    return None


def _transpose(step: Step, machine: Machine) -> str | None:
    data, dst = step.srcs[0], step.dst
    if dst is not None and data.dtype != dst.dtype:
        return f"dst is {dst.dtype} and data {data.dtype}: a transposition keeps the type"
    if step.engine == "tensor" and machine.name == "trn1" and data.dtype in ("int32", "uint32"):
        return (
            f"data is {data.dtype}: the tensor engine of trn1 multiplies with the identity, which "
            "does not keep all integers of 32 bits"
        )
    if step.engine == "vector" and max(data.free_elements, dst.free_elements if dst else 0) > 32:
        return "the vector engine transposes at most 32 by 32 elements"
    if data.free_elements > machine.partitions:
        return f"data has {data.free_elements} free elements, at most {machine.partitions}"
    return None


def _dma_psum(step: Step, machine: Machine) -> str | None:
    for access in accesses(step):
        if access.buffer.space == "psum":
            return f"'{access.buffer.name}' is in PSUM, transfers reach HBM and SBUF only"
    return None


def _dma_types(step: Step, machine: Machine) -> str | None:
    src, dst = step.srcs[0], step.dst
    if dst is not None and src.dtype != dst.dtype and step.constants.get("dge_mode") == "hwdge":
        return (
            f"from {src.dtype} to {dst.dtype}: with descriptors made by hardware, transfers keep "
            "the type"
        )
    return None


def _gpsimd_psum(step: Step, machine: Machine) -> str | None:
    if step.engine == "gpsimd":
        for access in accesses(step):
            if access.buffer.space == "psum":
                return f"'{access.buffer.name}' is in PSUM, which GpSimd cannot reach"
    return None


def _scalar_copy(step: Step, machine: Machine) -> str | None:
    if step.engine == "scalar" and machine.name == "trn1":
        return "not on the scalar engine of trn1: use nisa.activation"
    return None


def _in_flight(step: Step, machine: Machine) -> str | None:
    dst = step.dst
    if dst is None or step.op == "nc_stream_shuffle":
        return None
    if step.op == "tensor_reduce" and dst.free_elements == 1:
        return None  # What it writes depends on all that it reads.
    for access in step.srcs:
        if access != dst and access.buffer.id == dst.buffer.id and access.overlaps(dst):
            return (
                f"'{dst.buffer.name}' is read and written at places that overlap without being "
                "the same: elements are written while others are still to be read"
            )
    return None


_MATMUL = frozenset({"nc_matmul"})
_TENSOR = frozenset({"nc_matmul", "nc_matmul_mx", "nc_transpose"})
_DMA = frozenset({"dma_copy"})
_VECTORS = frozenset({"tensor_scalar", "activation", "activation_reduce"})

#: Rules about one instruction.
INSTRUCTION_RULES = (
    Rule(
        "start-partition",
        "more than 64 partitions start at 0, more than 32 at 0 or 64, others at 0, 32, 64 or 96",
        GUIDE,
        _start_partition,
    ),
    Rule(
        "free-size",
        "an operand has at most 64 Ki free elements in SBUF and 4 Ki in PSUM",
        LANGUAGE,
        _free_size,
    ),
    Rule("pattern-dims", "an operand has at most 4 free dimensions", LANGUAGE, _pattern_dims),
    Rule(
        "bank-crossing",
        "what the tensor engine writes lies in one bank of PSUM; nc_matmul on trn3 fills several",
        GUIDE,
        _bank_crossing,
        _TENSOR,
    ),
    Rule(
        "per-partition-type",
        "an operand that is one value for each partition is float32",
        f"{ISA}.tensor_scalar, {ISA}.activation",
        _vector_type,
        _VECTORS,
    ),
    Rule(
        "operand-types", "bit-wise operations take integers of one type", f"{ISA}, operators", _bits
    ),
    Rule(
        "constant-bias",
        "a bias is a (P, 1) tile; a constant only from trn2 on",
        f"{ISA}.activation",
        _constant_bias,
        frozenset({"activation", "activation_reduce"}),
    ),
    Rule(
        "both-psum",
        "not both tile operands are in PSUM",
        f"{ISA}.tensor_tensor, {ISA}.scalar_tensor_tensor",
        _both_psum,
        frozenset({"tensor_tensor", "scalar_tensor_tensor"}),
    ),
    Rule(
        "matmul-memory",
        "the tensor engine reads SBUF and writes PSUM",
        f"{ISA}.nc_matmul",
        _matmul_memory,
        _TENSOR,
    ),
    Rule(
        "matmul-types",
        "float32 and narrower operands do not mix, the result is float32, on trn3 also bfloat16; "
        "double_row is for numbers of 8 bits",
        f"{ISA}.nc_matmul",
        _matmul_types,
        _MATMUL,
    ),
    Rule(
        "mx-operands",
        "the result is float32 or bfloat16, the stationary columns are even in number",
        f"{ISA}.nc_matmul_mx",
        _mx_types,
        frozenset({"nc_matmul_mx"}),
    ),
    Rule(
        "matmul-size",
        "at most 128 stationary and 512 moving free elements; nc_matmul on trn3 as many moving as "
        "PSUM holds results, nc_matmul_mx as many as a bank",
        f"{ISA}.nc_matmul",
        _matmul_size,
        _MATMUL | {"nc_matmul_mx"},
    ),
    Rule(
        "transpose",
        "at most 128 free elements, 32 by 32 on the vector engine, and the type stays",
        f"{ISA}.nc_transpose",
        _transpose,
        frozenset({"nc_transpose"}),
    ),
    Rule("dma-psum", "transfers do not touch PSUM", f"{ISA}.dma_copy", _dma_psum, _DMA),
    Rule(
        "dma-types",
        "transfers with descriptors made by hardware keep the type",
        f"{ISA}.dma_copy",
        _dma_types,
        _DMA,
    ),
    Rule("gpsimd-psum", "GpSimd does not touch PSUM", GUIDE, _gpsimd_psum),
    Rule(
        "scalar-copy",
        "the scalar engine of trn1 has no tensor_copy, tensor_scalar and reciprocal",
        f"{ISA}.tensor_copy, {ISA}.tensor_scalar",
        _scalar_copy,
        frozenset({"tensor_copy", "tensor_scalar", "reciprocal"}),
    ),
    Rule(
        "in-flight",
        "dst does not overlap an operand, unless it is the same, or a reduction writes one element",
        GUIDE,
        _in_flight,
    ),
)
