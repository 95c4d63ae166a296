"""The backend "fuse_epilogue" of torch.compile, for inference on processors.

torch finds it by its entry point: ``torch.compile(model, backend="fuse_epilogue")``. Breaks of the
graph, guards and compiling again are torch's. A graph with something that Relax cannot represent
runs in torch, and a warning names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .compiling import Options, compile_imported, processor
from .importing import import_model
from .torch_graph import CompiledGraph

#: Options of torch.compile(..., options={...}).
_OPTIONS = ("target", "threads", "channels_last", "winograd", "measure", "database")


class EagerFallback(UserWarning):
    """A graph that torch runs itself; the message names the reason."""


def fuse_epilogue_backend(
    graph: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of torch.compile; torch calls it.

    Parameters
    ----------
    graph : torch.fx.GraphModule
    example_inputs : Sequence
        Tensors and sizes that the graph is to be called with.
    options : Mapping, optional
        `target`, `threads`, `channels_last`, `winograd`, `measure` and `database` of
        :func:`fuse_epilogue.compile`. The number of threads is torch's own by default.
    mode : str, optional
        Mode of torch's own compiler; this backend has none.

    Returns
    -------
    Callable
        Called as the graph is.

    Raises
    ------
    TypeError, ValueError
        An option is unknown or has another type; or there is a mode.

    Warns
    -----
    EagerFallback
        torch runs the graph itself: gradients are wanted, a tensor is not in the memory of the
        processor, or, at a call, Relax cannot represent an operator.

    Example
    -------
    >>> import torch
    >>> model = torch.nn.Linear(3, 2).eval()
    >>> compiled = torch.compile(model, backend="fuse_epilogue")
    >>> with torch.inference_mode():
    ...     tuple(compiled(torch.ones(4, 3)).shape)
    (4, 2)
    """
    from torch._dynamo.backends.common import aot_autograd

    if mode is not None:
        raise ValueError(f"the backend fuse_epilogue has no mode '{mode}': leave it out")
    chosen = dict(options or {})
    unknown = sorted(set(chosen) - set(_OPTIONS))
    if unknown:
        raise TypeError(
            f"the backend fuse_epilogue has no option '{unknown[0]}': it has {', '.join(_OPTIONS)}"
        )
    threads = chosen.setdefault("threads", torch.get_num_threads())
    target = processor(chosen.pop("target", None), threads)
    if target.kind.name != "llvm":
        raise ValueError(f"the backend fuse_epilogue is for processors, not for {target}")
    how = Options(**chosen)
    reason = _not_ours(example_inputs)
    if reason:
        _warn(graph, reason)
        return graph.forward  # type: ignore[no-any-return]

    def compile_exported(exported: Any) -> Any:
        return compile_imported(import_model(exported), target, how)

    def compile_graph(inner: Any, _example_inputs: Sequence[Any]) -> Any:
        return CompiledGraph(
            inner, _weights(), compile_exported, lambda reason: _warn(inner, reason)
        )

    made: Callable[..., Any] = aot_autograd(fw_compiler=compile_graph)(graph, example_inputs)
    return made


def _not_ours(inputs: Sequence[Any]) -> str:
    """Return why inputs of a graph are torch's business, "" if they are not."""
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        return "it computes gradients: call the model under torch.no_grad() for inference"
    devices = sorted({each.device.type for each in tensors} - {"cpu"})
    if devices:
        return f"a tensor is on the device '{devices[0]}', not in the memory of the processor"
    return ""


def _weights() -> list[int]:
    """Return which arguments of the graph being compiled are parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None:
        return []
    changed = set(getattr(facts, "mutated_inp_runtime_indices", ()))
    return [place for place in getattr(facts, "static_input_indices", ()) if place not in changed]


def _warn(graph: Any, reason: str) -> None:
    operators = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    warnings.warn(
        f"fuse_epilogue leaves a graph of {operators} operators to torch: {reason}",
        EagerFallback,
        stacklevel=2,
    )
