"""What random schedules for kernels are made of: drawing, and steps that several kinds share.

A primitive that TVM refuses at that place is left out; what is drawn is the attempt.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule.schedule import ScheduleError

from neuron_workloads import Workload

SBUF, PSUM = "trn.sbuf", "trn.psum"

#: What a block outside of the tiles of the others may lead to: its buffer holds all of the data.
APART = ("layout", "no-partition-loop", "partitions", "broadcast")


class Drawn:
    """A schedule drawn at random.

    - `kind`: of the workload.
    - `workload`: what is scheduled.
    - `sch` (Schedule): of the function.
    - `steps`: what was done, in words.
    - `risks`: codes of refusals that what was done may lead to.
    """

    def __init__(self, kind: str, workload: Workload, rng: random.Random) -> None:
        self.kind = kind
        self.workload = workload
        self.rng = rng
        self.sch = Schedule(workload.func, error_render_level="none")
        self.steps: list[str] = []
        self.risks: set[str] = set()

    def __str__(self) -> str:
        return f"{self.workload.label}: {', '.join(self.steps)}"

    # ---- Drawing -----------------------------------------------------------------------------

    def one(self, *choices: Any) -> Any:
        """Choose."""
        return self.rng.choice(choices)

    def maybe(self, share: float) -> bool:
        """Decide."""
        return self.rng.random() < share

    def attempt(self, step: str, do: Callable[[], Any], *risks: str) -> Any:
        """Do something if TVM and the primitive allow it; None if not."""
        try:
            made = do()
        except ScheduleError:
            return None
        self.steps.append(step)
        self.risks.update(risks)
        return made if made is not None else True

    # ---- Parts of schedules ------------------------------------------------------------------

    def blocks(self) -> list[Any]:
        """All blocks, in order."""
        return list(self.sch.get_child_blocks(self.sch.get_sblock("root")))

    def name(self, block: Any) -> str:
        return str(self.sch.get(block).name_hint)

    def split(self, loop: Any, most: int) -> tuple[Any, Any]:
        """Split a loop by a number of at most `most`; one that does not divide it makes a guard."""
        extent = int(self.sch.get(loop).extent.value)
        by = min(extent, most)
        by = self.one(by, by, max(1, by // 2), self.rng.randint(max(1, by // 3), by))
        self.steps.append(f"split {extent} by {by}")
        outer, inner = self.sch.split(loop, [None, by])
        return outer, inner

    def mark(self, **loops: Any) -> None:
        """Mark loops; the names are roles, numbers in them do not count."""
        for role, loop in loops.items():
            self.sch.annotate(loop, "nki_dim", role.rstrip("0123456789"))

    def unmarked(self) -> None:
        """Leave it to the emitter which loop counts partitions; it may choose a wrong one."""
        self.steps.append("no marks")
        self.risks.update(APART)

    def shuffled(self, loops: Sequence[Any]) -> list[Any]:
        loops = list(loops)
        self.rng.shuffle(loops)
        return loops

    def fuse(self, name: str, when: str) -> Any:
        """Fuse the bias before splitting, or all of the epilogue after it; return the block.

        What the latter leaves of the epilogue stands in the loops in which the sum is finished:
        among marked ones, if what is summed over lies inside of them.
        """
        block = self.sch.get_sblock(name)
        bias = [each for each in map(self.name, self.blocks()) if each in ("bias", "T_add")]
        if when == "before" and bias:
            self.attempt("bias fused", lambda: self.sch.fuse_reduction_epilogue(block, bias[0]))
            block = self.sch.get_sblock(name)
            try:
                self.sch.reorder(*self.sch.get_loops(block))
            except ScheduleError:
                # Something stands between the loops now: nothing could be done with them.
                self.sch = Schedule(self.workload.func, error_render_level="none")
                self.steps.pop()
        elif when == "after":
            self.attempt("fused after", lambda: self.sch.fuse_reduction_epilogue(block), "marks")
        return self.sch.get_sblock(name)

    def inputs_of(self, block: Any) -> list[int]:
        """Which of the buffers that a block reads are parameters."""
        params = {param.name for param in self.workload.func.params}
        reads = self.sch.get(block).reads
        return [i for i, region in enumerate(reads) if region.source.name in params]

    def inline(self, share: float) -> None:
        """Write some elementwise steps into the next one."""
        for block in self.blocks()[:-1]:
            name = self.name(block)
            if name not in ("pad", "pad_temp") and self.maybe(share):
                self.attempt(f"{name} inlined", lambda b=block: self.sch.compute_inline(b))

    def on_chip(
        self, main: Any, loops: Sequence[Any], scope: str = SBUF, first: Sequence[Any] = ()
    ) -> None:
        """Bring on the chip what blocks compute with, and take the result back.

        - `main` (SBlockRV): the block with the loops.
        - `loops` (Sequence): those of its loops that belong to the kernel, outermost first.
        - `scope`: memory of its result.
        - `first` (Sequence): blocks before it that compute.
        """
        sch, blocks = self.sch, self.blocks()
        position = [self.name(each) for each in blocks].index(self.name(main))
        tail = blocks[position + 1 :]
        for block in blocks[position:-1]:
            sch.set_scope(block, 0, scope if self.name(block) == self.name(main) else SBUF)
        if not tail and scope == PSUM:
            out = sch.cache_write(main, 0, PSUM)
            tail = [out, sch.cache_write(out, 0, SBUF)]
        else:
            tail.append(sch.cache_write(blocks[-1], 0, SBUF))
        self._after(tail, loops)
        for block in [*first, main, *tail[:-1]]:
            # Of several that are parameters the first is cached; the next one is then first.
            while found := self.inputs_of(block):
                copy = sch.cache_read(block, found[0], SBUF)
                self._before(copy, loops)
        for block in (*first, main, *tail[:-1]):
            if self.maybe(0.06):
                engine = self.one("vector", "scalar", "gpsimd")
                sch.annotate(block, "nki_engine", engine)
                self.steps.append(f"{self.name(block)} on {engine}")
                self.risks.add("engine")

    def _after(self, tail: Sequence[Any], loops: Sequence[Any]) -> None:
        """Compute blocks inside of loops of what they read, each not deeper than the last."""
        at = self.rng.randint(max(0, len(loops) - 2), len(loops)) if self.maybe(0.9) else 0
        for block in tail:
            at = at if self.maybe(0.8) else self.rng.randint(0, at)
            if not at:
                self.risks.update(APART)
                continue
            step = f"{self.name(block)} in loop {at}"
            loop = loops[at - 1]
            into = functools.partial(self.sch.reverse_compute_at, block, loop)
            if not self.attempt(step, into):
                self.risks.update(APART)

    def _before(self, copy: Any, loops: Sequence[Any]) -> None:
        """Copy inside of a loop, or everything before."""
        at = self.rng.randint(0, len(loops))
        step = f"{self.name(copy)} in loop {at}"
        if not at or not self.attempt(step, lambda: self.sch.compute_at(copy, loops[at - 1])):
            self.risks.update(APART)
