"""The measured profile of a machine: its description and the weights of the cost, as JSON."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from ..json_schema import parsed
from ..machines.cpu import Cpu, Level
from ..problems.cost import Weights

#: The profiles that come with this package, "<name of the processor>.json".
SHIPPED = Path(__file__).resolve().parent / "profiles"
#: The environment variable with the folder of profiles that were calibrated here.
FOLDER = "FUSE_EPILOGUE_PROFILES"
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


def own_profile(name: str) -> Path:
    """Return where the profile of a processor is that was calibrated here.

    The environment variable :data:`FOLDER` names the folder; without it, profiles are in
    ``fuse_epilogue/profiles`` in the folder of the user's settings.

    - `name`: LLVM's name of the processor.
    """
    given = os.environ.get(FOLDER)
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folder = Path(given) if given else settings / "fuse_epilogue" / "profiles"
    return folder / f"{name}.json"


def profile_of(machine: Cpu) -> Profile | None:
    """Return the profile of a processor: calibrated here, or what comes with this package.

    None if there is neither.

    - Raises ValueError: the file of the profile that was calibrated here is damaged.
    """
    for path in (own_profile(machine.name), SHIPPED / f"{machine.name}.json"):
        if path.is_file():
            try:
                return Profile.from_json(path.read_text())
            except ValueError as error:
                raise ValueError(f"'{path}': {error}; calibrate again, or remove it") from error
    return None


def differences(before: Profile | None, now: Profile) -> list[str]:
    """Return a line for each measured value of a machine that is another one than before.

    - `before`: None if there was no profile; everything is new then.
    """
    old = {} if before is None else _values(before)
    lines = []
    for name, value in _values(now).items():
        was = old.get(name)
        if was is None:
            lines.append(f"{name}: {value:.4g}, not measured before")
        elif abs(value - was) > 1e-9 * abs(was):
            percent = f" ({100 * (value / was - 1):+.0f} %)" if was else ""
            lines.append(f"{name}: {was:.4g} -> {value:.4g}{percent}")
    return lines


def _values(profile: Profile) -> dict[str, float]:
    """Return what was measured, by names with their units."""
    machine = profile.machine
    values = {
        "clock, GHz": machine.clock_hz / 1e9,
        "a call, us": machine.call_s * 1e6,
        "starting threads, us": machine.launch_s * 1e6,
        **{f"{level.name}, GB/s": level.bytes_per_s / 1e9 for level in machine.levels[1:]},
        **{f"weight {name}": value for name, value in asdict(profile.weights).items()},
        "resolution": profile.resolution,
    }
    return values


@functools.cache
def weights_elsewhere() -> Weights:
    """Return the weights for a processor that has no profile: the means of those that come along.

    With all weights 1 the traffic seems dearer than it is on any processor that was measured.
    """
    known = [Profile.from_json(path.read_text()).weights for path in sorted(SHIPPED.glob("*.json"))]
    return Weights(*(float(mean) for mean in np.mean([astuple(each) for each in known], axis=0)))
