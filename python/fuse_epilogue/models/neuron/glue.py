"""The text that calls the kernels of a package in a framework: to be read, and changed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .graph import Graph, Step

#: What differs between the frameworks.
_TORCH = '''"""{title}, for torch-xla.

    import sys
    import torch_xla
    sys.path.insert(0, "{folder}")
    from glue_torch import load_weights, model

    device = torch_xla.device()
    weights = load_weights(device)
    y = model(weights, {inputs})  # tensors on the device

Each function of `kernels` is an NKI kernel, which torch-xla calls with its tensors.{hosted}
"""

from pathlib import Path

import numpy as np
import torch
{imports}


def load_weights(device="cpu"):
    """Return the weights on a device, by name."""
    found = {{}}
    with np.load(Path(__file__).parent / "weights.npz") as arrays:
        for name, dtype in DTYPES.items():
            array = arrays[name]
            if dtype == "bfloat16":  # kept as its bits
                tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            else:
                tensor = torch.from_numpy(array)
            found[name] = tensor.to(device)
    return found


def int32(tensor):
    """Return integers as kernels take them."""
    return tensor.to(torch.int32)
'''
_JAX = '''"""{title}, for JAX.

    import sys
    import jax
    sys.path.insert(0, "{folder}")
    from glue_jax import load_weights, model

    weights = load_weights()
    y = jax.jit(model)(weights, {inputs})

Each function of `kernels` is an NKI kernel, which JAX calls with its arrays.{hosted}
"""

from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
{imports}


def load_weights():
    """Return the weights, by name."""
    found = {{}}
    with np.load(Path(__file__).parent / "weights.npz") as arrays:
        for name, dtype in DTYPES.items():
            array = arrays[name]
            if dtype == "bfloat16":  # kept as its bits
                array = array.view(ml_dtypes.bfloat16)
            found[name] = jnp.asarray(array)
    return found


def int32(array):
    """Return integers as kernels take them."""
    return array.astype(jnp.int32)
'''
_HOSTED = """
No kernel computes these: give a function for each as ``host={{"name": function}}``; their code in
TIR is in the folder `host`.

{names}"""


def glue(graph: Graph, names: Mapping[str, str], title: str, folder: str) -> dict[str, str]:
    """Return the text for each framework, by the name of its file.

    - `graph`: its functions are kernels, or not there.
    - `names`: names of kernels by the names of their functions; a function without is computed
      elsewhere.
    - `title`, `folder`: the model, and where the files will be.
    """
    called = [step.function for step in graph.steps if step.function]
    kernels = dict.fromkeys(name for name in called if name in names)
    host = dict.fromkeys(name for name in called if name not in names)
    values = {
        "title": title,
        "folder": folder,
        "inputs": ", ".join(graph.inputs),
        "hosted": _HOSTED.format(names="\n".join(f"- {name}" for name in host)) if host else "",
        "imports": "".join(f"\nfrom kernels.{name} import {names[name]}" for name in kernels),
    }
    rest = _dtypes(graph) + _model(graph, names, bool(host))
    return {
        "glue_torch.py": _TORCH.format(**values) + rest,
        "glue_jax.py": _JAX.format(**values) + rest,
    }


def _dtypes(graph: Graph) -> str:
    lines = [f'    "{name}": "{graph.arrays[name].dtype}",' for name in graph.weights]
    return "\n\n#: Types of the weights.\nDTYPES = {\n" + "".join(f"{x}\n" for x in lines) + "}\n"


def _model(graph: Graph, names: Mapping[str, str], has_host: bool) -> str:
    """Return the function that calls everything."""
    parameters = ["weights", *graph.inputs, *(["host=None"] if has_host else [])]
    lines = [f"def model({', '.join(parameters)}):"]
    shapes = ", ".join(str(graph.arrays[name]) for name in graph.inputs)
    lines.append(f'    """Return the results for {shapes}."""')
    if has_host:
        lines.append("    host = host or {}")
    uses = _last_uses(graph.steps, graph.results)
    for number, step in enumerate(graph.steps):
        lines += (f"    {line}" for line in _step(graph, step, names))
        gone = [name for name, last in uses.items() if last == number]
        if gone:
            lines.append(f"    del {', '.join(gone)}")
    results = [_value(graph, name) for name in graph.results]
    lines.append(f"    return {', '.join(results)}")
    return "\n\n" + "\n".join(lines) + "\n"


def _step(graph: Graph, step: Step, names: Mapping[str, str]) -> list[str]:
    if not step.function:
        shape = graph.arrays[step.outputs[0]].shape
        return [f"{step.outputs[0]} = {_value(graph, step.inputs[0])}.reshape({shape})"]
    is_kernel = step.function in names
    arguments = []
    for name in step.inputs:
        value = _value(graph, name)
        if is_kernel and graph.arrays[name].dtype == "int64":
            value = f"int32({value})"
        # A kernel's tensors have a dimension.
        scalar = is_kernel and not graph.arrays[name].shape
        arguments.append(f"{value}.reshape((1,))" if scalar else value)
    called = names[step.function] if is_kernel else f'host["{step.function}"]'
    lines = [f"{', '.join(step.outputs)} = {called}({', '.join(arguments)})"]
    if is_kernel:
        lines += (f"{n} = {n}.reshape(())" for n in step.outputs if not graph.arrays[n].shape)
    return lines


def _value(graph: Graph, name: str) -> str:
    return f'weights["{name}"]' if name in graph.weights else name


def _last_uses(steps: Sequence[Step], results: Sequence[str]) -> dict[str, int]:
    """Return for each array that a step computes which step reads it last."""
    found: dict[str, int] = {}
    for number, step in enumerate(steps):
        found.update(dict.fromkeys(step.outputs, number))
        found.update({name: number for name in step.inputs if name in found})
    return {name: last for name, last in found.items() if name not in results}
