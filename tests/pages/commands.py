"""Shell commands on the pages: those that are cheap are run, of the others every word is checked.

A command that no row of `RULES` matches is an error: give it a row. Commands stand in blocks of the
language ``sh``, in blocks without a language, and in the prose as code.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tvm

from fuse_epilogue import cli, workloads
from packaged.contents import pyproject

from .reading import ROOT, Page

PROGRAMS = ("fuse-epilogue", "make", "pip", "python", "python3", "git", "cmake", "pytest")
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ +)*(?:{'|'.join(PROGRAMS)})(?: +(?P<arguments>.*))?")
INLINE = re.compile(r"``([^`]+)``|(?<![`:])`([^`]+)`(?![`_])")

#: Commands of ``python -m fuse_epilogue`` that are only parsed, and why.
ONLY_PARSED = {"tune": "a search takes minutes", "calibrate": "measuring takes minutes"}

#: What the names of inputs stand for where the command line is run.
INPUTS = {
    "model.json": lambda: workloads.depthwise_conv1d(1, 2, 8, 3),
    "matmul.json": lambda: workloads.matmul(16, 16, 16, activation="relu"),
    "conv.json": lambda: workloads.depthwise_conv1d(1, 128, 64, 3),
}


def commands(page: Page) -> list[str]:
    """Return the commands of a page, without comments, each once."""
    lines = [
        line
        for block in page.blocks
        if block.language in ("", "sh", "shell", "bash", "console")
        for line in block.text.replace("\\\n", " ").split("\n")
    ]
    lines += [first or second for first, second in INLINE.findall(page.prose)]
    bare = (re.sub(r"(^\$ |\s+#.*$)", "", line).strip() for line in lines)
    return list(dict.fromkeys(line for line in bare if COMMAND.fullmatch(line)))


def check(command: str, folder: Path) -> str | None:
    """Check a command, running it in ``folder`` if it is cheap; returns what is wrong with it."""
    words = shlex.split(command)
    while "=" in words[0]:
        words = words[1:]
    for beginning, rule in RULES.items():
        if words[: len(beginning)] == list(beginning):
            return rule(words[len(beginning) :], folder)
    return "no row of RULES in tests/pages/commands.py says how to check it"


def _make(words: list[str], folder: Path) -> str | None:
    """Every target, and every variable that is set, is in the Makefile. None is run: tests do."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, sets, _ = word.partition("=")
        known = rf"^{re.escape(name)} *\??=" if sets else rf"^{re.escape(name)}:"
        if not re.search(known, text, re.MULTILINE):
            return f"the Makefile has no {name}"
    return None


def _pytest(words: list[str], folder: Path) -> str | None:
    """The tests are chosen by a marker that pyproject.toml declares."""
    declared = [
        line.partition(":")[0] for line in pyproject()["tool"]["pytest"]["ini_options"]["markers"]
    ]
    known = len(words) == 2 and words[0] == "-m" and words[1] in declared
    return None if known else f"{' '.join(words)} is no marker of the tests"


def _pip_install(words: list[str], folder: Path) -> str | None:
    """What is installed is this package with extras that it has, or a group of its tools."""
    project = pyproject()
    if words[:1] == ["--group"]:
        unknown = set(words[1:]) - set(project["dependency-groups"])
        return f"pyproject.toml has no group {', '.join(sorted(unknown))}" if unknown else None
    for word in words:
        package = re.fullmatch(r"(?:\.|fuse_epilogue)(?:\[([\w,]+)\])?", word)
        if not package and not word.startswith(("-", "dist/")):
            return f"{word} is not this package"
        for extra in (package[1] or "").split(",") if package else ():
            if extra and extra not in project["project"]["optional-dependencies"]:
                return f"pyproject.toml has no extra {extra}"
    return None


def _command_line(words: list[str], folder: Path) -> str | None:
    """Run the command line on small inputs, or only parse what takes long."""
    for word in words:
        if word in INPUTS:
            saved = tvm.ir.save_json(tvm.IRModule({"main": INPUTS[word]()}))
            (folder / word).write_text(saved, encoding="utf-8")
    code: Any = 0
    try:
        if words and words[0] in ONLY_PARSED:
            cli.parser().parse_args(words)
        else:
            code = cli.main(words)
    except SystemExit as ended:  # --help, or options that are not known
        code = ended.code
    return f"exit code {code}" if code else None


def _script_of_the_package(words: list[str], folder: Path) -> str | None:
    """The command has these options: it is the same as the module, which is run."""
    try:
        cli.parser().parse_args(words or ["--help"])
    except SystemExit as ended:
        return f"exit code {ended.code}" if ended.code else None
    return None


def _module(words: list[str], folder: Path) -> str | None:
    """The module is there; it is not run (a server, a calibration, a suite of tests)."""
    found = importlib.util.find_spec(words[0])
    return None if found else f"there is no module {words[0]}"


def _script(words: list[str], folder: Path) -> str | None:
    """The file is there and knows its options; a name without a folder is the reader's own file."""
    if not words or "/" not in words[0]:
        return None
    if not (ROOT / words[0]).is_file():
        return f"there is no {words[0]}"
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    text = (ROOT / words[0]).read_text(encoding="utf-8")
    unknown = [option for option in options if f'"{option}"' not in text]
    return f"{words[0]} does not know {unknown[0]}" if unknown else None


#: How a command is checked, by its first words; the first row that fits counts.
RULES: dict[tuple[str, ...], Callable[[list[str], Path], str | None]] = {
    ("fuse-epilogue",): _script_of_the_package,
    ("make",): _make,
    ("pip", "install"): _pip_install,
    ("python", "-m", "fuse_epilogue"): _command_line,
    ("python", "-m"): _module,
    ("python",): _script,
    ("pytest",): _pytest,
}


# ---- Names in the prose --------------------------------------------------------------------------

FOLDERS = "benchmarks|cpp|docs|examples|python|tests|tutorials"
PATH = re.compile(rf"(?:{FOLDERS})/[\w./-]*\w")
DOTTED = re.compile(r"fuse_epilogue(?:\.\w+)+")

#: Names with dots that are none of Python, and what they are.
OTHER_NAMES = {"fuse_epilogue.rows": "an intrinsic of traces"}


def lost(page: Page) -> Iterator[str]:
    """Yield what the prose names as code and is not there: files, and names of the package."""
    for first, second in INLINE.findall(page.prose):
        code = first or second
        if PATH.fullmatch(code) and not (ROOT / code).exists():
            yield f"{page.name}: there is no {code}"
        for name in DOTTED.findall(code):
            if name not in OTHER_NAMES and not _resolves(name):
                yield f"{page.name}: there is no {name}"


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if module in sys.modules or _has_module(module):
            thing = importlib.import_module(module)
            for part in parts[end:]:
                if not hasattr(thing, part):
                    return False
                thing = getattr(thing, part)
            return True
    return False


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
