"""Commands and configurations that train a changed model on, with its task and its loss."""

from __future__ import annotations

import math
import shlex
import sys
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_checkpoints
from fairseq import criterions, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from collab_lab.runs import config_folder
from collab_lab.runs.sweep import plan
from collab_lab.shrinking.retained import pruned
from collab_lab.trained import fine_tuning
from collab_lab.trained.checkpoint import Trained, open_model

SMALL = ["--arch", "transformer_headsize_n", "--max-tokens", "100", "--optimizer", "adam"]
TASKS = {
    "translation": "--source-lang en --target-lang de --left-pad-source --truncate-source "
    "--max-source-positions 50 --num-batch-buckets 3 --eval-bleu-args '{\"beam\": 4}'",
    "language_modeling": "--tokens-per-sample 12 --sample-break-mode eos --add-bos-token "
    "--shorten-method truncate",
    "translation_multi_simple_epoch": "--lang-pairs en-de,de-en --langs de,en "
    "--encoder-langtok tgt --decoder-langtok --left-pad-source False "
    "--sampling-method temperature --sampling-temperature 3",
}
CRITERIONS = {
    "cross_entropy": "--sentence-avg",
    "label_smoothed_cross_entropy": "--label-smoothing 0.2 --ignore-prefix-size 1",
    "adaptive_loss": "--ddp-backend legacy_ddp",  # fairseq rejects it with another one
}


def trained_by(words: list[str], path: Path) -> Trained:
    """What a checkpoint has of a command of ``fairseq-train``, its task set up."""
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))
    return Trained(path, {"cfg": cfg}, None, tasks.setup_task(cfg.task))


def plain(section: Any) -> dict[str, Any]:
    return OmegaConf.to_container(section) if OmegaConf.is_config(section) else vars(section)


def tuning(source: Trained, updates: int = 100) -> list[str]:
    """The words of the command that trains a checkpoint on."""
    folder = source.path.with_suffix("")
    return shlex.split(fine_tuning.command(source, source.path, folder, updates))


@pytest.mark.parametrize(("task", "criterion"), [*zip(TASKS, CRITERIONS, strict=True)])
def test_what_is_printed_has_the_task_and_the_criterion(
    task: str, criterion: str, tmp_path: Path
) -> None:
    given = [*shlex.split(TASKS[task]), *shlex.split(CRITERIONS[criterion]), *SMALL]
    if task == "language_modeling":
        given[given.index("transformer_headsize_n")] = "transformer_lm_headsize_n"
    chosen = ["--task", task, "--criterion", criterion, *given]
    source = trained_by([str(toy_checkpoints.COPY), *chosen], tmp_path / "c.pt")
    program, *words = tuning(source)
    again = trained_by(words, tmp_path / "again.pt")
    found, expected = (plain(one.cfg.task) for one in (again, source))
    tasks.TASK_REGISTRY[task].add_args(parser := ArgumentParser(add_help=False))
    for option in vars(parser.parse_known_args(["."])[0]):
        assert found[option] == expected[option], option
    assert plain(again.cfg.criterion) == plain(source.cfg.criterion)
    criterions.build_criterion(again.cfg.criterion, again.task)
    assert program == "fairseq-train"


#: Options of a training, and what a fine-tuning of 100 updates has of them.
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "a rate that is warmed up": (
        "--optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 0.5 "
        "--lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 10 --max-tokens 100",
        {"lr": [0.003], "warmup_updates": 10, "weight_decay": 0.01, "clip_norm": 0.5},
    ),
    "a warm-up longer than a fifth of what comes": (
        "--optimizer adam --lr 0.002 --lr-scheduler polynomial_decay --total-num-update 9000 "
        "--warmup-updates 500 --max-tokens 100",
        {"lr": [0.002], "warmup_updates": 20, "max_tokens": 100},
    ),
    "another optimizer, without warm-up, and sentences": (
        "--optimizer nag --momentum 0.8 --lr 0.25,0.1 --batch-size 7 --update-freq 3",
        {"lr": [0.25], "warmup_updates": 20, "momentum": 0.8, "batch_size": 7, "update_freq": [3]},
    ),
    "processes that train together": (
        "--optimizer adam --lr 0.1 --update-freq 2 --distributed-world-size 4 --max-tokens 100 "
        "--skip-invalid-size-inputs-valid-test",
        {"update_freq": [8], "max_tokens": 100, "skip_invalid_size_inputs_valid_test": True},
    ),
    "several validation sets": (
        "--optimizer adam --lr 0.1 --max-tokens 100 --combine-valid-subsets --disable-validation "
        "--ignore-unused-valid-subsets",
        {
            "combine_valid_subsets": True,
            "ignore_unused_valid_subsets": True,
            "disable_validation": True,
        },
    ),
}


