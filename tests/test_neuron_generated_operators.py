"""Every operator for Trainium, of random sizes and scheduled at random, becomes a right kernel.

With the schedules of ``test_neuron_emit_generated`` these are 1,000.
"""

from __future__ import annotations

import numpy as np
import pytest

from neuron_operators import OPERATORS, draw, scheduled

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

CHUNK = 2 * len(OPERATORS)
CHUNKS = 11
assert CHUNK * CHUNKS >= 360


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(n, marks=() if n == 0 else pytest.mark.full) for n in range(CHUNKS)],
)
def test_random_operators_become_right_kernels(chunk: int) -> None:
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        drawn = draw(number)
        kernel, machine, how = scheduled(drawn, number)
        what = f"function {number}: {drawn.operator} {drawn.label} on {machine}, {how}"
        try:
            kernel.check(machine)
            result = kernel(*drawn.inputs)
        except ValueError as error:
            raise AssertionError(f"{what}: {error}\n{kernel.source}") from None
        result = np.asarray(result).reshape(drawn.expected.shape)
        if drawn.exact:
            np.testing.assert_array_equal(result, drawn.expected.astype(result.dtype), what)
        else:
            np.testing.assert_allclose(result, drawn.expected, rtol=1e-4, atol=2e-5, err_msg=what)


def test_a_number_always_gives_the_same_kernel() -> None:
    for number in (0, 2, 3):
        one, two = (scheduled(draw(number), number) for _ in range(2))
        assert (one[0].source, *one[1:]) == (two[0].source, *two[1:])
