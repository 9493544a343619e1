"""Options of the models: what builds and runs, and what is refused in one line."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest
import torch
import toy
from fairseq.modules.fairseq_dropout import FairseqDropout
from refusals import refusing
from torch import nn
from toy_language_models import language_model

from collab_common.errors import UserError
from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.models.collaborative import CollabOptions
from fairseq_collab.models.config import preset
from fairseq_collab.models.layers import is_copy
from fairseq_collab.models.site_options import named_sites


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_dim": -1}, "key_dim is -1; it must be at least 1"),
        ({"encoder_attention_heads": 3}, "model size 16 does not divide by 3 heads"),
        ({"key_dim_in_encoder": "4,2,1"}, "--key-dim-in-encoder is '4,2,1'; it must be a number"),
        ({"key_dim_in_decoder": "-1"}, "--key-dim-in-decoder is '-1'; it must be a number from 0"),
        ({"key_dim_in_cross": "four"}, "or 2 of them (one for each layer) joined by commas"),
        ({"query_mixing": "none"}, "query mixing is 'none'; it must be one of diagonal, full, own"),
        ({"v_head_size": 0}, "v_head_size is 0; it must be at least 1"),
        ({"attention_scale": "sum"}, "attention scale is 'sum'; it must be one of key, embed"),
        ({"quant_noise_pq": 0.1}, "--quant-noise-pq quantises fairseq's own attention modules"),
        ({"quant_noise_scalar": 0.1}, "--quant-noise-scalar quantises fairseq's own attention"),
        ({"encoder_xformers_att_config": "{}"}, "xFormers replaces fairseq's own attention"),
        (
            {"cross_self_attention": True, "no_cross_attention": True},
            "--cross-self-attention caches the encoder's states once a beam; here the beams of a "
            "sentence share their cache: leave the option out",
        ),
        (
            {"share_all_embeddings": True, "encoder_embed_dim": 8},
            "--share-all-embeddings requires --encoder-embed-dim to match",
        ),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with refusing(message):
        toy.model("transformer_collab", **options)


def test_torchscript_is_refused() -> None:
    """Of a model, and of what holds it, as fairseq's generators do."""
    for module in (model := toy.model("transformer_headsize_n"), nn.ModuleList([model])):
        with refusing("TorchScript cannot compile models with this attention; fairseq-collab expo"):
            torch.jit.script(module)


@pytest.mark.parametrize(
    "options", [{"heads_in_cross": "4,0"}, {"no_cross_attention": True}, {"decoder_layers": 0}]
)
def test_alignments_of_a_layer_that_attends_to_no_source(options: dict[str, Any]) -> None:
    model = toy.model("transformer_headsize_n", **options)
    with refusing("--print-alignment: the last layer of the decoder has no heads that attend to"):
        model.make_generation_fast_(need_attn="hard")
    model.make_generation_fast_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_size": 0}, "qk_head_size is 0; it must be at least 1"),
        ({"v_head_size": 0}, "v_head_size is 0; it must be at least 1"),
        ({"key_dim": 6}, "--key-dim 6 does not deal out evenly to 4 heads"),
        ({"key_dim": 0}, "--key-dim 0 does not deal out evenly to 4 heads"),
        ({"key_dim": 8, "qk_head_size": 2}, "--key-dim and --qk-head-size both say"),
        (
            {"heads_in_encoder": "4,2,1"},
            "--heads-in-encoder is '4,2,1'; it must be a number from 0 up, or 2",
        ),
        (
            {"heads_in_cross": "4,-1"},
            "--heads-in-cross is '4,-1'; it must be a number from 0 up, or 2",
        ),
        ({"heads_in_decoder": "four"}, "--heads-in-decoder is 'four'"),
        ({"heads_in_encoder": "3"}, "model size 16 does not divide by 3 heads"),
        ({"attention_scale": "head"}, "attention scale is 'head'; it must be one of key, embed"),
        ({"key_init": "xavier"}, "key init is 'xavier'; it must be one of constant, fork"),
        ({"value_init": "big"}, "value init is 'big'; it must be one of constant, fork"),
    ],
)
def test_refusals_of_head_sizes(options: dict[str, Any], message: str) -> None:
    with refusing(message):
        toy.model("transformer_headsize_n", **options)


def test_head_counts_per_site_and_layer() -> None:
    """Sixteen does not divide by three, five or seven: with a head size it need not."""
    model = toy.model(
        "transformer_headsize_n",
        head_size=6,
        v_head_size=3,
        heads_in_encoder="5,3",
        heads_in_cross="7",
    )
    found = {
        name: (module.num_heads, module.qk_head_size, module.v_head_size)
        for name, module in model.named_modules()
        if name.endswith("_attn")
    }
    assert found == {
        "encoder.layers.0.self_attn": (5, 6, 3),
        "encoder.layers.1.self_attn": (3, 6, 3),
        "decoder.layers.0.self_attn": (4, 6, 3),
        "decoder.layers.0.encoder_attn": (7, 6, 3),
        "decoder.layers.1.self_attn": (4, 6, 3),
        "decoder.layers.1.encoder_attn": (7, 6, 3),
    }


