"""TVM's own operators, as Relax lowers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.relax import op

from row_operators import function

from .attention import HEADS, QUERIES
from .bounded import Bounded, expand, where
from .case import COLUMNS, ROWS, Cascade
from .norms import EPSILON
from .softmax import softmax_of

DEPTH = 5


def _named(*outputs: str) -> Callable[[Callable[..., Any]], Callable[..., dict[str, Any]]]:
    def rename(oracle: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
        return lambda **given: {outputs[0]: oracle(*given.values())}

    return rename


def _case(
    name: str, rule: Callable[..., Any], shapes: Callable[[int], Any], block: str, output: str,
    oracle: Callable[..., Any], law: str, logits: dict[str, int], finite: bool = False,
    verdict: Any = "accept",
) -> Cascade:  # fmt: skip
    return Cascade(
        name,
        lambda n: function(rule, shapes(n)),
        block,
        verdict,
        _named(output)(oracle),
        law=law,
        logits=logits,
        finite=finite,
    )


def _log_softmax(x: Bounded) -> Bounded:
    m = expand(x.max())
    return x - m - expand((x - m).exp().sum().log())


def _layer_norm(x: Bounded, gamma: Bounded, beta: Bounded) -> Bounded:
    mean, scatter = x.squares_about_mean()
    deviation = (scatter / float(x.shape[1]) + EPSILON).rsqrt()
    return (x - expand(mean)) * expand(deviation) * gamma + beta


def _rms_norm(x: Bounded, gamma: Bounded) -> Bounded:
    deviation = ((x * x).sum() / float(x.shape[1]) + EPSILON).rsqrt()
    return x * expand(deviation) * gamma


def _group_norm(x: Bounded, gamma: Bounded, beta: Bounded) -> Bounded:
    shape = x.shape
    grouped = x.moved(lambda a: a.reshape(2, 2, -1))
    # As TVM writes it: the mean of the squares less the square of the mean.
    n = float(grouped.shape[2])
    mean = grouped.sum() / n
    deviation = ((grouped * grouped).sum() / n - mean * mean + EPSILON).rsqrt()
    normal = ((grouped - expand(mean)) * expand(deviation)).moved(lambda a: a.reshape(shape))
    return normal * gamma.moved(lambda a: a[:, None]) + beta.moved(lambda a: a[:, None])


def _attention(
    q: Bounded, k: Bounded, v: Bounded, *, causal: bool = False, bias: Any = None
) -> Any:
    """Of (1, length, heads, depth)."""
    q, k, v = (part.moved(lambda a: a[0].transpose(1, 0, 2)) for part in (q, k, v))
    group = q.shape[0] // k.shape[0]
    k, v = (part.moved(lambda a: np.repeat(a, group, 0)) for part in (k, v))
    z = (expand(q, 2) * expand(k, 1)).sum() * float(np.float32(1 / np.sqrt(DEPTH)))
    if bias is not None:
        z = z + bias[0]
    if causal:
        # As TVM writes it: zeros above the diagonal count in the maximum.
        seen = np.arange(z.shape[2])[None] <= np.arange(z.shape[1])[:, None]
        z = where(seen, z, 0.0)
        e = where(seen, (z - expand(z.max())).exp(), 0.0)
        p = e / expand(e.sum())
    else:
        p = softmax_of(z)
    o = (expand(p) * expand(v, 1)).sum(2)
    return o.moved(lambda a: a.transpose(1, 0, 2)[None])


def _qkv(n: int, kv: int = HEADS) -> list[tuple[int, ...]]:
    return [(1, QUERIES, HEADS, DEPTH), (1, n, kv, DEPTH), (1, n, kv, COLUMNS)]


def _rms_product(x: Bounded, gamma: Bounded, w: Bounded) -> Bounded:
    return (expand(_rms_norm(x, gamma), 1) * expand(w.moved(np.transpose), 0)).sum()


def _grouped(q: Any, k: Any, v: Any) -> Any:
    group = HEADS // 2
    return op.nn.attention(q, op.repeat(k, group, 2), op.repeat(v, group, 2))


_ROWS = {"x0": 1}
_NORM: Any = {"logits": _ROWS, "finite": True}

CASES = [
    _case(
        "tvm_softmax", lambda x: op.nn.softmax(x, -1), lambda n: [(ROWS, n)],
        "T_softmax_expsum", "T_softmax_norm_intermediate", softmax_of, "softmax", _ROWS,
    ),
    _case(
        "tvm_log_softmax", lambda x: op.nn.log_softmax(x, -1), lambda n: [(ROWS, n)],
        "compute", "compute_intermediate", _log_softmax, "log_softmax", _ROWS,
    ),
    _case(
        "tvm_layer_norm", lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        lambda n: [(ROWS, n), (n,), (n,)],
        "x0_var_sum", "T_layer_norm_intermediate", _layer_norm, "layer norm", **_NORM,
    ),
    _case(
        "tvm_rms_norm", lambda x, g: op.nn.rms_norm(x, g, axes=[-1]),
        lambda n: [(ROWS, n), (n,)],
        "T_multiply_red", "T_cast_intermediate", _rms_norm, "one reduction alone", **_NORM,
        verdict="either",
    ),
    _case(
        "tvm_rms_norm_then_matmul",
        lambda x, g, w: op.matmul(op.nn.rms_norm(x, g, axes=[-1]), w),
        lambda n: [(ROWS, n), (n,), (n, COLUMNS)],
        "matmul", "matmul_intermediate", _rms_product, "RMS norm and a product", **_NORM,
    ),
    _case(
        "tvm_group_norm",
        lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2]),
        lambda n: [(2, 4, n), (4,), (4,)],
        "x0_red_temp", "T_reshape_intermediate", _group_norm, "both moments in one block",
        {"x0": 2}, True, "either",
    ),
    _case(
        "tvm_attention", op.nn.attention, _qkv,
        "T_batch_matmul_NN", "T_transpose_intermediate", _attention, "attention", {"x0": 3},
    ),
    _case(
        "tvm_attention_causal", lambda q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft"),
        _qkv, "T_batch_matmul_NN", "T_transpose_intermediate",
        lambda q, k, v: _attention(q, k, v, causal=True), "causal attention", {"x0": 3},
    ),
    _case(
        "tvm_attention_with_bias", lambda q, k, v, b: op.nn.attention(q, k, v, b),
        lambda n: [*_qkv(n), (1, HEADS, QUERIES, n)],
        "T_batch_matmul_NN", "T_transpose_intermediate",
        lambda q, k, v, b: _attention(q, k, v, bias=b), "attention with a bias", {"x3": 3},
    ),
    _case(
        "tvm_attention_grouped", _grouped, lambda n: _qkv(n, HEADS // 2),
        "T_batch_matmul_NN", "T_transpose_intermediate", _attention, "grouped attention", {"x0": 3},
    ),
]  # fmt: skip
