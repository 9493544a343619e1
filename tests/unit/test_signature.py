"""Weights that would load but mean something else are refused, in a sentence that says why."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import attention_cases  # noqa: F401  (registers heads of one's own)
import pytest
import torch
import toy
from fairseq.models import MODEL_DATACLASS_REGISTRY
from refusals import refusing
from torch import nn
from toy_language_models import language_model, task

from collab_common.errors import UserError
from fairseq_collab.attention.separate import SeparateSignature

COLLAB, SIZED, LATENT = "transformer_collab", "transformer_headsize_n", "transformer_latent"
GROUPED, GATED = "transformer_grouped_heads", "transformer_gated_heads"
QUERY = "transformer_grouped_query"
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
    ("arch", "saved", "given", "what", "values"),
    [
        (COLLAB, {}, {"encoder_attention_heads": 2}, "encoder.layers.0.self_attn: heads", (4, 2)),
        (COLLAB, {}, {"key_dim": 4}, "key width", (8, 4)),
        (COLLAB, {}, {"attention_scale": "key"}, "scale", ("embed", "key")),
        (COLLAB, {}, {"key_dim_in_cross": "0"}, "kind of heads", ("shared keys", "separate keys")),
        (COLLAB, {"query_mixing": "diagonal"}, {}, "query mixing", ("diagonal", "full")),
        (COLLAB, {}, {"query_mixing": "own"}, "query mixing", ("full", "own")),
        (COLLAB, {"value_heads": 2}, {}, "value heads", (2, 4)),
        (COLLAB, {"value_heads": 2}, {"value_heads": 1}, "value heads", (2, 1)),
        (SIZED, {}, {"heads_in_cross": "4,2"}, "layers.1.encoder_attn: heads", (4, 2)),
        (SIZED, {}, {"qk_head_size": 2, "heads_in_encoder": "8"}, "heads", (4, 8)),
        (SIZED, {}, {"v_head_size": 3}, "value head size", (4, 3)),
        (LATENT, {}, {"decoder_attention_heads": 2}, "heads", (4, 2)),
        (LATENT, {}, {"latent_dim": 6}, "latent dimension", (8, 6)),
        (QUERY, {"key_value_heads": 2}, {"encoder_attention_heads": 2}, "heads", (4, 2)),
        (LM, {}, {"decoder_attention_heads": 2}, "decoder.layers.0.self_attn: heads", (4, 2)),
        (GROUPED, {"head_groups": 2}, {}, "groups", (2, 1)),
        (GROUPED, {"group_feature": "output"}, {}, "group feature", ("output", "value")),
        (GATED, {"gate_speed": 2}, {}, "gate speed", (2, 1)),
        (GATED, {"gated_types": "cross"}, {}, "kind of heads", ("separate keys", "gated heads")),
    ],
)
def test_a_difference_is_named_with_both_values(
    arch: str, saved: dict[str, Any], given: dict[str, Any], what: str, values: tuple[Any, Any]
) -> None:
    with refusing(f"{what} is {values[0]} in the checkpoint, {values[1]} in the model"):
        load(build(arch, saved), build(arch, given))


def kind(arch: str, symbols: Any = None, **options: Any) -> Any:
    return lambda: build(arch, options, symbols)


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (ours, kind(COLLAB, encoder_ffn_embed_dim=32), "(32, 16) in the model (and 5"),
        (ours, kind(COLLAB, decoder_layers=3), "layers.2.self_attn.mixing is missing from the"),
        (ours, kind(COLLAB, decoder_layers=1), "layers.1.self_attn.mixing is not in this"),
        (lambda: toy.model("transformer"), ours, "stock fairseq: it contains no signatures"),
        (lambda: language_model("transformer_lm"), kind(LM), "fairseq-collab reparametrize"),
        (ours, kind(LATENT), "kind of heads is shared keys in the checkpoint, latent heads in"),
        (ours, kind(GROUPED), "is shared keys in the checkpoint, grouped heads in"),
        (kind(GROUPED), kind(GATED), "is grouped heads in the checkpoint, gated heads in"),
        (kind(SIZED), kind(GROUPED), "is separate keys in the checkpoint, grouped heads in"),
        (kind(SIZED, **TWO_HEADS), kind(GATED), "heads is 2 in the checkpoint, 4 in the model"),
        (ours, kind(COLLAB, share_all_embeddings=True), "is nothing in the checkpoint, all in the"),
        (ours, kind(COLLAB, activation_fn="gelu"), "activation is relu in the checkpoint, gelu in"),
        (ours, kind(COLLAB, toy.task(30)), "has 24 symbols in the checkpoint, 34 in the model"),
        (ours, kind(COLLAB, reordered(toy.task())), "encoder's dictionary has the same size (24)"),
        (kind(LM), kind(LM, reordered(task())), "decoder's dictionary has the same size (24)"),
        (kind("transformer_tied_heads"), kind(SIZED), "kind 100 in the checkpoint, separate keys"),
        (kind(SIZED), kind("transformer_tied_heads"), "separate keys in the checkpoint, kind 100"),
    ],
)
def test_other_models_and_dictionaries(saved: Any, given: Any, message: str) -> None:
    with refusing(message):
        load(saved(), given())


def probabilities(model: Any) -> torch.Tensor:
    batch = toy.batch() if hasattr(model, "encoder") else {"src_tokens": toy.batch()["src_tokens"]}
    with torch.no_grad():
        return model.eval()(**batch)[0]


@pytest.mark.parametrize("arch", [COLLAB, LM])
@pytest.mark.parametrize("pre_norm", [False, True])
def test_every_option_that_changes_the_function(arch: str, pre_norm: bool) -> None:
    """Another value of one option is refused, or computes the same in evaluation."""
    base = {f"{side}_normalize_before": pre_norm for side in ("encoder", "decoder")}
    known = {option.name: option.default for option in fields(MODEL_DATACLASS_REGISTRY[arch])}
    base = {name: value for name, value in base.items() if name in known}
    saved = toy.randomised(build(arch, base))
    values = {
        name: not base.get(name, known[name]) for name in known if isinstance(known[name], bool)
    }
    changed = 0
    for name, value in {**values, "activation_fn": "tanh"}.items():
        try:
            given = build(arch, {**base, name: value})
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