@pytest.mark.parametrize("training", TRAININGS)
def test_the_rate_and_the_batches_are_those_of_the_training(training: str, tmp_path: Path) -> None:
    """As read by fairseq; the rate rises, and ends at 0."""
    given, expected = TRAININGS[training]
    words = ["--source-lang=en", "--target-lang=de", *SMALL[:2], *given.split()]
    source = trained_by([str(toy_checkpoints.COPY), *words], tmp_path / "c.pt")
    parser = options.get_training_parser()
    found = options.parse_args_and_arch(parser, tuning(source)[1:])
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.lr_scheduler, found.end_learning_rate) == ("polynomial_decay", 0)
    assert (found.max_update, float(found.total_num_update)) == (100, 100)


def test_a_pass_has_the_updates_of_the_training(tmp_path: Path) -> None:
    """As many as fairseq itself counts; processes share the batches."""
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", head_size=3)
    source = open_model(path, toy_checkpoints.COPY)
    source.task.load_dataset("train")
    counted = source.task.get_batch_iterator(source.task.dataset("train"), max_sentences=2)
    assert fine_tuning.updates_per_pass(source) == len(counted)
    source.cfg.optimization.update_freq = [4]
    source.cfg.distributed_training.distributed_world_size = 2
    assert fine_tuning.updates_per_pass(source) == math.ceil(len(counted) / 8)


