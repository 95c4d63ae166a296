"""TVMScript of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import tirx

from .operands import GUARDS, OPERANDS, STEPS
from .spec import Function, Guarded


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, and what its array holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: str


@dataclass(frozen=True)
class Reduction:
    """A reduction.

    - `axes`: of the result.
    - `shape`: of the result.
    - `over`: what is reduced; 0 for no reduction.
    - `term`: in the axes and ``r``.
    - `join`: of ``{s}`` and ``{t}``.
    """

    parameters: tuple[Parameter, ...]
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    over: int
    term: str
    join: str = "{s} + {t}"


def build(function: Function) -> tirx.PrimFunc:
    """Return the function."""
    return tvm.script.from_source(script(function))


def parameters(function: Function) -> list[Parameter]:
    """Return the parameters in their order; the result "y" is the last one."""
    reduction = KINDS[function.kind](function)
    found = list(reduction.parameters)
    for number, guarded in enumerate(function.guarded):
        sizes = _sizes(reduction, guarded)
        for array in OPERANDS[guarded.operand].arrays:
            dtype = function.sum_type if array.dtype == "sum" else array.dtype
            shape = tuple(sizes[letter] for letter in array.shape)
            found.append(Parameter(f"p{number}{array.suffix}", shape, dtype, array.fill))
    return [*found, Parameter("y", reduction.shape, function.sum_type, "garbage")]


def build_shape(function: Function) -> tuple[int, ...]:
    """Return the shape of the result."""
    return KINDS[function.kind](function).shape


def script(function: Function) -> str:
    """Return TVMScript."""
    reduction = KINDS[function.kind](function)
    shape, dtype = reduction.shape, function.sum_type
    places = ", ".join(f"v_{axis}" for axis in reduction.axes)
    lines = ["@T.prim_func(s_tir=True)", "def main("]
    for each in parameters(function):
        lines.append(f'    {each.name}: T.Buffer({each.shape}, "{each.dtype}"),')
    lines.append("):")
    values = _Values(function, reduction)
    results = [values.step(number) for number in range(len(function.steps))]
    if not function.blocks and results:
        # One block computes all steps of the finished sum.
        whole = "{s}"
        for result in results:
            whole = result.replace("{s}", f"({whole})")
        results = [whole]
    names = [f"t{number}" for number in range(len(results))] + ["y"]
    for name in names[:-1]:
        lines.append(f'    {name} = T.sblock_alloc_buffer({shape}, "{dtype}")')
    lines += _reduction(function, reduction, values, names[0])
    for number, result in enumerate(results):
        value = result.replace("{s}", f"{names[number]}[{places}]")
        lines += [
            *_block(f"step{number}", reduction.axes, shape),
            f"            {names[number + 1]}[{places}] = {value}",
        ]
    return "\n".join(lines)


def _block(name: str, axes: tuple[str, ...], shape: tuple[int, ...], over: int = 0) -> list[str]:
    """Return loops and the head of a block."""
    loops, sizes = [*axes, *["r"] * bool(over)], [*shape, *[over] * bool(over)]
    lines = [
        f"    for {', '.join(loops)} in T.grid({', '.join(map(str, sizes))}):",
        f'        with T.sblock("{name}"):',
    ]
    for axis, size in zip(loops, sizes, strict=True):
        kind = "reduce" if axis == "r" else "spatial"
        lines.append(f"            v_{axis} = T.axis.{kind}({size}, {axis})")
    return lines


def _reduction(function: Function, reduction: Reduction, values: _Values, target: str) -> list[str]:
    element = f"{target}[{', '.join(f'v_{axis}' for axis in reduction.axes)}]"
    lines = _block("reduction", reduction.axes, reduction.shape, reduction.over)
    if not reduction.over:
        return [*lines, f"            {element} = {reduction.term}"]
    joined = reduction.join.format(s=element, t=reduction.term)
    return [
        *lines,
        "            with T.init():",
        f"                {element} = {values.start()}",
        f"            {element} = {joined}",
    ]


def _sizes(reduction: Reduction, guarded: Guarded) -> dict[str, int]:
    size = reduction.shape[guarded.axis]
    other = reduction.shape[(guarded.axis + 1) % len(reduction.shape)]
    rest = max(1, size - guarded.short)
    return {"n": size, "m": other, "short": guarded.short, "rest": rest}


class _Values:
    """Writes the operands."""

    def __init__(self, function: Function, reduction: Reduction) -> None:
        self.function = function
        self.reduction = reduction
        self.dtype = function.sum_type

    def start(self) -> str:
        """Return what sums start from."""
        function = self.function
        if function.init is not None:
            return self._guard(function.init, 0, self._value(function.init, 0))
        if function.kind == "largest":
            return f'T.min_value("{self.dtype}")'
        return self._number(0)

    def step(self, number: int) -> str:
        """Return a step, over ``{s}``."""
        step = self.function.steps[number]
        place = number + (self.function.init is not None)
        value = self._value(step.guarded, place)
        op = STEPS[step.op]
        if step.whole:
            return self._guard(step.guarded, place, op.replace("{g}", f"({value})"))
        return op.replace("{g}", self._guard(step.guarded, place, value))

    def _value(self, guarded: Guarded, place: int) -> str:
        row = OPERANDS[guarded.operand]
        value = self._filled(row.value, guarded, place)
        wide = row.dtype == "int32" and self.dtype != "int32"
        return f'T.Cast("{self.dtype}", {value})' if wide else value

    def _guard(self, guarded: Guarded, place: int, value: str) -> str:
        condition = self._filled(OPERANDS[guarded.operand].condition, guarded, place)
        text = self._filled(GUARDS[guarded.guard], guarded, place)
        text = text.replace("{condition}", condition).replace("{value}", value)
        return text.replace("{other}", self._number(guarded.other))

    def _filled(self, text: str, guarded: Guarded, place: int) -> str:
        reduction = self.reduction
        divided = "T.truncdiv(840, {s})" if self.dtype == "int32" else "T.float32(840) / {s}"
        count = len(reduction.axes)
        by = {
            "{divide_by_sum}": divided,
            "{p}": f"p{place}",
            "{v}": f"v_{reduction.axes[guarded.axis]}",
            "{u}": f"v_{reduction.axes[(guarded.axis + 1) % count]}",
            "{n}": str(reduction.shape[guarded.axis]),
            "{short}": str(guarded.short),
            "{zero}": self._number(0),
            "{one}": self._number(1),
        }
        for old, new in by.items():
            text = text.replace(old, new)
        return text

    def _number(self, value: int) -> str:
        return f"T.{self.dtype}({value})"


# ---- Kinds of reductions -------------------------------------------------------------------------


def _wide(function: Function, element: str) -> str:
    same = function.dtype == function.sum_type
    return element if same else f'T.Cast("{function.sum_type}", {element})'


def _weights(function: Function, element: str, count: int) -> str:
    """Return an element of weights of which some are missing at the end of the reduction."""
    if not function.taps:
        return _wide(function, element)
    zero = f"T.{function.dtype}(0)"
    return _wide(function, f"T.if_then_else(v_r < {function.taps}, {element}, {zero})")


def _conv(function: Function) -> Reduction:
    n, c, w, f = (function.sizes[letter] for letter in "ncwf")
    left, right, stride, dilation = (
        function.options[name] for name in ("left", "right", "stride", "dilation")
    )
    columns = (w + left + right - (f - 1) * dilation - 1) // stride + 1
    column = f"v_w * {stride} + v_r * {dilation} - {left}"
    last = function.options["channels_last"]
    x = f"x[v_n, {column}, v_c]" if last else f"x[v_n, v_c, {column}]"
    if left or right:
        inside = f"T.And(0 <= {column}, {column} < {w})"
        x = f"T.if_then_else({inside}, {x}, T.{function.dtype}(0))"
    weight = _weights(function, "weight[v_c, v_r]", f)
    x_shape = (n, w, c) if last else (n, c, w)
    return Reduction(
        (
            Parameter("x", x_shape, function.dtype, "small"),
            Parameter("weight", (c, function.taps or f), function.dtype, "small"),
        ),
        ("n", "w", "c") if last else ("n", "c", "w"),
        (n, columns, c) if last else (n, c, columns),
        f,
        f"{_wide(function, x)} * {weight}",
    )


def _product(function: Function) -> Reduction:
    m, n, k = (function.sizes[letter] for letter in "mnk")
    a_turned, b_turned = function.options["a_turned"], function.options["b_turned"]
    depth = function.taps or k
    a = "a[v_r, v_m]" if a_turned else "a[v_m, v_r]"
    b = "b[v_n, v_r]" if b_turned else "b[v_r, v_n]"
    return Reduction(
        (
            Parameter("a", (k, m) if a_turned else (m, k), function.dtype, "small"),
            Parameter("b", (n, depth) if b_turned else (depth, n), function.dtype, "small"),
        ),
        ("m", "n"),
        (m, n),
        k,
        f"{_wide(function, a)} * {_weights(function, b, k)}",
    )


def _rows(function: Function, join: str = "{s} + {t}") -> Reduction:
    m, n = (function.sizes[letter] for letter in "mn")
    x = Parameter("x", (m, function.taps or n), function.dtype, "small")
    return Reduction((x,), ("m",), (m,), n, _weights(function, "x[v_m, v_r]", n), join)


def _largest(function: Function) -> Reduction:
    return _rows(function, "T.max({s}, {t})")


def _elements(function: Function) -> Reduction:
    m, n = (function.sizes[letter] for letter in "mn")
    x = Parameter("x", (m, n), function.dtype, "small")
    return Reduction((x,), ("m", "n"), (m, n), 0, _wide(function, "x[v_m, v_n]"))


#: By name.
KINDS: dict[str, Callable[[Function], Reduction]] = {
    "conv": _conv,
    "product": _product,
    "rows": _rows,
    "largest": _largest,
    "elements": _elements,
}
