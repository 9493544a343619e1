"""torch's fused kernel against our explicit product, and where it must not be used."""

from __future__ import annotations

import pytest
import torch
from parity.test_incremental import VARIANTS, D, H
from torch import Tensor

from fairseq_collab.attention import heads as module
from fairseq_collab.attention.groups import HeadGroupAttention

pytestmark = pytest.mark.usefixtures("float64")

T, B = 6, 2
TOLERANCE = 1e-10

CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)
MASKS: dict[str, Tensor | None] = {
    "none": None,
    "boolean": CAUSAL,
    "added": torch.zeros(T, T, dtype=torch.float64).masked_fill(CAUSAL, float("-inf")),
}


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The fused kernel at these small sizes; the list grows with each of its calls."""
    monkeypatch.setattr(module, "FUSE_QUERIES", 2)
    monkeypatch.setattr(module, "FUSE_KEYS", 2)
    calls: list[int] = []
    kernel = module.fused_heads
    monkeypatch.setattr(module, "fused_heads", lambda *a: calls.append(1) or kernel(*a))
    return calls


@pytest.mark.parametrize("padded", [None, "left", "right"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", VARIANTS)
def test_output_and_gradients(fused: list[int], name: str, mask: str, padded: str | None) -> None:
    attention = VARIANTS[name]()
    x = torch.randn(T, B, D, requires_grad=True)
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1, -2:] = True
    padding = padding.flip(1) if padded == "left" else padding
    options = {"attn_mask": MASKS[mask], "key_padding_mask": padding if padded else None}
    found = []
    for weights in (False, True):  # the explicit product, where weights are wanted
        output, _ = attention(x, x, x, need_weights=weights, **options)
        leaves = [x, *(p for p in attention.parameters() if p.requires_grad)]
        found.append([output, *torch.autograd.grad((output**2).sum(), leaves)])
    assert len(fused) == 1
    torch.testing.assert_close(*found, rtol=0, atol=TOLERANCE)


def test_where_it_is_not_used(fused: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(T, B, D)
    plain = VARIANTS["concatenated"]()
    dropping = VARIANTS["concatenated"](dropout=0.5)
    watched = HeadGroupAttention(D, H, groups=1, feature="attention")
    for attention in (dropping, watched):
        attention(x, x, x, need_weights=False)
    plain(x[:1], x, x, need_weights=False)  # as in a step of decoding
    assert not fused
    dropping.eval()(x, x, x, need_weights=False)
    assert len(fused) == 1, "no dropout in evaluation"
    monkeypatch.setattr(dropping.dropout_module, "apply_during_inference", True, raising=False)
    dropping(x, x, x, need_weights=False)
    assert len(fused) == 1, "--retain-dropout"
