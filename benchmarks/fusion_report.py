"""What `fusion.py` makes of its samples: medians, ratios, verdicts, tables and sentences."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fusion_programs import HAND, OURS, UNFUSED, Family, Program
from fusion_variants import Variant
from primitive import Samples, ratio

NOTHING = 0.05  # of a ratio: less is neither gain nor loss
DISTURBED = 0.1  # other processes' part of the processors, from where on they spoil the figures

GAIN, LOSS, NONE, UNCLEAR = "gain", "loss", "nothing", "unclear"

# The versions that ours is compared with, and how a sentence calls them.
RIVALS = {UNFUSED: "unfused", HAND: "placing by hand"}


def verdict(spread: dict[str, float]) -> str:
    """Say what a ratio means; it is not clear if it is far from 1 while its quartiles are not."""
    if abs(spread["median"] - 1) < NOTHING:
        return NONE
    if spread["lower_quartile"] > 1:
        return GAIN
    return LOSS if spread["upper_quartile"] < 1 else UNCLEAR


def evaluate(
    program: Program, built: dict[str, Variant], refused: dict[str, str], samples: Samples
) -> dict[str, Any]:
    """Sum up what was measured of one program."""
    ratios = {name: ratio(samples, name, OURS) for name in samples if name != OURS}
    return {
        "epilogue": program.epilogue,
        "size": program.label,
        "shapes": [list(shape) for shape in program.shapes],
        "median_s": {name: statistics.median(values) for name, values in samples.items()},
        "ratio_to_ours": ratios,
        "verdict": {name: verdict(spread) for name, spread in ratios.items()},
        "report": built[OURS].said,
        "refused_by_tvm": refused,
        "samples_s": {name: [round(v, 9) for v in values] for name, values in samples.items()},
    }


# ---- The table -----------------------------------------------------------------------------------


def show(family: Family, result: dict[str, Any]) -> None:
    """Print one family's table, and below it where nothing is gained."""
    share = result["others_share_of_processors"]
    print(f"\n{family.title}\nloops: {family.loops}")
    if share is not None:
        warning = ": do not rely on these figures" if share > DISTURBED else ""
        print(f"(other processes had {share:.0%} of the processors{warning})")
    print(
        f"{'':16}{'':>12}{'unfused':>11}{'by hand':>11}{'ours':>11}"
        f"{'unfused/ours':>15}{'quartiles':>12}{'by hand/ours':>15}{'quartiles':>12}"
    )
    for row in result["programs"]:
        print(line(row))
    for sentence in sentences(family, result["programs"]):
        print(sentence)


def line(row: dict[str, Any]) -> str:
    """Write the times of one program, in ms, and its ratios."""
    medians, spreads = row["median_s"], row["ratio_to_ours"]
    text = f"{row['epilogue']:16}{row['size']:>12}"
    for name in (UNFUSED, HAND, OURS):
        text += f"{medians[name] * 1e3:11.4f}" if name in medians else f"{'-':>11}"
    for name in (UNFUSED, HAND):
        if name in spreads:
            spread = spreads[name]
            quartiles = f"{spread['lower_quartile']:.2f}..{spread['upper_quartile']:.2f}"
            text += f"{spread['median']:15.2f}{quartiles:>12}"
        else:
            text += f"{'-':>15}{'':12}"
    return text


# ---- The sentences -------------------------------------------------------------------------------

WORDS = {NONE: "gains nothing over", LOSS: "loses to", UNCLEAR: "too noisy to tell against"}


def sentences(family: Family, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Say over what nothing is gained where and why, where time is lost, where it is not clear."""
    if family.remark:
        yield family.remark
    for epilogue in dict.fromkeys(row["epilogue"] for row in rows):
        of_it = [row for row in rows if row["epilogue"] == epilogue]
        for (rival, called), (kind, words) in itertools.product(RIVALS.items(), WORDS.items()):
            same = [row for row in of_it if row["verdict"].get(rival) == kind]
            if not same:
                continue
            why = family.reasons.get((epilogue, rival)) if kind == NONE else None
            sizes = "all sizes" if same == of_it and len(same) > 1 else where(same)
            sentence = f"{epilogue}: {words} {called} at {sizes} ({spread_of(same, rival)})"
            yield f"{sentence}: {why}." if why else f"{sentence}."


def where(rows: Sequence[dict[str, Any]]) -> str:
    """Name the sizes of some rows."""
    return ", ".join(row["size"] for row in rows)


def spread_of(rows: Sequence[dict[str, Any]], rival: str) -> str:
    """Write the range of some rows' ratios."""
    ratios = [row["ratio_to_ours"][rival]["median"] for row in rows]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"


def refusals(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Say once for each of TVM's primitives what it refuses, and for how many of the programs."""
    rows = [row for result in results for row in result["programs"]]
    for name in dict.fromkeys(name for row in rows for name in row["refused_by_tvm"]):
        reasons = [row["refused_by_tvm"][name] for row in rows if name in row["refused_by_tvm"]]
        yield f"TVM's {name} refuses {len(reasons)} of the {len(rows)} programs: {reasons[0]}."
