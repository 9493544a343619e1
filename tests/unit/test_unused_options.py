"""Options of heads that no attention of a model would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
from fairseq import checkpoint_utils
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf
from refusals import refusing
from toy_language_models import language_model

from collab_lab import convert, open_model, prune

COLLAB, SIZED, QUERY = "transformer_collab", "transformer_headsize_n", "transformer_grouped_query"
LATENT, GATED, GROUPED = (
    "transformer_latent",
    "transformer_gated_heads",
    "transformer_grouped_heads",
)
BLOCK = {"mixing_init": "block"}  # the toys' is another
NO_HEADS = {f"heads_in_{type_}": "0" for type_ in ("encoder", "decoder", "cross")}


def everywhere(name: str, value: Any) -> dict[str, str]:
    return {f"{name}_in_{type_}": str(value) for type_ in ("encoder", "decoder", "cross")}


#: Of an architecture: an option that acts on nothing, given the others.
IDLE: list[tuple[str, str, Any, dict[str, Any]]] = [
    (COLLAB, "qk_head_size", 6, {}),
    (COLLAB, "key_dim", 8, everywhere("key_dim", 4)),
    (COLLAB, "value_heads", 2, {"key_dim": 0}),
    (COLLAB, "value_heads", 2, everywhere("value_heads", 1)),
    (COLLAB, "value_heads_in_cross", "2", {"key_dim_in_cross": "0"}),
    (COLLAB, "query_mixing", "own", {"key_dim": 0}),
    (COLLAB, "mixing_init", "xavier", {"key_dim": 0}),
    (COLLAB, "attention_scale", "key", {"key_dim": 0}),
    (COLLAB, "value_init", "fork", {"key_dim": 0}),
    ("transformer_lm_collab", "qk_head_size", 6, {}),
    ("transformer_lm_collab", "query_mixing", "own", {"key_dim_in_decoder": "0,0", **BLOCK}),
    (SIZED, "head_size", 6, {"qk_head_size": 4, "v_head_size": 4}),
    (SIZED, "cache_bits", 8, {"cache_bits_in_decoder": "4", "cache_bits_in_cross": "4"}),
    (QUERY, "key_value_heads", 2, everywhere("key_value_heads", 1)),
    (QUERY, "head_size", 6, {"qk_head_size": 4, "v_head_size": 4}),
    (LATENT, "latent_norm", True, {"latent_dim": 0}),
    (LATENT, "latent_dim", 8, everywhere("latent_dim", 4)),
    (LATENT, "head_size", 6, {"key_dim": 16, "v_head_size": 4}),
    (GATED, "gate_speed", 40, NO_HEADS),
    (GROUPED, "head_groups", 2, NO_HEADS),
    (GROUPED, "group_feature", "output", NO_HEADS),
]


def build(arch: str, **options: Any) -> Any:
    return (language_model if "_lm_" in arch else toy.model)(arch, **options)


@pytest.mark.parametrize(("arch", "name", "value", "others"), IDLE)
def test_is_an_error(arch: str, name: str, value: Any, others: dict[str, Any]) -> None:
    build(arch, **others)
    with refusing(f"--{name.replace('_', '-')}", "leave it out"):
        build(arch, **{**others, name: value})


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (COLLAB, {"qk_head_size": 6, "key_dim_in_encoder": "4,0"}),
        (COLLAB, {"key_dim": 8, "key_dim_in_encoder": "4", "key_dim_in_cross": "4"}),
        (COLLAB, {"query_mixing": "own", "key_dim": 0, "key_dim_in_cross": "0,3"}),
        (LATENT, {"latent_norm": True, "latent_dim_in_encoder": "0"}),
        (GATED, {"freeze_decoder": True, "gated_types": "encoder", "key_init": "fork"}),
        (QUERY, {**NO_HEADS, **everywhere("key_value_heads", 1)}),
        (SIZED, {"cache_bits": 8, "cache_bits_in_cross": "4", "head_size": 6, "v_head_size": 4}),
    ],
)
def test_what_acts_somewhere_is_accepted(arch: str, options: dict[str, Any]) -> None:
    build(arch, **options)


def test_looking_draws_no_weight() -> None:
    options = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[COLLAB])
    options.update({**toy.SIZES, "query_mixing": "own", "mixing_init": "xavier"})
    before = torch.get_rng_state()
    MODEL_REGISTRY[COLLAB].check_used(OmegaConf.to_container(options))
    assert torch.equal(before, torch.get_rng_state())


# ---- checkpoints ---------------------------------------------------------------------------------


def with_options(path: Path, arch: str, idle: dict[str, Any], **options: Any) -> Path:
    """A checkpoint that has options that act on nothing, as older ones do."""
    state = toy_checkpoints.made(arch, **options)
    for name, value in idle.items():
        state["cfg"]["model"][name] = value
    torch.save(state, path)
    return path


def test_of_an_older_checkpoint_are_left_out(tmp_path: Path) -> None:
    path = with_options(tmp_path / "c.pt", COLLAB, {"qk_head_size": 6}, key_dim=6)
    assert open_model(path, toy_checkpoints.COPY).options["qk_head_size"] is None
    for overrides in (None, {}):  # as fairseq's commands open it
        _models, cfg = checkpoint_utils.load_model_ensemble([str(path)], overrides)
        assert cfg.model.qk_head_size is None, overrides
    with refusing("--qk-head-size"):
        open_model(path, toy_checkpoints.COPY, qk_head_size=4)


def test_a_changed_model_has_none(tmp_path: Path) -> None:
    model = open_model(
        toy_checkpoints.write(tmp_path / "c.pt", SIZED, head_size=6), toy_checkpoints.COPY
    )
    shared = convert(model, "collab", 8, sentences=4).model
    assert shared.options["qk_head_size"] is None
    fewer = prune(shared, 2, sentences=4).model
    fewer.save(tmp_path / "small.pt")
    again = open_model(tmp_path / "small.pt", toy_checkpoints.COPY)
    toy.build(again.arch, again.task, dict(again.options))  # as a training with them does
