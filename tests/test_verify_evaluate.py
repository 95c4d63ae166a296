"""The evaluator: what compiled code computes, and what compiled code does not notice."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import oracles
from fuse_epilogue.verify import EvaluationError, UnsupportedError, compile_function
from oracles import Builds
from programs import ACCEPT, Case

N = 8


def elementwise(body: Any, src: str, out: str) -> PrimFunc:
    """``D[i] = body(A[i], B[i])``."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((N,), src), B: T.Buffer((N,), src), D: T.Buffer((N,), out)):
        for i in range(N):
            with T.sblock("b"):
                vi = T.axis.spatial(N, i)
                D[vi] = body(A[vi], B[vi])

    return func


def evaluated(func: PrimFunc, **arrays: Any) -> np.ndarray:
    """What the evaluator stores in D."""
    return compile_function(func).run(arrays)["D"]


def compiled(func: PrimFunc, **arrays: Any) -> np.ndarray:
    """What TVM's code stores in D."""
    built = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
    given = [tvm.runtime.tensor(array) for array in arrays.values()]
    built(*given)
    return given[-1].numpy()


FLOATS = [1.5, np.nan, 0.0, -0.0, np.inf, 2.5, -3.25, 100.0]
OTHERS = [np.nan, 2.0, -0.0, 0.0, np.inf, -2.0, 3.0, 0.1]
INTS = [-128, -7, -1, 0, 1, 7, 100, 127]
OTHER_INTS = [-3, 2, 127, -1, 5, -128, 100, 1]

# Operation, and the type of operands and of the result. Every one of them with values at which
# Python, numpy and the machine could disagree.
OPERATIONS: dict[str, tuple[Any, str, str]] = {
    "float max": (lambda a, b: T.max(a, b), "float32", "float32"),
    "float min": (lambda a, b: T.min(a, b), "float32", "float32"),
    "float64 max": (lambda a, b: T.max(a, b), "float64", "float64"),
    "float sum": (lambda a, b: a + b * T.float32(0.1), "float32", "float32"),
    "float16 sum": (lambda a, b: a + b * T.float16(0.1), "float16", "float16"),
    "float64 quotient": (lambda a, b: a / b, "float64", "float64"),
    "float quotient": (lambda a, b: a / b, "float32", "float32"),
    "float not equal": (lambda a, b: a != b, "float32", "bool"),
    "float equal": (lambda a, b: a == b, "float32", "bool"),
    "float less": (lambda a, b: a < b, "float32", "bool"),
    "float at least": (lambda a, b: a >= b, "float32", "bool"),
    "isnan": (lambda a, b: T.isnan(a), "float32", "bool"),
    "float to bool": (lambda a, b: T.Cast("bool", a), "float32", "bool"),
    "float to int8": (lambda a, b: T.Cast("int8", b), "float64", "int8"),
    "float to int32": (lambda a, b: T.Cast("int32", a * T.float32(3e7)), "float32", "int32"),
    "float to float16": (lambda a, b: T.Cast("float16", a * T.float32(700)), "float32", "float16"),
    "float to bfloat16": (
        lambda a, b: T.Cast("bfloat16", a * T.float32(0.1)),
        "float32",
        "bfloat16",
    ),
    "bfloat16 sum": (lambda a, b: a * b + b, "bfloat16", "bfloat16"),
    "bfloat16 cast back": (
        lambda a, b: T.Cast("float32", T.Cast("bfloat16", a * T.float32(0.1))),
        "float32",
        "float32",
    ),
    "round": (lambda a, b: T.round(a), "float32", "float32"),
    "floor": (lambda a, b: T.floor(a), "float32", "float32"),
    "ceil": (lambda a, b: T.ceil(a), "float32", "float32"),
    "fabs": (lambda a, b: T.fabs(a), "float32", "float32"),
    "sqrt": (lambda a, b: T.sqrt(a), "float32", "float32"),
    "select": (lambda a, b: T.Select(a > b, a, b), "float32", "float32"),
    "if_then_else": (lambda a, b: T.if_then_else(a > b, a, b), "float32", "float32"),
    "int sum": (lambda a, b: a + b, "int8", "int8"),
    "int difference": (lambda a, b: a - b, "int8", "int8"),
    "int product": (lambda a, b: a * b, "int8", "int8"),
    "int floordiv": (lambda a, b: T.floordiv(a, b), "int8", "int8"),
    "int floormod": (lambda a, b: T.floormod(a, b), "int8", "int8"),
    "int truncdiv": (lambda a, b: T.truncdiv(a, b), "int8", "int8"),
    "int truncmod": (lambda a, b: T.truncmod(a, b), "int8", "int8"),
    "int max": (lambda a, b: T.max(a, b), "int8", "int8"),
    "int bits": (lambda a, b: (a & b) ^ (a | T.int8(5)), "int8", "int8"),
    "int complement": (lambda a, b: ~a, "int8", "int8"),
    "int shift": (lambda a, b: (a >> T.int8(2)) + (b << T.int8(3)), "int8", "int8"),
    "int compare": (lambda a, b: a <= b, "int8", "bool"),
    "int widened": (lambda a, b: T.Cast("int32", a) * T.Cast("int32", b), "int8", "int32"),
    "int to uint": (lambda a, b: T.Cast("uint16", a), "int8", "uint16"),
    "int to float": (lambda a, b: T.Cast("float16", a) / T.Cast("float16", b), "int8", "float16"),
    "uint sum": (lambda a, b: a + b, "uint8", "uint8"),
    "uint difference": (lambda a, b: a - b, "uint8", "uint8"),
    "uint shift": (lambda a, b: a >> T.uint8(2), "uint8", "uint8"),
    "uint compare": (lambda a, b: a < b, "uint8", "bool"),
    "wide to float": (lambda a, b: T.Cast("float32", a * T.int64(2**57 + 1)), "int64", "float32"),
    "bool logic": (lambda a, b: T.And(T.Not(a), T.Or(a, b)), "bool", "bool"),
    "bool to int": (lambda a, b: T.Cast("int32", a) + T.Cast("int32", b), "bool", "int32"),
    "multiply shift": (
        lambda a, b: T.q_multiply_shift(a, T.int32(1395864371), T.int32(31), T.int32(-3)),
        "int32",
        "int32",
    ),
}


