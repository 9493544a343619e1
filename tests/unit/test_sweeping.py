"""The plan of a sweep: kinds of runs, unknown names, unfit data; what it says meanwhile."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fairseq.dataclass import initialize
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from refusals import refusing

from collab_lab.cli import sweep as command
from collab_lab.runs import config_folder, progress, scheduler
from collab_lab.runs import sweep as planning
from collab_lab.runs.checks import check_data, check_valid_set, check_weights
from collab_lab.runs.progress import Progress, told
from collab_lab.runs.run import Run
from collab_lab.runs.scheduler import Scheduler
from collab_lab.runs.sweep import Job, combinations, kinds_of_runs, plan

MINE = "# @package _global_\ndefaults: [/base, {/data: multi30k}, {/model: collab}, _self_]\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A configuration in a folder of its own."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


# ---- unknown names -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        # An option that another model of the sweep has, however it is given.
        ("model=vanilla,collab model.key_dim=32,16", ("model.key_dim", "transformer")),
        ("model=vanilla +model.key_dim=32", ("model.key_dim", "transformer")),
        # The nearest name, of every group.
        ("model.keydim=32", ("model.keydim", "key_dim?")),
        ("optimization.max_updates=9", ("optimization.max_updates", "max_update?")),
        ("task.target_land=fr", ("task.target_land", "target_lang?")),
        ("model=vanila", ("model=vanila", "?")),
        ("optimisation.max_update=9", ("optimisation", "optimization?")),
        ("modl=collab", ("modl", "model?")),
        ("key_dim=32", ("key_dim", "model.key_dim?")),
        ("+schedul=falling", ("schedul", "schedule?")),
        ("model.query_mixing=ful", ("model.query_mixing", "full?")),
    ],
)
def test_unknown_names(overrides: str, said: tuple[str, str], mine: Path) -> None:
    with refusing(*said):
        plan(mine, overrides.split())


@pytest.mark.slow
def test_an_option_that_no_file_lists(mine: Path) -> None:
    """But the model has it: of ours, and of fairseq's, which has no list of options."""
    (ours,) = plan(mine, ["model.encoder_layers=2", "method=mine"])
    assert (ours.config.model.encoder_layers, ours.config.method) == (2, "mine")
    (stock,) = plan(mine, ["model=vanilla", "model.encoder_layers=2"])
    assert stock.config.model.encoder_layers == 2


# ---- one run on one page -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_printed_run_is_the_run(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether sweep reads it, or Hydra as fairseq-hydra-train calls it."""
    words = [str(mine), "--print", "key_dim-16", "task.data=data", "model.key_dim=8,16"]
    assert command.main(words) == 0
    page = tmp_path / "pages" / "one.yaml"
    page.parent.mkdir()
    page.write_text(capsys.readouterr().out)
    _, job = plan(mine, words[3:])
    (again,) = plan(page, [])
    assert again.config == job.config
    assert job.config.model.key_dim == 16
    initialize.hydra_init("pages/one")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), version_base="1.1"):
        assert compose("pages/one") == job.config
    with refusing("key_dim-61", "key_dim-16?"):
        command.main([str(mine), "--print", "key_dim-61", *words[3:]])


# ---- kinds of runs -------------------------------------------------------------------------------

KINDS = """\
runs:
  - model: vanilla
  - model: collab_diagonal
    model.key_dim: [32, 16]
  - {model: latent, model.latent_dim: 8, optimization.lr: [[0.001]]}
hydra: {sweeper: {params: {common.seed: choice(2)}}}
"""


@pytest.mark.slow
def test_kinds_of_runs_have_options_of_their_own(mine: Path) -> None:
    mine.write_text(MINE + KINDS)
    jobs = {job.name: job for job in plan(mine, ["model.dropout=0"])}
    kinds = ["model-vanilla", *(f"model-collab_diagonal_key_dim-{n}" for n in (32, 16))]
    kinds += ["model-latent_latent_dim-8_lr--0.001-"]
    assert jobs.keys() == {f"seed-2_{kind}" for kind in kinds}
    job = jobs["seed-2_model-collab_diagonal_key_dim-16"]
    assert job.overrides == {
        **{"common.seed": "2", "model": "collab_diagonal", "model.key_dim": "16"}
    }
    model = job.config.model
    assert (model._name, model.key_dim, model.dropout) == ("transformer_collab", 16, 0)
    assert "runs" not in job.config
    mine.write_text(MINE + "runs: [{model: vanilla, model.key_dim: 32}]\n")
    with refusing("model.key_dim", "transformer"):
        plan(mine, [])


