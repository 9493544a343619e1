"""What the recipes refuse before they install or make anything, and which runs they ask for."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from commands import REPOSITORY
from omegaconf import DictConfig

from fairseq_collab.evaluation import sweep


@pytest.mark.parametrize(
    ("recipe", "arguments", "message"),
    [
        ("key_dim_table.sh", [], "DATASET is ''; it must be embedded, multi30k, tatoeba, iwslt14"),
        ("key_dim_table.sh", ["wmt15"], "DATASET is 'wmt15'; it must be embedded"),
        ("key_dim_table.sh", ["tatoeba"], "Give FROM=DIR with train, valid and test"),
        ("key_dim_table.sh", ["wmt14"], "where is Google's wmt16_en_de archive"),
        ("grouped_heads.sh", ["wmt14"], "DATASET is 'wmt14'; it must be embedded or multi30k"),
    ],
)
def test_refusals(recipe: str, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / recipe, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


# ---- the runs of grouped_heads.sh ----------------------------------------------------------------

#: Takes the place of fairseq-collab: keeps its arguments, one a line, and does nothing.
RECORDER = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" END >> "$RECORD"
"""
Command = list[str]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    """Everything that the recipe asks of ``fairseq-collab``, for one seed, into ``/out``."""
    folder = tmp_path_factory.mktemp("recorder")
    recorder = folder / "fairseq-collab"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    bin_ = Path(sys.executable).parent
    settings = {
        "PATH": f"{folder}:{bin_}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(bin_.parent),
        "RECORD": str(folder / "record"),
        "DATA": "data/none",
        "OUT": str(folder / "out"),
        "SEEDS": "7",
        "SWEEP": "",
    }
    recipe = ["bash", REPOSITORY / "recipes" / "grouped_heads.sh", "multi30k"]
    environment = {**os.environ, **settings}
    done = subprocess.run(recipe, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = (folder / "record").read_text().replace(str(folder), "")
    return [command.splitlines() for command in lines.split("END\n")[:-1]]


def options(command: Command) -> dict[str, str]:
    """``--name value`` of a command."""
    return {name: value for name, value in pairwise(command) if name.startswith("--")}


def jobs(commands: list[Command], folder: str) -> Iterator[tuple[str, DictConfig]]:
    """Name and configuration of every run that goes to a folder, as the sweeps compose them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*")
    for option in ("--out", "--jobs"):
        parser.add_argument(option)
    for name, *rest in commands:
        if name == "sweep" and options(rest)["--out"] == f"/out/{folder}":
            args = parser.parse_intermixed_args(rest)
            config = REPOSITORY / args.config
            for job in sweep.plan(config, REPOSITORY / "configs", args.overrides):
                yield job.name, job.config


@pytest.fixture(scope="module")
def trained_runs(commands: list[Command]) -> dict[str, DictConfig]:
    return dict(jobs(commands, "trained"))


@pytest.fixture(scope="module")
def tuned_runs(commands: list[Command]) -> dict[str, DictConfig]:
    return dict(jobs(commands, "tuned"))


def test_grouped_heads_trains(trained_runs: dict[str, DictConfig]) -> None:
    """The names of folders, by which an experiment that was begun goes on."""
    assert list(trained_runs) == [
        "model-concatenated_seed-7",
        *(f"model-grouped_head_groups-{groups}_seed-7" for groups in (4, 2, 8)),
        "model-grouped_lite_encoder_layers-1_seed-7",
        "model-grouped_lite_encoder_embed_dim-96_seed-7",
    ]


def test_grouped_heads_fine_tunes(
    trained_runs: dict[str, DictConfig], tuned_runs: dict[str, DictConfig]
) -> None:
    """What was pruned, and the ordinary models, whole, each from its own checkpoint."""
    kinds = [("pruned", 4), ("pruned", 2), ("random", 4), ("random", 2), ("lite_pruned", 2)]
    pruned = [f"model-grouped_{kind}_heads_in_encoder-{count}_seed-7" for kind, count in kinds]
    whole = [name for name in trained_runs if "_head_groups" not in name]
    assert list(tuned_runs) == [*pruned, *whole]
    for name in whole:
        config = tuned_runs[name]
        assert config.checkpoint.finetune_from_model == f"/out/trained/{name}/average.pt"
        assert config.model == trained_runs[name].model


def test_pruned_checkpoints_have_the_sizes_of_their_runs(
    commands: list[Command],
    trained_runs: dict[str, DictConfig],
    tuned_runs: dict[str, DictConfig],
) -> None:
    tuned = {run.checkpoint.finetune_from_model: run.model for run in tuned_runs.values()}
    prunings = [command for command in commands if command[0] == "prune"]
    assert len(prunings) == 5
    for command in prunings:
        path = options(command)["--output"]
        source = trained_runs[Path(command[1]).parent.name].model
        count = int(options(command).get("--keep", source.get("head_groups", "")))
        for site in ("encoder", "decoder", "cross"):
            assert int(tuned[path][f"heads_in_{site}"]) == count
        size = source.encoder_embed_dim // source.encoder_attention_heads
        assert tuned[path].head_size == size
        units = int(options(command).get("--ffn-dim", source.encoder_ffn_embed_dim))
        for side in ("encoder", "decoder"):
            assert tuned[path][f"{side}_ffn_embed_dim"] == units
    (lite,) = (model for path, model in tuned.items() if "lite-" in path)
    assert lite.encoder_ffn_embed_dim == 128, "half of 256"


def test_grouped_heads_votes_before_it_prunes(commands: list[Command]) -> None:
    votes: set[str] = set()
    for command in commands:
        if command[0] == "vote":
            votes.add(options(command)["--output"])
        elif "--votes" in command:
            assert options(command)["--votes"] in votes
    lite = [command for command in commands if "--ffn-dim" in command]
    assert [options(command)["--votes"] for command in lite] == ["/out/pruned/votes-2-7.json"]


def test_grouped_heads_ends_with_tables(commands: list[Command]) -> None:
    assert commands[-2:] == [
        f"table /out/{folder} --x none --against concatenated --out /out/{folder}/table".split()
        for folder in ("trained", "tuned")
    ]
