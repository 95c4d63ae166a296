"""Constants in exported programs of torch: arguments, results, and operators of numbers alone.

Relax has tensors only: an argument that is None or a number is in the program already, and what an
operator makes of numbers is known before the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tvm import relax


def with_tensors_only(exported: Any) -> Any:
    """Return an exported program whose arguments and results are tensors.

    - `exported` (torch.export.ExportedProgram): in core operators; its graph and its signature are
      changed.
    - Raises ValueError: a result is a number or a string.
    """
    from torch.export.graph_signature import ConstantArgument

    signature = exported.graph_signature
    nodes = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
    for spec in list(signature.input_specs):
        if isinstance(spec.arg, ConstantArgument):
            _put_in(nodes[spec.arg.name], spec.arg.value)
            signature.input_specs.remove(spec)
    _drop_results(exported)
    return exported


def _put_in(node: Any, value: Any) -> None:
    """Use a value in place of an argument."""
    from torch.fx.node import map_arg

    def put(each: Any) -> Any:
        return value if each is node else each

    for user in list(node.users):
        user.args = map_arg(user.args, put)
        user.kwargs = map_arg(user.kwargs, put)
    node.graph.erase_node(node)


def _drop_results(exported: Any) -> None:
    """Leave out results that are None; a model returns its tensors in their order."""
    import torch

    (output,) = exported.graph.find_nodes(op="output")
    results = output.args[0]
    for each in results:
        if each is not None and not isinstance(each, torch.fx.Node):
            raise ValueError(
                f"a result that is {each!r} is not supported: a compiled model returns tensors"
            )
    specs = exported.graph_signature.output_specs
    kept = [place for place, each in enumerate(results) if each is not None]
    output.args = (tuple(results[place] for place in kept),)
    specs[:] = [specs[place] for place in kept]


def constant_converters(
    exported: Any, known: Collection[str]
) -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters of operators that have numbers alone as operands.

    - `exported`: torch.export.ExportedProgram.
    - `known`: names of operators that have a converter.
    """
    import torch

    found: dict[str, bool] = {}
    for node in exported.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target.__name__
        is_random = torch.Tag.nondeterministic_seeded in node.target.tags
        constant = not node.all_input_nodes and not is_random
        if name not in known:
            found[name] = found.get(name, True) and constant
    return {
        **{name: _constant for name, constant in found.items() if constant},
        "arange.start_step": _range,
    }


def _range(node: Any, importer: Any) -> Any:
    """Return a range; Relax has those that count upwards one by one."""
    is_constant = not node.all_input_nodes and len(node.args) > 2 and node.args[2] != 1
    return _constant(node, importer) if is_constant else importer._arange(node)


def _constant(node: Any, _importer: Any) -> Any:
    """Return what torch computes, as a constant."""
    value = node.target(*node.args, **node.kwargs)
    return relax.const(value.numpy(), str(value.dtype).removeprefix("torch."))
