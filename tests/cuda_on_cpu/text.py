"""CUDA text made into C++ text with the same lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import UnsupportedCuda

KERNEL = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\((\d+)(?:, *\d+)?\) )?(\w+)\(([^)]*)\)'
)
SHARED = re.compile(
    r"__shared__\s+(?:(?:alignas|__align__)\(\d+\)\s+)?(?P<type>[^;=\[\]]+?)\s+(?P<name>\w+)\[(?P<size>\d+)\];"
)
DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:(?:alignas|__align__)\(\d+\)\s+)?(?P<type>[^;=\[\]]+?)\s+(?P<name>\w+)\[\];"
)
INLINE_PTX = re.compile(r"\b(?:asm|__asm__|__asm)\b(?:\s+(?:volatile|__volatile__))?\s*\(")

# Words of CUDA that g++ would stumble over without naming them.
WORDS = re.compile(
    r"\b(__cluster_dims__|__grid_constant__|__managed__|nvcuda|cooperative_groups|CUtensorMap|cuda::\w+)"
)
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Kernel:
    """A kernel as the text declares it."""

    name: str
    parameters: tuple[tuple[str, str], ...]  # type and name
    most_threads: int


def kernels(source: str) -> list[Kernel]:
    """The kernels of a text, each once."""
    found: dict[str, Kernel] = {}
    for bound, name, listed in KERNEL.findall(source):
        split = [re.fullmatch(r"(.*?)(\w+)", each.strip()) for each in listed.split(",")]
        parameters = tuple((each[1].strip(), each[2]) for each in split if each)
        found[name] = Kernel(name, parameters, int(bound or 1024))
    return list(found.values())


def to_cpp(source: str) -> str:
    """`source` with shared memory and inline PTX replaced by calls; as many lines as before.

    Raises
    ------
    UnsupportedCuda
        A kernel has inline PTX, or something else that is known not to be supported.
    """
    first = KERNEL.search(source)
    body = source[first.start() :] if first else source
    missing = [f"inline PTX ({_mnemonic(body, found)})" for found in INLINE_PTX.finditer(body)]
    missing += [found[1] for found in WORDS.finditer(_without_strings(body))]
    if missing:
        raise UnsupportedCuda(list(dict.fromkeys(missing)))
    source = DYNAMIC.sub(
        r'\g<type>* const \g<name> = static_cast<\g<type>*>(on_cpu::shared_dynamic("\g<name>", '
        r"sizeof(\g<type>)));",
        source,
    )
    source = SHARED.sub(
        r'\g<type>* const \g<name> = static_cast<\g<type>*>(on_cpu::shared("\g<name>", '
        r"\g<size> * sizeof(\g<type>), sizeof(\g<type>)));",
        source,
    )
    if "__shared__" in source:
        at = source.index("__shared__")
        line = source[source.rfind("\n", 0, at) + 1 : source.find("\n", at)].strip()
        raise UnsupportedCuda([f"the declaration `{line}`"])
    return _without_ptx(source)


def _closing(source: str, opening: int) -> int:
    """The position of the bracket that closes the one at `opening`; strings are skipped."""
    depth = 0
    position = opening
    while position < len(source):
        if source[position] == '"':
            string = STRING.match(source, position)
            position = string.end() if string else position + 1
            continue
        depth += {"(": 1, ")": -1}.get(source[position], 0)
        if depth == 0:
            return position
        position += 1
    return len(source) - 1


def _without_ptx(source: str) -> str:
    """Inline PTX of helpers that TVM puts before the kernels: an error only where one is called."""
    out = []
    done = 0
    for found in INLINE_PTX.finditer(source):
        if found.start() < done:
            continue
        end = _closing(source, found.end() - 1) + 1
        lines = "\n" * source.count("\n", found.start(), end)
        out += [source[done : found.start()], "on_cpu::inline_ptx()", lines]
        done = end
    return "".join(out) + source[done:]


def _mnemonic(source: str, found: re.Match[str]) -> str:
    """The first instruction of inline PTX."""
    inside = source[found.end() : _closing(source, found.end() - 1)]
    text = "".join(STRING.findall(inside)).replace("\\n", "\n").replace("\\t", " ")
    for statement in re.split(r"[;\n{}]", text):
        words = [word for word in statement.split() if not word.startswith("@")]
        if words and not words[0].startswith("."):  # a declaration
            return words[0]
    return text.strip()[:40]


def _without_strings(source: str) -> str:
    return STRING.sub('""', source)
