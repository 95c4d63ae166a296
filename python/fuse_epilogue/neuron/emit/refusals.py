"""Refusals of the emitter: one row for each reason, with the way out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_WAYS_OUT = {
    "symbolic-shape": "a kernel is for one shape: make the function with numbers for its sizes",
    "statement": "kernels are loops around blocks that store; use ordinary schedule primitives",
    "thread-binding": "Trainium has no threads: leave the loop serial",
    "memory-scope": 'use "global" (HBM), "trn.sbuf" or "trn.psum"',
    "dtype": "the engines compute in float32: use float32, bfloat16 or float16",
    "in-place": "write to a buffer of its own",
    "marks": 'mark the innermost loops around one block, nki_dim = "P" or "F", after sch.reorder',
    "no-partition-loop": 'mark the loop over partitions with sch.annotate(loop, "nki_dim", "P")',
    "partitions": "an instruction has 128 partitions: split the loop",
    "not-affine": "index with sums of loop variables: do not fuse loops that are marked",
    "layout": "copy it in a block of its own, or use sch.transform_layout on the buffer",
    "broadcast": "each partition reads its own memory: copy it so from HBM, with cache_read",
    "reads-hbm": (
        'sch.cache_read(block, index, "trn.sbuf") brings it on the chip first; '
        "schedules.apply writes a whole schedule"
    ),
    "writes-hbm": (
        'sch.cache_write(block, 0, "trn.sbuf") keeps it on the chip first; '
        "schedules.apply writes a whole schedule"
    ),
    "dma": "transfer to SBUF, and convert or compute there",
    "reduction": "sum over a loop outside, over free loops, or as a product of two matrices",
    "matmul": (
        'mark k "P", the loop of the stationary operand "lhs_F", the other\'s "rhs_F"; '
        'sum in "trn.psum"'
    ),
    "expression": "compute it in several blocks, from what the instructions offer",
    "late": 'leave the annotation "nki_late" away, or move the block out of all loops',
    "engine": "leave the annotation away, or name an engine that has the instruction",
}

#: The codes of :class:`EmitError`, and for each what to do instead; its message says the reason.
REFUSALS: Mapping[str, str] = MappingProxyType(_WAYS_OUT)


class EmitError(ValueError):
    """A schedule that no kernel expresses; nothing was emitted.

    Attributes
    ----------
    code : str
        A key of :data:`fuse_epilogue.neuron.REFUSALS`.
    subject : str
        The block, loop or buffer it is about.
    reason : str
        The obstacle.
    """

    def __init__(self, code: str, subject: str, reason: str) -> None:
        super().__init__(f"{subject}: {reason}; {REFUSALS[code]} [{code}]")
        self.code = code
        self.subject = subject
        self.reason = reason
