"""Writes a kernel: loops, allocations and, block by block, the instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from .instructions import Instructions
from .layout import Layout
from .program import Allocate, Leaf, Loop, Node, Once, Program, Tensor
from .reductions import Total, total_of
from .text import Text

HEADER = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\n"


def write(program: Program, layouts: Mapping[int, Layout]) -> str:
    """Return the text of a kernel.

    - `program`: the function, with the axes of all blocks known.
    - `layouts`: layouts of the buffers on the chip, by ``id`` of the tensor.
    - Raises EmitError: no instruction computes something.
    """
    widened: frozenset[str] = frozenset()
    while True:
        # What has to be widened is known once all instructions are: then it is written again.
        writer = _Writer(program, layouts, widened)
        text = writer.kernel()
        wanted = widened | writer.instructions.wanted
        if wanted == widened:
            return text
        widened = wanted


class _Writer:
    def __init__(
        self, program: Program, layouts: Mapping[int, Layout], widened: frozenset[str]
    ) -> None:
        self.program = program
        self.layouts = layouts
        self.text = Text()
        # Each attempt has the same names.
        attempt = replace(program, names=program.names.copy())
        self.instructions = Instructions(attempt, layouts, widened, self.text)

    def kernel(self) -> str:
        """Write everything."""
        program = self.program
        inputs = [t for t in program.parameters if t.kind == "input"]
        outputs = [t for t in program.parameters if t.kind == "output"]
        self.text.depth = 1
        for tensor in outputs:
            self.text.add(_allocation(tensor, tensor.shape, "shared_hbm"))
        mark = len(self.text.lines)
        self.nodes(program.body)
        self.text.add(f"return {', '.join(t.name for t in outputs)}")
        self.text.lines[mark:mark] = [*self.tables(), *self.instructions.constants()]
        head = [f"def {program.name}({', '.join(t.name for t in inputs)}):"]
        head.append(f'    """{_signature(inputs)} -> {_signature(outputs)}."""')
        if len(head[1]) > 100:
            head[1:] = [
                f'    """{_signature(inputs)}',
                "",
                f"    -> {_signature(outputs)}.",
                '    """',
            ]
        return HEADER + "\n".join([*head, *self.text.lines]) + "\n"

    def tables(self) -> list[str]:
        """Return the lines that copy tables of addresses to SBUF, each into one partition."""
        lines = []
        for name, table in self.program.tables.items():
            (count,) = table.shape
            lines.append(f"    {name} = nl.ndarray((1, {count}), nl.int32, buffer=nl.sbuf)")
            source = f"{table.name}.ap([[{count}, 1], [1, {count}]], offset=0)"
            lines.append(f"    nisa.dma_copy({name}, {source})")
        return lines

    def nodes(self, nodes: list[Node]) -> None:
        """Write statements."""
        rest = list(nodes)
        while rest:
            node = rest.pop(0)
            match node:
                case Loop(name, extent, body):
                    with self.loop(name, extent):
                        self.nodes(body)
                case Once(loops, body):
                    with self.text.when(f"{name} == 0" for name in loops):
                        self.nodes(body)
                case Allocate(tensor):
                    self.allocate(tensor)
                case Leaf():
                    after = next((each for each in rest if not isinstance(each, Allocate)), None)
                    total = total_of(node, after) if isinstance(after, Leaf) else None
                    if total is None or not isinstance(after, Leaf):
                        self.leaf(node)
                        continue
                    at = rest.index(after)
                    self.nodes(rest[:at])  # Where buffers begin to live.
                    del rest[:at]
                    if self.both(node, after, total):
                        del rest[0]

    @contextmanager
    def loop(self, name: str, extent: int) -> Iterator[None]:
        """Write a loop."""
        with self.text.inside(f"for {name} in range({extent}):"):
            yield

    def allocate(self, tensor: Tensor) -> None:
        """Write where a buffer begins to live; an unused buffer has no layout."""
        if tensor.space == "hbm":
            self.text.add(_allocation(tensor, tensor.shape, "hbm"))
        elif id(tensor) in self.layouts:
            shape = self.layouts[id(tensor)].shape(tensor)
            self.text.add(_allocation(tensor, shape, tensor.space))
            if tensor.name in self.instructions.widened:
                name = self.instructions.elementwise.wide(tensor.name)
                wide = replace(tensor, name=name, dtype="float32")
                self.text.add(_allocation(wide, shape, "sbuf"))

    def leaf(self, leaf: Leaf) -> None:
        """Write a block."""
        covered = {axis.name for axis in leaf.axes}
        self._within([pair for pair in leaf.own if pair[0] not in covered], leaf)

    def both(self, leaf: Leaf, after: Leaf, total: Total) -> bool:
        """Write a block and, if one instruction does both, the one that reduces its elements.

        - Returns: whether both are written, not the first one alone.
        """
        self.text.add(f"# {leaf.block}, {after.block}")
        head = len(self.text.lines) - 1
        together = self.instructions.write_with_total(leaf, total)
        if not together:
            self.text.lines[head] = self.text.lines[head].replace(f", {after.block}", "")
        return together

    def _within(self, outer: list[tuple[str, int]], leaf: Leaf) -> None:
        if outer:
            with self.loop(*outer[0]):
                self._within(outer[1:], leaf)
            return
        self.text.add(f"# {leaf.block}")
        self.instructions.write(leaf)


def _allocation(tensor: Tensor, shape: tuple[int, ...], space: str) -> str:
    sizes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    return f"{tensor.name} = nl.ndarray(({sizes}), nl.{tensor.dtype}, buffer=nl.{space})"


def _signature(tensors: list[Tensor]) -> str:
    said = [f"{t.name}[{', '.join(map(str, t.shape))}] {t.dtype}" for t in tensors]
    return ", ".join(said) or "nothing"
