"""Which models ``recipes/reparametrize.sh`` converts, measures and trains on, and from what."""

from __future__ import annotations

import pytest
from recipe_recorder import Recorded, jobs, options

RECIPE = "reparametrize.sh"
FIT = '{"attentions": [{"error": 0.1}, {"error": 0.3}]}'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """The recipe, and again."""
    folder = tmp_path_factory.mktemp("recorder")
    (folder / "fit").write_text(FIT)
    settings = {"FROM": "/trained.pt", "DIMS": "128 64", "TUNE": "64", "LOG": str(folder / "fit")}
    return [Recorded(folder, RECIPE, UPDATES="9", **settings) for _ in range(2)]


def test_every_converted_model_is_a_run(recorded: list[Recorded]) -> None:
    first, _ = recorded
    assert first.status == 0, first.errors
    names = [f"{method}-{dim}" for dim in (128, 64) for method in ("root", "weights", "tensorly")]
    names += ["scores-64", "distilled-64"]
    fits = [command for command in first.commands if command[0] == "reparametrize"]
    assert [options(fit)["--out"] for fit in fits] == [f"/out/{name}/model.pt" for name in names]
    assert {fit[1] for fit in fits} == {"/trained.pt"}
    assert [options(fit)["--key-dim"] for fit in fits] == [*["128"] * 3, *["64"] * 5]
    scores = [command for command in first.commands if command[0] == "score"]
    assert [(score[1], options(score)["--run"]) for score in scores] == [
        ("/trained.pt", "/out/runs/trained"),
        *((f"/out/{name}/model.pt", f"/out/runs/{name}") for name in names),
    ]
    assert [score[7] for score in scores[:2]] == ["method=trained", "method=root"]
    assert "relative_error=0.2" in scores[1]


def test_fine_tuning_starts_from_converted_models(recorded: list[Recorded]) -> None:
    first, _ = recorded
    tuned = dict(jobs(first.commands, "tuned"))
    starts = {name: config.checkpoint.finetune_from_model for name, config in tuned.items()}
    assert starts == {
        "method-tuned-root_key_dim-64": "/out/root-64/model.pt",
        "method-tuned-tensorly_key_dim-64": "/out/tensorly-64/model.pt",
        "method-tuned-trained": "/out/trained.pt",
    }
    archs = [config.model._name for config in tuned.values()]
    assert archs == [*["transformer_collab"] * 2, "transformer_headsize_n"]
    for config in tuned.values():
        assert config.optimization.max_update == config.lr_scheduler.total_num_update == 9
    whole = "/trained.pt --random 1 --keep 4 --out /out/trained.pt"
    assert ["prune", *whole.split()] in first.commands


def test_what_was_converted_is_not_converted_again(recorded: list[Recorded]) -> None:
    first, again = recorded
    made = ("reparametrize", "prune")
    assert again.commands == [command for command in first.commands if command[0] not in made]
    assert again.commands[-1][:3] == ["table", "/out/runs", "/out/tuned"]
