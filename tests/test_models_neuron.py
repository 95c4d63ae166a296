"""Whole models on Trainium: packages of kernels that run on the interpreter, equal to torch."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, te

import fuse_epilogue
from fuse_epilogue import neuron, workloads
from fuse_epilogue.kernels.trainium.gather import Gather, find_gather
from fuse_epilogue.models import ImportRefusal, NeuronPackage, SavedModelError, import_model

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def torch_model(name: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("models_torch").MODELS[name].build(small=small)


def layers() -> tvm.IRModule:
    """Heads, a softmax, a view, a concatenation, a choice of data, and a sum to one number."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((6, 16), "float32"))
    weight = np.random.default_rng(1).normal(size=(16, 16)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            op = relax.op
            y = builder.emit(op.add(op.matmul(x, relax.const(weight)), relax.const(weight[0])))
            heads = builder.emit(op.permute_dims(op.reshape(y, (6, 4, 4)), (1, 0, 2)))
            soft = builder.emit(op.nn.softmax(heads))
            both = builder.emit(op.concat([soft, heads], 2))
            flat = builder.emit(op.reshape(both, (4, 48)))
            big = op.greater(flat, relax.const(0.2, "float32"))
            chosen = builder.emit(op.where(big, flat, op.negative(flat)))
            total = builder.emit(op.sum(op.sum(chosen, 1)))
            out = builder.emit_output(relax.Tuple([chosen, total]))
        builder.emit_func_output(out)
    return builder.get()


def expected_of_layers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weight = np.random.default_rng(1).normal(size=(16, 16)).astype("float32")
    heads = (x @ weight + weight[0]).reshape(6, 4, 4).transpose(1, 0, 2)
    e = np.exp(heads - heads.max(-1, keepdims=True))
    flat = np.concatenate([e / e.sum(-1, keepdims=True), heads], 2).reshape(4, 48)
    chosen = np.where(flat > np.float32(0.2), flat, -flat)
    return chosen, chosen.sum()


@pytest.fixture(scope="module")
def package() -> NeuronPackage:
    made = fuse_epilogue.compile(layers(), "trn2")
    assert isinstance(made, NeuronPackage)
    return made


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(6, 16)).astype("float32")


def test_results_are_those_of_numpy(package: NeuronPackage, x: np.ndarray) -> None:
    chosen, total = package(x)
    wanted = expected_of_layers(x)
    np.testing.assert_allclose(chosen, wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, wanted[1], rtol=1e-5)
    assert total.shape == ()


def test_every_function_is_a_kernel_that_is_checked(package: NeuronPackage) -> None:
    assert package.not_on_trainium == ()
    assert {step.function for step in package.graph.steps} - {""} == set(package.kernels)
    for name, kernel in package.kernels.items():
        assert kernel.name.startswith(name)
        kernel.check("trn2")
    kinds = {each.kind for each in package.report.functions}
    assert {"product", "movement", "row stages"} <= kinds


def test_times_are_the_sum_of_predictions(package: NeuronPackage) -> None:
    calls = [step.function for step in package.graph.steps if step.function]
    predicted = [package.kernels[name].predict("trn2") for name in calls]
    assert package.predicted_ms == pytest.approx(sum(each.latency_ms for each in predicted))
    for place, own in enumerate(package.range_ms):
        assert own == pytest.approx(sum(each.range_ms[place] for each in predicted))
    text = str(package.report)
    assert "from" in text
    assert "predicted" in text
    assert "2 kernels" not in repr(package) or len(package.kernels) == 2


def test_arguments_are_checked(package: NeuronPackage, x: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"has shape \(5, 16\)"):
        package(x[1:])
    with pytest.raises(TypeError, match="is float64, not float32"):
        package(x.astype("float64"))
    with pytest.raises(TypeError, match="takes 1 arrays"):
        package()


# ---- Without a kernel ---------------------------------------------------------------------------


