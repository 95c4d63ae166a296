"""Convolutions of 3 x 3 with fewer products: Winograd's F(2x2, 3x3) and F(4x4, 3x3).

They round differently from sums of products: F(2x2, 3x3) less, F(4x4, 3x3) more. An infinity or a
NaN in an image spreads over the tiles that read it.
"""

from __future__ import annotations

from tvm import tirx

from .....recognize.stages import Program
from .....tir.build import with_fields
from .....tir.walk import same
from ....scheduled import Packing, Scheduled
from ...costs import CALL_S, CLOCK_HZ, on_threads
from ...loops import FlatViews, index, sequence
from ..panels import Layout, panels_of
from ..plan import Machine
from ..taps import tap_order
from .kernel import WinogradKernel
from .layer import read_layer
from .packing import WinogradPacker
from .plan import WinogradPlan, choose

__all__ = ["WinogradPlan", "choose", "read_layer", "scheduled_winograd", "winograd_plans"]


def winograd_plans(
    program: Program, machine: Machine, constants: frozenset[int], direct: float
) -> tuple[list[WinogradPlan], str]:
    """Return ways to compute a function by Winograd's algorithms, and why it may be none of them.

    - `constants`: indices of the parameters that are constants at every call.
    - `direct`: predicted cycles of its sums of products.
    """
    layer = read_layer(program, constants)
    if isinstance(layer, str):
        return [], f"computed directly: {layer}" if layer else ""
    plans = choose(layer, machine)
    name, share = plans[0].transform.name, plans[0].cycles / direct
    return plans, f"computed directly: {name} is predicted to take {share:.2f} of the time"


def scheduled_winograd(plan: WinogradPlan, machine: Machine) -> Scheduled:
    """Return the function of a plan."""
    layer, products = plan.layer, plan.products
    contraction = layer.contraction
    func = contraction.program.func
    views = FlatViews()
    layout = Layout.of(products, tap_order(products))
    packed = tirx.decl_buffer((index(layout.size),), "float32", "packed")
    params = list(func.params)
    params[layer.parameter] = packed
    body = WinogradKernel(plan, views, packed, machine).loops()
    made = with_fields(func, params=params, body=sequence(views.declare(body)))
    weights = layer.weights
    axes = (layer.rows.tap, layer.columns.tap, layer.channels, layer.filters)
    pack = WinogradPacker(
        plan.transform.outputs,
        weights.constant,
        layer.extent(layer.channels),
        layer.extent(layer.filters),
        tuple(weights.factors[axis] for axis in axes),
        tuple(
            (panel.start, panel.width, panel.valid, panel.count) for panel in panels_of(products)
        ),
    )
    packing = {layer.parameter: Packing((layout.size,), "float32", pack)}
    fused = not same(contraction.sums, contraction.out)
    return Scheduled(
        made,
        plan.transform.name,
        "tail" if fused else "none",
        CALL_S + on_threads(plan.cycles / CLOCK_HZ, machine.threads),
        packing,
    )
