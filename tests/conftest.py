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
    plain, optimised = {}, {}
    for name, case in cases.items():
        if case.reference is None:
            continue
        # What is not fused is a reference: what the optimiser may make of it does not matter.
        plain[name] = case.scheduled().mod["main"]
        # Whatever it raises: the tests of this one case report it. Those that were scheduled
        # before differ in their loops from others that are optimised.
        with contextlib.suppress(Exception):
            fusing = plain if case.schedule is not None else optimised
            fusing[f"{name}_fused"] = fuse(case)[0].mod["main"]
    built = Builds(plain, opt_level=0)
    built.add(optimised)
    return built
