"""A graph of torch.compile, compiled for the sizes and the weights that it is called with."""

from __future__ import annotations

import copy
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from .._interrupts import raise_interrupt
from .compiled import CompiledModel
from .import_refusal import ImportRefusal

#: For how many combinations of sizes and weights a graph is compiled; further ones run in torch.
MOST_VARIANTS = 32
#: How often a weight may change before it is an argument, which no kernel is compiled for.
_CHANGES = 2


#: A tensor, which results are to be as well.
_TENSOR = torch.empty(0)


class _Weight:
    """A tensor that code was compiled for, and how to see whether it still is what it was."""

    def __init__(self, tensor: Any) -> None:
        self._reference: weakref.ref[Any] = weakref.ref(tensor)
        self._version, self._address = tensor._version, tensor.data_ptr()

    def is_it(self, tensor: Any) -> bool:
        """Return whether a tensor is this one, of whatever values."""
        return self._reference() is tensor

    def unchanged(self, tensor: Any) -> bool:
        """Return whether a tensor is this one, with the values that it had."""
        return (
            self.is_it(tensor)
            and tensor._version == self._version
            and tensor.data_ptr() == self._address
        )

    def is_gone(self) -> bool:
        """Return whether the tensor is no longer referenced."""
        return self._reference() is None


class _Values(torch.fx.Interpreter):
    """The values of all nodes of a graph, as tensors without memory."""

    def __init__(self, graph: Any, arguments: Sequence[Any]) -> None:
        super().__init__(graph)
        self.of: dict[Any, Any] = {}
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            self.run(*[mode.from_tensor(e) if _is_tensor(e) else e for e in arguments])

    def run_node(self, n: Any) -> Any:
        """Return the value of a node, and keep it."""
        try:
            self.of[n] = super().run_node(n)
        except Exception as error:
            raise_interrupt(error)
            name = getattr(n.target, "__name__", n.target)
            raise ImportRefusal(f"torch cannot infer the results of {name}") from error
        return self.of[n]


@dataclass(frozen=True)
class _Result:
    """Recipe for one result of a graph, from the arrays that the compiled part returns.

    - `value`: the result itself if it is not a tensor.
    - `place`: index of the array; below 0 if the result is not a tensor.
    - `is_view`: whether it shares its memory with another result.
    - `size`, `stride`, `offset`: as torch says them.
    """

    value: Any = None
    place: int = -1
    is_view: bool = False
    is_contiguous: bool = True
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0

    def of(self, arrays: Sequence[Any]) -> Any:
        """Return the result."""
        if self.place < 0:
            return self.value
        array = arrays[self.place]
        if self.is_view:
            return array.as_strided(self.size, self.stride, self.offset)
        return array if self.is_contiguous else _restrided(array, self.stride)


def _restrided(array: Any, stride: Sequence[int]) -> Any:
    made = torch.empty_strided(array.shape, stride, dtype=array.dtype)
    return made.copy_(array)


def _separate(graph: Any, arguments: Sequence[Any]) -> tuple[Any, list[_Result]]:
    """Return a graph whose results are arrays of their own, and how its results are made of them.

    torch lets results be views of each other, and keeps them so where a graph is compiled.
    """
    values = _Values(graph, arguments).of
    owners: dict[int, Any] = {}
    for node, value in values.items():
        if _is_tensor(value):
            owners.setdefault(_storage(value), node)
    copied = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    (output,) = [node for node in copied.graph.nodes if node.op == "output"]
    same = dict(zip(graph.graph.nodes, copied.graph.nodes, strict=True))
    (given,) = [node.args[0] for node in graph.graph.nodes if node.op == "output"]
    shared = Counter(_storage(values[n]) for n in given if _is_tensor(values.get(n)))
    arrays: list[Any] = []
    results = []
    for node in given:
        value = values[node] if isinstance(node, torch.fx.Node) else node
        if not _is_tensor(value):
            results.append(_Result(value))
            continue
        owner = owners[_storage(value)]
        # What is a view of an argument, torch makes of that.
        is_view = shared[_storage(value)] > 1 and owner.op == "call_function"
        is_view = is_view and _is_tensor(values[owner]) and values[owner].is_contiguous()
        source = same[owner if is_view else node]
        if source not in arrays or not is_view:
            arrays.append(source)
        place = arrays.index(source) if is_view else len(arrays) - 1
        layout = tuple(value.shape), value.stride(), value.storage_offset()
        results.append(_Result(None, place, is_view, value.is_contiguous(), *layout))
    output.args = (tuple(arrays),)
    copied.graph.eliminate_dead_code()
    copied.recompile()
    return copied, results


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _storage(value: Any) -> int:
    return int(value.untyped_storage()._cdata)


