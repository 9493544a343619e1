"""What ``recipes/grouped_lm.sh`` trains, prunes and measures, from which models, and what is done
again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from recipe_recorder import Command, Recorded, options

RECIPE = "grouped_lm.sh"
PRUNED = ("voted-4", "random-4", "voted-2", "random-2")
LOG = """2026-11-21 12:00:00 | INFO | fairseq_cli.eval_lm | num. model params: 984,960
2026-11-21 12:00:09 | INFO | fairseq_cli.eval_lm | Loss (base 2): 7.1234, Perplexity: 139.42
"""


class Calls:
    """The recipe, called again and again, into a folder with a blank in its name."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "the out"
        state: dict[str, Any] = {"model": {}, "optimizer_history": [], "extra_state": {}}
        sizes = {"decoder_layers": 2, "decoder_attention_heads": 8}
        state["cfg"] = {"model": sizes, "common": {"seed": 1}}
        torch.save(state, folder / "made.pt")
        (folder / "log").write_text(LOG)
        self.failed = self(FAILS="vote", STATUS="1")
        self.rest = self(OUT=f"{self.out}/")
        self.again = self()

    def __call__(self, **settings: str) -> Recorded:
        paths = {"MADE": "made.pt", "LOG": "log", "OUT": "the out"}
        given = {name: str(self.folder / path) for name, path in paths.items()}
        return Recorded(self.folder, RECIPE, **{**given, **settings})

    def of(self, name: str) -> list[Command]:
        """All calls of a command, with one spelling of the folder."""
        found = [*self.failed.commands[:-1], *self.rest.commands]
        return [
            [word.replace("/the out//", "/the out/").replace("/the out/", "") for word in command]
            for command in found
            if command[0] == name
        ]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return Calls(tmp_path_factory.mktemp("recorder"))


def test_it_goes_on_and_does_nothing_twice(calls: Calls) -> None:
    """Trainings are whole when the vote fails; the next call votes, and does the rest."""
    assert calls.failed.status == 1
    assert [command[0] for command in calls.failed.commands] == [*["fairseq-train"] * 3, "vote"]
    assert calls.rest.status == 0, calls.rest.errors
    assert calls.rest.commands[0][0] == "vote"
    assert calls.again.status == 0, calls.again.errors
    assert calls.again.commands == []


def test_it_trains_and_fine_tunes(calls: Calls) -> None:
    """The names of folders, and the model that each goes on from."""
    trainings = [options(command) for command in calls.of("fairseq-train")]
    starts = {
        given["--save-dir"].removesuffix("/training"): given.get("--finetune-from-model")
        for given in trainings
    }
    assert starts == {
        **dict.fromkeys(("ordinary", "grouped-4", "grouped-2")),
        **{f"{name}-tuned": f"{name}/model.pt" for name in ("ordinary", *PRUNED)},
    }
    heads = [given.get("--heads-in-decoder") for given in trainings]
    assert heads == [None, None, None, None, "4", "4", "2", "2"]
    assert [given.get("--head-groups") for given in trainings[:3]] == [None, "4", "2"]
    updates = [given["--max-update"] for given in trainings]
    assert updates == [*["2000"] * 3, *["500"] * 5]


def test_it_prunes_by_votes_and_by_chance(calls: Calls) -> None:
    pruned = [[command[1], *command[4:]] for command in calls.of("prune")]
    assert pruned == [
        [
            f"{source}/model.pt",
            *how.split(),
            *("--output", f"{name}/model.pt"),
        ]
        for name, source, how in (
            ("voted-4", "grouped-4", "--votes grouped-4/votes.json"),
            ("random-4", "ordinary", "--random 1 --keep 4"),
            ("voted-2", "grouped-2", "--votes grouped-2/votes.json"),
            ("random-2", "ordinary", "--random 1 --keep 2"),
        )
    ]


def test_it_measures_all_models(calls: Calls) -> None:
    """Measured alike, though the folder was spelt in two ways."""
    tuned = [f"{name}-tuned" for name in ("ordinary", *PRUNED)]
    names = ["ordinary", "grouped-4", "grouped-2", *PRUNED, *tuned]
    measured = [options(command) for command in calls.of("fairseq-eval-lm")]
    assert [(given["--path"], given["--gen-subset"]) for given in measured] == [
        (f"{name}/model.pt", subset) for name in names for subset in ("valid", "test")
    ]
    rows = (calls.out / "perplexity.md").read_text().splitlines()[2:]
    assert rows == [f"| {name} | 8, 8 | 984,960 | 139.42 | 139.42 |" for name in names]


def test_a_training_that_fails(tmp_path: Path) -> None:
    failed = Recorded(tmp_path, RECIPE, FAILS=str(tmp_path / "data"), STATUS="1")
    assert failed.status == 1
    (line,) = failed.errors.splitlines()
    assert line.startswith(f"grouped_lm: fairseq-train {tmp_path}/data failed: see ")
    assert line.endswith("/out/ordinary/train.log")
    assert not (tmp_path / "out" / "ordinary" / "model.pt").exists()
