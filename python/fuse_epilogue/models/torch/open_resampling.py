"""Resizing of images whose size may differ from call to call: as torch computes it, in Relax.

Relax's own operator takes the middle of a pixel for its place, or rounds otherwise than torch does.
"""

from __future__ import annotations

from typing import Any

from tvm import relax


class Axis:
    """An axis of an image that is resized, with the arithmetic of torch.

    - `node`: node of an operator that resizes.
    - `axis`: 2 or 3.
    - `factor`: what the caller gave as the ratio of the sizes, or None.
    """

    def __init__(self, node: Any, importer: Any, axis: int, factor: float | None) -> None:
        self._emit = importer.block_builder.emit
        before, after = node.args[0].meta["val"].shape[axis], node.meta["val"].shape[axis]
        sizes = importer.sizes.shape([before, after])
        if sizes is None:
            raise ValueError(
                f"{node.target} to {after} pixels is not supported: name the sizes of the result, "
                "or a factor that is a whole number"
            )
        self._before, self.after = sizes
        self._factor = factor
        # What torch computes places in.
        is_double = str(node.meta["val"].dtype) == "torch.float64"
        self._dtype = "float64" if is_double else "float32"

    def whole_factor(self) -> int | None:
        """Return how often each pixel is repeated, None if that is not a whole number."""
        if isinstance(self._before, int) and isinstance(self.after, int):
            whole = self.after % self._before == 0
            return self.after // self._before if whole else None
        found = None if self._factor is None else int(self._factor)
        return found if found == self._factor else None

    def nearest(self) -> Any:
        """Return the pixel that is nearest to each of the result."""
        place = self._emit(relax.op.multiply(self._numbers(), self._ratio(2)))
        return self._inside(place)

    def two_nearest(self, corners: bool) -> tuple[Any, Any, Any]:
        """Return the pixels on both sides of each of the result, and the share of the second."""
        emit, half = self._emit, self._number(0.5)
        if corners:
            place = emit(relax.op.multiply(self._numbers(), self._ratio_of_corners()))
        else:
            middle = emit(relax.op.add(self._numbers(), half))
            place = emit(relax.op.subtract(relax.op.multiply(middle, self._ratio(1)), half))
            place = emit(relax.op.maximum(place, self._number(0.0)))
        low = self._inside(place)
        high = emit(relax.op.minimum(low + relax.const(1, "int64"), self._last()))
        share = emit(relax.op.subtract(place, relax.op.astype(low, self._dtype)))
        share = emit(relax.op.clip(share, 0, 1))
        return low, high, share

    def _number(self, value: float) -> Any:
        return relax.const(value, self._dtype)

    def _size(self, size: Any, dtype: str) -> Any:
        if isinstance(size, int):
            return relax.const(size, dtype)
        number = self._emit(relax.op.shape_to_tensor(relax.ShapeExpr([size])))
        return self._emit(relax.op.reshape(relax.op.astype(number, dtype), []))

    def _numbers(self) -> Any:
        counted = self._emit(relax.op.arange(0, self.after, 1, "int64"))
        return self._emit(relax.op.astype(counted, self._dtype))

    def _ratio(self, exact: int) -> Any:
        """Return how many pixels are between two of the result.

        - `exact`: torch leaves the factor aside where the size becomes as many times what it was,
          or fewer.
        """
        before, after = (self._size(each, self._dtype) for each in (self._before, self.after))
        if self._factor is None:
            return self._emit(relax.op.divide(before, after))
        ratio = self._number(1.0 / self._factor)
        for times in range(1, exact + 1):
            size = self._emit(relax.op.multiply(before, self._number(times)))
            is_exact = self._emit(relax.op.equal(after, size))
            ratio = self._emit(relax.op.where(is_exact, self._number(1.0 / times), ratio))
        return ratio

    def _ratio_of_corners(self) -> Any:
        one = self._number(1.0)
        before, after = (
            self._emit(relax.op.subtract(self._size(each, self._dtype), one))
            for each in (self._before, self.after)
        )
        # Of one pixel, it is that of the first corner.
        ratio = relax.op.divide(before, self._emit(relax.op.maximum(after, one)))
        return self._emit(
            relax.op.where(relax.op.greater(after, self._number(0.0)), ratio, self._number(0.0))
        )

    def _last(self) -> Any:
        if isinstance(self._before, int):
            return relax.const(self._before - 1, "int64")
        return self._emit(
            relax.op.subtract(self._size(self._before, "int64"), relax.const(1, "int64"))
        )

    def _inside(self, place: Any) -> Any:
        down = self._emit(relax.op.astype(self._emit(relax.op.floor(place)), "int64"))
        return self._emit(relax.op.minimum(down, self._last()))


def repeated(x: Any, factors: list[int], importer: Any) -> Any:
    """Emit an image with each pixel as often as an axis has it."""
    emit, (n, channels, height, width) = importer.block_builder.emit, x.ty.shape
    down, across = factors
    one = emit(relax.op.reshape(x, [n, channels, height, 1, width, 1]))
    many = emit(relax.op.broadcast_to(one, [n, channels, height, down, width, across]))
    return emit(relax.op.reshape(many, [n, channels, height * down, width * across]))


def nearest(node: Any, importer: Any) -> Any:
    """Emit the nearest pixels of an image."""
    emit, x, axes = importer.block_builder.emit, importer.env[node.args[0]], _axes(node, importer)
    factors = [each.whole_factor() for each in axes]
    whole = [each for each in factors if each is not None]
    if len(whole) == len(axes):
        return repeated(x, whole, importer)
    for number, each in zip((2, 3), axes, strict=True):
        x = emit(relax.op.take(x, each.nearest(), axis=number, mode="clip"))
    return x


def bilinear(node: Any, importer: Any) -> Any:
    """Emit means of the two nearest pixels of an axis, by their distance, of both axes."""
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    for number, each in zip((2, 3), _axes(node, importer), strict=True):
        low, high, share = each.two_nearest(bool(node.args[2]))
        shape = [each.after, 1] if number == 2 else [each.after]
        share = emit(relax.op.astype(emit(relax.op.reshape(share, shape)), dtype))
        rest = emit(relax.op.subtract(relax.const(1, dtype), share))
        near = emit(relax.op.multiply(emit(relax.op.take(x, low, axis=number, mode="clip")), rest))
        far = emit(relax.op.multiply(emit(relax.op.take(x, high, axis=number, mode="clip")), share))
        x = emit(relax.op.add(near, far))
    return x


def _axes(node: Any, importer: Any) -> list[Axis]:
    factors = node.args[-1] if node.args[1] is None else (None, None)
    return [Axis(node, importer, axis, factors[axis - 2]) for axis in (2, 3)]
