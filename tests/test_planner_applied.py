"""Plans can be applied: ways that TVM refuses are left out, and wrong regions are put right."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.ir import assert_structural_equal
from tvm.s_tir import Schedule
from tvm.script import from_source

import fuse_epilogue
from cuda_runs import on_machines
from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner import Plan
from fuse_epilogue.rewrites.access_regions import with_accessed_regions
from oracles import compile_together
from planner_cuda import TARGET as CUDA
from planner_problems import as_it_is

CPU = schedules.host(2)
TARGETS = pytest.mark.parametrize("target", [CPU, CUDA, "trn1"], ids=["cpu", "cuda", "trn1"])

_PRODUCT = """@T.prim_func(s_tir=True)
def main(a: T.Buffer((16, 16)), b: T.Buffer((16, 16)), y: T.Buffer((16, 16))):
    s = T.sblock_alloc_buffer((16, 16))
    for i, j in T.grid(16, 16):
        for k in range({start}, 16):
            with T.sblock("product"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(({start}, 16), k)
                T.reads({reads})
                T.writes({writes})
                with T.init():
                    s[vi, vj] = T.float32(0)
                s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(16, 16):
        with T.sblock("after"):
            vi, vj = T.axis.remap("SS", [i, j])
            {follows}
            y[vi, vj] = {after}
"""
_ROWS = """@T.prim_func(s_tir=True)
def main(x: T.Buffer((16, 64)), bias: T.Buffer((16,)), y: T.Buffer((16,))):
    for i, j in T.grid(16, 64):
        with T.sblock("rows"):
            vi, vj = T.axis.remap("SR", [i, j])
            T.reads({reads})
            T.writes({writes})
            with T.init():
                y[vi] = {init}
            y[vi] = y[vi] + x[vi, vj]
"""


_CONV = """@T.prim_func(s_tir=True)
def main(x: T.Buffer((2, 4, 34)), w: T.Buffer((4, 3)), y: T.Buffer((2, 4, 32))):
    s = T.sblock_alloc_buffer((2, 4, 32))
    for n, c, i, k in T.grid(2, 4, 32, 3):
        with T.sblock("conv"):
            vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
            with T.init():
                {sums}[vn, vc, vi] = T.float32(0)
            {sums}[vn, vc, vi] = {sums}[vn, vc, vi] + x[vn, vc, vi + vk] * w[vc, vk]
    for n, c, i in T.grid(2, 4, 32):
        with T.sblock("after"):
            vn, vc, vi = T.axis.remap("SSS", [n, c, i])
            y[vn, vc, vi] = T.max({sums}[vn, vc, vi], T.float32(0))
"""


def product(after, reads="a[vi, vk], b[vk, vj]", writes="s[vi, vj]", start=0, follows=""):
    made = {"after": after, "reads": reads, "writes": writes, "follows": follows}
    return from_source(_PRODUCT.format(**made, start=start))


def rows(reads="x[vi, vj]", writes="y[vi]", init="T.float32(0)"):
    return from_source(_ROWS.format(reads=reads, writes=writes, init=init))


#: name -> the function, and the same one whose reduction declares whole buffers.
WIDE = {
    "product": (
        product("s[vi, vj] * T.float32(2)"),
        product("s[vi, vj] * T.float32(2)", "a[0:16, 0:16], b[vk, vj]", "s[0:16, 0:16]"),
    ),
    "rows": (rows(), rows("x[0:16, 0:64]", "y[0:16]")),
}


def data(func):
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, param.ty.shape)) for param in func.params]
    return [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]


def on_cpu(func, arrays):
    given = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(func, target=CPU)(*given)
    return given[-1].numpy()


@TARGETS
@pytest.mark.parametrize("name", WIDE)
def test_what_a_block_declares_beyond_what_it_accesses_changes_no_schedule(name, target):
    # Its tiles would all be copies of the whole buffer, over what other threads have computed.
    plain, wide = WIDE[name]
    made = fuse_epilogue.plan(wide, target).apply(wide)
    right = fuse_epilogue.plan(plain, target).apply(plain)
    assert_structural_equal(made.mod, right.mod)
    replayed = Schedule(wide)
    tvm.s_tir.Trace.apply_json_to_schedule(made.trace.as_json(), replayed)
    assert_structural_equal(replayed.mod, made.mod)


def test_regions_are_changed_only_where_accesses_tell_them():
    for func in (workloads.matmul(8, 8, 8), workloads.depthwise_conv1d(1, 2, 8, 3)):
        assert with_accessed_regions(func) is func
    padded = workloads.relax_depthwise_conv1d(1, 8, 64, 4, padding="causal")
    assert with_accessed_regions(padded) is padded
    plain, wide = WIDE["rows"]
    assert_structural_equal(with_accessed_regions(wide), plain)


def test_a_block_that_takes_an_address_stays_as_it_is():
    after = 'T.call_extern("float32", "first", T.address_of(s[vi, 0]))'
    func = product(after, follows="T.reads(s[vi, 0:16])")
    assert with_accessed_regions(func) is func


@pytest.mark.parametrize(("after", "ways"), [("s + y", ["tail"]), ("s * y", ["tail"])])
def test_what_accumulates_in_place_is_planned_where_it_can_be(after, ways):
    func = product(after.replace("s", "s[vi, vj]").replace("y", "y[vi, vj]"))
    a, b, y = data(func)
    plan = fuse_epilogue.plan(func, CPU)
    assert list(plan.found.by_fusion) == ways
    assert "'after' reads 'y' and writes it" in plan.explain(verbose=True)
    read = Plan.from_json(plan.to_json())
    right = a @ b + y if "+" in after else (a @ b) * y
    np.testing.assert_array_equal(on_cpu(read.apply(func).mod["main"], [a, b, y]), right)
    with pytest.raises(ValueError, match="this function of kind 'product' cannot be scheduled"):
        fuse_epilogue.plan(func, CUDA)


def test_a_convolution_that_is_changed_in_place_has_no_kernel_and_says_so():
    plan = fuse_epilogue.plan(from_source(_CONV.format(sums="s")), CUDA)
    assert list(plan.found.by_fusion) == ["none", "tail"]
    with pytest.raises(
        ValueError, match="kind 'conv' cannot be scheduled: .*'after' reads 'y'"
    ) as e:
        fuse_epilogue.plan(from_source(_CONV.format(sums="y")), CUDA)
    assert "no tail: [other-writer] block 'after'" in str(e.value)


@pytest.mark.slow
@on_machines
@pytest.mark.parametrize("name", ["a product and its operand", "rows that start from a bias"])
def test_what_is_read_twice_has_kernels(machine, name):
    func = product("s[vi, vj] + a[vi, vj]") if "product" in name else rows(init="bias[vi]")
    arrays = [tvm.runtime.tensor(array) for array in data(func)]
    right = as_it_is(func, arrays)
    plan = fuse_epilogue.plan(func, CUDA)
    assert list(plan.found.by_fusion) == (["none", "tail"] if "product" in name else ["none"])
    arrays[-1].copyfrom(np.full(right.shape, 99, right.dtype))
    machine(plan.apply(func).mod["main"])(*arrays)
    np.testing.assert_array_equal(arrays[-1].numpy(), right)


@pytest.mark.parametrize("target", [CPU, CUDA], ids=["cpu", "cuda"])
def test_loops_that_start_elsewhere_are_refused(target):
    after = "s[vi, vj] * T.float32(2)"
    assert fuse_epilogue.plan(product(after), target).kind == "product"
    with pytest.raises(ValueError, match="loops that start at 0"):
        fuse_epilogue.plan(product(after, start=4), target)


def test_a_schedule_without_main_is_told_what_to_pass():
    func = workloads.matmul(8, 8, 8)
    plan = fuse_epilogue.plan(func, CPU)
    sch = Schedule(tvm.IRModule({"g": func, "h": func}))
    with pytest.raises(ValueError, match=r"no function of g, h: .* sch.mod\[name\]"):
        plan.apply(sch)
    assert_structural_equal(plan.apply(Schedule(func)).mod, plan.apply(sch.mod["g"]).mod)


# ---- What follows has another rank, or other loops -----------------------------------------------

_REDUCED = {
    "product": """
def main(a: T.Buffer(({m}, {k})), b: T.Buffer(({k}, {n})), c: T.Buffer(({n},)), {y}):
    s = T.sblock_alloc_buffer(({m}, {n}))
    u = T.sblock_alloc_buffer(({m}, {n}))
    for i, j, k in T.grid({m}, {n}, {k}):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid({m}, {n}):
        with T.sblock("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            u[vi, vj] = s[vi, vj] + c[vj]
""",
    "rows": """
def main(x: T.Buffer(({m}, {n})), c: T.Buffer(({m},)), {y}):
    s = T.sblock_alloc_buffer(({m},))
    u = T.sblock_alloc_buffer(({m},))
    for i, j in T.grid({m}, {n}):
        with T.sblock("rows"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + x[vi, vj]
    for i in range({m}):
        with T.sblock("bias"):
            vi = T.axis.spatial({m}, i)
            u[vi] = s[vi] + c[vi]
""",
}


def shaped(kind, shape, after, m=16, n=16, k=16):
    """Return a reduction, a bias, and what follows of it in a result of some shape."""
    lines, inner = [], "    "
    for at, size in enumerate(shape):
        lines.append(f"{inner}for i{at} in range({size}):")
        inner += "    "
    lines.append(f'{inner}with T.sblock("after"):')
    axes = [f"v{at}" for at in range(len(shape))]
    for at, size in enumerate(shape):
        lines.append(f"{inner}    v{at} = T.axis.spatial({size}, i{at})")
    lines.append(f"{inner}    y[{', '.join(axes) or 0}] = {after}")
    head = _REDUCED[kind].format(m=m, n=n, k=k, y=f"y: T.Buffer({shape or (1,)})")
    return from_source("@T.prim_func(s_tir=True)" + head + "\n".join(lines))


#: name -> the function.
SHAPED = {
    "heads": shaped("product", (16, 4, 4), "T.max(u[v0, v1 * 4 + v2], T.float32(0))"),
    "heads first": shaped("product", (4, 16, 4), "T.max(u[v1, v0 * 4 + v2], T.float32(0))"),
    "flat": shaped("product", (256,), "T.max(u[v0 // 16, v0 % 16], T.float32(0))"),
    "flat, odd": shaped("product", (45,), "T.max(u[v0 // 5, v0 % 5], T.float32(0))", m=9, n=5),
    "an image": shaped("product", (1, 16, 16), "T.max(u[v1, v2], T.float32(0))"),
    "one product": shaped("product", (), "T.max(u[0, 0], T.float32(0))", m=1, n=1),
    "a column": shaped("rows", (16, 1), "u[v0] * T.float32(2)"),
    "a square": shaped("rows", (4, 4), "u[v0 * 4 + v1] * T.float32(2)"),
    "one row": shaped("rows", (), "u[0] * T.float32(2)", m=1),
    "the rows": shaped("rows", (16, 16), "x[v0, v1] - u[v0]"),
}


def before(func, name, change):
    """Return a function of which the loops of a block were changed."""
    sch = Schedule(func)
    change(sch, *sch.get_loops(name))
    return sch.mod["main"]


_MATMUL = workloads.matmul(16, 16, 16, activation="relu")
_SUMMED = workloads.row_reduce(16, 64, bias=True, activation="relu")
CHANGED = {
    "split": before(_MATMUL, "relu", lambda sch, i, j: sch.split(j, [None, 4])),
    "split, not whole": before(_MATMUL, "relu", lambda sch, i, j: sch.split(j, [None, 5])),
    "fused": before(_MATMUL, "relu", lambda sch, i, j: sch.fuse(i, j)),
    "split rows": before(_SUMMED, "relu", lambda sch, i: sch.split(i, [None, 4])),
}


def check_all_ways(func, plan):
    """Compare some points of each way to fuse with the function as it is, bit for bit."""
    problem = plan.problem(func)
    points, _ = problem.space.feasible()
    assert list(plan.found.by_fusion) == list(problem.space.by_name["fusion"].labels)
    made = {"as_it_is": func}
    for mode in problem.epilogue.modes:
        for threads in (1, 2):
            (where,) = np.nonzero((points["fusion"] == mode) & (points["threads"] == threads))
            for at in dict.fromkeys(where[[0, -1]] if len(where) else ()):
                made[f"f{len(made)}"] = problem.apply(points.at(int(at))).mod["main"]
    assert len(made) > len(problem.epilogue.modes)
    arrays, results = data(func), {}
    for name, run in compile_together(made, opt_level=0).items():
        given = [tvm.runtime.tensor(array) for array in arrays]
        given[-1].copyfrom(np.full_like(arrays[-1], np.nan))
        run(*given)
        results[name] = given[-1].numpy().view("int32")
    for name, result in results.items():
        np.testing.assert_array_equal(result, results["as_it_is"], err_msg=name)


@pytest.mark.parametrize("name", SHAPED)
def test_what_follows_may_have_any_rank(name):
    func = SHAPED[name]
    plan = fuse_epilogue.plan(func, CPU)
    ways = ["none"] if name == "the rows" else ["none", "tail", "absorbed"]
    assert list(plan.found.by_fusion) == ways
    check_all_ways(func, plan)


@pytest.mark.parametrize("name", CHANGED)
def test_loops_that_were_split_or_fused_before(name):
    func = CHANGED[name]
    check_all_ways(func, fuse_epilogue.plan(func, CPU))
    # Threads are bound to loops of axes.
    with pytest.raises(ValueError, match="the planner does not know .* and nothing scheduled"):
        fuse_epilogue.plan(func, CUDA)


# ---- Sizes of 0 ----------------------------------------------------------------------------------

_EMPTY = _CONV.format(sums="s")
EMPTY = {
    "no rows of a product": shaped("product", (0, 16), "u[v0, v1]", m=0),
    "no columns of a product": shaped("product", (16, 0), "u[v0, v1]", n=0),
    "products of nothing": shaped("product", (16, 16), "u[v0, v1]", k=0),
    "no rows": shaped("rows", (0,), "u[v0]", m=0),
    "rows of nothing": shaped("rows", (16,), "u[v0]", n=0),
    "no images": from_source(_EMPTY.replace("(2,", "(0,")),
    "no columns of a convolution": from_source(_EMPTY.replace(" 32", " 0")),
    "no taps": from_source(_EMPTY.replace(", 3)", ", 0)")),
}


@pytest.mark.parametrize("target", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", EMPTY)
def test_a_size_of_0_is_refused_by_its_name(name, target):
    reason = r"axis 'v\w' of '\w+' has the size 0: there is nothing"
    for use in (fuse_epilogue.plan, schedules.apply):
        with pytest.raises(ValueError, match=reason) as caught:
            use(EMPTY[name], target)
        assert str(caught.value).count("has the size 0") == 1
    planner, rule = schedules.explain(EMPTY[name], target).splitlines()
    assert re.match(f"no plan: {reason}", planner)
    assert re.match(f"DepthwiseConv1d: not scheduled: {reason}", rule)