def with_integers() -> tvm.IRModule:
    """Rows of a table, and integers that are summed, which no kernel does."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    i = relax.Var("i", relax.TensorType((4,), "int64"))
    with builder.function("main", [x, i]):
        with builder.dataflow():
            rows = builder.emit(relax.op.nn.softmax(relax.op.take(x, i, 0)))
            total = builder.emit(relax.op.cumsum(i))
            out = builder.emit_output(relax.Tuple([rows, total]))
        builder.emit_func_output(out)
    return builder.get()


def test_what_no_kernel_computes_is_named_and_computed_by_the_processor() -> None:
    made = fuse_epilogue.compile(with_integers(), "trn2")
    (host,) = made.not_on_trainium
    assert host.name == "cumsum"
    assert host.why.startswith("not on Trainium: ")
    assert host.predicted_s == 0
    assert "cumsum: not on Trainium" in str(made.report)
    table, index = np.arange(128, dtype="float32").reshape(8, 16), np.array([7, 0, 0, 3])
    e = np.exp(table[index] - table[index].max(1, keepdims=True))
    rows, total = made(table, index)
    np.testing.assert_allclose(rows, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert total.tolist() == [7, 7, 7, 10]


def test_the_processor_computes_functions_that_call_others() -> None:
    """Such a function has no stores that say which of its parameters are results."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 9), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(relax.op.topk(x, 4, ret_type="both"))
            out = builder.emit_output(found)
        builder.emit_func_output(out)
    package = fuse_epilogue.compile(builder.get(), "trn2")
    data = np.random.default_rng(0).permutation(27).astype("float32").reshape(3, 9)
    values, places = package(data)
    np.testing.assert_array_equal(values, -np.sort(-data)[:, :4])
    np.testing.assert_array_equal(places, np.argsort(-data)[:, :4])


def test_squares_powers_and_extremes_of_16_bits_have_kernels() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 70), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            op, wide = relax.op, builder.emit(relax.op.astype(x, "float32"))
            square = builder.emit(op.power(op.add(wide, relax.const(1.0)), relax.const(2.0)))
            cube = builder.emit(op.power(op.abs(square), relax.const(1.5)))
            results = [op.power(x, relax.const(2, "float16")), cube, op.max(x, 1), op.min(x, 0)]
            out = builder.emit_output(relax.Tuple([builder.emit(each) for each in results]))
        builder.emit_func_output(out)
    package = fuse_epilogue.compile(builder.get(), "trn2")
    assert package.not_on_trainium == ()
    data = np.random.default_rng(0).normal(size=(5, 70)).astype("float16")
    squared, cube, most, least = package(data)
    np.testing.assert_array_equal(squared, data * data)
    np.testing.assert_allclose(cube, np.abs(data.astype("float32") + 1) ** 3, rtol=1e-5)
    np.testing.assert_array_equal(most, data.max(1))
    np.testing.assert_array_equal(least, data.min(0))


