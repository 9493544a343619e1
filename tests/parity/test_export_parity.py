"""Exported models compute what the originals compute, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel
from parity.test_prune_parity import ADAPTIVE, trained
from refusals import refusing
from torch import nn
from toy import close

from collab_lab.export.engine_support import other_attention
from collab_lab.export.plain import plain
from collab_lab.trained.checkpoint import Trained

pytestmark = pytest.mark.usefixtures("float64")


def randomised(module: nn.Module) -> nn.Module:
    """Random weights; what mixing switches off stays off."""
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn_like(parameter) * 0.5
            parameter.copy_(torch.where(parameter == 0, 0, noise) if parameter.ndim > 1 else noise)
    return module.eval()


COLLAB, SIZED = "transformer_collab", "transformer_headsize_n"
LM = "transformer_lm_collab"
SHARED = {"share_all_embeddings": True}


def model(arch: str, **options: Any) -> Trained:
    """A model with random weights; what mixing switches off stays off."""
    found = trained(arch, separate=False, **options)
    randomised(found.model)
    return found


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (COLLAB, {"key_dim": 3, "attention_scale": "key"}),
        (COLLAB, {"key_dim": 2, "key_dim_in_encoder": "0", "value_heads": 1}),
        (COLLAB, {"key_dim": 8, "mixing_init": "block", "query_mixing": "diagonal"}),
        (COLLAB, {"key_dim": 3, "query_mixing": "own", "v_head_size": 2}),
        ("transformer_latent", {"latent_dim": 5, "qk_head_size": 3, "v_head_size": 2}),
        ("transformer_latent", {"latent_dim": 5, "shared_latent_in_cross": 16}),
        (COLLAB, {"encoder_attention_heads": 3, "key_dim": 3, "v_head_size": 4}),
        (COLLAB, {"decoder_attention_heads": 3, "key_dim": 3, "v_head_size": 4, "value_heads": 1}),
        ("transformer_gated_heads", {"gate_speed": 2}),
        (SIZED, {"qk_head_size": 1, "attention_scale": "embed"}),
        (COLLAB, {"key_dim": 16, "mixing_init": "block", **SHARED}),
        (SIZED, {"head_size": 3, "encoder_normalize_before": True}),
        (SIZED, {"heads_in_encoder": "2", "layernorm_embedding": True}),
        (SIZED, {"decoder_input_dim": 8, "decoder_output_dim": 12}),
        (SIZED, {"head_size": 2, "heads_in_encoder": "4,2", "heads_in_cross": "1,3"}),
        (SIZED, {"head_size": 2, "heads_in_encoder": "3", "heads_in_decoder": "5,2"}),
        (SIZED, {"heads_in_encoder": "4,0", "heads_in_decoder": "0", "heads_in_cross": "0,2"}),
        (SIZED, {"ffn_dims_in_encoder": "7,24", "ffn_dims_in_decoder": "5,3"}),
        (SIZED, {"ffn_dims_in_encoder": "0,24", "ffn_dims_in_decoder": "0"}),
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
    ("heads", "exact"), [("4,2", True), ("3,1", True), ("1,4", True), ("4,3", False)]
)
def test_heads_that_fill_up_keep_the_mean_attention(heads: str, exact: bool) -> None:
    """Where each of the model's heads can be there equally often; else order is kept."""
    ours = model(SIZED, head_size=3, heads_in_cross=heads, heads_in_decoder="4")
    batch = toy.batch()
    found, expected = (m(**batch)[1]["attn"][0] for m in (plain(ours).model, ours.model))
    assert (other_attention(ours, "fairseq") is None) == exact
    assert other_attention(ours, "ct2") is None
    if exact:
        close(found, expected)
    else:
        assert not torch.allclose(found, expected)
        assert torch.equal(found.argsort(-1), expected.argsort(-1))


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (LM, {"key_dim": 4, "share_decoder_input_output_embed": True}),
        (LM, {"key_dim": 3, "decoder_normalize_before": True}),
        (LM, {"key_dim": 4, **ADAPTIVE}),
        ("transformer_lm_headsize_n", {"head_size": 4, "heads_in_decoder": "3,1"}),
        ("transformer_lm_headsize_n", {"ffn_dims_in_decoder": "9,4"}),
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
        (COLLAB, {"key_dim": 5}, "encoder.layers.0.self_attn"),
        (SIZED, {"heads_in_encoder": "3", "head_size": 5}, "5 dimensions"),
        (SIZED, {"v_head_size": 5}, "5 dimensions"),
        (LM, {"key_dim": 4, "scale_attn": True}, "--scale-attn"),
    ],
)
def test_models_without_a_counterpart(arch: str, options: dict, message: str) -> None:
    with refusing(message):
        plain(model(arch, **options))
