"""Whether a kernel of any kind runs on several threads, and how its choice is described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax, te, topi
from tvm.relax import op

from fuse_epilogue.kernels import storage
from fuse_epilogue.kernels.cpu import costs
from fuse_epilogue.kernels.cpu.costs import WAKE_S, on_threads, threads_for
from fuse_epilogue.kernels.scheduled import Scheduled
from fuse_epilogue.schedules import host
from fuse_epilogue.transform.kinds import Work, candidates
from fuse_epilogue.workloads import depthwise_conv1d_update, matmul
from row_operators import function


def running_sums(rows: int, columns: int) -> Any:
    """Sums along each row."""
    x = te.placeholder((rows, columns), "float32", "x")
    return te.create_prim_func([x, topi.cumsum(x, 1)])


#: By kind, a function for a number of rows.
KINDS: dict[str, Callable[[int], Any]] = {
    "contraction": lambda n: matmul(n, 64, 64, activation="relu"),
    "row program": lambda n: function(lambda x: op.nn.softmax(x, -1), [(n, 64)]),
    "elementwise": lambda n: function(lambda x: op.add(x, relax.const(1.0)), [(n, 64)]),
    "scan": lambda n: running_sums(n, 64),
    "attention": lambda n: function(op.nn.attention, [(1, n, 2, 16)] * 3),
    "stream update": lambda n: depthwise_conv1d_update(n, 64, 4),
}


def first(func: Any, threads: int) -> Scheduled:
    """The way that is chosen by prediction."""
    return next(candidates(Work(func, host(threads), threads, frozenset())))


@pytest.mark.parametrize("kind", KINDS)
def test_only_work_that_pays_is_shared(kind: str) -> None:
    few, many = (first(KINDS[kind](n), 2) for n in (8, 4096))
    assert few.kind == many.kind == kind
    assert "T.parallel" not in few.func.script() and "T.parallel" in many.func.script()
    # Of one thread, the prediction is the same but for what sharing saves.
    alone = [first(KINDS[kind](n), 1).predicted_s for n in (8, 4096)]
    assert few.predicted_s == pytest.approx(alone[0])
    assert alone[1] / 2 < many.predicted_s < alone[1]
    assert few.ways[0].text.endswith("; on one thread")
    assert "; shared by 2 threads" in many.ways[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_waking_threads_decides(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "WAKE_S", 0.0)
    assert "T.parallel" in first(KINDS[kind](64), 2).func.script()
    monkeypatch.setattr(costs, "WAKE_S", 1.0)
    assert "T.parallel" not in first(KINDS[kind](4096), 2).func.script()


def test_more_threads_save_more_and_cost_the_same() -> None:
    assert threads_for(2 * WAKE_S, 2) == 1 and threads_for(2.1 * WAKE_S, 2) == 2
    assert threads_for(1.5 * WAKE_S, 8) == 8 and threads_for(1.0, 1) == 1
    assert on_threads(1e-3, 4) == pytest.approx(0.25e-3 + WAKE_S)
    assert on_threads(1e-6, 4) == 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_is_kept_with_the_kernel(kind: str) -> None:
    scheduled = first(KINDS[kind](8), 1)
    (chosen, *others) = scheduled.ways
    assert chosen.text and chosen.seconds == pytest.approx(scheduled.predicted_s)
    assert all(chosen.seconds <= each.seconds for each in others)
    assert sum(chosen.parts.values()) <= 2 * chosen.seconds
    data = storage.to_data(scheduled)
    assert data is not None
    again = storage.from_data(data)
    assert again.ways == scheduled.ways
    tvm.ir.assert_structural_equal(again.func, scheduled.func)


def test_ways_of_a_contraction_are_different() -> None:
    found = [each for each in candidates(Work(matmul(64, 64, 64), host(1), 1, frozenset()))]
    texts = [each.ways[0].text for each in found if each.kind == "contraction"]
    assert len(set(texts)) == len(texts) > 1
    assert [each.text for each in found[0].ways] == texts
    assert "2 vectors" in texts[0] or "4 vectors" in texts[0]
