"""A few random Relax modules through the pass, and tests of what draws and judges them.

The long run is ``make fuzz-modules``. ONNX Runtime is its oracle, and is not needed here: NumPy is
the oracle of every module.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generated.runner import run_all
from generated.state import Run
from generated_modules import chunk, pipeline, verdict
from generated_modules.child import begins, in_child
from generated_modules.chunk import module_of
from generated_modules.data import ALIGNMENT, Fenced, arrays
from generated_modules.draw import random_module
from generated_modules.oracle import Oracle, Unavailable
from generated_modules.reference import expected
from generated_modules.spec import Module, Node, Parameter, Value
from generated_modules.tally import Tally
from generated_modules.verdict import CRASHED, DIFFERENT, EQUAL, NO_PROGRAM, ORACLE, judge, outside
from mutation import without

SEED = 1
#: Modules with products, convolutions, means, guards, casts and special values, and how many
#: reductions are fused in them.
SAMPLE = {3: 1, 7: 1, 8: 2}
#: One in which a quotient behind a guard would be absorbed.
GUARDED = 31


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has threads must not be copied."""
    monkeypatch.setenv("TVM_NUM_THREADS", "1")


# ---- Modules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SAMPLE)
def test_a_module_is_computed_as_without_the_pass(number: int) -> None:
    found = judge(module_of(SEED, number), f"{SEED}/{number}")
    assert (found.kind, found.detail, found.oracle) == (EQUAL, "", "none")
    assert [each["fused"] for each in found.reports.values()] == [SAMPLE[number]] * 2


def test_the_sample_has_guarded_operands() -> None:
    assert any(module_of(SEED, number).guarded for number in SAMPLE)


def test_a_guarded_quotient_that_is_absorbed_is_a_crash() -> None:
    """And is none as the pass is: the quotient stays behind its guard."""
    module, seed = module_of(SEED, GUARDED), f"{SEED}/{GUARDED}"
    assert judge(module, seed).kind == EQUAL
    with without("undefined-operand"):
        found = judge(module, seed)
    assert (found.kind, found.detail) == (CRASHED, "run reassociate: SIGFPE")


def test_a_pass_that_changes_a_constant_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module = small(relu=True)
    assert judge(module, "seed").kind == EQUAL
    right = pipeline.fused
    monkeypatch.setattr(
        pipeline, "fused", lambda mod, *options: right(pipeline.lowered(build(small())), *options)
    )
    found = judge(module, "seed")
    assert found.kind == DIFFERENT and found.detail.startswith("exact, whole data: output 0")


def test_a_pass_that_raises_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> None:
        raise TypeError("first\nlast")

    monkeypatch.setattr(pipeline, "fused", raising)
    found = judge(small(), "seed")
    assert (found.kind, found.detail) == ("error", "pass exact: TypeError: last")


def test_an_unfused_module_that_fails_says_nothing_of_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdict, "build", lambda module: 1 / 0)
    found = judge(small(), "seed")
    assert (found.kind, found.detail) == (NO_PROGRAM, "build: ZeroDivisionError: division by zero")
    tally = Tally()
    tally.add(3, small(), found)
    assert tally.wrong == 0 and [each["number"] for each in tally.failures] == [3]


def test_an_oracle_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def run(self, module: Module, given: list[np.ndarray]) -> list[np.ndarray]:
            return [each.value.astype("float32") + 1 for each in expected(module, given)]

    found = judge(small(), "seed", Wrong())
    assert found.kind == ORACLE and found.detail.startswith("ONNX Runtime: output 0")
    monkeypatch.setattr(verdict, "build", lambda module: build(small(relu=True)))
    found = judge(small(), "seed")
    assert found.kind == ORACLE and found.detail.startswith("TVM, unfused: output 0")


def build(module: Module) -> Any:
    from generated_modules.relax_module import build

    return build(module)


def small(relu: bool = False) -> Module:
    """A product with a bias, and a ReLU or its contrary."""
    sizes = {"x": (2, 3), "w": (3, 4), "b": (4,)}
    parameters = tuple(Parameter(value(shape), -4, 4) for shape in sizes.values())
    nodes = [
        Node("matmul", (0, 1), {"transposed": False, "ndim": 2}, value((2, 4), 48)),
        Node("add", (3, 2), {}, value((2, 4), 52)),
        Node("relu" if relu else "negative", (4,), {}, value((2, 4), 52)),
    ]
    return Module(parameters, tuple(nodes), (5,), {"rows": True, "distribute": False})


