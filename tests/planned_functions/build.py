"""Functions of TVM made of generated ones: as TVMScript, with the data of each array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.script import from_source

from .operands import GUARDS, OPERANDS, OPERATIONS, WHOLE, Draw
from .spec import Function, Operand

_BYTES = {"float32": 4, "int32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Array:
    """A parameter.

    - `draw`: None for the result.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    draw: Draw | None


@dataclass(frozen=True)
class Built:
    """A function of TVM and its arrays, in the order of its parameters."""

    text: str
    func: Any
    arrays: tuple[Array, ...]


def small(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return small whole numbers: float sums of their products are exact."""
    return rng.integers(-4, 5, size=shape)


def build(function: Function) -> Built:
    """Return the function that a generated one describes."""
    writer = _Writer(function)
    KINDS[function.kind](writer)
    text = writer.text()
    return Built(text, from_source(text), tuple(writer.arrays))


@dataclass
class _Writer:
    """Collects the parameters and the lines of a function."""

    function: Function
    arrays: list[Array] = field(default_factory=list)
    allocated: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def array(self, name: str, shape: tuple[int, ...], dtype: str, draw: Draw | None) -> str:
        self.arrays.append(Array(name, shape, dtype, draw))
        return name

    def allocate(self, name: str, shape: tuple[int, ...], dtype: str) -> str:
        self.allocated.append(f'{name} = T.sblock_alloc_buffer({_shape(shape)}, "{dtype}")')
        return name

    def block(
        self,
        name: str,
        axes: dict[str, tuple[str, int]],
        body: list[str],
        init: list[str] | None = None,
    ) -> None:
        """Add a block: by name of an axis, its kind ("S" or "R") and its extent."""
        loops = ", ".join(f"l{axis}" for axis in axes)
        extents = ", ".join(str(extent) for _, extent in axes.values())
        kinds = "".join(kind for kind, _ in axes.values())
        names = ", ".join(axes)
        self.lines.append(f"for {loops} in T.grid({extents}):")
        self.lines.append(f'    with T.sblock("{name}"):')
        one = f'        {names} = T.axis.remap("{kinds}", [{loops}])'
        self.lines.append(one)
        if init is not None:
            self.lines.append("        with T.init():")
            self.lines += ["            " + line for line in init]
        self.lines += ["        " + line for line in body]

    def operand(
        self, operand: Operand, name: str, axes: dict[str, int], guarded: bool = True
    ) -> tuple[str, str]:
        """Return the text of an operand of the accumulator's type, and its condition."""
        kind = OPERANDS[operand.kind]
        places = list(axes)
        chosen = {"row": places[:1], "column": places[-1:], "both": places}[operand.axes]
        axis = chosen[-1]
        n = axes[axis]
        k = max(1, n // 2)
        texts = {"name": name, "at": ", ".join(chosen), "axis": axis, "n": n, "k": k}
        for suffix, (shape, dtype, draw) in kind.buffers.items():
            sizes = (
                tuple(axes[each] for each in chosen)
                if shape == "at"
                else tuple(int(part) for part in shape.format(**texts).split(","))
            )
            self.array(name + suffix, sizes, dtype, draw)
        value, condition = kind.value.format(**texts), kind.condition.format(**texts)
        if condition and guarded:
            value = GUARDS[operand.guard].format(c=condition, v=value)
        if self.function.accumulator != "int32":
            value = f'T.Cast("{self.function.accumulator}", {value})'
        return value, condition

    def start(self, axes: dict[str, int]) -> str:
        start = self.function.start
        return self.zero if start is None else self.operand(start, "S", axes)[0]

    @property
    def zero(self) -> str:
        return f"T.{self.function.accumulator}(0)"

    def follow(self, sums: str, axes: dict[str, int], shape: tuple[int, ...]) -> None:
        """Add the blocks after the reduction, the last of which writes the result."""
        at = ", ".join(axes)
        for place, stage in enumerate(self.function.stages):
            last = place == len(self.function.stages) - 1
            name = f"Q{place}"
            whole = stage.operand.guard in WHOLE
            operand, condition = self.operand(stage.operand, f"G{place}", axes, not whole)
            x = f"{sums}[{at}]"
            value = OPERATIONS[stage.operation].format(x=x, g=operand, zero=self.zero)
            out = f"{'Y' if last else name}[{at}]"
            text = WHOLE[stage.operand.guard] if whole and condition else "{whole}"
            text = text.format(c=condition, whole=value, x=x, out=out)
            lines = text.splitlines() if "\n" in text else [f"{out} = {text}"]
            if not last:
                self.allocate(name, shape, self.function.accumulator)
            kinds = {axis: ("S", extent) for axis, extent in axes.items()}
            self.block(f"stage{place}", kinds, lines)
            sums = name

    def sums(self, shape: tuple[int, ...]) -> str:
        """Return the buffer of the sums: the result, if nothing follows."""
        if not self.function.stages:
            return "Y"
        return self.allocate("A", shape, self.function.accumulator)

    def text(self) -> str:
        """Return the function as TVMScript; the result is its last parameter."""
        params = []
        for array in self.arrays:
            align = f", align={_BYTES[array.dtype]}" if self.function.tight else ""
            params.append(f'{array.name}: T.Buffer({_shape(array.shape)}, "{array.dtype}"{align})')
        head = ["@T.prim_func(s_tir=True)", f"def main({', '.join(params)}):"]
        return "\n".join([*head, *("    " + line for line in (*self.allocated, *self.lines))])


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))},)"