def test_values_of_kinds_of_runs() -> None:
    (kind,) = kinds_of_runs([{"a": None, "b": [True, "x"], "c": [[1, 2]], "d": "range(1,3)"}])
    found = list(combinations([*kind, "d=5"]))
    assert found == [
        ({"b": b, "c": "[1,2]"}, ["a=null", "d=5", f"b={b}", "c=[1,2]"]) for b in ("True", "x")
    ]
    assert kinds_of_runs(None) == [[]]
    for wrong in ({}, [], ["model"], [{"model": {"key_dim": 3}}], "collab"):
        with refusing("runs"):
            kinds_of_runs(wrong)


# ---- data and weights ----------------------------------------------------------------------------


def config_of(folder: Path, **options: Any) -> DictConfig:
    task = {"data": str(folder), "source_lang": "en", "target_lang": "de"}
    dataset = {"train_subset": "train", "valid_subset": "valid", "gen_subset": "test"}
    content = {"task": task, "dataset": dataset, "checkpoint": {}}
    for name, value in options.items():
        section, _, option = name.partition("__")
        content[section][option] = value
    return OmegaConf.create(content)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    names = ["raw/test.de", *(f"dict.{language}.txt" for language in ("en", "de"))]
    names += [
        f"{name}.en-de.{side}.idx" for name in ("train", "valid", "test") for side in ("en", "de")
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task__target_lang": "fr"}, ("fr", "task.target_lang")),
        ({"task__source_lang": None}, ("task.source_lang",)),
        ({"dataset__gen_subset": "test7"}, ("raw/test7.de",)),
        ({"dataset__valid_subset": "valid,valid1"}, ("valid1.",)),
        ({"dataset__valid_subset": "test"}, ("dataset.valid_subset",)),
        ({"dataset__valid_subset": "test,valid"}, ("dataset.valid_subset",)),
        ({"dataset__train_subset": "all"}, ("all.",)),
    ],
)
def test_data_is_checked_before_the_start(
    options: dict[str, Any], said: tuple[str, ...], data: Path
) -> None:
    check_data(config_of(data))
    with refusing(*said):
        check_data(config_of(data, **options))


@pytest.mark.parametrize(
    ("words", "fits"), [("\u2581ein e", "sentencepiece"), ("ei@@ n", "subword_nmt"), ("ein", None)]
)
def test_subwords_are_checked_before_the_start(words: str, fits: str | None, data: Path) -> None:
    """Translations would be joined as other subwords, after a training of hours."""
    (data / "dict.de.txt").write_text("".join(f"{word} 1\n" for word in words.split()))
    for kind in ("sentencepiece", "subword_nmt"):
        config = OmegaConf.merge(config_of(data), {"common_eval": {"post_process": kind}})
        if kind == fits or (fits is None and kind == "subword_nmt"):  # which leaves words alone
            check_data(config)
            continue
        with refusing("common_eval.post_process", f"give {fits or 'null'}"):
            check_data(config)
    check_data(OmegaConf.merge(config_of(data), {"common_eval": {"post_process": None}}))
    if fits == "sentencepiece":
        config = OmegaConf.merge(config_of(data), {"common_eval": {"post_process": "@@ "}})
        with refusing("common_eval.post_process", "give sentencepiece"):  # subword_nmt's name
            check_data(config)


def test_a_score_needs_a_validation_set(data: Path) -> None:
    """Of which a checkpoint from elsewhere may have none."""
    check_valid_set(config_of(data))
    for path in data.glob("valid.*"):
        path.unlink()
    with refusing(str(data), "no validation set"):
        check_valid_set(config_of(data))


def test_every_further_folder_has_a_training_set(data: Path) -> None:
    (data / "more").mkdir()
    config = config_of(data, task__data=f"{data}:{data / 'more'}")
    with refusing(str(data / "more"), "train."):
        check_data(config)
    (data / "more" / "train.en-de.en.idx").touch()
    check_data(config)


