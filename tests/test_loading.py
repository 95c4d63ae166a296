"""How the primitive gets into TVM: by autoload, by import, or not at all, and then with a reason.

Whether it is there depends on the state of a whole process, so most tests start a fresh one.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fuse_epilogue import _core, _lib

pytestmark = pytest.mark.cpp

# Says whose primitive a schedule has, by the module in which it is defined.
WHOSE = """
def whose():
    from tvm.s_tir import Schedule
    return Schedule.fuse_reduction_epilogue.__module__
"""
OURS = "fuse_epilogue.schedule"

# A sum of rows with a bias, fused with the two-argument call, which TVM's own primitive has too.
FUSE = """
from tvm import s_tir
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def program(A: T.Buffer((8, 8), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    temp = T.sblock_alloc_buffer((8,), "int32")
    for i, k in T.grid(8, 8):
        with T.sblock("mm"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            D[vi] = temp[vi] + C[vi]

def fuse():
    sch = s_tir.Schedule(program, debug_mask="all")
    sch.fuse_reduction_epilogue(sch.get_sblock("mm"), sch.get_sblock("add"))
    again = s_tir.Schedule(program, debug_mask="all")
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    return [s.mod.script().count("temp") for s in (sch, again)]
"""


def run(tmp_path: Path, code: str, **environment: str) -> list[str]:
    """Run a Python program in a process of its own; returns the lines that it printed.

    The program is a file, because TVMScript is parsed from the source.
    """
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def entry_point(tmp_path: Path) -> dict[str, str]:
    """An environment in which TVM finds the entry point, whether or not it is installed."""
    installed = tmp_path / "site" / "entry_point_of_fuse_epilogue-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: entry-point\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "[tvm.backends]\nfuse_epilogue = fuse_epilogue:_autoload\n"
    )
    path = os.pathsep.join(filter(None, [str(installed.parent), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "TVM_DEVICE_BACKEND_AUTOLOAD": "1"}


# ---------------------------------------------------------------------------------------------
# The ways in
# ---------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_importing_the_package_alone(tmp_path: Path, autoload: str) -> None:
    code = f"import fuse_epilogue\n{WHOSE}\nprint(whose())"
    assert run(tmp_path, code, TVM_DEVICE_BACKEND_AUTOLOAD=autoload) == [OURS]


@pytest.mark.full
def test_without_autoload_tvm_keeps_its_own_until_the_import(tmp_path: Path) -> None:
    code = f"{WHOSE}\nimport tvm\nprint(whose())\nimport fuse_epilogue\nprint(whose())"
    before, after = run(tmp_path, code, TVM_DEVICE_BACKEND_AUTOLOAD="0")
    assert before.startswith("tvm.")
    assert after == OURS


def test_importing_tvm_is_enough(tmp_path: Path, entry_point: dict[str, str]) -> None:
    code = f"{FUSE}\n{WHOSE}\nprint(whose())\nprint(*fuse())"
    assert run(tmp_path, code, **entry_point) == [OURS, "0 0"]


def test_the_installed_package_has_the_entry_point(tmp_path: Path) -> None:
    try:
        distribution = importlib.metadata.distribution("fuse_epilogue")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is on the path, but not installed with its metadata")
    (point,) = distribution.entry_points.select(group="tvm.backends")
    assert (point.name, point.value) == ("fuse_epilogue", "fuse_epilogue:_autoload")
    lines = run(tmp_path, f"import tvm\n{WHOSE}\nprint(whose())", TVM_DEVICE_BACKEND_AUTOLOAD="1")
    assert lines == [OURS]


def test_subpackages_and_functions_are_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    code = """
        import sys
        import fuse_epilogue
        print(*(name for name in fuse_epilogue.__all__ if f"fuse_epilogue.{name}" in sys.modules))
        print(fuse_epilogue.workloads.matmul.__module__, fuse_epilogue.plan.__module__)
        print(*(name for name in dir(fuse_epilogue) if not hasattr(fuse_epilogue, name)))
        print(*(name for name in dir(fuse_epilogue) if name.startswith("_")))
        print(hasattr(fuse_epilogue, "nothing_of_this_name"))
    """
    loaded, of_whom, missing, private, other = run(tmp_path, code)
    assert loaded == missing == ""
    assert of_whom == "fuse_epilogue.workloads.matmul fuse_epilogue.planner.choose"
    assert private == "__version__"
    assert other == "False"


@pytest.mark.full
def test_importing_twice_and_from_threads(tmp_path: Path) -> None:
    code = f"""{FUSE}
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    first, second = pool.map(importlib.import_module, ["fuse_epilogue"] * 2)
assert first is second
import fuse_epilogue
assert fuse_epilogue is first
print(*fuse())
importlib.reload(fuse_epilogue)
print(*fuse())
for name in [name for name in sys.modules if name.startswith("fuse_epilogue")]:
    del sys.modules[name]
assert importlib.import_module("fuse_epilogue") is not first
print(*fuse())
"""
    assert run(tmp_path, code, TVM_DEVICE_BACKEND_AUTOLOAD="0") == ["0 0"] * 3


# ---------------------------------------------------------------------------------------------
# A library that is not there
# ---------------------------------------------------------------------------------------------


def test_the_environment_variable_names_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(_lib.ENVIRONMENT_VARIABLE, str(tmp_path / "nowhere.so"))
    with pytest.raises(ImportError, match=f"nowhere.so.*{_lib.ENVIRONMENT_VARIABLE}.*unset"):
        _lib.find()


def test_the_library_was_never_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(_lib.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(_lib, "_PACKAGED", tmp_path / "libfuse_epilogue.so")
    with pytest.raises(ImportError, match="C\\+\\+ library is missing.*pip install"):
        _lib.find()


@pytest.mark.parametrize("value", ["", None], ids=["empty", "unset"])
def test_the_packaged_library_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    packaged = tmp_path / "libfuse_epilogue.so"
    packaged.touch()
    monkeypatch.setattr(_lib, "_PACKAGED", packaged)
    if value is None:
        monkeypatch.delenv(_lib.ENVIRONMENT_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(_lib.ENVIRONMENT_VARIABLE, value)
    assert _lib.find() == packaged


def test_something_else_than_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = tmp_path / "library.so"
    text.write_text("not a library")
    monkeypatch.setenv(_lib.ENVIRONMENT_VARIABLE, str(text))
    with pytest.raises(ImportError, match="library.so cannot be loaded.*pip install"):
        _lib.load.__wrapped__()


@pytest.mark.full
def test_a_failing_autoload_is_a_warning(tmp_path: Path, entry_point: dict[str, str]) -> None:
    code = f"""
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tvm
failures = [w for w in caught if "Failed to autoload tvm backend 'fuse_epilogue'" in str(w.message)]
print(bool(failures))
print(all("nowhere.so" in str(w.message) for w in failures))
{WHOSE}
print(whose().startswith("tvm."))
try:
    import fuse_epilogue
except ImportError as error:
    print("nowhere.so" in str(error))
"""
    variable = {_lib.ENVIRONMENT_VARIABLE: str(tmp_path / "nowhere.so")}
    assert run(tmp_path, code, **entry_point, **variable) == ["True"] * 4


# ---------------------------------------------------------------------------------------------
# A TVM that is not the right one
# ---------------------------------------------------------------------------------------------

# Functions that the library needs and that TVM's own primitive does without.
NEEDED = ("s_tir.schedule.TraceAppend", "sym.AnalyzerCanProveEqual", "sym.InverseAffineIterMap")


@pytest.mark.full
@pytest.mark.parametrize("count", [1, len(NEEDED)])
def test_a_tvm_that_lacks_a_function(tmp_path: Path, count: int) -> None:
    code = f"""{FUSE}
{WHOSE}
import tvm_ffi

for name in {NEEDED[:count]}:
    tvm_ffi.remove_global_func(name)
for attempt in range(2):
    try:
        import fuse_epilogue
    except ImportError as error:
        print(error)
print(whose().startswith("tvm."))
# TVM's own primitive, live and replayed, still works; it leaves the intermediate's allocation.
print(*fuse())
"""
    first, second, tvms, fused = run(tmp_path, code, TVM_DEVICE_BACKEND_AUTOLOAD="0")
    assert first == second
    assert first.startswith("fuse_epilogue supports Apache TVM 0.27, but this is TVM ")
    for name in NEEDED[:count]:
        assert f"function {name}" in first
    assert first.count(". ") == 0  # one sentence
    assert first.endswith("install 'apache-tvm==0.27.*'.")
    assert (tvms, fused) == ("True", "1 1")


def test_many_missing_names_are_counted() -> None:
    missing = [f"type no.Such{number}" for number in range(5)]
    message = _core.unsupported_message(missing)
    assert "type no.Such0, type no.Such1, type no.Such2 and 2 more" in message
    assert "Such3" not in message


# Three of each kind that TVM 0.27 has.
PRESENT = [
    *("type tirx.For", "type s_tir.SBlock", "type ir.TensorLoad"),
    *("field tirx.For.body", "field s_tir.SBlock.init", "field ir.TensorLoad.indices"),
    *("function tirx.For", "function s_tir.SBlock", "function sym.DetectIterMap"),
]
ABSENT = [
    *("type tirx.Four", "type", "type ", ""),
    *("field tirx.For.bodies", "field tirx.Four.body", "field tirx", "field tirx.For."),
    *("function tirx.Four", "function"),
    *("kind tirx.For", "tirx.For", "typetirx.For"),
]


def test_what_this_tvm_has() -> None:
    assert list(_core.MissingFrom(PRESENT)) == []


@pytest.mark.parametrize("name", ABSENT)
def test_what_this_tvm_has_not(name: str) -> None:
    assert list(_core.MissingFrom([PRESENT[0], name, PRESENT[-1]])) == [name]


def test_models_are_there_without_torch_and_onnx(tmp_path: Path) -> None:
    """`make demo` and `pip install .` install neither."""
    code = """
        import sys
        sys.modules.update(dict.fromkeys(("torch", "onnx", "onnxruntime")))
        import fuse_epilogue
        from fuse_epilogue import workloads
        fuse_epilogue.compile(workloads.matmul(4, 5, 6))
        print(fuse_epilogue.models.CompiledModel.__name__)
    """
    assert run(tmp_path, code) == ["CompiledModel"]
