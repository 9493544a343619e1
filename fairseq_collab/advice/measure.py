"""Measure candidates: the loss on a sample, and translations of the whole validation set.

All candidates are measured on one set of sentences.  A :class:`Ledger` keeps each number in
``advice.json``, so that a rerun of a killed command does not measure it again:

    {"settings": {...}, "found": {"loss 256 collab encoder=32": 1.62, ...}, "finals": [...], ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from collab_common.errors import UserError
from collab_common.files import read_json, write_json
from fairseq_collab.analysis.importance import cross_entropy, predicted
from fairseq_collab.metrics.cost import cost, multiply_adds
from fairseq_collab.metrics.significance import scorer_of

T = TypeVar("T")
#: Bootstrap samples of the sentences.
SAMPLES = 1000


class Ledger:
    """Numbers by name, on the disk as soon as they are known.

    Args:
        settings: what all numbers depend on.

    Raises:
        UserError: the file is damaged, or has numbers of other settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path, self.settings = path, settings
        self.found: dict[str, Any] = {}
        if path.exists():
            todo = "give another --out"
            content = read_json(path, todo)
            if not isinstance(content, dict) or content.get("settings") != settings:
                what = "has numbers of another model, data folder, --subset or --sample"
                raise UserError(what, path, todo)
            self.found = content["found"]

    def get(self, name: str, measure: Callable[[], T]) -> T:
        """The number of this name: ``measure()`` if it is not there yet."""
        if name not in self.found:
            self.found[name] = measure()
            self.write()
        return self.found[name]

    def write(self, **more: Any) -> None:
        """Replace the file in one step, with ``more`` content."""
        write_json(self.path, {"settings": self.settings, **more, "found": self.found})


@torch.inference_mode()
def mean_loss(model: Any, samples: Sequence[dict[str, Any]]) -> float:
    """The cross-entropy in nats per token, without label smoothing."""
    nats = sum(float(cross_entropy(model, sample).double().sum()) for sample in samples)
    return nats / sum(int(predicted(model.decoder, one["target"]).sum()) for one in samples)


def drawn_gains(
    baseline: list[str], system: list[str], references: list[str], chance: np.random.Generator
) -> NDArray[np.float64]:
    """Gain in BLEU of a system over the baseline, on resampled sentences: ``(SAMPLES,)``."""
    scorer = scorer_of("BLEU", references, references=[references])
    # Of each sentence what sacreBLEU sums up: (N sentences, n numbers).
    counts = [np.array(scorer._extract_corpus_statistics(x, None)) for x in (baseline, system)]
    found = np.empty(SAMPLES)
    for sample in range(SAMPLES):
        drawn = chance.integers(len(references), size=len(references))
        weights = np.bincount(drawn, minlength=len(references))
        sums = [(weights @ one).tolist() for one in counts]
        before, after = (scorer._compute_score_from_stats(one).score for one in sums)
        found[sample] = after - before
    return found


def counts(model: Any) -> dict[str, int]:
    """The costs of a model; multiply-adds are 0 for a model that cannot be counted."""
    found = asdict(cost(model))
    cache = sum(number for name, number in found.items() if "_bytes_per_" in name)
    work = multiply_adds(model) or 0
    return {"cache": cache, "parameters": found["parameters"], "multiply_adds": work}
