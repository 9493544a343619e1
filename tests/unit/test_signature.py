"""Weights that would load but mean something else are refused, in a sentence that says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention
from fairseq_collab.attention.collaborative import CollaborativeSignature
from fairseq_collab.attention.concatenated import ConcatenatedSignature
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.head_groups import HeadGroupAttention

OPTIONS: dict[str, Any] = {"key_dim": 8}


def load(saved: nn.Module, given: nn.Module) -> None:
    given.load_state_dict(saved.state_dict(), strict=True)


def ours(symbols: Any = None, **options: Any) -> nn.Module:
    return toy.model("transformer_collab", symbols, **{**OPTIONS, **options})


def test_the_same_options_load() -> None:
    load(ours(), ours())
    load(ours(mixing_init="block"), ours(mixing_init="normal"))  # initial values do not matter


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encoder_attention_heads": 2},
            "encoder.layers.0.self_attn: heads is 4 in it, 2 here (and 7 more differences)",
        ),
        ({"key_dim": 4}, "encoder.layers.0.self_attn: key width is 8 in it, 4 here"),
        (
            {"attention_scale": "key"},
            "encoder.layers.0.self_attn: scale (0 key, 1 embed) is 1 in it, 0 here",
        ),
        (
            {"attention_bias": "content"},
            "encoder.layers.0.self_attn: bias (0 projection, 1 content, 2 none) is 0 in it, 1 here",
        ),
        (
            {"key_dim_in_cross": "0"},
            "decoder.layers.0.encoder_attn: kind (1 concatenated, 2 collaborative, 3 grouped, "
            "4 gated, 5 grouped query, 6 latent, 7 MFA) is 2 in it, 1 here",
        ),
        (
            {"encoder_ffn_embed_dim": 32},
            "encoder.layers.0.fc1.weight has shape (24, 16) in it, (32, 16) here",
        ),
        ({"decoder_layers": 3}, "decoder.layers.2.self_attn.mixing is missing from it"),
        ({"decoder_layers": 1}, "decoder.layers.1.self_attn.mixing is not in this model"),
    ],
)
def test_a_difference_is_named_with_both_values(options: dict, message: str) -> None:
    with refusing(message):
        load(ours(), ours(**options))


def test_not_strict_weights_may_be_missing_or_too_many_but_not_others() -> None:
    deep, shallow = ours(decoder_layers=3), ours(decoder_layers=1)
    found = shallow.load_state_dict(deep.state_dict(), strict=False)
    assert any(name.startswith("decoder.layers.2.") for name in found.unexpected_keys)
    found = deep.load_state_dict(shallow.state_dict(), strict=False)
    assert any(name.startswith("decoder.layers.2.") for name in found.missing_keys)
    with pytest.raises(UserError, match="key width is 8 in it, 4 here"):
        ours(key_dim=4).load_state_dict(deep.state_dict(), strict=False)
    with pytest.raises(UserError, match="is missing from it"):
        deep.load_state_dict(shallow.state_dict())  # as if nothing had been


def test_a_stock_transformer_is_recognised() -> None:
    with pytest.raises(UserError, match=r"carries no signatures.*plain fairseq transformer"):
        load(toy.model("transformer"), ours())


def test_a_dictionary_of_the_same_size_with_another_order() -> None:
    symbols = toy.task()
    swapped = toy.task()
    words = swapped.target_dictionary
    words.symbols[5], words.symbols[6] = words.symbols[6], words.symbols[5]
    with refusing("the encoder's dictionary has the same size (24) but other symbols"):
        load(ours(symbols), ours(swapped))


def test_a_dictionary_of_another_size() -> None:
    with pytest.raises(UserError, match="the encoder's dictionary has 24 symbols in it, 34 here"):
        load(ours(), ours(toy.task(30)))


def test_signatures_survive_half_precision() -> None:
    symbols = toy.task()
    load(ours(symbols).half(), ours(symbols))
    load(ours(symbols).bfloat16(), ours(symbols))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads_in_cross": "4,2"}, "decoder.layers.1.encoder_attn: heads is 4 in it, 2 here"),
        ({"qk_head_size": 2, "heads_in_encoder": "8"}, "heads is 4 in it, 8 here"),
        ({"attention_scale": "embed"}, "scale (0 key, 1 embed) is 0 in it, 1 here"),
        ({"v_head_size": 3}, "value head size is 4 in it, 3 here"),
    ],
)
def test_other_head_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    saved = toy.model("transformer_headsize_n", head_size=4)
    given = toy.model("transformer_headsize_n", **{"head_size": 4, **options})
    with refusing(message):
        load(saved, given)


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
