"""CUDA text made into C++ text with the same lines."""

from __future__ import annotations

import re
from collections.abc import Callable
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
# Asynchronous copies, as TVM writes them, and what executes each: of the operands, and the number.
COPIES = [
    (r"cp\.async\.ca\.shared\.global \[%0\], \[%1\], (4|8|16)", "copy_async({0}, {1}, {number})"),
    (r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], (16)", "copy_async({0}, {1}, {number})"),
    (r"cp\.async\.commit_group()", "commit_copies()"),
    (r"cp\.async\.wait_group (\d+)", "wait_for_copies({number})"),
    (r"cp\.async\.wait_all()", "wait_for_all_copies()"),
]
OPERAND = re.compile(r'"[rl]"\((\w+)\)')
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

    - Raises UnsupportedCuda: a kernel has inline PTX, or something else that is known not to be
      supported.
    """
    source = _with_copies(source)
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


def _with_copies(source: str) -> str:
    """Inline PTX of asynchronous copies as calls of what executes them."""

    def call(inside: str) -> str | None:
        text = " ".join("".join(STRING.findall(inside.split(":")[0])).split()).rstrip("; ")
        operands = OPERAND.findall(inside)
        for pattern, form in COPIES:
            found = re.fullmatch(pattern, text)
            if found:
                return "on_cpu::" + form.format(*operands, number=found[1])
        return None

    return _replaced(source, call)


def _replaced(source: str, call: Callable[[str], str | None]) -> str:
    """The text with calls in the place of inline PTX; where there is none, it stays."""
    out = []
    done = 0
    for found in INLINE_PTX.finditer(source):
        if found.start() < done:
            continue
        closing = _closing(source, found.end() - 1)
        made = call(source[found.end() : closing])
        if made is None:
            continue
        lines = "\n" * source.count("\n", found.start(), closing)
        out += [source[done : found.start()], made, lines]
        done = closing + 1
    return "".join(out) + source[done:]


def _without_ptx(source: str) -> str:
    """Inline PTX of helpers that TVM puts before the kernels: an error only where one is called."""
    return _replaced(source, lambda inside: "on_cpu::inline_ptx()")


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
