"""The pass over modules: what it fuses and what it leaves; idempotent, the rest untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import IRModule
from tvm.script import tirx as T

from fuse_epilogue import transform, workloads
from fuse_epilogue._interrupts import is_interrupt
from fuse_epilogue.transform import FuseReductionEpilogue, report_of
from fuse_epilogue.transform.report import FUNCTION_ATTR

pytestmark = pytest.mark.cpp


def absorbing(*args: Any, **options: Any) -> Any:
    """The pass as it absorbs what it can."""
    return FuseReductionEpilogue(*args, **{"numerics": "reassociate", **options})


def matmul(activation: str | None = "relu", **options: Any) -> tirx.PrimFunc:
    return workloads.matmul(4, 6, 5, activation=activation, **options)


@T.prim_func(s_tir=True)
def softmax(x: T.Buffer((3, 5), "float32"), y: T.Buffer((3, 5), "float32")):
    most = T.sblock_alloc_buffer((3,), "float32")
    total = T.sblock_alloc_buffer((3,), "float32")
    scaled = T.sblock_alloc_buffer((3,), "float32")
    for i, k in T.grid(3, 5):
        with T.sblock("most"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                most[vi] = T.min_value("float32")
            most[vi] = T.max(most[vi], x[vi, vk])
    for i, k in T.grid(3, 5):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] += T.exp(x[vi, vk] - most[vi])
    for i in range(3):
        with T.sblock("inverse"):
            vi = T.axis.spatial(3, i)
            scaled[vi] = T.float32(1) / total[vi]
    for i, j in T.grid(3, 5):
        with T.sblock("divide"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.exp(x[vi, vj] - most[vi]) * scaled[vi]


@T.prim_func(s_tir=True)
def elementwise(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("double"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi] * T.float32(2)


@T.prim_func
def opaque(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        y[i] = x[i]


def scheduled(kind: str) -> tirx.PrimFunc:
    """A matmul that somebody has scheduled: an attribute, a loop's kind, a block in a block."""
    func = matmul()
    if kind == "attribute":
        return func.with_attr("tirx.is_scheduled", True)
    sch = s_tir.Schedule(func)
    loops = sch.get_loops("matmul")
    if kind == "blocks":
        sch.blockize(loops[-1])
    else:
        getattr(sch, kind)(loops[0])
    return sch.mod["main"]


def functions(mod: IRModule) -> dict[str, Any]:
    return {var.name_hint: func for var, func in mod.functions.items()}


@pytest.fixture
def mod() -> IRModule:
    # Not in alphabetical order.
    return IRModule(
        {
            "wide": matmul(),
            "ahead": elementwise,
            "soft": softmax,
            "bare": opaque,
            "made": scheduled("parallel"),
            "outside": relax.ExternFunc("outside"),
            "biased": matmul(None),
        }
    )


def results(arrays: list[np.ndarray], *funcs: tirx.PrimFunc) -> list[np.ndarray]:
    """What some functions make of the same data; they are compiled at once."""
    named = {f"f{i}": func.with_attr("global_symbol", f"f{i}") for i, func in enumerate(funcs)}
    built = tvm.compile(IRModule(named), target="llvm")
    out, found = funcs[0].params[-1].ty, []
    for name in named:
        y = tvm.runtime.tensor(np.full([int(d) for d in out.shape], 77, str(out.dtype)))
        built[name](*map(tvm.runtime.tensor, arrays), y)
        found.append(y.numpy())
    return found


