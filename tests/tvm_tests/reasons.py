"""The tests of TVM that have another outcome with the extension, and why that is right.

All but one call ``sch.fuse_reduction_epilogue``, TVM's primitive that the extension replaces;
``tests/test_tvm_cases.py`` has what these tests cover, with the results that are right. The other
one has a reduction that looks like a fused one (docs/limits.rst).
"""

from __future__ import annotations

from dataclasses import dataclass

FILE = "s_tir/schedule/test_tir_schedule_fuse_reduction_epilogue"
RFACTOR = "s_tir/schedule/test_tir_schedule_rfactor.py"


@dataclass(frozen=True)
class Reason:
    """What becomes of a test with the extension, and why.

    - `loaded`: its outcome. With any other one, it is not listed.
    """

    loaded: str
    why: str


STRUCTURE, VALUES, ACCEPTED = "failed: ValueError", "failed: AssertionError", "failed: Failed"

REASONS: dict[str, Reason] = {
    f"{FILE}.py::test_fuse_reduction_epilogue_basic": Reason(
        STRUCTURE, "demands that the intermediate that nothing uses any more stays allocated"
    ),
    f"{FILE}.py::test_fuse_reduction_epilogue_fp32": Reason(
        STRUCTURE, "demands that the intermediate that nothing uses any more stays allocated"
    ),
    f"{FILE}.py::test_fuse_reduction_epilogue_multiple_epilogue": Reason(
        STRUCTURE, "demands that a second reader of the sum reads a buffer that is never written"
    ),
    f"{FILE}.py::test_fuse_reduction_epilogue_reject_multiple_use": Reason(
        ACCEPTED,
        "demands that an epilogue with the sum in two places is refused; as a tail it is right",
    ),
    f"{FILE}.py::test_fuse_reduction_epilogue_reject_scaling": Reason(
        ACCEPTED, "demands that a scaled sum is refused; as a tail it is right"
    ),
    f"{FILE}_clipping.py::test_matmul_clipping": Reason(
        STRUCTURE, "demands that each partial sum is clipped; the program clips the finished one"
    ),
    f"{FILE}_clipping.py::test_matmul_clipping_correctness_unified": Reason(
        VALUES, "demands the values of a program that clips each partial sum, which is another one"
    ),
    f"{FILE}_clipping.py::test_matmul_clipping_multiple_epilogue": Reason(
        STRUCTURE,
        "demands that each partial sum is clipped, and that a second reader of the sum reads a "
        "buffer that is never written",
    ),
    f"{FILE}_relu.py::test_matmul_bias_relu": Reason(
        STRUCTURE,
        "demands a ReLU on each partial sum; the program applies it to the finished one",
    ),
    f"{FILE}_relu.py::test_matmul_bias_relu_correctness_unified": Reason(
        VALUES,
        "demands the values of a program with a ReLU on each partial sum, which is another one",
    ),
    f"{FILE}_relu.py::test_matmul_bias_relu_multiple_epilogue": Reason(
        STRUCTURE,
        "demands a ReLU on each partial sum, and that a second reader of the sum reads a buffer "
        "that is never written",
    ),
    f"{RFACTOR}::test_reduction_rfactor_wrong_reduce_pattern1": Reason(
        ACCEPTED,
        "demands that rfactor of a sum that starts from 1 is refused; as the start of a fused one, "
        "the 1 is added once, at the end",
    ),
}
