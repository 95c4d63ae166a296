"""Sums, means and maxima of bags of rows of a table, which torch calls an embedding bag."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tvm import relax

#: Of how an operator reduces a bag, torch has the number, Relax the function of an axis.
_REDUCTIONS = (relax.op.sum, relax.op.mean, relax.op.max)
_MAXIMUM = 2


def bag_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """Return converters by the names of the operators."""
    return dict.fromkeys(
        ("_embedding_bag.default", "_embedding_bag_forward_only.default"), _embedding_bag
    )


def _embedding_bag(node: Any, importer: Any) -> Any:
    """Emit the operator's first result; the others are for its gradient."""
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] != 0:
            raise ValueError("the places that embedding_bag returns are not supported")
    defaults = [False, 0, False, None, False, -1]
    table, indices, offsets, *given = node.args
    _, mode, _, weights, includes_last, padding = given + defaults[len(given) :]
    bags = _Bags(node, importer, offsets, bool(includes_last))
    emit, env = importer.block_builder.emit, importer.env
    rows = emit(relax.op.take(env[table], env[indices], axis=0))
    if weights is not None:
        rows = emit(relax.op.multiply(rows, emit(relax.op.expand_dims(env[weights], 1))))
    if padding is not None and padding >= 0:
        dtype = str(indices.meta["val"].dtype).removeprefix("torch.")
        is_row = relax.op.not_equal(env[indices], relax.const(padding, dtype))
        bags.leave_out(emit(relax.op.expand_dims(is_row, 1)))
    return bags.reduced(rows, mode), None, None, None


class _Bags:
    """The rows of each bag.

    - `node`: node of the operator, in a program of torch.
    - `offsets`: node of the vector with the first row of each bag.
    - `includes_last`: whether that also has the end of the last bag.
    """

    def __init__(self, node: Any, importer: Any, offsets: Any, includes_last: bool) -> None:
        self.emit = importer.block_builder.emit
        self.rows: int = node.args[1].meta["val"].shape[0]
        self.count, self.width = node.meta["val"][0].shape
        self.dtype = str(node.meta["val"][0].dtype).removeprefix("torch.")
        self.is_row: Any = None
        self.size = 0 if includes_last else self._common_size(offsets)
        self.begins = importer.env[offsets]
        if includes_last:
            self.begins = self.emit(relax.op.strided_slice(self.begins, [0], [0], [self.count]))

    def _common_size(self, offsets: Any) -> int:
        """Return the size of all bags, 0 if they differ: torch has a range for an index matrix."""
        if not str(offsets.target).startswith("aten.arange"):
            return 0
        steps: list[Any] = list(offsets.args)
        size = steps[2] if len(steps) > 2 else 1
        is_whole = size * self.count == self.rows and (len(steps) == 1 or steps[0] == 0)
        return int(size) if is_whole else 0

    def leave_out(self, is_row: Any) -> None:
        """Count only some rows: those that are True in a column of bools."""
        self.is_row = is_row

    def reduced(self, rows: Any, mode: int) -> Any:
        """Emit the sum, the mean or the maximum of each bag."""
        if self.size and self.is_row is None:
            rows = self.emit(relax.op.reshape(rows, [self.count, self.size, self.width]))
            return self.emit(_REDUCTIONS[mode](rows, 1))
        neutral = relax.const(-math.inf if mode == _MAXIMUM else 0.0, self.dtype)
        if self.is_row is not None:
            rows = self.emit(relax.op.where(self.is_row, rows, neutral))
        found = self._scattered(rows, neutral, "max" if mode == _MAXIMUM else "add")
        if mode == 0:
            return found
        count = self._counts()
        if mode == 1:
            least = relax.op.maximum(count, relax.const(1.0, self.dtype))
            return self.emit(relax.op.divide(found, least))
        # A bag without rows is zero.
        some = relax.op.greater(count, relax.const(0.0, self.dtype))
        return self.emit(relax.op.where(some, found, relax.const(0.0, self.dtype)))

    def _counts(self) -> Any:
        """Emit a column with the number of rows in each bag."""
        one, zero = relax.const(1.0, self.dtype), relax.const(0.0, self.dtype)
        shape = relax.ShapeExpr([self.rows, 1])
        ones = self.emit(relax.op.broadcast_to(one, shape))
        if self.is_row is not None:
            ones = self.emit(relax.op.where(self.is_row, ones, zero))
        return self._scattered(ones, zero, "add", 1)

    def _scattered(self, rows: Any, start: Any, reduction: str, width: int | None = None) -> Any:
        """Emit a reduction of the rows of each bag, from a value."""
        width = self.width if width is None else width
        begun = self.emit(relax.op.broadcast_to(start, relax.ShapeExpr([self.count, width])))
        at = relax.op.broadcast_to(self._bag_of_rows(), relax.ShapeExpr([self.rows, width]))
        return self.emit(
            relax.op.scatter_elements(begun, self.emit(at), rows, axis=0, reduction=reduction)
        )

    def _bag_of_rows(self) -> Any:
        """Emit a column with the bag of each row: as many bags have begun, less one."""
        emit = self.emit
        place = emit(relax.op.expand_dims(relax.op.arange(0, self.rows, 1, "int64"), 1))
        begins = emit(relax.op.expand_dims(relax.op.astype(self.begins, "int64"), 0))
        has_begun = emit(relax.op.astype(relax.op.less_equal(begins, place), "int64"))
        begun = emit(relax.op.sum(has_begun, 1, keepdims=True))
        # A row before all bags has none: torch demands that the first one begin at 0.
        none = relax.const(self.count + 1, "int64")
        begun = emit(relax.op.where(relax.op.equal(begun, relax.const(0, "int64")), none, begun))
        return emit(relax.op.subtract(begun, relax.const(1, "int64")))
