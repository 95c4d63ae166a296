"""What several tests share: the corpus compiled before and after fusing, in a few modules."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

import mutation_table

if TYPE_CHECKING:
    from oracles import Builds
    from programs import Case

# TVM would bind this process to the first core with its first parallel loop, and with it all that
# the tests start: compilers, servers, other workers of pytest.
os.environ.setdefault("TVM_BIND_THREADS", "0")

# A shell has what it starts in the background ignore Ctrl-C; several tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

WIDE_INTEGERS = {"int32", "int64", "uint32", "uint64"}


@pytest.fixture(scope="session")
def builds(request: pytest.FixtureRequest) -> Builds:
    """Every selected case compiled, as ``<name>`` unfused and as ``<name>_fused``.

    A case whose fusion is refused, or fails, has no fused build; the test that needs it says so.
    """
    from oracles import Builds, accumulator, fuse  # it reads the corpus, which most files do not

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
        # What is not fused is a reference: what an optimiser makes of it does not matter.
        same[name] = names.setdefault((case.func, case.schedule), name)
        if same[name] == name:
            plain[name] = case.scheduled().mod["main"]
        # It matters where it assumes something: that wide integers do not overflow.
        wide = case.schedule is None and accumulator(case) in WIDE_INTEGERS
        fusing = optimised if wide else plain
        # Whatever it raises: the tests of this one case report it.
        with contextlib.suppress(Exception):
            fusing[f"{name}_fused"] = fuse(case)[0].mod["main"]
    built = Builds(plain, opt_level=0)
    built.add(optimised)
    built.alias(same)
    return built


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What became of the programs without each check, if that has been tested."""
    rows = [
        mutation_table.Row(**value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == mutation_table.PROPERTY and report.when == "call"
    ]
    lines = mutation_table.table(rows)
    if lines:
        terminalreporter.section("soundness checks switched off one by one")
        for line in lines:
            terminalreporter.write_line(line)
