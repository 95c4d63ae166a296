"""Resolves names in docstrings that have no page: a link to the public name, or plain code.

A name is looked up in the code itself. An object of this package under another name links to its
public name; what is internal, or another package's, is code without a link; what does not exist
stays a warning, and a warning stops the build.
"""

from __future__ import annotations

import importlib
from typing import Any

from .reference import BORROWED, PACKAGES, exported

_NOTHING = object()


def missing(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a reference for which sphinx has no target: its event "missing-reference"."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    if node.get("reftype") == "class" and node.get("refspecific") and not target.startswith("."):
        # A word in the type of a parameter: "int or None", "optional".
        return contnode
    found = find(target, node.get("py:module"), node.get("py:class"))
    if found is _NOTHING:
        return None
    name = public_name(found)
    if name is None:
        return contnode
    domain = env.get_domain("py")
    linked = domain.resolve_any_xref(env, node["refdoc"], app.builder, name, node, contnode)
    return linked[0][1] if linked else contnode


def without_source(_app: Any, module: str, name: str) -> str | None:
    """Keep TVM's sources off the site: the event "viewcode-follow-imported".

    - Returns: the module whose source is linked: for what is TVM's the package that exports it,
      where it is not defined, so that there is no link; None to let sphinx look.
    """
    return module if f"{module}.{name}" in BORROWED else None


def find(target: str, module: str | None, owner: str | None) -> Any:
    """Return what a name in a docstring stands for.

    - `target`: the name, with a dot before it or not.
    - `module`, `owner`: the module and the class that the docstring is shown in, by their public
      names.
    - Returns: a private mark if there is no such thing.
    """
    name = target.lstrip(".")
    places = [module or ""]
    if module and owner:
        places.append(getattr(_lookup(f"{module}.{owner}"), "__module__", module))
    elif module in PACKAGES:
        # A function's docstring names what is in its own module, wherever it is exported.
        own = {getattr(each, "__module__", module) for each in exported(module).values()}
        places += sorted(own)
    # ".name" is that of another module of the package.
    places += [place.rpartition(".")[0] for place in places]
    for place in (*places, ""):
        found = _lookup(f"{place}.{name}".lstrip("."))
        if found is not _NOTHING:
            return found
    return _NOTHING


def public_name(found: Any) -> str | None:
    """Return the name under which the reference shows an object, None if it does not."""
    for package in PACKAGES:
        for name, member in exported(package).items():
            if member is found:
                return f"{package}.{name}"
    return None


def _lookup(path: str) -> Any:
    """Return the module or the member that a full name stands for."""
    parts = path.split(".")
    for cut in range(1, len(parts) + 1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except (ImportError, ValueError):
            continue
        for part in parts[cut:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = getattr(found, part, fields.get(part, _NOTHING))
            if found is _NOTHING:
                break
        else:
            return found
    return _NOTHING
