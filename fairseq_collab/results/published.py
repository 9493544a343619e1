"""Published scores, to stand beside ours where an experiment has a counterpart: ``published.json``.

``PAPERS`` is what all four papers gain or lose against baselines of their own, ``PRUNED`` the
fourth's table of pruned models (Voita et al. 2019, arXiv 1905.09418, table 2, WMT
English-Russian).  Corpora and models are others than ours, so that only differences may stand side
by side.

The first paper's key-dimension table (Cordonnier, Loukas, Jaggi, "Multi-Head Attention: Collaborate
Instead of Concatenate", 2020, arXiv 2006.16362: WMT14 English-German, transformer base, d = 512, 8
heads) was taken from a third party's summary.  The parameter counts agree with our own count of
those models (vocabulary of 32,768); the BLEU scores have not been confirmed independently.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL_DIM = 512
COLUMN = f"paper's BLEU (WMT14, d = {MODEL_DIM}, same d/K)"
SOURCE = (
    "Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362: another corpus (WMT14 English-German), "
    f"another model (transformer base, d = {MODEL_DIM}) and an unstated kind of BLEU; rows are "
    "matched by the ratio of model dimension d to key dimension K (its code's choices of scale and "
    "initialisation are those of fork_collab and fork_concatenated). Figures as in a third party's "
    "summary, BLEU not confirmed independently"
)


@dataclass(frozen=True)
class Side:
    """Which of our rows stand for a published model.

    Attributes:
        methods: names of the method, "fork_" left out.
        reduction: model dimension / key dimension (d/K); None for any.
        head_ratio: head size / (d/H), in a sweep of head sizes; None for any.
        variant: what its sweep chose, as in a table; None for anything.
    """

    methods: list[str]
    reduction: float | None = None
    head_ratio: float | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Claim:
    """A published model against the published baseline beside it.

    Attributes:
        where: table, corpus and model size.
        score, baseline_score: in ``metric``.
        size, baseline_size: million parameters as printed; None where none are.
        ours, our_baseline: our counterparts.
    """

    where: str
    system: str
    baseline: str
    metric: str
    score: float
    baseline_score: float
    ours: Side
    our_baseline: Side
    size: float | None = None
    baseline_size: float | None = None


@dataclass(frozen=True)
class Paper:
    """A paper, what has to be known of its figures, and its claims."""

    title: str
    caution: str
    claims: list[Claim]


@dataclass(frozen=True)
class Pruned:
    """A model pruned with gates on a trained one, and one of its shape trained from scratch.

    Attributes:
        heads: of encoder, decoder and cross-attention, in all layers.
        bleu, from_scratch: BLEU of the two.
    """

    heads: str
    bleu: float
    from_scratch: float


def _claim(content: dict[str, Any]) -> Claim:
    sides = {side: Side(**content[side]) for side in ("ours", "our_baseline")}
    return Claim(**{**content, **sides})


_CONTENT = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PAPERS = [
    Paper(paper["title"], paper["caution"], [_claim(claim) for claim in paper["claims"]])
    for paper in _CONTENT["papers"]
]
#: The whole model, and what is left of it.
WHOLE_HEADS, WHOLE_BLEU = _CONTENT["pruned"]["heads"], _CONTENT["pruned"]["bleu"]
PRUNED = [Pruned(**model) for model in _CONTENT["pruned"]["models"]]


def counterpart(method: str, reduction: float) -> float | None:
    """BLEU of a method at the ratio ``reduction`` = d/K in the first paper; None if it has none."""
    for claim in PAPERS[0].claims:
        for side, bleu in (
            (claim.ours, claim.score),
            (claim.our_baseline, claim.baseline_score),
        ):
            if side.methods == [method] and math.isclose(side.reduction or 0, reduction):
                return bleu
    return None
