"""Weights that are transformed and packed when a model is compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..panels import PanelPacker
from .transforms import TRANSFORMS


@dataclass(frozen=True)
class WinogradPacker:
    """Transforms constant weights and packs them in panels, one matrix for each product of a tile.

    - `outputs`: as :attr:`.Transform.outputs`.
    - `start`: element of the weights where they begin.
    - `factors`: elements of the weights from one value of an axis to the next: rows and columns of
      a filter, channels, filters.
    - `panels`: as :attr:`.PanelPacker.panels`.
    """

    outputs: int
    start: int
    channels: int
    filters: int
    factors: tuple[int, ...]
    panels: tuple[tuple[int, int, int, int], ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the packed array."""
        flat = np.ascontiguousarray(array).reshape(-1)[self.start :]
        strides = [factor * flat.itemsize for factor in self.factors]
        shape = (3, 3, self.channels, self.filters)
        weights = np.lib.stride_tricks.as_strided(flat, shape, strides)
        transform = next(each for each in TRANSFORMS if each.outputs == self.outputs)
        matrices = transform.of_filters(weights)
        size = self.channels * self.filters
        factors = (size, self.filters, 1)
        pack = PanelPacker(0, matrices.shape, factors, self.channels, self.panels)
        return pack(matrices)
