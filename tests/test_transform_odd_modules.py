"""The pass over modules of every kind: nothing is lost, moved or changed but what is fused.

Each is fused twice and compared: the order of functions, the objects that stay, and the results on
whole numbers, with which floats are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import tirx as T

from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from fuse_epilogue.transform.report import MODULE_ATTR

N, K = 6, 5


@T.prim_func(private=True, s_tir=True)
def biased(
    x: T.Buffer((N, K), "float32"), c: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")
):
    total = T.sblock_alloc_buffer((N,), "float32")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("bias"):
            vi = T.axis.spatial(N, i)
            y[vi] = total[vi] + c[vi]


@T.prim_func(private=True, s_tir=True)
def narrowed(x: T.Buffer((N, K), "int8"), w: T.Buffer((K, N), "int8"), y: T.Buffer((N, N), "int8")):
    total = T.sblock_alloc_buffer((N, N), "int32")
    scaled = T.sblock_alloc_buffer((N, N), "int32")
    for i, j, k in T.grid(N, N, K):
        with T.sblock("total"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                total[vi, vj] = 0
            total[vi, vj] += T.Cast("int32", x[vi, vk]) * T.Cast("int32", w[vk, vj])
    for i, j in T.grid(N, N):
        with T.sblock("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            scaled[vi, vj] = T.shift_right(total[vi, vj] * 3, 2)
    for i, j in T.grid(N, N):
        with T.sblock("clip"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.Cast("int8", T.max(T.min(scaled[vi, vj], 127), -128))


@T.prim_func(private=True, s_tir=True)
def widened(x: T.Buffer((N, K), "uint8"), y: T.Buffer((N,), "float64")):
    total = T.sblock_alloc_buffer((N,), "int32")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = 0
            total[vi] += T.Cast("int32", x[vi, vk])
    for i in range(N):
        with T.sblock("widen"):
            vi = T.axis.spatial(N, i)
            y[vi] = T.Cast("float64", total[vi]) * T.float64(0.5)


@T.prim_func(private=True, s_tir=True)
def two_outputs(
    x: T.Buffer((N, K), "float32"), y: T.Buffer((N,), "float32"), z: T.Buffer((N,), "float32")
):
    total = T.sblock_alloc_buffer((N,), "float32")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("both"):
            vi = T.axis.spatial(N, i)
            y[vi] = total[vi] + T.float32(1)
            z[vi] = total[vi] * T.float32(2)


@T.prim_func(private=True, s_tir=True)
def used_twice(
    x: T.Buffer((N, K), "float32"), y: T.Buffer((N,), "float32"), z: T.Buffer((N,), "float32")
):
    total = T.sblock_alloc_buffer((N,), "float32")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("plus"):
            vi = T.axis.spatial(N, i)
            y[vi] = total[vi] + T.float32(1)
    for i in range(N):
        with T.sblock("times"):
            vi = T.axis.spatial(N, i)
            z[vi] = total[N - 1 - vi] * T.float32(2)


@T.prim_func(private=True, s_tir=True)
def result_is_output(
    x: T.Buffer((N, K), "float32"), y: T.Buffer((N,), "float32"), z: T.Buffer((N,), "float32")
):
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("plus"):
            vi = T.axis.spatial(N, i)
            z[vi] = y[vi] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def three_in_a_row(x: T.Buffer((N, K, K), "int32"), y: T.Buffer((1,), "int32")):
    a = T.sblock_alloc_buffer((N, K), "int32")
    b = T.sblock_alloc_buffer((N, K), "int32")
    c = T.sblock_alloc_buffer((N,), "int32")
    d = T.sblock_alloc_buffer((N,), "int32")
    e = T.sblock_alloc_buffer((1,), "int32")
    for i, j, k in T.grid(N, K, K):
        with T.sblock("first"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                a[vi, vj] = 0
            a[vi, vj] += x[vi, vj, vk]
    for i, j in T.grid(N, K):
        with T.sblock("first_more"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj] * 2 + 1
    for i, k in T.grid(N, K):
        with T.sblock("second"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = -100
            c[vi] = T.max(c[vi], b[vi, vk])
    for i in range(N):
        with T.sblock("second_more"):
            vi = T.axis.spatial(N, i)
            d[vi] = T.max(c[vi], 3)
    for i, k in T.grid(1, N):
        with T.sblock("third"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                e[vi] = 0
            e[vi] += d[vk]
    for i in range(1):
        with T.sblock("third_more"):
            vi = T.axis.spatial(1, i)
            y[vi] = e[vi] - 7


@T.prim_func(private=True, s_tir=True)
def symbolic(x_: T.handle, w_: T.handle, c_: T.handle, y_: T.handle):
    n, k, m = T.int64(), T.int64(), T.int64()
    x = T.match_buffer(x_, (n, k), "float32")
    w = T.match_buffer(w_, (k, m), "float32")
    c = T.match_buffer(c_, (m,), "float32")
    y = T.match_buffer(y_, (n, m), "float32")
    total = T.sblock_alloc_buffer((n, m), "float32")
    sum_ = T.sblock_alloc_buffer((n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.sblock("total"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                total[vi, vj] = T.float32(0)
            total[vi, vj] += x[vi, vr] * w[vr, vj]
    for i, j in T.grid(n, m):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            sum_[vi, vj] = total[vi, vj] + c[vj]
    for i, j in T.grid(n, m):
        with T.sblock("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(sum_[vi, vj], T.float32(0))


@T.prim_func(private=True, s_tir=True)
def in_place(x: T.Buffer((N, K), "float32"), y: T.Buffer((N,), "float32")):
    total = T.sblock_alloc_buffer((N,), "float32")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("residual"):
            vi = T.axis.spatial(N, i)
            y[vi] = y[vi] + total[vi]


@T.prim_func(private=True, s_tir=True)
def scalar(x: T.Buffer((K,), "int64"), y: T.Buffer((), "int64")):
    total = T.sblock_alloc_buffer((), "int64")
    for k in range(K):
        with T.sblock("total"):
            vk = T.axis.reduce(K, k)
            with T.init():
                total[()] = T.int64(0)
            total[()] += x[vk]
    with T.sblock("less"):
        y[()] = total[()] - T.int64(3)


@T.prim_func(private=True, s_tir=True)
def product_only(x: T.Buffer((N, K), "float32"), y: T.Buffer((N,), "float32")):
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] += x[vi, vk]


@T.prim_func(private=True, s_tir=True)
def copied(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
    for i in range(N):
        with T.sblock("copy"):
            vi = T.axis.spatial(N, i)
            y[vi] = x[vi]


@T.prim_func(private=True)
def opaque(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
    for i in range(N):
        y[i] = x[i]


@T.prim_func(private=True, s_tir=True)
def half(
    x: T.Buffer((N, K), "float16"), c: T.Buffer((N,), "float16"), y: T.Buffer((N,), "float16")
):
    total = T.sblock_alloc_buffer((N,), "float16")
    for i, k in T.grid(N, K):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float16(0)
            total[vi] += x[vi, vk]
    for i in range(N):
        with T.sblock("bias"):
            vi = T.axis.spatial(N, i)
            y[vi] = total[vi] + c[vi]


@dataclass(frozen=True)
class Odd:
    """A module, and the names of the functions of which something is fused."""

    make: Callable[[], IRModule]
    changed: tuple[str, ...] = ()


def alone(func: tirx.PrimFunc, fused: bool = True) -> Odd:
    return Odd(lambda: IRModule({"main": func}), ("main",) if fused else ())


def several() -> IRModule:
    """Not in alphabetical order; one public, one private, one under another symbol."""
    return IRModule(
        {
            "zebra": biased.with_attr("global_symbol", "zebra"),
            "middle": copied,
            "outside": relax.ExternFunc("outside"),
            "alpha": biased,
            "bare": opaque,
            "quite_another": narrowed.with_attr("global_symbol", "something_else"),
            "again": product_only,
        }
    ).with_attr("mine", 3)


MODULES = {
    "empty": Odd(lambda: IRModule({})),
    "copy": alone(copied, False),
    "opaque": alone(opaque, False),
    "no epilogue": alone(product_only, False),
    "external": Odd(lambda: IRModule({"outside": relax.ExternFunc("outside")})),
    "private": alone(biased),
    "public": alone(biased.with_attr("global_symbol", "main")),
    "int8": alone(narrowed),
    "casts": alone(widened),
    "two outputs": alone(two_outputs, False),
    "used twice": alone(used_twice),
    "result is output": alone(result_is_output),
    "three in a row": alone(three_in_a_row),
    "symbolic": alone(symbolic),
    "in place": alone(in_place),
    "scalar": alone(scalar),
    "float16": alone(half),
    "several": Odd(several, ("zebra", "alpha", "quite_another")),
    "module attributes": Odd(
        lambda: IRModule({"main": biased}).with_attr("mine", [1, {"a": 2}]), ("main",)
    ),
}


def functions(mod: IRModule) -> dict[str, Any]:
    return {var.name_hint: func for var, func in mod.functions.items()}


def run(func: tirx.PrimFunc) -> list[np.ndarray]:
    """What all parameters hold after a run on whole numbers."""
    rng = np.random.default_rng(5)
    sizes = {"n": 4, "k": 3, "m": 7}

    def extent(d: Any) -> int:
        return int(d) if isinstance(d, int | tirx.IntImm) else sizes[str(d.name)]

    arrays = []
    for param in func.params:
        ty = func.buffer_map[param].ty if param in getattr(func, "buffer_map", {}) else param.ty
        shape = [extent(d) for d in ty.shape]
        low = 0 if str(ty.dtype).startswith("u") else -9
        arrays.append(rng.integers(low, 10, shape).astype(str(ty.dtype)))
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    mod = IRModule({"main": func.with_attr("global_symbol", "main")})
    tvm.compile(mod, target="llvm")["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("options", [{}, {"rows": False, "numerics": "reassociate"}], ids=str)
def test_odd_modules(name: str, options: dict[str, Any]) -> None:
    odd = MODULES[name]
    mod = odd.make()
    fuse = FuseReductionEpilogue("always", **options)
    fused = fuse(mod)
    before, after = functions(mod), functions(fused)
    assert list(before) == list(after)
    assert tuple(n for n in before if not before[n].same_as(after[n])) == odd.changed
    assert [each.name for each in report_of(fused).functions] == list(before)
    own = {} if mod.attrs is None else dict(mod.attrs.items())
    assert set(fused.attrs.keys()) == {*own, MODULE_ATTR}
    assert all(tvm_ffi.structural_equal(fused.attrs[key], value) for key, value in own.items())
    # Idempotent, and the same from the same.
    assert fuse(fused).same_as(fused)
    again = FuseReductionEpilogue("always", **options)(odd.make())
    assert tvm_ffi.structural_equal(again, fused) and again.script() == fused.script()
    for one in odd.changed:
        assert before[one].attrs.get("global_symbol") == after[one].attrs.get("global_symbol")
        for expected, got in zip(run(before[one]), run(after[one]), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_call_tir_inplace() -> None:
    """The function stores its result in an argument; Relax and its types stay as they are."""
    builder = relax.BlockBuilder()
    added = builder.add_func(in_place, "in_place")
    x = relax.Var("x", relax.TensorType([N, K], "float32"))
    y = relax.Var("y", relax.TensorType([N], "float32"))
    with builder.function("main", [x, y]):
        out = builder.emit(relax.op.call_tir_inplace(added, [x, y], [1], y.ty))
        builder.emit_func_output(out)
    mod = builder.get()
    fused = FuseReductionEpilogue("always")(mod)
    assert report_of(fused).fused == 1 and fused["main"].same_as(mod["main"])
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-9, 10, shape).astype("float32") for shape in ((N, K), (N,))]
    results = []
    for each in (mod, fused):
        machine = relax.VirtualMachine(tvm.compile(each, target="llvm"), tvm.cpu())
        results.append(machine["main"](*map(tvm.runtime.tensor, arrays)).numpy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(results[0], arrays[1] + arrays[0].sum(1))
