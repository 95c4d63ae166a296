"""Matrix products in NKI with the structures of published ones, in this project's own text.

Each function returns a kernel for ``out[m, n] = sum over k of a[k, m] * b[k, n]``. What differs is
which loads are repeated: that is what the published kernels explore. Tiles that a kernel keeps in
a list have a name each, and loops over such lists are written out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuse_epilogue.neuron import Kernel, load

P, MOVING = 128, 512  # rows of a stationary tile, columns of a moving one


@dataclass(frozen=True)
class Product:
    """Sizes and type of a product.

    Attributes
    ----------
    m, n, k : int
        Sizes; multiples of the blocks.
    dtype : str
        Type of the operands and of the result.
    """

    m: int
    n: int
    k: int
    dtype: str


@dataclass
class Text:
    """Lines of a kernel; `at` is the depth of the next one."""

    product: Product
    lines: list[str] = field(default_factory=list)
    at: int = 1

    def add(self, *lines: str) -> None:
        """Add lines."""
        self.lines += ["    " * self.at + line for line in lines]

    def loop(self, name: str, count: int) -> None:
        """Start a loop."""
        self.add(f"for {name} in range({count}):")
        self.at += 1

    def tile(self, name: str, columns: int, dtype: str = "a.dtype", space: str = "sbuf") -> None:
        """Make a tile of 128 rows."""
        self.add(f"{name} = nl.ndarray(({P}, {columns}), {dtype}, buffer=nl.{space})")

    def load(self, name: str, tensor: str, row: str, column: str, columns: int) -> None:
        """Load a tile from HBM; `row` and `column` are the first ones."""
        self.tile(name, columns)
        self.add(f"nisa.dma_copy({name}, {tensor}[{_at(row, P)}, {_at(column, columns)}])")

    def multiply(self, out: str, left: str, right: str, go_on: str) -> None:
        """Multiply two tiles; `go_on` is the condition to add to what is there."""
        self.add(f"nisa.nc_matmul({out}, {left}, {right}, accumulate=({go_on}))")

    def evict(self, psum: str, row: str, column: str) -> None:
        """Store a finished tile of sums."""
        self.tile("out_tile", MOVING, "out.dtype")
        self.add(
            f"nisa.tensor_copy(out_tile, {psum})",
            f"nisa.dma_copy(out[{_at(row, P)}, {_at(column, MOVING)}], out_tile)",
        )

    def kernel(self) -> Kernel:
        """Return the kernel."""
        p = self.product
        head = [
            "import nki",
            "import nki.isa as nisa",
            "import nki.language as nl",
            "",
            "",
            "@nki.jit",
            "def product(a, b):",
            f"    out = nl.ndarray(({p.m}, {p.n}), a.dtype, buffer=nl.shared_hbm)",
        ]
        text = "\n".join([*head, *self.lines, "    return out", ""])
        return load(text, {"a": ((p.k, p.m), p.dtype), "b": ((p.k, p.n), p.dtype)})


def _at(first: str, count: int) -> str:
    return f"{first} : {first} + {count}"


def by_step(product: Product, m: int, n: int, fused_a: int = 1, fused_b: int = 1) -> Kernel:
    """Return a kernel that loads all operands of m x n tiles of sums at each step of k.

    Parameters
    ----------
    product : Product
        What to compute.
    m, n : int
        Tiles of a block of sums.
    fused_a, fused_b : int
        Adjacent tiles that one transfer loads.
    """
    text = Text(product)
    tiles = [(i, j) for i in range(m) for j in range(n)]
    text.loop("m", product.m // (P * m))
    text.loop("n", product.n // (MOVING * n))
    for i, j in tiles:
        text.tile(f"sums_{i}_{j}", MOVING, "nl.float32", "psum")
    text.loop("k", product.k // P)
    for j in range(0, n, fused_b):
        first, columns = f"n * {MOVING * n} + {MOVING * j}", MOVING * fused_b
        text.load(f"b_{j}", "b", f"k * {P}", first, columns)
    for i in range(0, m, fused_a):
        text.load(f"a_{i}", "a", f"k * {P}", f"m * {P * m} + {P * i}", P * fused_a)
        for inner in range(fused_a):
            for j in range(n):
                text.multiply(
                    f"sums_{i + inner}_{j}",
                    _part(f"a_{i}", inner, P),
                    _part(f"b_{j - j % fused_b}", j % fused_b, MOVING),
                    "k > 0",
                )
    text.at -= 1
    for i, j in tiles:
        text.evict(f"sums_{i}_{j}", f"m * {P * m} + {P * i}", f"n * {MOVING * n} + {MOVING * j}")
    return text.kernel()


def hoisted(product: Product, m: int, n: int) -> Kernel:
    """Return a kernel that loads all of k before it computes a block of m x n tiles of sums.

    The tiles of `a` are loaded once for a row of blocks, those of `b` for each block.
    """
    text = Text(product)
    steps = range(product.k // P)
    text.loop("m", product.m // (P * m))
    for i in range(m):
        for k in steps:
            text.load(f"a_{i}_{k}", "a", f"{k * P}", f"m * {P * m} + {P * i}", P)
    text.loop("n", product.n // (MOVING * n))
    for j in range(n):
        for k in steps:
            text.load(f"b_{j}_{k}", "b", f"{k * P}", f"n * {MOVING * n} + {MOVING * j}", MOVING)
    for i in range(m):
        for j in range(n):
            text.tile("sums", MOVING, "nl.float32", "psum")
            for k in steps:
                text.multiply("sums", f"a_{i}_{k}", f"b_{j}_{k}", str(k > 0))
            text.evict("sums", f"m * {P * m} + {P * i}", f"n * {MOVING * n} + {MOVING * j}")
    return text.kernel()


def in_blocks(product: Product, m: int, n: int, k: int) -> Kernel:
    """Return a kernel with blocks of m x n x k tiles, whose sums over blocks of k are in SBUF."""
    text = Text(product)
    rows, depth = product.m // (P * m), product.k // (P * k)
    text.loop("n", product.n // (MOVING * n))
    for block in range(rows):
        for i in range(m):
            for j in range(n):
                text.tile(f"total_{block}_{i}_{j}", MOVING)
                text.add(f"nisa.memset(total_{block}_{i}_{j}, 0.0)")
    text.loop("k", depth)
    for step in range(k):
        row = f"k * {P * k} + {P * step}"
        text.load(f"b_{step}", "b", row, f"n * {MOVING * n}", MOVING * n)
    for block in range(rows):
        for step in range(k):
            row = f"k * {P * k} + {P * step}"
            text.load(f"a_{step}", "a", row, f"{block * P * m}", P * m)
        for j in range(n):
            for i in range(m):
                text.tile("sums", MOVING, "nl.float32", "psum")
                for step in range(k):
                    left, right = _part(f"a_{step}", i, P), _part(f"b_{step}", j, MOVING)
                    text.multiply("sums", left, right, str(step > 0))
                total = f"total_{block}_{i}_{j}"
                text.add(f"nisa.tensor_tensor({total}, {total}, sums, nl.add)")
    text.at -= 1
    for block in range(rows):
        for i in range(m):
            text.tile("row", MOVING * n)
            for j in range(n):
                text.add(f"nisa.tensor_copy({_part('row', j, MOVING)}, total_{block}_{i}_{j})")
            place = f"{_at(str((block * m + i) * P), P)}, {_at(f'n * {MOVING * n}', MOVING * n)}"
            text.add(f"nisa.dma_copy(out[{place}], row)")
    return text.kernel()


def _part(name: str, place: int, columns: int) -> str:
    return f"{name}[0:{P}, {place * columns}:{(place + 1) * columns}]"
