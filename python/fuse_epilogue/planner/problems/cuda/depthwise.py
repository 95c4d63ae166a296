"""A depthwise convolution along one dimension, on a GPU.

    y[.., i] = epilogue(sum_f x[.., i + f - left] * weight[.., f])

The space has the forms of :mod:`fuse_epilogue.schedules.cuda`: vectors along the rows, vectors of
channels, and a thread for each element, all in one kernel; and loops of TVM, a thread for each
element too, of which what follows may be a kernel of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cuda.depthwise.loops import in_loops
from ....kernels.cuda.depthwise.narrow import with_wrapping
from ....kernels.cuda.fusing import fuse_as_one, in_plain_loops
from ....rewrites.epilogue import NONE
from ....rewrites.step import rewrite
from ...machines.gpu import Gpu
from ..cost import Terms
from ..legal_modes import applicable
from ..patterns import Conv, match_conv
from ..problem import fusion_variable
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .depthwise_forms import CHANNELS, LABELS, LOOPS, ROWS, Form, one_pass_forms
from .kernel import ADDRESSES, Kernel, beyond_cache, elementwise, limits, terms, under_way

#: Threads of a block; of those that cost the same, the first are taken.
_THREADS = (256, 128, 512, 64, 1024, 32)


@dataclass(frozen=True)
class CudaConv(Conv[Gpu]):
    """A depthwise convolution and a GPU; see :class:`..problem.Problem`.

    - `one_pass`: the ways to fuse in which the convolution is one pass over memory.
    - `forms`: the work of one pass, and the loops of TVM.
    """

    one_pass: tuple[int, ...]
    forms: tuple[Form, ...]
    kind: str = "conv"

    @cached_property
    def space(self) -> Space:
        """The variables, and what forbids some of their values."""
        gpu = self.machine
        forms = tuple(sorted({each.form for each in self.forms}))
        parts = tuple(sorted({each.parts for each in self.forms}))
        # Where not even a warp is allowed, what is.
        threads = tuple(t for t in _THREADS if t <= gpu.block_threads) or (gpu.block_threads,)
        variables = (
            fusion_variable(self.epilogue),
            Variable("form", forms, "", "what a thread computes", tuple(LABELS[f] for f in forms)),
            Variable(
                "parts",
                parts,
                "vectors or columns",
                "vectors of a row, or columns of some channels, of a thread",
            ),
            Variable("threads", threads, "threads", "threads of a block"),
        )
        constraints = (
            Constraint(
                "one pass",
                0,
                "passes",
                lambda p: (p["form"] != LOOPS) & ~np.isin(p["fusion"], self.one_pass),
                "the form is written with all that follows, where that is a value of each sum",
            ),
            Constraint(
                "parts",
                0,
                "",
                lambda p: self._about(p, "threads") == 0,
                "of that form a thread has n parts, in its registers and of the result",
                costed=False,
            ),
            *limits(gpu, self.kernel),
        )
        return Space(variables, constraints)

    def _about(self, p: Points, what: str) -> Any:
        """Return an attribute of the forms of points, 0 where there is none such."""
        found = np.zeros(p.size, np.int64)
        for each in self.forms:
            where = (p["form"] == each.form) & (p["parts"] == each.parts)
            found = np.where(where, getattr(each, what), found)
        return found

    def kernel(self, p: Points) -> Kernel:
        """Return what the kernel of the convolution does."""
        chip, epilogue = self.machine.chip, self.epilogue
        taps = self.sizes["taps"]
        elements = self.sizes["rows"] * self.sizes["columns"]
        lanes, total = np.maximum(self._about(p, "lanes"), 1), self._about(p, "threads")
        loads = np.maximum(self._about(p, "loads"), 1)
        threads = np.minimum(p["threads"], np.maximum(total, 1))
        results = p["parts"] * lanes
        fused = (p["fusion"] != NONE) & (epilogue.blocks > 0)
        after = epilogue.operations * fused
        load = loads * np.maximum(1.0, lanes * self.bytes / 4)
        store = p["parts"] * np.maximum(1.0, lanes * self.out_bytes / 4)
        # A filter is loaded once for a row, or for each channel of a vector.
        filters = taps * np.where(p["form"] == CHANNELS, lanes, 1)
        operands = len(epilogue.loads) * np.where(p["form"] == CHANNELS, lanes, 1) * fused
        held = under_way(loads * lanes * self.bytes / 4)
        narrow = self.bits > 8 * self.bytes
        y = elements * np.where(fused | (epilogue.blocks == 0), self.out_bytes, self.bits // 8)
        # Windows overlap: along rows the first cache has what a neighbour loaded.
        again = np.where(p["form"] == CHANNELS, loads / p["parts"], 1.0)
        x = elements * self.bytes
        return Kernel(
            threads=threads,
            blocks=-(-total // threads),
            live=ADDRESSES + held + 2 * lanes + np.where(p["form"] == CHANNELS, filters, 0),
            fma=results * (taps + after),
            convert=results * taps * narrow,
            words=load + store + filters + operands,
            # A condition for each load, and the addresses.
            others=loads * 3.0 + p["parts"] + filters + operands,
            chain=chip.memory_latency + chip.latency * (taps + after) * p["parts"],
            memory=beyond_cache(self.machine, x, y),
            cached=x * again + y,
        )

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points, as predicted for the GPU."""
        epilogue = self.epilogue
        after = elementwise(
            self.machine,
            self.sizes["rows"] * self.sizes["columns"],
            epilogue.operations,
            len(epilogue.loads),
            self.bits // 8,
            self.out_bytes,
        )
        apart = (points["fusion"] == NONE) & (epilogue.blocks > 0)
        return terms(self.machine, ((1, self.kernel(points)), (apart, after)), points.size)

    def resized(self, name: str, size: int) -> CudaConv | None:
        """Return the problem with another size and the same forms; its function stays."""
        if name not in self.sizes or size < 1:
            return None
        # As many threads for an element as before; of more taps, as many loads more.
        grown = {"taps": 1}.get(name, size / self.sizes[name])
        more = size - self.sizes["taps"] if name == "taps" else 0
        forms = tuple(
            replace(
                each,
                threads=max(1, round(each.threads * grown)),
                loads=max(1, each.loads + -(-more // (1 if each.form == CHANNELS else each.lanes))),
            )
            for each in self.forms
        )
        return replace(self, sizes={**self.sizes, name: size}, forms=forms)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled: written in one pass, or by primitives in loops."""
        self.space.check(point)
        sch, conv = self.request.scheduled()
        mode, form, most = point["fusion"], point["form"], point["threads"]
        if form == LOOPS:
            name = sch.get(conv).name_hint

            def follow(sch: s_tir.Schedule, _: Any) -> None:
                fuse_as_one(sch, name, mode)

            in_loops(sch, conv, follow, most)
        else:
            fuse_as_one(sch, sch.get(conv).name_hint, mode)
            if form == ROWS:
                rewrite(sch, conv, "cuda_rows", vectors=point["parts"], threads=most)
            elif form == CHANNELS:
                rewrite(sch, conv, "cuda_channels", tile=point["parts"], threads=most)
            else:
                rewrite(sch, conv, "cuda_elements", threads=most)
        func = sch.mod["main"]
        if not with_wrapping(func).body.same_as(func.body):
            rewrite(sch, sch.get_sblock("root"), "wrapping")
        return sch


def find_conv(request: Request) -> CudaConv | None:
    """Return the depthwise convolution that a function is, None if it is something else.

    - Raises ValueError: TVM's primitives refuse every way to schedule the convolution; or the
      function has a reduction, and an axis of size 0.
    """
    matched = match_conv(request)
    if matched is None:
        return None
    sch, conv, found, fields = matched
    if not in_plain_loops(sch, conv):
        return None
    assert request.epilogue is not None, "it was matched"
    one_pass, forms = one_pass_forms(sch, conv, request.epilogue)
    elements = fields["sizes"]["rows"] * found.columns
    loops = Form(LOOPS, 1, 1, elements, found.taps)
    problem = CudaConv(**fields, one_pass=one_pass, forms=(loops, *forms))
    return applicable(problem, lambda p: p["form"])
