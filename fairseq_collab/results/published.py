"""Published scores, to stand beside ours where an experiment has a counterpart.

``ROWS`` is the first paper's key-dimension table, ``PRUNED`` the fourth's table of pruned models;
``PAPERS`` is what all four papers gain or lose against baselines of their own.  Corpora and models
are others than ours, so that only differences may stand side by side.

Source of ``ROWS``: Cordonnier, Loukas, Jaggi, "Multi-Head Attention: Collaborate Instead of
Concatenate", 2020, arXiv 2006.16362, key-dimension table: WMT14 English-German, transformer base
(d = 512, 8 heads).  The figures were taken from a third party's summary.  The parameter counts
agree with our own count of those models (vocabulary of 32,768); the BLEU scores have not been
confirmed independently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
class Published:
    """A row of the paper's table; ``parameters`` in millions, as printed."""

    method: str
    key_dim: int
    bleu: float
    parameters: float


ROWS = (
    Published("concatenated", 512, 27.40, 60.9),
    Published("collab", 512, 27.58, 61.0),
    Published("concatenated", 256, 27.10, 56.2),
    Published("collab", 256, 27.41, 56.2),
    Published("concatenated", 128, 26.89, 53.8),
    Published("collab", 128, 27.40, 53.8),
    Published("concatenated", 64, 26.77, 52.6),
    Published("collab", 64, 27.31, 52.7),
)


def counterpart(method: str, reduction: float) -> Published | None:
    """The published row of a method at the ratio ``reduction`` = d/K; None if there is none."""
    for row in ROWS:
        if row.method == method and math.isclose(MODEL_DIM / row.key_dim, reduction):
            return row
    return None


@dataclass(frozen=True)
class Side:
    """Which of our rows stand for a published model.

    Attributes:
        methods: names of the method, "fork_" left out.
        reduction: model dimension / key dimension (d/K); None for any.
        head_ratio: head size / (d/H), in a sweep of head sizes; None for any.
        variant: what its sweep chose, as in a table; None for anything.
    """

    methods: tuple[str, ...]
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
    claims: tuple[Claim, ...]


def _key_dimensions() -> tuple[Claim, ...]:
    """Collaborative against concatenated heads at the same K, and at K = d."""
    size = {(row.method, row.key_dim): row for row in ROWS}
    whole = size["concatenated", MODEL_DIM]
    pairs = [(size["collab", k], size["concatenated", k]) for k in (512, 256, 128, 64)]
    pairs += [
        (size[method, k], whole) for k in (256, 128, 64) for method in ("collab", "concatenated")
    ]
    return tuple(
        Claim(
            where="key-dimension table, WMT14 en-de, transformer base",
            system=_named(system),
            baseline=_named(baseline),
            metric="BLEU",
            score=system.bleu,
            baseline_score=baseline.bleu,
            size=system.parameters,
            baseline_size=baseline.parameters,
            ours=Side((system.method,), MODEL_DIM / system.key_dim),
            our_baseline=Side((baseline.method,), MODEL_DIM / baseline.key_dim),
        )
        for system, baseline in pairs
    )


def _named(row: Published) -> str:
    part = MODEL_DIM // row.key_dim
    return f"{row.method}, K = d" + (f"/{part}" if part > 1 else "")


def _head_sizes() -> tuple[Claim, ...]:
    """Table 2B: head size at 8 heads and d = 512; 64 is d/H."""
    f1 = {32: (88.53, 130.0), 64: (89.51, 142.0), 128: (89.6, 168.0), 256: (90.33, 218.0)}
    score, size = f1[64]
    return tuple(
        Claim(
            where="table 2B, SQuAD (dev), BERT with d = 512 and 8 heads",
            system=f"head size {head}",
            baseline="head size 64 = d/H",
            metric="F1",
            score=f1[head][0],
            baseline_score=score,
            size=f1[head][1],
            baseline_size=size,
            ours=Side(("concatenated",), head_ratio=head / 64),
            our_baseline=Side(("concatenated",), head_ratio=1.0),
        )
        for head in (32, 128, 256)
    )


