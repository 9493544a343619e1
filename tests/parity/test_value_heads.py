"""Collaborative heads that share values: grouped values under the paper's queries and keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from reference import collaborative_fork
from torch.nn.functional import scaled_dot_product_attention
from toy import close

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.collaborative import CollaborativeSignature
from fairseq_collab.metrics.cost import cost

pytestmark = pytest.mark.usefixtures("float64")

D, H, K, T, S, B = 24, 4, 7, 5, 6, 3
h = D // H
ARCH = "transformer_collab"


def attention(value_heads: int, **options: Any) -> CollaborativeAttention:
    """One with weights that hide no mistake behind zeros."""
    return toy.randomised(CollaborativeAttention(D, H, K, value_heads=value_heads, **options))


@pytest.mark.parametrize("value_heads", [1, 2])
def test_it_is_the_equation_with_a_copy_of_values_for_each_head(value_heads: int) -> None:
    """Output and all gradients, with padding, against one head after the other."""
    ours = attention(value_heads, encoder_decoder_attention=True)
    x, y = torch.randn(T, B, D, requires_grad=True), torch.randn(S, B, D, requires_grad=True)
    lengths = (S, S - 2, 1)
    padding = torch.arange(S) >= torch.tensor(lengths)[:, None]  # (B, S)
    output, _ = ours(x, y, y, key_padding_mask=padding)
    named = dict(ours.named_parameters())
    copies = dict(named)
    for name in ("v_proj.weight", "v_proj.bias"):
        by_group = named[name].unflatten(0, (value_heads, h))
        copies[name] = by_group.repeat_interleave(H // value_heads, dim=0).flatten(0, 1)
    by_sentence = [
        collaborative_fork(x[:, b], y[:n, b], copies, D) for b, n in enumerate(lengths)
    ]  # fmt: skip
    expected = torch.stack(by_sentence, dim=1)
    close(output, expected)
    direction, leaves = torch.randn_like(output), [x, y, *named.values()]
    found, wanted = (torch.autograd.grad((o * direction).sum(), leaves) for o in (output, expected))
    close(found, wanted)


@pytest.mark.parametrize("value_heads", [1, 2, 4])
def test_torchs_own_grouped_attention(value_heads: int) -> None:
    """With the one key as that of each group; and our fused kernel on long inputs."""
    ours = attention(value_heads, self_attention=True, bias="content").eval()
    x = torch.randn(300, 2, D)
    k, v = ours.project_key(x).expand(-1, value_heads, -1, -1), ours.project_value(x)
    heads = scaled_dot_product_attention(ours.project_query(x), k, v, scale=1.0, enable_gqa=True)
    expected = ours.out_proj(heads.permute(2, 0, 1, 3).flatten(2))
    close(ours(x, x, x)[0], expected)
    close(ours(x, x, x, need_weights=False)[0], expected)


def test_as_many_values_as_heads_is_the_papers_layer_bit_for_bit() -> None:
    layers = []
    for options in ({}, {"value_heads": H}):
        torch.manual_seed(1)
        layers.append(CollaborativeAttention(D, H, K, self_attention=True, **options))
    states = [layer.state_dict() for layer in layers]
    assert [*states[0]] == [*states[1]]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[1]["signature"].tolist() == [1, 2, H, K, h, 1, 0]  # as before there was a choice
    assert CollaborativeSignature.from_tensor(states[0]["signature"]).value_heads == H
    assert "value heads" not in layers[1].describe().numbers()
    x = torch.randn(T, B, D)
    assert torch.equal(*(layer(x, x, x)[0] for layer in layers))


def test_the_signature_of_shared_values_comes_back() -> None:
    signature = attention(2).describe()
    assert CollaborativeSignature.from_tensor(signature.to_tensor()) == signature
    for numbers in ([1, 2, H, K, h, 1], [1, 2, H, K, h, 1, 0, 2, 2, 2]):
        with pytest.raises(ValueError, match="is no CollaborativeSignature"):
            CollaborativeSignature.from_tensor(torch.tensor(numbers))


@pytest.mark.parametrize(("saved", "given"), [(None, 2), (2, None), (2, 1)])
def test_a_checkpoint_with_other_values_is_refused(saved: int | None, given: int | None) -> None:
    task = toy.task()
    state = toy.model(ARCH, task, value_heads=saved).state_dict()
    message = f"value heads is {saved or 4} in it, {given or 4} here"
    with pytest.raises(UserError, match=message):
        toy.model(ARCH, task, value_heads=given).load_state_dict(state)


def test_numbers_at_each_site_and_refusals() -> None:
    task = toy.task()
    model = toy.model(
        ARCH, task, value_heads=2, value_heads_in_cross="1,4", key_dim=4, key_dim_in_decoder="4,0"
    )
    layers = model.decoder.layers
    assert [layer.encoder_attn.value_heads for layer in layers] == [1, 4]
    assert {layer.self_attn.value_heads for layer in model.encoder.layers} == {2}
    found = cost(model)  # d = 16: values of size 4; ordinary heads in the decoder's second layer
    assert found.value_bytes_per_source_token == (1 + 4) * 4 * 4
    assert found.value_bytes_per_target_token == (2 * 4 + 16) * 4
    with pytest.raises(UserError, match="4 heads do not share 3 value heads evenly"):
        toy.model(ARCH, task, value_heads=3)
    with pytest.raises(UserError, match="value_heads is 0; it must be at least 1"):
        toy.model(ARCH, task, value_heads=0)
    with pytest.raises(UserError, match=r"--value-heads-in-encoder is '0'; .* from 1 up"):
        toy.model(ARCH, task, value_heads_in_encoder="0")
