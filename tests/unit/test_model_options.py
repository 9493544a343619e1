"""Options of the models, and weights that would load but mean something else."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import fields, replace
from typing import Any

import attention_cases  # noqa: F401  (registers heads of one's own)
import pytest
import torch
import toy
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.options import get_training_parser, parse_args_and_arch
from refusals import refusing
from torch import nn
from toy_language_models import language_model, task

from collab_common.errors import UserError
from collab_lab.runs.score import key_width
from collab_lab.trained.attentions import by_type
from fairseq_collab.attention.separate import SeparateSignature
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
        {"value_heads_in_encoder": "0"},
        {"v_head_size": 0}, {"v_head_size": 18}, {"attention_scale": "sum"},
        {"mixing_init": "zeros"},
        {"value_init": "big"}, {"value_heads": 3}, {"value_heads": 0}, {"quant_noise_pq": 0.1},
        {"quant_noise_scalar": 0.1}, {"encoder_xformers_att_config": "{}"}, CROSS_SELF,
        {"share_all_embeddings": True, "encoder_embed_dim": 8},
        {"key_dim": 18}, {"key_dim": 18, "query_mixing": "own"},  # more than d + 1
        {"key_dim": 0, "qk_head_size": 18}, {"key_dim": 0, "v_head_size": 18},
        {"cache_bits": 3}, {"ffn_dims_in_encoder": "24,-1"}, {"ffn_dims_in_decoder": "8,8,8"},
    ],
    SIZED: [
        {"head_size": 0}, {"key_dim": 6}, {"key_dim": 8, "qk_head_size": 2},
        {"heads_in_encoder": "4,2,1"}, {"heads_in_cross": "4,-1"}, {"heads_in_encoder": "3"},
        {"key_init": "xavier"}, {"encoder_layers_to_keep": "0"}, {"cache_bits_in_decoder": "16"},
        {"head_size": 64}, {"v_head_size": 18}, {"key_dim": 72},  # more than d + 1
    ],
    LM: [
        {"decoder_layers_to_keep": "0"}, {"character_embeddings": True}, {"scale_heads": True},
        {"ffn_dims_in_decoder": "8", "scale_fc": True},
        {"tie_adaptive_weights": True}, TIED, {"cache_bits": "x"},
    ],
    QUERY: [{"key_value_heads": 3}, {"cache_bits": -1}],
    LATENT: [
        {"latent_dim": -1}, {"latent_dim": 33}, {"latent_dim_in_cross": "32,4096"},
        {"latent_dim_in_cross": "3,-1"}, {"cache_bits_in_cross": "8,4,8"},
        {"shared_latent_in_cross": 17}, {"shared_latent_in_cross": 0},  # d is 16
        {"shared_latent_in_cross": 16, "latent_dim_in_cross": "16"},
        {"shared_latent_in_cross": 16, "cache_bits_in_cross": "8,4"},
        {"shared_latent_in_cross": 16, "heads_in_cross": "0"},
        {"shared_latent_in_cross": 16, "no_cross_attention": True},
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
        # d + 1 at most, but for one number a head and dimension.
        (COLLAB, {"key_dim": 17, "query_mixing": "own"}, "key_dim", "1717 1717 1717"),
        (COLLAB, {"key_dim": 40, "query_mixing": "diagonal"}, "key_dim", "4040 4040 4040"),
        (SIZED, {"v_head_size": 17}, "v_head_size", "1717 1717 1717"),
        (COLLAB, {"value_heads": 2, "value_heads_in_cross": "1,4"}, "value_heads", "22 22 14"),
        (SIZED, {"heads_in_encoder": "5,3", "heads_in_cross": "7"}, "num_heads", "53 44 77"),
        (SIZED, {"v_head_size": 3, "heads_in_encoder": "5"}, "v_head_size", "33 33 33"),
        # Dealt out in every layer.
        (SIZED, {"key_dim": 12, "heads_in_encoder": "6,2"}, "qk_head_size", "26 33 33"),
        (QUERY, {"key_value_heads_in_cross": "2,4"}, "key_value_heads", "11 11 24"),
        (LATENT, {"latent_dim_in_cross": "3,5"}, "latent_dim", "88 88 35"),  # d / 2
        (LATENT, {"heads_in_encoder": "2,0"}, "num_heads", "20 44 44"),
        (LATENT, {"shared_latent_in_cross": 9}, "latent_dim", "88 88 99"),
        (LATENT, {"shared_latent_in_cross": 9, "heads_in_cross": "0,4"}, "num_heads", "44 44 04"),
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


@pytest.mark.parametrize("arch", [COLLAB, SIZED])
def test_the_key_width_is_that_of_the_projection(arch: str) -> None:
    """Whether heads share the key or have their own parts of it: ``--key-dim`` means one thing."""
    for layers in by_type(build(arch, key_dim=8)).values():
        for attention in layers:
            assert (attention.module.k_proj.out_features, key_width(attention.module)) == (8, 8)


@pytest.mark.parametrize(
    ("arch", "options", "expected"),
    [
        (COLLAB, {}, {"encoder": [24, 24], "decoder": [24, 24]}),
        (LATENT, {"ffn_dims_in_encoder": "5"}, {"encoder": [5, 5], "decoder": [24, 24]}),
        (SIZED, {"ffn_dims_in_decoder": "5,30"}, {"encoder": [24, 24], "decoder": [5, 30]}),
        (LM, {"ffn_dims_in_decoder": "5,7"}, {"decoder": [5, 7]}),
        (SIZED, {"ffn_dims_in_encoder": "0,24"}, {"encoder": [0, 24], "decoder": [24, 24]}),
    ],
)
def test_widths_of_feed_forward_blocks(
    arch: str, options: dict[str, Any], expected: dict[str, list[int]]
) -> None:
    model = build(arch, **options)
    for side, widths in expected.items():
        layers = getattr(model, side).layers
        assert [layer.fc1.out_features for layer in layers] == widths
        assert [layer.fc2.in_features for layer in layers] == widths


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


# ---- weights that mean something else ------------------------------------------------------------

GROUPED, GATED = "transformer_grouped_heads", "transformer_gated_heads"
TWO_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "head_size": 4}


def sized(arch: str, options: dict[str, Any], symbols: Any = None) -> nn.Module:
    """A model whose sizes make the same shapes as other numbers of heads would."""
    sizes = {COLLAB: {"key_dim": 8}, SIZED: {"head_size": 4}}.get(arch, {})
    make = language_model if arch.startswith("transformer_lm") else toy.model
    return make(arch, symbols, **{**sizes, **options})


def load(saved: nn.Module, given: nn.Module) -> None:
    given.load_state_dict(saved.state_dict(), strict=True)


def ours(**options: Any) -> nn.Module:
    return sized(COLLAB, options)


def reordered(symbols: Any) -> Any:
    """A task whose dictionary has two of its symbols in each other's place."""
    words = symbols.target_dictionary
    words.symbols[5], words.symbols[6] = words.symbols[6], words.symbols[5]
    return symbols