def _cast(function: Function, value: str) -> str:
    same = function.source == function.accumulator
    return value if same else f'T.Cast("{function.accumulator}", {value})'


def _product(writer: _Writer) -> None:
    function, sizes = writer.function, writer.function.sizes
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    turned_a, turned_b = function.form["transposed"]
    writer.array("X", (k, m) if turned_a else (m, k), function.source, small)
    writer.array("W", (n, k) if turned_b else (k, n), function.source, small)
    axes = {"vi": m, "vj": n}
    sums = writer.sums((m, n))
    a = _cast(function, "X[vk, vi]" if turned_a else "X[vi, vk]")
    b = _cast(function, "W[vj, vk]" if turned_b else "W[vk, vj]")
    writer.block(
        "product",
        {"vi": ("S", m), "vj": ("S", n), "vk": ("R", k)},
        [f"{sums}[vi, vj] = {sums}[vi, vj] + {a} * {b}"],
        [f"{sums}[vi, vj] = {writer.start(axes)}"],
    )
    writer.follow(sums, axes, (m, n))
    writer.array("Y", (m, n), function.accumulator, None)


def _rows(writer: _Writer) -> None:
    function, sizes = writer.function, writer.function.sizes
    m, n = sizes["m"], sizes["n"]
    writer.array("X", (m, n), function.source, small)
    axes = {"vi": m}
    sums = writer.sums((m,))
    x = _cast(function, "X[vi, vk]")
    largest = function.form["monoid"] == "max"
    start = writer.start(axes)
    if largest and function.start is None:
        start = f'T.min_value("{function.accumulator}")'
    total = f"T.max({sums}[vi], {x})" if largest else f"{sums}[vi] + {x}"
    writer.block(
        "rows",
        {"vi": ("S", m), "vk": ("R", n)},
        [f"{sums}[vi] = {total}"],
        [f"{sums}[vi] = {start}"],
    )
    writer.follow(sums, axes, (m,))
    writer.array("Y", (m,), function.accumulator, None)


def _elements(writer: _Writer) -> None:
    function, sizes = writer.function, writer.function.sizes
    m, n = sizes["m"], sizes["n"]
    turned = function.form["transposed"]
    writer.array("X", (n, m) if turned else (m, n), function.source, small)
    axes = {"vi": m, "vj": n}
    sums = writer.sums((m, n))
    x = _cast(function, "X[vj, vi]" if turned else "X[vi, vj]")
    kinds = {axis: ("S", extent) for axis, extent in axes.items()}
    writer.block("elements", kinds, [f"{sums}[vi, vj] = {x}"])
    writer.follow(sums, axes, (m, n))
    writer.array("Y", (m, n), function.accumulator, None)


#: What guards the term of a convolution, given the term ``{t}`` and a zero ``{zero}``.
TERMS: dict[str, str] = {
    "none": "{t}",
    "row gather": "T.if_then_else(I[vc] >= 0 and I[vc] < {c}, {t}, {zero})",
    "row gather, select": "T.Select(I[vc] >= 0 and I[vc] < {c}, {t}, {zero})",
    "short rows": "T.if_then_else(vc < {half}, {t}, {zero})",
    "short rows, select": "T.Select(vc < {half}, {t}, {zero})",
    "short filter": "T.if_then_else(vk < {few}, {t}, {zero})",
    "short filter, select": "T.Select(vk < {few}, {t}, {zero})",
    "filter gather": "T.if_then_else(I[vc] >= 0 and I[vc] < {c}, {t}, {zero})",
    "rows by data": "T.if_then_else(F[vc] != 0, {t}, {zero})",
    "rows by data, select": "T.Select(F[vc] != 0, {t}, {zero})",
    "filters by data": "T.if_then_else(F[vc] != 0, {t}, {zero})",
    "filters by data, select": "T.Select(F[vc] != 0, {t}, {zero})",
    "quotient": "T.if_then_else(Z[vc] != 0, {t} * {q}, {zero})",
    "quotient, select": "T.Select(Z[vc] != 0, {t} * {q}, {zero})",
    "quotient of x": "T.if_then_else({x} != {zero}, {w} * {qx}, {zero})",
    "quotient of x, select": "T.Select({x} != {zero}, {w} * {qx}, {zero})",
}


