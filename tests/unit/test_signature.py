"""Weights that would load but mean something else are refused, in a sentence that says why."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from torch import nn
from toy_language_models import language_model, task

from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.collaborative import CollaborativeSignature
from fairseq_collab.attention.concatenated import ConcatenatedSignature
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.groups import HeadGroupAttention

COLLAB, SIZED, LATENT = "transformer_collab", "transformer_headsize_n", "transformer_latent"
GROUPED, GATED = "transformer_grouped_heads", "transformer_gated_heads"
LM = "transformer_lm_collab"
TWO_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "head_size": 4}


def build(arch: str, options: dict[str, Any], symbols: Any = None) -> nn.Module:
    """A model whose sizes make the same shapes as other numbers of heads would."""
    sizes = {COLLAB: {"key_dim": 8}, SIZED: {"head_size": 4}}.get(arch, {})
    make = language_model if arch.startswith("transformer_lm") else toy.model
    return make(arch, symbols, **{**sizes, **options})


def load(saved: nn.Module, given: nn.Module) -> None:
    given.load_state_dict(saved.state_dict(), strict=True)


def ours(**options: Any) -> nn.Module:
    return build(COLLAB, options)


def reordered(symbols: Any) -> Any:
    """A task whose dictionary has two of its symbols in each other's place."""
    words = symbols.target_dictionary
    words.symbols[5], words.symbols[6] = words.symbols[6], words.symbols[5]
    return symbols


@pytest.mark.parametrize(
    ("arch", "saved", "given", "message"),
    [
        (COLLAB, {}, {"encoder_attention_heads": 2}, "heads is 4 in it, 2 here (and 7 more"),
        (COLLAB, {}, {"key_dim": 4}, "encoder.layers.0.self_attn: key width is 8 in it, 4 here"),
        (COLLAB, {}, {"attention_scale": "key"}, "scale (0 key, 1 embed) is 1 in it, 0 here"),
        (COLLAB, {}, {"attention_bias": "content"}, "2 none) is 0 in it, 1 here"),
        (COLLAB, {}, {"key_dim_in_cross": "0"}, "7 MFA) is 2 in it, 1 here"),
        (COLLAB, {"query_mixing": "full"}, {}, "2 own) is 1 in it, 0 here"),
        (COLLAB, {}, {"query_mixing": "own"}, "2 own) is 0 in it, 2 here"),
        (COLLAB, {"value_heads": 2}, {}, "value heads is 2 in it, 4 here"),
        (COLLAB, {"value_heads": 2}, {"value_heads": 1}, "value heads is 2 in it, 1 here"),
        (COLLAB, {}, {"encoder_ffn_embed_dim": 32}, "has shape (24, 16) in it, (32, 16) here"),
        (COLLAB, {}, {"decoder_layers": 3}, "decoder.layers.2.self_attn.mixing is missing from"),
        (COLLAB, {}, {"decoder_layers": 1}, "decoder.layers.1.self_attn.mixing is not in this"),
        (SIZED, {}, {"heads_in_cross": "4,2"}, "layers.1.encoder_attn: heads is 4 in it, 2 here"),
        (SIZED, {}, {"qk_head_size": 2, "heads_in_encoder": "8"}, "heads is 4 in it, 8 here"),
        (SIZED, {}, {"attention_scale": "embed"}, "scale (0 key, 1 embed) is 0 in it, 1 here"),
        (SIZED, {}, {"v_head_size": 3}, "value head size is 4 in it, 3 here"),
        (LATENT, {}, {"decoder_attention_heads": 2}, "heads is 4 in it, 2 here"),
        (LATENT, {}, {"latent_dim": 6}, "latent dimension is 8 in it, 6 here"),
        (LATENT, {}, {"attention_scale": "embed"}, "scale (0 key, 1 embed) is 0 in it, 1 here"),
        (
            "transformer_grouped_query",
            {"key_value_heads": 2},
            {"key_value_heads": 1, "encoder_attention_heads": 2},
            "heads is 4 in it, 2 here",
        ),
        ("transformer_mfa", {"heads_in_cross": "3"}, {}, "heads is 3 in it, 4 here"),
        (LM, {}, {"decoder_attention_heads": 2}, "decoder.layers.0.self_attn: heads is 4 in it"),
        (GROUPED, {"head_groups": 2}, {}, "layers.0.self_attn: groups is 2 in it, 1 here"),
        (GROUPED, {"group_feature": "output"}, {}, "2 output) is 2 in it, 0 here"),
        (GATED, {"gate_speed": 2}, {}, "layers.0.self_attn: gate speed is 2 in it, 1 here"),
        (GATED, {"gated_types": "cross"}, {}, "is 1 in it, 4 here"),
    ],
)
def test_a_difference_is_named_with_both_values(
    arch: str, saved: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with refusing(message):
        load(build(arch, saved), build(arch, given))


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (lambda: toy.model("transformer"), ours, "stock fairseq: it contains no signatures"),
        (lambda: toy.model("transformer"), ours, "fairseq-collab reparametrize"),
        (lambda: language_model("transformer_lm"), lambda: build(LM, {}), "collab reparametrize"),
        (ours, lambda: build(LATENT, {}), "7 MFA) is 2 in it, 6 here"),
        (ours, lambda: build(GROUPED, {}), "is 2 in it, 3 here"),
        (lambda: build(GROUPED, {}), lambda: build(GATED, {}), "is 3 in it, 4 here"),
        *(
            (lambda: build(SIZED, TWO_HEADS), partial(build, kind, {}), "heads is 2 in it, 4 here")
            for kind in (GROUPED, GATED)
        ),
        (ours, lambda: build(COLLAB, {}, toy.task(30)), "dictionary has 24 symbols in it, 34 here"),
        (
            ours,
            lambda: build(COLLAB, {}, reordered(toy.task())),
            "the encoder's dictionary has the same size (24) but other symbols",
        ),
        (
            lambda: build(LM, {}),
            lambda: build(LM, {}, reordered(task())),
            "the decoder's dictionary has the same size (24) but other symbols",
        ),
    ],
)
def test_other_models_and_dictionaries(saved: Any, given: Any, message: str) -> None:
    with refusing(message):
        load(saved(), given())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_same_model_loads(dtype: torch.dtype) -> None:
    """Also in half precision; initial values do not matter."""
    load(ours(mixing_init="block").to(dtype), ours(mixing_init="normal"))


