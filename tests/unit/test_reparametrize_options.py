"""``--key-dim-in-SITE``: one key dimension a layer, and ordinary heads where it is 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention, ConcatenatedAttention


def test_key_dims_per_site_and_layer() -> None:
    model: Any = toy.model(
        "transformer_collab", key_dim=5, key_dim_in_encoder="7,0", key_dim_in_cross="3"
    )
    encoder = [layer.self_attn for layer in model.encoder.layers]
    assert encoder[0].key_dim == 7
    assert isinstance(encoder[1], ConcatenatedAttention)
    for layer in model.decoder.layers:
        assert isinstance(layer.self_attn, CollaborativeAttention)
        assert (layer.self_attn.key_dim, layer.encoder_attn.key_dim) == (5, 3)
    logits, _ = model(**toy.batch())
    assert logits.isfinite().all()


def test_sites_that_are_not_collaborative_stay_ordinary() -> None:
    model: Any = toy.model("transformer_collab", collaborative_sites="cross", key_dim_in_encoder=7)
    assert isinstance(model.encoder.layers[0].self_attn, ConcatenatedAttention)


def test_the_same_dimension_twice_said_is_the_same_model() -> None:
    torch.manual_seed(1)
    one = toy.model("transformer_collab", key_dim=6)
    torch.manual_seed(1)
    listed = toy.model("transformer_collab", key_dim_in_encoder="6,6", key_dim_in_decoder="6",
                       key_dim_in_cross="6,6")  # fmt: skip
    listed.load_state_dict(one.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(one.parameters(), listed.parameters(), strict=True)
    )


def test_a_layers_key_dimension_is_checked_when_weights_are_loaded() -> None:
    saved = toy.model("transformer_collab", key_dim_in_cross="6,5").state_dict()
    other = toy.model("transformer_collab", key_dim_in_cross="6,4", key_dim=4)
    with pytest.raises(UserError, match="key dimension is"):
        other.load_state_dict(saved)