def test_only_what_is_missing_is_said_of_a_function_without_a_kernel() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    weight = relax.const(np.ones((8, 2, 3, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, groups=4))
            out = builder.emit_output(relax.op.cumsum(y, 3))
        builder.emit_func_output(out)
    conv, cumsum = fuse_epilogue.compile(builder.get(), "trn2").not_on_trainium
    assert "it has groups" in conv.why
    assert len(conv.why) < 400
    assert cumsum.why == "not on Trainium: no rule of schedules.neuron is for such a function"


def masked(constant: bool, dtype: str) -> tvm.IRModule:
    """Chooses by a mask between elements and a number, and between two arrays."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 6, 6), dtype))
    mask: Any = relax.Var("mask", relax.TensorType((6, 6), "bool"))
    params = [x] if constant else [x, mask]
    if constant:
        mask = relax.const(np.tril(np.ones((6, 6), "bool")))
    with builder.function("main", params):
        with builder.dataflow():
            half = relax.const(0.5, dtype)
            low = builder.emit_output(relax.op.where(mask, x, relax.const(float("-inf"), dtype)))
            both = builder.emit_output(relax.op.where(mask, x, relax.op.multiply(x, half)))
        builder.emit_func_output(relax.Tuple([low, both]))
    return builder.get()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_constant_masks_choose_on_trainium(dtype: str) -> None:
    """Masks that are inputs do not: engines load no bools."""
    package = fuse_epilogue.compile(masked(True, dtype), "trn2")
    assert not package.not_on_trainium
    x = np.random.default_rng(5).normal(size=(2, 6, 6)).astype(dtype)
    x[0, 0, 3:], x[1, 2] = np.nan, np.inf
    mask = np.tril(np.ones((6, 6), "bool"))
    wide = x.astype("float32")
    low, both = (each.astype("float32") for each in package(x))
    np.testing.assert_array_equal(low, np.where(mask, wide, -np.inf))
    halves = (x * np.array(0.5, dtype)).astype("float32")
    np.testing.assert_array_equal(both, np.where(mask, wide, halves))
    assert len(fuse_epilogue.compile(masked(False, dtype), "trn2").not_on_trainium) == 2


def test_images_reduced_lines_convolved_and_groups_normalised_have_kernels() -> None:
    builder = relax.BlockBuilder()
    rng = np.random.default_rng(3)
    x = relax.Var("x", relax.TensorType((2, 3, 4, 50), "float32"))
    weight = rng.integers(-4, 5, (7, 12, 3)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            op = relax.op
            mean = builder.emit_output(op.mean(x, [2, 3]))
            most = builder.emit_output(op.max(x, [-1, 1, 2], keepdims=True))
            lines = builder.emit(op.reshape(x, (2, 12, 50)))
            conv = builder.emit(
                op.nn.conv1d(lines, relax.const(weight), strides=2, padding=(3, 1), dilation=2)
            )
            clipped = builder.emit_output(op.clip(conv, -100, float("inf")))
            gamma, beta = (rng.normal(size=12).astype("float32") for _ in range(2))
            by_group = op.nn.group_norm(
                lines, relax.const(gamma), relax.const(beta), 3, 1, [2], epsilon=1e-3
            )
            norm = builder.emit_output(by_group)
        builder.emit_func_output(relax.Tuple([mean, most, clipped, norm]))
    package = fuse_epilogue.compile(builder.get(), "trn2")
    assert package.not_on_trainium == ()
    data = rng.integers(-8, 9, (2, 3, 4, 50)).astype("float32")
    mean, most, clipped, norm = package(data)
    np.testing.assert_allclose(mean, data.mean((2, 3)), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(most, data.max((1, 2, 3), keepdims=True))
    padded = np.pad(data.reshape(2, 12, 50), ((0, 0), (0, 0), (3, 1)))
    taps = [padded[:, :, tap : tap + 50 : 2][:, :, :25] for tap in (0, 2, 4)]
    expected = sum(np.einsum("ncw,oc->now", t, weight[:, :, k]) for k, t in enumerate(taps))
    np.testing.assert_array_equal(clipped, np.maximum(expected, -100))
    groups = data.reshape(2, 3, 200).astype("float64")
    groups = groups - groups.mean(2, keepdims=True)
    groups = (groups / np.sqrt(groups.var(2, keepdims=True) + 1e-3)).reshape(2, 12, 50)
    wanted = groups * gamma[:, None] + beta[:, None]
    np.testing.assert_allclose(norm, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("places", [(10,), (3, 90), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_a_table_are_one_indirect_transfer(places: tuple[int, ...], dtype: str) -> None:
    builder = relax.BlockBuilder()
    table = relax.const(np.arange(5000).reshape(50, 100), dtype)
    i = relax.Var("i", relax.TensorType(places, "int64"))
    with builder.function("main", [i]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.take(table, i, 0))
        builder.emit_func_output(out)
    package = fuse_epilogue.compile(builder.get(), "trn2")
    assert [each.kind for each in package.report.functions] == ["gather"]
    (kernel,) = package.kernels.values()
    tiles = -(-int(np.prod(places)) // 128)
    for machine in ("trn1", "trn2", "trn3"):
        assert kernel.check(machine).instructions == {"dma_copy": 3 * tiles}
    rows = np.random.default_rng(0).integers(0, 50, places)
    wanted = np.arange(5000).reshape(50, 100)[rows].astype("float32")
    if dtype == "bfloat16":
        wanted = wanted.astype(ml_dtypes.bfloat16)
    assert package(rows).tobytes() == wanted.tobytes()
    with pytest.raises(neuron.KernelError, match="elements"):
        package(np.full(places, 50))
    with pytest.raises(ValueError, match="indices of a table as int32"):
        package(rows + 2**32)


def test_places_of_other_types_are_not_taken() -> None:
    """A conversion to int8 wraps: only those between places' own types are left out."""

    def gather(dtype: str) -> Gather | None:
        table = te.placeholder((200, 64), "float32", "table")
        places = te.placeholder((10,), "int64", "places")
        out = te.compute((10, 64), lambda i, j: table[places[i].astype(dtype), j], "out")
        return find_gather(te.create_prim_func([table, places, out]))

    assert gather("int32") is not None
    assert gather("int8") is None


def test_a_function_without_a_rule_becomes_several_kernels() -> None:
    """Two products in one function: each has a kernel, and what is between them is in HBM."""
    from tvm import te, topi

    from fuse_epilogue.models.neuron.functions import pieces
    from fuse_epilogue.neuron.machine import TRN2

    a, b, c = (te.placeholder((8, 8), "float32", name) for name in "abc")
    product = topi.matmul(topi.nn.relu(topi.matmul(a, b)), c)
    found = pieces("two", te.create_prim_func([a, b, c, product]), TRN2)
    assert [each.name for each in found] == ["two", "two_1"]
    assert all(each.kernel is not None for each in found)
    shared = {param.name for param in found[0].func.params}
    assert shared & {param.name for param in found[1].func.params}


# ---- Files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(package: NeuronPackage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("saved") / "layers"
    package.save(made)
    return made


def test_a_saved_package_is_the_same(folder: Path, package: NeuronPackage, x: np.ndarray) -> None:
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    kernels = {f"kernels/{name}.py" for name in package.kernels}
    assert files == kernels | {
        *("kernels/__init__.py", "manifest.json", "weights.npz", "report.html"),
        *("glue_torch.py", "glue_jax.py"),
    }
    again = fuse_epilogue.load(folder)
    assert again.signature == package.signature
    assert again.report == package.report
    for one, other in zip(again(x), package(x), strict=True):
        assert one.tobytes() == other.tobytes()
    with pytest.raises(FileExistsError, match="name a new folder"):
        package.save(folder)


def test_a_kernel_may_be_changed_by_hand(folder: Path, tmp_path: Path, x: np.ndarray) -> None:
    package = fuse_epilogue.load(folder)
    copy = tmp_path / "changed"
    package.save(copy)
    name = next(each.name for each in package.report.functions if each.kind == "row stages")
    file = copy / "kernels" / f"{name}.py"
    file.write_text(file.read_text().replace("nl.exp", "nl.tanh"))
    assert not np.array_equal(fuse_epilogue.load(copy)(x)[0], package(x)[0])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.update(format="other"), "belongs to a 'other', not to a package"),
        (lambda data: data.update(format_version=99), "version 99 of the format"),
        (lambda data: data.update(machine="trn9"), "no machine 'trn9'"),
        (lambda data: data["steps"].reverse(), "before it is computed"),
        (lambda data: data["kernels"].pop(), "which the package does not have"),
        (lambda data: data["kernels"].append("../x"), "is not a name"),
        (lambda data: data["arrays"].pop("x"), "damaged"),
        (lambda data: data["arrays"].update(w0=[[3], "float32"]), "has shape"),
        (lambda data: data.pop("report"), "damaged"),
    ],
)
def test_damaged_packages_are_refused(folder: Path, tmp_path: Path, change: Any, why: str) -> None:
    copy = tmp_path / "copy"
    fuse_epilogue.load(folder).save(copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SavedModelError, match=why):
        fuse_epilogue.load(copy)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SavedModelError, match="a folder without a 'manifest.json'"):
        fuse_epilogue.load(tmp_path)


