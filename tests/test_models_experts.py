"""A mixture of experts of transformers: refused by name, and compiled with the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_epilogue
from fuse_epilogue.models import ImportRefusal

torch = pytest.importorskip("torch", reason="the model is a module of PyTorch: install torch")
transformers = pytest.importorskip("transformers", reason="the model is one of transformers")

pytestmark = [pytest.mark.full, pytest.mark.slow]


def mixtral(**options: Any) -> Any:
    """Return a module of one small layer: the last hidden state of tokens."""
    config = transformers.MixtralConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        vocab_size=32,
        **options,
    )
    torch.manual_seed(0)

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.MixtralModel(config)

        def forward(self, tokens: Any) -> Any:
            return self.model(tokens, use_cache=False).last_hidden_state

    return LastHiddenState().eval()


def test_a_mixture_of_experts() -> None:
    tokens = torch.arange(6)[None]
    way_out = r"grouped_mm_fallback \(a model of .*experts_implementation='batched_mm'\)"
    with pytest.raises(ImportRefusal, match=way_out):
        fuse_epilogue.compile(mixtral(), example_inputs=(tokens,))
    module = mixtral(experts_implementation="batched_mm")
    model = fuse_epilogue.compile(module, example_inputs=(tokens,))
    with torch.no_grad():
        expected = module(tokens).numpy()
    found = np.asarray(model(tokens.numpy()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
