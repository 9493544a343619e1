"""Attentions of every family are found, and make tensors on the device of their inputs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_language_models
from fairseq.modules import MultiheadAttention
from torch import nn

from collab_lab.trained.attentions import attentions, by_type
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.building import make_linear, projection_of
from fairseq_collab.attention.cache import start_beam_history
from fairseq_collab.models.variants import VARIANTS

TRANSLATION = ["encoder 0", "encoder 1", "decoder 0", "decoder 1", "cross 0", "cross 1"]


def build(arch: str, **options: object) -> nn.Module:
    make = toy_language_models.language_model if "_lm" in arch else toy.model
    return make(arch, **options)


@pytest.mark.parametrize(
    ("arch", "options", "places"),
    [
        ("transformer", {}, TRANSLATION),
        ("transformer_collab", {}, TRANSLATION),
        ("transformer_collab", {"checkpoint_activations": True}, TRANSLATION),  # wrapped layers
        ("transformer_lm_collab", {}, ["decoder 0", "decoder 1"]),
        ("transformer_lm", {"decoder_layers": 11}, [f"decoder {i}" for i in range(11)]),
    ],
)
def test_all_attentions_are_found_by_type_and_layer(
    arch: str, options: dict, places: list[str]
) -> None:
    model = build(arch, **options)
    found = attentions(model)
    assert [str(one) for one in found] == places
    assert all(model.get_submodule(one.name) is one.module for one in found)
    modules = {m for m in model.modules() if isinstance(m, HeadAttention | MultiheadAttention)}
    assert {one.module for one in found} == modules


def test_a_type_that_a_model_lacks_is_empty() -> None:
    model = build("transformer_headsize_n", heads_in_decoder="1,2")
    heads = Trained(Path("x.pt"), {}, model, None).heads
    assert heads == {"encoder": [4, 4], "decoder": [1, 2], "cross": [4, 4]}
    assert by_type(build("transformer_lm"))["cross"] == []
    assert attentions(nn.Linear(2, 2)) == []


# ---- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
@pytest.mark.parametrize("training", [True, False])
def test_on_one_device(variant: Any, training: bool) -> None:
    model = toy.model(f"transformer_{variant.name}", attention_dropout=0.1).to("meta")
    x, context = torch.ones(3, 2, 16, device="meta"), torch.ones(5, 2, 16, device="meta")
    causal = torch.zeros(3, 3, device="meta")
    for one in attentions(model.train(training)):
        keys = context if one.type == "cross" else x
        padding = torch.zeros(2, len(keys), dtype=torch.bool, device="meta")
        mask = causal if one.type == "decoder" else None
        for wanted in (True, False):
            output, _ = one.module(
                x, keys, keys, key_padding_mask=padding, attn_mask=mask, need_head_weights=wanted
            )
            assert output.is_meta
        output.sum().backward()
        if one.type != "encoder" and not training:
            state: dict[str, Any] = {}
            start_beam_history(state, 2, 2, x).extend(torch.zeros(2, 1, device="meta"))
            step = {"incremental_state": state, "static_kv": one.type == "cross"}
            assert one.module(x[:1], keys, keys, **step)[0].is_meta


@pytest.mark.parametrize("sizes", [(4, 0), (0, 4)])
def test_empty_projections_warn_of_nothing(sizes: tuple[int, int]) -> None:
    """torch warns where it is asked to initialise an attention without heads; nothing is drawn."""
    before = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [make_linear(*sizes, bias=bias) for bias in (True, False)]
        made.append(projection_of(torch.zeros(sizes[::-1]), torch.zeros(sizes[1])))
    assert torch.equal(torch.get_rng_state(), before)
    for projection in made:
        assert (projection.in_features, projection.out_features) == sizes
        assert projection(torch.ones(3, sizes[0])).shape == (3, sizes[1])