class _Bound(torch.nn.Module):
    """A graph with sizes and weights in their places; it takes the tensors that remain."""

    def __init__(self, graph: Any, fixed: Mapping[int, Any], count: int) -> None:
        super().__init__()
        # Not "graph", which every GraphModule has: torch.export names constants by their path.
        self.body, self.count = graph, count
        self.sizes = {i: each for i, each in fixed.items() if not _is_tensor(each)}
        self.weights = [i for i in fixed if i not in self.sizes]
        for place in self.weights:
            self.register_buffer(f"weight{place}", fixed[place].detach())

    def forward(self, *tensors: Any) -> Any:
        """Return the results of the graph."""
        remaining = iter(tensors)
        return self.body(*[self._argument(place, remaining) for place in range(self.count)])

    def _argument(self, place: int, remaining: Any) -> Any:
        if place in self.sizes:
            return self.sizes[place]
        return getattr(self, f"weight{place}") if place in self.weights else next(remaining)


class _Variant:
    """A graph compiled for certain sizes and weights."""

    def __init__(
        self,
        graph: Any,
        arguments: Sequence[Any],
        weights: Sequence[int],
        compile_exported: Callable[[Any], CompiledModel],
    ) -> None:
        self.sizes = {i: e for i, e in enumerate(arguments) if not _is_tensor(e)}
        self.weights = {i: _Weight(arguments[i]) for i in weights}
        fixed = {**self.sizes, **{i: arguments[i] for i in weights}}
        self._places = [i for i in range(len(arguments)) if i not in fixed]
        # Of a size that may differ from call to call, torch only guards what the graph depends on.
        self._shapes = {i: arguments[i].shape for i in self._places}
        separate, self._results = _separate(graph, arguments)
        if all(each.place < 0 for each in self._results):
            raise ImportRefusal("the graph returns no tensor")
        bound = _Bound(separate, fixed, len(arguments))
        inputs = tuple(arguments[i].detach() for i in self._places)
        try:
            with torch.no_grad():
                exported = torch.export.export(bound, inputs)
        except Exception as error:
            raise_interrupt(error)
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ImportRefusal(f"torch.export cannot export the graph: {reason}") from error
        self._constant = _constant_results(exported)
        self._model = compile_exported(exported)
        self._is_tuple = self._model.signature.is_tuple

    def fits(self, arguments: Sequence[Any]) -> bool:
        """Return whether the graph was compiled for the sizes and weights among arguments."""
        for place, size in self.sizes.items():
            if arguments[place] != size:
                return False
        for place, shape in self._shapes.items():
            if arguments[place].shape != shape:
                return False
        for place, weight in self.weights.items():
            if not weight.unchanged(arguments[place]):
                return False
        return True

    def is_stale(self, arguments: Sequence[Any]) -> bool:
        """Return whether it fits no call any more: a weight has changed, or is gone."""
        return any(
            weight.is_gone() or (weight.is_it(arguments[i]) and not weight.unchanged(arguments[i]))
            for i, weight in self.weights.items()
        )

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        # A graph of constants has no argument that would say whose arrays the results are.
        results = self._model.called([arguments[i] for i in self._places], _TENSOR)
        arrays = list(results) if self._is_tuple else [results]
        # What comes after the graph may change a result in place, and no other with it.
        seen: set[int] = set()
        for place, each in enumerate(arrays):
            if self._constant[place] or each.data_ptr() in seen:
                arrays[place] = each.clone()
            seen.add(each.data_ptr())
        return [each.of(arrays) for each in self._results]


