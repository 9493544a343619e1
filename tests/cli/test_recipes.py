"""Recipes of experiments: which runs they ask for, what they reject, and how they fail."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import REPOSITORY
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig
from recipe_recorder import Command, Recorded, jobs, options, record
from toy_heads import write_configuration

from collab_common import ATTENTION_TYPES
from fairseq_collab.models.options import Site, plain_options

pytestmark = pytest.mark.slow

RECIPES = REPOSITORY / "recipes"
#: What recipes source, and what has no option.
PARTS = ("common.sh", "portable.sh", "stages.sh", "setup.sh")


@pytest.mark.parametrize(
    "recipe", sorted({path.name for path in RECIPES.glob("*.sh")} - set(PARTS)), ids=str
)
def test_help_is_printed_and_nothing_done(recipe: str, tmp_path: Path) -> None:
    command = ["bash", os.path.relpath(RECIPES / recipe, tmp_path), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"recipes/{recipe}" in done.stdout


UPDATES = "UPDATES is '{}', TUNE '{}'; they must be numbers"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("key_dim_table", "DATASET is ''; it must be one of: demo, multi30k, iwslt14"),
        ("key_dim_table wmt14", "where is Google's wmt16_en_de archive"),
        ("reparametrize", "give FROM=FILE, the model to convert"),
        ("head_size_table lm1b", "DATASET is 'lm1b'; it must be one of: multi30k"),
        ("decide", "give DATA=DIR, a folder of fairseq-collab data prepare"),
        (
            "grouped_heads multi30k COUNTS=8",
            "COUNTS is '8'; it must be numbers from 1 to 7, joined by commas",
        ),
        ("grouped_heads multi30k UPDATES=08", UPDATES.format("08", "")),
        ("head_pruning multi30k UPDATES=800 TUNE=0", UPDATES.format("800", "0")),
    ],
)
def test_settings_that_are_rejected(asked: str, message: str, tmp_path: Path) -> None:
    """In one line, before any command is asked for."""
    recipe, *words = shlex.split(asked)
    settings = {"DATA": "", **dict(word.split("=", 1) for word in words if "=" in word)}
    arguments = [word for word in words if "=" not in word]
    rejected = Recorded(tmp_path, f"{recipe}.sh", *arguments, **settings)
    assert (rejected.status, rejected.commands) == (2, [])
    (line,) = rejected.errors.splitlines()
    assert line.startswith(f"{recipe}: {message}")


GROUPED = ("grouped_heads.sh", "multi30k")


@pytest.mark.parametrize("failing", ["sweep", "prune"])
def test_failures_and_interruptions(failing: str, tmp_path: Path) -> None:
    """A recipe runs the rest after a failure and reports it; an interruption ends it.

    What was pruned is not pruned again.
    """
    ended = Recorded(tmp_path, *GROUPED, FAILS=failing, STATUS="130")
    assert ended.status == 130
    assert [command[0] for command in ended.commands].count(failing) == 1
    assert ended.commands[-1][0] == failing
    failed = Recorded(tmp_path, *GROUPED, FAILS=failing, STATUS="1", OUT=f"{tmp_path}/other")
    assert failed.status == 1
    first, second = (record(tmp_path, *GROUPED, OUT=f"{tmp_path}/whole") for _ in range(2))
    there = [[word.replace("/other/", "/whole/") for word in one] for one in failed.commands]
    assert there == first
    assert second == [command for command in first if command[0] not in ("vote", "prune")]


def asked(commands: list[Command], name: str) -> list[Command]:
    return [command for command in commands if command[0] == name]


# ---- the runs of each recipe ---------------------------------------------------------------------


def test_grouped_heads(tmp_path: Path) -> None:
    """Pruned checkpoints have the sizes of the runs that start from them."""
    commands = record(tmp_path, *GROUPED)
    trained, tuned = (dict(jobs(commands, folder)) for folder in ("trained", "tuned"))
    standard = "model-concatenated_seed-7"
    grouped = [f"model-grouped_head_groups-{groups}_seed-7" for groups in (4, 2)]
    assert list(trained) == [standard, *grouped]
    whole = tuned["method-standard_seed-7"]
    assert whole.checkpoint.finetune_from_model == f"/out/trained/{standard}/average.pt"
    assert whole.model == trained[standard].model
    models = {run.checkpoint.finetune_from_model: run.model for run in tuned.values()}
    assert len(models) == len(tuned) == 7
    for command in asked(commands, "prune"):
        made = models[options(command)["--out"]]
        source = trained[Path(command[1]).parent.name].model
        count = int(options(command).get("--keep", source.get("head_groups", "")))
        assert [int(made[f"heads_in_{type_}"]) for type_ in ATTENTION_TYPES] == [count] * 3
        assert made.head_size == source.encoder_embed_dim // source.encoder_attention_heads


METHODS = ("diagonal", "full", "own", "separate")


def test_reparametrize(tmp_path: Path) -> None:
    """Every converted model is a run, and is fine-tuned, as is the given one."""
    settings = {"FROM": "/trained.pt", "DIMS": "128 64"}
    commands = record(tmp_path, "reparametrize.sh", UPDATES="9", **settings)
    names = [f"{method}-{dim}-1" for dim in (128, 64) for method in METHODS]
    models = [f"/out/{name}/model.pt" for name in names]
    fits = asked(commands, "reparametrize")
    assert [options(fit)["--out"] for fit in fits] == models
    assert [options(fit).get("--query-mixing") for fit in fits] == [*METHODS[:3], None] * 2
    scores = [(score[1], options(score)["--run"]) for score in asked(commands, "score")]
    runs = [f"/out/runs/{name}" for name in ("trained-1", *names)]
    assert scores == list(zip(("/trained.pt", *models), runs, strict=True))
    tuned = [config for _, config in jobs(commands, "tuned")]
    starts = [config.checkpoint.finetune_from_model for config in tuned]
    assert starts == [*models, "/trained.pt"]
    assert [run.model.get("query_mixing") for run in tuned] == [*METHODS[:3], None] * 2 + [None]
    assert {config.optimization.max_update for config in tuned} == {9}


def cached(config: DictConfig) -> int:
    """Numbers per token in the KV cache of a layer of decoder self-attention."""
    cfg = ARCH_MODEL_REGISTRY[config.model._name].nested(plain_options(config.model))
    width, heads = cfg.decoder.embed_dim, cfg.decoder.attention_heads
    site = Site("decoder", 0, width, width, heads)
    return sum(cfg.attention_factory(cfg, site).cached_floats_per_token())


def test_decide(tmp_path: Path) -> None:
    """Kinds have the caches of their names; conversions start from standard heads."""
    out = tmp_path / "out"
    whole = out / "scratch" / "method-standard_seed-7" / "average.pt"
    whole.parent.mkdir(parents=True)
    whole.touch()
    made = str(write_configuration(tmp_path / "pruned.pt", "4,1", "8,2", "7,8"))
    recorded = Recorded(tmp_path, "decide.sh", told_as=str(tmp_path), MADE=made, UPDATES="4800")
    commands = recorded.commands
    trained = {run.method: cached(run) for _, run in jobs(commands, "scratch", out)}
    narrow_keys = ("own", "full", "diagonal", "separate", "own-xavier", "full-xavier")
    assert trained == {
        "standard": 256, **dict.fromkeys(narrow_keys, 160),
        "grouped-2": 128, "grouped-4": 64, "latent-4": 64, "normalised-4": 64,
        "latent-8": 32,
    }  # fmt: skip
    changed = [*asked(commands, "reparametrize"), *asked(commands, "prune")]
    assert len(changed) == 14
    assert {command[1] for command in changed} == {str(whole)}
    tuned = {run.method: run for _, run in jobs(commands, "tuned", out)}
    assert list(tuned) == ["standard", "to-heads-2", "to-heads-3"], "those whose files are there"
    assert tuned["standard"].checkpoint.finetune_from_model == str(whole)
    assert {run.optimization.max_update for run in tuned.values()} == {480}
    models = out / "models" / "7" / "model"
    (models / "to-heads-2.yaml").rename(models / "to-latent-4.yaml")
    shape = Recorded(tmp_path, "decide.sh", told_as=str(tmp_path), KINDS="shape-latent-4")
    ((_, run),) = jobs(shape.commands, "scratch", out)
    assert run.model.heads_in_encoder == "4,1", "the sizes of the configuration"
    assert run.checkpoint.finetune_from_model is None
    some = Recorded(tmp_path, "decide.sh", KINDS="latent-4", WIDTH="64", SEEDS="8").commands
    assert [cached(run) for _, run in jobs(some, "scratch")] == [32]
    few = Recorded(tmp_path, "decide.sh", KINDS="standard grouped-4 own", HEADS="4").commands
    runs = [run for _, run in jobs(few, "scratch")]
    assert {run.model.encoder_attention_heads for run in runs} == {4}
    assert [cached(run) for run in runs] == [256, 160, 64]
    assert [command[0] for command in some] == ["sweep"]
    base = Recorded(tmp_path, "decide.sh", KINDS="standard", EXPERIMENT="base").commands
    ((_, run),) = jobs(base, "scratch")
    assert (run.model.encoder_ffn_embed_dim, run.optimization.max_update) == (2048, 10_000)


def test_head_pruning(tmp_path: Path) -> None:
    """Gates start from standard heads; every finished run is pruned and trained for as long."""
    out, standard = tmp_path / "out", "model-concatenated_seed-7"
    finished = [f"gated/gate_penalty-{penalty}_seed-7" for penalty in ("0", "0.01")]
    for run in (f"trained/{standard}", f"begun/{standard}", *finished):
        (out / run).mkdir(parents=True)
        (out / run / "score.json").touch()
    pruned = {"qk_head_size": 16, "v_head_size": 16}
    made = write_configuration(tmp_path / "pruned.pt", "4,1", "8,2", "7,8", **pruned)
    settings = {"MADE": str(made), "PENALTIES": "0,0.01,0.1"}
    recorded = Recorded(tmp_path, "head_pruning.sh", "multi30k", told_as=str(tmp_path), **settings)
    assert recorded.status == 1, "one run is not finished"
    assert "gate_penalty-0.1_seed-7 is not finished" in recorded.errors
    trained, gated, tuned, priced, begun, early = (
        dict(jobs(recorded.commands, folder, out))
        for folder in ("trained", "gated", "tuned", "priced", "begun", "early")
    )
    whole = f"{out}/trained/{standard}/average.pt"
    assert [run.criterion.gate_penalty for run in gated.values()] == [0, 0.01, 0.1]
    assert {run.checkpoint.finetune_from_model for run in gated.values()} == {whole}
    gates = [f"{out}/pruned/7/gates/model/gates-{penalty}.pt" for penalty in ("0", "0.01")]
    data = [f"{tmp_path}/data", "--cpu"]
    assert [(one[1], one[2:]) for one in asked(recorded.commands, "prune")] == [
        *((f"{out}/{run}/average.pt", [*data, "--gates", "--out", gate])
          for run, gate in zip(finished, gates, strict=True)),
        *((f"{out}/{run}/{standard}/average.pt",
           [*data, "--as-many-as", gates[1],
            "--out", f"{out}/pruned/7/{way}/model/{way}-0.01.pt"])
          for run, way in (("trained", "priced"), ("begun", "early"))),
    ]  # fmt: skip
    names = ["model-gates-0.01_seed-7", "model-gates-0_seed-7"]
    names += ["model-priced-0.01_seed-7", "model-early-0.01_seed-7"]
    assert [*tuned, *priced, *early] == names
    for config in (*tuned.values(), *priced.values(), *early.values()):
        # a copy of one configuration, which names the model that it was written for
        assert config.checkpoint.finetune_from_model == str(made)
        assert [config.model[f"heads_in_{type_}"] for type_ in ATTENTION_TYPES] == [
            "4,1",
            "8,2",
            "7,8",
        ]
    updates = [runs.optimization.max_update for runs in (
        gated["gate_penalty-0.01_seed-7"], tuned[names[0]], priced[names[2]], trained[standard],
        begun[standard], early[names[3]],
    )]  # fmt: skip
    assert updates[0] + updates[1] == updates[2] == updates[3]
    assert updates[4] + updates[5] == updates[2] + updates[3]
    assert begun[standard].lr_scheduler.total_num_update == updates[4] + updates[5]
