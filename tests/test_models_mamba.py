"""A Mamba layer of transformers: a prompt, then tokens one at a time from its two states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuse_epilogue

torch = pytest.importorskip("torch", reason="the layer is a module of PyTorch: install torch")
transformers = pytest.importorskip("transformers", reason="the layer is one of transformers")

pytestmark = [pytest.mark.full, pytest.mark.slow]

PROMPT, STEPS, SEED = 6, 64, 7
SIZES = {"hidden_size": 16, "state_size": 4, "expand": 2, "conv_kernel": 4, "time_step_rank": 3}


class States:
    """The cache of one layer as values: what is read was passed in, what is written comes out."""

    def __init__(self, conv: Any = None, recurrent: Any = None) -> None:
        # Copies: the update of the layer writes into them.
        self.conv = None if conv is None else conv.clone()
        self.recurrent = None if recurrent is None else recurrent.clone()

    def get_conv_state(self, *_: int, **__: int) -> Any:
        return self.conv

    def get_recurrent_state(self, *_: int, **__: int) -> Any:
        return self.recurrent

    def is_recording_past(self, _: int) -> bool:
        return False

    def has_previous_state(self, *_: int) -> bool:
        return self.conv is not None

    def update_conv_state(self, columns: Any, _: int, conv_kernel_size: int) -> Any:
        missing = max(0, conv_kernel_size - columns.shape[-1])
        padded = torch.nn.functional.pad(columns, (missing, 0))
        self.conv = padded[..., -conv_kernel_size:]
        return padded

    def update_recurrent_state(self, state: Any, _: int) -> Any:
        self.recurrent = state
        return state


@pytest.fixture(scope="module")
def layer() -> Any:
    from transformers.models.mamba.modeling_mamba import MambaBlock

    torch.manual_seed(SEED)
    config = transformers.MambaConfig(num_hidden_layers=1, use_mambapy=False, **SIZES)
    block = MambaBlock(config, 0)
    block.mixer.init_mamba_weights()
    return block.eval()


class Prompt(torch.nn.Module):
    """The layer on a prompt; its states after it are results."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        states = States()
        y = self.layer(x, cache_params=states)
        return y, states.conv, states.recurrent


class Step(torch.nn.Module):
    """The layer on one token, from its states."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, conv: Any, recurrent: Any) -> Any:
        states = States(conv, recurrent)
        y = self.layer(x, cache_params=states)
        return y, states.conv, states.recurrent


def near(result: Any, expected: Any, what: str) -> None:
    """Within 1e-5 of the largest number of torch's."""
    expected = expected.detach().numpy()
    bound = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(result), expected, rtol=0, atol=bound, err_msg=what)


def test_a_prompt_and_64_tokens(layer: Any) -> None:
    """Each piece compiled once, run on its own states; torch's own cache is the reference."""
    from transformers import DynamicCache

    torch.manual_seed(SEED + 1)
    x = torch.randn(1, PROMPT + STEPS, SIZES["hidden_size"])
    cache = DynamicCache(config=layer.config)
    with torch.no_grad():
        expected = [layer(x[:, :PROMPT], cache_params=cache)]
        for place in range(PROMPT, PROMPT + STEPS):
            expected.append(layer(x[:, place : place + 1], cache_params=cache))
    prompt = fuse_epilogue.compile(Prompt(layer).eval(), example_inputs=(x[:, :PROMPT],), threads=1)
    y, conv, recurrent = prompt(x[:, :PROMPT])
    near(y, expected[0], "prompt")
    example = (x[:, :1], torch.zeros(conv.shape), torch.zeros(recurrent.shape))
    step = fuse_epilogue.compile(Step(layer).eval(), example_inputs=example, threads=1)
    for place in range(STEPS):
        token = x[:, PROMPT + place : PROMPT + place + 1]
        y, conv, recurrent = step(token, conv, recurrent)
        near(y, expected[1 + place], f"token {place}")
    near(conv, cache.get_conv_state(0, state_idx=0), "the columns at the end")
    near(recurrent, cache.get_recurrent_state(0, state_idx=0), "the state at the end")
