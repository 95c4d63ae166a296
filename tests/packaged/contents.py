"""What may lie in a wheel and a source distribution, and what must."""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10: pip has one for itself
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

LIBRARY = "fuse_epilogue/lib/libfuse_epilogue.so"

#: Names of wheels: for any Python 3, for a machine, for Linux with glibc 2.28 and maybe older ones.
WHEEL_NAME = re.compile(
    r"fuse_epilogue-[^-]+-py3-none-(?:manylinux_2_(?:1\d|2[0-7])_\w+\.)?"
    r"manylinux_2_28_(?:x86_64|aarch64)\.whl"
)

#: Folders of a wheel.
WHEEL_FOLDERS = re.compile(r"fuse_epilogue/|fuse_epilogue-[^/-]+\.dist-info/")

#: What is of no use where a package is installed.
LEFTOVER = re.compile(r"(^|/)(tests?|build|__pycache__|\.venv)/|\.(cc|h|o|a|pyc|egg-link)$")

#: A path of the machine that has built: home directories, temporary folders, installed programs.
MACHINE_PATH = re.compile(rb"/(?:home|root|tmp|work|build|opt|var|mnt|usr/(?:local|lib|include))/")

#: The type of an ELF section that holds the symbol table of a library that is not stripped.
SHT_SYMTAB = 2


def pyproject() -> dict[str, Any]:
    """Return what ``pyproject.toml`` says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def objections_to_wheel(wheel: Path, source: Path = ROOT) -> list[str]:
    """Return what is wrong with a wheel, in one sentence each.

    - `wheel`: the file.
    - `source`: the source tree that it was built from.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return [*_wrong_name(wheel), *_wrong_files(files), *_missing(files, source), *_machine(files)]


def objections_to_sdist(sdist: Path, source: Path = ROOT) -> list[str]:
    """Return what is wrong with a source distribution, in one sentence each."""
    with tarfile.open(sdist) as archive:
        paths = [PurePosixPath(member.name) for member in archive if member.isfile()]
    names = {str(path.relative_to(path.parts[0])) for path in paths}
    objections = [f"{name} does not belong there" for name in sorted(names) if _is_alien(name)]
    wanted = {"CMakeLists.txt", "CITATION.cff", "LICENSE", "README.md"}
    wanted |= {"pyproject.toml", "setup.py"}
    wanted |= _linked(source / "README.md")
    wanted |= _relative(source, "cpp", "*.cc", "*.h", "*.def") | _relative(source, "tests", "*.h")
    wanted |= _relative(source, "packaging", "*.cc")
    for folder in ("python", "tests", "tutorials", "examples", "benchmarks"):
        wanted |= _relative(source, folder, "*.py")
    return objections + [f"{name} is missing" for name in sorted(wanted - names)]


def _linked(page: Path) -> set[str]:
    """Return the files beside a page in Markdown that it links to, or shows."""
    links = re.findall(r"\]\(([^)#]+)", page.read_text()) if page.exists() else []
    return {link for link in links if "://" not in link}


def _is_alien(name: str) -> bool:
    return name.startswith(("build/", "dist/", ".venv/")) or name.endswith((".so", ".pyc"))


def _relative(source: Path, folder: str, *patterns: str) -> set[str]:
    found = (path for pattern in patterns for path in (source / folder).rglob(pattern))
    return {path.relative_to(source).as_posix() for path in found}


def _wrong_name(wheel: Path) -> Iterator[str]:
    if not WHEEL_NAME.fullmatch(wheel.name):
        yield f"{wheel.name}: the tag is not py3-none-manylinux_2_28_MACHINE"


def _wrong_files(files: Mapping[str, bytes]) -> Iterator[str]:
    for name in files:
        if not WHEEL_FOLDERS.match(name) or LEFTOVER.search(name):
            yield f"{name} does not belong there"
    libraries = [name for name in files if re.search(r"\.so(\.|$)", name)]
    if libraries != [LIBRARY]:
        yield f"the libraries are {libraries}, and should be {LIBRARY} alone"
    elif SHT_SYMTAB in section_types(files[LIBRARY]):
        yield f"{LIBRARY} is not stripped"


def _missing(files: Mapping[str, bytes], source: Path) -> Iterator[str]:
    package = source / "python" / "fuse_epilogue"
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package.parent).as_posix()
        if path.is_file() and path.suffix not in (".pyc", ".so") and name not in files:
            yield f"{name} is missing"
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in files):
        yield "the licence is missing"


def _machine(files: Mapping[str, bytes]) -> Iterator[str]:
    for name, content in files.items():
        own = [str(ROOT).encode(), str(Path.home()).encode() + b"/"]
        found = MACHINE_PATH.search(content) if name == LIBRARY else None
        if found:
            yield f"{name} holds a path of this machine: {_around(content, found.start())}"
        elif any(path in content for path in own):
            yield f"{name} holds a path of this machine"


def _around(content: bytes, start: int) -> str:
    return content[start : start + 80].split(b"\0")[0].decode(errors="replace")


def section_types(library: bytes) -> list[int]:
    """Return the types of the sections of a 64-bit little-endian ELF file (``elf(5)``)."""
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", library, 0x28)  # e_shoff
    size, count = struct.unpack_from("<HH", library, 0x3A)  # e_shentsize, e_shnum
    return [struct.unpack_from("<I", library, offset + i * size + 4)[0] for i in range(count)]
