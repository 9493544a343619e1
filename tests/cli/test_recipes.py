"""What the recipes refuse before they install or make anything, and which runs they ask for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import REPOSITORY
from omegaconf import DictConfig
from recipe_recorder import Command, Recorded, jobs, options, record

RECIPES = REPOSITORY / "recipes"
#: What recipes source, and what has an option or none.
PARTS = ("common.sh", "portable.sh", "stages.sh", "setup.sh", "test_matrix.sh")
#: What only GNU's tools and later versions of bash than macOS's 3.2 have.
NEWER = re.compile(
    r"\b(nproc|realpath|readlink|mapfile|readarray|(local|declare) -[An])\b|\[-\d|,,}|\|&"
)


@pytest.mark.parametrize(
    "recipe", sorted({path.name for path in RECIPES.glob("*.sh")} - set(PARTS)), ids=str
)
def test_help_is_printed_and_nothing_done(recipe: str, tmp_path: Path) -> None:
    command = ["bash", os.path.relpath(RECIPES / recipe, tmp_path), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"recipes/{recipe}" in done.stdout


@pytest.mark.parametrize(
    "recipe",
    sorted({*RECIPES.glob("*.sh")} - {RECIPES / "portable.sh"}),
    ids=lambda path: path.name,
)
def test_recipes_are_of_what_macos_has(recipe: Path) -> None:
    """And expand an array that may be empty only where portable.sh has seen to it."""
    text = recipe.read_text()
    assert not NEWER.findall(text)
    sourced = re.search(r"^source .*/(common|stages|portable)\.sh", text, re.MULTILINE)
    assert sourced or "=()" not in text


def test_a_recipe_without_gnus_tools(tmp_path: Path) -> None:
    for name in ("bash", "basename", "dirname", "getconf", "python3", "sed"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "link").symlink_to(tmp_path)
    done = subprocess.run(
        ["bash", RECIPES / "iwslt14.sh", "--dry-run", "--method", "gated", "--out", "link/new"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "VENV": "none"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"finetune_from_model={tmp_path}/new/runs/model-vanilla/average.pt" in done.stdout
    assert f"--jobs {os.sysconf('SC_NPROCESSORS_ONLN')}" in done.stdout


@pytest.mark.parametrize(
    ("recipe", "arguments", "message"),
    [
        ("key_dim_table.sh", [], "DATASET is ''; it must be one of: embedded, multi30k, iwslt14"),
        ("key_dim_table.sh", ["wmt15"], "DATASET is 'wmt15'; it must be one of: embedded"),
        ("reparametrize.sh", [], "give FROM=FILE, the model to convert"),
        ("key_dim_table.sh", ["wmt14"], "where is Google's wmt16_en_de archive"),
        ("grouped_heads.sh", ["wmt14"], "DATASET is 'wmt14'; it must be one of: multi30k"),
        ("head_pruning.sh", [], "DATASET is ''; it must be one of: multi30k"),
        ("head_size_table.sh", ["lm1b"], "DATASET is 'lm1b'; it must be one of: multi30k"),
    ],
)
def test_refusals(recipe: str, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / recipe, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("equal_cache", "DATASET is ''; it must be one of: multi30k"),
        ("equal_cache multi30k SIZE=base", "SIZE is 'base'; it must be multi30k or small"),
        (
            "equal_cache multi30k BUDGETS='64 100'",
            "BUDGETS has '100'; it must be some of 384 320 256 128 64",
        ),
        (
            "equal_cache multi30k SIZE=small BUDGETS=256",
            "BUDGETS has '256'; it must be some of 192 160 128 64 32",
        ),
        *(
            (
                f"grouped_heads multi30k COUNTS='{counts}'",
                f"COUNTS is '{counts}'; it must be numbers from 1 to 7, joined by commas",
            )
            for counts in ("4 2", "8", "0", "two")
        ),
        *(
            (
                f"{recipe} multi30k UPDATES={updates} TUNE={tune}",
                f"UPDATES is '{updates}', TUNE '{tune}'; they must be numbers",
            )
            for recipe in ("grouped_heads", "head_pruning")
            for updates, tune in (("many", ""), ("08", ""), ("800", "0"))
        ),
    ],
)
def test_settings_that_are_refused(asked: str, message: str, tmp_path: Path) -> None:
    """In one line, before any command is asked for."""
    recipe, *words = shlex.split(asked)
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    arguments = [word for word in words if "=" not in word]
    refused = Recorded(tmp_path, f"{recipe}.sh", *arguments, **settings)
    assert (refused.status, refused.commands) == (2, [])
    (line,) = refused.errors.splitlines()
    assert line.startswith(f"{recipe}: {message}")


# ---- the runs of grouped_heads.sh ----------------------------------------------------------------


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    return record(tmp_path_factory.mktemp("recorder"), "grouped_heads.sh", "multi30k")


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
        *(f"model-grouped_head_groups-{groups}_seed-7" for groups in (4, 2)),
    ]


def test_grouped_heads_fine_tunes(
    trained_runs: dict[str, DictConfig], tuned_runs: dict[str, DictConfig]
) -> None:
    """What was pruned, and the ordinary models, whole, each from its own checkpoint."""
    kinds = [(k, n) for k in ("elected", "random", "important") for n in (4, 2)]
    pruned = [f"method-{kind}_heads_in_encoder-{count}_seed-7" for kind, count in kinds]
    assert list(tuned_runs) == [*pruned, "method-standard_seed-7"]
    whole, config = "model-concatenated_seed-7", tuned_runs["method-standard_seed-7"]
    assert config.checkpoint.finetune_from_model == f"/out/trained/{whole}/average.pt"
    assert config.model == trained_runs[whole].model


def test_grouped_heads_keeps_as_many_as_are_asked_for(tmp_path: Path) -> None:
    """One count; fine-tuning takes half of the updates, unless ``TUNE`` says otherwise."""
    found = record(tmp_path, "grouped_heads.sh", "multi30k", COUNTS="3", UPDATES="800")
    assert [name for name, _ in jobs(found, "trained")] == [
        "model-concatenated_seed-7",
        "model-grouped_head_groups-3_seed-7",
    ]
    for kind, updates in (("trained", 800), ("tuned", 400)):
        assert {config.optimization.max_update for _, config in jobs(found, kind)} == {updates}


def test_pruned_checkpoints_have_the_sizes_of_their_runs(
    commands: list[Command], trained_runs: dict[str, DictConfig], tuned_runs: dict[str, DictConfig]
) -> None:
    tuned = {run.checkpoint.finetune_from_model: run.model for run in tuned_runs.values()}
    prunings = [command for command in commands if command[0] == "prune"]
    assert len(prunings) == 6
    for command in prunings:
        path = options(command)["--out"]
        source = trained_runs[Path(command[1]).parent.name].model
        count = int(options(command).get("--keep", source.get("head_groups", "")))
        if "--importance" in command:
            (heads,) = (c for c in commands if c[0] == "heads")
            assert (heads[1], options(heads)["--out"]) == (command[1], "/out/pruned/heads-7")
            assert options(command)["--importance"] == "/out/pruned/heads-7/heads.json"
        for site in ("encoder", "decoder", "cross"):
            assert int(tuned[path][f"heads_in_{site}"]) == count
        size = source.encoder_embed_dim // source.encoder_attention_heads
        assert tuned[path].head_size == size


def test_grouped_heads_votes_before_it_prunes(commands: list[Command]) -> None:
    votes: set[str] = set()
    for command in commands:
        if command[0] == "vote":
            votes.add(options(command)["--out"])
        elif "--votes" in command:
            assert options(command)["--votes"] in votes


def test_grouped_heads_ends_with_tables(commands: list[Command]) -> None:
    assert commands[-2:] == [
        f"table /out/{folder} --x none --against {baseline} --out /out/{folder}/table".split()
        for folder, baseline in (("trained", "concatenated"), ("tuned", "standard"))
    ]


# ---- failures ------------------------------------------------------------------------------------

GROUPED = [("grouped_heads.sh", "multi30k")]


@pytest.mark.parametrize("recipe", GROUPED)
@pytest.mark.parametrize("failing", ["sweep", "vote", "prune"])
def test_a_failure_does_not_end_a_recipe(
    recipe: tuple[str, ...], failing: str, tmp_path: Path
) -> None:
    """It asks for all the rest, and its status tells of the failure."""
    failed = Recorded(tmp_path, *recipe, FAILS=failing, STATUS="1", OUT=f"{tmp_path}/other")
    assert failed.status == 1
    whole = record(tmp_path, *recipe)
    there = [[word.replace("/other/", "/out/") for word in command] for command in failed.commands]
    assert there == whole


@pytest.mark.parametrize("recipe", GROUPED)
@pytest.mark.parametrize("failing", ["sweep", "vote", "prune"])
def test_an_interruption_ends_a_recipe(
    recipe: tuple[str, ...], failing: str, tmp_path: Path
) -> None:
    ended = Recorded(tmp_path, *recipe, FAILS=failing, STATUS="130")
    assert ended.status == 130
    assert [command[0] for command in ended.commands].count(failing) == 1
    assert ended.commands[-1][0] == failing


@pytest.mark.parametrize("recipe", GROUPED)
def test_what_was_pruned_is_not_pruned_again(recipe: tuple[str, ...], tmp_path: Path) -> None:
    first, second = (record(tmp_path, *recipe) for _ in range(2))
    assert {"vote", "prune"} <= {command[0] for command in first}
    assert second == [command for command in first if command[0] not in ("vote", "prune")]


@pytest.mark.parametrize("recipe", ["iwslt14", "wmt14_en_de", "wmt14_en_fr"])
def test_help_names_every_option(recipe: str) -> None:
    words = ["bash", f"recipes/{recipe}.sh", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    stages = (REPOSITORY / "recipes" / "stages.sh").read_text()
    cases = re.findall(r"^ +((?:-[a-z-]+ \| )*--[a-z-]+(?: \| --[a-z-]+)*)\) ", stages, re.M)
    wanted = {option for case in cases for option in case.split(" | ")} - {"-h"}
    assert wanted > {"--head-size", "--gate-penalty", "--method", "--help"}
    if recipe != "iwslt14":
        wanted -= {"--pair"}  # there is one
    assert wanted <= {*re.findall(r"--[a-z0-9-]+", told)}
