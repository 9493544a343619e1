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
from fairseq_collab.trained.opener import placeholder

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

    def side() -> tuple[list[torch.Tensor], Any, Any]:
        words = (chance.integers(_FIRST_WORD, len(symbols), length) for length in lengths)
        lines = [torch.tensor([*line, symbols.eos()]) for line in words]
        return lines, lengths + 1, symbols

    pairs = LanguagePairDataset(*side(), *side(), shuffle=False)
    task.datasets.update(test=pairs, train=pairs)
    return task


def real_task(data: str) -> TranslationTask:
    """The translation task of a data folder."""
    cfg = OmegaConf.structured(FairseqConfig)  # some of the task's options refer to others
    cfg.task = OmegaConf.structured(TranslationConfig(data=data))
    return TranslationTask.setup_task(cfg.task)


def batches(
    task: Any, subset: str, settings: Settings, number: int, **limits: int | None
) -> list[Any]:
    """At most ``number`` batches, evenly spread over a subset, on the device.

    Args:
        limits: ``max_sentences``, ``max_tokens``.
    """
    if subset not in task.datasets:
        task.load_dataset(subset)
    iterator = task.get_batch_iterator(
        task.dataset(subset),
        max_positions=POSITIONS,
        ignore_invalid_inputs=True,
        disable_iterator_cache=True,  # it would give batches of the size asked for first
        **limits,
    )
    found = list(iterator.next_epoch_itr(shuffle=False))
    number = max(1, min(number, len(found)))
    chosen = [found[i * len(found) // number] for i in range(number)]
    return utils.move_to_cuda(chosen) if settings.device == "cuda" else chosen
