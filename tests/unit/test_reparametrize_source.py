"""Models that cannot be converted are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import toy
from refusals import refusing
from toy_reparametrize import HERE, TARGET, converted, target_of, trained

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from collab_lab.cli.reparametrize import build_parser
from collab_lab.conversion import converter
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("--to=collab", {"heads_in_encoder": "4,2"}, "encoder 1 has 2 heads and encoder 0 has 4"),
        ("--to=collab", {"heads_in_cross": "2"}, "cross 0 has 2 heads and decoder 0 has 4"),
        ("--to=collab", {"v_head_size": 3}, "values of size 3; shared keys have"),
        ("--to=grouped-query", {"qk_head_size": 3}, "keys of size 3; grouped-query heads have"),
        ("--to=grouped-query", {"v_head_size": 3}, "values of size 3; grouped-query heads have"),
    ],
)
def test_heads_of_other_sizes_or_numbers(
    target: str, options: dict[str, Any], message: str
) -> None:
    with refusing(message):
        trained("transformer_headsize_n", target_of(target), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key-dim=33"], "encoder 0: key width 33 is out of range; give one from 1 to 16, which"),
        (["--key-dim=0"], "encoder 0: key width 0 is out of range"),
        (["--key-dim-in-cross=4,4,4"], "--key-dim-in-cross is '4,4,4'; it must be a number from 0"),
        ([f"--key-dim-in-{each}=0" for each in ATTENTION_TYPES], "no attention is left to"),
        (["--to=grouped-query", "--key-value-heads=3"],
         "encoder 0: number of key/value heads 3 is out of range; give one that divides its 4"),
        (["--to=grouped-query", "--key-value-heads-in-cross=2,3", "--key-value-heads=2"],
         "cross 1: number of key/value heads 3 is out of range"),
        (["--to=grouped-query", "--key-value-heads-in-cross=2,2,2"],
         "--key-value-heads-in-cross is '2,2,2'; it must be a number from 0 up, or 2 of them"),
        (["--to=latent", "--latent-dim=17"],
         "encoder 0: latent width 17 is out of range; give one from 1 to 16, which is exact"),
        (["--to=headsize", "--key-dim=6"],
         "encoder 0: key width 6 is out of range; give a multiple of its 4 heads"),
        (["--to=latent", "--latent-dim-in-cross=4"],
         "no latent width for encoder 0; give --latent-dim-in-encoder or --latent-dim"),
    ],
)  # fmt: skip
def test_sizes_that_are_refused(options: list[str], message: str) -> None:
    target = target_of(*options)
    found = trained("transformer", target)
    with refusing(message):
        converter.chosen_sizes(*sizes_of(*options), found, target)


def sizes_of(*options: str) -> tuple[int | None, dict[AttentionType, str | None]]:
    """The size of all attentions, and those by type, as the command's options give them."""
    args = build_parser().parse_args(["x", "--out=y", *options])
    size = target_of(*options).size_option
    by_type = {type_: getattr(args, f"{size}_in_{type_}") for type_ in ATTENTION_TYPES}
    return getattr(args, size), by_type


def test_value_heads_that_are_refused() -> None:
    found = trained("transformer", encoder_attention_heads=8)
    message = "decoder 0: number of value heads 8 is out of range; give one that divides its 4"
    with pytest.raises(UserError, match=message):
        converted(found, dict.fromkeys(attentions(found.model), 4), "--value-heads=8")


def test_resized_heads_cannot_be_left_as_they_are() -> None:
    found = trained("transformer_headsize_n", qk_head_size=6)
    others = [f"--key-dim-in-{each}=0" for each in ("encoder", "decoder")]
    sizes = sizes_of("--key-dim-in-cross=16", *others)
    with refusing("encoder 0: heads of size 6 cannot be left as they are"):
        converter.chosen_sizes(*sizes, found, TARGET)


def test_other_models_are_refused() -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "decoder_out_embed_dim": 16}
    latent, derived = toy.model("transformer_latent"), toy.model("transformer")
    # A class derived from fairseq's may compute anything.
    derived.__class__ = type("Changed", (type(derived),), {})
    for model in (latent, derived, toy.model("lstm", criterion="", **sizes)):
        with refusing(f"a {type(model).__name__} cannot be converted to shared keys"):
            converter.target_arch(Trained(HERE, {}, model, None), TARGET)
