"""Models that cannot be converted are refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toy
import toy_checkpoints
from omegaconf import OmegaConf
from refusals import refusing
from toy_reparametrize import HERE, TARGET, check, target_of, trained

from collab_common import ATTENTION_TYPES, AttentionType
from collab_lab.cli.main import main
from collab_lab.cli.reparametrize import build_parser
from collab_lab.shrinking.by_hand import chosen_sizes
from collab_lab.trained.checkpoint import Trained


@pytest.mark.parametrize(
    ("target", "options", "place"),
    [
        ("--to=collab", {"heads_in_encoder": "4,2", "v_head_size": 3}, "4 and 3, 8 and 3"),
        ("--to=grouped-query", {"heads_in_cross": "2", "v_head_size": 3}, "4 and 3, 8 and 3"),
        ("--to=separate", {"heads_in_encoder": "4,2"}, "encoder 1"),
        ("--to=separate", {"v_head_size": 3}, "values of size 3"),
    ],
)
def test_heads_of_other_sizes_or_numbers(target: str, options: dict[str, Any], place: str) -> None:
    with refusing(place):
        trained("transformer_headsize_n", target_of(target), **options)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (["--key-dim=33"], "encoder 0"),
        (["--key-dim=0"], "encoder 0"),
        (["--key-dim=4", "--key-dim-in-cross=4,4,4"], "by_type[cross]"),
        (["--to=grouped-query", "--key-value-heads=3"], "encoder 0"),
        (
            ["--to=grouped-query", "--key-value-heads-in-cross=2,3", "--key-value-heads=2"],
            "cross 1",
        ),
        (["--to=latent", "--latent-dim=17"], "encoder 0"),
        (["--to=separate", "--key-dim=6"], "encoder 0"),
        (["--to=latent", "--latent-dim-in-cross=4"], "encoder 0"),
    ],
)  # fmt: skip
def test_sizes_that_are_refused(options: list[str], place: str) -> None:
    target = target_of(*options)
    found = trained("transformer", target)
    with refusing(place):
        chosen_sizes(*sizes_of(*options), found, target)


def sizes_of(*options: str) -> tuple[int | None, dict[AttentionType, str | None]]:
    """The size of all attentions, and those by type, as the command's options give them."""
    args = build_parser().parse_args(["x", "--out=y", *options])
    size = target_of(*options).kind.size_option
    by_type = {type_: getattr(args, f"{size}_in_{type_}") for type_ in ATTENTION_TYPES}
    return getattr(args, size), by_type


def test_resized_heads_cannot_be_left_as_they_are() -> None:
    found = trained("transformer_headsize_n", qk_head_size=6, attention_scale="embed")
    others = [f"--key-dim-in-{each}=0" for each in ("encoder", "decoder")]
    sizes = sizes_of("--key-dim-in-cross=16", *others)
    with refusing("encoder 0"):
        chosen_sizes(*sizes, found, TARGET)


def test_other_models_are_refused() -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "decoder_out_embed_dim": 16}
    shared, derived = toy.model("transformer_collab"), toy.model("transformer")
    # A class derived from fairseq's may compute anything.
    derived.__class__ = type("Changed", (type(derived),), {})
    state = {"cfg": OmegaConf.create({"model": {}})}
    for model in (shared, derived, toy.model("lstm", criterion="", **sizes)):
        with refusing(type(model).__name__):
            check(Trained(HERE, state, model, None), TARGET)


@pytest.mark.parametrize(("width", "grows"), [("16", True), ("4", False)])
def test_parameters_that_grow_are_named(
    width: str, grows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY
    options = ["--latent-dim", width, "--latent-dim-in-encoder", "0", "--sentences", "4"]
    options += ["--no-refit", "--out", str(tmp_path / "out.pt"), "--cpu"]
    assert main(["reparametrize", str(path), str(data), "--to", "latent", *options]) == 0
    assert ("of the source's parameters" in capsys.readouterr().out) == grows
