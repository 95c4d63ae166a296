"""The glossary of an explanation: the terms of a cost on each machine, and the variables."""

from __future__ import annotations

from ...neuron.machine import Machine
from ..backends import backend_of
from ..machines.cpu import Cpu
from ..machines.gpu import Gpu
from ..problems.cost import NAMES
from ..problems.problem import Problem
from ..problems.space import Variable


def terms(machine: Cpu | Gpu | Machine) -> tuple[str, ...]:
    """Return the terms that a machine has, of :data:`.cost.NAMES`."""
    return tuple(name for name in NAMES if name in backend_of(machine).terms)


def lines(machine: Cpu | Gpu | Machine, problem: Problem) -> list[str]:
    """Return what the terms and the variables of a problem are, in words."""
    variables = {each.name: _of(each) for each in problem.space.variables}
    meanings = {**backend_of(machine).terms, **variables}
    return ["what the words mean:", *(f"  {name}: {meaning}" for name, meaning in meanings.items())]


def _of(variable: Variable) -> str:
    """Return the meaning of a variable; some meanings begin after what they count."""
    begun = variable.meaning.startswith("of ") and variable.unit
    return f"{variable.unit} {variable.meaning}" if begun else variable.meaning