def kind(arch: str, symbols: Any = None, **options: Any) -> Any:
    return lambda: sized(arch, options, symbols)


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (ours, kind(COLLAB, encoder_attention_heads=2), "encoder.layers.0,1.self_attn: heads is 4"),
        (ours, kind(COLLAB, key_dim=4), "key width is 8 in the checkpoint, 4 in the model"),
        (ours, kind(COLLAB, attention_scale="key"), "scale is embed"),
        (ours, kind(COLLAB, key_dim_in_cross="0"), "kind of heads is shared keys"),
        (kind(COLLAB, query_mixing="diagonal"), ours, "query mixing is diagonal"),
        (ours, kind(COLLAB, query_mixing="own"), "query mixing is full"),
        (kind(COLLAB, value_heads=2), kind(COLLAB, value_heads=1), "value heads is 2"),
        (kind(SIZED), kind(SIZED, heads_in_cross="4,2"), "layers.1.encoder_attn: heads is 4"),
        (kind(SIZED), kind(SIZED, qk_head_size=2, heads_in_encoder="8"), "heads is 4"),
        (kind(SIZED), kind(SIZED, v_head_size=3), "value head size is 4"),
        (kind(LATENT), kind(LATENT, decoder_attention_heads=2), "heads is 4"),
        (kind(LATENT), kind(LATENT, latent_dim=6), "latent dimension is 8"),
        (kind(LATENT), kind(LATENT, shared_latent_in_cross=8), "is latent heads in the checkpoint"),
        (kind(LATENT, shared_latent_in_cross=16), kind(LATENT, shared_latent_in_cross=8), "is 16"),
        (kind(QUERY, key_value_heads=2), kind(QUERY, encoder_attention_heads=2), "heads is 4"),
        (kind(LM), kind(LM, decoder_attention_heads=2), "decoder.layers.0,1.self_attn: heads is 4"),
        (kind(GROUPED, head_groups=2), kind(GROUPED), "groups is 2"),
        (kind(GROUPED, group_feature="output"), kind(GROUPED), "group feature is output"),
        (kind(GATED, gate_speed=2), kind(GATED), "gate speed is 2"),
        (kind(GATED, gated_types="cross"), kind(GATED), "kind of heads is separate keys"),
        # Other models and dictionaries.
        (ours, kind(COLLAB, encoder_ffn_embed_dim=32), "(32, 16)"),
        (ours, kind(COLLAB, decoder_layers=3), "layers.2.self_attn.mixing"),
        (ours, kind(COLLAB, decoder_layers=1), "layers.1.self_attn.mixing"),
        (lambda: toy.model("transformer"), ours, "no signatures"),
        (lambda: language_model("transformer_lm"), kind(LM), "fairseq-collab reparametrize"),
        (kind(GROUPED), kind(GATED), "is grouped heads"),
        (kind(SIZED, **TWO_HEADS), kind(GATED), "heads is 2"),
        (ours, kind(COLLAB, share_all_embeddings=True), "is nothing"),
        (ours, kind(COLLAB, activation_fn="gelu"), "activation is relu"),
        (ours, kind(COLLAB, toy.task(30)), "24 symbols"),
        (ours, kind(COLLAB, reordered(toy.task())), "encoder's dictionary"),
        (kind(LM), kind(LM, reordered(task())), "decoder's dictionary"),
        (kind("transformer_tied_heads"), kind(SIZED), "kind 100"),
    ],
)
def test_a_difference_is_named(saved: Any, given: Any, message: str) -> None:
    with refusing(message):
        load(saved(), given())


