"""The bound of the benchmark of the CPU, and what it leaves behind when it is interrupted."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark, with tables that take no time: the second is interrupted."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    module = importlib.import_module("conv1d_cpu")
    begun: list[Any] = []

    def measure(*_: Any) -> Iterator[dict[str, Any]]:
        begun.append(_)
        if len(begun) > module.FINISHED:
            raise KeyboardInterrupt
        yield {"case": "main"}

    monkeypatch.setattr(module, "FINISHED", 1, raising=False)
    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(module, "FLUSH_BYTES", 8)
    for name in ("keep_memory", "use_threads", "show"):
        monkeypatch.setattr(module, name, lambda *_: None)
    for name in ("missed", "table", "absent"):
        monkeypatch.setattr(module, name, lambda rows: [])
    yield module
    for name in set(sys.modules) - before:
        if BENCHMARKS in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]


def interrupted(module: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["conv1d_cpu.py", "--threads", "1", *arguments])
    with pytest.raises(SystemExit) as end:
        module.main()
    assert end.value.code == 130


def test_keeps_what_was_measured(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "some.json"
    interrupted(benchmark, monkeypatch, "--quick", "--output", str(file))
    report = json.loads(file.read_text())
    assert report["interrupted"] and report["results"] == [{"case": "main"}]


def test_results_of_a_whole_run_stay(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """Part of a run does not replace them, without being told to."""
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path / "results.json")
    interrupted(benchmark, monkeypatch)
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert "1 table was measured before" in printed.err and "Nothing was written." in printed.out


@pytest.mark.parametrize(
    ("packages", "arguments", "lost"),
    [
        ({"torch": None}, ["--tuned", "records"], "torch,"),
        ({"torch": "2.0"}, [], "TVM MetaSchedule,"),
        ({"torch": None}, [], "torch, TVM MetaSchedule,"),
        ({"torch": "2.0"}, ["--tuned", "records"], ""),
    ],
)
def test_results_with_more_peers_stay(
    benchmark: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    packages: dict[str, str | None],
    arguments: list[str],
    lost: str,
) -> None:
    before = {"versions": {"torch": "1.0"}, "results": [{"median_s": {"TVM MetaSchedule": 1.0}}]}
    file = tmp_path / "results.json"
    file.write_text(json.dumps(before))
    monkeypatch.setattr(benchmark, "RESULTS", file)
    monkeypatch.setattr(benchmark, "FINISHED", 99)
    monkeypatch.setattr(benchmark, "versions_of_packages", lambda: packages)
    monkeypatch.setattr(sys, "argv", ["conv1d_cpu.py", "--threads", "1", *arguments])
    if lost:
        with pytest.raises(SystemExit, match=f"results.json compares with {lost}"):
            benchmark.main()
        assert json.loads(file.read_text()) == before
    else:
        benchmark.main()
        assert json.loads(file.read_text())["versions"]["torch"] == "2.0"


def test_nothing_measured(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setattr(benchmark, "FINISHED", 0)
    interrupted(benchmark, monkeypatch, "--output", str(tmp_path / "some.json"))
    assert not list(tmp_path.iterdir())
    assert "Nothing was written." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "dtype", "products", "others"),
    [
        ("main", "float32", 3, 1),
        ("main", "bfloat16", 3, 3),
        # Of SiLU: 1 / ln 2, both parts of ln 2, a series of degree 5, a power, a quotient.
        ("mamba", "float32", 4 + 10, 5),
        ("short", "int8", 2, 2),
    ],
)
def test_the_least_time_of_the_arithmetic(
    benchmark: Any, name: str, dtype: str, products: int, others: int
) -> None:
    bound = sys.modules["conv1d_cpu_bound"]
    target = tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
    machine = bound.processor(target)
    machine = replace(machine, clock_hz=1e9, core=replace(machine.core, fma=2.0, add=1.0))
    (case,) = (each for each in benchmark.CASES if (each.name, each.dtype) == (name, dtype))
    vectors = case.n * case.c * case.w / 16
    clocks = max(products / 2, (products + others) / 3)
    seconds = bound.arithmetic_s(case, machine, target, 2)
    assert seconds == pytest.approx(vectors * clocks / 1e9 / 2)


def test_a_case_is_judged_by_the_longer_bound_of_each_turn(benchmark: Any) -> None:
    report = sys.modules["conv1d_cpu_report"]
    samples = {"call": [1.0] * 3, "memcpy": [3.0, 5.0, 3.0], "ours": [4.0, 6.0, 13.0]}
    arithmetic = {1.0: 1.5, 3.0: 1.25, 6.0: 5 / 6}  # copies take 2, 4 and 2; ours 3, 5 and 12
    for seconds, middle in arithmetic.items():
        row = report.evaluate(benchmark.CASES[1], "warm", 1, samples, seconds, {})
        assert row["ratio_to_bound"]["ours"]["median"] == pytest.approx(middle)
        assert row["bound_s"] == {"memcpy": 2.0, "arithmetic": seconds}
        assert len(report.missed([row])) == (middle > 1.1)
