"""The table of machines that the planner knows: a row for each kind, with its kinds of problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from tvm import s_tir
from tvm.target import Target

from ..neuron import emit
from ..neuron.machine import MACHINES, Machine
from ..rewrites.epilogue import LABELS
from ..targets import as_target, named
from .machines.cpu import Cpu, cpu
from .machines.gpu import Gpu, gpu
from .measurement.measure import compiled, compiled_for_gpu
from .measurement.profile import UNKNOWN, Profile, profile_of, weights_elsewhere
from .problems import cuda, trainium
from .problems.cost import Weights
from .problems.cpu import find_conv, find_product, find_rows
from .problems.problem import Problem
from .problems.request import Request
from .problems.trainium.fusion_modes import LABELS as ON_TRAINIUM

#: Returns the problem that a function is on a machine, None if it is of another kind.
Finder = Callable[[Request], Problem | None]

#: Sizes of a product, of rows, and of a convolution along rows.
_PRODUCT, _ROWS, _CONV = ("m", "n", "k"), ("m", "n"), ("rows", "columns", "taps")
_BY_HAND = (
    "schedule it by hand (a reduction with sch.fuse_reduction_epilogue), or search with "
    "fuse_epilogue.tune; depthwise convolutions of any sizes have a rule in "
    "fuse_epilogue.schedules"
)
_BY_MODELS = "compile it as it is with fuse_epilogue.compile, which knows more kinds; "
_SPILL = "storing and loading what the registers do not hold"


@dataclass(frozen=True)
class Kind:
    """A kind of problem on one kind of machine.

    - `name`: the same on all machines.
    - `sizes`: names of the sizes of a problem.
    - `find`: returns the problem that a function is on a machine, None if it is not of this kind.
    """

    name: str
    sizes: tuple[str, ...]
    find: Finder


@dataclass(frozen=True)
class Backend:
    """A kind of machine.

    - `machine`: type of its machines.
    - `label`: what it is called in a message, after "a profile is that of a processor: leave it out
      for".
    - `kinds`: kinds of problems; a function is of the first one that finds it.
    - `fusions`: names of the ways to fuse, by the value of "fusion".
    - `terms`: what each term of a cost is, in the order of :data:`.cost.NAMES`.
    - `is_sum`: whether a cost is the sum of its terms; otherwise that is a lower bound of it.
    - `is_timed`: whether points can be timed, on the machine at hand.
    - `permissions`: options by which a caller permits what is not done unasked: that data and
      weights are taken to be finite, or that something is rounded.
    - `otherwise`: the way out for a function of no kind, for a message.
    - `compile`: returns what runs a schedule, for a target.
    """

    machine: type
    label: str
    kinds: tuple[Kind, ...]
    fusions: tuple[str, ...]
    terms: Mapping[str, str]
    is_sum: bool
    is_timed: bool
    permissions: tuple[str, ...]
    otherwise: str
    compile: Callable[[s_tir.Schedule, Any], Any]

    def kind(self, name: str) -> Kind | None:
        """Return the kind of that name, None if there is none."""
        return next((kind for kind in self.kinds if kind.name == name), None)

    def way(self, fusion: int) -> str:
        """Return the name of a way to fuse: a machine that has a single one fuses in that one."""
        return self.fusions[min(fusion, len(self.fusions) - 1)]


CPU = Backend(
    machine=Cpu,
    label="a processor",
    kinds=(
        Kind("product", _PRODUCT, find_product),
        Kind("rows", _ROWS, find_rows),
        Kind("conv", _CONV, find_conv),
    ),
    fusions=LABELS,
    terms=MappingProxyType(
        {
            "traffic": "moving data to and from caches and memory, what that takes longer than "
            "computing",
            "latency": "all instructions on one core, the call, and starting parallel loops",
            "spill": _SPILL,
            "parallelism": "what several cores save of the latency: it is taken off",
        }
    ),
    is_sum=True,
    is_timed=True,
    permissions=(),
    otherwise=_BY_MODELS + _BY_HAND,
    compile=lambda sch, target: compiled(sch, _as_target(target)),
)
GPU = Backend(
    machine=Gpu,
    label="a GPU",
    kinds=(
        Kind("product", _PRODUCT, cuda.find_product),
        Kind("rows", _ROWS, cuda.find_rows),
        Kind("conv", _CONV, cuda.find_conv),
    ),
    fusions=LABELS,
    terms=MappingProxyType(
        {
            "traffic": "moving data to and from the second cache and the memory",
            "latency": "all instructions on one multiprocessor, or what they wait for each other, "
            "and the launches",
            "spill": _SPILL,
            "parallelism": "what all multiprocessors save of the latency: it is taken off",
        }
    ),
    is_sum=True,
    is_timed=False,
    permissions=(),
    otherwise=_BY_MODELS + _BY_HAND,
    compile=lambda sch, target: compiled_for_gpu(sch, _as_target(target)),
)
NEURON_CORE = Backend(
    machine=Machine,
    label="Trainium",
    kinds=(
        Kind("conv", ("images", "channels", "columns", "taps"), trainium.find_conv),
        Kind("product", _PRODUCT, trainium.find_product),
        Kind("products", ("batch", *_PRODUCT), trainium.find_products),
        Kind("rows", _ROWS, trainium.find_rows),
        Kind(
            "attention",
            ("heads", "queries", "keys", "features", "columns"),
            trainium.find_attention,
        ),
        Kind(
            "conv2d",
            ("images", "out_channels", "rows", "columns", "channels", "taps"),
            trainium.find_conv2d,
        ),
        Kind("windows", ("images", "channels", "rows", "columns", "taps"), trainium.find_windows),
        Kind("row stages", ("matrices", "m", "n"), trainium.find_row_stages),
    ),
    fusions=ON_TRAINIUM,
    terms=MappingProxyType(
        {
            "traffic": "all bytes at the full rate of the DMA engines",
            "latency": "what the busiest engine takes longer than that",
            "more": "what is predicted beyond these two: waiting, and short transfers",
        }
    ),
    is_sum=False,
    is_timed=False,
    permissions=("finite", "round_shares"),
    otherwise="schedule it by hand; elementwise functions and those that move elements have rules "
    "in fuse_epilogue.schedules",
    compile=lambda sch, _: emit(sch),
)
BACKENDS = (CPU, GPU, NEURON_CORE)


def backend_of(machine: Cpu | Gpu | Machine) -> Backend:
    """Return the row of a machine."""
    return next(row for row in BACKENDS if isinstance(machine, row.machine))


def check_permitted(machine: Cpu | Gpu | Machine, **given: bool) -> None:
    """Refuse to be permitted something on a machine where it changes nothing.

    - `**given`: options, such as ``finite``.
    - Raises ValueError: one of them is true that is not for this machine.
    """
    known = backend_of(machine).permissions
    for name, value in given.items():
        if value and name not in known:
            raise ValueError(f"{name} is for Trainium: leave it out for {machine}")


def machine_of(data: Any) -> Cpu | Gpu | Machine:
    """Return the machine of a plan's JSON.

    - Raises ValueError: `data` is neither the name of a Trainium machine nor the description of
      another.
    """
    if isinstance(data, str) and data in MACHINES:
        return MACHINES[data]
    if not isinstance(data, dict):
        raise ValueError(f"its machine must be one of {', '.join(MACHINES)} or an object: {data!r}")
    return (Gpu if "chip" in data else Cpu).from_json(json.dumps(data))


def machine_data(machine: Cpu | Gpu | Machine) -> Any:
    """Return a machine as data of JSON, for :func:`machine_of`.

    - Raises ValueError: the machine is one of Trainium that is not known by name.
    """
    if not isinstance(machine, Machine):
        return asdict(machine)
    if MACHINES.get(machine.name) != machine:
        raise ValueError(f"a plan can be written only for {', '.join(MACHINES)}, by name")
    return machine.name


def described(target: Any, profile: Profile | None) -> tuple[Cpu | Gpu | Machine, Weights, float]:
    """Return the machine that a target names, the weights of the cost on it, its resolution.

    - Raises TypeError: `target` or `profile` is something else.
    - Raises ValueError: the target names no machine that is known, or a profile is given for a GPU
      or Trainium.
    """
    if profile is not None and not isinstance(profile, Profile):
        raise TypeError(
            f"profile must be a Profile, not {type(profile).__name__}: "
            "read one from a file with Profile.from_json(Path(...).read_text())"
        )
    if profile is not None and not (
        isinstance(profile.machine, Cpu) and isinstance(profile.weights, Weights)
    ):
        raise TypeError("profile must have a planner.machines.cpu.Cpu and problems.cost.Weights")
    machine = _machine_named(target)
    backend = backend_of(machine)
    if backend is not CPU:
        if profile is not None:
            raise ValueError(f"a profile describes a processor: leave it out for {backend.label}")
        return machine, Weights(), UNKNOWN
    profile = profile if profile is not None else profile_of(machine)
    if profile is None:
        return machine, weights_elsewhere(), UNKNOWN
    return profile.on(machine), profile.weights, profile.resolution


def _machine_named(target: Any) -> Any:
    """Return the machine that a target names."""
    target = named(target)
    if isinstance(target, str) and target in MACHINES:
        return MACHINES[target]
    if isinstance(target, Machine | Gpu):
        return target
    target = as_target(target)
    if target.kind.name not in ("cuda", "llvm"):
        raise ValueError(
            f"the planner does not know targets of kind '{target.kind.name}', only 'llvm', such as "
            "schedules.host(), and 'cuda', such as {'kind': 'cuda', 'arch': 'sm_90'}; and "
            f"{', '.join(MACHINES)} by name"
        )
    return gpu(target) if target.kind.name == "cuda" else cpu(target)


def _as_target(target: Any) -> Target:
    return target.target if isinstance(target, Gpu) else as_target(target)
