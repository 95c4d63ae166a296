"""The pass over a module of odd functions: nothing is lost, moved or changed but what is fused.

What is fused gives the same on whole numbers, with which floats are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.script import tirx as T

from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from fuse_epilogue.transform.report import MODULE_ATTR
from programs.builders import K, sum_rows
from programs.builders import M as N

pytestmark = pytest.mark.cpp

#: What the symbols of shapes are in the runs.
SIZES = {"n": 4, "k": 3, "m": 7}


def x(*shape: Any, dtype: str = "float32", name: str = "x") -> te.Tensor:
    return te.placeholder(shape or (N, K), dtype, name)


def rows(tensor: te.Tensor, dtype: str = "", over: Callable[..., Any] = te.sum) -> te.Tensor:
    """The sum (or another reduction) of every row."""
    k = te.reduce_axis((0, tensor.shape[-1]), "k")
    return te.compute(
        tensor.shape[:-1], lambda *i: over(tensor[(*i, k)].astype(dtype or tensor.dtype), axis=k)
    )


def product(a: te.Tensor, b: te.Tensor, dtype: str) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute(
        (a.shape[0], b.shape[1]),
        lambda i, j: te.sum(a[i, k].astype(dtype) * b[k, j].astype(dtype), axis=k),
    )


def each(function: Callable[..., Any], *tensors: te.Tensor) -> Any:
    """A block that computes every element of the elements of some tensors."""
    return te.compute(tensors[0].shape, lambda *i: function(*(t[i] for t in tensors)))


def biased(dtype: str = "float32") -> list[Any]:
    a, c = x(dtype=dtype), x(N, dtype=dtype, name="c")
    return [a, c, each(lambda s, d: s + d, rows(a), c)]


def narrowed() -> list[Any]:
    a, b = x(dtype="int8"), x(K, N, dtype="int8", name="w")
    scaled = each(lambda s: (s * 3) >> 2, product(a, b, "int32"))
    return [a, b, each(lambda s: te.max(te.min(s, 127), -128).astype("int8"), scaled)]


def widened() -> list[Any]:
    a = x(dtype="uint8")
    return [a, each(lambda s: s.astype("float64") * 0.5, rows(a, "int32"))]


def used_twice() -> list[Any]:
    a = x()
    total = rows(a)
    backwards = te.compute((N,), lambda i: total[N - 1 - i] * 2.0)
    return [a, each(lambda s: s + 1.0, total), backwards]


def sum_is_a_result() -> list[Any]:
    a = x()
    total = rows(a)
    return [a, total, each(lambda s: s + 1.0, total)]


def three_in_a_row() -> list[Any]:
    a = x(1, N, K, K, dtype="int32")
    first = each(lambda s: s * 2 + 1, rows(a))
    second = each(lambda s: te.max(s, 3), rows(first, over=te.max))
    return [a, each(lambda s: s - 7, rows(second))]


def symbolic() -> list[Any]:
    n, k, m = (te.var(name, "int64") for name in SIZES)
    a, b, c = x(n, k), x(k, m, name="w"), x(n, m, name="c")
    total = each(lambda s, d: s + d, product(a, b, "float32"), c)
    return [a, b, c, each(lambda s: te.max(s, 0.0), total)]


def single_element() -> list[Any]:
    a = x(K, dtype="int64")
    return [a, each(lambda s: s - tirx.const(3, "int64"), rows(a))]


def no_epilogue() -> list[Any]:
    a = x()
    return [a, rows(a)]


def copied() -> list[Any]:
    a = x()
    return [a, each(lambda s: s, a)]


@T.prim_func(private=True, s_tir=True)
def two_outputs(x: T.Buffer((N, K)), y: T.Buffer((N,)), z: T.Buffer((N,))):
    total = T.sblock_alloc_buffer((N,))
    sum_rows(x, total)
    for i in range(N):
        with T.sblock("both"):
            vi = T.axis.spatial(N, i)
            y[vi] = total[vi] + T.float32(1)
            z[vi] = total[vi] * T.float32(2)


@T.prim_func(private=True, s_tir=True)
def in_place(x: T.Buffer((N, K)), y: T.Buffer((N,))):
    total = T.sblock_alloc_buffer((N,))
    sum_rows(x, total)
    for i in range(N):
        with T.sblock("residual"):
            vi = T.axis.spatial(N, i)
            y[vi] = y[vi] + total[vi]


@T.prim_func(private=True)
def opaque(x: T.Buffer((N,)), y: T.Buffer((N,))):
    for i in range(N):
        y[i] = x[i]


def func(tensors: list[Any], symbol: str | None = None) -> tirx.PrimFunc:
    """A private function, unless it has a symbol."""
    made = te.create_prim_func(tensors)
    return made.with_attr("global_symbol", symbol) if symbol else made.without_attr("global_symbol")


# In no alphabetical order: functions of which something is fused, and those that stay.
FUSED = {
    "zebra": func(biased()),
    "public": func(biased(), "public"),
    "under_another_symbol": func(narrowed(), "symbol"),
    "casts": func(widened()),
    "used_twice": func(used_twice()),
    "sum_is_a_result": func(sum_is_a_result()),
    "three_in_a_row": func(three_in_a_row()),
    "symbolic": func(symbolic()),
    "in_place": in_place,
    "single_element": func(single_element()),
    "float16": func(biased("float16")),
}
KEPT = {
    "two_outputs": two_outputs,
    "no_epilogue": func(no_epilogue()),
    "external": relax.ExternFunc("external"),
    "copied": func(copied()),
    "bare": opaque,
}
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"rows": False, "numerics": "reassociate"})


def module() -> IRModule:
    """All of them, by turns, with attributes."""
    names = sorted([*FUSED, *KEPT], key=lambda name: name[::-1])
    functions = {name: {**FUSED, **KEPT}[name] for name in names}
    return IRModule(functions).with_attr("mine", [1, {"a": 2}])


def functions(mod: IRModule) -> dict[str, Any]:
    return {var.name_hint: func for var, func in mod.functions.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nothing_else_is_changed(options: dict[str, Any]) -> None:
    mod, fuse = module(), FuseReductionEpilogue("always", **options)
    fused = fuse(mod)
    before, after = functions(mod), functions(fused)
    assert list(before) == list(after) == [each.name for each in report_of(fused).functions]
    assert {name for name in before if not before[name].same_as(after[name])} == {*FUSED}
    for name in FUSED:
        assert before[name].attrs.get("global_symbol") == after[name].attrs.get("global_symbol")
    assert {*fused.attrs.keys()} == {"mine", MODULE_ATTR}
    assert tvm_ffi.structural_equal(fused.attrs["mine"], mod.attrs["mine"])
    # Idempotent, and the same from the same.
    assert fuse(fused).same_as(fused)
    again = FuseReductionEpilogue("always", **options)(module())
    assert tvm_ffi.structural_equal(again, fused) and again.script() == fused.script()


def test_an_empty_module() -> None:
    assert report_of(FuseReductionEpilogue("always")(IRModule({}))).functions == ()


@pytest.fixture(scope="module")
def built() -> Any:
    """Every function as it is and as it is fused with each of the options, compiled at once."""
    versions = {name: [function] for name, function in FUSED.items()}
    for options in OPTIONS:
        fused = functions(FuseReductionEpilogue("always", **options)(IRModule(FUSED)))
        for name, function in fused.items():
            versions[name].append(function)
    named = {f"{name}_{i}": f for name, made in versions.items() for i, f in enumerate(made)}
    mod = IRModule({name: f.with_attr("global_symbol", name) for name, f in named.items()})
    return tvm.compile(mod, target="llvm")


@pytest.mark.parametrize("name", FUSED)
def test_results_stay(name: str, built: Any) -> None:
    """What all parameters hold after a run on whole numbers."""
    rng = np.random.default_rng(6)
    arrays = []
    for param in FUSED[name].params:
        dtype = str(param.ty.dtype)
        shape = [SIZES[d.name] if isinstance(d, tirx.Var) else int(d) for d in param.ty.shape]
        low = 0 if dtype.startswith("u") else -9
        arrays.append(rng.integers(low, 10, shape).astype(dtype))
    results = []
    for version in range(1 + len(OPTIONS)):
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        built[f"{name}_{version}"](*tensors)
        results.append([tensor.numpy() for tensor in tensors])
    assert any((now != was).any() for now, was in zip(results[0], arrays, strict=True))
    for fused in results[1:]:
        for got, expected in zip(fused, results[0], strict=True):
            np.testing.assert_array_equal(got, expected)


def test_call_tir_inplace() -> None:
    """The function stores its result in an argument; Relax and its types stay as they are."""
    builder = relax.BlockBuilder()
    added = builder.add_func(in_place, "in_place")
    a = relax.Var("a", relax.TensorType([N, K], "float32"))
    b = relax.Var("b", relax.TensorType([N], "float32"))
    with builder.function("main", [a, b]):
        out = builder.emit(relax.op.call_tir_inplace(added, [a, b], [1], b.ty))
        builder.emit_func_output(out)
    mod = builder.get()
    fused = FuseReductionEpilogue("always")(mod)
    assert report_of(fused).fused == 1 and fused["main"].same_as(mod["main"])
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-9, 10, shape).astype("float32") for shape in ((N, K), (N,))]
    machine = relax.VirtualMachine(tvm.compile(fused, target="llvm"), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    np.testing.assert_array_equal(result, arrays[1] + arrays[0].sum(1))
