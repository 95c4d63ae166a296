"""Fields of TVM's nodes that a release calls otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import tvm_ffi


def alias_fields(renamed: Iterable[tuple[str, ...]]) -> None:
    """Let Python read fields by the names that the vocabulary has for them.

    A release that renames a field costs one row of ``cpp/ir/vocabulary.def``: the modules of this
    package go on reading the name that they know.

    - `renamed`: type key of a node, name in the vocabulary, name in the running TVM.
    - Raises KeyError: no class is registered for a type key.
    """
    rows = list(renamed)
    classes = _classes() if rows else {}
    for key, name, other in rows:
        setattr(classes[key], name, getattr(classes[key], other))


def _classes() -> dict[str, type]:
    """Return the classes of TVM's nodes by type key."""
    classes: list[type] = [tvm_ffi.Object]
    for each in classes:
        classes += each.__subclasses__()
    infos = {each: vars(each).get("__tvm_ffi_type_info__") for each in classes}
    return {info.type_key: each for each, info in infos.items() if info is not None}
