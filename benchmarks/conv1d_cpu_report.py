"""What `conv1d_cpu.py` makes of its samples: medians, ratios, missed targets and tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conv1d_cpu_cases import Case
from conv1d_cpu_tvm import CALL, MEMCPY, OURS, TUNED
from primitive import Samples, ratio

AT_MOST = 1.1  # of the bound: the longer one of memcpy and the least time of the arithmetic

BOUND = "bound"

Row = dict[str, Any]


def evaluate(
    case: Case, state: str, threads: int, samples: Samples, arithmetic_s: float, others: Row
) -> Row:
    """Sum up what was measured of a case in a state.

    The bound is memcpy of the bytes that the case moves in the same turn, or `arithmetic_s` if that
    is longer. The ratios to both are without the time that a call from Python takes, which counts
    beside some microseconds; all others are as they would be noticed.
    """
    net = {
        name: [value - call for value, call in zip(samples[name], samples[CALL], strict=True)]
        for name in samples
        if name != CALL
    }
    bounds = [max(copied, arithmetic_s) for copied in net[MEMCPY]]
    rivals = [name for name in samples if name not in (OURS, MEMCPY, CALL)]
    medians = {name: statistics.median(values) for name, values in samples.items()}
    best = min(rivals, key=medians.__getitem__, default=None)
    return {
        "case": case.name,
        "shape": [case.n, case.c, case.w, case.f],
        "dtype": case.dtype,
        "padding": case.options["padding"],
        "activation": case.activation,
        "state": state,
        "threads": threads,
        "bytes_moved": 2 * case.nbytes,
        "median_s": medians,
        "quartiles_s": {name: quartiles(values) for name, values in samples.items()},
        "ratio_to_memcpy": {name: ratio(net, name, MEMCPY) for name in net if name != MEMCPY},
        "bound_s": {MEMCPY: statistics.median(net[MEMCPY]), "arithmetic": arithmetic_s},
        "ratio_to_bound": {
            name: ratio({**net, BOUND: bounds}, name, BOUND) for name in net if name != MEMCPY
        },
        "ratio_to_ours": {name: ratio(samples, name, OURS) for name in rivals},
        "best_peer": best,
        **others,
        "samples_s": {name: [round(v, 9) for v in values] for name, values in samples.items()},
    }


def left_out(results: Path, packages: Mapping[str, str | None], records: Path | None) -> list[str]:
    """Name what results compare with, if they are there, and a run would not have."""
    if not results.is_file():
        return []
    before = json.loads(results.read_text())
    found = [name for name, here in packages.items() if before["versions"].get(name) and not here]
    if records is None and any(TUNED in row["median_s"] for row in before["results"]):
        found.append(TUNED)
    return found


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the first and the third quartile."""
    lower, _, upper = statistics.quantiles(values, n=4)
    return [lower, upper]


def missed(rows: Sequence[Row]) -> list[str]:
    """Say where ours is not as fast as it should be, and by how much."""
    found = []
    for row in rows:
        to_bound = row["ratio_to_bound"][OURS]
        if to_bound["median"] > AT_MOST:
            found.append(f"{place(row)}: {spread(to_bound)} of its bound, not {AT_MOST}")
        best = row["best_peer"]
        if best is not None and row["ratio_to_ours"][best]["median"] < 1:
            found.append(f"{place(row)}: {best} takes {spread(row['ratio_to_ours'][best])} of ours")
    return found


def spread(ratios: dict[str, float]) -> str:
    """Write a ratio with its quartiles."""
    lower, upper = ratios["lower_quartile"], ratios["upper_quartile"]
    return f"{ratios['median']:.2f} ({lower:.2f} to {upper:.2f})"


def place(row: Row) -> str:
    """Name a row."""
    threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
    return f"{row['case']} {tuple(row['shape'])} {row['dtype']} {row['state']}, {threads}"


# ---- The tables ----------------------------------------------------------------------------------


def show(row: Row) -> None:
    """Print all that was measured of one row, the fastest first."""
    share = row["others_share_of_processors"]
    busy = "" if share is None else f"; other processes had {share:.0%} of the processors"
    print(f"\n{place(row)}{busy}")
    print(f"{'':36}{'us':>10}{'x/memcpy':>12}{'quartiles':>14}{'x/ours':>10}{'quartiles':>14}")
    for name, seconds in sorted(row["median_s"].items(), key=lambda item: item[1]):
        both = [row[key].get(name) for key in ("ratio_to_memcpy", "ratio_to_ours")]
        print(f"{name:36}{seconds * 1e6:10.1f}  {columns(both[0])}{columns(both[1])}")
    for name, seconds in row["too_slow_s"].items():
        print(f"{name:36}{seconds * 1e6:10.1f}  at best; too slow to go on with")
    for name, reason in row["missing"].items():
        print(f"{name:36}missing: {reason}")


def columns(ratios: dict[str, float] | None) -> str:
    """Write a ratio and its quartiles as columns of a table."""
    if ratios is None:
        return " " * 24
    between = f"{ratios['lower_quartile']:.2f}..{ratios['upper_quartile']:.2f}"
    return f"{ratios['median']:10.2f}{between:>14}"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Write a line for each row: ours beside memcpy, the bound and the best peer."""
    yield (
        f"{'case':9}{'shape':>21} {'type':9}{'state':6}{'thr.':>4}{'memcpy us':>11}"
        f"{'arithmetic':>12}{'ours us':>10}{'ours/bound':>12}{'peer/ours':>11}  best peer"
    )
    for row in rows:
        medians, best = row["median_s"], row["best_peer"]
        text = f"{row['case']:9}{str(tuple(row['shape'])):>21} {row['dtype']:9}{row['state']:6}"
        text += f"{row['threads']:4}{medians[MEMCPY] * 1e6:11.1f}"
        text += f"{row['bound_s']['arithmetic'] * 1e6:12.1f}{medians[OURS] * 1e6:10.1f}"
        text += f"{row['ratio_to_bound'][OURS]['median']:12.2f}"
        if best is not None:
            text += f"{row['ratio_to_ours'][best]['median']:11.2f}  {best}"
        yield text


def absent(rows: Sequence[Row]) -> Iterator[str]:
    """Say which peers are missing where, and why: ours is not compared with them there."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row["missing"].items():
            reasons.setdefault((name, reason), []).append(f"{row['case']} {row['dtype']}")
    for (name, reason), places in reasons.items():
        yield f"Missing: {name} at {', '.join(dict.fromkeys(places))}: {reason}"