_WHOLE = Side(("concatenated",), reduction=1.0)


def _grouped() -> tuple[Claim, ...]:
    """Tables 1 and 2 (English-German alone); the LITE model on newstest2013."""
    sets = {"WMT14 en-de": (27.3, 28.6, 28.2), "IWSLT14 en-de": (28.0, 29.1, 28.9)}
    models = (
        ("GHT (heads in groups)", 1, 44.0, "grouped"),
        ("GHT-PS (one head a group kept)", 2, 30.0, "grouped_pruned"),
    )
    found = [
        Claim(
            where=f"tables 1 and 2, {name}, transformer base",
            system=system,
            baseline="vanilla transformer",
            metric="BLEU",
            score=scores[place],
            baseline_score=scores[0],
            size=size,
            baseline_size=44.0,
            ours=Side((method,)),
            our_baseline=_WHOLE,
        )
        for system, place, size, method in models
        for name, scores in sets.items()
    ]
    lite = Claim(
        where="WMT newstest2013 en-de, transformer base",
        system="GHT-PS-LITE (half of the feed-forward units, too)",
        baseline="vanilla transformer",
        metric="BLEU",
        score=26.6,
        baseline_score=25.8,
        size=16.0,
        baseline_size=44.0,
        ours=Side(("grouped_lite_pruned",)),
        our_baseline=_WHOLE,
    )
    return (*found, lite)


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


#: Voita et al. 2019 (arXiv 1905.09418), table 2, WMT English-Russian: the whole model ...
WHOLE_HEADS, WHOLE_BLEU = "48/48/48", 29.6
#: ... and what is left of it.
PRUNED = (
    Pruned("14/31/30", 29.62, 29.47),
    Pruned("12/21/25", 29.36, 28.95),
    Pruned("8/13/15", 29.06, 28.56),
    Pruned("5/9/12", 28.90, 28.41),
)
_GATES = ("gated", "transformer_gated_heads")


def _gated() -> tuple[Claim, ...]:
    """All heads against those that gates have left."""
    return tuple(
        Claim(
            where="table 2, WMT en-ru, transformer base",
            system=f"{pruned.heads} of {WHOLE_HEADS} heads, pruned with gates",
            baseline="all heads",
            metric="BLEU",
            score=pruned.bleu,
            baseline_score=WHOLE_BLEU,
            ours=Side(_GATES),
            our_baseline=Side(_GATES, variant="gate_penalty=0"),
        )
        for pruned in PRUNED
    )


PAPERS = (
    Paper(
        "Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362",
        "BLEU of an unstated kind, taken from a third party's summary and not confirmed "
        "independently; rows are matched by d/K.",
        _key_dimensions(),
    ),
    Paper(
        "Bhojanapalli, Yun, Rawat, Reddi, Kumar 2020, arXiv 2002.07028",
        "The paper has no translation experiment: its scores are F1 of question answering, another "
        "unit than BLEU, and only their sign may be compared; rows are matched by head size "
        "/ (d/H).",
        _head_sizes(),
    ),
    Paper(
        "Ni, Mao, Yang, Lei, Cambria 2023, arXiv 2305.14380",
        "Tokenised BLEU by the paper's released code, with compounds split; parameters without "
        "embeddings. The number of groups is not stated (30M parameters need 2 of 8 heads), so "
        "every number of groups of ours stands beside it.",
        _grouped(),
    ),
    Paper(
        "Voita, Talbot, Moiseev, Sennrich, Titov 2019, arXiv 1905.09418",
        "English-Russian; gates on a converged model. Ours still have their gates; their baseline "
        "is the same training without a penalty, and every penalty stands beside it.",
        _gated(),
    ),
)
