"""Grouped-query attention is its papers' equation, and concatenated heads at both ends.

Step by step under beam search, and what the cache holds: test_incremental.py.
"""

from __future__ import annotations

import pytest
import torch
import toy
from torch.nn.functional import scaled_dot_product_attention
from toy import close

from collab_common.errors import UserError
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.metrics.cost import cost

pytestmark = pytest.mark.usefixtures("float64")

D, H, T, S, B = 24, 4, 5, 6, 3
h = D // H
GROUPS = (1, 2, 4)
ARCH = "transformer_grouped_query"


def attention(groups: int, **options: bool) -> GroupedQueryAttention:
    """One with weights that hide no mistake behind zeros."""
    return toy.randomised(GroupedQueryAttention(D, H, groups, **options))


@pytest.mark.parametrize("groups", GROUPS)
def test_it_is_the_equation(groups: int) -> None:
    """Output and all gradients, with padding, against torch's own grouped queries."""
    ours = attention(groups, encoder_decoder_attention=True)
    x, y = torch.randn(T, B, D, requires_grad=True), torch.randn(S, B, D, requires_grad=True)
    padding = torch.arange(S) >= torch.tensor([[S], [S - 2], [1]])  # (B, S)
    output, weights = ours(x, y, y, key_padding_mask=padding, need_head_weights=True)
    parts = [(ours.q_proj, x, H), (ours.k_proj, y, groups), (ours.v_proj, y, groups)]
    q, k, v = (p(z).view(len(z), B, n, h).permute(1, 2, 0, 3) for p, z, n in parts)
    heads = scaled_dot_product_attention(q, k, v, ~padding[:, None, None], enable_gqa=True)
    expected = ours.out_proj(heads.permute(2, 0, 1, 3).flatten(2))
    close(output, expected)
    assert weights is not None
    close(weights.sum(-1), torch.ones(H, B, T))
    direction, leaves = torch.randn_like(output), [x, y, *ours.parameters()]
    found, wanted = (torch.autograd.grad((o * direction).sum(), leaves) for o in (output, expected))
    close(found, wanted)


def test_as_many_groups_as_heads_is_fairseqs_transformer() -> None:
    task = toy.task()
    models = []
    for arch, options in (("transformer", {}), (ARCH, {"key_value_heads": 4})):
        torch.manual_seed(1)
        models.append(toy.model(arch, task, **options).eval())
    ours = {k: v for k, v in models[1].state_dict().items() if not k.endswith("signature")}
    for name, weight in ours.items():
        if "attn" in name:
            assert torch.equal(weight, models[0].state_dict()[name]), name


def test_counts_at_each_site_and_refusals() -> None:
    task = toy.task()
    model = toy.model(ARCH, task, key_value_heads=2, key_value_heads_in_cross="1,4")
    layers = model.decoder.layers
    assert [layer.encoder_attn.key_value_heads for layer in layers] == [1, 4]
    assert {layer.self_attn.key_value_heads for layer in layers} == {2}
    plain = cost(toy.model(ARCH, task, key_value_heads=4))
    assert cost(model).key_bytes_per_target_token * 2 == plain.key_bytes_per_target_token
    with pytest.raises(UserError, match="4 heads do not share 3 key/value heads evenly"):
        toy.model(ARCH, task, key_value_heads=3)


def test_a_checkpoint_of_other_heads_is_refused_though_its_shapes_fit() -> None:
    """Two key/value heads for four heads are as wide as one for two."""
    task = toy.task()
    saved = toy.model(ARCH, task, key_value_heads=2)
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    with pytest.raises(UserError, match="heads is 4 in it, 2 here"):
        toy.model(ARCH, task, key_value_heads=1, **heads).load_state_dict(saved.state_dict())
