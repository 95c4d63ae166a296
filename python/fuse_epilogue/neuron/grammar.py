"""The names and the parts of Python that kernels are made of, and what is said of the others."""

from __future__ import annotations

import ast

from .trace import Space

#: The imports of a kernel file, as they have to be written.
IMPORTS = ("import nki", "import nki.isa as nisa", "import nki.language as nl")

#: Memories by their name in ``nl``.
SPACES: dict[str, Space] = {"sbuf": "sbuf", "psum": "psum", "hbm": "hbm", "shared_hbm": "hbm"}

#: Limits that ``nl.tile_size`` names.
TILE_SIZE = {
    "pmax": 128,
    "psum_fmax": 512,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
}

#: What older editions called it, and what it is now.
OLD_NAMES = {
    "affine_range": "range",
    "sequential_range": "range",
    "static_range": "range",
    "arange": "slices such as t[0:128], or nl.ds(start, size)",
    "mgrid": "slices such as t[0:128], or nl.ds(start, size)",
    "par_dim": "a plain shape: the first dimension always counts partitions",
    "load": "nisa.dma_copy",
    "store": "nisa.dma_copy",
    "copy": "nisa.tensor_copy",
    "matmul": "nisa.nc_matmul",
    "transpose": "nisa.nc_transpose",
    "add": "nisa.tensor_tensor with op=nl.add",
    "subtract": "nisa.tensor_tensor with op=nl.subtract",
    "multiply": "nisa.tensor_tensor with op=nl.multiply",
    "maximum": "nisa.tensor_tensor with op=nl.maximum",
    "minimum": "nisa.tensor_tensor with op=nl.minimum",
    "sum": "nisa.tensor_reduce with op=nl.add",
    "max": "nisa.tensor_reduce with op=nl.maximum",
    "full": "nl.ndarray and nisa.memset",
    "zeros_like": "nl.zeros",
    "load_transpose2d": "nisa.dma_copy and nisa.nc_transpose",
}

#: Functions of Python that integers may go through.
FUNCTIONS = ("range", "min", "max")

#: Functions of ``nl`` that make a tensor.
ALLOCATIONS = ("ndarray", "zeros")

#: Operators on integers.
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
#: Comparisons of integers.
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: Statements that are refused, and what is said of them.
STATEMENTS = {
    ast.While: "loops are `for ... in range(...)`",
    ast.FunctionDef: "a kernel holds no functions, nested jit among them",
    ast.AsyncFunctionDef: "a kernel holds no functions",
    ast.ClassDef: "a kernel holds no classes",
    ast.Import: "imports are at the top of the file",
    ast.ImportFrom: "imports are at the top of the file",
    ast.Try: "there are no exceptions in a kernel",
    ast.With: "there is no `with` in a kernel",
    ast.Break: "loops are unrolled, `break` is not available: use `if`",
    ast.Continue: "loops are unrolled, `continue` is not available: use `if`",
    ast.Delete: "tensors live from their first write to their last read, `del` is not needed",
    ast.Global: "a kernel has no global names",
    ast.Nonlocal: "a kernel has no names of an enclosing function",
}

#: Expressions that are refused, and what is said of them.
EXPRESSIONS = {
    ast.List: "lists are not allowed: use tuples",
    ast.ListComp: "lists are not allowed: use tuples",
    ast.Dict: "dictionaries are not available",
    ast.Set: "sets are not available",
    ast.JoinedStr: "strings are not available",
    ast.Lambda: "a kernel holds no functions",
    ast.NamedExpr: "assignments are statements of their own",
    ast.Starred: "arguments are written out one by one",
    ast.Await: "there is no `await` in a kernel",
}


def module_name(node: ast.expr, module: str) -> str | None:
    """Return ``x`` if the expression is ``module.x``."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == module
    ):
        return node.attr
    return None


def is_text(node: ast.stmt) -> bool:
    """Tell whether a statement is a string, as docstrings are."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
