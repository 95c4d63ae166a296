"""The request for a plan: a function and a machine, prepared once for all kinds of problems."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx

from ...rewrites.epilogue import Epilogue, find_epilogue
from ...rewrites.prepare import Prepared, prepare


@dataclass(frozen=True)
class Request:
    """A function and a machine, with what all finders of problems read of the function.

    - `func`: not scheduled.
    - `machine`: Cpu, Gpu or fuse_epilogue.neuron.machine.Machine.
    - `finite`: whether all data and weights are finite; of Trainium only.
    - `round_shares`: whether attention may round its shares to the type of the values; of Trainium
      only.
    """

    func: tirx.PrimFunc
    machine: Any
    finite: bool = False
    round_shares: bool = False

    @cached_property
    def _prepared(self) -> Prepared:
        return prepare(self.func)

    def prepared(self) -> Prepared:
        """Return a schedule of the function, prepared, and its reduction; the caller owns it.

        - Returns: as :func:`fuse_epilogue.rewrites.prepare.prepare`.
        """
        made = self._prepared
        return None if made is None else (made[0].copy(), made[1])

    def prepare(self, func: tirx.PrimFunc) -> Prepared:
        """Return what :func:`~fuse_epilogue.rewrites.prepare.prepare` does, made once."""
        return self.prepared() if func.same_as(self.func) else prepare(func)

    def scheduled(self) -> tuple[s_tir.Schedule, Any]:
        """Return what :meth:`prepared` does, of a function for which a problem was found."""
        made = self.prepared()
        assert made is not None, "it was when the problem was found"
        return made

    @cached_property
    def epilogue(self) -> Epilogue | None:
        """The work after the reduction, None where it is not known: see :func:`find_epilogue`."""
        # Of a copy: what it looks for would be steps of the trace.
        made = self.prepared()
        return None if made is None else find_epilogue(*made)