def test_all_differences_are_named() -> None:
    """Options that are wrong can be put right at once, and not one after the other."""
    given = kind(COLLAB, attention_scale="key", activation_fn="gelu", decoder_ffn_embed_dim=7)
    with refusing("scale is embed", "activation is relu", "decoder.layers.0,1.fc1.bias") as refusal:
        load(ours(), given())
    assert str(refusal.value).count("decoder.layers.0,1.self_attn: scale") == 1


def probabilities(model: Any) -> torch.Tensor:
    batch = toy.batch() if hasattr(model, "encoder") else {"src_tokens": toy.batch()["src_tokens"]}
    with torch.no_grad():
        return model.eval()(**batch)[0]


@pytest.mark.parametrize(("arch", "pre_norm"), [(COLLAB, False), (COLLAB, True), (LM, True)])
def test_every_option_that_changes_the_function(arch: str, pre_norm: bool) -> None:
    """Another value of one option is refused, or computes the same in evaluation."""
    base = {f"{side}_normalize_before": pre_norm for side in ("encoder", "decoder")}
    known = {option.name: option.default for option in fields(MODEL_DATACLASS_REGISTRY[arch])}
    base = {name: value for name, value in base.items() if name in known}
    saved = toy.randomised(sized(arch, base))
    values = {
        name: not base.get(name, known[name]) for name in known if isinstance(known[name], bool)
    }
    changed = 0
    for name, value in {**values, "activation_fn": "tanh"}.items():
        try:
            given = sized(arch, {**base, name: value})
            load(saved, given)
        except (UserError, TypeError):  # fairseq's own, for want of other options
            changed += 1
        else:
            assert torch.equal(probabilities(saved), probabilities(given)), name
    assert changed > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_same_model_loads(dtype: torch.dtype) -> None:
    """Also in half precision; initial values do not matter."""
    load(ours(mixing_init="block").to(dtype), ours(mixing_init="xavier"))


@pytest.mark.parametrize(
    ("damage", "difference"),
    [
        ([1, 0, 0, 0, 0, 0], "signature version is 2 in the checkpoint, 1 in the model"),
        ([0, 0, 0, 0, 0, 9], "scale is 9 in the checkpoint, key in the model"),
        ([0, 0, 0, 0, 0, -1], "scale is -1 in the checkpoint, key in the model"),
    ],
)
def test_numbers_that_no_version_writes(damage: list[int], difference: str) -> None:
    """Of another version, or outside a field's choices."""
    found = SeparateSignature(4, 2, 2, "key")
    assert list(found.diff(found.to_tensor() + torch.tensor(damage))) == [difference]