def value(shape: tuple[int, ...], bound: float = 4.0) -> Value:
    return Value(shape, "float32", True, bound)


# ---- What is drawn -------------------------------------------------------------------------------

DRAWN = 300


def test_every_operator_is_drawn() -> None:
    counts = Counter(node.op for n in range(DRAWN) for node in random_module(f"all/{n}").nodes)
    wanted = {
        *("matmul", "conv", "max_pool", "avg_pool", "sum", "mean", "max", "min", "prod"),
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "add_literal"),
        *("relu", "clip", "sigmoid", "tanh", "silu", "gelu", "negative", "abs", "right_shift"),
        *("where", "greater", "less_equal", "cast", "take", "reshape", "permute", "concat"),
        *("split", "slice", "pad"),
        *("guarded_where", "guarded_divide", "guarded_gather", "guarded_short"),
    }
    assert wanted <= counts.keys()


def test_a_module_is_drawn_again_and_travels_as_json() -> None:
    for number in range(20):
        module = module_of(SEED, number)
        assert module_of(SEED, number) == module
        assert Module.from_json(json.loads(json.dumps(module.to_json()))) == module
        assert set(module.outputs) <= set(range(len(module.parameters) + len(module.nodes)))
    assert module_of(SEED, 0) != module_of(SEED + 1, 0)


def test_shapes_and_magnitudes_are_what_was_tracked() -> None:
    for number in range(60):
        module = module_of(SEED, number)
        given = arrays(module, "seed", "whole")
        for each, parameter in zip(given, module.parameters, strict=True):
            assert (each.shape, str(each.dtype)) == (parameter.value.shape, parameter.value.dtype)
        every = tuple(range(len(module.parameters), len(module.parameters) + len(module.nodes)))
        for place, want in zip(every, expected(whole_of(module, every), given), strict=True):
            known = module.value(place)
            assert want.value.shape == known.shape
            assert (np.abs(want.value) <= known.bound + want.error).all()
            assert not known.exact or (want.value == np.rint(want.value)).all()


def whole_of(module: Module, outputs: tuple[int, ...]) -> Module:
    return Module(module.parameters, module.nodes, outputs, module.options)


def test_divisors_are_zero_and_indices_wild_behind_guards() -> None:
    kinds: dict[str, list[np.ndarray]] = {}
    for number in range(60):
        module = module_of(SEED, number)
        for each, array in zip(module.parameters, arrays(module, "s", "whole"), strict=True):
            kinds.setdefault(each.kind, []).append(np.ravel(array))
            if each.kind == "index":
                assert (array >= 0).all() and (array <= each.high).all()
    assert (np.concatenate(kinds["divisors"]) == 0).any()
    assert (np.abs(np.concatenate(kinds["wild"]).astype("int64")) > 2**20).any()
    assert (np.concatenate(kinds["positive"]) > 0).all()


# ---- The reference -------------------------------------------------------------------------------


def test_the_bound_admits_another_order_and_no_other_operand() -> None:
    rng = np.random.default_rng(1)
    x, b = rng.standard_normal((4, 200)).astype("float32"), np.float32(0.1)
    total = Value((4,), "float32", False, 1e6)
    nodes = (
        Node("sum", (0,), {"axes": [1], "keepdims": False}, total),
        Node("add_literal", (1,), {"literal": 0.1, "left": False}, total),
    )
    whole = Value((4, 200), "float32", False, 1e3)
    module = Module((Parameter(whole, -4, 4),), nodes, (2,), {})
    wanted = expected(module, [x])
    backwards = np.full(4, b)
    for column in reversed(range(200)):
        backwards = (backwards + x[:, column]).astype("float32")
    assert (wanted[0].error > 0).all()
    assert outside(wanted, [backwards]) == ""
    assert outside(wanted, [backwards + np.float32(0.01)]) != ""


