"""Which of torch's kernels runs; that it computes the equation is in test_attention_parity.py."""

from __future__ import annotations

import contextlib

import pytest
import torch
from operators import Operators, aten

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.head_groups import HeadGroupAttention
from fairseq_collab.attention.scores import F, fused_heads

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


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_cudnn_is_off_during_the_call(
    enabled: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as before it afterwards, of failed calls, too."""
    cuda, during = torch.backends.cuda, []

    def kernel(q: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        during.append(cuda.cudnn_sdp_enabled())
        return q if not fails else q @ q

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    before, q = cuda.cudnn_sdp_enabled(), torch.randn(1, 2, 5, 3)
    cuda.enable_cudnn_sdp(enabled)
    try:
        with contextlib.suppress(RuntimeError):
            fused_heads(q, q, q)
        assert (during, cuda.cudnn_sdp_enabled()) == ([False], enabled)
    finally:
        cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("types", [("float32",), ("bool",), ("float64", "bool"), ("bool", "bool")])
def test_masks_have_the_type_of_queries(
    dtype: torch.dtype, types: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, kernel = [], F.scaled_dot_product_attention

    def recording(
        q: torch.Tensor, k: object, v: object, mask: torch.Tensor, *more: float, scale: float
    ) -> torch.Tensor:
        given.append(mask.dtype)
        return kernel(q, k, v, mask, *more, scale=scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recording)
    q = torch.randn(2, 2, 5, 3).to(dtype)
    forbidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = [forbidden if t == "bool" else forbidden.to(getattr(torch, t)) * -9 for t in types]
    heads = fused_heads(q, q, q, *masks)
    assert (given, heads.dtype) == ([dtype], dtype)
