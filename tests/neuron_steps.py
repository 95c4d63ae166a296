"""Steps of a kernel built by hand."""

from __future__ import annotations

from typing import Any

from fuse_epilogue.neuron.trace import Access, BufferInfo, Step, Trace, merged


class Builder:
    """Collects buffers and instructions."""

    def __init__(self) -> None:
        self.trace = Trace("by_hand")

    def buffer(self, space: str, shape: tuple[int, ...], dtype: str = "float32") -> BufferInfo:
        info = BufferInfo(
            len(self.trace.buffers),
            f"t{len(self.trace.buffers)}",
            space,
            shape,
            dtype,
            1,
            "temporary",
        )
        self.trace.buffers.append(info)
        return info

    def step(self, op: str, engine: str, dst: Access, *srcs: Access, **constants: Any) -> Step:
        made = Step(len(self.trace.steps), op, engine, 1, dst, srcs, constants)
        self.trace.steps.append(made)
        return made


def access(
    buffer: BufferInfo,
    offset: int = 0,
    pattern: tuple[tuple[int, int], ...] | None = None,
    partitions: tuple[int, int] | None = None,
) -> Access:
    """Make an access; without a pattern to everything behind the offset's first element."""
    on_chip = buffer.space != "hbm"
    sizes = buffer.shape[1:] if on_chip else buffer.shape
    if pattern is None:
        pattern = tuple(zip(buffer.strides, sizes, strict=True))
    if on_chip and partitions is None:
        partitions = (0, buffer.shape[0])
    counts = tuple(count for _, count in pattern)
    shape = counts if partitions is None else (partitions[1], *counts)
    return Access(buffer, offset, merged(pattern), partitions, buffer.dtype, shape)
