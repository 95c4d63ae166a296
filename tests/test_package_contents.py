"""What is refused in a wheel and in a source distribution, and what the package says of itself."""

from __future__ import annotations

import importlib.metadata
import io
import re
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

import fuse_epilogue
from packaged import contents, fresh
from packaged.__main__ import try_on

ROOT = contents.ROOT
WHEEL = "fuse_epilogue-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
LICENSE = "fuse_epilogue-0.1.0.dist-info/licenses/LICENSE"


def library(*sections: int, text: bytes = b"") -> bytes:
    """The headers of an ELF file with sections of these types."""
    header = struct.pack("<6s34xQ10xHHH", b"\x7fELF\x02\x01", 64, 64, len(sections), 0)
    return header.ljust(64, b"\0") + b"".join(struct.pack("<II56x", 0, s) for s in sections) + text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source tree with two modules, one file of data and a C++ file."""
    for name in (
        "python/fuse_epilogue/__init__.py",
        "python/fuse_epilogue/planner/measurement/profiles/znver5.json",
        "python/fuse_epilogue/lib/libfuse_epilogue.so",
        "python/fuse_epilogue/__pycache__/__init__.pyc",
        "cpp/analysis/monoid.cc",
        "cpp/analysis/refusal.def",
        "tests/test_report.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


GOOD = {
    "fuse_epilogue/__init__.py": b"",
    "fuse_epilogue/planner/measurement/profiles/znver5.json": b"",
    contents.LIBRARY: library(1, 3, text=b"tvm/ffi/any.h\0"),
    LICENSE: b"",
}


def wheel(folder: Path, files: dict[str, bytes], name: str = WHEEL) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return folder / name


@pytest.mark.parametrize("older", ["", "manylinux_2_27_x86_64."])
def test_a_good_wheel(source: Path, older: str) -> None:
    name = WHEEL.replace("manylinux", f"{older}manylinux")
    assert contents.objections_to_wheel(wheel(source, GOOD, name), source) == []


BAD_FILES = {
    "tests": ({"tests/test_report.py": b""}, "tests/test_report.py does not belong there"),
    "inner tests": ({"fuse_epilogue/tests/a.py": b""}, "fuse_epilogue/tests/a.py does not"),
    "build tree": ({"build/temp/a.o": b""}, "build/temp/a.o does not belong there"),
    "source": ({"fuse_epilogue/monoid.cc": b""}, "fuse_epilogue/monoid.cc does not belong there"),
    "another library": ({"fuse_epilogue.libs/libtvm_ffi.so": library()}, "the libraries are"),
    "symbols": ({contents.LIBRARY: library(1, 2)}, f"{contents.LIBRARY} is not stripped"),
    "a temporary folder": (
        {contents.LIBRARY: library(1, text=b"\0/tmp/build-env-x/any.h\0")},
        f"{contents.LIBRARY} holds a path of this machine: /tmp/build-env-x/any.h",
    ),
    "the source tree": (
        {"fuse_epilogue/__init__.py": f"# {ROOT}/python".encode()},
        "fuse_epilogue/__init__.py holds a path of this machine",
    ),
}


@pytest.mark.parametrize("files, objection", BAD_FILES.values(), ids=BAD_FILES)
def test_a_wheel_with_a_file_too_many(
    source: Path, files: dict[str, bytes], objection: str
) -> None:
    found = contents.objections_to_wheel(wheel(source, GOOD | files), source)
    assert any(text.startswith(objection) for text in found), found


@pytest.mark.parametrize("name", [name for name in GOOD if not name.endswith("__init__.py")])
def test_a_wheel_with_a_file_too_few(source: Path, name: str) -> None:
    files = {path: content for path, content in GOOD.items() if path != name}
    assert len(contents.objections_to_wheel(wheel(source, files), source)) == 1


@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-linux_x86_64",
        "py3-none-manylinux_2_34_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
    ],
)
def test_a_wheel_for_too_few_machines(source: Path, tag: str) -> None:
    (objection,) = contents.objections_to_wheel(
        wheel(source, GOOD, f"fuse_epilogue-0.1.0-{tag}.whl"), source
    )
    assert "the tag is not py3-none-manylinux_2_28_MACHINE" in objection


SDIST = (
    *("CMakeLists.txt", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml", "setup.py"),
    *("cpp/analysis/monoid.cc", "cpp/analysis/refusal.def", "python/fuse_epilogue/__init__.py"),
    "tests/test_report.py",
)


def sdist(folder: Path, names: tuple[str, ...]) -> Path:
    with tarfile.open(folder / "fuse_epilogue-0.1.0.tar.gz", "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"fuse_epilogue-0.1.0/{name}"), io.BytesIO())
    return folder / "fuse_epilogue-0.1.0.tar.gz"


def test_a_source_distribution(source: Path) -> None:
    assert contents.objections_to_sdist(sdist(source, SDIST), source) == []
    found = contents.objections_to_sdist(sdist(source, (*SDIST[:-3], "build/a.py")), source)
    assert found == [
        "build/a.py does not belong there",
        "cpp/analysis/refusal.def is missing",
        "python/fuse_epilogue/__init__.py is missing",
        "tests/test_report.py is missing",
    ]


def test_what_the_readme_links_to_is_in_the_source_distribution(source: Path) -> None:
    (source / "README.md").write_text("![A picture](docs/a.svg), [b](docs/b.rst#c), [d](https://e)")
    assert contents.objections_to_sdist(sdist(source, SDIST), source) == [
        "docs/a.svg is missing",
        "docs/b.rst is missing",
    ]
    both = (*SDIST, "docs/a.svg", "docs/b.rst")
    assert contents.objections_to_sdist(sdist(source, both), source) == []


@pytest.mark.parametrize(
    "pythons, message",
    [
        (["python3"], "tried on 1 of 1 Pythons: python3\n"),
        (
            ["python3", "python3.0", "python3.1"],
            "1 of 3 Pythons: python3; NOT tried on: python3.0, ",
        ),
        (["python3.0"], "tried on 0 of 1 Pythons; NOT tried on: python3.0 "),
    ],
)
def test_the_last_line_says_which_pythons_have_tried_a_wheel(
    pythons: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = {"python3": "3.11.0"}
    monkeypatch.setattr(fresh, "version_of", there.get)
    monkeypatch.setattr(fresh, "try_wheel", lambda *_: "all is well\n")
    assert try_on(Path(WHEEL), pythons) == ("python3" not in pythons)
    assert message in capsys.readouterr().out.splitlines(keepends=True)[-1]


def test_no_tool_is_in_the_metadata() -> None:
    """Extras are for users; what developers need are groups, which are not distributed."""
    project = contents.pyproject()
    assert set(project["project"]["optional-dependencies"]) == {"onnx", "plan", "tune"}
    assert {"bench", "docs", "lint", "package", "test"} <= set(project["dependency-groups"])


def test_a_python_that_does_not_run(tmp_path: Path) -> None:
    shim = tmp_path / "python3.10"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert fresh.version_of(str(shim)) is None
    assert fresh.version_of("python3.0") is None


# ---- What the package says of itself -------------------------------------------------------------


def test_one_version_everywhere() -> None:
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    project = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert citation and project
    assert citation[1] == project[1] == fuse_epilogue.__version__
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest and newest[1] == fuse_epilogue.__version__


def test_the_licence_is_apache_2_word_for_word() -> None:
    assert _terms((ROOT / "LICENSE").read_text()) == _terms(_licence_of("apache-tvm"))


def _licence_of(distribution: str) -> str:
    files = importlib.metadata.files(distribution) or ()
    (path,) = (p for p in files if p.match("*.dist-info/licenses/LICENSE"))
    return path.read_text()


def _terms(text: str) -> str:
    words = " ".join(text.split())
    start = words.index("Apache License Version 2.0")
    return words[start : words.index("END OF TERMS AND CONDITIONS")]
