"""Base of the rules for Trainium: TVM's interface to call them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tvm import s_tir, tirx

from ...neuron.machine import Machine, machine
from ..choice import Choice


class NeuronRule(ABC):
    """Schedules one kind of function for Trainium."""

    def apply(
        self, func: tirx.PrimFunc, target: str | Machine, tunable: bool = False
    ) -> s_tir.Schedule | None:
        """Return the scheduled function as "main", or None if the rule does not know it.

        The schedule's trace replays on the function, from JSON as well.

        - `func`: with constant sizes, not scheduled.
        - `target`: ``"trn1"``, ``"trn2"`` or ``"trn3"``.
        - `tunable`: not used: nothing is left to tune.
        """
        return self.choose(func, target).schedule

    def choose(self, func: tirx.PrimFunc, target: str | Machine) -> Choice:
        """Return how a function is scheduled, and why not at all."""
        return self._choose(func, machine(target))

    @abstractmethod
    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice: ...


#: Why data have to be finite where the tensor engine transposes.
SPOILS = "the tensor engine of trn1 spoils elements beside infinities and NaN when it transposes"


def spoils(core: Machine, finite: bool) -> bool:
    """Return whether a machine's tensor engine cannot transpose the data as they are."""
    return core.name == "trn1" and not finite


class TransposingRule(NeuronRule):
    """A rule whose kernels transpose on the tensor engine.

    On trn1 that is a product with the identity: 0 times an infinity or NaN spoils other elements.

    - `finite`: everything that is transposed is finite; needed on trn1 only.
    """

    def __init__(self, finite: bool = False) -> None:
        self.finite = finite

    def _refused(self, core: Machine) -> Choice | None:
        """Return why a machine's tensor engine cannot transpose any data, None if it can."""
        if not spoils(core, self.finite):
            return None
        finite = f"schedules.neuron.{type(self).__name__}(finite=True)"
        return Choice("", f"{SPOILS}: use {finite} if there are none")
