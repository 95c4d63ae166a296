"""``make mutants``: whether the quick tests notice faults that are put into the package.

Three kinds of faults: checks and decisions of the C++ library switched off, wrong rows of tables
(`rows`), and mutants of the Python of `PACKAGES`, drawn from those of cosmic-ray (`sample`).

- `recording` runs the quick tests once and keeps which lines each executes, and how long it takes.
- `judging` runs, for each fault, the tests that execute its lines, the fastest first, until one
  fails: in a fork of a process that has all tests loaded (`swap` puts the changed functions in), or
  from a copy of the sources (`copied`) where module-level code or the library itself is changed.
- `store` keeps all of this in build/mutants: the same command goes on where it was stopped.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants"
SOURCES = ROOT / "python"
#: Packages whose Python is mutated.
PACKAGES = ("verify", "planner", "neuron", "transform")
