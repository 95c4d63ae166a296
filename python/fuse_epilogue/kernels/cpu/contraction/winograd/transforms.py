"""The transforms of F(2x2, 3x3) and F(4x4, 3x3).

    y = output (u * v) output^T,  v = image x image^T,  u = filters w filters^T,  * elementwise

The product of ``m + 2`` by ``m + 2`` values gives ``m`` by ``m`` results. Each transform is applied
along the columns of a window and then along its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Values of a window along one dimension, None for a value that is 0, or the results that are made
#: of them.
Values = Sequence[Any]


@dataclass(frozen=True)
class Transform:
    """F(m x m, 3 x 3).

    - `outputs`: m, results of a tile along one dimension.
    - `filters`: matrix that is applied to the three weights along one dimension.
    - `image_parts`, `output_parts`: results along the rows that share terms, and are made together:
      so few values are needed at a time that they stay in registers.
    - `image`, `output`: return the numbered results of values along one dimension.
    """

    outputs: int
    filters: tuple[tuple[float, ...], ...]
    image_parts: tuple[tuple[int, ...], ...]
    output_parts: tuple[tuple[int, ...], ...]
    image: Callable[[Values, Sequence[int]], list[Any]]
    output: Callable[[Values, Sequence[int]], list[Any]]

    @property
    def window(self) -> int:
        """Values of a window along one dimension."""
        return self.outputs + 2

    @property
    def products(self) -> int:
        """Products of a tile, for each channel and each filter."""
        return self.window**2

    @property
    def name(self) -> str:
        """The name in the literature."""
        return f"Winograd F({self.outputs}x{self.outputs}, 3x3)"

    def of_filters(self, weights: np.ndarray) -> np.ndarray:
        """Return transformed weights: [3, 3, ...] to [window * window, ...], rounded once."""
        matrix = np.array(self.filters, "float64")
        both = np.kron(matrix, matrix)
        rest = weights.shape[2:]
        flat = weights.reshape(9, -1).astype("float64")
        made: np.ndarray = (both @ flat).astype("float32").reshape(-1, *rest)
        return made


def _sum(*terms: tuple[float, Any]) -> Any:
    """Return a sum of factors times values, without those that are None; None if none is left."""
    total = None
    for factor, value in terms:
        if value is None:
            continue
        if total is None:
            total = value if factor == 1 else value * factor
        elif factor in (1, -1):
            total = total + value if factor == 1 else total - value
        else:
            total = total + value * factor
    return total


def _image2(d: Values, wanted: Sequence[int]) -> list[Any]:
    rows: tuple[Callable[[], Any], ...] = (
        lambda: _sum((1, d[0]), (-1, d[2])),
        lambda: _sum((1, d[1]), (1, d[2])),
        lambda: _sum((1, d[2]), (-1, d[1])),
        lambda: _sum((1, d[1]), (-1, d[3])),
    )
    return [rows[place]() for place in wanted]


def _output2(m: Values, wanted: Sequence[int]) -> list[Any]:
    rows: tuple[Callable[[], Any], ...] = (
        lambda: _sum((1, m[1]), (1, m[2]), (1, m[0])),
        lambda: _sum((1, m[1]), (-1, m[2]), (-1, m[3])),
    )
    return [rows[place]() for place in wanted]


#: Points of F(4x4, 3x3) beside 0 and infinity, with both signs. With 1 and 2, errors are twice as
#: large; all powers and products of these are exact in float32.
NEAR, FAR = 5 / 8, 3 / 2


def _image4(d: Values, wanted: Sequence[int]) -> list[Any]:
    both, square = NEAR**2 + FAR**2, (NEAR * FAR) ** 2
    rows: tuple[Callable[[], Any], ...] = (
        lambda: _sum((1, d[4]), (-both, d[2]), (square, d[0])),
        lambda: _pair(d, FAR, NEAR),
        lambda: _pair(d, FAR, -NEAR),
        lambda: _pair(d, NEAR, FAR),
        lambda: _pair(d, NEAR, -FAR),
        lambda: _sum((1, d[5]), (-both, d[3]), (square, d[1])),
    )
    return [rows[place]() for place in wanted]


def _pair(d: Values, root: float, point: float) -> Any:
    """Return the product of the other factors of a point, which vanish at 0 and at both roots."""
    even = _sum((1, d[4]), (-(root**2), d[2]))
    odd = _sum((1, d[3]), (-(root**2), d[1]))
    return _sum((1, even), (point, odd))


def _output4(m: Values, wanted: Sequence[int]) -> list[Any]:
    near_sum, near_difference = _sum((1, m[1]), (1, m[2])), _sum((1, m[1]), (-1, m[2]))
    far_sum, far_difference = _sum((1, m[3]), (1, m[4])), _sum((1, m[3]), (-1, m[4]))
    rows: tuple[Callable[[], Any], ...] = (
        lambda: _sum((1, near_sum), (1, far_sum), (1, m[0])),
        lambda: _sum((NEAR, near_difference), (FAR, far_difference)),
        lambda: _sum((NEAR**2, near_sum), (FAR**2, far_sum)),
        lambda: _sum((NEAR**3, near_difference), (FAR**3, far_difference), (1, m[5])),
    )
    return [rows[place]() for place in wanted]


def _filters4() -> tuple[tuple[float, ...], ...]:
    """Return the matrix for the filters: powers of a point over its distances from the others."""
    rows: list[tuple[float, ...]] = [(1 / (NEAR * FAR) ** 2, 0.0, 0.0)]
    for point, root in ((NEAR, FAR), (FAR, NEAR)):
        distances = 2 * point**2 * (point**2 - root**2)
        rows += [
            tuple(signed**power / distances for power in range(3)) for signed in (point, -point)
        ]
    return (*rows, (0.0, 0.0, 1.0))


F2 = Transform(
    2,
    ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    ((1, 2), (0, 3)),
    ((0, 1),),
    _image2,
    _output2,
)
F4 = Transform(
    4,
    _filters4(),
    ((1, 2), (3, 4), (0,), (5,)),
    ((0, 2), (1, 3)),
    _image4,
    _output4,
)
TRANSFORMS = (F2, F4)