def operands(src: str) -> tuple[np.ndarray, np.ndarray]:
    if src == "bfloat16":
        return np.array(FLOATS, ml_dtypes.bfloat16), np.array(OTHERS, ml_dtypes.bfloat16)
    if src.startswith("float"):
        return np.array(FLOATS, src), np.array(OTHERS, src)
    if src == "bool":
        return np.array([0, 1] * 4, "bool"), np.array([0, 0, 1, 1] * 2, "bool")
    return np.array(INTS).astype(src), np.array(OTHER_INTS).astype(src)


@pytest.fixture(scope="module")
def operations() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What the evaluator and compiled code give for every operation, compiled in one module."""
    functions = {
        f"f{place}": elementwise(body, src, out)
        for place, (body, src, out) in enumerate(OPERATIONS.values())
    }
    built = oracles.compile_together(functions)
    found = {}
    for place, (name, (_, src, out)) in enumerate(OPERATIONS.items()):
        a, b = operands(src)
        blank = np.zeros(N, ml_dtypes.bfloat16 if out == "bfloat16" else out)
        mine = evaluated(functions[f"f{place}"], A=a, B=b, D=blank.copy())
        given = [tvm.runtime.tensor(array) for array in (a, b, blank)]
        built[f"f{place}"](*given)
        found[name] = mine, given[-1].numpy()
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_what_compiled_code_does(name: str, operations: Any) -> None:
    mine, theirs = operations[name]
    assert mine.dtype == theirs.dtype
    wide = [array.astype("float64") for array in (mine, theirs)]
    np.testing.assert_array_equal(*wide)
    signs = [np.signbit(array) & ~np.isnan(array) for array in wide]
    np.testing.assert_array_equal(*signs)


FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "exp2": np.exp2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_function(name: str, dtype: str) -> None:
    x = np.linspace(0.1, 4, N).astype(dtype)
    func = elementwise(lambda a, _b: getattr(T, name)(a), dtype, dtype)
    result = evaluated(func, A=x, B=x, D=np.zeros(N, dtype))
    expected = FUNCTIONS[name](x.astype("float64"))
    np.testing.assert_allclose(result, expected, rtol=8 * np.finfo(dtype).eps)


def test_tanh_is_that_of_compiled_code_at_zero() -> None:
    x = np.array([0.0, -0.0] * 4, "float32")
    func = elementwise(lambda a, _b: T.tanh(a), "float32", "float32")
    result = evaluated(func, A=x, B=x, D=np.ones(N, "float32"))
    assert not np.signbit(result).any()


# ---------------------------------------------------------------------------------------------
# Whole programs
# ---------------------------------------------------------------------------------------------


SAMPLE = ACCEPT[::6]


@pytest.fixture(scope="module")
def builds() -> Builds:
    """The sampled programs compiled, as they are before fusing."""
    functions = {case.name: case.scheduled().mod["main"] for case in SAMPLE}
    return Builds(functions, opt_level=0)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_programs_agree_with_compiled_code(case: Case, builds: Builds) -> None:
    for sizes in case.sizes:
        inputs = oracles.make_inputs(case, "exact", sizes)
        going_in = {k: np.copy(v) for k, v in inputs.items()}
        mine = compile_function(case.scheduled().mod["main"]).run(going_in, sizes)
        theirs = oracles.run(builds[case.name], case, inputs, sizes)
        for name, desired in theirs.items():
            tolerance = 2e-6 if case.approximate else 0
            np.testing.assert_allclose(
                mine[name].astype("float64"), desired.astype("float64"), rtol=tolerance
            )


@T.prim_func(s_tir=True)
def row_sums(a: T.handle, d: T.handle, scale: T.float32):
    n = T.int32()
    A = T.match_buffer(a, (n, 4), "float32")
    D = T.match_buffer(d, (n,), "float32")
    temp = T.sblock_alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 4):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = T.float32(0)
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(n):
        with T.sblock("scale"):
            vi = T.axis.spatial(n, i)
            D[vi] = temp[vi] * scale


def test_sizes_come_from_shapes() -> None:
    program = compile_function(row_sums)
    (buffer_a, buffer_d, _) = (param.name for param in program.parameters)
    for n in (1, 3):
        a = np.arange(4 * n, dtype="float32").reshape(n, 4)
        d = np.zeros(n, "float32")
        result = program.run({buffer_a: a, buffer_d: d, "scale": 2})
        np.testing.assert_array_equal(result[buffer_d], 2 * a.sum(axis=1))
        # Arrays are changed in place.
        assert result[buffer_d] is d


@pytest.mark.parametrize(
    "change",
    [
        {"A": np.zeros((3, 5), "float32")},
        {"A": np.zeros((3, 4), "float64")},
        {"A": np.zeros(12, "float32")},
        {"D": np.zeros(2, "float32")},
    ],
    ids=["extent", "type", "axes", "sizes that differ"],
)
def test_wrong_arrays_are_refused(change: dict[str, np.ndarray]) -> None:
    arrays = {"A": np.zeros((3, 4), "float32"), "D": np.zeros(3, "float32"), "scale": 1}
    program = compile_function(row_sums)
    program.run(arrays)
    with pytest.raises(ValueError):
        program.run({**arrays, **change})


def test_reference_computes_in_float64_and_leaves_arrays_alone() -> None:
    a = np.full((1, 4), 0.1, "float32")
    d = np.zeros(1, "float32")
    program = compile_function(row_sums, "float64")
    result = program.run({"A": a, "D": d, "scale": 3})["D"]
    assert result.dtype == "float64"
    assert result[0] == 4 * float(a[0, 0]) * 3
    assert d[0] == 0
    with pytest.raises(ValueError, match="arithmetic"):
        compile_function(row_sums, "decimal")


# ---------------------------------------------------------------------------------------------
# What compiled code would not notice
# ---------------------------------------------------------------------------------------------


def filled(first: int, read: int) -> PrimFunc:
    """Fill `temp` from element `first` on, then read it from element `read` on."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((N,), "float32"), D: T.Buffer((N,), "float32")):
        temp = T.sblock_alloc_buffer((N,), "float32")
        for i in range(N - first):
            with T.sblock("fill"):
                vi = T.axis.spatial(N, i + first)
                temp[vi] = A[vi]
        for i in range(N - read):
            with T.sblock("read"):
                vi = T.axis.spatial(N, i + read)
                D[vi] = T.max(temp[vi] + T.float32(1), T.float32(0))

    return func


