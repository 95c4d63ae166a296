"""One walk over a kernel: its tensors, its variables, and what became of its instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import Refused
from .expressions import Variables
from .grammar import SPACES
from .instructions import Instruction
from .memory import Memory
from .trace import BufferInfo, Step, Trace
from .values import Buffer, Tile
from .written import Written

#: Shape and type of an argument.
Spec = tuple[tuple[int, ...], str]


class Walk:
    """One walk over a kernel.

    Parameters
    ----------
    name : str
        The kernel's.
    execute : bool
        True: compute, and refuse to read what was not written. False: record the instructions.

    Attributes
    ----------
    trace : Trace
        The recorded steps.
    variables : dict[str, Any]
        Integers, tuples and tiles by name.
    """

    def __init__(self, name: str, execute: bool) -> None:
        self.trace = Trace(name)
        self.execute = execute
        self.variables: Variables = {}
        self.outputs: list[Tile] = []
        self.statements = 0
        self._memory = Memory() if execute else None
        self._written = Written()

    def allocate(
        self, name: str, shape: tuple[int, ...], dtype: str, memory: str, line: int
    ) -> Tile:
        """Make a new tensor, uninitialised."""
        info = BufferInfo(
            len(self.trace.buffers),
            name,
            SPACES[memory],
            shape,
            dtype,
            line,
            "output" if memory == "shared_hbm" else "temporary",
        )
        self.trace.buffers.append(info)
        return Tile.of(Buffer(info, memory=self._memory))

    def argument(self, name: str, spec: Spec, data: np.ndarray | None, line: int) -> None:
        """Bind a parameter."""
        info = BufferInfo(len(self.trace.buffers), name, "hbm", spec[0], spec[1], line, "input")
        self.trace.buffers.append(info)
        self.variables[name] = Tile.of(Buffer(info, data))

    def issue(self, it: Instruction, engine: str, args: dict[str, Any], line: int) -> None:
        """Execute or record one instruction."""
        dst: Tile | None = None
        srcs: list[Tile] = []
        names: list[str] = []
        constants: dict[str, Any] = {}
        for parameter in it.parameters:
            value = args[parameter.name]
            if isinstance(value, Tile):
                if parameter.kind == "dst":
                    dst = value
                elif parameter.kind in ("tile", "vector"):
                    srcs.append(value)
                    names.append(parameter.name)
                else:
                    raise Refused("language", f"{parameter.name} is not a tile")
                if value.access.partitions is None and it.name != "dma_copy":
                    raise Refused(
                        "memory",
                        f"{parameter.name} is in HBM, which only dma_copy reaches: copy it to SBUF",
                    )
                continue
            if value is parameter.default:
                continue
            _check_constant(it, parameter.name, parameter.kind, value)
            if value != parameter.default:
                constants[parameter.name] = value
        assert dst is not None
        if dst.buffer.info.kind == "input":
            raise Refused("language", f"'{dst.buffer.info.name}' is an input, which is only read")
        if it.name == "nc_matmul":
            args["accumulate"] = _accumulate(args["accumulate"], dst)
            constants["accumulate"] = args["accumulate"]
        it.fit(args)
        reads = [tile.access for tile in srcs]
        if args.get("accumulate"):
            reads.append(dst.access)
            names.append("dst")
        if dst.space == "psum":
            dst.buffer.written.append(dst.access)
        if not self.execute:
            steps, read = self.trace.steps, tuple(reads)
            steps.append(
                Step(len(steps), it.name, engine, line, dst.access, read, constants, tuple(names))
            )
            return
        for access in reads:
            missing = self._written.read(access)
            if missing is not None:
                raise Refused("uninitialised", f"{it.name} reads {missing}, which was not written")
        arrays = {k: v.array() if isinstance(v, Tile) else v for k, v in args.items()}
        it.run(arrays["dst"], arrays)
        self._written.write(dst.access)

    def finish(self, values: Sequence[Any]) -> None:
        """Take what the kernel returns."""
        for value in values:
            if (
                not isinstance(value, Tile)
                or value.buffer.info.kind != "output"
                or value.shape != value.buffer.info.shape
            ):
                raise Refused("language", "a kernel returns whole tensors of nl.shared_hbm")
            missing = self._written.read(value.access) if self.execute else None
            if missing is not None:
                raise Refused("uninitialised", f"{missing} is returned, but was never written")
            self.outputs.append(value)
        returned = {value.buffer.info.id for value in self.outputs}
        for info in self.trace.buffers:
            if info.kind == "output" and info.id not in returned:
                raise Refused(
                    "language", f"'{info.name}' is in nl.shared_hbm but not returned: use nl.hbm"
                )


def _check_constant(it: Instruction, name: str, kind: str, value: Any) -> None:
    """Refuse an argument that is neither a tile nor of the kind of the parameter."""
    good = True
    if kind in ("dst", "tile"):
        raise Refused("language", f"nisa.{it.name}: {name} is a tile")
    if kind in ("vector", "number"):
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif kind == "flag":
        good = isinstance(value, bool)
    elif kind == "axes":
        items = value if isinstance(value, tuple) else (value,)
        good = all(isinstance(n, int) and not isinstance(n, bool) for n in items)
    if not good:
        what = {"flag": "True or False", "axes": "an axis or a tuple of axes"}.get(kind, "a number")
        raise Refused("language", f"nisa.{it.name}: {name} is {what}")


def _accumulate(value: bool | None, dst: Tile) -> bool:
    """Decide what an omitted ``accumulate`` means."""
    if value is not None:
        return value
    if any(dst.access.overlaps(earlier) for earlier in dst.buffer.written):
        raise Refused(
            "accumulate",
            "dst was written before: say accumulate=True or False, such as accumulate=(k > 0)",
        )
    return False
