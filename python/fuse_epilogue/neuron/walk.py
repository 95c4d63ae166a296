"""One walk over a kernel: its tensors, its variables, and what became of its instructions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import limits
from .arguments import accumulate_of, engine_of, taken_of
from .errors import Refused
from .isa import Instruction
from .language.grammar import SPACES
from .memory import Memory
from .peers import Peers
from .tile import Tile
from .trace import Access, BufferInfo, Step, Trace
from .values import Buffer
from .written import Written

if TYPE_CHECKING:
    from .language.modules import Module


class Spec(NamedTuple):
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """Return it as in ``float32 of shape (128, 64)``."""
        return f"{self.dtype} of shape {self.shape}"


@dataclass(frozen=True)
class Setting:
    """State of a walk over a kernel.

    - `generation`: generation of the NeuronCore: 2 for trn1, 3 for trn2, 4 for trn3.
    - `program`, `programs`: which of how many programs, ``nl.program_id(0)`` and
      ``nl.num_programs()``.
    """

    generation: int = 3
    program: int = 0
    programs: int = 1


class Walk:
    """One walk over a kernel.

    - `name`: the kernel's.
    - `execute`: True: compute, and refuse to read what was not written. False: record the
      instructions.
    - `setting`: where.
    - `peers`: the programs beside it, if it is executed.
    - `trace` (Trace): the recorded steps.
    - `line` (int): line of the statement of the kernel file that is executed.
    - `depth` (int): how many functions are being executed.
    """

    def __init__(
        self,
        name: str,
        execute: bool,
        setting: Setting | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.trace = Trace(name)
        self.execute = execute
        self.setting = setting or Setting()
        self.inputs: list[Tile] = []
        self.outputs: list[Tile] = []
        self.statements = 0
        self.line = 1
        self.depth = 0
        self.executed: set[tuple[Module, ast.stmt]] = set()
        self.defaults: dict[tuple[ast.AST, str], Any] = {}
        self._globals: dict[Module, dict[str, Any]] = {}
        self._names: dict[tuple[object, ...], list[str]] = {}
        self._memory = Memory() if execute else None
        self._written = Written()
        self._shared = 0
        # Registers that reductions go to, by engine: whether they hold any, and what.
        self._accumulating: set[str] = set()
        self._accumulators: dict[str, np.ndarray] = {}
        self.collective = False
        self.peers = peers

    # ---- What the language asks for ----------------------------------------------------------

    @property
    def generation(self) -> int:
        """Generation of the NeuronCore."""
        return self.setting.generation

    @property
    def program(self) -> int:
        """Number of this program among those that share the kernel."""
        return self.setting.program

    @property
    def programs(self) -> int:
        """Number of programs."""
        return self.setting.programs

    def globals_of(self, module: Module) -> dict[str, Any]:
        """Return the names of a file that have a value."""
        return self._globals.setdefault(module, {})

    def number(self, tile: Tile) -> int | None:
        """Return the only element of a tile, None if nothing is executed."""
        if not self.execute:
            return None
        missing = self._marks(tile.access).read(tile.access)
        if missing is not None:
            raise Refused("uninitialised", f"a register reads {missing}, which was not written")
        return int(tile.array().reshape(-1)[0])

    def count(self, statements: int) -> None:
        """Count statements and iterations of loops.

        - Raises Refused: there are too many.
        """
        self.statements += statements
        if self.statements > limits.MOST_STATEMENTS:
            raise limits.too_many()

    def allocate(self, name: str, shape: tuple[int, ...], dtype: str, memory: str) -> Tile:
        """Make a new tensor, uninitialised."""
        info = BufferInfo(
            len(self.trace.buffers),
            name,
            SPACES[memory],
            shape,
            dtype,
            self.line,
            "output" if memory == "shared_hbm" else "temporary",
        )
        self.trace.buffers.append(info)
        buffer = Buffer(info, memory=self._memory, name=memory)
        if self.peers is not None and memory == "shared_hbm":
            buffer = self._common(buffer)
        return Tile.of(buffer)

    def _common(self, buffer: Buffer) -> Buffer:
        """Return a tensor that all programs see: the one that the first of them has allocated."""
        assert self.peers is not None
        known, at = self.peers.shared, self._shared
        self._shared += 1
        if at == len(known):
            known.append(buffer)
        if (known[at].info.shape, known[at].info.dtype) != (buffer.info.shape, buffer.info.dtype):
            raise Refused("language", "programs allocate the same tensors in nl.shared_hbm")
        self.trace.buffers[-1] = known[at].info
        return known[at]

    def _marks(self, access: Access) -> Written:
        """Return where it is noted what was written."""
        if self.peers is not None and access.buffer.kind != "temporary":
            return self.peers.written
        return self._written

    def argument(self, name: str, spec: Spec, data: np.ndarray | None, line: int) -> Tile:
        """Return the tensor of a parameter."""
        info = BufferInfo(len(self.trace.buffers), name, "hbm", spec[0], spec[1], line, "input")
        self.trace.buffers.append(info)
        buffer = Buffer(info, data, name="shared_hbm")
        if self.peers is not None:
            buffer = self._common(buffer)
        self.inputs.append(Tile.of(buffer))
        return self.inputs[-1]

    # ---- Instructions ------------------------------------------------------------------------

    def instruction(self, it: Instruction, args: list[Any], named: dict[str, Any]) -> None:
        """Execute or record the instruction of a call."""
        key = (it.name, len(args), *named)
        names = self._names.get(key)
        if names is None:
            from .language.calls import bind_names

            names = self._names[key] = bind_names(it, len(args), list(named))
        given = dict(zip(names, (*args, *named.values()), strict=True))
        wanted = given.pop("engine", None) if "engine" not in it.ignored else None
        self._issue(it, wanted, given)

    def _issue(self, it: Instruction, wanted: Any, given: dict[str, Any]) -> None:
        taken = taken_of(it, given)
        args, written, read = taken.args, taken.written, taken.read
        dst: Any = args.get("dst")
        for tile in written:
            self._writable(tile)
        if "accumulate" in args:
            args["accumulate"] = accumulate_of(args["accumulate"], dst)
            taken.constants["accumulate"] = args["accumulate"]
        it.fit(args)
        engine = engine_of(it, wanted, args)
        self.collective = self.collective or it.between_machines
        if it.reads_dst(args):
            read.append(("dst", dst))
        if "reduce_res" in args or "reduce_cmd" in args:
            self._accumulate(engine, args)
        for tile in written:
            if tile.space == "psum":
                tile.buffer.written.append((it.name, tile.access))
        if self.execute:
            self._execute(it, engine, args, read, written)
        else:
            self._record(it, engine, written, read, taken.constants)

    def _accumulate(self, engine: str, args: dict[str, Any]) -> None:
        """Note whether the registers that an engine reduces into hold a result.

        - Raises Refused: a reduction goes on, or is read out, that no instruction of the engine has
          begun.
        """
        command = args.get("reduce_cmd", "reset_reduce")
        if command == "idle" and engine == "vector":
            self._accumulating.discard(engine)
        elif command not in ("idle", "reduce"):
            self._accumulating.add(engine)
        read_out = command == "idle" and args.get("reduce_res") is not None
        if (read_out or command == "reduce") and engine not in self._accumulating:
            raise Refused(
                "uninitialised",
                f"reduce_cmd.{command} takes what the registers of the {engine} engine hold, but "
                "no earlier reduce_cmd.reset_reduce began a reduction there",
            )

    def _record(
        self,
        it: Instruction,
        engine: str,
        written: list[Tile],
        read: list[tuple[str, Tile]],
        constants: dict[str, Any],
    ) -> None:
        srcs, names = [tile.access for _, tile in read], [name for name, _ in read]
        for tile in (*written, *(tile for _, tile in read)):
            if tile.indirect is not None and isinstance(tile.indirect.places, Tile):
                srcs.append(tile.indirect.places.access)
                names.append("index")
        self.trace.steps.append(
            Step(
                len(self.trace.steps),
                it.name,
                engine,
                self.line,
                written[0].access if written else None,
                tuple(srcs),
                constants,
                tuple(names),
                tuple([tile.access for tile in written[1:]]),
            )
        )

    def _execute(
        self,
        it: Instruction,
        engine: str,
        args: dict[str, Any],
        read: list[tuple[str, Tile]],
        written: list[Tile],
    ) -> None:
        for tile in (*(tile for _, tile in read), *written):
            if tile.indirect is not None and isinstance(tile.indirect.places, Tile):
                self._known(it, tile.indirect.places.access)
        for name, tile in read:
            if name not in it.partly:
                for access in it.touched(name, tile.placed().access):
                    self._known(it, access)
        args = {key: v.placed() if isinstance(v, Tile) else v for key, v in args.items()}
        arrays = {key: _array(value) for key, value in args.items()}
        arrays["peers"], arrays["program"] = self.peers, self.program
        arrays["engine"], arrays["accumulators"] = engine, self._accumulators
        arrays["types"] = {k: v.dtype for k, v in args.items() if isinstance(v, Tile)}
        dst: Any = arrays.get("dst")
        it.run(dst, arrays)
        for parameter in it.parameters:
            value = args.get(parameter.name)
            if isinstance(value, Tile) and parameter.kind in ("dst", "result"):
                if value.indirect is not None:
                    value.scatter(arrays[parameter.name])
                for access in it.touched(parameter.name, value.access):
                    self._marks(access).write(access)

    def _known(self, it: Instruction, access: Access) -> None:
        missing = self._marks(access).read(access)
        if missing is not None:
            raise Refused("uninitialised", f"{it.name} reads {missing}, which was not written")

    def _writable(self, tile: Tile) -> None:
        """Note that an argument is written: the caller's array changes, as on the machine."""
        if tile.buffer.info.kind == "input":
            tile.buffer.info.kind = "updated"
            tile.buffer.own()

    # ---- Results -----------------------------------------------------------------------------

    def finish(self, returned: Any) -> None:
        """Take what the kernel returns."""
        infos = self.trace.buffers
        if self.peers is not None:
            self.peers.wait("the end")
        for value in _results(returned):
            if (
                not isinstance(value, Tile)
                or value.buffer.info.kind == "temporary"
                or value.access != Access.all_of(value.buffer.info)
            ):
                raise Refused(
                    "language",
                    "a kernel returns only whole tensors of nl.shared_hbm, or arguments",
                )
            missing = self._marks(value.access).read(value.access) if self.execute else None
            if missing is not None:
                raise Refused("uninitialised", f"{missing} is returned, but was never written")
            self.outputs.append(value)
        if not self.outputs and not any(info.kind == "updated" for info in infos):
            raise Refused(
                "language",
                "the kernel has no result: end it with `return`, or write to one of its arguments",
            )
        ids = {value.buffer.info.id for value in self.outputs}
        for info in infos:
            if info.kind == "output" and info.id not in ids:
                # Between programs and machines it is a place to exchange data.
                if self.programs == 1 and not self.collective:
                    raise Refused(
                        "language",
                        f"'{info.name}' is in nl.shared_hbm but not returned: use nl.hbm",
                    )
                info.kind = "shared"


def _results(returned: Any) -> Sequence[Any]:
    if returned is None:
        return ()
    if isinstance(returned, dict):
        returned = list(returned.values())
    return returned if isinstance(returned, (tuple, list)) else (returned,)


def _array(value: Any) -> Any:
    """Return the data of a tile, or of several."""
    if isinstance(value, Tile):
        return value.array()
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tile):
        return [tile.array() for tile in value]
    return value
