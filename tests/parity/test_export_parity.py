"""Exported models compute what the originals compute, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import MultiheadAttention
from parity.test_prune_parity import ADAPTIVE, trained
from refusals import refusing
from torch import Tensor, nn
from toy import close

from collab_lab.export.model import plain
from collab_lab.export.standard_weights import NotExactError, plain_weights
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.gates import GatedAttention
from fairseq_collab.attention.latent import LatentAttention

pytestmark = pytest.mark.usefixtures("float64")

D, H, S, T, B = 12, 3, 7, 5, 2  # ordinary heads have size 4
#: Attentions that are ordinary ones: ``(d, H, ...)``.
EXACT = {
    "fewer key dimensions": {"key_dim": 2},
    "as many key dimensions as an ordinary head": {"key_dim": 4},
    "the other scale": {"key_dim": 3, "scale": "key"},
    "all key dimensions, dealt out": {"key_dim": 12, "mixing_init": "block"},
    "eight key dimensions, dealt out": {"key_dim": 8, "mixing_init": "block"},
    "all heads share one value": {"key_dim": 4, "value_heads": 1},
    "latent": {"latent_dim": 7},
    "smaller heads of a latent": {"latent_dim": 5, "qk_head_size": 3, "v_head_size": 2},
    "full mixing": {"key_dim": 4, "query_mixing": "full"},
    "own queries, narrow values": {"key_dim": 3, "query_mixing": "own", "v_head_size": 2},
    "gates": {"gate_speed": 1},
    "d/H": {},
    "small heads": {"qk_head_size": 3, "v_head_size": 2},
    "one dimension, scaled as four": {"qk_head_size": 1, "scale": "embed"},
}
NOT_EXACT = {
    "a head scores by 5 dimensions; standard heads here have 4": {"key_dim": 5},
    "a head scores by 6 dimensions; standard heads here have 4": {"qk_head_size": 6},
    "values have size 5; standard heads here have 4": {"v_head_size": 5},
}


def randomised(module: nn.Module) -> nn.Module:
    """Random weights; what mixing switches off stays off."""
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn_like(parameter) * 0.5
            parameter.copy_(torch.where(parameter == 0, 0, noise) if parameter.ndim > 1 else noise)
    return module.eval()


def attention(options: dict[str, Any]) -> HeadAttention:
    named = {
        "key_dim": CollaborativeAttention,
        "latent_dim": LatentAttention,
        "gate_speed": GatedAttention,
    }
    kind = next((named[name] for name in options if name in named), SeparateAttention)
    all_dimensions = {"query_mixing": "diagonal", "mixing_init": "xavier"}
    return randomised(kind(D, H, **{**(all_dimensions if "key_dim" in options else {}), **options}))


def attend(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1, 5:] = True
    causal = torch.full((T, S), float("-inf")).triu(3)
    return module(x, y, y, key_padding_mask=padding, attn_mask=causal)[0]


def check_same(ours: HeadAttention) -> None:
    stock = MultiheadAttention(D, H, encoder_decoder_attention=True).eval()
    stock.load_state_dict(plain_weights(ours, D // H))
    x, y = torch.randn(T, B, D), torch.randn(S, B, D)
    close(attend(stock, x, y), attend(ours, x, y))


@pytest.mark.parametrize("case", EXACT)
def test_an_attention_becomes_fairseqs(case: str) -> None:
    check_same(attention(EXACT[case]))


@pytest.mark.parametrize("reason", NOT_EXACT)
def test_an_attention_that_is_none_of_fairseqs(reason: str) -> None:
    with pytest.raises(NotExactError) as failure:
        plain_weights(attention(NOT_EXACT[reason]), D // H)
    assert str(failure.value) == reason


# ---- whole models -------------------------------------------------------------------------------

SIZED, LM = "transformer_headsize_n", "transformer_lm_collab"
SHARED = {"share_all_embeddings": True}


def model(arch: str, **options: Any) -> Trained:
    """A model with random weights; what mixing switches off stays off."""
    found = trained(arch, separate=False, **options)
    randomised(found.model)
    return found


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer_collab", {"key_dim": 3}),
        ("transformer_collab", {"key_dim": 2, "key_dim_in_encoder": "0"}),
        ("transformer_collab", {"key_dim": 16, "mixing_init": "block", **SHARED}),
        (SIZED, {"head_size": 3, "encoder_normalize_before": True}),
        (SIZED, {"heads_in_encoder": "2", "layernorm_embedding": True}),
        (SIZED, {"decoder_input_dim": 8, "decoder_output_dim": 12}),
        (SIZED, {"head_size": 2, "heads_in_encoder": "4,2", "heads_in_cross": "1,3"}),
        (SIZED, {"head_size": 2, "heads_in_encoder": "3", "heads_in_decoder": "5,2"}),
        (SIZED, {"heads_in_encoder": "4,0", "heads_in_decoder": "0", "heads_in_cross": "0,2"}),
    ],
    ids=str,
)
def test_a_translation_model_becomes_fairseqs(arch: str, options: dict[str, Any]) -> None:
    ours = model(arch, **options)
    stock = plain(ours).model
    assert type(stock) is TransformerModel
    batch = toy.batch()
    close(stock(**batch)[0], ours.model(**batch)[0])


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (LM, {"key_dim": 4, "share_decoder_input_output_embed": True}),
        (LM, {"key_dim": 3, "decoder_normalize_before": True}),
        (LM, {"key_dim": 4, **ADAPTIVE}),
        ("transformer_lm_headsize_n", {"head_size": 4, "heads_in_decoder": "3,1"}),
    ],
    ids=str,
)
def test_a_language_model_becomes_fairseqs(arch: str, options: dict[str, Any]) -> None:
    ours = model(arch, **options)
    stock = plain(ours).model
    assert type(stock) is TransformerLanguageModel
    tokens = toy.batch()["prev_output_tokens"]
    outputs = [one.double()(tokens)[0] for one in (stock, ours.model)]
    close(*outputs)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("transformer_collab", {"key_dim": 5}, "encoder.layers.0.self_attn"),
        (SIZED, {"heads_in_encoder": "3", "head_size": 5}, "standard heads here have 4"),
        (LM, {"key_dim": 4, "scale_attn": True}, "own language model ignores --scale-attn"),
    ],
)
def test_models_without_a_counterpart(arch: str, options: dict, message: str) -> None:
    with refusing(message):
        plain(model(arch, **options))
