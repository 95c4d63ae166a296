"""Chooses a schedule as the solution of an optimisation problem, and says why.

- :func:`plan` returns a :class:`Plan`: data that applies to a schedule, compiles and explains.
- ``python -m fuse_epilogue calibrate`` measures the weights of the cost on a machine.
"""

from .choose import plan
from .measurement.profile import Profile
from .plans import Plan

__all__ = ["Plan", "Profile", "plan"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