def _conv(writer: _Writer) -> None:
    function, sizes, form = writer.function, writer.function.sizes, writer.function.form
    n, c, columns, taps = (sizes[letter] for letter in "ncwk")
    stride, dilation, left = form["stride"], form["dilation"], form["left"]
    last, guard = form["channels_last"], form["guard"]
    reach = (columns - 1) * stride + (taps - 1) * dilation + 1
    width = max(1, reach - left - form["right"])
    half, few = max(1, c // 2), max(1, taps - 1)
    rows = half if guard.startswith(("short rows", "rows by data")) else c
    writer.array("X", (n, width, rows) if last else (n, rows, width), function.source, small)
    filters = half if guard.startswith("filters by data") else c
    written = few if guard.startswith("short filter") else taps
    writer.array("W", (filters, written), function.source, small)
    if "by data" in guard:
        writer.array("F", (c,), "int32", lambda rng, shape: np.arange(shape[0]) < half)
    if "gather" in guard:
        writer.array("I", (c,), "int32", lambda rng, shape: _wild(rng, shape, c))
    if guard.startswith("quotient") and "of x" not in guard:
        writer.array("Z", (c,), "int32", OPERANDS["quotient"].buffers[""][2])
    shape = (n, columns, c) if last else (n, c, columns)
    order = ("vn", "vi", "vc") if last else ("vn", "vc", "vi")
    axes = dict(zip(order, shape, strict=True))
    sums = writer.sums(shape)
    place = f"vi * {stride} + vk * {dilation}" + (f" - {left}" if left else "")
    row = "I[vc]" if guard.startswith("row gather") else "vc"

    def at(column: str, channel: str) -> str:
        return f"vn, {column}, {channel}" if last else f"vn, {channel}, {column}"

    zero = f"T.{function.source}(0)"
    padded = left > 0 or form["right"] > 0
    x = f"X[{at(place, row)}]"
    if padded and form["padding"] == "block":
        wide = width + left + form["right"]
        wide = max(wide, reach)
        kinds = (n, wide, rows) if last else (n, rows, wide)
        writer.allocate("P", kinds, function.source)
        inside = f"vi >= {left} and vi < {width + left}"
        value = f"T.if_then_else({inside}, X[{at(f'vi - {left}', 'vc')}], {zero})"
        names = dict(zip(order, (("S", extent) for extent in kinds), strict=True))
        writer.block("pad", names, [f"P[{at('vi', 'vc')}] = {value}"])
        x = f"P[{at(f'vi * {stride} + vk * {dilation}', row)}]"
    elif padded:
        inside = f"{place} >= 0 and {place} < {width}"
        x = f"T.if_then_else({inside}, {x}, {zero})"
    filter_at = "I[vc], vk" if guard == "filter gather" else "vc, vk"
    x, w = _cast(function, x), _cast(function, f"W[{filter_at}]")
    quotient = "T.truncdiv(12, Z[vc])"
    if function.accumulator != "int32":
        quotient = f'T.Cast("{function.accumulator}", {quotient})'
    of_x = f"T.truncdiv(12, {x})"
    if function.accumulator != "int32":
        of_x = f'T.Cast("{function.accumulator}", T.truncdiv(12, T.Cast("int32", {x})))'
    texts = {"t": f"{x} * {w}", "zero": writer.zero, "c": c, "half": half, "few": few}
    texts |= {"q": quotient, "qx": of_x, "x": x, "w": w}
    term = TERMS[guard].format(**texts)
    kinds = {**{axis: ("S", extent) for axis, extent in axes.items()}, "vk": ("R", taps)}
    element = ", ".join(order)
    writer.block(
        "conv",
        kinds,
        [f"{sums}[{element}] = {sums}[{element}] + {term}"],
        [f"{sums}[{element}] = {writer.start(axes)}"],
    )
    writer.follow(sums, axes, shape)
    writer.array("Y", shape, function.accumulator, None)


def _wild(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    far = rng.integers(1, 1 << 14, size=shape) * rng.choice([-1, 1], size=shape)
    far = far + size * np.sign(far)
    return np.where(rng.random(shape) < 0.5, far, rng.integers(0, size, shape))


KINDS: dict[str, Callable[[_Writer], None]] = {
    "product": _product,
    "rows": _rows,
    "conv": _conv,
    "elements": _elements,
}