def test_the_original_is_trained_alike(tmp_path: Path) -> None:
    """The second command opens the original, and differs from the first in the model only."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    source = open_model(path, toy_checkpoints.COPY)
    kept: Any = {type_: [[0, 2], [3]] for type_ in source.heads}
    smaller = pruned(source, kept)
    smaller.save(tmp_path / "small.pt")
    _, small, _, same = fine_tuning.fine_tuning_lines(source, smaller, tmp_path / "small.pt")
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, shlex.split(same)[1:])
    model = source.task.build_model(convert_namespace_to_omegaconf(args).model)
    model.load_state_dict(source.model.state_dict())
    assert args.finetune_from_model == str(path)
    how = " --optimizer"
    assert (
        small.partition(how)[2].partition("--save-dir")[0]
        == (same.partition(how)[2].partition("--save-dir")[0])
    )
    assert small.partition("--save-dir")[2] != same.partition("--save-dir")[2]


def test_what_is_not_known_is_said_in_place_of_a_command(tmp_path: Path) -> None:
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    source.cfg.dataset.train_subset = "none"
    (line,) = fine_tuning.fine_tuning_lines(source, source, tmp_path / "small.pt")
    assert str(toy_checkpoints.COPY) in line
    source.cfg.optimizer = None
    (line,) = fine_tuning.fine_tuning_lines(source, source, tmp_path / "small.pt")
    assert str(source.path) in line


def test_the_term_for_heads_is_left_out(tmp_path: Path) -> None:
    """The changed model has no groups of heads."""
    words = ["--source-lang=en", "--target-lang=de", "--label-smoothing=0.3", *SMALL]
    words += ["--criterion=label_smoothed_cross_entropy_with_head_groups"]
    source = trained_by([str(toy_checkpoints.COPY), *words], tmp_path / "c.pt")
    words = tuning(source)[1:]
    again = trained_by(words, tmp_path / "again.pt").cfg.criterion
    assert (again._name, again.label_smoothing) == ("label_smoothed_cross_entropy", 0.3)


@pytest.mark.parametrize(
    ("criterion", "smoothing"),
    [("cross_entropy", 0), ("label_smoothed_cross_entropy", 0), ("adaptive_loss", None)],
)
def test_a_sweep_has_the_task_and_the_criterion(
    criterion: str, smoothing: float | None, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    words = [str(toy_checkpoints.COPY), *shlex.split(TASKS["translation"]), *SMALL]
    words += ["--ddp-backend=legacy_ddp", "--seed=7"] if smoothing is None else []
    source = trained_by([*words, "--criterion", criterion], tmp_path / "c.pt")
    fine_tuning.write_configuration(source, tmp_path / "model" / "small.pt")
    overrides = [f"hydra.searchpath=['file://{tmp_path}']", "model=choice(small)"]
    overrides += ["common.seed=choice(1)"]
    if smoothing is None:
        overrides.append("~criterion.label_smoothing")  # of configs/base.yaml
    (job,) = plan(config_folder() / "experiment" / "decide.yaml", overrides)
    task, loss = job.config.task, job.config.criterion
    assert (task.left_pad_source, task.truncate_source, task.num_batch_buckets) == (False, True, 3)
    assert task.max_source_positions == 50
    # Label smoothing of 0 is cross-entropy.
    assert loss._name == ("adaptive_loss" if smoothing is None else "label_smoothed_cross_entropy")
    assert loss.get("label_smoothing") == smoothing
    if smoothing is None:
        assert job.config.distributed_training.ddp_backend == "legacy_ddp"
        assert "--seed" not in fine_tuning.command(source, tmp_path / "c.pt", tmp_path, 9)


@pytest.mark.parametrize("section", ["criterion", "optimizer"])
def test_what_a_plug_in_that_is_not_loaded_has_registered(section: str, tmp_path: Path) -> None:
    """The model is saved; how to train it on is not known."""
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    source.cfg[section]._name = "of_nobody"
    (line,) = fine_tuning.fine_tuning_lines(source, source, tmp_path / "small.pt")
    assert "of_nobody" in line
    assert "--user-dir" in line
    assert fine_tuning.write_configuration(source, tmp_path / "small.pt") is None
    assert not (tmp_path / "small.yaml").exists()


def test_a_plug_in_without_our_architectures_is_said(tmp_path: Path) -> None:
    """fairseq reads one plug-in: that of a criterion also has to bring our heads."""
    plugin, path = tmp_path / "plugin", tmp_path / "c.pt"
    plugin.mkdir()
    model = open_model(toy_checkpoints.write(path, "transformer_headsize_n"), toy_checkpoints.COPY)
    assert not fine_tuning.lines_of_plug_in(model)
    model.cfg.common.user_dir = str(plugin)
    (plugin / "__init__.py").write_text("import fairseq")
    [line] = fine_tuning.lines_of_plug_in(model)
    assert str(plugin) in line
    assert "import fairseq_collab" in line
    (plugin / "__init__.py").write_text("import fairseq_collab")
    assert not fine_tuning.lines_of_plug_in(model)


def test_a_plug_in_that_is_not_loaded_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have changed fairseq; once it is loaded, commands are printed with its folder."""
    path, plugin = tmp_path / "c.pt", tmp_path / "there" / "changes"
    state = toy_checkpoints.made("transformer")
    state["cfg"]["common"]["user_dir"] = "elsewhere/changes"
    torch.save(state, path)
    model = open_model(path, toy_checkpoints.COPY)
    assert "plug-in elsewhere/changes" in capsys.readouterr().err
    assert fine_tuning.plug_in_of(model) == "elsewhere/changes"
    module = SimpleNamespace(__file__=str(plugin / "__init__.py"))
    monkeypatch.setitem(sys.modules, "changes", module)
    model = open_model(path, toy_checkpoints.COPY)
    assert "plug-in" not in capsys.readouterr().err
    assert fine_tuning.plug_in_of(model) == str(plugin)
