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
    plain, optimised, same = {}, {}, {}
    names: dict[object, str] = {}
    for name, case in cases.items():
        if case.reference is None:
            continue
        # What is not fused is a reference: what the optimiser may make of it does not matter.
        same[name] = names.setdefault((case.func, case.schedule), name)
        if same[name] == name:
            plain[name] = case.scheduled().mod["main"]
        # Nor does it where the fused program's operations are those of the unfused one, or where
        # it differs from an optimised one by its loops alone.
        fusing = plain if case.schedule is not None or case.numerics == "exact" else optimised
        # Whatever it raises: the tests of this one case report it.
        with contextlib.suppress(Exception):
            fusing[f"{name}_fused"] = fuse(case)[0].mod["main"]
    built = Builds(plain, opt_level=0)
    built.add(optimised)
    built.alias(same)
    return built
