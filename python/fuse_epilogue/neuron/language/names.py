"""The names that ``nl``, ``nisa``, ``nki`` and ``numpy`` have for a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Refused
from ..isa import COLLECTIVES, ENGINES, ENUMERATIONS, INSTRUCTIONS
from ..isa.arithmetic import BINARY, FUNCTIONS, REDUCERS
from ..limits import MOST_DIMS
from ..tile import Tile
from ..trace import DTYPES, ITEMSIZE, DType
from ..values import Ds, numpy_dtype
from .attributes import describe
from .builtins import integer, make_range, plain
from .composed import COMPOSED
from .grammar import INSTEAD, OLD_NAMES, RANDOM, SPACES, TILE_SIZE
from .objects import Builtin, Class, Namespace, Symbol, Unknown, unsupported
from .registers import LOOPS, REGISTERS, permute, rank, source
from .tile_functions import filled, full, like, negative

if TYPE_CHECKING:
    from ..walk import Walk


def shape_of(value: Any) -> tuple[int, ...]:
    """Return a shape, of positive integers."""
    value = tuple(value) if isinstance(value, list) else value
    if not isinstance(value, tuple) or not value or any(integer(n) < 1 for n in value):
        raise Refused("language", "a shape is a tuple of positive integers")
    if len(value) > MOST_DIMS:
        raise Refused("language", f"{len(value)} dimensions, at most {MOST_DIMS}")
    return value


def dtype_of(value: Any) -> DType:
    """Return a type of elements."""
    if isinstance(value, Unknown):
        raise unsupported(value.name)
    if not isinstance(value, DType) or value not in ITEMSIZE:
        raise Refused(
            "language",
            f"dtype must be one of {', '.join('nl.' + it for it in ITEMSIZE)} or the .dtype of a "
            f"tensor, not {describe(value)!r}",
        )
    return value


def _memory(value: Any) -> str:
    if value is None:
        return "sbuf"
    if isinstance(value, Symbol) and value.kind == "memory":
        return value.name
    raise Refused(
        "language",
        f"buffer must be one of {', '.join('nl.' + it for it in SPACES)}, not {describe(value)!r}",
    )


def _ndarray(
    walk: Walk,
    shape: Any,
    dtype: Any,
    buffer: Any = None,
    name: str = "",
    address: Any = None,
) -> Tile:
    """Allocate a tensor. The address is left out: each tensor has a place of its own here."""
    shape, kind, memory = shape_of(shape), dtype_of(dtype), _memory(buffer)
    if SPACES[memory] != "hbm" and len(shape) < 2:
        raise Refused("language", "a shape on the chip is (partitions, free, ...)")
    return walk.allocate(name if isinstance(name, str) else "", shape, kind, memory)


def _load(walk: Walk, src: Any, dtype: Any = None) -> Tile:
    """Allocate a tile and copy to it."""
    if not isinstance(src, Tile) or src.space != "hbm":
        raise Refused("memory", "nl.load takes a tensor in HBM")
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    tile = walk.allocate("", shape, src.dtype if dtype is None else dtype_of(dtype), "sbuf")
    walk.instruction(INSTRUCTIONS["dma_copy"], [tile, src], {})
    return tile


def _store(walk: Walk, dst: Any, value: Any) -> None:
    if not isinstance(dst, Tile) or dst.space != "hbm":
        raise Refused("memory", "nl.store writes a tensor in HBM")
    walk.instruction(INSTRUCTIONS["dma_copy"], [dst, value], {})


def _identity(walk: Walk, n: Any, dtype: Any = DTYPES["uint8"], dst: Any = None) -> Tile:
    """Return the square with ones on the diagonal, in SBUF: made when a kernel asks for it."""
    ones = walk.allocate("ones", (integer(n), n), dtype_of(dtype), "sbuf")
    tile = walk.allocate("identity", (n, n), dtype, "sbuf") if dst is None else dst
    walk.instruction(INSTRUCTIONS["memset"], [ones, 1], {})
    # partition - column == 0
    walk.instruction(
        INSTRUCTIONS["affine_select"],
        [],
        {
            "dst": tile,
            "pattern": [[-1, n]],
            "offset": 0,
            "channel_multiplier": 1,
            "on_true_tile": ones,
            "on_false_value": 0.0,
            "cmp_op": Symbol("op", "equal"),
        },
    )
    return tile


def _ds(start: Any, size: Any) -> Ds:
    return Ds(integer(start), integer(size))


def _program_id(walk: Walk, axis: Any = 0) -> int:
    return walk.program if integer(axis) == 0 else 0


def _num_programs(walk: Walk, axes: Any = 0, axis: Any = None) -> int:
    return walk.programs if (axes if axis is None else axis) in (0, (0,), [0]) else 1


def _missing_nl(name: str) -> str:
    if name in OLD_NAMES:
        return f"nl.{name} is of an older edition: use {OLD_NAMES[name]}"
    if name in RANDOM:
        return f"nl.{name} is not supported here: random numbers"
    instead = f": use {INSTEAD[name]}" if name in INSTEAD else ""
    return f"nl.{name} is not supported here{instead}"


def _missing_nisa(name: str) -> str:
    if name in RANDOM:
        return f"nisa.{name} is not supported here: random numbers"
    near = get_close_matches(name, INSTRUCTIONS, 1)
    hint = f"; is nisa.{near[0]} meant?" if near else ""
    return f"nisa.{name} is not among the instructions supported here{hint}"


def _no_member(kind: str) -> Callable[[str], str]:
    return lambda name: f"nisa.{kind} has no {name} here"


#: What ``nl.is_hbm(buffer)`` and the like ask for.
_PLACES = {
    "hbm": {"hbm"},
    "sbuf": {"sbuf"},
    "psum": {"psum"},
    "on_chip": {"sbuf", "psum"},
}


def _is_in(buffer: Any, spaces: set[str]) -> bool:
    return SPACES[_memory(buffer)] in spaces


def _loops() -> Iterator[tuple[str, Builtin]]:
    """Yield the ranges: all loops are unrolled."""
    for name in ("range", "affine_range", "sequential_range", "static_range"):
        yield name, Builtin(f"nl.{name}", lambda walk, *bounds, **named: make_range(*bounds))


_OPS = {name: Symbol("op", name) for name in (*BINARY, *FUNCTIONS, *REDUCERS)}

NL = Namespace(
    "nl",
    {
        **DTYPES,
        **_OPS,
        **{name: Symbol("memory", name) for name in SPACES},
        **dict(_loops()),
        "tile_size": Namespace(
            "nl.tile_size", TILE_SIZE, lambda name: f"nl.tile_size has {', '.join(TILE_SIZE)}"
        ),
        "ndarray": Builtin("nl.ndarray", _ndarray),
        "zeros": filled(0, "zeros", _ndarray),
        "ones": filled(1, "ones", _ndarray),
        "full": full(_ndarray),
        "zeros_like": like(True, _ndarray),
        "empty_like": like(False, _ndarray),
        "negative": Builtin("nl.negative", negative),
        "load": Builtin("nl.load", _load),
        "store": Builtin("nl.store", _store),
        "shared_identity_matrix": Builtin("nl.shared_identity_matrix", _identity),
        "ds": plain("nl.ds", _ds),
        "program_id": Builtin("nl.program_id", _program_id),
        "num_programs": Builtin("nl.num_programs", _num_programs),
        "program_ndim": Builtin("nl.program_ndim", lambda walk: int(walk.programs > 1)),
        "device_print": plain("nl.device_print", lambda *args, **named: None),
        **LOOPS,
        **COMPOSED,
        **{
            f"is_{name}": plain(
                f"nl.is_{name}", lambda buffer, spaces=spaces: _is_in(buffer, spaces)
            )
            for name, spaces in _PLACES.items()
        },
        "no_reorder": Builtin("nl.no_reorder", lambda walk: None),
        "NkiTensor": Builtin("nl.NkiTensor", lambda walk: None),
        "NKIObject": Class("NKIObject", (), {}),
    },
    _missing_nl,
)

_VERSIONS = {f"gen{n}": Symbol("nc_version", f"gen{n}", n) for n in (2, 3, 4)}

NISA = Namespace(
    "nisa",
    {
        **INSTRUCTIONS,
        **{name: Symbol("engine", name) for name in ENGINES},
        "unknown_engine": None,
        **{
            kind: Namespace(
                f"nisa.{kind}",
                {name: Symbol(kind, name) for name in names},
                _no_member(kind),
            )
            for kind, names in ENUMERATIONS.items()
        },
        "engine": Namespace(
            "nisa.engine",
            {
                **{name.removesuffix("_engine"): Symbol("engine", name) for name in ENGINES},
                # Queues of transfers, which are all one here.
                **{name: Symbol("engine", f"{name}_engine") for name in ("dma", "sync")},
                "unknown": None,
            },
            lambda name: f"nisa.engine has no {name} here",
        ),
        "nc_version": Namespace(
            "nisa.nc_version", _VERSIONS, lambda name: f"nisa.nc_version has no {name} here"
        ),
        "get_nc_version": Builtin(
            "nisa.get_nc_version", lambda walk: _VERSIONS[f"gen{walk.generation}"]
        ),
        **REGISTERS,
    },
    _missing_nisa,
)


def _finfo(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.finfo(dtype)
    import ml_dtypes  # which such a type is from

    return ml_dtypes.finfo(dtype)


def _limits(name: str, kind: str, fields: tuple[str, ...]) -> Builtin:
    """Return ``numpy.finfo`` or ``numpy.iinfo``: limits of a type as Python's numbers."""

    def run(walk: Walk, dtype: Any) -> Namespace:
        known = dtype_of(dtype)
        if kind not in known or known.endswith("_x4"):
            raise Refused("language", f"numpy.{name}({known}) is not supported here")
        limits = np.iinfo(known) if kind == "int" else _finfo(numpy_dtype(known))
        # Of floats, numbers of numpy.
        members = {
            field: getattr(limits, field) if kind == "int" else getattr(limits, field).item()
            for field in fields
        }
        return Namespace(
            f"numpy.{name}", members, lambda other: f"numpy.{name} has {', '.join(fields)} here"
        )

    return Builtin(f"numpy.{name}", run)


