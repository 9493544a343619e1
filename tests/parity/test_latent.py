"""Latent attention is its paper's equation in both of its forms, and DeepSeek's own layer.

Step by step under beam search, and what the cache holds: test_incremental.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import reference
import torch
import toy
from torch import Tensor
from toy import close
from toy_heads import ordinary
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from collab_common.errors import UserError
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.memory import Maps
from fairseq_collab.metrics.cost import cost, multiply_adds

pytestmark = pytest.mark.usefixtures("float64")

D, H, R, T, S, B = 24, 4, 9, 5, 6, 3
SIZES = {"qk_head_size": 5, "v_head_size": 7}
ARCH = "transformer_latent"


def attention(latent_dim: int = R, **options: Any) -> LatentAttention:
    """One with weights that hide no mistake behind zeros."""
    return toy.randomised(LatentAttention(D, H, latent_dim, **{**SIZES, **options}))


def absorbed(of: LatentAttention) -> Maps:
    """The maps with which it decodes."""
    maps = of.maps(decoding=True, static_kv=False)
    assert maps is not None
    return maps


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
def test_both_forms_are_the_equation(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output and all gradients, with padding, against one head after the other."""
    ours = attention(encoder_decoder_attention=True, scale="embed")
    maps = absorbed(ours) if form == "absorbed" else None
    monkeypatch.setattr(ours, "maps", lambda *_: maps)
    x, y = torch.randn(T, B, D, requires_grad=True), torch.randn(S, B, D, requires_grad=True)
    lengths = (S, S - 2, 1)
    padding = torch.arange(S) >= torch.tensor(lengths)[:, None]  # (B, S)
    output, weights = ours(x, y, y, key_padding_mask=padding, need_head_weights=True)
    named = dict(ours.named_parameters())
    expected = torch.stack(
        [
            reference.latent(x[:, b], y[:n, b], named, H, (D / H) ** -0.5)
            for b, n in enumerate(lengths)
        ],
        dim=1,
    )
    close(output, expected)
    assert weights is not None
    close(weights.sum(-1), torch.ones(H, B, T))
    direction, leaves = torch.randn_like(output), [x, y, *named.values()]
    found, wanted = (torch.autograd.grad((o * direction).sum(), leaves) for o in (output, expected))
    close(found, wanted)


def test_scores_and_values_are_the_same_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, x = attention(self_attention=True), torch.randn(T, B, D)
    expanded = ours(x, x, x, before_softmax=True)
    maps = absorbed(ours)
    monkeypatch.setattr(ours, "maps", lambda *_: maps)
    close(ours(x, x, x, before_softmax=True), expanded)


def test_a_whole_pass_takes_the_cheaper_form() -> None:
    """Absorbed only where the latent is smaller than a head: by multiply-adds of the two."""
    for latent_dim, wanted in ((5, True), (6, False), (R, False)):  # heads of (5 + 7) / 2
        maps = attention(latent_dim).maps(decoding=False, static_kv=False)
        assert (maps is not None) == wanted, latent_dim
    x = torch.randn(T, B, D)
    narrow = attention(5, self_attention=True)
    close(narrow(x, x, x)[0], ordinary(narrow)(x, x, x)[0])


def test_deepseeks_own_layer() -> None:
    """Its rotary part of size zero, and its normalisation of the latent taken out."""
    config = DeepseekV3Config(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=None,
        kv_lora_rank=R,
        qk_rope_head_dim=0,
        qk_nope_head_dim=SIZES["qk_head_size"],
        v_head_dim=SIZES["v_head_size"],
        attention_bias=True,
        attn_implementation="sdpa",  # eager takes the softmax in single precision
    )
    theirs = DeepseekV3Attention(config, layer_idx=0)
    theirs.kv_a_layernorm = torch.nn.Identity()
    ours = attention(self_attention=True)
    up = [
        getattr(ours, f"{name}_proj").weight.unflatten(0, (H, -1)) for name in "kv"
    ]  # (H, h_qk, r), (H, h_v, r)
    with torch.no_grad():
        ours.q_proj.bias.zero_()  # theirs has none
        theirs.q_proj.weight.copy_(ours.q_proj.weight)
        theirs.kv_a_proj_with_mqa.load_state_dict(ours.latent_proj.state_dict())
        theirs.kv_b_proj.weight.copy_(torch.cat(up, dim=1).flatten(0, 1))
        theirs.o_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(T, B, D)
    future = torch.full((T, T), float("-inf")).triu(1)
    nothing = torch.empty(B, T, 0)
    expected, _ = theirs(x.transpose(0, 1), (nothing, nothing), future.expand(B, 1, T, T))
    close(ours(x, x, x, attn_mask=future)[0], expected.transpose(0, 1))


def test_sizes_at_each_site_costs_and_refusals() -> None:
    task = toy.task()
    model = toy.model(ARCH, task, latent_dim=12, latent_dim_in_cross="3,5", heads_in_encoder="2,0")
    layers = model.decoder.layers
    assert [layer.encoder_attn.latent_dim for layer in layers] == [3, 5]
    assert [layer.self_attn.num_heads for layer in model.encoder.layers] == [2, 0]
    found = cost(model)
    assert (found.key_bytes_per_target_token, found.value_bytes_per_target_token) == (2 * 12 * 4, 0)
    assert (found.key_bytes_per_source_token, found.value_bytes_per_source_token) == (8 * 4, 0)
    default = toy.model(ARCH, task)
    assert default.decoder.layers[0].self_attn.latent_dim == 8  # half of 16
    # A token's d^2 for keys, and for values, become d r each after d r: equal where r = 2/3 d.
    assert multiply_adds(default) < multiply_adds(toy.model("transformer", task))
    with pytest.raises(UserError, match="latent_dim is 0; it must be at least 1"):
        toy.model(ARCH, task, latent_dim=0)
    with pytest.raises(UserError, match=r"--latent-dim-in-cross is '3,0'; .* from 1 up"):
        toy.model(ARCH, task, latent_dim_in_cross="3,0")
    with pytest.raises(ValueError, match="their inputs cannot have sizes 24 and 8"):
        LatentAttention(D, H, R, kdim=D, vdim=8)
    x = torch.randn(T, B, D)
    with pytest.raises(ValueError, match="come from one latent: give the same input for both"):
        attention()(x, x, x.clone())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decoder_attention_heads": 2}, "heads is 4 in it, 2 here"),
        ({"latent_dim": 6}, "latent dimension is 8 in it, 6 here"),
        ({"attention_scale": "embed"}, r"scale \(0 key, 1 embed\) is 0 in it, 1 here"),
        ({"v_head_size": 2}, "value head size is 4 in it, 2 here"),
    ],
)
def test_a_checkpoint_of_other_sizes_is_refused(given: dict[str, Any], message: str) -> None:
    task = toy.task()
    saved = toy.model(ARCH, task).state_dict()
    with pytest.raises(UserError, match=message):
        toy.model(ARCH, task, **given).load_state_dict(saved)


def test_another_kind_of_heads_is_refused() -> None:
    task = toy.task()
    models: list[Tensor] = [toy.model(arch, task) for arch in (ARCH, "transformer_collab")]
    with pytest.raises(UserError, match=r"kind .*6 latent\) is 2 in it, 6 here"):
        models[0].load_state_dict(models[1].state_dict())
