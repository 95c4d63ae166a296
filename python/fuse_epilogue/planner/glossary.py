"""What the words of an explanation mean: the terms of a cost on each machine, and variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..neuron.machine import Machine
from .cost import NAMES
from .gpu import Gpu
from .machine import Cpu
from .problems.problem import Problem
from .space import Variable

_SPILL = "storing and loading what the registers do not hold"
#: By kind of machine, what each term is; in the order of :data:`.cost.NAMES`.
TERMS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        Cpu: {
            "traffic": "moving data to and from caches and memory, what that takes longer than "
            "computing",
            "latency": "all instructions on one core, the call, and starting parallel loops",
            "spill": _SPILL,
            "parallelism": "what several cores save of the latency: it is taken off",
        },
        Gpu: {
            "traffic": "moving data to and from the second cache and the memory",
            "latency": "all instructions on one multiprocessor, or what they wait for each other, "
            "and the launches",
            "spill": _SPILL,
            "parallelism": "what all multiprocessors save of the latency: it is taken off",
        },
        Machine: {
            "traffic": "all bytes at the full rate of the DMA engines",
            "latency": "what the busiest engine takes longer than that",
            "more": "what is predicted beyond these two: waiting, and short transfers",
        },
    }
)


def terms(machine: Cpu | Gpu | Machine) -> tuple[str, ...]:
    """Return the terms that a machine has, of :data:`.cost.NAMES`."""
    return tuple(name for name in NAMES if name in TERMS[type(machine)])


def lines(machine: Cpu | Gpu | Machine, problem: Problem) -> list[str]:
    """Return what the terms and the variables of a problem are, in words."""
    told = {**TERMS[type(machine)], **{each.name: _of(each) for each in problem.space.variables}}
    return ["what the words mean:", *(f"  {name}: {meaning}" for name, meaning in told.items())]


def _of(variable: Variable) -> str:
    """Return the meaning of a variable; some meanings begin after what they count."""
    begun = variable.meaning.startswith("of ") and variable.unit
    return f"{variable.unit} {variable.meaning}" if begun else variable.meaning
