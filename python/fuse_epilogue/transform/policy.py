"""Decides whether what can be fused is fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tvm import tirx

from ..planner import plan
from ..planner.backends import backend_of
from ..report import FusionReport
from ..rewrites.epilogue import ABSORBED, NONE, TAIL
from .fuse_one import Balance, Fused

#: The words that ``policy`` may be.
PolicyName: TypeAlias = Literal["planner", "always", "never"]

#: What ``policy`` may be, and what it means.
POLICIES: dict[PolicyName, str] = {
    "planner": "by the costs of a plan where the planner knows the function for the target, and by "
    "what the intermediates are worth elsewhere",
    "always": "whatever the primitive does not refuse",
    "never": "nothing: for the report of what could be fused",
}

#: Terms of later sums that a processor can begin while it finishes one: it holds some 450
#: to 510 instructions (AMD Zen 5 has a reorder buffer of 448, Intel Golden Cove of 512), and a
#: term in an unscheduled loop takes about four of them.
TERMS_AHEAD = 128


@dataclass(frozen=True)
class Decision:
    """Whether to fuse, and why.

    - `why`: a sentence without its full stop.
    """

    fuse: bool
    why: str


class Policy:
    """Decides for the reductions of one function after the other.

    - `name`: a key of :data:`POLICIES`.
    - `target` (tvm.target.Target or str or dict or None): target of the plans; nothing is planned
      without one.
    - `final`: whether loops stay as they are: what a row costs in them counts then.
    """

    def __init__(self, name: str, target: Any, final: bool) -> None:
        """Take the policy; nothing is planned yet."""
        self.name = name
        self.target = target
        self.final = final

    def decide(
        self, func: tirx.PrimFunc, reductions: int, fused: Fused, fused_before: bool
    ) -> Decision:
        """Decide for a reduction that can be fused.

        - `func`: before anything of it was fused.
        - `reductions`: how many it has: the planner knows functions with a single one.
        - `fused`: the value in that case.
        - `fused_before`: whether the function has been fused by an earlier run: there is no plan
          for the rest.
        """
        if self.name == "always":
            return Decision(True, "the policy is to fuse always")
        if self.name == "never":
            return Decision(False, "the policy is never to fuse")
        if self.target is not None and reductions == 1 and not fused_before:
            planned = self._planned(func, fused.fusion)
            if planned is not None:
                return planned
        worth = by_bytes(fused.balance.bytes_saved)
        return by_calls(fused.balance) or worth if self.final and worth.fuse else worth

    def _planned(self, func: tirx.PrimFunc, fusion: FusionReport) -> Decision | None:
        """Return what the plan of the function says; None if there is none, or not about this.

        Only the way that `fusion` goes is compared with the function as it is: another one may be
        the fastest, but is not what would be done.
        """
        try:
            planned = plan(func, self.target)
        except ValueError:  # the planner does not know the function, or no point is feasible
            return None
        way = ABSORBED if any(step.absorbed for step in fusion.steps) else TAIL
        fused, unfused = planned.cost_of(way), planned.cost_of(NONE)
        if fused is None or unfused is None:
            return None
        name = backend_of(planned.machine).way(way)
        costs = f"{fused * 1e6:.3g} us {name}, {unfused * 1e6:.3g} us unfused"
        if fused <= unfused:
            return Decision(True, f"the planner predicts {costs}")
        return Decision(False, f"the planner predicts that it costs more: {costs}")


def by_bytes(bytes_saved: int | None) -> Decision:
    """Decide by the bytes of the intermediates.

    >>> by_bytes(4096)
    Decision(fuse=True, why='4,096 bytes of intermediates are saved')
    >>> by_bytes(0).fuse
    False
    """
    if bytes_saved is None:
        return Decision(True, "intermediates are saved, of a size that is a symbol")
    if bytes_saved > 0:
        return Decision(True, f"{bytes_saved:,} bytes of intermediates are saved")
    return Decision(False, "no intermediate would become smaller")


def by_calls(balance: Balance) -> Decision | None:
    """Decide against functions such as exp after rows that are too short; None if that is not so.

    A rule that fits times, on one processor (AMD Zen 5) with one version of LLVM: after sums of
    many terms, rows of a few elements took up to 1.7 times as long as a separate pass, long rows
    and short sums did not. The likely reason: such a function branches on its argument, and a
    mispredicted branch is known only when the sum is there, which throws away what was begun of
    later sums, up to :data:`TERMS_AHEAD` terms for each row. Mispredictions were not counted. An
    element of an intermediate that is not stored and loaded is taken to be worth one term.

    >>> rows_of_8 = Balance(12224, 3056, 64, 64, True)  # 64 x 64 x 8, GELU
    >>> by_calls(rows_of_8).fuse
    False
    >>> by_calls(Balance(12224, 3056, 64, 9, True)) is None  # sums of 9 terms
    True
    """
    elements, rounds = balance.elements_saved, balance.rounds
    if not balance.calls or elements is None or not rounds:
        return None
    lost = TERMS_AHEAD if balance.terms is None else min(balance.terms, TERMS_AHEAD)
    if elements >= lost * rounds:
        return None
    return Decision(
        False,
        f"its tail calls a function such as exp, and saves {elements / rounds:.3g} elements of "
        f"intermediates each time: less than the {lost} terms that waiting for such a "
        "function is taken to cost",
    )
