"""What models are given to work on: tasks, sentences and batches, real or random.

Batches come from the task's own iterator, as in ``fairseq-generate`` and ``fairseq-train``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_collab.bench.settings import PRESETS, Settings
from fairseq_collab.checkpoints.opener import check_data, placeholder

SHORTEST, LONGEST = 4, 100  # source lengths of random sentences, in subwords
POSITIONS = (1024, 1024)
_FIRST_WORD = 4  # behind fairseq's special symbols


def random_task(preset: str, sentences: int, seed: int) -> TranslationTask:
    """A translation task with ``sentences`` random pairs as ``test`` and ``train``.

    Lengths are normally distributed, cut at :data:`SHORTEST` and :data:`LONGEST`; a target is as
    long as its source.
    """
    symbols = placeholder(PRESETS[preset].vocabulary)
    cfg = OmegaConf.structured(TranslationConfig(source_lang="en", target_lang="de"))
    task = TranslationTask(cfg, symbols, symbols)
    chance = np.random.default_rng(seed)
    lengths = chance.normal(*PRESETS[preset].length, sentences).round()
    lengths = lengths.clip(SHORTEST, LONGEST).astype(int)

    def lines() -> list[torch.Tensor]:
        words = (chance.integers(_FIRST_WORD, len(symbols), length) for length in lengths)
        return [torch.tensor([*line, symbols.eos()]) for line in words]

    pairs = LanguagePairDataset(
        lines(), lengths + 1, symbols, lines(), lengths + 1, symbols, shuffle=False
    )
    task.datasets.update(test=pairs, train=pairs)
    return task


def real_task(data: str, subset: str) -> TranslationTask:
    """The translation task of a data folder, with one subset loaded.

    Raises:
        UserError: there is no such folder.
        FileNotFoundError: fairseq's, if there is no such subset; commands say it in one line.
    """
    check_data(data)
    cfg = OmegaConf.structured(FairseqConfig)  # some of the task's options refer to others
    cfg.task = OmegaConf.structured(TranslationConfig(data=data))
    task = TranslationTask.setup_task(cfg.task)
    task.load_dataset(subset)
    return task


def batches(
    task: Any, subset: str, settings: Settings, number: int, **limits: int | None
) -> list[Any]:
    """At most ``number`` batches, evenly spread over a subset, on the device.

    Args:
        limits: ``max_sentences``, ``max_tokens``.
    """
    iterator = task.get_batch_iterator(
        task.dataset(subset), max_positions=POSITIONS, ignore_invalid_inputs=True, **limits
    )
    found = list(iterator.next_epoch_itr(shuffle=False))
    number = max(1, min(number, len(found)))
    chosen = [found[i * len(found) // number] for i in range(number)]
    return utils.move_to_cuda(chosen) if settings.device == "cuda" else chosen


def middling(counts: list[int]) -> int:
    """The upper median."""
    return sorted(counts)[len(counts) // 2]


def placed(model: Any, settings: Settings) -> Any:
    """The model on the device, with weights of the type asked for."""
    return model.to(device=settings.device, dtype=getattr(torch, settings.dtype))
