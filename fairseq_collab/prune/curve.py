"""A model loses its heads, the least important first (Michel et al. 2019, arXiv 1905.10650).

Section 4.2 of the paper: heads are ordered by importance, whose length (l2) is 1 in each layer,
and removed a tenth of them at a time; of one attention site alone, or of all sites together.  The
paper measures importance once, of the whole model.  Measured again of each pruned model, before
more heads go, it takes into account who is gone already.

A layer may lose all of its heads, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

import torch

from fairseq_collab.analysis.heads.importance import Importance
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune.choices import Heads
from fairseq_collab.prune.surgery import Kept, pruned
from fairseq_collab.trained.opener import Trained, epoch

#: Which heads compete: those of one site, or all.
Curve = Literal["encoder", "decoder", "cross", "all"]
CURVES: tuple[Curve, ...] = (*SITES, "all")
#: Importances that can be measured, by their name in ``heads.json``; the ranking normalises them.
FORMS = {
    "importance_token_normalised": Importance.per_token,
    "importance_token": Importance.per_token,
    "importance_sample": Importance.per_sample,
}


def sites_of(curve: Curve) -> tuple[Site, ...]:
    """The attention sites whose heads go."""
    return SITES if curve == "all" else (curve,)


def heads_in(curve: Curve, heads: Heads) -> int:
    """How many heads there are to lose."""
    return sum(sum(heads[site]) for site in sites_of(curve))


def counts(total: int, step: float, most: float) -> list[int]:
    """How many of ``total`` heads go: the shares 0, ``step``, ... up to ``most``, each count once.

    Of two counts that a share is between, the nearer.
    """
    shares = [i * step for i in range(int(most / step + 1e-9) + 1)]
    return sorted({int(share * total + 0.5) for share in shares})


def measured(
    trained: Trained, kept: Kept, by: str, subset: str, device: torch.device
) -> dict[Site, list[list[float]]]:
    """The importance of the ``kept`` heads when no others are there, on a subset of the data.

    Args:
        by: a key of :data:`FORMS`.
    """
    smaller = pruned(trained, kept)
    importance = Importance(smaller.model.to(device))
    for sample in epoch(smaller, subset):
        importance.add(sample)
    return FORMS[by](importance)


def free_heads(points: Sequence[tuple[int, float]], loss: float) -> int:
    """How many heads can go without losing more than ``loss`` BLEU at any point on the way.

    Args:
        points: numbers of heads removed, from 0 up, and BLEU.
    """
    least = points[0][1] - loss
    return max(removed for removed, _ in takewhile(lambda point: point[1] >= least, points))
