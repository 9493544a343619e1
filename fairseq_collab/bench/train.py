"""Training: whole updates by fairseq's own ``Trainer``, with fairseq's model and ours in turn.

An update is forward, backward, gradient norm and Adam on one batch, with the preset's dropout.
Before anything is timed, both models must have the same loss on the first batch, without dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq import options
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from collab_common.errors import UserError
from fairseq_collab.bench.models import STOCK, Variant, random_pair, variants
from fairseq_collab.bench.settings import (
    PRESETS,
    Settings,
    reductions,
    training_budget,
)
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import batches, placed, random_task, real_task, spread

BATCHES = 8  # that are trained on, over and over
#: How far the losses may be apart, relatively.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}
OPTIONS = [
    "DATA", "--arch=transformer", "--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--lr=5e-4",
    "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000", "--max-update=100000",
    "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--max-tokens=4096",
]  # fmt: skip


def run(settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All presets and models: one record each."""
    records = []
    for preset in settings.presets:
        for variant in variants(reductions(preset, settings)):
            say(f"train, {preset}: {variant.name}")
            record = compared(variant, preset, settings)
            records.append({**record, "preset": preset, "model": variant.name})
    return records


def compared(variant: Variant, preset: str, settings: Settings) -> dict[str, Any]:
    """Check that stock and ours have one loss, and time their updates."""
    task, found, case = sentences(preset, settings)
    pair = random_pair(variant, preset, task, settings.seed)
    trainers = [trainer(model, task, settings) for model in pair]
    check_losses([loss(one, found[0]) for one in trainers], TOLERANCE[settings.dtype])
    times = updates(trainers, found, training_budget(preset, settings.quick), settings)
    return {
        "part": "train",
        "case": case,
        "against": STOCK,
        "work": target_tokens(found),
        "unit": "target tokens",
        **compare([(a, b) for a, b in times]).as_dict(),
    }


def sentences(preset: str, settings: Settings) -> tuple[Any, list[Any], str]:
    """Task, batches and their description: real sentences for Multi30k's sizes, if any."""
    tokens = PRESETS[preset].train_tokens
    real = preset == "multi30k" and settings.data is not None
    if real:
        assert settings.data is not None
        task = real_task(settings.data, "train")
    else:
        task = random_task(preset, 4 * tokens // int(PRESETS[preset].length[0]), settings.seed)
    with data_utils.numpy_seed(settings.seed):
        found = spread(batches(task, "train", settings, max_tokens=tokens), BATCHES)
    kind = "real" if real else "random"
    return task, found, f"batches of at most {tokens} tokens, {kind} sentences"


def target_tokens(found: list[Any]) -> int:
    """Of a middling batch."""
    counts = sorted(batch["ntokens"] for batch in found)
    return counts[len(counts) // 2]


def updates(
    trainers: list[Trainer], found: list[Any], budget: tuple[float, int], settings: Settings
) -> list[tuple[float, ...]]:
    """Seconds of an update by each trainer in turn; ``budget``: seconds and least turns."""
    for one in trainers:  # the first update makes the optimiser and its state
        one.train_step([found[0]])
    programs = [one.train_step for one in trainers]
    items = [[batch] for batch in found]
    return in_turn(programs, items, *budget, settings.device)


def trainer(model: Any, task: Any, settings: Settings, *more: str) -> Trainer:
    """fairseq's trainer of one model, at the start of its first epoch; ``more`` options win."""
    arguments = [*OPTIONS, f"--seed={settings.seed}", *more]
    arguments += ["--cpu"] * (settings.device == "cpu")
    arguments += ["--bf16"] * (settings.dtype == "bfloat16")
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = convert_namespace_to_omegaconf(args)
    found = Trainer(cfg, task, placed(model, settings), task.build_criterion(cfg.criterion))
    found.begin_epoch(1)
    return found


def loss(one: Trainer, batch: Any) -> float:
    """The loss a token on one batch, without dropout."""
    one.model.eval()
    with torch.no_grad():
        total, _, _ = one.criterion(one.model, batch)
    one.model.train()
    return float(total) / batch["ntokens"]


def check_losses(losses: list[float], tolerance: float) -> None:
    """Two models that compute one function have one loss.

    Raises:
        UserError: they have not.
    """
    stock, ours = losses
    if not abs(stock - ours) <= tolerance * abs(stock):
        raise UserError(
            f"the loss of fairseq's model is {stock:.6f}, that of ours {ours:.6f}",
            "the benchmark's check",
            "nothing was timed: these two models do not compute the same function",
        )
