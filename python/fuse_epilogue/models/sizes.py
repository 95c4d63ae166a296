"""Models whose inputs have sizes with names: compiled for any size, and for chosen ones.

The model's function "main" is right for every size: a function whose rows are independent runs in
kernels for constant numbers of rows, see :mod:`fuse_epilogue.kernels.cpu.symbolic_rows`. For each
combination of the sizes that a caller names there is a copy of it with these sizes as numbers,
whose functions have kernels of their own; weights that are packed alike are there once. A call
takes the copy of its sizes if there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax

from .signature import signature_of

#: Sizes by name, as ``{"batch": (1, 8), "tokens": 128}``.
Sizes = Mapping[str, int | Sequence[int]]
#: Combinations of sizes that a model is compiled for at most: each takes as long as a model.
MOST = 32


def combinations(mod: ir.IRModule, sizes: Sizes | None) -> list[dict[str, int]]:
    """Return the combinations of sizes that a model is to be compiled for.

    - `sizes`: by the name of a size of the inputs, one or several numbers.
    - Raises TypeError: `sizes` is not a mapping from names to numbers.
    - Raises ValueError: no input has a size of a name, a number is below 1, or there are more than
      :data:`MOST` combinations.
    """
    if sizes is None:
        return []
    if not isinstance(sizes, Mapping):
        raise TypeError(f"sizes must be a mapping such as {{'batch': (1, 8)}}, not {sizes!r}")
    known = signature_of(mod).names
    for name in sizes:
        if name not in known:
            raise ValueError(
                f"sizes names '{name}', which is not a symbolic size of an input; symbolic are "
                f"{', '.join(known) or 'none'}: a torch module takes dynamic_shapes= for that"
            )
    values = {name: _numbers(name, given) for name, given in sizes.items()}
    found = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    if len(found) > MOST:
        raise ValueError(f"sizes has {len(found)} combinations: name at most {MOST}")
    return found if values else []


def _numbers(name: str, given: Any) -> list[int]:
    numbers = [given] if isinstance(given, int) else given
    message = f"sizes of '{name}' must be whole numbers from 1: {given!r}"
    if not isinstance(numbers, Sequence) or isinstance(numbers, str):
        raise TypeError(message)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in numbers):
        raise TypeError(message)
    if not numbers or any(each < 1 for each in numbers):
        raise ValueError(message)
    return list(dict.fromkeys(numbers))


def function_name(sizes: Mapping[str, int]) -> str:
    """Return the name of the function for some sizes.

    >>> function_name({"batch": 8, "tokens": 128})
    'main_batch_8_tokens_128'
    """
    return "_".join(["main", *(f"{name}_{size}" for name, size in sizes.items())])


def label_of(sizes: Mapping[str, int]) -> str:
    """Return some sizes as a report names them; nothing for the function for all sizes.

    >>> label_of({"batch": 8, "tokens": 128})
    'batch = 8, tokens = 128'
    """
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def with_copies(mod: ir.IRModule, wanted: Sequence[Mapping[str, int]]) -> ir.IRModule:
    """Return a model with a copy of its function "main" for each combination of sizes.

    - `mod`: stays as it is.
    - `wanted`: as :func:`combinations` returns them.
    """
    for sizes in wanted:
        name = function_name(sizes)
        copy = relax.utils.copy_with_new_vars(mod["main"]).with_attr("global_symbol", name)
        builder = relax.BlockBuilder(mod)
        builder.add_func(copy, name)
        mod = relax.transform.BindSymbolicVars(dict(sizes), name)(builder.finalize())
    return mod
