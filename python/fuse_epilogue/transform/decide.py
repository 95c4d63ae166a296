"""Decides whether what can be fused is fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

#: What ``policy`` may be, and what it means.
POLICIES = {
    "planner": "by the costs of a plan where the planner knows the function for the target, and by "
    "the bytes of the intermediates elsewhere",
    "always": "whatever the primitive does not refuse",
    "never": "nothing: for the report of what could be fused",
}


@dataclass(frozen=True)
class Decision:
    """Whether to fuse, and why.

    Attributes
    ----------
    fuse : bool
    why : str
        A sentence without its full stop.
    """

    fuse: bool
    why: str


class Policy:
    """Decides for the reductions of one function after the other.

    Parameters
    ----------
    name : str
        A key of :data:`POLICIES`.
    target : tvm.target.Target or str or dict or None
        Of the plans; without one there are no plans.
    """

    def __init__(self, name: str, target: Any) -> None:
        """Take the policy; nothing is planned yet."""
        self.name = name
        self.target = target

    def decide(
        self, func: tirx.PrimFunc, reductions: int, bytes_saved: int | None, fused_before: bool
    ) -> Decision:
        """Decide for a reduction that can be fused.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc
            Before anything of it was fused.
        reductions : int
            How many it has: the planner knows functions with a single one.
        bytes_saved : int or None
            Bytes of the intermediates that would be saved; None if a size is a symbol.
        fused_before : bool
            Whether the function has been fused by an earlier run: there is no plan for the rest.
        """
        if self.name == "always":
            return Decision(True, "the policy is to fuse always")
        if self.name == "never":
            return Decision(False, "the policy is never to fuse")
        if self.target is not None and reductions == 1 and not fused_before:
            planned = self._planned(func)
            if planned is not None:
                return planned
        return by_bytes(bytes_saved)

    def _planned(self, func: tirx.PrimFunc) -> Decision | None:
        """Return what the plan of the function says; None if there is none, or not about this."""
        from ..planner import plan

        try:
            costs = {way: c.cost for way, c in plan(func, self.target).found.by_fusion.items()}
        except ValueError:  # the planner does not know the function, or no point is feasible
            return None
        apart = costs.pop("none", None)
        if apart is None or not costs:
            return None
        way = min(costs, key=lambda each: costs[each])
        told = f"{costs[way] * 1e6:.3g} us {way}, {apart * 1e6:.3g} us apart"
        if costs[way] <= apart:
            return Decision(True, f"the planner predicts {told}")
        return Decision(False, f"the planner predicts that it costs more: {told}")


def by_bytes(bytes_saved: int | None) -> Decision:
    """Decide by the bytes of the intermediates.

    Example
    -------
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