NUMPY = Namespace(
    "numpy",
    {
        **DTYPES,
        "inf": math.inf,
        "nan": math.nan,
        "pi": math.pi,
        "finfo": _limits("finfo", "float", ("min", "max", "eps", "tiny")),
        "iinfo": _limits("iinfo", "int", ("min", "max")),
    },
    lambda name: f"numpy.{name} is not supported here",
)

NCC = Namespace(
    "nki.collectives",
    {
        **COLLECTIVES,
        "ReplicaGroup": plain("ReplicaGroup", lambda groups: groups),
        "rank_id": Builtin("nki.collectives.rank_id", rank),
        "collective_permute_implicit": Builtin("collective_permute_implicit", permute),
        "collective_permute_implicit_current_processing_rank_id": Builtin("rank_id", source),
    },
    lambda name: f"nki.collectives.{name} is not supported here",
)

NKI = Namespace(
    "nki",
    {"language": NL, "isa": NISA, "collectives": NCC},
    lambda name: f"nki.{name} is not supported here",
)

#: Modules by their full name.
NAMESPACES: dict[str, Any] = {
    "nki": NKI,
    "nki.language": NL,
    "nki.isa": NISA,
    "nki.isa.constants": NISA,
    "nki.collectives": NCC,
    "numpy": NUMPY,
}