def test_reading_unwritten_memory() -> None:
    arrays = {"A": np.ones(N, "float32"), "D": np.zeros(N, "float32")}
    compile_function(filled(1, 1)).run(arrays)
    with pytest.raises(EvaluationError, match="block 'read'.*'D'.*never written"):
        compile_function(filled(1, 0)).run(arrays)


def test_unwritten_memory_that_is_not_taken_does_no_harm() -> None:
    def of(threshold: int) -> PrimFunc:
        @T.prim_func(s_tir=True)
        def func(A: T.Buffer((N,), "float32"), D: T.Buffer((N,), "float32")):
            temp = T.sblock_alloc_buffer((N,), "float32")
            for i in range(N - 2):
                with T.sblock("fill"):
                    vi = T.axis.spatial(N, i)
                    temp[vi] = A[vi]
            for i in range(N):
                with T.sblock("read"):
                    vi = T.axis.spatial(N, i)
                    D[vi] = T.Select(vi < threshold, T.exp(temp[vi]) + T.float32(1), T.float32(7))

        return func

    arrays = {"A": np.zeros(N, "float32"), "D": np.zeros(N, "float32")}
    result = compile_function(of(N - 2)).run(arrays)["D"]
    np.testing.assert_array_equal(result, [2] * (N - 2) + [7, 7])
    with pytest.raises(EvaluationError, match="never written"):
        compile_function(of(N - 1)).run(arrays)


