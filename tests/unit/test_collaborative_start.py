"""How collaborative heads may start: scales, mixing, and how fast the mixing moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from toy_language_models import roberta

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.collaborative import MIXING_INITS, init_mixing
from fairseq_collab.attention.heads import HeadAttention
from fairseq_collab.attention.scores import head_scores
from fairseq_collab.metrics.cost import cost

pytestmark = pytest.mark.usefixtures("float64")

D, H, K = 12, 3, 6


def heads(seed: int = 5, **options: Any) -> CollaborativeAttention:
    torch.manual_seed(seed)
    options = {"mixing_init": "xavier", **options}
    return CollaborativeAttention(D, H, K, self_attention=True, **options).eval()


def output(attention: HeadAttention) -> torch.Tensor:
    x = torch.randn(7, 2, D, generator=torch.Generator().manual_seed(3))
    return attention(x, x, x)[0]


def logit_variance(attention: HeadAttention) -> torch.Tensor:
    """Of each head, over inputs of mean 0 and variance 1, biases left out: ``(H,)``."""
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj):
            projection.bias.zero_()
        x, y = (torch.randn(96, 24, attention.embed_dim) for _ in range(2))
        scores = head_scores(attention.project_query(x), attention.project_key(y))  # (B, H, T, S)
    return scores.transpose(0, 1).flatten(1).var(dim=1)


@pytest.mark.parametrize("bias", ["projection", "content"])
@pytest.mark.parametrize("scale", ["embed", "key", "variance"])
def test_a_learnt_scale_starts_as_the_fixed_one(scale: str, bias: str) -> None:
    options = {"scale": scale, "bias": bias, "mixing_init": "block"}
    assert torch.equal(output(heads(**options)), output(heads(**options, learn_scale=True)))


@pytest.mark.parametrize("bias", ["projection", "content"])
def test_a_learnt_scale_multiplies_the_scores_of_its_head(bias: str) -> None:
    """As much as larger rows of the mixing, and larger content vectors, would."""
    learnt, fixed = heads(bias=bias, learn_scale=True), heads(bias=bias)
    factors = torch.tensor([0.5, 1.0, 3.0])
    with torch.no_grad():
        learnt.log_scale.copy_(factors.log())
        fixed.mixing.mul_(factors[:, None])
        if bias == "content":
            for attention in (learnt, fixed):
                attention.content_bias.copy_(torch.linspace(-1, 1, H * D).view(H, D))
            fixed.content_bias.mul_(factors[:, None])
    torch.testing.assert_close(output(learnt), output(fixed), rtol=0, atol=1e-12)
    output(learnt).square().sum().backward()
    assert learnt.log_scale.grad.abs().min() > 0


@pytest.mark.parametrize("key_dim", [16, 64, 256])
@pytest.mark.parametrize("init", MIXING_INITS)
def test_scores_start_with_the_variance_of_ordinary_heads(init: str, key_dim: int) -> None:
    ours = CollaborativeAttention(256, 4, key_dim, mixing_init=init, scale="variance")
    assert logit_variance(ours).tolist() == pytest.approx([0.25] * 4, rel=0.25)


def test_what_the_variance_of_ordinary_heads_is() -> None:
    assert logit_variance(ConcatenatedAttention(256, 4)).mean().item() == pytest.approx(0.25, 0.1)
    # At a quarter of the key dimension the fixed rules start elsewhere: s^2 K/H (2 d/(d + K))^2.
    for scale, expected in (("embed", 0.64), ("key", 2.56)):
        block = CollaborativeAttention(256, 4, 64, mixing_init="block", scale=scale)
        assert logit_variance(block).mean().item() == pytest.approx(expected, rel=0.15)


def test_at_the_whole_key_dimension_the_rules_are_one() -> None:
    scale = CollaborativeAttention(D, H, D, mixing_init="block", scale="variance").scales()
    assert scale.squeeze(1).tolist() == pytest.approx([(D / H) ** -0.5] * H, rel=1e-14)


def test_keys_of_another_size_keep_their_variance() -> None:
    ours = CollaborativeAttention(64, 2, 16, kdim=128, vdim=128, scale="variance")
    fairseqs = (64 * 2 / 128) * (128 * 2 / 192)  # Xavier with gain 1: the inputs differ in size
    with torch.no_grad():
        ours.q_proj.bias.zero_()
        ours.k_proj.bias.zero_()
        x, y = torch.randn(96, 24, 64), torch.randn(96, 24, 128)
        scores = head_scores(ours.project_query(x), ours.project_key(y))
    assert scores.var().item() == pytest.approx(fairseqs, rel=0.3)


def test_noise_around_blocks() -> None:
    mixing, block = torch.empty(8, 512), torch.empty(8, 512)
    init_mixing(block, "block")
    init_mixing(mixing, "block_noise", 0.3)
    assert (mixing - block).std().item() == pytest.approx(0.3, rel=0.05)
    init_mixing(mixing, "block_noise", 0.0)
    assert torch.equal(mixing, block)


@pytest.mark.parametrize(("num_heads", "key_dim"), [(3, 12), (4, 4), (6, 4)])
def test_orthogonal_mixing(num_heads: int, key_dim: int) -> None:
    mixing = torch.empty(num_heads, key_dim)
    init_mixing(mixing, "orthogonal")
    found, length = mixing @ mixing.T, key_dim / num_heads
    if num_heads > key_dim:  # orthonormal columns
        found, length = mixing.T @ mixing, 1
    torch.testing.assert_close(found, length * torch.eye(len(found)), rtol=0, atol=1e-12)


def test_a_fast_mixing_starts_the_same_and_moves_farther() -> None:
    slow, fast = heads(), heads(mixing_speed=10)
    torch.testing.assert_close(output(slow), output(fast), rtol=0, atol=1e-12)
    moves = []
    for attention in (slow, fast):
        before = attention.scaled_mixing().detach() / attention.scaling
        optimiser = torch.optim.Adam([attention.mixing], lr=1e-3, eps=0)
        output(attention).square().sum().backward()
        optimiser.step()
        moves.append((attention.scaled_mixing().detach() / attention.scaling - before).abs())
    torch.testing.assert_close(moves[0], torch.full_like(moves[0], 1e-3), rtol=1e-6, atol=0)
    torch.testing.assert_close(moves[1], 10 * moves[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        ({}, {"mixing_speed": 10}, "self_attn: mixing speed is 1 in it, 10 here"),
        ({"mixing_speed": 10}, {}, "self_attn: mixing speed is 10 in it, 1 here"),
        ({}, {"learn_attention_scale": True}, "self_attn.log_scale is missing from it"),
        ({"learn_attention_scale": True}, {}, "self_attn.log_scale is not in this model"),
        (
            {"attention_scale": "variance"},
            {},
            "self_attn: scale (0 key, 1 embed, 2 variance) is 2 in it, 1 here",
        ),
    ],
)
def test_weights_of_another_start_are_refused(
    saved: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    weights = toy.model("transformer_collab", **saved).state_dict()
    with refusing(message):
        toy.model("transformer_collab", **given).load_state_dict(weights)


def test_a_matched_scale_is_the_checkpoints() -> None:
    """Whatever the mixing starts as in the model that loads it."""
    options = {"attention_scale": "variance", "key_dim": 8}
    saved, given = (
        toy.model("transformer_collab", mixing_init=init, **options).eval()
        for init in ("ones", "block")
    )
    given.load_state_dict(saved.state_dict())
    batch = toy.batch()
    assert torch.equal(saved(**batch)[0], given(**batch)[0])


def test_a_learnt_scale_costs_a_number_a_head() -> None:
    learnt, fixed, matched = (
        cost(toy.model("transformer_collab", **options))
        for options in ({"learn_attention_scale": True}, {}, {"attention_scale": "variance"})
    )
    assert learnt.parameters - fixed.parameters == 6 * 4  # attentions, heads
    assert learnt.attention_parameters - fixed.attention_parameters == 6 * 4
    assert matched == fixed


def test_roberta_has_no_such_rule() -> None:
    with pytest.raises(UserError, match="a rule for this project's initial weights"):
        roberta("roberta_collab", attention_scale="variance")
    model = roberta("roberta_collab", learn_attention_scale=True)
    assert sum(name.endswith("log_scale") for name, _ in model.named_parameters()) > 0
