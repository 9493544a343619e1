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

from fairseq_collab.evaluation.bench.models import STOCK, Variant, random_pair, variants
from fairseq_collab.evaluation.bench.settings import (
    PRESETS,
    Settings,
    reductions,
    training_budget,
)
from fairseq_collab.evaluation.bench.timing import compare, in_turn
from fairseq_collab.evaluation.bench.work import batches, placed, random_task, real_task, spread
from fairseq_compat.errors import UserError

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
    tokens = PRESETS[preset].train_tokens
    real = preset == "multi30k" and settings.data is not None
    if real:
        assert settings.data is not None
        task = real_task(settings.data, "train")
    else:
        task = random_task(preset, 4 * tokens // int(PRESETS[preset].length[0]), settings.seed)
    with data_utils.numpy_seed(settings.seed):
        found = spread(batches(task, "train", settings, max_tokens=tokens), BATCHES)
    pair = random_pair(variant, preset, task, settings.seed)
    trainers = [trainer(model, task, settings) for model in pair]
    check_losses([loss(one, found[0]) for one in trainers], TOLERANCE[settings.dtype])
    programs = [one.train_step for one in trainers]
    for program in programs:  # the first update makes the optimiser and its state
        program([found[0]])
    seconds, least = training_budget(preset, settings.quick)
    items = [[batch] for batch in found]
    times = in_turn(programs, items, seconds, least, settings.device)
    counts = sorted(batch["ntokens"] for batch in found)
    return {
        "part": "train",
        "case": f"batches of at most {tokens} tokens, {'real' if real else 'random'} sentences",
        "against": STOCK,
        "work": counts[len(counts) // 2],
        "unit": "target tokens",
        **compare([(a, b) for a, b in times]).as_dict(),
    }


def trainer(model: Any, task: Any, settings: Settings) -> Trainer:
    """fairseq's trainer of one model, at the start of its first epoch."""
    arguments = [*OPTIONS, f"--seed={settings.seed}"]
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
