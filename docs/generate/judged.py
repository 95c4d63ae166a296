"""Tables of what long runs judged: generated programs, certificates, faults, TVM's own tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .rst import code, prose, table, text, title

Data = Mapping[str, Any]

#: The outcome of a kernel that obeys the rules, in results of public kernels.
CHECKS = "checks"


def cascades(data: Data) -> Iterator[str]:
    """Yield tables of what became of generated cascades."""
    counts = data["counts"]
    fusable = counts["fusable"]
    rows = [
        *counts["verdicts"].items(),
        ("can be fused", fusable["programs"]),
        ("of these, are fused", fusable["fused"]),
        ("certificates checked", counts["certificates"]),
        ("certificates refused", counts["certificates_refused"]),
    ]
    yield title("Verdicts", 1)
    yield table(("verdict", "programs"), [(name, f"{count:,}") for name, count in rows])
    yield title("Refusals by code", 1)
    codes = counts["refusals"].items()
    yield table(
        ("code", "programs"),
        [(f":ref:`{name} <refusal-{name}>`", f"{count:,}") for name, count in codes],
    )


def generated(data: Data) -> Iterator[str]:
    """Yield tables of what became of generated programs."""
    contenders = [name for name in ("ours", "tvm") if name in data]
    yield title("Verdicts", 1)
    yield table(
        ("verdict", *contenders),
        [
            ("programs", *(f"{data[name]['programs']:,}" for name in contenders)),
            ("can be fused", *(f"{data[name]['fusable']:,}" for name in contenders)),
            ("are fused", *(f"{data[name]['fused']:,}" for name in contenders)),
            *(
                (verdict, *(f"{data[name]['verdicts'][verdict]:,}" for name in contenders))
                for verdict in data["ours"]["verdicts"]
            ),
        ],
    )
    yield title("Refusals by code", 1)
    yield table(
        ("code", "programs"),
        [
            (f":ref:`{name} <refusal-{name}>`", f"{count:,}")
            for name, count in data["ours"]["refusal_codes"].items()
        ],
    )
    yield title("By reduction", 1)
    verdicts = [name for name, count in data["ours"]["verdicts"].items() if count]
    yield table(
        ("reduction", *verdicts),
        [
            (monoid, *(f"{counts.get(name, 0):,}" for name in verdicts))
            for monoid, counts in data["ours"]["by_monoid"].items()
        ],
    )


def tests_of_tvm(data: Data) -> Iterator[str]:
    """Yield tables of the outcomes of TVM's own tests."""
    tests = data["tests"]
    kinds = sorted(tests["hidden"].keys() | tests["loaded"].keys())
    yield title("Outcomes", 1)
    yield table(
        ("outcome", "without the extension", "with it"),
        [(kind, *(f"{tests[s].get(kind, 0):,}" for s in ("hidden", "loaded"))) for kind in kinds],
    )
    parts = {"Listed differences": "expected", "Differences": "unexpected"}
    for heading, part in {**parts, "Outcomes that vary by themselves": "unstable"}.items():
        if data[part]:
            yield title(heading, 1)
            yield table(
                ("test", "with the extension", "reason"),
                [
                    (code(one["test"].rpartition("/")[2]), one["loaded"], text(one["reason"]))
                    for one in data[part]
                ],
            )


def modules(data: Data) -> Iterator[str]:
    """Yield tables of what became of generated modules."""
    counts = data["ours"]
    yield title("Verdicts", 1)
    yield table(
        ("verdict", "modules"),
        [(name, f"{number:,}") for name, number in counts["verdicts"].items()],
    )
    yield title("What the pass did", 1)
    fused = [
        (name, f"{found['found']:,}", f"{found['fused']:,}")
        for name, found in counts["passes"].items()
    ]
    yield table(("numerics", "reductions", "fused"), fused)
    yield title("ONNX Runtime", 1)
    yield table(
        ("its result", "modules"),
        [(text(name), f"{number:,}") for name, number in counts["onnx_runtime"].items()],
    )


def guarded(data: Data) -> Iterator[str]:
    """Yield tables of what became of guarded functions."""
    counts = data["counts"]
    yield title("Verdicts", 1)
    verdicts = counts["verdicts"].items()
    yield table(("verdict", "functions"), [(name, f"{number:,}") for name, number in verdicts])
    yield title("Refusals by reason", 1)
    reasons = counts["refusals"].items()
    yield table(
        ("asked for: reason", "functions"),
        [(prose(reason), f"{number:,}") for reason, number in reasons],
    )


def certificates(data: Data) -> Iterator[str]:
    """Yield tables of what became of changed certificates."""
    fusions = data["fusions"]
    names = sorted({name for verdicts in fusions.values() for name in verdicts})
    yield table(
        ("fusion", *names),
        [(code(name), *_numbers(found, names)) for name, found in fusions.items()],
    )
    yield title("Changes by field", 1)
    changes = data["fields"].items()
    yield table(("field", "changes"), [(code(name), f"{number:,}") for name, number in changes])


def faults(data: Data) -> Iterator[str]:
    """Yield tables of which faults were noticed."""
    names = sorted({name for verdicts in data["counts"].values() for name in verdicts})
    yield table(
        ("faults", *names),
        [(prose(kind), *_numbers(found, names)) for kind, found in data["counts"].items()],
    )
    yield title("Not noticed", 1)
    yield table(
        ("fault", "the same, because", "change"),
        [
            (text(name), text(each.get("equivalent", "")), _change(each.get("change", ())))
            for name, each in data["faults"].items()
            if each["verdict"] != "killed"
        ],
    )


def _change(lines: Sequence[str]) -> str:
    return "; ".join(code(line) for line in lines)


def planned(data: Data) -> Iterator[str]:
    """Yield tables of what became of planned functions."""
    counts = data["ours"]
    totals = ("functions", "guarded", "scheduled", "schedules_compared")
    yield title("Functions", 1)
    yield table(tuple(prose(name.replace("_", " ")) for name in totals), [_numbers(counts, totals)])
    yield title("Verdicts", 1)
    verdicts = counts["verdicts"].items()
    yield table(("verdict", "functions"), [(name, f"{number:,}") for name, number in verdicts])
    yield title("Schedules by source", 1)
    sources = counts["schedules_by_source"].items()
    yield table(("source", "schedules"), [(name, f"{number:,}") for name, number in sources])


def _numbers(counts: Data, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{counts.get(name, 0):,}" for name in names)


def public_kernels(data: Data) -> Iterator[str]:
    """Yield how many kernels of others check, and what became of each."""
    yield title("How many check", 1)
    rest = Counter(why for why in data["outcomes"].values() if why != CHECKS)
    rows = [(CHECKS, data["load_and_check"]), *rest.most_common()]
    yield table(("outcome", "functions"), [(prose(what), count) for what, count in rows])
    yield title("Each function", 1)
    yield table(
        ("function", "outcome"),
        [(text(name), prose(what)) for name, what in sorted(data["outcomes"].items())],
    )
    yield title("Repositories", 1)
    yield table(
        ("repository", "commit"),
        [(text(name), text(commit)) for name, commit in data["repositories"].items()],
    )
