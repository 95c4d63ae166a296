"""Sums of bools and of short integers are imported from torch with the type torch gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_epilogue

torch = pytest.importorskip("torch", reason="the models are modules of PyTorch: install torch")

pytestmark = pytest.mark.full

SUMS = {
    "cumsum": lambda x: torch.cumsum(x, -1),
    "cumprod": lambda x: torch.cumprod(x, -1),
    "sum": lambda x: torch.sum(x, -1),
    "sum-of-all": torch.sum,
}


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float32"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_type_of_torch(name: str, dtype: str) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return SUMS[name](x > 0 if dtype == "bool" else x.to(getattr(torch, dtype)))

    x = torch.arange(-8.0, 120.0).reshape(2, 64)
    expected = Sum()(x)
    result = fuse_epilogue.compile(Sum().eval(), example_inputs=(x,))(x)
    assert result.dtype == expected.dtype
    # In float32 every product from -8 on is 0 from the ninth element on.
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)
