"""Checks every instruction of a kernel, with the loops unrolled, against the rules of a machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from .errors import CheckError, KernelError, Violation
from .isa import COLLECTIVES, INSTRUCTIONS
from .liveness import Peak, peak
from .machine import Machine
from .machine import machine as find_machine
from .rules import GUIDE, INSTRUCTION_RULES, ISA, LANGUAGE, Rule
from .trace import ITEMSIZE, Access, BufferInfo, Step, Trace
from .written import Written


@dataclass(frozen=True, repr=False)
class Resources:
    """Resources of a kernel on a machine that it was checked for.

    Attributes
    ----------
    machine : str
        Its name.
    sbuf_bytes, psum_bytes : int
        The most in use at once in a partition, tensors in use from their first write to their last
        read; tensors in PSUM take whole banks.
    psum_banks : int
        The same in banks.
    instructions : Mapping[str, int]
        How many of each, with the loops unrolled.
    engines : Mapping[str, int]
        How many on each engine.
    loaded_bytes, stored_bytes : int
        Read from and written to HBM.
    """

    machine: str
    sbuf_bytes: int
    psum_bytes: int
    psum_banks: int
    instructions: Mapping[str, int]
    engines: Mapping[str, int]
    loaded_bytes: int
    stored_bytes: int

    def __str__(self) -> str:
        """Return a table."""
        counts = ", ".join(f"{count} {op}" for op, count in self.instructions.items())
        engines = ", ".join(f"{count} {engine}" for engine, count in self.engines.items())
        return "\n".join(
            (
                f"needed on {self.machine}",
                f"  SBUF  {self.sbuf_bytes:,} bytes of each partition",
                f"  PSUM  {self.psum_bytes:,} bytes of each partition, {self.psum_banks} banks",
                f"  HBM   {self.loaded_bytes:,} bytes read, {self.stored_bytes:,} written",
                f"  instructions: {counts or 'none'}",
                f"  by engine: {engines or 'none'}",
            )
        )

    def __repr__(self) -> str:
        """Return what it is for, and the memory that it takes."""
        return (
            f"<Resources on {self.machine}: {self.sbuf_bytes:,} bytes of SBUF and "
            f"{self.psum_bytes:,} of PSUM in each partition>"
        )


#: Generation of the NeuronCore of each machine.
GENERATIONS = {"trn1": 2, "trn2": 3, "trn3": 4}

#: Rules that are not about one instruction alone, or are found while the kernel is walked.
KERNEL_RULES = (
    Rule("language", "the kernel is in the language", LANGUAGE),
    Rule("engine", "the engine has the instruction", ISA),
    Rule("assertion", "what the kernel asserts holds", LANGUAGE),
    Rule("out-of-bounds", "indices are within their tensor", LANGUAGE),
    Rule("memory", "only transfers reach HBM", GUIDE),
    Rule("shapes", "operands fit together, nothing is broadcast", ISA),
    Rule(
        "per-partition-operand",
        "operands of tensor_scalar, scale and bias are constants or (P, 1) tiles",
        f"{ISA}.tensor_scalar, {ISA}.activation",
    ),
    Rule("reduce-axes", "the last free dimensions are reduced", f"{ISA}.tensor_reduce"),
    Rule("partitions", "a tensor on the chip has at most 128 partitions", GUIDE),
    Rule("sbuf-capacity", "192 KiB in each partition of trn1, 224 of trn2, 256 of trn3", GUIDE),
    Rule("psum-capacity", "8 banks of 2 KiB in each partition, a tensor starts at a bank", GUIDE),
    Rule("hbm-capacity", "32 GiB for the chip of trn1, 96 of trn2, 144 of trn3", GUIDE),
    Rule(
        "accumulate",
        "matmuls accumulate on what a matmul wrote, and say so",
        f"{ISA}.nc_matmul",
    ),
    Rule("uninitialised", "what is read or returned was written", LANGUAGE),
)

#: Everything that is checked.
RULES = KERNEL_RULES + INSTRUCTION_RULES


def check(record: Callable[[], Sequence[Trace]], machine: str | Machine) -> Resources:
    """Check a kernel.

    - `record`: walks the kernel, once for each program that shares the work.
    - `machine`: for which machine.
    - Returns: its resources; of several programs, those of the first one.
    - Raises CheckError: all violations. A kernel that cannot be walked to its end has one: that.
    """
    target = find_machine(machine)
    try:
        traces = record()
    except KernelError as error:
        raise CheckError((Violation(error.rule, error.line, error.reason),)) from error
    found: dict[tuple[str, int], Violation] = {}
    for at, trace in enumerate(traces):
        own: dict[tuple[str, int], Violation] = {}
        for violation in _violations(trace, target, [*traces[:at], *traces[at + 1 :]]):
            key = (violation.rule, violation.line)
            known = own.get(key)
            own[key] = replace(known, times=known.times + 1) if known else violation
        found = {**own, **found}
    if found:
        raise CheckError(tuple(sorted(found.values(), key=lambda it: (it.line, it.rule))))
    return _resources(traces[0], target)


def _violations(trace: Trace, target: Machine, others: Sequence[Trace]) -> Iterator[Violation]:
    """Yield everything that is wrong with one program; `others` are those beside it."""
    sbuf = peak(trace, "sbuf", 1)
    psum = peak(trace, "psum", target.psum_bank_bytes)
    impossible = list(_impossible(trace, target))
    huge = {info.id for info, _ in impossible} | {
        info.id
        for info in trace.buffers
        if info.space != "hbm" and info.shape[0] > target.partitions
    }
    yield from _instructions(trace, target)
    yield from _partitions(trace, target)
    yield from _capacity("sbuf", sbuf, target.sbuf_bytes, "bytes")
    yield from _capacity("psum", psum, target.psum_bytes // target.psum_bank_bytes, "banks")
    yield from _unused(impossible, sbuf, psum)
    yield from _accumulate(trace)
    yield from _uninitialised(trace, huge, others)


def _resources(trace: Trace, target: Machine) -> Resources:
    sbuf = peak(trace, "sbuf", 1)
    psum = peak(trace, "psum", target.psum_bank_bytes)
    transfers = [step for step in trace.steps if step.engine == "dma"]
    return Resources(
        target.name,
        sbuf.units,
        psum.units * target.psum_bank_bytes,
        psum.units,
        dict(Counter(step.op for step in trace.steps)),
        dict(Counter(step.engine for step in trace.steps)),
        sum(s.bytes for step in transfers for s in step.srcs if s.buffer.space == "hbm"),
        sum(a.bytes for step in transfers for a in step.written if a.buffer.space == "hbm"),
    )


def is_there(op: str, machine: Machine) -> bool:
    """Return whether a machine has an instruction."""
    since = {**INSTRUCTIONS, **COLLECTIVES}[op].since
    return int(machine.core[-1]) >= GENERATIONS[since]


def _instructions(trace: Trace, machine: Machine) -> Iterator[Violation]:
    for op in sorted({step.op for step in trace.steps}):
        if not is_there(op, machine):
            since = {**INSTRUCTIONS, **COLLECTIVES}[op].since
            line = next(step.line for step in trace.steps if step.op == op)
            yield Violation("engine", line, f"{op} is there from {since} on")
    rules: dict[str, list[Rule]] = {}
    for op in {step.op for step in trace.steps}:
        rules[op] = [rule for rule in INSTRUCTION_RULES if not rule.ops or op in rule.ops]
    for step in trace.steps:
        for rule in rules[step.op]:
            assert rule.check is not None
            reason = rule.check(step, machine)
            if reason is not None:
                yield Violation(rule.name, step.line, f"{step.op}: {reason}")


def _partitions(trace: Trace, machine: Machine) -> Iterator[Violation]:
    for info in trace.buffers:
        if info.space != "hbm" and info.shape[0] > machine.partitions:
            yield Violation(
                "partitions",
                info.line,
                f"'{info.name}' has {info.shape[0]} partitions, at most {machine.partitions}",
            )


def _capacity(space: str, most: Peak, there: int, unit: str) -> Iterator[Violation]:
    if most.units <= there or most.step is None:
        return
    names = ", ".join(f"'{info.name}' ({info.partition_bytes} bytes)" for info in most.live[:5])
    if len(most.live) > 5:
        names += f" and {len(most.live) - 5} more"
    yield Violation(
        f"{space}-capacity",
        most.step.line,
        f"{most.units} {unit} of each partition of {space.upper()} are in use, there are {there}: "
        f"{names}",
    )


def _impossible(trace: Trace, machine: Machine) -> Iterator[tuple[BufferInfo, Violation]]:
    """Find tensors that have no place in their memory, be they used or not."""
    per_partition = {"sbuf": machine.sbuf_bytes, "psum": machine.psum_bytes}
    hbm = 0
    for info in trace.buffers:
        if info.space == "hbm":
            # No tensor in HBM makes room for another.
            hbm += math.prod(info.shape) * ITEMSIZE[info.dtype]
            size, most, where = hbm, machine.hbm_bytes, "HBM, with the tensors before it"
        else:
            size, most = info.partition_bytes, per_partition[info.space]
            where = f"each partition of {info.space.upper()}"
        if size > most:
            reason = f"'{info.name}' takes {size} bytes of {where}: there are {most}"
            yield info, Violation(f"{info.space}-capacity", info.line, reason)


def _unused(
    impossible: list[tuple[BufferInfo, Violation]], sbuf: Peak, psum: Peak
) -> Iterator[Violation]:
    """Yield what the peaks do not show: tensors that are never in use, and those in HBM."""
    said = {info.id for most in (sbuf, psum) for info in most.live}
    for info, violation in impossible:
        if info.id not in said:
            yield violation


def _accumulate(trace: Trace) -> Iterator[Violation]:
    """Find matmuls that accumulate onto a value that another instruction wrote."""
    written: dict[int, list[Step]] = {}
    for step in trace.steps:
        dst = step.dst
        if dst is None or dst.buffer.space != "psum":
            continue
        earlier = written.setdefault(dst.buffer.id, [])
        if step.op == "nc_matmul" and step.constants.get("accumulate"):
            other = _other_writer(dst, earlier)
            if other is not None:
                yield Violation(
                    "accumulate",
                    step.line,
                    f"nc_matmul accumulates on what {other.op} in line {other.line} wrote: start "
                    "with accumulate=False, such as accumulate=(k > 0)",
                )
        earlier.append(step)


def _other_writer(dst: Access, earlier: list[Step]) -> Step | None:
    """Return the last writer of some of these elements that is not a matmul."""
    for step in reversed(earlier):
        if step.dst is None or not step.dst.overlaps(dst):
            continue
        if step.op != "nc_matmul":
            return step
        if step.dst == dst:
            return None
    return None


def _touched(step: Step) -> tuple[list[Access], list[Access]]:
    """Return what an instruction needs of its operands, and what it writes."""
    row = INSTRUCTIONS.get(step.op)
    if row is None or not (row.partly or row.leading):
        return list(step.srcs), list(step.written)
    results = [it.name for it in row.parameters if it.kind in ("dst", "result")]
    read = [
        part
        for name, access in zip_longest(step.operands, step.srcs)
        if name not in row.partly
        for part in row.touched(name, access)
    ]
    changed = [
        part
        for name, access in zip(results, step.written, strict=False)
        for part in row.touched(name, access)
    ]
    return read, changed


def _uninitialised(trace: Trace, huge: set[int], others: Sequence[Trace]) -> Iterator[Violation]:
    """Find what is read or returned, but was not written; not in tensors without a place.

    In HBM, what another program writes is written, whenever that is.
    """
    written = Written()
    shared = [info for info in trace.buffers if info.kind in ("output", "shared")]
    for other in others:
        twins = [info for info in other.buffers if info.kind in ("output", "shared")]
        twin = {theirs.id: own for own, theirs in zip(shared, twins, strict=False)}
        for step in other.steps:
            for access in step.written:
                own = twin.get(access.buffer.id)
                if own is not None and own.shape == access.buffer.shape and own.id not in huge:
                    written.write(replace(access, buffer=own))
    for step in trace.steps:
        read, changed = _touched(step)
        for access in read:
            if access.buffer.id in huge:
                continue
            missing = written.read(access)
            if missing is not None:
                yield Violation(
                    "uninitialised",
                    step.line,
                    f"{step.op} reads {missing}, which was not written",
                )
        for access in changed:
            if access.buffer.id not in huge:
                written.write(access)
    for info in trace.buffers:
        if info.kind == "output" and info.id not in huge:
            missing = written.read(Access.all_of(info))
            if missing is not None:
                yield Violation(
                    "uninitialised", info.line, f"{missing} is returned, but was never written"
                )
