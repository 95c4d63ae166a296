"""Base of the matches for Trainium: a function in the form in which its schedules begin."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import s_tir, tirx


@dataclass(frozen=True)
class PreparedMatch:
    """The computation of a function.

    - `sch`: what its schedules begin with: prepared, and fused if it is a reduction. It stays as it
      is.
    - `block`: the name of the reduction there; of the only block, if there is none.
    """

    sch: s_tir.Schedule = field(repr=False, compare=False)
    block: str

    @property
    def func(self) -> tirx.PrimFunc:
        """The function, with the parameters of the one that was given."""
        return self.sch.mod["main"]