def test_what_is_rounded_in_a_narrow_type_stays_rounded_in_a_wide_one() -> None:
    narrow, wide = (Value((1, 1), dtype, False, 99) for dtype in ("float16", "float32"))
    whole = Value((1, 1), "float16", True, 4)
    nodes = (
        Node("divide", (0, 1), {}, narrow),
        Node("matmul", (3, 2), {"transposed": False, "ndim": 2}, wide),
    )
    module = Module((Parameter(whole, 1, 4),) * 3, nodes, (4,), {})
    given = [np.full((1, 1), number, "float16") for number in (1, 3, 4)]
    wanted = expected(module, given)
    rounded = (given[0] / given[1]).astype("float32") * 4
    assert rounded.item() != pytest.approx(4 / 3, abs=1e-4)
    assert outside(wanted, [rounded]) == ""
    assert outside(wanted, [rounded + np.float32(0.01)]) != ""


def test_an_exact_result_has_no_bound() -> None:
    module = small()
    given = arrays(module, "seed", "whole")
    wanted = expected(module, given)
    right = -(given[0] @ given[1] + given[2])
    assert (wanted[0].error == 0).all() and outside(wanted, [right]) == ""
    assert outside(wanted, [np.nextafter(right, np.float32(99))]) != ""


# ---- ONNX ----------------------------------------------------------------------------------------


def test_every_graph_of_onnx_is_well_formed() -> None:
    pytest.importorskip("onnx", reason="the graphs are ONNX's: install onnx")
    from generated_modules.onnx_graph import graph_of

    made = 0
    for number in range(60):
        try:
            graph = graph_of(module_of(SEED, number)).graph
        except NotImplementedError:
            continue
        assert len(graph.output) == len(module_of(SEED, number).outputs)
        made += 1
    assert made > 50


def test_without_onnx_runtime_the_oracle_says_what_to_install() -> None:
    with pytest.raises(Unavailable, match="onnxruntime: install them, or name with ORT_PYTHON"):
        Oracle(os.devnull)


# ---- Processes -----------------------------------------------------------------------------------


def test_a_process_that_dies_or_raises_or_hangs_is_reported() -> None:
    def dies() -> Any:
        yield begins("first")
        yield "first", 1
        yield begins("second")
        os.abort()

    def raises() -> Any:
        yield begins("only")
        raise ValueError("why")

    def hangs() -> Any:
        yield begins("only")
        time.sleep(60)

    ended = in_child(dies)
    assert (ended.messages, ended.stage, ended.fault) == ({"first": 1}, "second", "SIGABRT")
    assert in_child(raises).fault == "ValueError: why"
    assert in_child(hangs, limit=1).fault == "did not end in 1 s"
    assert in_child(lambda: iter([("a", 1), ("b", 2)])).fault == ""


@pytest.mark.parametrize(("where", "fault"), [(-64, "SIGSEGV"), (None, "SIGSEGV"), (0, "")])
def test_a_read_beyond_an_array_ends_the_process(where: int | None, fault: str) -> None:
    array = Fenced(np.arange(5, dtype="float32")).array
    assert array.ctypes.data % ALIGNMENT == 0 and array.tolist() == [0, 1, 2, 3, 4]
    address = array.ctypes.data + (ALIGNMENT if where is None else where)
    if where == -64:
        address = array.ctypes.data // 4096 * 4096 - 1

    def reads() -> Any:
        import ctypes

        yield "read", ctypes.c_char.from_address(address).value

    assert in_child(reads).fault == fault


# ---- Long runs -----------------------------------------------------------------------------------


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def counting(module: Module, seed: str, oracle: Any) -> verdict.Verdict:
        judged.append(seed)
        return verdict.Verdict(DIFFERENT if seed == "5/1" else EQUAL, "why")

    monkeypatch.setattr(chunk, "judge", counting)
    monkeypatch.setattr(chunk, "oracle_if_any", lambda: None)
    run = Run(5, 2, folder=tmp_path, chunk=1, module="generated_modules")
    first = run_all(run, 0, lambda done, tally: None, chunk.run_chunk, Tally)
    again = run_all(run, 0, lambda done, tally: None, chunk.run_chunk, Tally)
    assert judged == ["5/0", "5/1"]
    assert first.summary() == again.summary() and again.wrong == 1
    (saved,) = (tmp_path / "counterexamples").iterdir()
    failure = json.loads(saved.read_text())
    assert Module.from_json(failure["program"]) == module_of(5, 1)
    assert failure["command"].startswith("python -m generated_modules --show")
