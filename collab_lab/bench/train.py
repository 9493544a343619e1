"""Training: whole updates by fairseq's own ``Trainer``, with fairseq's model and with ours.

An update is forward, backward, gradient norm and Adam on one batch, with the preset's dropout.
Before anything is timed, both models must have the same loss on the first batch, without dropout.
"""

from __future__ import annotations

import copy
import functools
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from omegaconf import DictConfig

from collab_lab.bench.models import PRESETS, batches, random_pair, random_task, unequal
from collab_lab.bench.timing import Record, speedups, time_interleaved

#: Largest relative difference of the losses.
TOLERANCE = 1e-4
OPTIONS = [
    "DATA", "--arch=transformer", "--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--lr=5e-4",
    "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000", "--max-update=100000",
    "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--max-tokens=4096",
    "--seed=1", "--no-save",
]  # fmt: skip


def run(arch: str, preset: str, quick: bool, device: torch.device) -> Iterator[Record]:
    """One record per engine."""
    tokens = PRESETS[preset].train_tokens
    task = random_task(preset, 4 * tokens // int(PRESETS[preset].length[0]))
    with data_utils.numpy_seed(1):
        data = batches(task, "train", device, max_tokens=tokens)
    pair = random_pair(arch, preset, task)
    models = {"fairseq": pair.stock, "ours": pair.ours.model}
    trainers = {name: trainer(model, task, device) for name, model in models.items()}
    check_losses(*(loss(trainer_, data[0]) for trainer_ in trainers.values()))
    for trainer_ in trainers.values():  # the first update creates the optimiser's state
        trainer_.train_step([data[0]])
    programs = {name: trainer_.train_step for name, trainer_ in trainers.items()}
    turns, seconds = (2, 0.5) if quick else (6, 8)
    work = statistics.median_high(batch["ntokens"] for batch in data)
    case = f"batches of at most {tokens} tokens"
    times = time_interleaved(programs, [[batch] for batch in data], turns, seconds, pause=0)
    for record in speedups(times):
        yield {"task": "training", "case": case, **record, "work": work, "unit": "target tokens"}


def trainer(model: Any, task: Any, device: torch.device, *more: str) -> Trainer:
    """fairseq's trainer of one model, at the start of its first epoch; ``more`` options win."""
    arguments = [*OPTIONS, *more, *(["--cpu"] if device.type == "cpu" else [])]
    cfg = copy.deepcopy(configuration(*arguments))
    result = Trainer(cfg, task, model.to(device), task.build_criterion(cfg.criterion))
    result.begin_epoch(1)
    return result


@functools.cache
def configuration(*arguments: str) -> DictConfig:
    """The configuration of fairseq-train; composing it takes longer than some small updates."""
    args = options.parse_args_and_arch(options.get_training_parser(), list(arguments))
    return convert_namespace_to_omegaconf(args)


@torch.no_grad()
def loss(trainer: Trainer, batch: Any) -> float:
    """The loss per token on one batch, without dropout."""
    trainer.model.eval()
    total, _, _ = trainer.criterion(trainer.model, batch)
    trainer.model.train()
    return float(total) / batch["ntokens"]


def check_losses(stock: float, ours: float) -> None:
    """Raise UserError if the losses of equal models differ."""
    if not abs(stock - ours) <= TOLERANCE * abs(stock):
        raise unequal(f"the loss of fairseq's model is {stock:.6f}, that of ours {ours:.6f}")
