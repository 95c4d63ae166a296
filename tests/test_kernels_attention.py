"""Attention as one kernel: right for every size, mask and special value, and refused for twins."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from fuse_epilogue import verify
from fuse_epilogue.kernels.cpu import attention
from fuse_epilogue.kernels.cpu.attention import few_queries
from fuse_epilogue.recognize.attention import attention_of, is_proved_in_parts
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.schedules.cpu import for_llvm
from fuse_epilogue.targets import of_processor
from fuse_epilogue.transform.kinds import Work, candidates
from kernel_runs import run
from test_kernels_contraction import assembly, innermost_loops
from tiers import crossed

INFINITY = float("inf")


def function(
    b: int,
    n: int,
    m: int,
    h: int,
    d: int,
    causal: str | None = None,
    bias: bool = False,
    dtype: str = "float32",
) -> Any:
    """Attention as Relax lowers ``nn.attention``, on arrays of batch, length, heads and size."""
    shapes = {"q": (b, n, h, d), "k": (b, m, h, d), "v": (b, m, h, d)}
    if bias:
        shapes["bias"] = (b, h, n, m)
    builder = relax.BlockBuilder()
    args = [relax.Var(name, relax.TensorType(s, dtype)) for name, s in shapes.items()]
    with builder.function("main", args):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.attention(*args, causal_mask=causal))
        builder.emit_func_output(out)
    mod = relax.transform.LegalizeOps()(builder.get())
    (func,) = [each for each in mod.functions.values() if isinstance(each, tirx.PrimFunc)]
    return func.with_attr("global_symbol", "main")


def scheduled(func: Any, threads: int = 1) -> Any:
    program = read_program(func)
    assert program is not None
    found = attention.schedule(program, host(threads), threads)
    assert found is not None
    return for_llvm(found.func)


def drawn(b: int, n: int, m: int, h: int, d: int, bias: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(n * m + d)
    shapes = [(b, n, h, d), (b, m, h, d), (b, m, h, d), *([(b, h, n, m)] if bias else [])]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def reference(q: Any, k: Any, v: Any, bias: Any = 0.0) -> np.ndarray:
    q, k, v = (each.astype("float64").transpose(0, 2, 1, 3) for each in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + bias
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return (shares / shares.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


SIZES = [
    *[(1, 1, 1, 1, 8), (2, 9, 1, 3, 16), (1, 2, 3, 2, 16), (2, 7, 17, 3, 24), (1, 33, 129, 2, 8)],
    # One and two queries, as in decoding.
    *[(2, 1, 67, 2, 16), (1, 2, 40, 1, 72)],
    # Longer than a block of keys: the result is rescaled.
    *[(1, 40, 300, 2, 32), (1, 17, 513, 1, 16)],
    # Several blocks of queries, the last of which has fewer.
    *[(1, 70, 131, 1, 64), (2, 150, 67, 1, 24)],
    # Heads that are not a multiple of a vector: columns at the end are in two vectors.
    *[(1, 40, 70, 2, 72), (2, 33, 300, 1, 33), (1, 5, 9, 1, 6)],
    *[(1, 1, 67, 2, 33), (1, 2, 9, 1, 13)],
]


@crossed(sizes=SIZES, bias=(False, True), threads=(1, 2))
@pytest.mark.usefixtures("free_threads")
def test_computes_attention(sizes: tuple[int, ...], bias: bool, threads: int) -> None:
    b, n, m, h, d = sizes
    arrays = drawn(b, n, m, h, d, bias)
    result = run(scheduled(function(b, n, m, h, d, bias=bias), threads), arrays, (b, n, h, d))
    np.testing.assert_allclose(result, reference(*arrays), rtol=0, atol=2e-6)


def test_rows_of_a_head_that_lie_together_are_not_copied() -> None:
    assert "head_k" not in str(scheduled(function(1, 300, 300, 1, 16)))
    assert "head_k" in str(scheduled(function(1, 300, 300, 2, 16)))


@pytest.mark.parametrize("name", ["core-avx2", "skylake-avx512"])
@pytest.mark.parametrize("keys", [64, 300])
def test_innermost_loops_keep_vectors_in_registers(name: str, keys: int) -> None:
    target = of_processor(name, 1, "x86_64", "x86_64-linux-gnu")
    program = read_program(function(1, 150, keys, 2, 64))
    assert program is not None
    found = attention.schedule(program, target, 1)
    assert found is not None
    loops = innermost_loops(assembly(for_llvm(found.func), target))
    products = [body for body in loops if "vfmadd" in body]
    assert products
    for body in products:
        assert not re.search(r"%[xyz]mm\d+, [-0-9]*\(%r[sb]p[,)]", body), body


def test_small_sums_of_shares_are_divided_by() -> None:
    """A hidden key has the largest weight, 0: the sum of the others is below all normal numbers."""
    sizes = (1, 40, 40, 1, 8)
    func, arrays = function(*sizes, causal="TopLeft"), drawn(*sizes)
    arrays[0][:], arrays[1][:] = 1, -95 / math.sqrt(8)
    result = run(scheduled(func), arrays, (1, 40, 1, 8))
    np.testing.assert_allclose(result, run(func, arrays, (1, 40, 1, 8)), rtol=0.01, atol=1e-3)
    np.testing.assert_allclose(result[0, 0], arrays[2][0, 0], rtol=0.01)


@pytest.mark.parametrize("causal", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize("sizes", [(1, 33, 33, 2, 8), (1, 5, 300, 1, 16)], ids=str)
def test_causal_masks(causal: str, sizes: tuple[int, ...]) -> None:
    b, n, m, h, d = sizes
    func, arrays = function(b, n, m, h, d, causal), drawn(b, n, m, h, d)
    expected = run(func, arrays, (b, n, h, d))
    np.testing.assert_allclose(
        run(scheduled(func), arrays, (b, n, h, d)), expected, rtol=0, atol=2e-6
    )


@pytest.mark.full
@pytest.mark.parametrize("causal", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize("sizes", [(1, 33, 133, 2, 8), (1, 130, 70, 1, 8)], ids=str)
def test_hidden_blocks_of_keys_are_skipped(causal: str, sizes: tuple[int, ...]) -> None:
    b, n, m, h, d = sizes
    func, arrays = function(b, n, m, h, d, causal), drawn(b, n, m, h, d)
    kernel = scheduled(func)
    assert "needed" in str(kernel)
    for special in (False, True):
        if special:
            # 0 times the value of a hidden key is NaN in the program, too; the key is not read.
            arrays[2][0, m - 1, 0, 3] = INFINITY
            arrays[2][0, m - 2, 0, 4] = np.nan
            arrays[1][0, m - 1, 0] = np.nan
        expected = run(func, arrays, (b, n, h, d))
        assert np.isnan(expected).any() == special
        result = run(kernel, arrays, (b, n, h, d))
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


def test_other_masks_skip_nothing() -> None:
    assert "needed" not in str(scheduled(function(1, 130, 130, 1, 8, bias=True)))


@pytest.mark.parametrize("keys", [33, 300])
def test_masked_rows_and_special_values_are_those_of_the_program(keys: int) -> None:
    """Masked keys, a row without any key, infinities and NaN in every operand."""
    sizes = (1, 40, keys, 1, 8)
    func, arrays = function(*sizes, bias=True), drawn(*sizes, bias=True)
    q, k, v, bias = arrays
    bias[0, 0, :, keys // 2 :] = -INFINITY
    bias[0, 0, 3] = -INFINITY
    bias[0, 0, 4, 2] = INFINITY
    bias[0, 0, 5, 6] = np.nan
    q[0, 6, 0, 1] = np.nan
    q[0, 7, 0, 1] = INFINITY
    v[0, 1, 0, 2] = INFINITY
    v[0, keys - 1, 0, 3] = np.nan
    expected = run(func, arrays, (1, 40, 1, 8))
    result = run(scheduled(func), arrays, (1, 40, 1, 8))
    assert np.isnan(expected[0, 3]).all() and np.isnan(expected).any()
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("queries", [1, 2])
def test_few_queries_have_the_special_values_of_the_program(queries: int) -> None:
    sizes = (1, queries, 43, 2, 8)
    func, arrays = function(*sizes, bias=True), drawn(*sizes, bias=True)
    _, k, v, bias = arrays
    kernel = scheduled(func)
    assert "queries" not in str(kernel)  # the buffer of packed queries
    bias[0, 0, :, 20:] = -INFINITY
    k[0, 41, 1, 3] = INFINITY
    v[0, 42, 0, 2] = INFINITY
    bias[0, 1, queries - 1] = -INFINITY
    expected = run(func, arrays, (1, queries, 2, 8))
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    result = run(kernel, arrays, (1, queries, 2, 8))
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.full
@pytest.mark.usefixtures("free_threads")
@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("sizes", [(1, 1, 1100, 1, 64), (1, 2, 601, 1, 8), (2, 1, 520, 1, 16)])
@pytest.mark.parametrize("special", [False, True])
def test_threads_without_a_head_take_parts_of_the_keys(
    sizes: tuple[int, ...], threads: int, special: bool
) -> None:
    b, n, m, h, d = sizes
    func, arrays = function(*sizes, bias=True), drawn(*sizes, bias=True)
    kernel = scheduled(func, threads)
    assert ("result_of_part" in str(kernel)) == (b * n < threads)
    if special:
        # A part without any key that is shown, and a head without any.
        arrays[3][0, 0, 0, m // 4 :] = -INFINITY
        arrays[3][-1, 0, -1] = -INFINITY
        arrays[1][0, 2, 0, 3] = INFINITY
        arrays[2][0, m - 1, 0, 2] = np.nan
    expected = run(func, arrays, (b, n, h, d))
    assert np.isnan(expected).any() == special
    result = run(kernel, arrays, (b, n, h, d))
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.usefixtures("free_threads")
def test_parts_rest_on_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    found = attention_of(read_program(function(1, 1, 1100, 1, 64)))
    assert found is not None
    assert is_proved_in_parts(found, 3)
    head, total, second = found.proof.stages
    other = replace(found.proof, stages=(head, replace(total, quotient=total.term), second))
    assert not is_proved_in_parts(replace(found, proof=other), 3)
    monkeypatch.setattr(few_queries, "is_proved_in_parts", lambda *_: False)
    assert "of_part" not in str(scheduled(function(1, 1, 1100, 1, 64), 2))


def allocated_bytes(func: Any) -> int:
    """The memory that a function allocates, whatever it is for."""
    found: list[int] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.AllocBuffer):
            found.append(4 * math.prod(map(int, node.buffer.shape)))

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, visit))
    return sum(found)


@pytest.mark.parametrize("causal", [None, "TopLeft"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_grows_with_the_length(
    causal: str | None, bias: bool, heads: int, threads: int
) -> None:
    sizes = [
        allocated_bytes(scheduled(function(1, n, n, heads, 16, causal, bias), threads))
        for n in (256, 512, 1024)
    ]
    assert 0 < sizes[1] <= 2 * sizes[0] and sizes[2] <= 2 * sizes[1]


def chain(change: str) -> Any:
    """Attention written out; `change` makes it something else."""
    n = m = d = 8
    q, k, v = (te.placeholder((n, d), name=name) for name in "qkv")
    axis = te.reduce_axis((0, d), "axis")
    scores = te.compute((n, m), lambda i, j: te.sum(q[i, axis] * k[j, axis], axis), "scores")
    keys = [te.reduce_axis((0, m), f"key{i}") for i in range(3)]
    other = 2.0 if change == "another scale in the sum" else 1.0
    greatest = te.max
    if change == "a start at an infinity":
        greatest = te.comm_reducer(
            lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(-INFINITY, dtype), "greatest"
        )
    top = te.compute((n,), lambda i: greatest(scores[i, keys[0]], keys[0]), "top")

    def share(i: Any, j: Any, scale: float = 1.0) -> Any:
        value = te.exp(scores[i, j] * tirx.const(scale, "float32") - top[i])
        if change == "a mask by the maximum":
            return tirx.Select(scores[i, j] > top[i] - 5.0, value, tirx.const(0.0, "float32"))
        return value

    total = te.compute((n,), lambda i: te.sum(share(i, keys[1], other), keys[1]), "total")
    row = (lambda i: total[n - 1 - i]) if change == "another row's sum" else (lambda i: total[i])
    values = (lambda j, c, i: v[i, c]) if change == "values by query" else (lambda j, c, i: v[j, c])
    out = te.compute(
        (n, d),
        lambda i, c: te.sum(share(i, keys[2]) / row(i) * values(keys[2], c, i), keys[2]),
        "out",
    )
    outputs = [scores, out] if change == "scores are an output" else [out]
    return te.create_prim_func([q, k, v, *outputs])


def test_written_out_attention_is_found() -> None:
    assert attention_of(read_program(chain("nothing"))) is not None


@pytest.mark.parametrize(
    "change",
    [
        "another scale in the sum",
        "a mask by the maximum",
        "a start at an infinity",
        "another row's sum",
        "values by query",
        "scores are an output",
    ],
)
def test_what_is_almost_attention_is_not(change: str) -> None:
    assert attention_of(read_program(chain(change))) is None


@pytest.mark.parametrize("causal", [None, "TopLeft"])
@pytest.mark.parametrize("bias", [False, True])
def test_it_rests_on_a_proof_that_the_checker_accepts(causal: str | None, bias: bool) -> None:
    func = function(1, 9, 70, 2, 8, causal, bias)
    found = attention_of(read_program(func))
    assert found is not None
    sch = tvm.s_tir.Schedule(func)
    report = sch.fuse_cascaded_reductions(found.proof.stages[0].name)
    verify.check(func, sch.mod["main"], report.certificate)
    assert [stage.rule for stage in found.proof.stages] == ["head", "roll", "mix"]
    assert report.certificate.as_json().keys() == found.proof.as_json().keys()


def test_sums_are_corrected_as_the_proof_says() -> None:
    found = attention_of(read_program(function(1, 9, 70, 2, 8)))
    before, after = (tirx.Var(name, "float32") for name in ("before", "after"))
    expected = tirx.Select(
        before.equal(after), tirx.const(1.0, "float32"), tirx.exp(before - after)
    )
    tvm.ir.assert_structural_equal(found.factor(before, after), expected)
    assert "same-carrier" in found.proof.stages[1].guards
    stages = [replace(each, guards=()) for each in found.proof.stages]
    bare = replace(found, proof=replace(found.proof, stages=tuple(stages)))
    tvm.ir.assert_structural_equal(bare.factor(before, after), tirx.exp(before - after))


def test_heads_that_are_shorter_than_a_vector_are_left() -> None:
    program = read_program(function(1, 2, 2, 1, 3))
    assert attention_of(program) is not None
    assert attention.schedule(program, host(1)) is None


def test_it_comes_before_kernels_for_each_sum() -> None:
    """Attention has two sums; functions of several sums are otherwise scheduled sum by sum."""
    work = Work(function(1, 16, 16, 2, 8), host(1), 1, frozenset())
    assert [each.kind for each in candidates(work)][0] == "attention"


@pytest.mark.parametrize("n", [10, 33])
def test_sums_of_one_function_do_not_share_memory_that_is_still_read(n: int) -> None:
    """In 16 bits, each sum has a kernel of its own, which reads what is between by views."""
    func = function(1, n, n, 1, 16, dtype="float16")
    made = next(candidates(Work(func, host(1), 1, frozenset())))
    assert made.kind.startswith("several: ")
    arrays = [each.astype("float16") for each in drawn(1, n, n, 1, 16)]
    result = run(for_llvm(made.func), arrays, (1, n, 1, 16), "float16")
    np.testing.assert_allclose(result, reference(*arrays), rtol=0, atol=2e-2)


def test_a_chain_of_functions_is_not_written_out() -> None:
    """Each value is read twice: written out, the last one has 2^40 loads of the first."""
    x = te.placeholder((4, 4), "float32", "x")
    y = x
    for _ in range(40):
        y = topi.multiply(y, topi.exp(y))
    program = read_program(te.create_prim_func([x, y]))
    assert program is not None
    assert attention_of(program) is None
