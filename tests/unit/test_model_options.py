"""Options of the models: what builds and runs, and what is refused in one line."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import fields, replace
from typing import Any

import pytest
import toy
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.options import get_training_parser, parse_args_and_arch
from refusals import refusing
from toy_language_models import language_model

from collab_lab.trained.attentions import by_type
from fairseq_collab.models.base import Family, register
from fairseq_collab.models.families import LANGUAGE_MODEL, TRANSLATION
from fairseq_collab.models.variants import COLLABORATIVE, VARIANTS

COLLAB, SIZED, LM = "transformer_collab", "transformer_headsize_n", "transformer_lm_collab"
QUERY, LATENT = "transformer_grouped_query", "transformer_latent"
CROSS_SELF = {"cross_self_attention": True, "no_cross_attention": True}
TIED: dict[str, Any] = {"tie_adaptive_weights": True, "adaptive_input": True}
TIED |= {"adaptive_input_cutoff": "8", "adaptive_softmax_cutoff": "9"}


def build(arch: str, **options: Any) -> Any:
    return (language_model if "_lm_" in arch else toy.model)(arch, **options)


#: One option each that cannot be, or that the heads cannot have.
WRONG: dict[str, list[dict[str, Any]]] = {
    COLLAB: [
        {"key_dim": -1}, {"encoder_attention_heads": 3}, {"key_dim_in_encoder": "4,2,1"},
        {"key_dim_in_decoder": "-1"}, {"key_dim_in_cross": "four"}, {"query_mixing": "none"},
        {"query_mixing_in_cross": "full,own,full"}, {"value_heads_in_encoder": "0"},
        {"v_head_size": 0}, {"attention_scale": "sum"}, {"mixing_init": "zeros"},
        {"value_init": "big"}, {"value_heads": 3}, {"value_heads": 0}, {"quant_noise_pq": 0.1},
        {"quant_noise_scalar": 0.1}, {"encoder_xformers_att_config": "{}"}, CROSS_SELF,
        {"share_all_embeddings": True, "encoder_embed_dim": 8},
        {"key_dim": 18}, {"key_dim": 18, "query_mixing": "own"},  # more than d + 1
        {"cache_bits": 3},
    ],
    SIZED: [
        {"head_size": 0}, {"key_dim": 6}, {"key_dim": 8, "qk_head_size": 2},
        {"heads_in_encoder": "4,2,1"}, {"heads_in_cross": "4,-1"}, {"heads_in_encoder": "3"},
        {"key_init": "xavier"}, {"encoder_layers_to_keep": "0"}, {"cache_bits_in_decoder": "16"},
        {"head_size": 64}, {"v_head_size": 18}, {"key_dim": 72},  # more than d + 1
    ],
    LM: [
        {"decoder_layers_to_keep": "0"}, {"character_embeddings": True}, {"scale_heads": True},
        {"tie_adaptive_weights": True}, TIED, {"cache_bits": "x"},
    ],
    QUERY: [{"key_value_heads": 3}, {"cache_bits": -1}],
    LATENT: [
        {"latent_dim": -1}, {"latent_dim": 33}, {"latent_dim_in_cross": "32,4096"},
        {"latent_dim_in_cross": "3,-1"}, {"cache_bits_in_cross": "8,4,8"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("arch", "wrong"), [(a, one) for a, all_ in WRONG.items() for one in all_])
def test_what_is_rejected(arch: str, wrong: dict[str, Any]) -> None:
    with refusing():
        build(arch, **wrong)


@pytest.mark.parametrize(
    ("arch", "options", "name", "expected"),
    [
        (COLLAB, {}, "key_dim", "44 44 44"),  # d / 4
        (COLLAB, {"key_dim": 5, "key_dim_in_encoder": "7,0"}, "key_dim", "7- 55 55"),
        (COLLAB, {"key_dim_in_encoder": "0", "key_dim_in_cross": "3"}, "key_dim", "-- 44 33"),
        (COLLAB, {"value_heads": 2, "value_heads_in_cross": "1,4"}, "value_heads", "22 22 14"),
        (SIZED, {"heads_in_encoder": "5,3", "heads_in_cross": "7"}, "num_heads", "53 44 77"),
        (SIZED, {"v_head_size": 3, "heads_in_encoder": "5"}, "v_head_size", "33 33 33"),
        # Dealt out in every layer.
        (SIZED, {"key_dim": 12, "heads_in_encoder": "6,2"}, "qk_head_size", "26 33 33"),
        (QUERY, {"key_value_heads_in_cross": "2,4"}, "key_value_heads", "11 11 24"),
        (LATENT, {"latent_dim_in_cross": "3,5"}, "latent_dim", "88 88 35"),  # d / 2
        (LATENT, {"heads_in_encoder": "2,0"}, "num_heads", "20 44 44"),
        (LM, {}, "key_dim", "44"),
        (QUERY, {}, "cache_bits", "00 00 00"),
        (LATENT, {"cache_bits": 4, "cache_bits_in_cross": "8,0"}, "cache_bits", "00 44 80"),
        (LM, {"cache_bits_in_decoder": 8}, "cache_bits", "88"),
        ("transformer_lm_headsize_n", {"heads_in_decoder": "5,3"}, "num_heads", "53"),
    ],
)
def test_sizes_per_type_and_layer(
    arch: str, options: dict[str, Any], name: str, expected: str
) -> None:
    """By encoder, decoder, cross-attention; "-" for standard heads.  A head size may be any."""
    sizes = {"head_size": 6} if "headsize" in arch else {}
    found = by_type(build(arch, **sizes, **options))
    types = [layers for layers in found.values() if layers]
    assert expected == " ".join(
        "".join(str(getattr(one.module, name, "-")) for one in layers) for layers in types
    )


def test_weights_load_with_any_bits() -> None:
    build(COLLAB, cache_bits=4).load_state_dict(build(COLLAB).state_dict())


@pytest.mark.parametrize("build", [toy.model, language_model])
def test_dropout_has_fairseqs_names(build: Any) -> None:
    """--retain-dropout-modules takes them."""
    kind = {toy.model: "transformer", language_model: "transformer_lm"}[build]
    ours, stock = (
        {name: m.module_name for name, m in model.named_modules() if isinstance(m, FairseqDropout)}
        for model in (build(f"{kind}_collab"), build(kind))
    )
    assert ours == stock


# ---- language models -----------------------------------------------------------------------------


def test_a_flag_that_a_preset_sets_does_not_switch_it_off() -> None:
    parser = ArgumentParser()
    arch = "transformer_lm_collab_gpt"
    ARCH_MODEL_REGISTRY[arch].add_args(parser.add_argument_group("model"))
    assert MODEL_DATACLASS_REGISTRY[arch]().decoder_normalize_before is True
    assert parser.parse_args(["--decoder-normalize-before"]).decoder_normalize_before is True


#: Options whose values in presets are not those of fairseq's presets, and why.
ON_PURPOSE = {
    "decoder_input_dim": "None follows --decoder-embed-dim; fairseq's stays when that is given",
    "decoder_output_dim": "as above",
}
PRESETS = [(one, ending) for one in (TRANSLATION, LANGUAGE_MODEL) for ending in one.presets]
PRESETS.remove((TRANSLATION, "_multi30k"))  # fairseq has none


@pytest.mark.parametrize(("family", "ending"), PRESETS)
def test_values_of_presets_are_fairseqs(family: Family, ending: str) -> None:
    stock = f"{family.prefix[:-1]}{ending}"
    parsed = parse_args_and_arch(get_training_parser(), ["data", f"--arch={stock}"])
    for variant in (one for one in VARIANTS if family in one.families):
        ours = vars(MODEL_DATACLASS_REGISTRY[f"{family.prefix}{variant.name}{ending}"]())
        differ = {
            name: (value, ours[name])
            for name, value in vars(parsed).items()
            if value != ours.get(name, value) and not str(ours[name]).startswith("${")
        }
        assert differ.keys() <= ON_PURPOSE.keys(), (variant.name, differ)


def test_options_of_absent_types_are_left_out() -> None:
    for arch in (LM, "transformer_lm_headsize_n"):
        names = [option.name for option in fields(MODEL_DATACLASS_REGISTRY[arch])]
        assert not [name for name in names if name.endswith(("_in_encoder", "_in_cross"))]


def test_another_variant_takes_one_row() -> None:
    register(replace(COLLABORATIVE, name="another", families=(LANGUAGE_MODEL,)))
    model = language_model("transformer_lm_another", key_dim=3)
    assert model.decoder.layers[0].self_attn.key_dim == 3
