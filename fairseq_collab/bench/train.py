"""Training: whole updates by fairseq's own ``Trainer``, with fairseq's model and ours in turn.

An update is forward, backward, gradient norm and Adam on one batch, with the preset's dropout.
Before anything is timed, all models must have one loss on the first batch, without dropout.
"""

from __future__ import annotations

import copy
import functools
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from omegaconf import DictConfig

from fairseq_collab.bench.models import STOCK, random_pair, variants
from fairseq_collab.bench.settings import PRESETS, Budget, Record, Settings
from fairseq_collab.bench.timing import NamePairs, timed, unequal
from fairseq_collab.bench.work import batches, random_task, real_task

BATCHES = 8  # that are trained on, over and over
#: How far the losses may be apart, relatively.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}
OPTIONS = [
    "DATA", "--arch=transformer", "--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--lr=5e-4",
    "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000", "--max-update=100000",
    "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--max-tokens=4096",
]  # fmt: skip


def run(settings: Settings) -> Iterator[Record]:
    """All presets and models: one record each."""
    for preset in settings.presets:
        budget = (1.0, 2) if settings.quick else (4.0, PRESETS[preset].turns[0])
        for variant in variants(settings.reductions(preset)):
            task, found, case = sentences(preset, settings)
            pair = random_pair(variant, preset, task, settings.seed)
            models = {STOCK: pair.stock.model, pair.name: pair.ours.model}
            trainers = {name: trainer(model, task, settings) for name, model in models.items()}
            labels = {"part": "train", "preset": preset, "case": case}
            yield from updates(labels, trainers, found, budget, settings, [(STOCK, pair.name)])


def sentences(preset: str, settings: Settings) -> tuple[Any, list[Any], str]:
    """Task, batches and their description: real sentences for Multi30k's sizes, if any."""
    tokens = PRESETS[preset].train_tokens
    if preset == "multi30k" and settings.data is not None:
        task, kind = real_task(settings.data), "real"
    else:
        number = 4 * tokens // int(PRESETS[preset].length[0])
        task, kind = random_task(preset, number, settings.seed), "random"
    with data_utils.numpy_seed(settings.seed):
        found = batches(task, "train", settings, BATCHES, max_tokens=tokens)
    return task, found, f"batches of at most {tokens} tokens, {kind} sentences"


def updates(
    labels: Record, trainers: Mapping[str, Trainer], found: list[Any], budget: Budget,
    settings: Settings, pairs: NamePairs,
) -> Iterator[Record]:  # fmt: skip
    """Check that all trainers have one loss, and time their updates: a record a pair."""
    check_losses([loss(one, found[0]) for one in trainers.values()], TOLERANCE[settings.dtype])
    for one in trainers.values():  # the first update makes the optimiser and its state
        one.train_step([found[0]])
    programs = {name: one.train_step for name, one in trainers.items()}
    work = statistics.median_high(batch["ntokens"] for batch in found)
    labels = {**labels, "work": work, "unit": "target tokens"}
    yield from timed(labels, programs, [[batch] for batch in found], budget, pairs)


def trainer(model: Any, task: Any, settings: Settings, *more: str) -> Trainer:
    """fairseq's trainer of one model, at the start of its first epoch; ``more`` options win."""
    arguments = [*OPTIONS, f"--seed={settings.seed}", *more]
    arguments += ["--cpu"] * (settings.device == "cpu")
    arguments += ["--bf16"] * (settings.dtype == "bfloat16")
    cfg = copy.deepcopy(configuration(*arguments))
    found = Trainer(cfg, task, settings.placed(model), task.build_criterion(cfg.criterion))
    found.begin_epoch(1)
    return found


@functools.cache
def configuration(*arguments: str) -> DictConfig:
    """What fairseq-train's options mean; composing it takes as long as many small updates."""
    args = options.parse_args_and_arch(options.get_training_parser(), list(arguments))
    return convert_namespace_to_omegaconf(args)


@torch.no_grad()
def loss(one: Trainer, batch: Any) -> float:
    """The loss a token on one batch, without dropout."""
    one.model.eval()
    total, _, _ = one.criterion(one.model, batch)
    one.model.train()
    return float(total) / batch["ntokens"]


def check_losses(found: list[float], tolerance: float) -> None:
    """Models that compute one function have one loss; raises UserError otherwise."""
    stock, *others = found
    for ours in others:
        if not abs(stock - ours) <= tolerance * abs(stock):
            raise unequal(f"the loss of fairseq's model is {stock:.6f}, that of ours {ours:.6f}")
