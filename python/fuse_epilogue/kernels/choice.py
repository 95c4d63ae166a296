"""The form of schedule that a rule chooses for a function, and the reasons against better ones."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir

from ..report import refusal_code


@dataclass(frozen=True)
class Choice:
    """The choice of a rule for a function.

    Attributes
    ----------
    form : str
        Description of the schedule.
    why : str
        Reasons against the better forms, if there are any.
    schedule : tvm.s_tir.Schedule or None
        With the scheduled function as "main". None: the rule does not know the function, and `why`
        says what it misses.
    """

    form: str
    why: str = ""
    schedule: s_tir.Schedule | None = None

    def __str__(self) -> str:
        """Return one line."""
        if self.schedule is None:
            return f"not scheduled: {self.why}"
        return f"{self.form}; {self.why}" if self.why else self.form


#: Reasons that exclude a form.
NO_CONVOLUTION = "its reduction is not a convolution of each channel with its own filter"
NO_TAIL = "what follows it does not compute one element from each of its sums"


def not_fused(error: s_tir.ScheduleError) -> str:
    """Return what is wrong where fusing was refused, with the name of the reason."""
    reason = refusal_code(error)
    return "what follows it cannot be fused" + (f" ('{reason}')" if reason else "")
