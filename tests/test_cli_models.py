"""The commands for whole models: compile, run and profile."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from cli_runs import run, saved
from fuse_epilogue import workloads
from fuse_epilogue.cli import output

WEIGHT = np.arange(15, dtype="float32").reshape(5, 3) - 7


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An ONNX model, relu(x @ WEIGHT), of any number of rows."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Relu", ["product"], ["y"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path_factory.mktemp("onnx") / "dense.onnx"
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="test"
        ),
        str(path),
    )
    return str(path)


@pytest.fixture(scope="module")
def compiled(dense: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model compiled for four rows."""
    path = str(tmp_path_factory.mktemp("compiled") / "dense.so")
    assert fuse_epilogue.cli.main(["compile", dense, "--size", "rows=4", "-o", path]) == output.DONE
    return path


@pytest.fixture
def x(tmp_path: Path) -> tuple[str, np.ndarray]:
    array = np.random.default_rng(3).standard_normal((4, 5)).astype("float32")
    np.save(tmp_path / "x.npy", array)
    return str(tmp_path / "x.npy"), array


def two_results(path: Path) -> str:
    """A file with a model of two inputs, the second of integers, and two results."""
    builder = relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType((3,), "float32"))
    n = relax.Var("n", relax.TensorType((3,), "int32"))
    with builder.function("main", [a, n]):
        with builder.dataflow():
            one = builder.emit(relax.op.nn.relu(a))
            two = builder.emit(relax.op.add(n, n))
            result = builder.emit_output(relax.Tuple([one, two]))
        builder.emit_func_output(result)
    path.write_text(tvm.ir.save_json(builder.get()))
    return str(path)


def test_compile_saves_what_load_reads(dense: str, tmp_path: Path, capsys: Any) -> None:
    for name in ("dense.so", "dense.fe"):
        out = str(tmp_path / name)
        options = ("--size", "rows=4", "--threads", "1", "--out", out)
        code, said, _ = run(capsys, "compile", dense, *options)
        assert code == output.DONE and said.endswith(f"wrote {out}\n")
        assert "(x: float32[4, 5]) -> float32[4, 3]" in said and "function" in said
        model = fuse_epilogue.load(out)
        assert model.report.threads == 1
        array = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
        np.testing.assert_allclose(model(array), np.maximum(array @ WEIGHT, 0), rtol=0, atol=1e-4)


def test_compile_answers_in_json(dense: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, said, noted = run(capsys, "compile", dense, "--size", "rows=2", "--json")
    data = json.loads(said)
    assert code == output.DONE and data["out"] is None
    assert data["signature"]["inputs"] == [{"name": "x", "shape": [2, 5], "dtype": "float32"}]
    assert [each["calls"] for each in data["report"]["functions"]] == [1]
    assert re.search(r"dense.onnx: \[#* *\] 1/1", noted)


def test_sizes_with_names_stay_open(dense: str, tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "dense.so")
    assert run(capsys, "compile", dense, "-o", out)[0] == output.DONE
    for rows in (1, 7):
        np.save(tmp_path / "x.npy", np.ones((rows, 5), "float32"))
        code, said, _ = run(
            capsys, "run", out, "--input", str(tmp_path / "x.npy"), "--json", "--seed", "1"
        )
        assert code == output.DONE
        assert json.loads(said)["results"]["result0"]["shape"] == [rows, 3]
    code, said, noted = run(capsys, "run", out)
    assert (code, said) == (output.WRONG, "") and "give it one with --size rows=N" in noted


def test_run_describes_and_writes_results(
    compiled: str, x: tuple[str, np.ndarray], tmp_path: Path, capsys: Any
) -> None:
    file, array = x
    expected = np.maximum(array @ WEIGHT, 0)
    out = tmp_path / "y.npy"
    for given in (file, f"x={file}"):
        code, said, _ = run(capsys, "run", compiled, "--input", given, "--out", str(out), "--json")
        facts = json.loads(said)["results"]["result0"]
        assert code == output.DONE and facts["shape"] == [4, 3] and facts["not_finite"] == 0
        assert facts["max"] == pytest.approx(float(expected.max()), rel=1e-5)
        np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-4)
        out.unlink()


