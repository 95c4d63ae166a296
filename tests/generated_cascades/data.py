"""Inputs of generated programs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from cascades.data import hard_rows

from .build import ORDER
from .spec import Program, mentions

Arrays = dict[str, Any]


def inputs(program: Program, seed: str, finite: bool = False) -> Iterator[tuple[str, Arrays]]:
    """Yield kinds of data and a program's inputs: ordinary ones, and rows that are hard.

    - `finite`: leave out infinities and what is near the largest number: a factor is deferred from
      a sum that must stay finite without it.
    """
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    for kind in ("normal", "whole", "large", "hard", "hard too"):
        yield kind, _arrays(program, kind, rng, finite)


def _arrays(program: Program, kind: str, rng: Any, finite: bool) -> Arrays:
    p = program
    kv = p.heads // p.group
    columns = (p.columns,) if p.columns else ()
    found: Arrays = {"b": _values((p.keys,), kind, p.dtype, rng)}
    if p.between is not None and not p.integers and kind == "hard":
        found["b"][0] = np.nan
    if mentions(p.term, "v"):
        found["v"] = _values((kv, p.keys), kind, p.wide or p.dtype, rng)
    if p.third is not None:
        found["w"] = _values((kv, p.keys, *columns), kind, p.dtype, rng)
    x = _values((p.rows, p.heads, p.keys), kind, p.dtype, rng)
    if kind == "large" and not p.integers:
        x = x * x.dtype.type(1e4 if p.head in ("max", "min") else 100)
    if kind.startswith("hard") and not p.integers:
        special = p.head in ("max", "min") and not finite
        rows = hard_rows(p.keys, min(p.factor, p.keys), p.dtype, rng, finite=not special, nan=False)
        chosen = rng.integers(0, len(rows), p.rows * p.heads)
        x = rows[chosen].reshape(x.shape)
    found["x"] = np.ascontiguousarray(x.transpose(ORDER[p.layout]))
    if p.later:
        found["later"] = rng.permutation(found["x"].ravel()).reshape(found["x"].shape)
    if p.mask == "select":
        mask = rng.integers(0, 2, (p.rows, p.heads, p.keys))
        if kind == "hard":
            # The first blocks of keys are masked.
            mask = np.broadcast_to(np.arange(p.keys) >= p.factor, mask.shape)
        found["mask"] = mask.astype("int8")
    return found


def _values(shape: tuple[int, ...], kind: str, dtype: str, rng: Any) -> np.ndarray:
    if "int" in dtype:
        return _integers(shape, kind, dtype, rng)
    values = rng.integers(-6, 7, shape) if kind == "whole" else rng.standard_normal(shape)
    return values.astype(dtype)


def _integers(shape: tuple[int, ...], kind: str, dtype: str, rng: Any) -> np.ndarray:
    """Small ones; of narrow types also any, and those at the ends: the others must not overflow."""
    ends = np.iinfo(dtype)
    if kind == "whole" or ends.bits >= 32:
        return rng.integers(0 if ends.min == 0 else -6, 7, shape).astype(dtype)
    values = rng.integers(ends.min, ends.max, shape, endpoint=True)
    edges = rng.choice((ends.min, ends.min + 1, ends.max - 1, ends.max), shape)
    # Rows of one value: that is their largest and smallest, too.
    edges[..., :] = edges[..., :1] if kind == "hard" else edges
    return np.where(kind.startswith("hard"), edges, values).astype(dtype)