def test_weights_of_narrow_types_are_kept(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "bfloat16"))
    weight = np.random.default_rng(0).normal(size=(4, 8)).astype(ml_dtypes.bfloat16)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, relax.const(weight, "bfloat16")))
        builder.emit_func_output(out)
    package = fuse_epilogue.compile(builder.get(), "trn2")
    package.save(tmp_path / "narrow")
    data = np.ones((4, 8), ml_dtypes.bfloat16)
    for each in (package, fuse_epilogue.load(tmp_path / "narrow")):
        assert each(data).tobytes() == (data + weight).tobytes()
        got = each(tvm.runtime.tensor(data))
        assert isinstance(got, tvm.runtime.Tensor)
        assert got.numpy().tobytes() == (data + weight).tobytes()


# ---- Frameworks ---------------------------------------------------------------------------------


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Modules in the place of nki and jax: kernels run on the interpreter, JAX is numpy."""

    def jit(function: Any) -> Any:
        kernel = neuron.load(Path(inspect.getsourcefile(function) or ""))

        def call(*arrays: Any) -> Any:
            found = kernel(*(np.asarray(array) for array in arrays))
            several = found if isinstance(found, tuple) else (found,)
            if type(arrays[0]).__module__ == "torch":
                import torch

                several = tuple(torch.from_numpy(each) for each in several)
            return several if isinstance(found, tuple) else several[0]

        return call

    nki, jax = ModuleType("nki"), ModuleType("jax")
    nki.jit = jit  # type: ignore[attr-defined]
    jax.numpy = np  # type: ignore[attr-defined]
    for name, module in {
        "nki": nki,
        "nki.isa": ModuleType("nki.isa"),
        "nki.language": ModuleType("nki.language"),
        "jax": jax,
        "jax.numpy": np,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    nki.isa, nki.language = sys.modules["nki.isa"], sys.modules["nki.language"]  # type: ignore[attr-defined]
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("kernels", "glue_torch", "glue_jax"):
            del sys.modules[name]


@pytest.mark.usefixtures("interpreted")
def test_the_text_for_frameworks_calls_the_kernels(package: NeuronPackage, x: np.ndarray) -> None:
    wanted = package(x)
    jax = importlib.import_module("glue_jax")
    for got, other in zip(jax.model(jax.load_weights(), x), wanted, strict=True):
        assert np.asarray(got).tobytes() == other.tobytes()
    torch = pytest.importorskip("torch")
    glue = importlib.import_module("glue_torch")
    for got, other in zip(
        glue.model(glue.load_weights(), torch.from_numpy(x)), wanted, strict=True
    ):
        assert got.numpy().tobytes() == other.tobytes()


def test_the_text_names_what_has_no_kernel(tmp_path: Path) -> None:
    fuse_epilogue.compile(with_integers(), "trn2").save(tmp_path / "rows")
    text = (tmp_path / "rows" / "glue_torch.py").read_text()
    assert 'host["cumsum"](i)' in text
    assert "= take(x, int32(i))" in text
    assert "def model(weights, x, i, host=None):" in text
    assert "T.prim_func" in (tmp_path / "rows" / "host" / "cumsum.py").read_text()


# ---- Options ------------------------------------------------------------------------------------


def test_options_that_are_not_for_trainium_are_refused() -> None:
    mod = tvm.IRModule({"main": workloads.matmul(4, 4, 4)})
    for options in ({"threads": 1}, {"measure": 1.0}, {"sizes": {"n": 1}}, {"limit": 3}):
        with pytest.raises(ValueError, match="is not for models on Trainium"):
            fuse_epilogue.compile(mod, "trn1", **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="finite must be"):
        fuse_epilogue.compile(mod, "trn1", finite=1)
    with pytest.raises(TypeError, match="round_shares must be"):
        fuse_epilogue.compile(mod, "trn1", round_shares=1)


def test_sizes_with_names_are_refused() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    with pytest.raises(ImportRefusal, match=r"differ from call to call \(n\)"):
        fuse_epilogue.compile(builder.get(), "trn2")


def test_progress_is_reported() -> None:
    steps: list[tuple[int, int]] = []
    mod = tvm.IRModule({"main": workloads.matmul(4, 4, 4)})
    fuse_epilogue.compile(mod, "trn3", on_progress=lambda *step: steps.append(step))
    assert steps == [(1, 1)]


def test_elements_of_constant_places_are_slices() -> None:
    from fuse_epilogue.models.neuron.graph import graph_of

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            row = builder.emit(relax.op.take(x, relax.const(-2, "int64"), 0))
            out = builder.emit_output(relax.op.exp(row))
        builder.emit_func_output(out)
    graph = graph_of(import_model(builder.get()))
    assert len(graph.steps) == 1
    assert "element" in graph.steps[0].function
    data = np.arange(32, dtype="float32").reshape(4, 8) / 8
    got = fuse_epilogue.compile(builder.get(), "trn2")(data)
    np.testing.assert_allclose(got, np.exp(data[2]), rtol=1e-6)


# ---- Models of torch ----------------------------------------------------------------------------

#: Name, whether it is the small one, machine, and how many functions have no kernel.
MODELS = [
    pytest.param("bert", True, "trn2", 0),
    pytest.param("bert", True, "trn1", 0, marks=pytest.mark.full),
    pytest.param("bert", False, "trn2", 0, marks=pytest.mark.full),
    pytest.param("mamba", True, "trn3", 0, marks=pytest.mark.full),
    pytest.param("mamba", False, "trn2", 0, marks=pytest.mark.full),
    pytest.param("quantised_mlp", True, "trn2", 2, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("name", "small", "machine", "host"), MODELS)
def test_models_of_torch(
    name: str, small: bool, machine: str, host: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = torch_model(name, small, monkeypatch)
    torch = sys.modules["torch"]
    package = fuse_epilogue.compile(model, machine, example_inputs=(data,), finite=True)
    assert len(package.not_on_trainium) == host
    with torch.no_grad():
        wanted = model(data)
    got = package(data)
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    least, most = package.range_ms
    assert least <= package.predicted_ms <= most
