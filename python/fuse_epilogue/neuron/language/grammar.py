"""The parts of Python that kernels are made of, and what is said of the others."""

from __future__ import annotations

import ast

from ..trace import Space

#: Memories by their name in ``nl``.
SPACES: dict[str, Space] = {
    "sbuf": "sbuf",
    "psum": "psum",
    "hbm": "hbm",
    "shared_hbm": "hbm",
    "private_hbm": "hbm",
}

#: Limits that ``nl.tile_size`` names.
TILE_SIZE = {
    "pmax": 128,
    "psum_fmax": 512,
    "psum_bank_fmax": 512,
    "psum_bank_fmax_bytes": 2048,
    "psum_num_banks": 8,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
    "psum_min_align": 4,
    "sbuf_min_align": 1,
    "total_available_sbuf_size": 192 * 1024,
}

#: What older editions called it, and what it is now.
OLD_NAMES = {
    "arange": "slices such as t[0:128], or nl.ds(start, size)",
    "mgrid": "slices such as t[0:128], or nl.ds(start, size)",
    "par_dim": "a plain shape: the first dimension always counts partitions",
}

#: Names of today that are not supported, and what does the same.
INSTEAD = {
    "shared_constant": "an argument of the kernel",
    "prelu": "nl.where, or nl.maximum and nl.minimum",
    "tfloat32": "nl.float32",
    "bool_": "nl.uint8",
}

#: Names that make random numbers, or set where these start.
RANDOM = {
    *("rng", "rand", "rand2", "dropout", "set_rng_seed", "random_seed"),
    *("rand_set_state", "rand_get_state"),
}

#: Statements that are refused, and what is said of them.
STATEMENTS = {
    ast.AsyncFunctionDef: "asynchronous functions are not supported here",
    ast.With: "`with` is supported here as `with nl.no_reorder():` only",
    ast.Global: "`global` is not supported here: return the value",
    ast.Nonlocal: "`nonlocal` is not supported here: return the value",
}

#: Expressions that are refused, and what is said of them.
EXPRESSIONS = {
    ast.GeneratorExp: "generators are not supported here, except in any, all, sum, min, max, "
    "tuple and list",
    ast.Starred: "a star is only for arguments of calls and items of tuples and lists",
    ast.Await: "`await` is not supported here",
}


def dotted(node: ast.expr) -> str | None:
    """Return ``a.b.c`` if the expression is nothing but names, otherwise None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        front = dotted(node.value)
        return None if front is None else f"{front}.{node.attr}"
    return None


def is_text(node: ast.stmt) -> bool:
    """Tell whether a statement is a string, as docstrings are."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
