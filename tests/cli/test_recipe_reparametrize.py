"""Which models ``recipes/reparametrize.sh`` converts, measures and trains on, and from what."""

from __future__ import annotations

import pytest
from recipe_recorder import Recorded, jobs, options

RECIPE = "reparametrize.sh"
METHODS = ("diagonal", "full", "own", "separate")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """The recipe, and again."""
    folder = tmp_path_factory.mktemp("recorder")
    (folder / "fit").write_text('{"attentions": []}')
    settings = {"FROM": "/trained.pt", "DIMS": "128 64", "LOG": str(folder / "fit")}
    return [Recorded(folder, RECIPE, UPDATES="9", **settings) for _ in range(2)]


def test_every_converted_model_is_a_run(recorded: list[Recorded]) -> None:
    first, _ = recorded
    assert first.status == 0, first.errors
    names = [f"{method}-{dim}-1" for dim in (128, 64) for method in METHODS]
    fits = [command for command in first.commands if command[0] == "reparametrize"]
    assert [options(fit)["--out"] for fit in fits] == [f"/out/{name}/model.pt" for name in names]
    assert [options(fit).get("--query-mixing") for fit in fits] == [*METHODS[:3], None] * 2
    scores = [command for command in first.commands if command[0] == "score"]
    assert [(score[1], options(score)["--run"]) for score in scores] == [
        ("/trained.pt", "/out/runs/trained-1"),
        *((f"/out/{name}/model.pt", f"/out/runs/{name}") for name in names),
    ]


def test_fine_tuning_starts_from_converted_models(recorded: list[Recorded]) -> None:
    first, _ = recorded
    tuned = [config for _, config in jobs(first.commands, "tuned")]
    starts = [config.checkpoint.finetune_from_model for config in tuned]
    expected = [f"/out/{method}-{dim}-1/model.pt" for dim in (128, 64) for method in METHODS]
    assert starts == [*expected, "/trained.pt"]
    mixings = [config.model.get("query_mixing") for config in tuned]
    assert mixings == [*METHODS[:3], None] * 2 + [None]
    assert {config.optimization.max_update for config in tuned} == {9}


def test_what_was_converted_is_not_converted_again(recorded: list[Recorded]) -> None:
    first, again = recorded
    assert again.commands == [one for one in first.commands if one[0] != "reparametrize"]
