"""The command line: the modules that it reads, and what is no module."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
import tvm

from cli_runs import product, run, saved
from fuse_epilogue import workloads
from fuse_epilogue.cli import inputs, output

__all__ = ["product"]


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
        ("m.txt", "", r"its name must end in one of \.json, \.py, \.onnx"),
        ("m.py", "x = 1\n", "has neither an IRModule nor a PrimFunc, only .*int"),
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


@pytest.mark.filterwarnings("ignore::UserWarning")
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
    # Without a rank it is converted, and cannot be lowered.
    values["x"] = helper.make_tensor_value_info("x", kind, None)
    graph = helper.make_graph(nodes, "g", [values[n] for n in "xwb"], [values["y"]])
    onnx.save(helper.make_model(graph), str(file))
    with pytest.raises(inputs.InputError, match="cannot be read as ONNX"):
        inputs.read(str(file))


def test_a_thing_with_two_names_is_read_once(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(
        "from fuse_epilogue import workloads\n"
        "func = again = workloads.row_reduce(8, 8)\n"
        "other = workloads.row_reduce(8, 8)\n"
    )
    assert list(inputs.functions(inputs.read(str(file), run_python=True))) == ["func", "other"]
    module = tvm.IRModule({"main": workloads.row_reduce(8, 8)})
    file.write_text(module.script() + "\nalias = Module\n")
    tvm.ir.assert_structural_equal(inputs.read(str(file), run_python=True), module)


def test_functions_keep_the_order_of_the_module():
    func = workloads.row_reduce(8, 8)
    assert list(inputs.functions(tvm.IRModule({"b": func, "a": func}))) == ["b", "a"]


def test_a_module_without_functions_is_named(tmp_path):
    module = inputs.read(saved(tmp_path / "m.json", main=workloads.row_reduce(8, 8)))
    with pytest.raises(inputs.InputError, match="no PrimFunc 'other', only main"):
        inputs.functions(module, "other")
    with pytest.raises(inputs.InputError, match="the module has no PrimFunc"):
        inputs.functions(tvm.IRModule({}))


# ---- Standard input, pipes and what scripts print ------------------------------------------------


def test_json_comes_from_standard_input(product, monkeypatch):
    with open(product) as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert list(inputs.functions(inputs.read("-"))) == ["main"]


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (None, "standard input is closed"),
        (io.TextIOWrapper(io.BytesIO(b"\xff{"), "utf-8"), "standard input cannot be read: .*utf-8"),
        (io.StringIO("{"), "standard input is not a module in JSON"),
    ],
    ids=["closed", "no text", "no JSON"],
)
def test_standard_input_that_is_no_module_is_named(stdin, message, monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(inputs.InputError, match=message):
        inputs.read("-")


def test_a_pipe_holds_json_whatever_its_name(product, tmp_path):
    pipe = tmp_path / "63"
    os.mkfifo(pipe)
    text = Path(product).read_bytes()
    threading.Thread(target=pipe.write_bytes, args=[text], daemon=True).start()
    module = inputs.read(str(pipe))
    tvm.ir.assert_structural_equal(module, inputs.read(product))


@pytest.mark.parametrize(
    ("name", "message"), [(".", "is a folder"), ("n" * 999 + ".json", "name too long")]
)
def test_what_is_no_file_is_named(name, message, tmp_path):
    with pytest.raises(inputs.InputError, match=message):
        inputs.read(str(tmp_path / name))


def test_what_a_script_prints_is_not_part_of_the_answer(tmp_path, capfd):
    file = tmp_path / "m.py"
    file.write_text(
        "import os\nfrom fuse_epilogue import workloads\n"
        "print('by the script')\nos.system('echo by its child')\n"
        "main = workloads.row_reduce(8, 8)\n"
    )
    code, said, noted = run(capfd, "explain", str(file), "--run-python", "--json")
    assert code == output.DONE and list(json.loads(said)) == ["main"]
    assert "by the script" in noted and "by its child" in noted


def test_a_script_imports_what_is_beside_it(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "sizes_of_the_script", raising=False)
    (tmp_path / "sizes_of_the_script.py").write_text("M = 8\n")
    file = tmp_path / "m.py"
    file.write_text(
        "from fuse_epilogue import workloads\nfrom sizes_of_the_script import M\n"
        "main = workloads.row_reduce(M, M)\n"
    )
    before = list(sys.path)
    assert list(inputs.functions(inputs.read(str(file), run_python=True))) == ["main"]
    assert sys.path == before