def _constant_results(exported: Any) -> list[bool]:
    """Return for each result of an exported program whether no input has a part in it."""
    inputs = set(exported.graph_signature.user_inputs)
    depends: set[Any] = set()
    for node in exported.graph.nodes:
        if node.name in inputs or any(each in depends for each in node.all_input_nodes):
            depends.add(node)
    (output,) = [node for node in exported.graph.nodes if node.op == "output"]
    return [each not in depends for each in output.args[0]]


class CompiledGraph:
    """A graph of aten operators, called as torch.compile calls what backends return.

    The graph is compiled at the first call, and again for other sizes and other weights: those that
    torch says do not change are constants of the code, packed for its kernels. Whether they are the
    same is checked at every call.

    - `graph` (torch.fx.GraphModule): without operators that change anything.
    - `weights`: which arguments are weights.
    - `on_refusal`: called with the reason when a call is left to torch, once for each reason.
    """

    #: The arguments come as a list, which torch asks for by this attribute.
    _boxed_call = True

    def __init__(
        self,
        graph: Any,
        weights: Sequence[int],
        compile_exported: Callable[[Any], CompiledModel],
        on_refusal: Callable[[str], Any],
    ) -> None:
        """Keep what is needed at the first call."""
        self._graph, self._compile = graph, compile_exported
        self._weights = list(weights)
        self._on_refusal = on_refusal
        self._told: set[str] = set()
        self._refused = False
        self._changes: Counter[int] = Counter()
        self._variants: list[_Variant] = []
        self._lock = threading.RLock()

    def __call__(self, arguments: list[Any]) -> Any:
        """Return the results of the graph."""
        if not self._refused:
            for variant in self._variants:
                if variant.fits(arguments):
                    return variant(arguments)
            found = self._another(arguments)
            if found is not None:
                return found(arguments)
        return self._graph(*arguments)

    def _another(self, arguments: Sequence[Any]) -> _Variant | None:
        """Return the graph compiled for sizes and weights that are new, None if it cannot be."""
        with self._lock:
            self._forget(arguments)
            if len(self._variants) >= MOST_VARIANTS:
                self._refuse(f"it came with more than {MOST_VARIANTS} sizes or weights")
                return None
            weights = [
                place
                for place in self._weights
                if self._changes[place] < _CHANGES and _is_weight(arguments[place])
            ]
            try:
                # torch watches its first call of a graph by a mode, which export cannot run in.
                with _disable_current_modes():
                    made = _Variant(self._graph, arguments, weights, self._compile)
            except Exception as error:  # noqa: BLE001 - the program must run in any case
                raise_interrupt(error)
                unknown = f"{type(error).__name__}: {error}"
                self._refuse(error.reason if isinstance(error, ImportRefusal) else unknown)
                self._refused = True
                return None
            self._variants.append(made)
            return made

    def _forget(self, arguments: Sequence[Any]) -> None:
        """Drop what was compiled for weights that have changed, and count the changes."""
        for variant in self._variants:
            for place, weight in variant.weights.items():
                given = arguments[place]
                if weight.is_it(given) and not weight.unchanged(given):
                    self._changes[place] += 1
        self._variants = [each for each in self._variants if not each.is_stale(arguments)]

    def _refuse(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            self._on_refusal(reason)


def _is_weight(tensor: Any) -> bool:
    """Return whether changes of a tensor can be seen."""
    return _is_tensor(tensor) and not tensor.is_inference()
