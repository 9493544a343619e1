"""Options of the attention modules: what they set, what they refuse and how they say it."""

from __future__ import annotations

import math

import pytest
import torch

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.collaborative import init_mixing


def test_block_mixing_deals_out_every_dimension() -> None:
    mixing = torch.empty(3, 7)
    init_mixing(mixing, "block")
    assert mixing.sum(0).tolist() == [1] * 7
    assert sorted(mixing.sum(1).tolist()) == [2, 2, 3]


def test_block_mixing_of_few_dimensions_gives_every_head_one() -> None:
    mixing = torch.empty(5, 2)
    init_mixing(mixing, "block")
    assert mixing.tolist() == [[1, 0]] * 3 + [[0, 1]] * 2


def test_other_mixing_inits() -> None:
    mixing = torch.empty(8, 512)
    init_mixing(mixing, "xavier")
    bound = math.sqrt(6 / (8 + 512))
    assert 0.99 * bound < mixing.abs().max() <= bound
    init_mixing(mixing, "normal")
    assert mixing.std().item() == pytest.approx(0.2, rel=0.05)


def test_scale_rules() -> None:
    options = {"self_attention": True}
    assert CollaborativeAttention(32, 4, 16, **options).scaling == 8**-0.5
    assert CollaborativeAttention(32, 4, 16, scale="key", **options).scaling == 4**-0.5
    assert ConcatenatedAttention(32, 4, qk_head_size=2, **options).scaling == 2**-0.5
    fixed = ConcatenatedAttention(32, 4, qk_head_size=2, scale="embed", **options)
    assert fixed.scaling == 8**-0.5


@pytest.mark.parametrize(
    ("key_dim", "value_init", "gain"),
    [
        (64, "constant", 0.5**0.5),
        (16, "constant", 0.5**0.5),
        (64, "fork", 0.5**0.5),
        (16, "fork", 1),
    ],
)
def test_value_init_jumps_only_as_in_the_fork(key_dim: int, value_init: str, gain: float) -> None:
    attention = CollaborativeAttention(64, 4, key_dim, value_init=value_init)
    bound = gain * math.sqrt(6 / 128)
    assert 0.95 * bound < attention.v_proj.weight.abs().max() <= bound


def test_bias_forms_have_the_parameters_they_need() -> None:
    def names(bias: str) -> set[str]:
        return {name for name, _ in CollaborativeAttention(8, 2, 4, bias=bias).named_parameters()}

    common = {
        "mixing", "q_proj.weight", "k_proj.weight", "v_proj.weight", "v_proj.bias",
        "out_proj.weight", "out_proj.bias",
    }  # fmt: skip
    assert names("none") == common
    assert names("content") == common | {"content_bias"}
    assert names("projection") == common | {"q_proj.bias", "k_proj.bias"}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CollaborativeAttention(8, 2, 0), "key_dim is 0; it must be at least 1"),
        (lambda: CollaborativeAttention(8, 0, 4), "num_heads is 0; it must be at least 1"),
        (lambda: CollaborativeAttention(8, 3, 4), "model size 8 does not divide by 3 heads"),
        (lambda: ConcatenatedAttention(8, 3), "model size 8 does not divide by 3 heads"),
        (
            lambda: ConcatenatedAttention(8, 3, qk_head_size=-1, v_head_size=2),
            "qk_head_size is -1; it must be at least 1",
        ),
        (
            lambda: CollaborativeAttention(8, 2, 4, mixing_init="zeros"),
            "mixing init is 'zeros'; it must be one of block, xavier, normal",
        ),
        (
            lambda: CollaborativeAttention(8, 2, 4, scale="none"),
            "attention scale is 'none'; it must be one of key, embed",
        ),
        (
            lambda: CollaborativeAttention(8, 2, 4, bias="both"),
            "attention bias is 'both'; it must be one of projection, content, none",
        ),
        (
            lambda: CollaborativeAttention(8, 2, 4, value_init="xavier"),
            "value init is 'xavier'; it must be one of constant, fork",
        ),
    ],
)
def test_refusals_name_the_value_and_the_choices(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_weights_sum_to_one(dtype: torch.dtype) -> None:
    """Many equal scores, whose sum 16 bits could not hold."""
    attention = CollaborativeAttention(8, 2, 4, self_attention=True).to(dtype)
    x = torch.zeros(600, 1, 8, dtype=dtype)
    output, weights = attention(x, x, x)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(1, 600), rtol=0, atol=5e-3)


def test_dropout_acts_in_training_only() -> None:
    attention = ConcatenatedAttention(8, 2, dropout=0.5, self_attention=True)
    x = torch.randn(4, 2, 8)
    assert not torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])
    attention.eval()
    assert torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])


def test_boolean_causal_mask_equals_additive() -> None:
    attention = ConcatenatedAttention(8, 2, self_attention=True)
    x = torch.randn(4, 2, 8)
    boolean = torch.ones(4, 4, dtype=torch.bool).triu(1)
    additive = torch.zeros(4, 4).masked_fill(boolean, float("-inf"))
    assert torch.equal(
        attention(x, x, x, attn_mask=boolean)[0], attention(x, x, x, attn_mask=additive)[0]
    )


def test_scores_before_softmax() -> None:
    attention = CollaborativeAttention(8, 2, 4, self_attention=True)
    x = torch.randn(4, 3, 8)
    scores, values = attention(x, x, x, before_softmax=True)
    assert scores.shape == (3 * 2, 4, 4)
    assert values.shape == (3 * 2, 4, 4)
