"""Programs by hand around the CPU rule, and what is asked of each.

Most of them look like a depthwise convolution with an epilogue and differ from one in a detail that
a schedule must see. What is no such convolution is refused (None); never may a result be wrong.
"""

from __future__ import annotations

import re
import textwrap
import zlib
from typing import Any

import numpy as np
import tvm

from fuse_epilogue.schedules import cpu
from oracles import assert_same_bits, assert_same_special_values, compile_together, make

LLVM = tvm.target.Target("llvm")


#: The buffers of most programs: three channels of 22 columns, with three taps each.
BUFFERS = "x: (3, 22), w: (3, 3), y: (3, 20)"


def conv(
    term: str = "x[vc, vi + vk] * w[vc, vk]",
    *,
    out: str = "y[vc, vi]",
    update: str = "{out} + {term}",
    init: str = "T.float32(0)",
    loops: str = "c, i, k in T.grid(3, 20, 3)",
    axes: str = 'vc, vi, vk = T.axis.remap("SSR", [c, i, k])',
    name: str = "conv",
) -> str:
    """The statement of a sum, of which programs change a part."""
    lines = [
        f"for {loops}:",
        f'    with T.sblock("{name}"):',
        textwrap.indent(textwrap.dedent(axes).strip(), " " * 8),
        "        with T.init():",
        f"            {out} = {init}",
        f"        {out} = {update.format(out=out, term=term)}",
    ]
    return "\n".join(lines)


def each(
    name: str,
    store: str,
    loops: str = "c, i in T.grid(3, 20)",
    axes: str = 'vc, vi = T.axis.remap("SS", [c, i])',
) -> str:
    """A statement that stores element by element."""
    body = textwrap.indent(textwrap.dedent(f"{axes}\n{store}"), " " * 8)
    return f'for {loops}:\n    with T.sblock("{name}"):\n{body}'


def parameter(name: str, shape: str, dtype: str) -> str:
    return f"{name}: T.Buffer({shape}, {(dtype or 'float32')!r})"


class Programs(dict[str, tuple[Any, str | None]]):
    """By name, with the form of the schedule: "rows", "loops", or None where there is none."""

    # A method, since TVM's parser looks at the attributes of all decorators.
    def add(self, form: str | None) -> Any:
        def put(func: Any) -> Any:
            name = func.attrs["global_symbol"]
            assert name not in self
            self[name] = (func, form)
            return func

        return put

    def write(
        self, name: str, form: str | None, *statements: str, buffers: str = BUFFERS, own: str = ""
    ) -> None:
        """Add a program of statements, with buffers as "name: (sizes) type", some its own."""
        found = re.findall(r"(\w+): (\([^)]*\)) ?(\w*)", buffers)
        params = ", ".join(parameter(*each) for each in found)
        made = re.findall(r"(\w+): (\([^)]*\))", own)
        body = [*(f"{name} = T.sblock_alloc_buffer({shape})" for name, shape in made), *statements]
        text = f"@T.prim_func(s_tir=True)\ndef {name}({params}):\n"
        self.add(form)(tvm.script.from_source(text + textwrap.indent("\n".join(body), "    ")))

    def known(self) -> list[str]:
        """The names of those that are scheduled."""
        return [name for name, (_, form) in self.items() if form]

    def check_form(self, name: str) -> None:
        func, form = self[name]
        assert form_of(scheduled(func)) == form

    def compile(self) -> Any:
        """Compile those that are scheduled, each as it is and scheduled."""
        functions = {}
        for name, (func, _) in self.items():
            after = scheduled(func)
            if after is not None:
                functions[name] = func
                functions[f"{name}_scheduled"] = after
        return compile_together(functions, opt_level=0)

    def check_result(self, built: Any, name: str) -> None:
        """Compare what is written, and what is not: the results hold other numbers before."""
        func, _ = self[name]
        for kind in ("exact", "nasty"):
            rng = np.random.default_rng(zlib.crc32(f"{name}/{kind}".encode()))
            shapes = [(str(p.ty.dtype), tuple(map(int, p.ty.shape))) for p in func.params]
            inputs = [make(kind, dtype, shape, rng) for dtype, shape in shapes]
            before, after = ([tvm.runtime.tensor(a) for a in inputs] for _ in range(2))
            built[name](*before)
            built[f"{name}_scheduled"](*after)
            for param, one, other in zip(func.params, before, after, strict=True):
                what = f"{name}, {kind} data, {param.name}"
                if kind == "exact":
                    assert_same_bits(other.numpy(), one.numpy(), what)
                else:
                    assert_same_special_values(other.numpy(), one.numpy(), what)


def scheduled(func: Any) -> Any:
    sch = cpu.DepthwiseConv1d(unroll=2, lanes=4).apply(func, LLVM)
    return None if sch is None else sch.mod["main"]


def form_of(func: Any) -> str | None:
    if func is None:
        return None
    return "rows" if 'T.sblock("rows")' in func.script() else "loops"
