"""A product of matrices on Trainium: the loops of :class:`....kernels.trainium.product.Tiling`.

    for blocks of rows: for blocks of columns: for chunks of k: for tiles of k, rows and columns

The sums of a block are in PSUM together; a matrix that does not stay in SBUF is loaded again for
every block of the other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.trainium.product import BLOCKS, CHUNK, LONGEST_ROW, Tiling, cut, last_engine, write
from ....kernels.trainium.product_blocks import transposed_by_dma
from ....kernels.trainium.read_product import Product, Side
from ....kernels.trainium.read_product import find_product as find
from ....kernels.trainium.tiles import BANK, BANK_BYTES, PARTITIONS
from ....neuron.checker import is_there
from ....neuron.costs import FLOAT32_PASSES
from ....neuron.trace import ITEMSIZE
from ..request import Request
from ..space import Constraint, Point, Points, Space, Variable
from .buffers import buffers, in_flight, in_turns
from .fusion_modes import OnTrainium, find_ways
from .refused import check_sizes
from .work import Work, cycle, rate, size_of, start, stretched


@dataclass
class _Loading:
    """Costs of loading matrices, as numbers or as arrays with one for each point.

    - `inputs` (numpy.ndarray): bytes.
    - `short` (numpy.ndarray): seconds that transfers take longer than in long pieces.
    - `turning`, `copying` (numpy.ndarray): cycles of the tensor engine to transpose, and of the
      scalar engine to copy that from PSUM.
    - `steps` (numpy.ndarray): instructions.
    """

    inputs: Any = 0.0
    short: Any = 0.0
    turning: Any = 0.0
    copying: Any = 0.0
    steps: Any = 0.0


@dataclass(frozen=True)
class TrainiumProduct(OnTrainium):
    """A product of matrices and what follows it, on one NeuronCore."""

    kind = "product"
    written_by = (*OnTrainium.written_by, "transposes")

    @property
    def product(self) -> Product:
        """The product."""
        found: Product = self.ways.any
        return found

    @property
    def dtype(self) -> str:
        """Type of the left matrix."""
        return self.product.left.dtype

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Rows, columns and what is summed over."""
        return {letter: self.product.size(letter) for letter in "mnk"}

    @cached_property
    def space(self) -> Space:
        """The space of choices, and the limits of SBUF and PSUM."""
        m, n, k = (self.sizes[letter] for letter in "mnk")
        core = self.core
        engines = (1, 0) if last_engine(self.product) else (0,)
        names = tuple("the scalar engine" if each else "the usual one" for each in engines)
        stays = ("loaded again", "stays")
        variables = (
            *self.fusion,
            Variable("tiles", _powers(-(-m // PARTITIONS)), "tiles", "tiles of rows in a block"),
            Variable("width", _powers(-(-n // BANK)), "tiles", "tiles of columns in a block"),
            Variable("chunk", self._chunks, "tiles", "tiles of k that are loaded together"),
            Variable("left", (1, 0), "", "a block of rows of the left matrix", stays[::-1]),
            Variable(
                "right",
                (1, 0) if m > PARTITIONS else (0,),
                "",
                "the right matrix",
                stays[::-1] if m > PARTITIONS else stays[:1],
            ),
            Variable("engine", engines, "", "what computes the results of the sums", names),
            *self._transposes,
            buffers(),
        )
        return Space(
            variables,
            (
                *self.constraints,
                Constraint(
                    "blocks",
                    0,
                    "",
                    lambda p: (p["right"] > 0) & (m <= p["tiles"] * PARTITIONS),
                    "with one block of rows nothing is loaded again",
                ),
                Constraint(
                    "PSUM",
                    core.psum_bytes // core.psum_bank_bytes,
                    "banks",
                    self._banks,
                    "the sums of a block, and one tile that is transposed",
                ),
                *in_flight(self.core, self._passing_bytes, self._staying_bytes),
            ),
        )

    @property
    def _transposes(self) -> tuple[Variable, ...]:
        """The variable "transposes", where transfers can do it as well as the tensor engine."""
        if not (is_there("dma_transpose", self.core) and transposed_by_dma(self.product)):
            return ()
        names = ("transfers, as they load", "the tensor engine")
        return (Variable("transposes", (1, 0), "", "what transposes matrices", names),)

    def _by_dma(self, points: Points) -> Any:
        """Return at which points transfers transpose."""
        return points["transposes"] > 0 if self._transposes else np.zeros(points.size, bool)

    @property
    def _chunks(self) -> tuple[int, ...]:
        deep = -(-self.sizes["k"] // PARTITIONS)
        most = min(CHUNK, 1 << (deep - 1).bit_length())
        return (most, *(count for count in (1, 2, 4, 8, 16) if most != count < 2 * deep))

    @property
    def _transpositions(self) -> int:
        """Number of matrices that the tensor engine transposes."""
        return int(self.product.left.transposed) + int(self.product.right.transposed)

    def _columns(self, points: Points) -> Any:
        """Return the columns of a block."""
        n = self.sizes["n"]
        wide = np.minimum(n, BANK * points["width"])
        cut = n // BANK * BANK or 1 << (n.bit_length() - 1)
        whole = (points["tiles"] == 1) | (n >= BANK * points["width"])
        return np.where(whole, wide, cut)

    def _banks(self, points: Points) -> Any:
        sums = points["tiles"] * self._columns(points) * 4
        by_engine = (self._transpositions > 0) & ~self._by_dma(points)
        return -(-sums // BANK_BYTES) + by_engine

    def _staying_bytes(self, points: Points) -> Any:
        """Return the bytes of a partition for what stays of the matrices and of rows."""
        n, deep = self.sizes["n"], self._deep
        left, right = (ITEMSIZE[s.dtype] for s in (self.product.left, self.product.right))
        used = np.where(points["left"] > 0, deep * left * self._rows(points), 0)
        used = used + np.where(points["right"] > 0, deep * right * n, 0)
        return used + self._bytes_of_others("n") * n * (n <= LONGEST_ROW)

    def _passing_bytes(self, points: Points) -> Any:
        """Return the bytes of a partition for a tile of all that is loaded again and again."""
        product, wide = self.product, self._columns(points)
        left, right = (ITEMSIZE[side.dtype] for side in (product.left, product.right))
        chunk = np.minimum(points["chunk"], self._deep)
        used = np.where(points["left"] > 0, 0, chunk * left * self._rows(points))
        used = used + np.where(points["right"] > 0, 0, chunk * right * wide)
        used = used + self._transpositions * BANK_BYTES * ~self._by_dma(points)
        others = self._bytes_of_others("mn")
        if self.sizes["n"] > LONGEST_ROW:
            others = others + self._bytes_of_others("n")
        return used + wide * (self._out + 4 * product.adds_first + others)

    def _bytes_of_others(self, letters: str) -> int:
        """Return the bytes of an element of all that results depend on besides, along axes."""
        found = self.product.others().get(letters, [])
        return sum(ITEMSIZE[str(load.source.ty.dtype)] for load in found)

    @property
    def _deep(self) -> int:
        """Tiles of k."""
        return -(-self.sizes["k"] // PARTITIONS)

    def _rows(self, points: Points) -> Any:
        """Return the rows of a block."""
        return np.minimum(points["tiles"] * PARTITIONS, self.sizes["m"])

    @property
    def _out(self) -> int:
        """Bytes of an element of the result."""
        return ITEMSIZE[str(self.func.params[-1].ty.dtype)]

    # ---- Cost --------------------------------------------------------------------------------

    def work(self, points: Points) -> Work:
        """Return what the kernels of points ask of the machine."""
        core, (m, n, k) = self.core, (self.sizes[letter] for letter in "mnk")
        bandwidth, access, batch = rate(core), core.access_cycles, self.product.count
        rows, wide = self._rows(points), self._columns(points)
        blocks, across = -(-m // rows), -(-n // wide)
        deep, down = -(-k // PARTITIONS), -(-m // PARTITIONS) * batch
        chunk = np.minimum(points["chunk"], deep)
        loading = self._loading(points)
        short, steps = loading.short, loading.steps + down * (deep * -(-n // BANK) + 2 * across)
        apart = self.is_apart(points)
        out = np.where(apart, 4, self._out)
        outputs = batch * m * n * out
        short = short + outputs / bandwidth * (stretched(core, wide * out) - 1)
        others = self._others(apart)
        products = down * deep * (n * _passes(self.product.left) + -(-n // BANK) * access)
        # The results of the sums are computed by one engine, and by another one where that has to
        # add first.
        last = "scalar" if self.product.adds_first else "vector"
        results = down * (n + -(-n // wide) * access)
        engine = points["engine"] > 0
        waits, done = self._waits(points)
        more = {
            "vector": np.where(engine & (last == "vector"), 0.0, results) * cycle(core, "vector"),
            "scalar": (loading.copying + np.where(engine, results, 0.0)) * cycle(core, "scalar"),
            "dma": short + done,
        }
        # The busier the DMA engines are, the more often products wait for them. The exponent is an
        # assumption: with it, blocks of 256 and of 512 rows are in the order of their exact costs.
        busy = (loading.turning + products) * cycle(core, "tensor")
        moving = (loading.inputs + outputs + others) / bandwidth + short
        held = busy * ((1 + (moving / busy) ** 8) ** (1 / 8) - 1)
        groups = batch * blocks * across * -(-deep // chunk)
        together = loading.inputs / bandwidth + busy
        work = Work(
            (loading.inputs + outputs + others) / bandwidth,
            {"tensor": busy},
            {
                **{name: value + waits for name, value in more.items()},
                "dma": more["dma"],
                "tensor": waits + held,
            },
            steps + 500 + 450 * self._ragged,
            in_turns(points, groups, start(core) + together / groups),
        )
        return self.with_rest(points, work)

    def _loading(self, points: Points) -> _Loading:
        """Return what it takes to have both matrices on the chip with k on partitions."""
        core, (m, n, k) = self.core, (self.sizes[letter] for letter in "mnk")
        product, batch, access = self.product, self.product.count, core.access_cycles
        rows, wide, deep = self._rows(points), self._columns(points), -(-k // PARTITIONS)
        # A right matrix that stays is loaded once for each product that has another one.
        again = batch if product.batch_of(product.right.load) else 1
        loads = (
            np.where(points["left"] > 0, 1, -(-n // wide)) * batch,
            np.where(points["right"] > 0, again, -(-m // rows) * batch),
        )
        chunk = np.minimum(points["chunk"], deep)
        there = np.where(points["left"] > 0, deep, chunk), chunk
        sides = (product.left, m, rows), (product.right, n, wide)
        by_dma, found = self._by_dma(points), _Loading()
        for (side, size, own), times, tiles in zip(sides, loads, there, strict=True):
            by_one = np.where(k % (chunk * PARTITIONS) == 0, chunk, 1)
            at_once = np.where(by_dma, by_one, self._transposed_at_once(side, tiles))
            moved = size * k * ITEMSIZE[side.dtype] * times
            run = (at_once * min(PARTITIONS, k) if side.transposed else own) * ITEMSIZE[side.dtype]
            found.inputs += moved
            found.short += moved / rate(core) * (stretched(core, run) - 1)
            loaded, count = deep * -(-size // own), deep * -(-size // PARTITIONS)
            by_engine = side.transposed & ~by_dma
            found.steps += times * np.where(by_engine, count * (1 + 2 / at_once), loaded)
            turned = deep * size * _passes(side) + count * access
            copied = deep * size + count / at_once * access
            found.turning += times * np.where(by_engine, turned, 0)
            found.copying += times * np.where(by_engine, copied, 0)
        return found

    @property
    def _ragged(self) -> int:
        """Number of sizes that tiles do not divide.

        There TVM takes longer to schedule it. Measured, without the instructions, of which each
        takes a step: 28 ms for 512 by 512 by 512, 55 ms for 240 by 480 by 120, 100 ms for 960 by
        1920 by 480.
        """
        tiles = {"m": PARTITIONS, "n": BANK, "k": PARTITIONS}
        return sum(self.sizes[a] > tile and self.sizes[a] % tile > 0 for a, tile in tiles.items())

    def is_usual(self, points: Points) -> np.ndarray:
        """Return which points the rule looks at; how the results of sums go on it does not ask.

        Where transfers transpose: with both matrices loaded tile by tile, in turns.
        """
        usual = points["engine"] == max(self.space.by_name["engine"].choices)
        whole = (points["chunk"] == self._chunks[0]) & (points["left"] > 0)
        in_turns = (points["chunk"] <= 2) & (points["left"] == 0)
        usual = usual & np.where(self._by_dma(points), in_turns, whole)
        blocks = zip(points["tiles"].tolist(), points["width"].tolist(), strict=True)
        found: np.ndarray = usual & np.array([block in BLOCKS for block in blocks], bool)
        return found

    def _transposed_at_once(self, side: Side, tiles: Any) -> Any:
        """Return how many tiles of k are transposed together, of those that are loaded."""
        most = np.minimum(tiles, BANK_BYTES // ITEMSIZE[side.dtype] // PARTITIONS)
        whole = self.sizes["k"] % (tiles * PARTITIONS) == 0
        return np.where(whole, most, 1)

    def _others(self, apart: Any) -> Any:
        """Return the bytes of all that is read besides the matrices, once."""
        sides = {str(s.load.source.name) for s in (self.product.left, self.product.right)}

        def read(found: Product | None) -> int:
            params = [] if found is None else found.func.params[:-1]
            return sum(size_of(param) for param in params if str(param.name) not in sides)

        return np.where(apart, read(self.ways.first), read(self.ways.fused))

    def _waits(self, points: Points) -> tuple[Any, Any]:
        """Return the seconds in which the engines wait, or are done, and the DMA engines."""
        core, (m, n, k) = self.core, (self.sizes[letter] for letter in "mnk")
        product, bandwidth = self.product, rate(self.core)
        rows, wide = self._rows(points), self._columns(points)
        deep = -(-k // PARTITIONS)
        blocks = product.count * -(-m // rows) * -(-n // wide)
        left, right = (ITEMSIZE[side.dtype] for side in (product.left, product.right))
        chunk = np.minimum(points["chunk"] * PARTITIONS, k)
        first = rows * np.where(points["left"] > 0, k, chunk) * left
        first = first + wide * min(PARTITIONS, k) * right
        tiles = -(-rows // PARTITIONS)
        results = (
            tiles
            * wide
            * np.where(points["engine"] > 0, cycle(core, "scalar"), cycle(core, "vector"))
        )
        # Where PSUM has no room for two blocks, the next one waits for the results of a tile.
        full = 2 * self._banks(points) > core.psum_bytes // core.psum_bank_bytes
        waits = np.where(full, blocks - 1, 0) * results / tiles
        # The first products of a block wait for the last tiles that are transposed for it.
        transposed = BANK * cycle(core, "scalar") + 2 * core.semaphore_cycles * cycle(
            core, "tensor"
        )
        again = np.where(points["left"] > 0, -(-m // rows), blocks)
        by_engine = (self._transpositions > 0) & ~self._by_dma(points)
        waits = waits + again * transposed * by_engine
        # The right matrix stays: while it comes, for the first block, little is computed.
        whole = n * k * right / bandwidth
        one = -(-m // PARTITIONS) * deep * n * _passes(product.left) * cycle(core, "tensor")
        one = one / np.maximum(1, -(-m // rows))
        waits = waits + np.where(points["right"] > 0, np.maximum(whole - one, 0.0), 0.0)
        stored = PARTITIONS * wide * self._out / bandwidth
        waits = waits + first / bandwidth + results + stored + 3 * start(core)
        return waits, results + one / np.maximum(1, -(-n // wide)) / deep + 3 * start(core)

    def write(self, sch: s_tir.Schedule, found: Product, point: Point, alone: bool) -> None:
        """Write a product again."""
        write(sch, found, alone, bool(point.get("transposes", 0)))

    def cut(self, sch: s_tir.Schedule, found: Product, point: Point, alone: bool) -> None:
        """Cut a product into tiles as a point says."""
        tiling = Tiling(
            point["tiles"],
            point["width"],
            point["chunk"],
            bool(point["left"]),
            bool(point["right"]),
            last_engine(found) if point["engine"] else "",
            bool(point.get("transposes", 0)),
        )
        cut(sch, found, tiling)


@dataclass(frozen=True)
class TrainiumProducts(TrainiumProduct):
    """Products of the matrices of a batch and what follows them, on one NeuronCore."""

    kind = "products"

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of products; rows, columns and what is summed over, of each."""
        return {"batch": self.product.count, **super().sizes}


def _passes(side: Side) -> int:
    """Return how many times an operand passes the tensor engine."""
    return FLOAT32_PASSES if side.dtype == "float32" else 1


def _powers(size: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and 8, up to the first one that is not below a size."""
    return tuple(count for count in (1, 2, 4, 8) if count < 2 * size)


def find_product(request: Request) -> TrainiumProduct | None:
    """Return one product as a problem, None if the function is something else.

    Raises
    ------
    ValueError
        The sizes are more than is counted; or as of :func:`.fusion_modes.find_ways`.
    """
    return _found(request, False)


def find_products(request: Request) -> TrainiumProduct | None:
    """Return the products of a batch as a problem, None if the function is something else.

    Parameters and errors are those of :func:`find_product`.
    """
    return _found(request, True)


def _found(request: Request, batch: bool) -> TrainiumProduct | None:
    ways = find_ways(request, find)
    if ways is None or bool(ways.any.batch) != batch:
        return None
    problem = (TrainiumProducts if batch else TrainiumProduct)(ways, request.machine)
    check_sizes(problem.sizes)
    return problem
