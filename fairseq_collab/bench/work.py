"""Random sentences as a translation task, and their batches.

Batches come from the task's own iterator, as in ``fairseq-generate`` and ``fairseq-train``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_collab.bench.models import PRESETS
from fairseq_collab.trained.from_options import placeholder
from fairseq_collab.trained.opener import to_device

SHORTEST, LONGEST = 4, 100  # source lengths, in subwords
_FIRST_WORD = 4  # after fairseq's special symbols


def random_task(preset: str, sentences: int) -> TranslationTask:
    """A translation task with ``sentences`` random pairs as ``test`` and ``train``.

    Lengths are normally distributed, cut at :data:`SHORTEST` and :data:`LONGEST`; a target is as
    long as its source.
    """
    symbols = placeholder(PRESETS[preset].vocabulary)
    cfg = OmegaConf.structured(TranslationConfig(source_lang="en", target_lang="de"))
    task = TranslationTask(cfg, symbols, symbols)
    chance = np.random.default_rng(1)
    lengths = chance.normal(*PRESETS[preset].length, sentences).round()
    lengths = lengths.clip(SHORTEST, LONGEST).astype(int)

    def side() -> tuple[list[torch.Tensor], Any, Any]:
        words = (chance.integers(_FIRST_WORD, len(symbols), length) for length in lengths)
        lines = [torch.tensor([*line, symbols.eos()]) for line in words]
        return lines, lengths + 1, symbols

    pairs = LanguagePairDataset(*side(), *side(), shuffle=False)
    task.datasets.update(test=pairs, train=pairs)
    return task


def batches(task: Any, subset: str, device: torch.device, **limits: int) -> list[Any]:
    """All batches of a subset, on the device.

    Args:
        limits: ``max_sentences``, ``max_tokens``.
    """
    iterator = task.get_batch_iterator(
        task.dataset(subset),
        disable_iterator_cache=True,  # a cached iterator has batches of the first size asked for
        **limits,
    )
    return [to_device(batch, device) for batch in iterator.next_epoch_itr(shuffle=False)]
