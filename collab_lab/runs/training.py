"""The results of a training: its length, the checkpoints to average, and the average's losses.

With ``common.log_format=json`` the log has a line ``... | train | {...}`` per epoch.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.logging import metrics
from omegaconf import DictConfig

from collab_common import LAST_CHECKPOINT
from collab_common.errors import UserError
from collab_lab.metrics.loss import check_any, predicted
from collab_lab.runs.record import CheckpointRule
from collab_lab.runs.run import Run, started_from
from collab_lab.trained.average import average_checkpoints, checkpoints_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import batches
from fairseq_compat import checkpoints

#: Where fairseq's checkpoints have the seconds of their training.
TIME = "previous_training_time"
#: An entry has no braces inside, so a kill that cuts one entry does not hide the next.
_EPOCH = re.compile(r"\| train \| (\{[^{}]*\})$", re.MULTILINE)


class Diverged(UserError, FloatingPointError):
    """A training ended with a model that predicts much worse than a uniform guess."""


def training_numbers(run: Run, extra_state: Mapping[str, Any]) -> dict[str, Any]:
    """The length of the training; None for a checkpoint that was trained elsewhere.

    Args:
        extra_state: the entry of this name in the run's newest checkpoint.
    """
    text = run.log.read_text(errors="replace") if run.log.exists() else ""
    epochs = []
    for entry in _EPOCH.findall(text):
        with contextlib.suppress(ValueError):  # cut by a kill, with a brace behind it
            epochs.append(json.loads(entry))
    if run.started().checkpoint is None and not epochs:
        raise UserError("no finished epoch in it", where=run.log)
    last = epochs[-1] if epochs else {}
    training = run.training()
    return {
        "train_updates": int(last["train_num_updates"]) if last else None,
        "epochs": int(last["epoch"]) if last else None,
        "train_seconds": train_seconds(run, extra_state),
        "train_threads": training and training.threads,
        "train_jobs": training and training.jobs,
    }


def train_seconds(run: Run, extra_state: Mapping[str, Any]) -> float | None:
    """Seconds of all attempts at a training, each up to the checkpoint from which the next resumed.

    fairseq's checkpoints count these seconds, starting from those of the checkpoint with which a
    training begins.  The result is None if that time is unknown, or if the checkpoint was trained
    elsewhere.
    """
    seconds = extra_state.get(TIME)
    if seconds is None or run.started().checkpoint is not None:
        return None
    weights = started_from(run.config())
    # In fairseq's order, where several are given.
    options = ("restore_file", "continue_once", "finetune_from_model")
    origin = next((weights[option] for option in options if option in weights), None)
    if origin is not None and not Path(origin).is_file():
        return None
    before = checkpoints.read(origin)["extra_state"].get(TIME, 0.0) if origin else 0.0
    return round(float(seconds) - before, 1)


#: fairseq's criterions whose loss is the negative log-likelihood, which they log under no name of
#: its own.
UNSMOOTHED = ("cross_entropy", "adaptive_loss")


def losses(trained: Trained, run: Run) -> dict[str, float | None]:
    """The losses of a record.

    They have five decimals, because differences between seeds are below the three of fairseq's log.

    Raises:
        Diverged: a model that was trained in this run has at least twice the loss of a uniform
            guess; an untrained model has a little more than a guess.
    """
    validation = validate(trained)
    nll = validation.get("valid_nll_loss")
    if nll is None and trained.cfg.criterion._name in UNSMOOTHED:
        nll = validation["valid_loss"]
    bits = float(validation["valid_loss"] if nll is None else nll)
    guess = math.log2(len(trained.task.target_dictionary))
    if run.started().checkpoint is None and not bits < 2 * guess:
        problem = f"validation loss is {bits:.1f} bits a token, of a guess {guess:.1f}"
        raise Diverged(problem, run.folder, "lower the learning rate")
    return {
        "valid_loss": round(float(validation["valid_loss"]), 5),
        "valid_nats": None if nll is None else round(float(nll) * math.log(2), 5),
    }


@torch.no_grad()
def validate(trained: Trained) -> Mapping[str, Any]:
    """The mean losses on the validation set, in bits per token, by their names in fairseq's log.

    Both are per target that the criterion counts.  fairseq divides by the number of all targets,
    also of those that ``ignore_prefix_size`` leaves out, and the loss by the number of sentences
    with ``sentence_avg``.  Nor does the beginning of a block count (``--add-bos-token``), which
    :func:`.predicted` leaves out everywhere.
    """
    task = trained.task
    criterion = task.build_criterion(trained.cfg.criterion).eval()
    step, model = task.valid_step, trained.model
    logs, targets, counted, divided_by = list[Mapping[str, Any]](), 0, 0, 0
    with without_bleu(task):
        for batch in map(partial(without_beginnings, model.decoder), batches(trained, "valid")):
            logs.append(step(batch, model, criterion)[2])
            targets += int(batch["ntokens"])
            divided_by += int(logs[-1].get("sample_size", batch["ntokens"]))
            counted += int(predicted(model.decoder, batch).sum())
        with metrics.aggregate(new_root=True) as averages:
            task.reduce_metrics(logs, criterion)
    meters = {f"valid_{k}": meter for k, meter in averages.items()}
    found = {k: float(meter.avg) for k, meter in meters.items() if hasattr(meter, "avg")}
    tokens = targets
    if trained.ignored_prefix:
        check_any(counted)
        tokens = counted
    for name, number in (("valid_loss", divided_by), ("valid_nll_loss", targets)):
        if name in found:
            found[name] *= number / tokens
    return found


def without_beginnings(decoder: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """A batch whose targets ``<s>`` are padding, so that no criterion counts them."""
    begins = batch["target"].eq(decoder.dictionary.bos())
    if not (number := int(begins.sum())):
        return batch
    target = batch["target"].masked_fill(begins, decoder.padding_idx)
    return {**batch, "target": target, "ntokens": int(batch["ntokens"]) - number}


@contextlib.contextmanager
def without_bleu(task: Any) -> Iterator[None]:
    """Context in which ``--eval-bleu`` does not translate the validation set, only for its loss."""
    options = task.cfg
    former = getattr(options, "eval_bleu", False)
    if former:
        options.eval_bleu = False
    try:
        yield
    finally:
        if former:
            options.eval_bleu = former


# ---- the averaged model --------------------------------------------------------------------------


def averaged_model(run: Run, config: DictConfig) -> dict[str, Any]:
    """Write ``average.pt``; return the names of the averaged checkpoints and the rule for them.

    A run of an existing checkpoint already has its ``average.pt``.
    """
    if not run.is_trained():
        raise UserError(f"is not trained: {run.state()}", run.folder, "finish it (sweep)")
    checkpoint = run.started().checkpoint
    if checkpoint is not None:
        return {"averaged": [Path(checkpoint).name], "checkpoint_rule": "given"}
    chosen = choose_checkpoints(run.checkpoints, config)
    average_checkpoints(chosen, run.average)
    names = [Path(path).name for path in chosen]
    return {"averaged": names, "checkpoint_rule": rule_of(names)}


def rule_of(names: Sequence[str]) -> CheckpointRule:
    """The rule that chose these checkpoints: the last epochs, or the last checkpoint."""
    return "last" if [*names] == [LAST_CHECKPOINT] else "mean of last epochs"


def choose_checkpoints(folder: Path, config: DictConfig) -> list[str]:
    """The last epochs, as in ``average --last``; if no epochs are kept, the last checkpoint.

    The best checkpoint is never used, because it would be chosen on the validation set, whose loss
    is recorded.  If ``max_update`` ends an epoch early, only ``checkpoint_last.pt`` has its end.
    """
    number_kept, last = config.checkpoint.keep_last_epochs, folder / LAST_CHECKPOINT
    if number_kept > 0 and any(folder.glob("checkpoint[0-9]*.pt")):
        return checkpoints_of(folder)[-number_kept:]
    if not last.exists():
        todo = "train it first; to score another checkpoint, give it with --run"
        raise UserError(f"has no {last.name}", where=folder, todo=todo)
    return [str(last)]