def whole_numbers(func: tirx.PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    types = [param.ty for param in func.params[:-1]]
    return [rng.integers(-4, 5, [int(d) for d in ty.shape]).astype(str(ty.dtype)) for ty in types]


# ---- What becomes of each function ---------------------------------------------------------------


def test_every_function_has_its_entry_in_order(mod: IRModule) -> None:
    report = report_of(absorbing()(mod))
    assert [f.name for f in report.functions] == list(functions(mod))
    left_alone = {f.name: f.left_alone for f in report.functions if f.left_alone}
    assert left_alone == {"bare": "opaque", "made": "scheduled", "outside": "external"}
    assert all(f.reason for f in report.functions if f.left_alone)
    assert (report.found, report.fused) == (4, 3)
    assert report.refused == {"consumer-form": 1}  # what follows the maximum is a sum


def test_only_what_is_fused_is_another_object(mod: IRModule) -> None:
    before, after = functions(mod), functions(absorbing()(mod))
    assert list(before) == list(after)
    changed = {name for name in before if not before[name].same_as(after[name])}
    assert changed == {"wide", "soft", "biased"}


def test_the_module_that_goes_in_stays(mod: IRModule) -> None:
    before, text = functions(mod), mod.script()
    absorbing("always")(mod)
    assert mod.script() == text
    assert all(before[name].same_as(func) for name, func in functions(mod).items())


def test_reduction_by_reduction() -> None:
    fused = absorbing("always")(IRModule({"main": softmax}))
    (entry,) = report_of(fused).functions
    most, total = entry.reductions
    assert (most.reduction, most.fused, most.code) == ("most", False, "consumer-form")
    assert (total.reduction, total.fused) == ("total", True)
    assert total.tails == ("T.float32(1.0) / x",)
    arrays = [np.random.default_rng(0).normal(size=(3, 5)).astype("float32")]
    np.testing.assert_array_equal(*results(arrays, fused["main"], softmax))


@pytest.mark.parametrize("kind", ["attribute", "parallel", "unroll", "blocks"])
def test_scheduled_functions_are_left_alone(kind: str) -> None:
    func = scheduled(kind)
    mod = IRModule({"main": func})
    fused = absorbing("always")(mod)
    assert fused["main"].same_as(func)
    assert report_of(fused).functions[0].left_alone == "scheduled"
    # The same function, not scheduled, is fused.
    assert report_of(absorbing("always")(IRModule({"main": matmul()}))).fused == 1


def test_a_failure_of_ours_is_reported(monkeypatch: pytest.MonkeyPatch, mod: IRModule) -> None:
    real = transform.fuse.fuse_one

    def fails(func: Any, reduction: Any, **options: Any) -> Any:
        if func.same_as(mod["wide"]):
            raise RuntimeError("no\nluck")
        return real(func, reduction, **options)

    monkeypatch.setattr(transform.fuse, "fuse_one", fails)
    fused = absorbing()(mod)
    report = report_of(fused)
    assert (report.functions[0].left_alone, report.functions[0].reason) == (
        "failed",
        "RuntimeError: luck",
    )
    assert fused["wide"].same_as(mod["wide"])
    assert not fused["biased"].same_as(mod["biased"])


def test_an_interrupt_is_no_failure(monkeypatch: pytest.MonkeyPatch, mod: IRModule) -> None:
    """It ends the pass, as an error of TVM's ffi, which cannot carry a KeyboardInterrupt."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise RuntimeError("")

    monkeypatch.setattr(transform.fuse, "fuse_one", interrupted)
    with pytest.raises(RuntimeError) as ended:
        absorbing()(mod)
    assert is_interrupt(ended.value)


def test_a_failure_may_say_nothing(monkeypatch: pytest.MonkeyPatch, mod: IRModule) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(transform.fuse, "fuse_one", fails)
    assert report_of(absorbing()(mod)).functions[0].reason == "ValueError: no message"


# ---- The same as the primitive, and bit for bit --------------------------------------------------


CASES = {
    "bias": matmul(None),
    "relu": matmul("relu"),
    "softmax": softmax,
    "conv": workloads.depthwise_conv1d(2, 3, 7, 3, activation="relu"),
    "relax": workloads.relax_depthwise_conv1d(2, 3, 7, 3, activation="relu"),
    "float16": workloads.relax_depthwise_conv1d(2, 3, 7, 3, dtype="float16", activation="relu"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("numerics", ["reassociate", "exact"])
def test_on_elements_it_is_what_the_primitive_makes(name: str, numerics: str) -> None:
    func = CASES[name]
    passed = absorbing("always", rows=False, numerics=numerics)
    fused = passed(IRModule({"main": func}))
    sch = s_tir.Schedule(func, debug_mask="all")
    for entry in report_of(fused).functions[0].reductions:
        if entry.fused:
            sch.fuse_reduction_epilogue(entry.reduction, numerics=entry.fusion.numerics)
    assert tvm_ffi.structural_equal(fused["main"].body, sch.mod["main"].body)
    assert not tvm_ffi.structural_equal(fused["main"].body, func.body)


@pytest.mark.parametrize("name", [name for name in CASES if name != "softmax"])
def test_whole_numbers_stay_bit_for_bit(name: str) -> None:
    func = CASES[name]
    mod = IRModule({"main": func})
    fused = [absorbing("always", rows=rows)(mod)["main"] for rows in (True, False)]
    assert not any(each.same_as(func) for each in fused)
    expected, *got = results(whole_numbers(func), func, *fused)
    for each in got:
        np.testing.assert_array_equal(each, expected)
    assert len(np.unique(expected)) > 3  # data that tells


def test_what_it_emits_is_a_valid_schedule_state() -> None:
    for func in CASES.values():
        for rows in (True, False):
            fused = absorbing("always", rows=rows)(IRModule({"main": func}))
            s_tir.Schedule(fused, debug_mask="all")  # verifies srefs and flags


def test_sixteen_bit_sums_get_a_tail() -> None:
    fused = absorbing()(IRModule({"main": CASES["float16"]}))
    (entry,) = report_of(fused).functions[0].reductions
    assert entry.fused and not entry.absorbed
    (wide,) = report_of(absorbing()(IRModule({"m": matmul()}))).functions[0].reductions
    assert wide.fusion.numerics == "reassociate" and wide.absorbed == ("bias[v_n]",)


def test_floats_stay_bit_for_bit_unless_asked() -> None:
    func = matmul("silu")
    arrays = [
        np.random.default_rng(7).normal(size=[int(d) for d in p.ty.shape]).astype("float32")
        for p in func.params[:-1]
    ]
    mod = IRModule({"main": func})
    fused = FuseReductionEpilogue()(mod)
    (entry,) = report_of(fused).functions[0].reductions
    assert entry.fused and not entry.absorbed
    expected, exact, absorbed = results(arrays, func, fused["main"], absorbing()(mod)["main"])
    np.testing.assert_array_equal(exact, expected)
    # Absorbed, the bias is the first term: another rounding.
    assert (absorbed != expected).any()


# ---- Rows ----------------------------------------------------------------------------------------


def tail_loops(mod: IRModule) -> list[int]:
    """Extents of the loops around the tail alone, and around both blocks."""
    sch = s_tir.Schedule(mod)
    tail, both = sch.get_loops("relu"), sch.get_loops("matmul")
    shared = sum(sch.get(a).same_as(sch.get(b)) for a, b in zip(tail, both, strict=False))
    return [shared, len(tail)]


def test_tails_work_on_rows() -> None:
    mod = IRModule({"main": matmul()})
    assert tail_loops(absorbing()(mod)) == [1, 2]
    assert tail_loops(absorbing(rows=False)(mod)) == [2, 2]
    bytes_saved = [report_of(absorbing(rows=r)(mod)).bytes_saved for r in (True, False)]
    assert bytes_saved == [24 * 4 + 18 * 4, 24 * 4 + 23 * 4]


def test_a_single_row_is_no_row() -> None:
    """Where no loop is around the row, the intermediate would stay as it is."""
    func = workloads.matmul(1, 6, 5, activation="relu")
    fused = absorbing()(IRModule({"main": func}))
    assert report_of(fused).bytes_saved == 6 * 4 + 5 * 4
    assert tail_loops(fused) == [2, 2]


# ---- Idempotent and deterministic ----------------------------------------------------------------


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("policy", ["planner", "always"])
def test_a_second_run_does_nothing(mod: IRModule, policy: str, rows: bool) -> None:
    fuse = absorbing(policy, rows=rows)
    once = fuse(mod)
    assert not once.same_as(mod)
    assert fuse(once).same_as(once)


def test_a_second_run_with_more_allowed_says_what_holds_now() -> None:
    """Two intermediates of 4 x 6 float32: one goes, of the other a row stays, in either run."""
    exact = absorbing("always", numerics="exact")(IRModule({"main": matmul()}))
    again = absorbing("always")(exact)
    for module, absorbed, tail in (
        (exact, (), "T.max(x + bias[v_n], T.float32(0.0))"),
        (again, ("bias[v_n]",), "T.max(x, T.float32(0.0))"),
    ):
        (entry,) = report_of(module).functions[0].reductions
        assert (entry.absorbed, entry.tails) == (absorbed, (tail,))
        assert [step.epilogue for step in entry.fusion.steps] == ["bias", "relu"]
        assert (entry.bytes_saved, entry.bytes_removed) == (24 * 4 + 18 * 4, 24 * 4)


def test_what_a_row_held_is_gone_later() -> None:
    """An intermediate of 8 float32: a single one is left at first, then none."""
    module = IRModule({"main": workloads.row_reduce(8, 8, bias=True)})
    exact = absorbing("always", numerics="exact")(module)
    entries = [
        report_of(each).functions[0].reductions[0] for each in (exact, absorbing("always")(exact))
    ]
    assert [(each.bytes_saved, each.bytes_removed) for each in entries] == [(28, 0), (32, 32)]
    assert not entries[1].tails and entries[1].fusion.steps[0].removed == "reduced"


@pytest.mark.parametrize("text", ["garbage", "[{}]", 5, "null", "[" * 9999])
def test_what_a_function_says_of_itself_may_be_damaged(text: object) -> None:
    func = matmul().with_attr(FUNCTION_ATTR, text)
    report = report_of(absorbing()(IRModule({"main": func}))).functions[0]
    assert report.fused and not report.left_alone


def test_sizes_that_are_none_are_damage() -> None:
    func = absorbing(numerics="exact")(IRModule({"main": matmul()}))["main"]
    damaged = func.attrs[FUNCTION_ATTR].replace('"bytes_removed": 96', '"bytes_removed": "96"')
    again = absorbing()(IRModule({"main": func.with_attr(FUNCTION_ATTR, damaged)}))
    assert report_of(again).functions[0].bytes_saved == 18 * 4


def test_another_function_under_the_name_has_a_report_of_its_own() -> None:
    fused = absorbing()(IRModule({"main": matmul()}))
    fused["main"] = elementwise
    again = absorbing()(fused)
    assert report_of(fused).fused == 1
    assert report_of(again).functions[0].reductions == ()


def test_a_renamed_function_keeps_its_report() -> None:
    fused = absorbing()(IRModule({"main": matmul()}))
    renamed = absorbing()(IRModule({"other": fused["main"]}))
    assert renamed["other"].same_as(fused["main"])
    (entry,) = report_of(renamed).functions
    assert entry.name == "other" and entry.reductions == report_of(fused).functions[0].reductions
    assert fused["main"].attrs[FUNCTION_ATTR]


def test_deterministic(mod: IRModule) -> None:
    runs = [absorbing()(mod) for _ in range(3)]
    assert all(run.script() == runs[0].script() for run in runs)
    assert all(tvm_ffi.structural_equal(run, runs[0]) for run in runs)


# ---- Composition ---------------------------------------------------------------------------------


def relax_module(layers: int = 1) -> IRModule:
    """Products with a bias and ReLU, softmax and a sum of two tensors, by turns, each of a size."""
    builder, params, outs = relax.BlockBuilder(), [], []
    for i in range(layers):
        c = 4 + i
        shapes = {0: ([4, c], [c, 8], [8])}.get(i % 3, ([4, c], [c]))
        for j, shape in enumerate(shapes):
            params.append((i, relax.Var(f"p{i}_{j}", relax.TensorType(shape, "float32"))))
    with builder.function("main", [var for _, var in params]):
        with builder.dataflow():
            for i in range(layers):
                own = [var for layer, var in params if layer == i]
                if i % 3 == 0:
                    y = builder.emit(relax.op.matmul(own[0], own[1]))
                    y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, own[2]))))
                elif i % 3 == 1:
                    y = builder.emit(relax.op.nn.softmax(own[0], axis=-1))
                else:
                    y = builder.emit(relax.op.add(own[0], own[1]))
                outs.append(y)
            out = builder.emit_output(relax.Tuple(outs))
        builder.emit_func_output(out)
    return builder.get()


GROUPED = [
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FuseOps(),
]


def test_in_a_sequence_with_relax() -> None:
    mod = relax_module(3)
    passes = [*GROUPED, relax.transform.FuseTIR(), absorbing()]
    later = [relax.transform.ToNonDataflow(), relax.transform.CallTIRRewrite()]
    lowered = tvm.ir.transform.Sequential(passes)(mod)
    assert report_of(lowered).fused == 1
    after = tvm.ir.transform.Sequential([*passes, *later])(mod)
    assert report_of(after) == report_of(lowered)
    rng = np.random.default_rng(5)
    arrays = [
        rng.integers(-4, 5, [int(d) for d in p.ty.shape]).astype("float32")
        for p in mod["main"].params
    ]
    got = []
    for each in (mod, lowered):
        machine = relax.VirtualMachine(tvm.compile(each, target="llvm"), tvm.cpu())
        out = machine["main"](*map(tvm.runtime.tensor, arrays))
        got.append([one.numpy() for one in out])
    for before, now in zip(*got, strict=True):
        np.testing.assert_array_equal(before, now)


def test_relax_functions_are_not_touched() -> None:
    mod = tvm.ir.transform.Sequential([*GROUPED, relax.transform.FuseTIR()])(relax_module())
    fused = absorbing()(mod)
    assert fused["main"].same_as(mod["main"])
    assert [var.name_hint for var in fused.functions] == [var.name_hint for var in mod.functions]
    assert all(a.same_as(b) for a, b in zip(fused.functions, mod.functions, strict=True))


def test_other_attributes_stay() -> None:
    mod = IRModule({"main": matmul().with_attr("mine", 7)}).with_attr("ours", 8)
    fused = absorbing()(mod)
    assert fused.attrs["ours"] == 8 and fused["main"].attrs["mine"] == 7
