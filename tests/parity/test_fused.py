"""Which of torch's kernels runs; that it computes the equation is in test_attention_parity.py."""

from __future__ import annotations

import pytest
import torch
from operators import Operators, aten

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.head_groups import HeadGroupAttention

D, H, MANY = 64, 4, 256
FUSED = aten._scaled_dot_product_flash_attention_for_cpu


def fuses(attention: HeadAttention, queries: int = MANY, keys: int = MANY) -> bool:
    """Whether the fused kernel runs, and no other softmax."""
    x, y = torch.randn(queries, 2, D), torch.randn(keys, 2, D)
    with Operators() as operators:
        attention(x, y, y, need_weights=False)
    softmaxes = {FUSED, aten._softmax, aten._safe_softmax}
    (used,) = softmaxes & {*operators.ran}
    return used is FUSED


def shared(key_dim: int, **options: int) -> CollaborativeAttention:
    return CollaborativeAttention(D, H, key_dim, query_mixing="diagonal", **options)


@pytest.mark.parametrize("value_heads", [1, 2, H])
@pytest.mark.parametrize("key_dim", [1, D // 8, D // 4, D // 2])
def test_shared_keys_use_it(key_dim: int, value_heads: int) -> None:
    """torch takes keys and values of one width only, and is silent about others."""
    assert fuses(shared(key_dim, value_heads=value_heads).eval().requires_grad_(False))


def test_where_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SeparateAttention(D, H)
    assert fuses(plain)
    assert not fuses(plain, queries=4), "as in a step of decoding"
    assert not fuses(plain, keys=MANY - 1)
    assert not fuses(shared(D // 2)), "training with padded values: slower"
    assert fuses(shared(D // 2), keys=2 * MANY)
    assert not fuses(shared(D)), "padding would make values four times as wide"
    assert not fuses(HeadGroupAttention(D, H, groups=1, feature="attention"))
    dropping = SeparateAttention(D, H, dropout=0.5)
    assert not fuses(dropping)
    assert fuses(dropping.eval())
    monkeypatch.setattr(dropping.dropout_module, "apply_during_inference", True, raising=False)
    assert not fuses(dropping), "--retain-dropout"