def test_key_dim_is_dealt_out_in_every_layer() -> None:
    model = toy.model("transformer_headsize_n", key_dim=12, head_size=5, heads_in_encoder="6,2")
    sizes = [layer.self_attn.qk_head_size for layer in model.encoder.layers]
    assert sizes == [2, 6]
    assert model.encoder.layers[0].self_attn.v_head_size == 5


def test_sites() -> None:
    assert named_sites("--sites", "none", or_none=True) == ()
    assert named_sites("--sites", "cross,encoder") == ("encoder", "cross")
    with pytest.raises(ValueError, match=r"^--sites is 'none'; it must name .* joined by commas$"):
        named_sites("--sites", "none")
    model = toy.model("transformer_collab", key_dim_in_encoder="0", key_dim_in_cross="0")
    kinds = {
        name: hasattr(module, "mixing")
        for name, module in model.named_modules()
        if name.endswith("_attn")
    }
    assert all(kinds[name] == ("decoder" in name and "self_attn" in name) for name in kinds)


def test_key_dims_per_site_and_layer() -> None:
    """Ordinary heads where it is 0."""
    model = toy.model(
        "transformer_collab", key_dim=5, key_dim_in_encoder="7,0", key_dim_in_cross="3"
    )
    first, second = (layer.self_attn for layer in model.encoder.layers)
    assert first.key_dim == 7
    assert isinstance(second, ConcatenatedAttention)
    for layer in model.decoder.layers:
        assert (layer.self_attn.key_dim, layer.encoder_attn.key_dim) == (5, 3)
    assert model(**toy.batch())[0].isfinite().all()


def test_a_preset_with_an_unknown_option_is_an_error() -> None:
    with pytest.raises(ValueError, match="preset typo: no such options: key_dims"):
        preset(CollabOptions, "typo", key_dims=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_forward_and_backward(dtype: torch.dtype) -> None:
    model = toy.model("transformer_collab", key_dim=5).to(dtype)
    logits, _ = model(**toy.batch())
    assert logits.dtype == dtype
    logits.float().square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_layer_drop_drops_layers_in_training() -> None:
    torch.manual_seed(0)
    model = toy.model("transformer_collab", encoder_layerdrop=0.9, decoder_layerdrop=0.9)
    model.train()
    assert len(list(model.encoder.layers)) < 2
    model.eval()
    assert len(list(model.encoder.layers)) == 2


def test_layers_that_are_kept_have_the_sizes_that_they_had() -> None:
    """Options of single layers speak of those of the whole model; fairseq sorts what it keeps."""
    counts = {"heads_in_encoder": "4,3,2,1", "head_size": 3, "encoder_layers": 4}
    full = toy.model("transformer_headsize_n", **counts)
    choice = {"encoder_layers_to_keep": "3,0", "decoder_layers_to_keep": "0,1"}
    short = toy.model("transformer_headsize_n", **counts, **choice)
    assert [layer.self_attn.num_heads for layer in short.encoder.layers] == [4, 1]
    kept = Namespace(arch="transformer_headsize_n", **choice)
    short.load_state_dict(full.state_dict(), strict=True, model_cfg=kept)
    weight = full.encoder.layers[3].self_attn.k_proj.weight
    assert torch.equal(short.encoder.layers[1].self_attn.k_proj.weight, weight)
    with pytest.raises(UserError, match="layers to keep are '0,4'; there are layers 0 to 3"):
        toy.model("transformer_headsize_n", **counts, encoder_layers_to_keep="0,4")


def test_retain_dropout_keeps_the_attentions_dropout_on() -> None:
    """fairseq's --retain-dropout finds its own dropout module in our attention."""
    model = toy.model("transformer_collab", attention_dropout=0.5).eval()
    model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=["MultiheadAttention"])
    attention = model.encoder.layers[0].self_attn
    assert attention.dropout_module.apply_during_inference


@pytest.mark.parametrize("build", [toy.model, language_model])
def test_dropout_has_fairseqs_names(build: Any) -> None:
    """--retain-dropout-modules takes them."""
    kind = {toy.model: "transformer", language_model: "transformer_lm"}[build]
    ours, stock = (
        {name: m.module_name for name, m in model.named_modules() if isinstance(m, FairseqDropout)}
        for model in (build(f"{kind}_collab"), build(kind))
    )
    assert ours == stock


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder.layers.0.in_proj_weight", True),
        ("encoder.layers.11.fc1_bias", True),
        ("layers.0.fc2_weight", True),
        ("encoder.layers.0.self_attn.in_proj_weight", False),
        ("encoder.layers.0.fc1.weight", False),
        ("in_proj_weight", False),
    ],
)
def test_copies_of_weights_are_told_by_their_names(name: str, expected: bool) -> None:
    assert is_copy(name) == expected
