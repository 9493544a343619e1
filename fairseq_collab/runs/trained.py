"""A trained run's model and what its training was: averaged, counted, read off the log."""

from __future__ import annotations

import filecmp
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq import utils
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from fairseq_collab.metrics.cost import LENGTH, cost, multiply_adds
from fairseq_collab.runs.fairseq_output import entries, fairseq
from fairseq_collab.runs.run import Run
from fairseq_collab.trained import opener
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.average import average_checkpoints, last_checkpoints

#: Seconds in which rounding to whole ones matters.
SHORT = 10

Facts = dict[str, Any]


def averaged_model(run: Run, config: DictConfig) -> list[str]:
    """Make ``average.pt``; the names of the checkpoints that it is the mean of.

    A further test set is measured with the very model that has the run's own scores; a run of an
    existing checkpoint has got its ``average.pt`` when it was made.
    """
    own = Run(run.folder)
    if own.verdict() != "finished" and not run.trained_file.exists():
        raise UserError(f"is not trained: {own.state()}", run.folder, "finish it (sweep)")
    checkpoint = run.started().checkpoint
    if checkpoint is not None:
        return [Path(checkpoint).name]
    record = own.score() if run.subset and run.average.exists() else None
    if record:
        return record.averaged
    chosen = choose_checkpoints(run, config)
    average_checkpoints(chosen, run.average)
    return [Path(path).name for path in chosen]


def choose_checkpoints(run: Run, config: DictConfig) -> list[str]:
    """The last epochs, to be averaged; or the best or last checkpoint, which must be there."""
    checkpoint = config.checkpoint
    if checkpoint.keep_last_epochs > 0:
        every = OmegaConf.select(config, "checkpoint.save_interval") or 1
        return _last_epochs(run, checkpoint.keep_last_epochs, every)
    if checkpoint.keep_interval_updates > 0:
        return last_checkpoints(checkpoint.keep_interval_updates, run.checkpoints)
    validates = not OmegaConf.select(config, "dataset.disable_validation")
    one = run.checkpoints / f"checkpoint_{'best' if validates else 'last'}.pt"
    if not one.exists():
        raise UserError(f"has no {one.name}", where=run.checkpoints, todo="train it first")
    return [str(one)]


def _last_epochs(run: Run, kept: int, every: int) -> list[str]:
    """The last ``kept`` epochs of those that are saved, ``every`` so many; of fewer, all.

    One that ``max_update`` cuts short counts: only the last checkpoint has it, else a copy of the
    newest epoch's.
    """
    last = run.checkpoints / "checkpoint_last.pt"
    if kept == 1 and last.exists():
        return [str(last)]
    files = [*run.checkpoints.glob("checkpoint[0-9]*.pt")]
    newest = last_checkpoints(1, run.checkpoints) if files else []
    cut = last.exists() and not any(filecmp.cmp(last, one, shallow=False) for one in newest)
    epochs = sorted({int(entry["epoch"]) for entry in entries(run.log, "train")})
    saved = [epoch for epoch in (epochs[:-1] if cut else epochs) if epoch % every == 0]
    whole = min(kept, max(len(files), len(saved))) if files or epochs else kept
    chosen = last_checkpoints(whole, run.checkpoints) if whole else []
    return [*chosen, str(last)][-kept:] if cut else chosen


def model_figures(run: Run, config: DictConfig) -> Facts:
    """Parameters, cache bytes, multiply-adds, heads and key dimension of the averaged model."""
    utils.import_user_module(config.common)
    trained = opener.load(run.average, Path(config.task.data))
    every = [one.module for one in attentions(trained.model)]
    return {
        # Queries and keys, all heads together, stock or ours.
        "key_dim": common_value(attention.q_proj.out_features for attention in every),
        "model_dim": common_value(attention.embed_dim for attention in every),
        "heads": common_value(attention.num_heads for attention in every),
        "heads_by_site": {site: counts for site, counts in trained.heads.items() if counts},
        **asdict(cost(trained.model)),
        "multiply_adds": multiply_adds(trained.model),
        "multiply_adds_length": LENGTH,
    }


def common_value(values: Iterable[Any]) -> Any:
    """The value that all have, or None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def training_figures(run: Run, config: DictConfig, lock: int | None = None) -> Facts:
    """Speed, length and final loss of the training, from fairseq's log.

    The loss is measured now where the training has not validated, or was not in this run.
    """
    here = run.started().checkpoint is None
    epochs = entries(run.log, "train")
    if here and not epochs:
        raise UserError("no finished epoch in it", where=run.log)
    validation = (entries(run.log, "valid") or validate(run, config, lock))[-1]
    nll = validation.get("valid_nll_loss")
    last = epochs[-1] if epochs else {}
    return {
        "train_tokens_per_second": round(tokens_per_second(epochs)) if epochs else None,
        "train_updates": int(last.get("train_num_updates", 0)),
        "epochs": int(last.get("epoch", 0)),
        "valid_loss": float(validation["valid_loss"]),
        "valid_nats": None if nll is None else float(nll) * math.log(2),
    }


def tokens_per_second(epochs: Sequence[Facts]) -> float:
    """Of updates alone: the median of the epochs that are not cut short.

    fairseq's ``train_wps`` has validation and the writing of checkpoints in it.  The time of
    updates is logged in whole seconds, too coarse below :data:`SHORT`, and the first one after a
    resumption has that of the epoch before in it, too.  ``train_wps`` stands in for both.
    """
    found, before = [], 0
    for entry in epochs:
        updates = int(entry["train_num_updates"]) - before
        speed, seconds = float(entry["train_wps"]), float(entry["train_train_wall"])
        if seconds >= SHORT:
            speed = max(speed, float(entry["train_wpb"]) * updates / seconds)
        found.append((updates, speed))
        before += updates
    most = max(updates for updates, _ in found)
    return statistics.median(speed for updates, speed in found if 2 * updates >= most)


def validate(run: Run, config: DictConfig, lock: int | None) -> list[Facts]:
    """What ``fairseq-validate`` logs of the averaged model."""
    log = run.folder / "valid.log"
    words = ["--path", run.average, "--valid-subset", "valid", "--log-format", "json"]
    fairseq("validate", run, config, lock, log, ["--task", config.task["_name"], *words])
    found = entries(log, "valid")
    if not found:
        raise UserError("no validation loss in it", where=log)
    return found
