"""Models that cannot be re-parametrised are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import toy
from toy_reparametrize import HERE, converted, trained

from collab_common.errors import UserError
from fairseq_collab.checkpoints.attentions import attentions
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.reparametrize import source, work
from fairseq_collab.commands.reparametrize import build_parser


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads_in_encoder": "4,2"}, "encoder 1 has 2 heads and encoder 0 has 4"),
        ({"heads_in_cross": "2"}, "cross 0 has 2 heads and decoder 0 has 4"),
        ({"v_head_size": 3}, "encoder 0: 4 heads have values of size 3; collaborative heads have"),
    ],
)
def test_heads_of_other_sizes_or_numbers(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        trained("transformer_headsize_n", **options)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_constant_keys_are_refused() -> None:
    found = trained("transformer")
    place = found.attentions["encoder"][0]
    place.module.add_zero_attn = True
    with pytest.raises(UserError, match="encoder 0: it attends to a constant key"):
        source.check_attention(place, HERE)


def test_a_class_of_its_own_is_refused() -> None:
    found = trained("transformer")
    # A class derived from fairseq's may compute anything.
    found.model.__class__ = type("Changed", (type(found.model),), {})
    with pytest.raises(UserError, match="a Changed is none of the models"):
        source.target_arch(found)


def test_another_architecture_is_refused() -> None:
    model = toy.model(
        "lstm", encoder_layers=1, decoder_layers=1, decoder_out_embed_dim=16, criterion=""
    )
    with pytest.raises(UserError, match="a LSTMModel is none of the models that can be"):
        source.target_arch(Trained(HERE, {}, model, None))


def test_resized_heads_cannot_be_left_as_they_are() -> None:
    found = trained("transformer_headsize_n", qk_head_size=6)
    args = build_parser().parse_args(["x", "--out=y", "--key-dim-in-cross=24", "--sites=cross"])
    with pytest.raises(UserError, match="encoder 0: heads of size 6 cannot be left as they are"):
        work.chosen_dims(args, found)


def test_head_counts_and_layers_reach_the_configuration() -> None:
    found = trained("transformer_headsize_n", heads_in_encoder="8", heads_in_cross="4,4")
    model, _ = converted(found, {place: place.layer + 3 for place in attentions(found.model)})
    assert model.encoder.layers[0].self_attn.num_heads == 8
    assert [layer.encoder_attn.key_dim for layer in model.decoder.layers] == [3, 4]
