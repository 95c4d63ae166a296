"""A GPU as the planner sees it: multiprocessors, what each holds and executes, memory.

All that a search needs of a machine is here and nowhere else. The limits of a block come from TVM's
target where it states them, the rest from :data:`.gpu_table.CHIPS`, a table with its sources.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from tvm.target import Target

from ..json_schema import Many, Name, Seconds, parsed
from .gpu_table import CHIPS, KIB, Chip

#: Where TVM's target does not say, and the same for all compute capabilities from 7.0 on: CUDA C++
#: Programming Guide, "Technical Specifications per Compute Capability". More shared memory than
#: this a block only gets as "dynamic" memory, which no schedule here asks for.
_REGISTERS, _THREAD_REGISTERS, _BLOCK_SHARED = 65536, 255, 48 * KIB
_SCHEDULERS = 4
#: What TVM's target may state: the attribute of :class:`Gpu`, by that of the target. Of two for the
#: same, the last counts.
_STATED = MappingProxyType(
    {
        "max_num_threads": "block_threads",
        "max_threads_per_block": "block_threads",
        "registers_per_block": "block_registers",
        "max_shared_memory_per_block": "block_shared",
        "thread_warp_size": "warp",
    }
)
#: Values of a target's attribute that do not name a product.
_UNNAMED = ("", "unknown")
#: More than any GPU has of these: what is beyond is a mistake.
_MOST = 1 << 31


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes
    ----------
    name : str
        Name of the product.
    chip : Chip
        Properties of it that the target does not name.
    warp : int
        Threads that execute an instruction together.
    block_threads, block_registers, block_shared : int
        Threads, registers of 32 bits and bytes of shared memory of a block, at most.
    thread_registers : int
        Registers of a thread, at most.
    registers : int
        Registers of a multiprocessor.
    schedulers : int
        Schedulers of a multiprocessor; each starts an instruction of a warp in a clock.
    launch_s : float
        Seconds that a kernel takes on top of what it computes.
    """

    name: Name
    chip: Chip
    warp: Many = 32
    block_threads: Many = 1024
    block_registers: Many = _REGISTERS
    block_shared: Many = _BLOCK_SHARED
    thread_registers: Many = _THREAD_REGISTERS
    registers: Many = _REGISTERS
    schedulers: Many = _SCHEDULERS
    launch_s: Seconds = 0.9e-6

    @property
    def warps(self) -> int:
        """Warps that a multiprocessor has at a time, at most."""
        return self.chip.threads // self.warp

    @property
    def l2_bytes_per_s(self) -> float:
        """Bandwidth of the second cache, for all multiprocessors together."""
        return self.chip.l2_bytes_per_clock * self.chip.clock_hz

    @property
    def target(self) -> Target:
        """The target that TVM compiles for."""
        return Target({"kind": "cuda", "arch": self.chip.arch})

    def __str__(self) -> str:
        """Return its name and what there is of it."""
        return f"{self.name} ({self.chip.arch}, {self.chip.multiprocessors} multiprocessors)"

    def roofs(self, bits: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return what no function exceeds, without tensor cores, for elements of any size.

        Returns
        -------
        tuple[dict[str, float], dict[str, float]]
            Operations in a second, and bytes in a second by where they come from.
        """
        del bits  # arithmetic is in 32 bits, whatever is loaded
        chip = self.chip
        flops = 2 * chip.fma * chip.multiprocessors * chip.clock_hz
        roofs = {"L2": self.l2_bytes_per_s, "memory": chip.memory_bytes_per_s}
        return {"all multiprocessors": flops}, roofs

    def only(self, name: str) -> Gpu:
        """Return it with a second for each byte out of one level and none for those of others.

        The traffic of a point, in seconds, is then the bytes that it moves out of that level.
        """
        rates = {"L2": float("inf"), "memory": float("inf"), name: 1.0}
        chip = replace(
            self.chip,
            l2_bytes_per_clock=rates["L2"] / self.chip.clock_hz,
            memory_bytes_per_s=rates["memory"],
        )
        return replace(self, chip=chip)

    def to_json(self) -> str:
        """Return the description as JSON."""
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def from_json(text: str) -> Gpu:
        """Return what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            The text is not such a description.
        """
        made: Gpu = parsed(Gpu, text, "this is not a description of a GPU")
        return made


def gpu(target: Target | str | dict[str, Any]) -> Gpu:
    """Return the GPU that a target names.

    - `target` (tvm.target.Target, str or dict): target of kind "cuda". Its "model" is a name of
      :data:`.gpu_table.CHIPS`; without one, its "arch" decides: {"kind": "cuda", "arch": "sm_90"}
      is an H100. Its limits of blocks are taken.
    - Raises ValueError: the target is of another kind, of a model or an architecture that is not in
      the table, or of a model that has another architecture, or states of a block what no GPU has.

    >>> gpu({"kind": "cuda", "arch": "sm_90"}).chip.multiprocessors
    132
    """
    target = target if isinstance(target, Target) else Target(target)
    if target.kind.name != "cuda":
        raise ValueError(f"this is for GPUs of kind 'cuda', not for '{target.kind.name}'")
    attrs = target.attrs
    name = _named(str(attrs.get("model", "")), str(attrs.get("arch", "")))
    given = {}
    for attribute, field in _STATED.items():
        if attrs.get(attribute) is not None:
            given[field] = int(attrs[attribute])
            if not 1 <= given[field] <= _MOST:
                raise ValueError(
                    f"'{attribute}' of the target must be from 1 to {_MOST}, not {given[field]}: "
                    "leave it out for what is known of the GPU"
                )
    return Gpu(name, CHIPS[name], **given)


def _named(model: str, arch: str) -> str:
    """Return the name in the table of what a target says of its product and its instructions."""
    # The letter of "sm_90a" adds instructions; the machine is the same.
    same = [name for name, chip in CHIPS.items() if chip.arch == arch.rstrip("af")]
    known = ", ".join(f"{chip.arch} ({name})" for name, chip in CHIPS.items())
    describe = "or a planner.machines.gpu.Gpu that describes yours"
    if model not in _UNNAMED:
        if model not in CHIPS:
            raise ValueError(
                f"the planner does not know a GPU of model '{model}', only {known}: pass one of "
                f"these, leave the model out for the first of its architecture, {describe}"
            )
        if model not in same:
            raise ValueError(
                f"the target is of model '{model}', which has architecture '{CHIPS[model].arch}', "
                f"and of architecture '{arch}' (TVM sets one where none is stated): state "
                f"'{CHIPS[model].arch}', or leave the model out"
            )
        return model
    if not same:
        raise ValueError(
            f"the planner does not know a GPU of architecture '{arch}', only {known}: pass one "
            f"of these, {describe}"
        )
    return same[0]
