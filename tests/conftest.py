"""What several tests share: the corpus compiled before and after fusing, in a few modules."""

from __future__ import annotations

import contextlib

import pytest

from oracles import Builds, fuse
from programs import Case


@pytest.fixture(scope="session")
def builds(request: pytest.FixtureRequest) -> Builds:
    """Every selected case compiled, as ``<name>`` unfused and as ``<name>_fused``.

    A case whose fusion is refused, or fails, has no fused build; the test that needs it says so.
    """
    cases: dict[str, Case] = {}
    for item in request.session.items:
        if "builds" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec"):
            case = item.callspec.params["case"]
            cases[case.name] = case
    functions = {}
    for name, case in cases.items():
        if case.reference is None:
            continue
        functions[name] = case.scheduled().mod["main"]
        # Whatever it raises: the tests of this one case report it.
        with contextlib.suppress(Exception):
            functions[f"{name}_fused"] = fuse(case)[0].mod["main"]
    return Builds(functions)
