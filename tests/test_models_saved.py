"""Compiled models and plans in files; those that are damaged, or not ours, are refused by name."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import fuse_epilogue
from fuse_epilogue import _version, workloads
from fuse_epilogue.models import Database, DatabaseError, SavedModelError

ARRAYS = [np.eye(8, dtype="float32"), np.ones((8, 8), "float32"), np.ones(8, "float32")]


@pytest.fixture(scope="module", params=["model.fe", "model.so"])
def saved(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    mod = tvm.IRModule({"main": workloads.matmul(8, 8, 8)})
    file = tmp_path_factory.mktemp("saved") / str(request.param)
    fuse_epilogue.compile(mod, threads=1).save(file)
    return file


def rewritten(file: Path, into: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a saved model with another manifest."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    into.write_bytes(file.read_bytes()[: len(members) == 1 and json_bytes(file)])
    with zipfile.ZipFile(into, "a") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return into


def json_bytes(file: Path) -> int:
    """Where in a shared library the archive begins."""
    with zipfile.ZipFile(file) as archive:
        return int(json.loads(archive.read("manifest.json"))["bytes"])


def test_a_saved_model_is_the_same(saved: Path, tmp_path: Path) -> None:
    model = fuse_epilogue.load(saved)
    assert str(model.signature) == (
        "(a: float32[8, 8], b: float32[8, 8], bias: float32[8]) -> float32[8, 8]"
    )
    assert model(*ARRAYS).tolist() == [[2.0] * 8] * 8
    assert [each.kind for each in model.report.functions] != []
    again = tmp_path / "again.fe"
    model.save(again)
    assert fuse_epilogue.load(again)(*ARRAYS).tolist() == [[2.0] * 8] * 8
    assert list(tmp_path.iterdir()) == [again]


def test_a_shared_library_for_tvm_as_well(saved: Path, tmp_path: Path) -> None:
    fuse_epilogue.load(saved).save(tmp_path / "model.so")
    module = tvm.runtime.load_module(str(tmp_path / "model.so"))
    machine = tvm.relax.VirtualMachine(module, tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, ARRAYS))
    assert result.numpy().tolist() == [[2.0] * 8] * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="something"), "not a saved model but 'something'"),
        (lambda m: m.update(format_version=99), "version 99 of the format"),
        (lambda m: m["versions"].update(tvm="0.1"), "saved with tvm 0.1"),
        (lambda m: m["versions"].update(fuse_epilogue="9"), "saved with fuse_epilogue 9"),
        (lambda m: m.update(bytes="many"), "its manifest is wrong|does not match its hash"),
        (lambda m: m.update(sha256="0"), "machine code does not match its hash"),
        (lambda m: m.pop("signature"), "its manifest is wrong .KeyError"),
        (lambda m: m["signature"].update(inputs=3), "its manifest is wrong"),
        (lambda m: m["signature"]["inputs"][0].__setitem__(1, [-8, 8]), "is not a shape"),
        (lambda m: m["signature"]["inputs"][0].__setitem__(2, "real"), "its manifest is wrong"),
        (lambda m: m.update(report={"functions": 3}), "its manifest is wrong"),
    ],
)
def test_manifests_that_are_wrong(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    file = rewritten(saved, tmp_path / "other.fe", change)
    with pytest.raises(SavedModelError, match=f"other.fe' .*{message}"):
        fuse_epilogue.load(file)


def test_files_that_are_no_saved_models(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    other = tmp_path / "other.fe"
    for content in (b"", b"text", data[: len(data) // 2], data[7:], bytes(flipped)):
        other.write_bytes(content)
        with pytest.raises(SavedModelError, match="other.fe"):
            fuse_epilogue.load(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("data.pkl", "")
    with pytest.raises(SavedModelError, match="other files are in it"):
        fuse_epilogue.load(other)
    with pytest.raises(FileNotFoundError):
        fuse_epilogue.load(tmp_path / "none.fe")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        fuse_epilogue.load(saved).save(tmp_path / "no" / "model.fe")


def test_folders_and_files_in_each_others_place(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(SavedModelError, match="is a folder without a 'manifest.json': name the"):
        fuse_epilogue.load(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file: a database is a folder"):
        Database(saved)


@pytest.mark.parametrize("method", [pickle.dumps, copy.deepcopy])
def test_a_compiled_model_is_saved_not_pickled(saved: Path, method: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied: save it"):
        method(fuse_epilogue.load(saved))


def test_a_database_finds_what_was_put(tmp_path: Path) -> None:
    database = Database(tmp_path / "plans")
    func, other = workloads.matmul(8, 8, 8), workloads.matmul(8, 8, 16)
    assert database.get(func, "llvm", threads=1) is None
    database.put(func, "llvm", {"tile": [6, 16]}, threads=1)
    assert Database(tmp_path / "plans").get(func, "llvm", threads=1) == {"tile": [6, 16]}
    renamed = func.with_attr("global_symbol", "another")
    assert database.get(renamed, "llvm", threads=1) == {"tile": [6, 16]}
    assert database.get(other, "llvm", threads=1) is None
    assert database.get(func, "llvm", threads=2) is None
    database.put(func, "llvm", 3, threads=1)
    assert database.get(func, "llvm", threads=1) == 3 and len(database) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace("fuse_epilogue plan", "something"),
        lambda text: text.replace('"value": 1', '"value": 2'),
        lambda text: text.replace('"target": "llvm"', '"target": "cuda"'),
    ],
)
def test_a_damaged_entry_is_refused(tmp_path: Path, damage: Callable[[str], str]) -> None:
    database = Database(tmp_path)
    func = workloads.matmul(8, 8, 8)
    database.put(func, "llvm", 1)
    (file,) = tmp_path.glob("*.json")
    file.write_text(damage(file.read_text()))
    with pytest.raises(DatabaseError, match=f"{file.name}' is damaged, or was written by"):
        database.get(func, "llvm")


def layer(scale: float = 1.0, name: str = "x") -> tvm.IRModule:
    """A model with a weight: ``relu(x @ w)``."""
    builder = relax.BlockBuilder()
    x = relax.Var(name, relax.TensorType((4, 8), "float32"))
    weight = relax.const(np.full((8, 3), scale, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, weight))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


def models_in(folder: Path) -> list[Path]:
    """The entries of a database that are models."""
    return list(folder.glob("*.fe"))


def test_what_is_compiled_once_is_not_scheduled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, int]] = []

    def compiled(mod: tvm.IRModule, **options: Any) -> Any:
        options = {"threads": 1, "database": tmp_path} | options
        return fuse_epilogue.compile(
            mod, on_progress=lambda done, of: steps.append((done, of)), **options
        )

    x = np.ones((4, 8), "float32")
    first = compiled(layer())
    assert steps == [(1, 1)]
    second = compiled(layer(), database=Database(tmp_path))
    assert steps == [(1, 1)] and len(models_in(tmp_path)) == 1
    assert second.signature == first.signature and second.report == first.report
    assert second(x).tolist() == first(x).tolist() == [[8.0] * 3] * 4
    # Anything else is compiled: weights, names of inputs, options, another version.
    assert compiled(layer(2.0))(x).tolist() == [[16.0] * 3] * 4
    assert compiled(layer(name="image")).signature.inputs[0].name == "image"
    compiled(layer(), threads=2)
    compiled(layer(), channels_last=False)
    compiled(layer(), target="llvm")
    monkeypatch.setattr(_version, "VERSION", "9.9")
    compiled(layer())
    assert len(steps) == 7 and len(models_in(tmp_path)) == 7


@pytest.mark.full
@pytest.mark.slow
def test_another_process_finds_what_was_compiled(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
import fuse_epilogue, test_models_saved
steps = []
model = fuse_epilogue.compile(
    test_models_saved.layer(), database={str(tmp_path)!r}, on_progress=lambda *n: steps.append(n)
)
print(len(steps), model(test_models_saved.np.ones((4, 8), "float32")).sum())
"""
    said = [
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [each.stdout.strip() for each in said] == ["1 96.0", "0 96.0"]


def test_a_damaged_model_of_a_database_is_refused(tmp_path: Path) -> None:
    fuse_epilogue.compile(layer(), database=tmp_path)
    (file,) = tmp_path.glob("*.fe")
    data = file.read_bytes()
    other = tmp_path / "other"
    fuse_epilogue.compile(layer(2.0), database=other)
    (foreign,) = other.glob("*.fe")
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for content, message in (
        (b"", "is not a saved model, or is damaged"),
        (data[:middle], "is not a saved model, or is damaged"),
        (flipped, "is damaged"),
        (foreign.read_bytes(), "is for another model, target or version"),
    ):
        file.write_bytes(content)
        with pytest.raises(DatabaseError, match=f"{file.name}' .*{message}.*; remove it"):
            fuse_epilogue.compile(layer(), database=tmp_path)
    file.unlink()
    assert fuse_epilogue.compile(layer(), database=tmp_path)(np.ones((4, 8), "float32")).sum() == 96


def test_a_database_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any) -> Any:
        raise RuntimeError("no compiler to link with")

    monkeypatch.setattr("fuse_epilogue.models.saved._link", fail)
    with pytest.warns(UserWarning, match="the database does not keep the model: no compiler"):
        model = fuse_epilogue.compile(layer(), database=tmp_path)
    assert model(np.ones((4, 8), "float32")).sum() == 96
    with pytest.raises(ValueError, match="database is for models"):
        fuse_epilogue.compile(workloads.matmul(8, 8, 8), database=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        fuse_epilogue.compile(layer(), database=tmp_path / "file")


def test_a_pipe_gets_the_model_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.fe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()))
    reader.start()
    made = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(8, 8, 8)}), threads=1)
    made.save(pipe)
    reader.join()
    assert pipe.is_fifo()
    assert fuse_epilogue.load(copy).signature == made.signature


def test_saving_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(8, 8, 8)}), threads=1)
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no C\\+\\+ compiler was found: install"):
        made.save(tmp_path / "model.fe")
    assert not list(tmp_path.iterdir())
