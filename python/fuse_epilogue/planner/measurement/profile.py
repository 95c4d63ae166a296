"""The measured profile of a machine: its description and the weights of the cost, as JSON."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from ..json_schema import parsed
from ..machines.cpu import Cpu, Level
from ..problems.cost import Weights

#: The profiles that come with this package, "<name of the processor>.json".
SHIPPED = Path(__file__).resolve().parent / "profiles"
#: The resolution of costs of which none was measured: what the planner aims at.
UNKNOWN = 0.05


@dataclass(frozen=True)
class Profile:
    """A calibrated machine.

    Attributes
    ----------
    machine : Cpu
        With the clock, bandwidths and times that were measured.
    weights : Weights
    residuals : tuple[tuple[str, float], ...]
        For each kernel of the calibration the logarithm of measured over predicted time.
    """

    machine: Cpu
    weights: Weights
    residuals: tuple[tuple[str, float], ...] = ()

    @property
    def resolution(self) -> float:
        """The share below which a difference of two costs means nothing.

        Half of all pairs of kernels that were measured of one function are farther than this from
        the ratio of times that was predicted; :data:`UNKNOWN` if no function was measured twice.

        Example
        -------
        >>> from fuse_epilogue.planner import Profile
        >>> from fuse_epilogue.planner.problems.cost import Weights
        >>> errors = (("f: a", 0.0), ("f: b", 0.01), ("g: a", 3.0))
        >>> round(Profile(machine=None, weights=Weights(), residuals=errors).resolution, 3)
        0.01
        """
        of: dict[str, list[float]] = {}
        for name, value in self.residuals:
            of.setdefault(name.partition(":")[0], []).append(value)
        apart = [abs(a - b) for each in of.values() for a, b in combinations(each, 2)]
        return float(np.expm1(np.median(apart))) if apart else UNKNOWN

    def on(self, machine: Cpu) -> Cpu:
        """Return a machine of this kind with what was measured, and the cores that it has.

        Parameters
        ----------
        machine : Cpu

        Returns
        -------
        Cpu
            A new one.

        Example
        -------
        >>> from fuse_epilogue.planner import Profile
        >>> from fuse_epilogue.planner.problems.cost import Weights
        >>> from fuse_epilogue.planner.machines.cpu import cpu
        >>> from fuse_epilogue.schedules import host
        >>> profile = Profile(cpu(host(1)), Weights())
        >>> profile.on(cpu(host(1))) == profile.machine
        True
        """
        measured = {level.name: level for level in self.machine.levels}
        levels: list[Level] = [
            replace(
                level,
                bytes_per_s=measured.get(level.name, level).bytes_per_s,
                alone_per_s=measured.get(level.name, level).alone_per_s,
                at_once=measured.get(level.name, level).at_once,
            )
            for level in machine.levels
        ]
        return replace(
            machine,
            clock_hz=self.machine.clock_hz,
            launch_s=self.machine.launch_s,
            call_s=self.machine.call_s,
            levels=tuple(levels),
        )

    def to_json(self) -> str:
        """Return the profile as JSON.

        Returns
        -------
        str
            For :meth:`from_json`.

        Example
        -------
        >>> from fuse_epilogue.planner import Profile
        >>> from fuse_epilogue.planner.problems.cost import Weights
        >>> from fuse_epilogue.planner.machines.cpu import cpu
        >>> from fuse_epilogue.schedules import host
        >>> profile = Profile(cpu(host(1)), Weights())
        >>> profile.to_json().startswith("{")
        True
        """
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Profile:
        """Return the profile that :meth:`to_json` wrote.

        Parameters
        ----------
        text : str

        Returns
        -------
        Profile

        Raises
        ------
        ValueError
            The text is not a profile.

        Example
        -------
        >>> from fuse_epilogue.planner import Profile
        >>> from fuse_epilogue.planner.problems.cost import Weights
        >>> from fuse_epilogue.planner.machines.cpu import cpu
        >>> from fuse_epilogue.schedules import host
        >>> profile = Profile(cpu(host(1)), Weights())
        >>> Profile.from_json(profile.to_json()) == profile
        True
        """
        made: Profile = parsed(Profile, text, "this is not a profile of a machine")
        return made


def profile_of(machine: Cpu) -> Profile | None:
    """Return the profile that comes with this package for a processor, None if there is none."""
    path = SHIPPED / f"{machine.name}.json"
    return Profile.from_json(path.read_text()) if path.is_file() else None


@functools.cache
def weights_elsewhere() -> Weights:
    """Return the weights for a processor that has no profile: the means of those that come along.

    With all weights 1 the traffic seems dearer than it is on any processor that was measured.

    Example
    -------
    >>> from fuse_epilogue.planner.measurement.profile import weights_elsewhere
    >>> weights_elsewhere().alpha < weights_elsewhere().beta <= 1
    True
    """
    known = [Profile.from_json(path.read_text()).weights for path in sorted(SHIPPED.glob("*.json"))]
    return Weights(*(float(mean) for mean in np.mean([astuple(each) for each in known], axis=0)))