def shifted(by: int, stored: int = 0) -> PrimFunc:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((N,), "int32"), D: T.Buffer((N,), "int32")):
        for i in range(N - 1):
            with T.sblock("shift"):
                vi = T.axis.spatial(N - 1, i)
                D[vi + stored] = A[vi + by]

    return func


@pytest.mark.parametrize(("by", "stored"), [(2, 0), (-1, 0), (0, 2), (0, -1)])
def test_out_of_bounds(by: int, stored: int) -> None:
    arrays = {"A": np.arange(N, dtype="int32"), "D": np.zeros(N, "int32")}
    compile_function(shifted(1, 1)).run(arrays)
    with pytest.raises(EvaluationError, match="out of bounds: index"):
        compile_function(shifted(by, stored)).run(arrays)


def test_axis_outside_its_domain() -> None:
    def of(extent: int) -> PrimFunc:
        @T.prim_func(s_tir=True)
        def func(D: T.Buffer((N,), "int32")):
            for i in range(extent):
                with T.sblock("fill"):
                    vi = T.axis.spatial(4, i)
                    D[vi] = 1

        return func

    compile_function(of(4)).run({"D": np.zeros(N, "int32")})
    with pytest.raises(EvaluationError, match="axis 'vi' of block 'fill' is 4"):
        compile_function(of(5)).run({"D": np.zeros(N, "int32")})


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        (lambda a, b: T.floordiv(a, b), 0),
        (lambda a, b: T.truncmod(a, b), 0),
        (lambda a, b: a << b, 32),
        (lambda a, b: a >> b, -1),
    ],
    ids=["floordiv", "truncmod", "shift left", "shift right"],
)
def test_undefined_operations(body: Any, bad: int) -> None:
    func = elementwise(body, "int32", "int32")
    ones = np.ones(N, "int32")
    evaluated(func, A=ones, B=ones, D=ones.copy())
    with pytest.raises(EvaluationError, match="divided by zero|shifted by"):
        evaluated(func, A=ones, B=ones * bad, D=ones.copy())


@pytest.mark.parametrize(
    ("body", "dtype", "named"),
    [
        (lambda a, b: T.call_extern("float32", "f", a), "float32", "call_extern"),
        (lambda a, b: T.popcount(a), "int32", "popcount giving int32"),
        (lambda a, b: a + b, "bool", "add of bools"),
    ],
    ids=["extern", "function", "operation"],
)
def test_unsupported_nodes_are_named(body: Any, dtype: str, named: str) -> None:
    compile_function(elementwise(lambda a, b: T.max(a, b), dtype, dtype))
    with pytest.raises(UnsupportedError, match=named):
        compile_function(elementwise(body, dtype, dtype))


def test_a_store_into_a_matched_region_is_one_into_what_it_is_part_of() -> None:
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((N,), "int32"), D: T.Buffer((N,), "int32")):
        for i in range(2):
            with T.sblock("outer"):
                vi = T.axis.spatial(2, i)
                half = T.match_buffer(D[vi * 4 : vi * 4 + 4], (4,), "int32", offset_factor=4)
                with T.sblock("middle"):
                    T.reads(A[vi * 4 : vi * 4 + 4])
                    T.writes(half[0:4])
                    again = T.match_buffer(half[0:4], (4,), "int32", offset_factor=1)
                    for j in range(4):
                        with T.sblock("inner"):
                            vj = T.axis.spatial(4, j)
                            again[vj] = A[vi * 4 + vj] + 1

    program = compile_function(func)
    assert {param.name: param.written for param in program.parameters} == {"A": False, "D": True}
    given = np.arange(N, dtype="int32")
    stored = program.run({"A": given, "D": np.zeros(N, "int32")})["D"]
    np.testing.assert_array_equal(stored, given + 1)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((None,), TypeError, "func must be a PrimFunc or a Schedule, not NoneType"),
        ((row_sums, "float16"), ValueError, "arithmetic must be one of .*: 'float16'"),
        ((row_sums, 16), TypeError, "arithmetic must be one of .*: 16"),
    ],
)
def test_arguments_that_are_none(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        compile_function(*arguments)
