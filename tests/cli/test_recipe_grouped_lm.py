"""What ``recipes/grouped_lm.sh`` trains, prunes and measures, and from which models."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_recorder import Command, Recorded, jobs, options, record

pytestmark = pytest.mark.slow

RECIPE = "grouped_lm.sh"
ORDINARY = "method-ordinary_seed-7"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    return record(tmp_path_factory.mktemp("recorder"), RECIPE, SEED="7", TUNE="9")


def test_it_trains_and_fine_tunes(commands: list[Command]) -> None:
    """The names of folders, by which an experiment that was begun goes on; the checkpoints."""
    trained, tuned = dict(jobs(commands, "trained")), dict(jobs(commands, "tuned"))
    grouped = [f"method-grouped_head_groups-{count}_seed-7" for count in (4, 2)]
    assert list(trained) == [ORDINARY, *grouped]
    criterions = [config.criterion._name for config in trained.values()]
    assert criterions == ["adaptive_loss", *["adaptive_loss_with_head_groups"] * 2]
    starts = {name: config.checkpoint.finetune_from_model for name, config in tuned.items()}
    assert starts == {
        "method-ordinary-tuned_seed-7": f"/out/trained/{ORDINARY}/average.pt",
        **{
            f"method-{kind}-tuned_heads_in_decoder-{n}_seed-7": f"/out/pruned/{kind}-{n}-7.pt"
            for kind in ("voted", "random")
            for n in (4, 2)
        },
    }
    assert {config.optimization.max_update for config in trained.values()} == {2000}
    for config in tuned.values():
        assert config.optimization.max_update == config.lr_scheduler.total_num_update == 9
        assert config.criterion == {"_name": "adaptive_loss"}
        sizes = config.model.head_size, config.model.heads_in_decoder
        assert sizes in ((None, None), (16, 4), (16, 2))


def test_it_measures_what_it_has_pruned(commands: list[Command]) -> None:
    pruned = [options(command)["--out"] for command in commands if command[0] == "prune"]
    names = [f"{kind}-{count}-7" for count in (4, 2) for kind in ("voted", "random")]
    assert pruned == [f"/out/pruned/{name}.pt" for name in names]
    scores = [command for command in commands if command[0] == "score"]
    assert [(score[1], options(score)["--run"]) for score in scores] == [
        (f"/out/pruned/{name}.pt", f"/out/kept/{name}") for name in names
    ]
    assert commands[-1][:4] == ["table", "/out/trained", "/out/kept", "/out/tuned"]


def test_a_failure_does_not_end_it(tmp_path: Path, commands: list[Command]) -> None:
    failed = Recorded(tmp_path, RECIPE, FAILS="vote", STATUS="1", SEED="7")
    assert failed.status == 1
    assert [command[0] for command in failed.commands] == [command[0] for command in commands]
