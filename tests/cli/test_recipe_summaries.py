"""What the recipe of summaries wants before it trains anything, and which runs it asks for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from commands import BIN, REPOSITORY
from recipe_recorder import Command, jobs, options, record

from data_prep import dialogsum
from fairseq_collab.models.layers import SITES

pytestmark = pytest.mark.slow


def test_it_wants_the_text_of_dialogsum(tmp_path: Path) -> None:
    """In an environment that is there it makes none."""
    settings = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    settings |= {"DATA": str(tmp_path / "data"), "OUT": str(tmp_path / "out")}
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / "grouped_summaries.sh"],
        capture_output=True,
        text=True,
        env={**os.environ, **settings},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("data_prep.dialogsum: error: where is the text of DialogSum?; give")
    assert dialogsum.HOME in line
    assert not done.stdout
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    return record(tmp_path_factory.mktemp("recorder"), "grouped_summaries.sh")


def test_it_fine_tunes_what_it_has_trained_and_pruned(commands: list[Command]) -> None:
    """The names of folders, by which an experiment that was begun goes on; the checkpoints."""
    ordinary, grouped = "model-concatenated_seed-7", "model-grouped_head_groups-2_seed-7"
    trained, tuned = dict(jobs(commands, "trained")), dict(jobs(commands, "tuned"))
    assert list(trained) == [ordinary, grouped]
    starts = {name: run.checkpoint.finetune_from_model for name, run in tuned.items()}
    assert starts == {
        ordinary: f"/out/trained/{ordinary}/average.pt",
        "model-grouped_pruned_heads_in_encoder-2_seed-7": "/out/pruned/voted-7.pt",
        "model-grouped_random_heads_in_encoder-2_seed-7": "/out/pruned/random-7.pt",
    }
    assert tuned[ordinary].model == trained[ordinary].model
    assert {run.scoring._name for run in tuned.values()} == {"rouge"}
    for name in list(tuned)[1:]:
        assert {int(tuned[name].model[f"heads_in_{site}"]) for site in SITES} == {2}


def test_it_votes_prunes_and_ends_with_tables(commands: list[Command]) -> None:
    grouped = "/out/trained/model-grouped_head_groups-2_seed-7/average.pt"
    ordinary = "/out/trained/model-concatenated_seed-7/average.pt"
    votes = "/out/pruned/votes-7.json"
    chance = "--random 7 --keep 2 --output /out/pruned/random-7.pt"
    tables = [command for command in commands if command[0] == "table"]
    assert [table[1] for table in tables] == ["/out/trained", "/out/tuned"]
    assert all(options(table)["--columns"].startswith("rouge.R1,") for table in tables)
    assert [command for command in commands if command[0] not in ("sweep", "table")] == [
        ["vote", grouped, "/data", "--cpu", "--election", "cosine", "--output", votes],
        ["prune", grouped, "--votes", votes, "--output", "/out/pruned/voted-7.pt"],
        ["prune", ordinary, *chance.split()],
    ]