def test_run_compiles_what_is_not_compiled(tmp_path: Path, capsys: Any) -> None:
    model = two_results(tmp_path / "model.json")
    np.save(tmp_path / "a.npy", np.array([-1, np.inf, np.inf], "float32"))
    np.save(tmp_path / "n.npy", np.array([1, 2, 3], "int32"))
    given = ["--input", f"n={tmp_path / 'n.npy'}", "--input", str(tmp_path / "a.npy")]
    out = tmp_path / "results.npz"
    code, said, _ = run(capsys, "run", model, *given, "--out", str(out))
    assert code == output.DONE
    assert "result0: float32[3], 0 to 0, mean 0, 2 not finite" in said
    assert "result1: int32[3], 2 to 6, mean 4" in said
    with np.load(out) as results:
        assert results["result1"].tolist() == [2, 4, 6]
        np.testing.assert_array_equal(results["result0"], [0, np.inf, np.inf])


def test_run_draws_the_same_inputs_for_a_seed(compiled: str, capsys: Any) -> None:
    said = [run(capsys, "run", compiled, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert said[0] == said[1] and said[0].startswith("on random inputs, seed 1:")
    assert said[0].splitlines()[1] != said[2].splitlines()[1]


def test_an_index_outside_of_its_array_is_named(tmp_path: Path, capsys: Any) -> None:
    table, ids = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in (("table", [4, 2], "float32"), ("ids", [3], "int64"))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [table, ids]):
        builder.emit_func_output(builder.emit(relax.op.take(table, ids, axis=0)))
    (tmp_path / "rows.json").write_text(tvm.ir.save_json(builder.get()))
    np.save(tmp_path / "table.npy", np.ones((4, 2), "float32"))
    np.save(tmp_path / "ids.npy", np.array([0, 4, 1]))
    given = [f"--input={name}={tmp_path / name}.npy" for name in ("table", "ids")]
    for command in ("run", "profile"):
        code, _, noted = run(capsys, command, str(tmp_path / "rows.json"), *given)
        assert code == output.WRONG
        assert "--input: take: index 4 at [1] of input 'ids' is out of range" in noted


def test_profile_measures_every_function(compiled: str, tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "report.html"
    options = ("--repeats", "3", "--html", str(page), "--json")
    code, said, _ = run(capsys, "profile", compiled, *options)
    data = json.loads(said)
    assert code == output.DONE and data["total_s"] > 0
    assert all(each["measured_s"] > 0 for each in data["report"]["functions"])
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert all(each["name"] in text for each in data["report"]["functions"])
    code, said, _ = run(capsys, "profile", compiled, "--repeats", "1")
    assert code == output.DONE and "ms in functions, median of 1 runs" in said


def test_a_function_of_tir_is_a_model(tmp_path: Path, capsys: Any) -> None:
    path = saved(tmp_path / "m.json", main=workloads.matmul(8, 8, 8, activation="relu"))
    code, said, _ = run(capsys, "profile", path, "--repeats", "2", "--target", "llvm")
    assert code == output.DONE and "main_kernel" in said


def test_a_package_for_trainium(dense: str, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "dense_trn2"
    options = ("--size", "rows=4", "--target", "trn2", "-o", str(folder))
    code, said, _ = run(capsys, "compile", dense, *options)
    assert code == output.DONE and f"wrote {folder}" in said
    x = np.ones((4, 5), "float32")
    expected = np.maximum(x @ WEIGHT, 0)
    np.testing.assert_allclose(fuse_epilogue.load(folder)(x), expected, rtol=1e-5)
    # The folder is there now, and stays as it is.
    code, _, said = run(capsys, "compile", dense, *options)
    assert code == output.WRONG and "is there already: name a new folder" in said
    code, said, _ = run(capsys, "compile", dense, "--target", "trn2")
    assert code == output.REFUSED and "rows" in said


def test_what_cannot_be_compiled_is_refused(tmp_path: Path, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    arrays = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 3]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["y"])], "det", *[[a] for a in arrays]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(tmp_path / "det.onnx"))
    for command in ("compile", "run", "profile"):
        code, said, _ = run(capsys, command, str(tmp_path / "det.onnx"), "--json")
        assert code == output.REFUSED and "Det" in json.loads(said)["error"]
    both = saved(tmp_path / "m.json", f=workloads.matmul(8, 8, 8), g=workloads.matmul(8, 8, 4))
    code, said, _ = run(capsys, "compile", both)
    assert code == output.REFUSED and "none is named 'main'" in said


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["compile", "none.onnx"], "'none.onnx': no file of that name"),
        (["run", "none.so"], "'none.so': no file of that name"),
        (
            ["run", "MODEL", "--target", "trn1"],
            "a processor or a GPU is needed here, not trn1: fuse_epilogue.compile makes packages",
        ),
        (
            ["compile", "MODEL", "--target", "h9"],
            r"(?<=error: )--target 'h9' is neither",
        ),
        (
            ["compile", "MODEL", "--target", "trn2", "--threads", "2"],
            "--threads is not for models on Trainium: leave it out for trn2",
        ),
        (["compile", "MODEL", "--target", "c"], "targets of kind 'llvm' and 'cuda', not 'c'"),
        (["compile", "MODEL", "--threads", "0"], "a whole number from 1, not '0'"),
        (["compile", "MODEL", "--size", "rows"], "it must be NAME=N"),
        (
            ["compile", "MODEL", "--database", "TEXT"],
            "--database: .* is a file: a database is a folder",
        ),
        (["compile", "MODEL", "--size", "n=3"], "no size of the inputs has this name, only rows"),
        (["compile", "none.onnx", "-o", "no/folder/m.so"], "--out cannot be written: there is no"),
        (["compile", "none.onnx", "-o", "m.txt"], "--out 'm.txt': name it .so, or .fe"),
        (["run", "none.so", "-o", "no/folder/y.npy"], "--out cannot be written: there is no"),
        (["run", "none.so", "-o", "y.txt"], "name it .npy for one result"),
        (["profile", "none.so", "--html", "no/folder/r.html"], "--html cannot be written"),
        (["profile", "none.so", "--html", "r.pdf"], "a page is HTML"),
        (["profile", "MODEL", "--repeats", "0"], "a whole number from 1, not '0'"),
        (["run", "SAVED", "--size", "rows=2"], "--size is for a model to compile"),
        (["run", "SAVED", "--winograd"], "--winograd is for a model to compile"),
        (["run", "SAVED", "--input", "none.npy"], "--input 'none.npy': no file of that name"),
        (["run", "SAVED", "--input", "y=none.npy"], "no input 'y', only x"),
        (["run", "SAVED", "--input", "X", "--input", "X"], r"takes 1 arrays \(x\), each once"),
        (["run", "SAVED", "--input", "TEXT"], "is not an array in .npy"),
        (["run", "SAVED", "--input", "PICKLE"], "is not an array in .npy: .*pickle"),
        (["run", "SAVED", "--input", "WIDE"], r"has shape \(4, 6\), not \(4, 5\)"),
        (["run", "SAVED", "--input", "DOUBLE"], "is float64, not float32"),
        (["run", "TEXT"], "is not a saved model, or is damaged"),
        (["profile", "CUT"], "is not a saved model, or is damaged"),
        (["run", "FLIPPED"], "machine code does not match its hash"),
    ],
)
def test_what_is_wrong_is_named(
    command: list[str],
    message: str,
    dense: str,
    compiled: str,
    x: tuple[str, np.ndarray],
    tmp_path: Path,
    capsys: Any,
) -> None:
    data = Path(compiled).read_bytes()
    flipped = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
    files = {"TEXT": b"text", "CUT": data[: len(data) // 2], "FLIPPED": flipped}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "WIDE.npy", np.ones((4, 6), "float32"))
    np.save(tmp_path / "DOUBLE.npy", np.ones((4, 5)))
    np.save(tmp_path / "PICKLE.npy", np.array([{}], dtype=object), allow_pickle=True)
    places = {"MODEL": dense, "SAVED": compiled, "X": x[0]}
    places |= {name: str(tmp_path / name) for name in files}
    places |= {name: str(tmp_path / f"{name}.npy") for name in ("WIDE", "DOUBLE", "PICKLE")}
    code, said, noted = run(capsys, *[places.get(each, each) for each in command])
    assert (code, said) == (output.WRONG, "")
    assert re.search(f"error: .*{message}", noted) and "Traceback" not in noted


def test_a_database_is_filled_and_used(
    dense: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    options = ("--size", "rows=3", "--database", str(tmp_path / "kept"))
    noted = [run(capsys, "compile", dense, *options)[2] for _ in range(2)]
    assert "1/1" in noted[0] and "1/1" not in noted[1]
    (entry,) = (tmp_path / "kept").glob("*.fe")
    entry.write_bytes(b"")
    code, said, noted = run(capsys, "compile", dense, *options)
    assert (code, said) == (output.WRONG, "")
    assert re.search(rf"--database: .*{entry.name}' is not a saved model.*remove it", noted)


def test_ctrl_c(dense: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any, **_options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fuse_epilogue.models.compiling.compile_imported", interrupted)
    out = tmp_path / "m.so"
    code, said, noted = run(capsys, "compile", dense, "-o", str(out))
    assert (code, said) == (output.INTERRUPTED, "") and noted.endswith("interrupted\n")
    assert not out.exists()
