"""Commands and configurations that train a changed model on, with its task and its loss."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
import toy_checkpoints
from fairseq import criterions, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from collab_lab.runs import config_folder
from collab_lab.runs.sweep import plan
from collab_lab.trained import configuration
from collab_lab.trained.checkpoint import Trained

SMALL = ["--arch", "transformer_headsize_n", "--max-tokens", "100"]
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


@pytest.mark.parametrize(("task", "criterion"), [*zip(TASKS, CRITERIONS, strict=True)])
def test_what_is_printed_has_the_task_and_the_criterion(
    task: str, criterion: str, tmp_path: Path
) -> None:
    given = [*shlex.split(TASKS[task]), *shlex.split(CRITERIONS[criterion]), *SMALL]
    if task == "language_modeling":
        given[given.index("transformer_headsize_n")] = "transformer_lm_headsize_n"
    chosen = ["--task", task, "--criterion", criterion, *given]
    source = trained_by([str(toy_checkpoints.COPY), *chosen], tmp_path / "c.pt")
    program, *words = shlex.split(configuration.fine_tuning(source, tmp_path / "c.pt"))
    again = trained_by(words, tmp_path / "again.pt")
    found, expected = (plain(one.cfg.task) for one in (again, source))
    tasks.TASK_REGISTRY[task].add_args(parser := ArgumentParser(add_help=False))
    for option in vars(parser.parse_known_args(["."])[0]):
        assert found[option] == expected[option], option
    assert plain(again.cfg.criterion) == plain(source.cfg.criterion)
    criterions.build_criterion(again.cfg.criterion, again.task)
    assert program == "fairseq-train"


def test_the_term_for_heads_is_left_out(tmp_path: Path) -> None:
    """The changed model has no groups of heads."""
    words = ["--source-lang=en", "--target-lang=de", "--label-smoothing=0.3", *SMALL]
    words += ["--criterion=label_smoothed_cross_entropy_with_head_groups"]
    source = trained_by([str(toy_checkpoints.COPY), *words], tmp_path / "c.pt")
    words = shlex.split(configuration.fine_tuning(source, tmp_path / "c.pt"))[1:]
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
    configuration.write_configuration(source, tmp_path / "model" / "small.pt")
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
        assert "--seed" not in configuration.fine_tuning(source, tmp_path / "c.pt")
