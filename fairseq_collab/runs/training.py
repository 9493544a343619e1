"""What a training left in its run: its losses and speed, and the checkpoints to average."""

from __future__ import annotations

import filecmp
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.logging import metrics
from omegaconf import DictConfig, OmegaConf

from collab_common.errors import UserError
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.train_log import entries, is_over, tokens_per_second
from fairseq_collab.trained.average import average_checkpoints, last_checkpoints
from fairseq_collab.trained.opener import Trained, epoch

Facts = dict[str, Any]


# ---- losses and speed ----------------------------------------------------------------------------


def training_figures(run: Run, trained: Trained) -> Facts:
    """Speed, length and final validation loss of the training.

    The loss is computed now if the training did not validate, or took place elsewhere.
    """
    epochs = entries(run.log, "train")
    if run.started().checkpoint is None and not epochs:
        raise UserError("no finished epoch in it", where=run.log)
    validations = entries(run.log, "valid")
    validation = validations[-1] if validations else validate(trained)
    nll = validation.get("valid_nll_loss")
    last = epochs[-1] if epochs else {}
    return {
        "train_tokens_per_second": round(tokens_per_second(epochs)) if epochs else None,
        "train_updates": int(last.get("train_num_updates", 0)),
        "epochs": int(last.get("epoch", 0)),
        "valid_loss": float(validation["valid_loss"]),
        "valid_nats": None if nll is None else float(nll) * math.log(2),
    }


@torch.no_grad()
def validate(trained: Trained) -> Mapping[str, Any]:
    """Losses of the validation set, by the names in the log."""
    task = trained.task
    criterion = task.build_criterion(trained.cfg.criterion).eval()
    logs = [task.valid_step(one, trained.model, criterion)[2] for one in epoch(trained, "valid")]
    with metrics.aggregate(new_root=True) as found:
        task.reduce_metrics(logs, criterion)
    return {f"valid_{name}": value for name, value in found.get_smoothed_values().items()}


# ---- the averaged model --------------------------------------------------------------------------


def averaged_model(run: Run, config: DictConfig) -> list[str]:
    """Write ``average.pt``; the names of the checkpoints whose mean it is.

    A run of an existing checkpoint got its ``average.pt`` when it was made.
    """
    if not is_over(run):
        raise UserError(f"is not trained: {run.state()}", run.folder, "finish it (sweep)")
    checkpoint = run.started().checkpoint
    if checkpoint is not None:
        return [Path(checkpoint).name]
    chosen = choose_checkpoints(run.checkpoints, config)
    average_checkpoints(chosen, run.average)
    return [Path(path).name for path in chosen]


def choose_checkpoints(folder: Path, config: DictConfig) -> list[str]:
    """The last epochs, to be averaged; or, where no epochs are kept, the best or last checkpoint.

    Where ``max_update`` cuts an epoch short, only ``checkpoint_last.pt`` has its end.
    """
    kept, last = config.checkpoint.keep_last_epochs, folder / "checkpoint_last.pt"
    if kept > 0:
        number = min(kept, len([*folder.glob("checkpoint[0-9]*.pt")]))
        chosen = last_checkpoints(number, folder) if number else []
        if last.exists() and not (chosen and filecmp.cmp(last, chosen[-1], shallow=False)):
            chosen.append(str(last))
        if not chosen:
            raise UserError("has no checkpoints", where=folder, todo="train it first")
        return chosen[-kept:]
    if config.checkpoint.keep_interval_updates > 0:
        return last_checkpoints(config.checkpoint.keep_interval_updates, folder)
    validates = not OmegaConf.select(config, "dataset.disable_validation")
    one = folder / f"checkpoint_{'best' if validates else 'last'}.pt"
    if not one.exists():
        raise UserError(f"has no {one.name}", where=folder, todo="train it first")
    return [str(one)]
