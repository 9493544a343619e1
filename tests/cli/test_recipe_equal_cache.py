"""Which models ``recipes/equal_cache.sh`` trains, converts and trains on: all of one cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig
from recipe_recorder import Recorded, jobs, options

from fairseq_collab.models.config import plain_options

RECIPE, HEADS = "equal_cache.sh", 8
FIT = '{"attentions": []}'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """The recipe at a large and at the smallest budget, and again."""
    folder = tmp_path_factory.mktemp("recorder")
    (folder / "fit").write_text(FIT)
    settings = {"BUDGETS": "384 64", "UPDATES": "9", "LOG": str(folder / "fit")}
    return [Recorded(folder, RECIPE, "multi30k", **settings) for _ in range(2)]


@pytest.fixture(scope="module")
def trained(recorded: list[Recorded]) -> dict[str, DictConfig]:
    """The trainings from scratch, by the names of their runs."""
    first, _ = recorded
    assert first.status == 0, first.errors
    found = list(jobs(first.commands, "scratch"))
    assert len(dict(found)) == len(found)
    return dict(found)


def overrides(command: list[str]) -> dict[str, str]:
    """The overrides of a sweep, with the values of choices of one."""
    pairs = (word.split("=", 1) for word in command if "=" in word)
    return {name: value.removeprefix("choice(").removesuffix(")") for name, value in pairs}


def attention(config: DictConfig) -> Any:
    """The decoder's first attention to itself."""
    cfg = ARCH_MODEL_REGISTRY[config.model._name].nested(plain_options(config.model))
    decoder = cfg.decoder
    return cfg.attention_factory(cfg, "decoder", 0, decoder.embed_dim, decoder.attention_heads)


def cached(config: DictConfig) -> int:
    return sum(attention(config).cached_floats_per_token())


def layer_parameters(config: DictConfig, side: str) -> int:
    """Weights, without biases, of a layer's attentions and feed-forward."""
    own = sum(one.numel() for one in attention(config).parameters() if one.dim() == 2)
    units = config.model[f"{side}_ffn_embed_dim"]
    return (1 if side == "encoder" else 2) * own + 2 * config.model.encoder_embed_dim * units


@pytest.mark.slow
def test_methods_of_a_budget_cache_as_much(trained: dict[str, DictConfig]) -> None:
    assert [(config.method, cached(config)) for config in trained.values()] == [
        ("plain", 512),
        *((method, 384)
          for method in ("smaller-keys", "collab", "collab-values", "latent", "fewer-heads")),
        *((method, 64) for method in ("multi-query", "collab-values", "latent", "fewer-heads")),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_small_size(tmp_path: Path) -> None:
    """Budgets are shares of what its own heads cache; what is converted has its size, too."""
    (tmp_path / "fit").write_text(FIT)
    settings = {"SIZE": "small", "BUDGETS": "64", "LOG": str(tmp_path / "fit")}
    commands = Recorded(tmp_path, RECIPE, "multi30k", **settings).commands
    trained = [config for _, config in jobs(commands, "scratch")]
    assert [cached(config) for config in trained] == [256, 64, 64, 64, 64]
    tuned = [config for _, config in jobs(commands, "tuned")]
    assert [cached(config) for config in tuned] == [256, 64, 64, 64, 64]
    assert {config.model.decoder_layers for config in (*trained, *tuned)} == {2}


@pytest.mark.slow
def test_fewer_heads_have_the_parameters_of_what_they_are_compared_with(
    trained: dict[str, DictConfig],
) -> None:
    found = {(one.method, cached(one)): one for one in trained.values()}
    for other, cache in (("smaller-keys", 384), ("multi-query", 64)):
        for side in ("encoder", "decoder"):
            fewer = layer_parameters(found["fewer-heads", cache], side)
            assert fewer == layer_parameters(found[other, cache], side)


def test_converted_models_are_trained_on_in_their_shape(recorded: list[Recorded]) -> None:
    first, again = recorded
    fits = [command for command in first.commands if command[0] == "reparametrize"]
    assert {fit[1] for fit in fits} == {"/out/scratch/method-plain_seed-7/average.pt"}
    made = [options(fit)["--out"] for fit in fits]
    assert made == [
        f"/out/models/{name}/model.pt"
        for name in (
            "collab-384", "collab-values-384", "grouped-query-mean-64", "grouped-query-fit-64",
            "latent-64", "collab-values-64",
        )
    ]  # fmt: skip
    tuned = [one for one in first.commands if one[0] == "sweep" and "/out/tuned" in one]
    starts = [overrides(one)["checkpoint.finetune_from_model"] for one in tuned]
    assert starts == ["/out/scratch/method-plain_seed-7/average.pt", *made]
    for fit, tune in zip(fits, tuned[1:], strict=True):
        given = {name: value for name, value in overrides(tune).items() if name != "model"}
        for option in ("key_dim", "value_heads", "key_value_heads", "latent_dim"):
            asked = options(fit).get(f"--{option.replace('_', '-')}")
            assert given.get(f"model.{option}") == asked
        assert given["optimization.max_update"] == "9"
    kept = [command for command in first.commands if command[0] != "reparametrize"]
    assert again.commands == kept


def test_a_given_model_is_converted_and_nothing_trained(tmp_path: Path) -> None:
    (tmp_path / "fit").write_text(FIT)
    settings = {"BUDGETS": "64", "UPDATES": "0", "TRAINED": "/m.pt", "LOG": str(tmp_path / "fit")}
    recorded = Recorded(tmp_path, RECIPE, "multi30k", **settings)
    assert recorded.status == 0, recorded.errors
    assert {command[0] for command in recorded.commands} == {"reparametrize", "score", "table"}
    assert recorded.commands[-1][:2] == ["table", "/out/converted"]
    assert all(one[1] == "/m.pt" for one in recorded.commands if one[0] == "reparametrize")


@pytest.mark.slow
def test_converted_models_cache_as_much(recorded: list[Recorded]) -> None:
    """Collaborative heads that were converted keep their biases beside the keys."""
    tunes = [one for one in recorded[0].commands if "method=choice(tuned-collab-values)" in one]
    assert [cached(config) for _, config in jobs(tunes, "tuned")] == [384, 64]
