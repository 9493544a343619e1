"""The README's variant of one's own: keys that are values, which takes one file.

Step by step under beam search, and what the cache holds: test_incremental.py; in one kernel:
test_fused.py.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from fairseq import utils
from torch import Tensor
from toy import close

from collab_common.errors import UserError
from fairseq_collab.attention import ConcatenatedAttention, HeadAttention
from fairseq_collab.metrics.cost import cost

utils.import_user_module(
    Namespace(user_dir=str(Path(__file__).parent.parent / "examples" / "tied_heads"))
)

pytestmark = pytest.mark.usefixtures("float64")

D, H, T, S, B = 24, 4, 5, 6, 3
h = D // H


def variant(size: int = D, heads: int = H, **options: Any) -> HeadAttention:
    """Tied heads with weights that hide no mistake behind zeros."""
    import tied_heads

    return toy.randomised(tied_heads.TiedAttention(size, heads, **options))


def tied(weights: dict[str, Tensor], x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The equation for a sentence: output ``(T, d)`` and weights ``(H, T, S)``.

    ``x (T, d)``, ``y (S, d)``, ``mask (T, S)`` true where a query may not look.
    """
    q = (x @ weights["q_proj.weight"].T + weights["q_proj.bias"]).view(len(x), H, h)
    k = (y @ weights["k_proj.weight"].T + weights["k_proj.bias"]).view(len(y), H, h)
    logits = torch.einsum("thk,shk->hts", q, k) / h**0.5
    shares = logits.masked_fill(mask, float("-inf")).softmax(dim=-1)
    heads = torch.einsum("hts,shv->thv", shares, k).flatten(1)  # (T, H h)
    return heads @ weights["out_proj.weight"].T + weights["out_proj.bias"], shares


def inputs(cross: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query, key, padding mask ``(B, S)`` and causal mask ``(T, T)``."""
    query = torch.randn(T, B, D, requires_grad=True)
    key = torch.randn(S, B, D, requires_grad=True) if cross else query
    padding = torch.zeros(B, len(key), dtype=torch.bool)
    padding[1, -1] = padding[2, -2:] = True
    return query, key, padding, None if cross else torch.ones(T, T, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_the_papers_equation(cross: bool) -> None:
    """Output, weights and all gradients, with padding, and causal where it is self-attention."""
    attention = variant(encoder_decoder_attention=cross, self_attention=not cross)
    query, key, padding, causal = inputs(cross)
    masks = {"key_padding_mask": padding, "attn_mask": causal}
    output, weights = attention(query, key, key, **masks, need_head_weights=True)

    forbidden = padding[:, None, :].expand(-1, T, -1)  # (B, T, S)
    if causal is not None:
        forbidden = forbidden | causal
    parameters = dict(attention.named_parameters())
    by_sentence = [tied(parameters, query[:, b], key[:, b], forbidden[b]) for b in range(B)]
    expected = torch.stack([sentence for sentence, _ in by_sentence], dim=1)
    close(output, expected)
    close(weights, torch.stack([shares for _, shares in by_sentence], dim=1))

    direction = torch.linspace(-1, 1, output.numel()).view_as(output)
    leaves = [*parameters.values(), query, *([key] if cross else [])]
    gradients = torch.autograd.grad((output * direction).sum(), leaves)
    expected_gradients = torch.autograd.grad((expected * direction).sum(), leaves)
    close(gradients, expected_gradients)


def test_equals_concatenated_heads_with_the_same_key_and_value() -> None:
    attention = variant(self_attention=True)
    ordinary = ConcatenatedAttention(D, H, self_attention=True)
    weights = dict(attention.named_parameters())
    for part in ("weight", "bias"):
        weights[f"v_proj.{part}"] = weights[f"k_proj.{part}"]
    ordinary.load_state_dict({**weights, "signature": ordinary.signature})
    query, key, padding, causal = inputs(cross=False)
    options = {"key_padding_mask": padding, "attn_mask": causal}
    for before_softmax in (False, True):
        ours, theirs = (
            a(query, key, key, **options, before_softmax=before_softmax)
            for a in (attention, ordinary)
        )
        close(ours, theirs)


def test_counted_costs_are_the_variants_own() -> None:
    """d = 16, 2 + 2 layers: the decoder's two caches hold 16 numbers of 4 bytes."""
    ours = cost(toy.model("transformer_tied_heads"))
    ordinary = cost(toy.model("transformer_headsize_n"))
    assert ours.key_bytes_per_target_token == ours.key_bytes_per_source_token == 2 * 16 * 4
    assert ours.value_bytes_per_target_token == ours.value_bytes_per_source_token == 0
    assert ordinary.parameters - ours.parameters == 6 * (16 + 1) * 16


@pytest.mark.parametrize("other", ["transformer_headsize_n", "transformer_collab"])
def test_another_variants_checkpoint_is_refused(other: str) -> None:
    ours, others = toy.model("transformer_tied_heads"), toy.model(other)
    number = {"transformer_headsize_n": 1, "transformer_collab": 2}[other]
    with pytest.raises(UserError, match=rf"kind .* is {number} in it, 100 here"):
        ours.load_state_dict(others.state_dict())
    with pytest.raises(UserError, match=rf"kind .* is 100 in it, {number} here"):
        others.load_state_dict(ours.state_dict())