def test_weights_are_checked_before_the_start(tmp_path: Path) -> None:
    check_weights(config_of(tmp_path, checkpoint__restore_file="s3://bucket/a.pt"))
    with refusing("none.pt", "finetune_from_model"):
        check_weights(config_of(tmp_path, checkpoint__finetune_from_model="none.pt"))


def test_missing_data_is_said_at_once(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the command line names it before anything is composed; else with the first run."""
    composed = list[str]()
    compose = planning.compose

    def counted(name: str, *arguments: Any, **more: Any) -> Any:
        composed.append(name)
        return compose(name, *arguments, **more)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "compose", counted)
    words = [str(mine), "model.key_dim=8,16,32"]
    with refusing("nowhere", "task.data"):
        command.main([*words, "task.data=nowhere"])
    assert composed == []
    with refusing("task.data"):
        command.main([*words, "task.data='no where'"])
    assert len(composed) == 2, "the file, and one run"


# ---- while it trains -----------------------------------------------------------------------------


def entry(updates: int) -> str:
    numbers = {"epoch": 1, "update": updates / 200, "loss": "5.312", "ups": "2.5"}
    content = json.dumps({**numbers, "num_updates": str(updates)})
    return f"2026-01-01 00:00:00 | INFO | train_inner | {content}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimization": {"max_update": 3400, "max_epoch": 0}}, ["100 of 3,400", "22 min"]),
        ({"optimization": {"max_update": 0, "max_epoch": 16}}, ["100 of 3,200", "21 min"]),
        ({"optimization": {"max_update": 100_000, "max_epoch": 90}}, ["100 of 18,000", "2.0 h"]),
        (
            {"optimization": {"max_epoch": 4}, "checkpoint": {"patience": 2}},
            ["100 of 800", "at most 5 min"],
        ),
        ({}, ["100"]),
    ],
)
def test_how_far_a_training_is(options: dict[str, Any], said: list[str]) -> None:
    content = json.loads(entry(100).partition("train_inner | ")[2])
    line = told(content, OmegaConf.create(options))
    assert all(part in line for part in ["5.31", *said])
    assert ("left" in line) == bool(options)


def test_news_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of former attempts, and each once."""
    monkeypatch.setattr(progress, "EVERY", 0)
    run, config = Run(tmp_path), OmegaConf.create({})
    run.log.write_text(entry(100))
    following = Progress(run, config)
    assert following.news() is None
    for text in (entry(200), entry(300)[:30]):
        with run.log.open("a") as log:
            log.write(text)
    following.next_look = 0
    news = str(following.news())
    assert all(part in news for part in ("200", "5.31", str(run.log)))
    assert following.news() is None
    run.trained_file.touch()
    following.next_look = 0
    assert "scored" in str(following.news())


def test_a_sweep_says_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run resumes if there is a checkpoint, and starts otherwise, though it was begun before."""
    script = f"echo '{entry(100).strip()}'; exec sleep 60"
    monkeypatch.setattr(scheduler, "child_command", lambda _: ["sh", "-c", script])
    run = Run(tmp_path / "run")
    job = Job("run", {}, OmegaConf.create({"optimization": {"max_update": 800}}))
    run.checkpoints.mkdir(parents=True)
    for word in ("starts", "starts", "resumes"):
        if word == "resumes":
            (run.checkpoints / "checkpoint_last.pt").touch()
        ours = Scheduler({run: job}, 1, [])
        ours.step()
        while not ours.processes[0].progress.said:
            ours.processes[0].progress.next_look = 0.0
            ours.step()
        ours.stop()
        said = capsys.readouterr().out
        first, second, *_ = said.splitlines()
        assert first == f"run: {word}"
        assert "100 of 800" in second


def test_a_file_of_another_checkout(tmp_path: Path) -> None:
    """Its folders have the names of ours: Hydra's own words do not say what is wrong."""
    shutil.copytree(config_folder(), tmp_path / "configs")
    file = tmp_path / "configs" / "experiment" / "key_dim_multi30k.yaml"
    with refusing("another checkout"):
        planning.plan(file, [])
