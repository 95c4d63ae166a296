"""Wrong rows of the package's tables, each a text of a file and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WrongRow:
    """A wrong row.

    - `table`: name of the table.
    - `file`: path below the root of the repository.
    - `before`, `after`: a text that is in the file once, and what replaces it.
    - `tests`: what the paths of tests begin with that concern the table; those of the C++ library
      have a mark.
    """

    table: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = ()


_DISTRIBUTIONS = "cpp/analysis/distributions.cc"
_MONOIDS = "cpp/analysis/monoid.def"
_NEURON = "python/fuse_epilogue/neuron"
_STEPS = "python/fuse_epilogue/kernels/steps.py"
_PLANNER = "python/fuse_epilogue/planner"
_SCHEDULES = ("tests/test_schedules_", "tests/test_planner_")

ROWS = (
    WrongRow(
        "distributions",
        _DISTRIBUTIONS,
        "kEither, M::kMax, M::kMax, kFloats, kWork, kPositive},",
        "kEither, M::kMax, M::kMax, kFloats, kWork, kAnything},",
    ),
    WrongRow(
        "distributions",
        _DISTRIBUTIONS,
        "{N::kSub, Fn::Sub, kRight, M::kMax, M::kMin,",
        "{N::kSub, Fn::Sub, kRight, M::kMax, M::kMax,",
    ),
    WrongRow(
        "distributions",
        _DISTRIBUTIONS,
        "{N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitOr, M::kBitAnd,",
        "{N::kBitwiseNot, Fn::BitwiseNot, kUnary, M::kBitOr, M::kBitOr,",
    ),
    WrongRow(
        "monoids",
        _MONOIDS,
        '"product", kNumbers, true, false, NODE(Mul), Is<1>',
        '"product", kNumbers, false, false, NODE(Mul), Is<1>',
    ),
    WrongRow(
        "monoids",
        _MONOIDS,
        '"min", kNumbers, false, false, NODE(Min), IsHighest',
        '"min", kNumbers, false, false, NODE(Min), IsLowest',
    ),
    WrongRow(
        "NKI rules",
        f"{_NEURON}/rules.py",
        '"start-partition",\n        "more than 64',
        '"start_partition",\n        "more than 64',
        ("tests/test_neuron_",),
    ),
    WrongRow(
        "NKI rules",
        f"{_NEURON}/rules.py",
        "        if access.free_elements > most:",
        "        if access.free_elements > most + 1:",
        ("tests/test_neuron_",),
    ),
    WrongRow(
        "costs",
        f"{_NEURON}/costs.py",
        'Row(("tensor_reduce",), ALL, always, 1.0, COSTS)',
        'Row(("tensor_reduce",), ALL, always, 2.0, COSTS)',
        ("tests/test_neuron_", "tests/test_planner_trainium"),
    ),
    WrongRow(
        "costs",
        f"{_NEURON}/costs.py",
        'Row(("tensor_tensor",), ALL, narrow, 1.0, COSTS)',
        'Row(("tensor_tensor",), ALL, always, 1.0, COSTS)',
        ("tests/test_neuron_", "tests/test_planner_trainium"),
    ),
    WrongRow(
        "rewritings",
        _STEPS,
        '"borders": Rewriting({"channel": int, "rolled": bool}',
        '"borders": Rewriting({"channel": int, "rolled": int}',
        _SCHEDULES,
    ),
    WrongRow(
        "rewritings",
        _STEPS,
        '"cuda_copies": Rewriting({}, copies.in_copies)',
        '"cuda_copies": Rewriting({}, _wrapping)',
        _SCHEDULES,
    ),
    WrongRow(
        "processors",
        f"{_PLANNER}/machines/cpu_table.py",
        '"znver3": Core(issue=6.0,',
        '"znver3": Core(issue=1.0,',
        ("tests/test_planner_",),
    ),
    WrongRow(
        "processors",
        f"{_PLANNER}/machines/gpu_table.py",
        "multiprocessors=108,  # [A100]",
        "multiprocessors=54,  # [A100]",
        ("tests/test_planner_",),
    ),
)