def test_not_strict_weights_may_be_missing_or_too_many_but_not_others() -> None:
    deep, shallow = ours(decoder_layers=3), ours(decoder_layers=1)
    assert shallow.load_state_dict(deep.state_dict(), strict=False).unexpected_keys
    assert deep.load_state_dict(shallow.state_dict(), strict=False).missing_keys
    with refusing("key width is 8 in it, 4 here"):
        ours(key_dim=4).load_state_dict(deep.state_dict(), strict=False)
    with refusing("is missing from it"):
        deep.load_state_dict(shallow.state_dict())  # as if nothing had been


@pytest.mark.parametrize(
    ("attention", "numbers"),
    [
        (ConcatenatedAttention(12, 3, qk_head_size=5), [1, 1, 3, 5, 4, 0]),
        (CollaborativeAttention(12, 3, 5, bias="none", scale="key"), [1, 2, 3, 5, 4, 0, 2, 3, 0]),
        (
            CollaborativeAttention(12, 3, 5, query_mixing="own", value_heads=1),
            [1, 2, 3, 5, 4, 1, 0, 1, 2],
        ),
        (HeadGroupAttention(12, 3, groups=2, feature="output"), [1, 3, 3, 4, 4, 0, 2, 2]),
        (GatedAttention(12, 3, gate_speed=7, scale="embed"), [1, 4, 3, 4, 4, 1, 7]),
    ],
)
def test_numbers_in_checkpoints_stay(attention: Any, numbers: list[int]) -> None:
    """Version, kind, and the fields in their order: checkpoints of earlier versions have these."""
    assert attention.signature.dtype == torch.int64
    assert attention.signature.tolist() == numbers
    described = attention.describe()
    assert type(described).from_tensor(attention.signature) == described
    assert not list(described.diff(attention.signature))


def test_signatures_of_another_kind_or_version() -> None:
    found = ConcatenatedSignature(4, 2, 2, "key")
    with pytest.raises(ValueError, match="is no CollaborativeSignature"):
        CollaborativeSignature.from_tensor(found.to_tensor())
    later = found.to_tensor() + torch.tensor([1, 0, 0, 0, 0, 0])
    with pytest.raises(ValueError, match="is no ConcatenatedSignature"):
        ConcatenatedSignature.from_tensor(later)
    assert list(found.diff(later)) == ["signature version is 2 in it, 1 here"]
