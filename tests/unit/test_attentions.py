"""One enumeration finds the attentions of every family of models, stock and ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy
import toy_language_models
from fairseq.modules import MultiheadAttention
from torch import nn

from collab_lab.trained.attentions import attentions, by_type
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention import HeadAttention

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
