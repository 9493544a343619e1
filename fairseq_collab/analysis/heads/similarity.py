"""How alike the heads of a layer are: in what they look at, and in their key/query maps.

    weights      mean over words t of sqrt(JSD(a_t^i, a_t^j)),   JSD in bits: 0 alike, 1 disjoint
    projections  <W_i, W_j> / (|W_i| |W_j|),                     W_i = Wq_i Wk_i^T, without biases

The first is the Jensen-Shannon *distance* (Endres and Schindelin 2003), a metric; the second the
cosine of the maps that score, 1 for heads that score alike up to a factor.

Shapes: ``H`` heads; weights ``(B, H, T, S)``; factors ``A (H, d, e)``, ``B (H, d_y, e)`` with
``W_i = A_i B_i^T``; similarities ``(H, H)`` for each layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fairseq_collab.analysis.heads.measures import Sums, entropy
from fairseq_collab.analysis.heads.weights import AttentionBatch, Heads
from fairseq_collab.analysis.scores import attentions, factors
from fairseq_collab.models.layers import SITES, Site


class WeightDistance:
    """The mean Jensen-Shannon distance between the rows of each two heads of a layer."""

    def __init__(self, heads: Heads):
        self._layers = {
            site: [Sums({site: [number]}, [site], (number,)) for number in heads[site]]
            for site in SITES
        }

    def add(self, batch: AttentionBatch) -> None:
        for site, layers in batch.weights.items():
            rows = batch.query_words(site)  # (B, T)
            for layer, weights in enumerate(layers):
                # Only what is counted is computed: padding would be most of some batches.
                chosen = weights.transpose(1, 2)[rows]  # (N, H, S)
                total = distances(chosen).sum(0)  # (H, H)
                self._layers[site][layer].add(site, 0, total, rows.sum())

    def result(self) -> dict[Site, list[Any]]:
        """By site and layer, ``H x H`` lists."""
        return {
            site: [sums.means()[site][0] for sums in layers]
            for site, layers in self._layers.items()
        }


def distances(weights: Tensor) -> Tensor:
    """Jensen-Shannon distances of the heads of each row: ``(N, H, S) -> (N, H, H)``."""
    own = entropy(weights)  # (N, H)
    heads = weights.size(1)
    found = weights.new_zeros(len(weights), heads, heads)
    for i in range(heads - 1):  # one head against those after it: the memory of all pairs is much
        middle = entropy((weights[:, i : i + 1] + weights[:, i + 1 :]) / 2)  # (N, H - i - 1)
        divergence = (middle - (own[:, i : i + 1] + own[:, i + 1 :]) / 2) / math.log(2)
        distance = divergence.clamp(0, 1).sqrt()  # rounding may leave the range
        found[:, i, i + 1 :] = distance
        found[:, i + 1 :, i] = distance
    return found


def projection_cosines(model: Any) -> dict[Site, list[list[list[float]]]]:
    """The cosines of the heads' key/query maps: ``H x H`` lists by site and layer."""
    found: dict[Site, list[list[list[float]]]] = {site: [] for site in SITES}
    with torch.inference_mode():
        for site, _, module in attentions(model):
            a, b = (factor[:, :-1].double() for factor in factors(module))  # biases apart
            found[site].append(cosines(a, b).tolist())
    return found


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of the maps ``A_i B_i^T``, which are never formed: ``(H, d, e) -> (H, H)``.

    ``<A_i B_i^T, A_j B_j^T> = sum((A_i^T A_j) * (B_i^T B_j))``
    """
    products = torch.stack(
        [((a_i.T @ a) * (b_i.T @ b)).sum((1, 2)) for a_i, b_i in zip(a, b, strict=True)]
    )  # (H, H)
    norms = products.diagonal().clamp_min(0).sqrt()
    # Of a map that is zero, nothing is alike.
    scale = (norms[:, None] * norms).clamp_min(torch.finfo(products.dtype).tiny)
    return (products / scale).clamp(-1, 1)
