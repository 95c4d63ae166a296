"""The command line: what it reads, what it says, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from fuse_epilogue import _files, cli, neuron, workloads
from fuse_epilogue.cli import inputs, output
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.measure import arguments
from fuse_epilogue.schedule import NUMERICS


@pytest.fixture
def product(tmp_path):
    """A file with one function that the planner knows."""
    return saved(tmp_path / "product.json", main=workloads.matmul(16, 16, 16, activation="relu"))


def saved(path, **funcs):
    path.write_text(tvm.ir.save_json(tvm.IRModule(funcs)))
    return str(path)


def run(capsys, *arguments):
    """Return exit code, standard output and standard error of a command."""
    code = cli.main(arguments)
    return code, *capsys.readouterr()


# ---- What it reads -------------------------------------------------------------------------------


def test_a_module_and_a_function_are_read_from_json(tmp_path):
    func = workloads.row_reduce(8, 8)
    module = inputs.read(saved(tmp_path / "m.json", first=func, second=func))
    assert list(inputs.functions(module)) == ["first", "second"]
    (tmp_path / "f.json").write_text(tvm.ir.save_json(func))
    alone = inputs.functions(inputs.read(str(tmp_path / "f.json")))
    tvm.ir.assert_structural_equal(alone["main"], func)


def test_a_script_is_read_only_if_it_may_be_executed(tmp_path):
    file = tmp_path / "m.py"
    module = tvm.IRModule({"main": workloads.row_reduce(8, 8)})
    file.write_text(module.script() + "\nopen(__file__ + '.ran', 'w').close()\n")
    ran = tmp_path / "m.py.ran"
    with pytest.raises(inputs.InputError, match="pass --run-python if you trust it"):
        inputs.read(str(file))
    assert not ran.exists()
    tvm.ir.assert_structural_equal(inputs.read(str(file), run_python=True), module)
    assert ran.exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.json", "{", "'.*m.json' is not a module in JSON .*: Expecting"),
        ("m.json", "5", "is not a module in JSON .* write one with tvm.ir.save_json"),
        ("m.json", "[]", "is not a module in JSON"),
        ("m.txt", "", r"its name ends in none of \.json, \.py, \.onnx"),
        ("m.py", "x = 1\n", "holds no IRModule and no PrimFunc, only .*int"),
        ("m.py", "raise SystemExit('stop')", "raises SystemExit when executed: stop"),
        ("m.py", "this is no Python", "raises SyntaxError"),
    ],
)
def test_what_is_no_module_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(inputs.InputError, match=message):
        inputs.read(str(tmp_path / name), run_python=True)


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "m.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(inputs.InputError, match="cannot be read"):
        inputs.read(str(tmp_path / "m.json"))


def test_two_modules_in_a_script_are_too_many(tmp_path):
    script = tvm.IRModule({"main": workloads.row_reduce(8, 8)}).script()
    (tmp_path / "m.py").write_text(script + script.replace("class Module", "class Other"))
    with pytest.raises(inputs.InputError, match="holds 2 modules"):
        inputs.read(str(tmp_path / "m.py"), run_python=True)


def test_an_onnx_model_is_lowered(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    shapes = {"x": [2, 8], "w": [8, 4], "b": [4], "y": [2, 4]}
    values = {name: helper.make_tensor_value_info(name, kind, s) for name, s in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("Add", ["s", "b"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [values[n] for n in "xwb"], [values["y"]])
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), str(file))
    funcs = inputs.functions(inputs.read(str(file)))
    assert len(funcs) == 1 and "matmul" in next(iter(funcs))
    file.write_bytes(b"no model")
    with pytest.raises(inputs.InputError, match="cannot be read as ONNX"):
        inputs.read(str(file))


def test_a_module_without_functions_is_named(tmp_path):
    module = inputs.read(saved(tmp_path / "m.json", main=workloads.row_reduce(8, 8)))
    with pytest.raises(inputs.InputError, match="no PrimFunc 'other', only main"):
        inputs.functions(module, "other")
    with pytest.raises(inputs.InputError, match="the module has no PrimFunc"):
        inputs.functions(tvm.IRModule({}))


def test_json_comes_from_standard_input(product, capsys, monkeypatch):
    with open(product) as file:
        monkeypatch.setattr(sys, "stdin", io.StringIO(file.read()))
    assert run(capsys, "plan", "-", "--target", "llvm")[0] == output.DONE


# ---- Files are written whole or not at all -------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    _files.write(file, "before")
    before = file.stat().st_mode

    class Killed(BaseException):
        pass

    def dies(*_, **__):
        raise Killed

    monkeypatch.setattr(_files.os, "fdopen", dies)
    with pytest.raises(Killed):
        _files.write(file, "after")
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]
    assert file.stat().st_mode == before


def test_what_is_no_file_is_written_to_and_of_a_link_the_file_behind_it(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    _files.write(pipe, "through")
    reader.join()
    assert read == ["through"] and pipe.is_fifo()
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("before")
    link.symlink_to(file)
    _files.write(link, "after")
    assert link.is_symlink() and file.read_text() == "after"


# ---- Commands ------------------------------------------------------------------------------------


def test_plan_explains_and_writes(product, tmp_path, capsys):
    out, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    code, said, _ = run(
        *(capsys, "plan", product, "--target", "llvm", "--out", str(out), "--picture", str(picture))
    )
    assert code == output.DONE and "fused against unfused" in said
    chosen = Plan.from_json(out.read_text())
    assert chosen.sizes == {"m": 16, "n": 16, "k": 16}
    assert picture.read_text().startswith("<svg")
    code, said, _ = run(capsys, "plan", product, "--target", "llvm", "--json")
    data = json.loads(said)["main"]
    assert data["point"] == chosen.point and data["predicted_s"] == chosen.cost


def test_plan_measures_on_request(product, capsys):
    code, said, _ = run(capsys, "plan", product, "--measure", "3")
    assert code == output.DONE and "the least of" in said
    _, said, _ = run(capsys, "plan", product, "--measure", "3", "--json")
    assert json.loads(said)["main"]["measured_s"] > 0
    _, said, _ = run(capsys, "plan", product, "--json")
    assert json.loads(said)["main"]["measured_s"] is None
    code, said, _ = run(capsys, "plan", product, "--measure", "-3")
    assert code == output.REFUSED and "an int from 0, not -3" in said


def test_plan_says_what_it_does_not_know(tmp_path, capsys):
    both = saved(
        tmp_path / "m.json",
        known=workloads.matmul(16, 16, 16),
        unknown=workloads.elementwise(8, 8),
    )
    code, said, _ = run(capsys, "plan", both, "--target", "llvm", "--json")
    data = json.loads(said)
    assert code == output.REFUSED and "does not know this function" in data["unknown"]["error"]
    assert data["known"]["kind"] == "product"
    out = tmp_path / "p.json"
    code, _, said = run(capsys, "plan", both, "--target", "llvm", "--out", str(out))
    assert code == output.WRONG and "pick one of known, unknown with --function" in said
    assert not out.exists()
    picked = ("--function", "known", "--out", str(out))
    assert run(capsys, "plan", both, "--target", "llvm", *picked)[0] == output.DONE
    assert out.exists()


def test_nki_writes_a_kernel_that_runs(product, tmp_path, capsys):
    out = tmp_path / "kernel.py"
    code, _, noted = run(capsys, "nki", product, "--machine", "trn2", "--out", str(out))
    assert code == output.DONE and "ms predicted" in noted
    neuron.load(out.read_text())
    code, said, _ = run(capsys, "nki", product, "--machine", "trn2")
    assert code == output.DONE and said.rstrip("\n") == out.read_text().rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "missing.json"], "'missing.json': no file of that name"),
        (["plan", "PRODUCT", "--target", "riscy"], "--target 'riscy' is no target that TVM knows"),
        (["plan", "PRODUCT", "--target", '{"kind": "cuda"'], "is no target that TVM knows"),
        (["plan", "PRODUCT", "--picture", "p.png"], "a picture is SVG"),
        (["plan", "PRODUCT", "--out", "no/such/folder/p.json"], "there is no folder"),
        (["nki", "PRODUCT", "--function", "other"], "there is no PrimFunc 'other', only main"),
    ],
)
def test_wrong_input_is_named_without_a_traceback(arguments, message, product, capsys):
    given = [product if each == "PRODUCT" else each for each in arguments]
    code, said, noted = run(capsys, *given)
    assert code == output.WRONG and said == ""
    assert noted.startswith("error: ") and message in noted and "Traceback" not in noted


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert f"python -m fuse_epilogue {name}" in said and "exit codes" in said


def test_it_runs_as_a_module(product):
    command = [sys.executable, "-m", "fuse_epilogue", "plan", product, "--target", "llvm", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["main"]["kind"] == "product"
    wrong = subprocess.run(command[:4], capture_output=True, text=True, check=False)
    assert wrong.returncode == output.WRONG and "usage" in wrong.stderr


# ---- explain and fuse ----------------------------------------------------------------------------


@T.prim_func(private=True, s_tir=True)
def sum_of_part(x: T.Buffer((8, 8), "float32"), y: T.Buffer((4,), "float32")):
    """Rows are reduced, and half of the sums are used: an epilogue that cannot be fused."""
    sums = T.sblock_alloc_buffer((8,))
    for i, k in T.grid(8, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                sums[vi] = T.float32(0)
            sums[vi] = sums[vi] + x[vi, vk]
    for i in T.serial(4):
        with T.sblock("half"):
            vi = T.axis.spatial(4, i)
            y[vi] = sums[vi] * T.float32(2)


def test_explain_says_what_can_be_fused_and_what_not(tmp_path, capsys):
    both = saved(tmp_path / "m.json", good=workloads.matmul(8, 8, 8), bad=sum_of_part)
    code, said, _ = run(capsys, "explain", both)
    assert code == output.REFUSED
    assert "good: 1 reduction" in said and "absorbed" in said and "[domain]" in said
    code, said, _ = run(capsys, "explain", both, "--json")
    data = json.loads(said)
    assert code == output.REFUSED
    assert data["good"]["reductions"][0]["fusable"] is True
    assert data["bad"]["reductions"][0]["refused"]["code"] == "domain"
    code, said, _ = run(capsys, "explain", both, "--function", "good")
    assert code == output.DONE and "bad" not in said


def test_explain_takes_numerics(product, capsys):
    texts = [run(capsys, "explain", product, "--numerics", each)[1] for each in NUMERICS]
    assert "absorbed" in texts[0] and "absorbed" not in texts[1]


def test_fuse_writes_a_module_that_computes_the_same(product, tmp_path, capsys):
    out = tmp_path / "fused.json"
    before = inputs.read(product)
    code, said, _ = run(capsys, "fuse", product, "--out", str(out))
    assert code == output.DONE and "1 of 1 fused" in said
    after = inputs.read(str(out))
    arrays = arguments(before["main"])
    results = []
    for module in (before, after):
        tvm.compile(module, target="llvm")(*arrays)
        results.append(arrays[-1].numpy().copy())
    assert np.array_equal(*results)
    allocated = [text.count("sblock_alloc_buffer((") for text in (before.script(), after.script())]
    assert allocated == [2, 1]


def test_fuse_says_what_it_refuses(tmp_path, capsys):
    bad = saved(tmp_path / "m.json", main=sum_of_part)
    out = tmp_path / "fused.json"
    code, said, _ = run(capsys, "fuse", bad, "--out", str(out), "--json")
    assert code == output.REFUSED
    (function,) = json.loads(said)["functions"]
    assert function["reductions"][0]["fusion"]["stopped"]["code"] == "domain"
    tvm.ir.assert_structural_equal(inputs.read(str(out))["main"], inputs.read(bad)["main"])


def test_fuse_follows_its_policy(product, tmp_path, capsys):
    never = run(capsys, "fuse", product, "--policy", "never")
    planned = run(capsys, "fuse", product, "--target", "llvm")
    assert never[0] == planned[0] == output.DONE
    assert "never to fuse" in never[1] and "the planner predicts" in planned[1]


# ---- tune ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tune_measures_and_goes_on(tmp_path, capsys):
    pytest.importorskip("cloudpickle")
    module = saved(tmp_path / "m.json", main=workloads.matmul(8, 8, 8))
    folder = tmp_path / "tuned"
    command = ["tune", module, "--out", str(folder), "--cost-model", "random", "--json"]
    target = ["--target", '{"kind": "llvm", "num-cores": 1}']
    code, said, _ = run(capsys, *command, *target, "--trials", "2")
    best = json.loads(said)["main"]
    assert code == output.DONE and best["measured_s"] > 0
    code, said, _ = run(capsys, *command, *target, "--trials", "2")
    assert code == output.DONE and json.loads(said)["main"] == best  # nothing is left to do


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "trn1"], "there is nothing to measure on"),
        (["--trials", "0"], "trials must be at least 1"),
    ],
)
def test_tune_refuses_what_it_cannot_do(more, message, product, tmp_path, capsys):
    pytest.importorskip("cloudpickle")
    code, _, noted = run(capsys, "tune", product, "--out", str(tmp_path / "db"), *more)
    assert code == output.WRONG and message in noted
    assert not (tmp_path / "db").exists()
