"""Reading and building TIR: sums of axes, nodes made of others, parts of a node."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import For

from fuse_epilogue.tir.affine import Affine, affine_of, as_constant
from fuse_epilogue.tir.build import in_root, with_fields
from fuse_epilogue.tir.walk import conjuncts, parts_of
from fuse_epilogue.workloads import matmul

I, J, N = (tirx.Var(name, "int32") for name in "ijn")
TABLE = tirx.decl_buffer((8,), "int32", "table")


@pytest.mark.parametrize(
    ("expr", "factors", "constant"),
    [
        (I * 4 + J + 2, (4, 1), 2),
        ((I + J) * 3 - I, (2, 3), 0),
        (J - 7, (0, 1), -7),
        (I * 4 + N, (4, 0), None),
        (5, (0, 0), 5),
    ],
)
def test_a_sum_of_axes(expr, factors, constant):
    found = affine_of(expr, [I, J])
    assert isinstance(found, Affine) and (found.factors, found.constant) == (factors, constant)


@pytest.mark.parametrize("expr", [I * J, I * N, I // 2, TABLE[I] + J, TABLE[0] + J])
def test_no_sum_of_axes(expr):
    assert affine_of(expr, [I, J]) is None


def test_factors_are_simplified_by_an_analyzer():
    expr = I * (N - N + 3)
    assert affine_of(expr, [I]) is None and affine_of(expr, [I], Analyzer()).factors == (3,)


def test_a_node_with_other_fields():
    func = matmul(8, 8, 8)
    block = parts_of(func.body, SBlock)[0]
    made = with_fields(block, name_hint="other")
    assert (made.name_hint, block.name_hint) == ("other", "matmul")
    assert tvm_ffi.structural_equal(with_fields(made, name_hint="matmul"), block)
    loop = parts_of(func.body, For)[0]
    assert int(with_fields(loop, extent=tirx.const(4, "int32")).extent) == 4
    with pytest.raises(TypeError, match="SBlock has no field 'name'"):
        with_fields(block, name="other")


def test_a_root_block():
    body = matmul(8, 8, 8).body.block.body
    made = in_root(body, [TABLE], annotations={"kept": 1}).block
    assert (made.name_hint, list(made.iter_vars)) == ("root", []) and made.body.same_as(body)
    assert made.alloc_buffers[0].same_as(TABLE) and int(made.annotations["kept"]) == 1


def test_parts_and_conditions():
    condition = tirx.all(I < 3, J < 4, I >= 0)
    assert [str(each) for each in conjuncts(condition)] == ["i < 3", "j < 4", "i >= 0"]
    assert len(parts_of(matmul(8, 8, 8).body, For)) == 5
    assert as_constant(tirx.const(3)) == 3 and as_constant(I).same_as(I)
