"""Options, presets, refusals and signatures of language models."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from refusals import refusing
from toy_language_models import language_model, task

from fairseq_collab.models.base import register
from fairseq_collab.models.language_models import LANGUAGE_MODEL
from fairseq_collab.models.variants import COLLABORATIVE
from fairseq_collab.trained.attentions import attentions

LM = "transformer_lm_collab"


def defaults(arch: str) -> dict[str, Any]:
    return {option.name: option.default for option in fields(MODEL_DATACLASS_REGISTRY[arch])}


def test_a_flag_that_a_preset_sets_does_not_switch_it_off() -> None:
    arch, name = "transformer_lm_collab_gpt", "decoder_normalize_before"
    parser = ArgumentParser()
    group = parser.add_argument_group("model")
    ARCH_MODEL_REGISTRY[arch].add_args(group)
    assert defaults(arch)[name] is True
    assert getattr(parser.parse_args(["--decoder-normalize-before"]), name) is True


def test_options_of_absent_sites_are_left_out() -> None:
    for variant in ("collab", "headsize_n"):
        names = defaults(f"transformer_lm_{variant}").keys()
        assert not [name for name in names if name.endswith(("_in_encoder", "_in_cross"))]


def test_sizes_of_heads() -> None:
    model = language_model("transformer_lm_headsize_n", head_size=6, heads_in_decoder="5,3")
    found = [(la.self_attn.num_heads, la.self_attn.qk_head_size) for la in model.decoder.layers]
    assert found == [(5, 6), (3, 6)]


def test_key_dim_is_a_quarter_of_the_model_unless_given() -> None:
    assert language_model(LM).decoder.layers[0].self_attn.key_dim == 4


def test_extra_norms_are_there_when_asked_for() -> None:
    layer = language_model(LM, scale_attn=True, scale_fc=True).decoder.layers[0]
    assert layer.attn_ln is not None
    assert layer.ffn_layernorm is not None


def test_alignments_do_not_concern_a_language_model_beside_a_translation_model() -> None:
    """--lm-path with --print-alignment: fairseq tells both models what will be printed."""
    language_model(LM).make_generation_fast_(need_attn="hard")


def test_what_is_offloaded_is_checkpointed() -> None:
    """As in fairseq's translation models: on its own the option would do nothing."""
    model = language_model(LM, offload_activations=True)
    wrapped = [m for m in model.modules() if hasattr(m, "precheckpoint_forward")]
    assert len(wrapped) == 2
    model(torch.tensor([[5, 6, 7]]))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in wrapped[0].parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_dim": -1}, "cannot build the model: key_dim is -1; it must be at least 1"),
        ({"quant_noise_pq": 0.1}, "--quant-noise-pq quantises fairseq's own attention modules"),
        ({"scale_heads": True}, "--scale-heads wants heads of size (model dimension/heads)"),
        ({"tie_adaptive_weights": True}, "--tie-adaptive-weights needs --adaptive-input"),
        (
            {
                "tie_adaptive_weights": True,
                "adaptive_input": True,
                "adaptive_input_cutoff": "8",
                "adaptive_softmax_cutoff": "9",
            },
            "--adaptive-input-cutoff and --adaptive-softmax-cutoff must be equal; they are '8' "
            "and '9'",
        ),
    ],
)
def test_refusals_of_language_models(options: dict[str, Any], message: str) -> None:
    with refusing(message):
        language_model(LM, **options)


def reordered() -> Namespace:
    """A task whose dictionary has two of its symbols in each other's place."""
    symbols = task()
    words = symbols.target_dictionary
    words.symbols[5], words.symbols[6] = words.symbols[6], words.symbols[5]
    return symbols


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (
            lambda: language_model(LM),
            lambda: language_model(LM, decoder_attention_heads=2),
            "decoder.layers.0.self_attn: heads is 4 in it, 2 here",
        ),
        (
            lambda: language_model(LM),
            lambda: language_model(LM, reordered()),
            "decoder's dictionary has the same size (24)",
        ),
        (
            lambda: language_model("transformer_lm"),
            lambda: language_model(LM),
            "carries no signatures",
        ),
    ],
)
def test_weights_of_another_meaning_are_refused(saved: Any, given: Any, message: str) -> None:
    with refusing(message):
        given().load_state_dict(saved().state_dict())


def test_layers_that_are_kept_have_the_sizes_that_they_had() -> None:
    sizes = {"heads_in_decoder": "4,3,2,1", "head_size": 3, "decoder_layers": 4}
    model = language_model("transformer_lm_headsize_n", **sizes, decoder_layers_to_keep="0,3")
    assert [one.module.num_heads for one in attentions(model)] == [4, 1]


def test_another_variant_takes_one_row() -> None:
    register(replace(COLLABORATIVE, name="another", families=(LANGUAGE_MODEL,)))
    model = language_model("transformer_lm_another", key_dim=3)
    assert model.decoder.layers[0].self_attn.key_dim == 3
