"""What others do to attention, of which :mod:`.changes` makes models; nothing is trained.

- Latents by SVD (SVD-LLM, Palu, CARE): the singular values of ``C^1/2 [B_i M_i^1/2, V_i N_i^1/2]``,
  C the covariance of the inputs, M the second moments of a head's queries, N those of its output
  map; the largest of all attentions give the widths.
- Pooled heads (Ainslie et al. 2023, arXiv 2305.13245): neighbouring heads share the mean of their
  keys and values.
- Rounded caches: keys in 4 and values in 2 bits (arXiv 2502.15075), and TurboQuant's rotation with
  a Lloyd-Max codebook of 2 or 3 bits for each number (arXiv 2504.19874, its first part).  Their
  numbers are rounded in the whole pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from collab_lab.mathematics.new_heads import PricedWeights, queries_and_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.metrics.loss import read_by_decoder
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.statistics.gram import ridged
from collab_lab.trained.attentions import Attention, hooked, inputs_of
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.rounding import group_sizes

#: What a cache of fewer bits makes of numbers.
Rounding = Callable[[Tensor], Tensor]


# ---- narrower heads ------------------------------------------------------------------------------


class Pooled(GroupedQuery):
    """Groups of neighbours that share the mean of their keys and of their values."""

    def convert(self, attention: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        maps = attention.maps
        keys, values = (x.unflatten(0, (size, -1)).mean(1) for x in (maps.keys, maps.values))
        weights, _ = queries_and_keys(attention, maps.queries, keys)
        rows = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y + 1)
        value = {"v_proj.weight": rows[:, :-1], "v_proj.bias": rows[:, -1]}
        return weights | attention.state(value) | attention.copied("out_proj"), 0.0


class Svd(Latent):
    """Latents by the singular value decomposition of keys and values, weighted by activations.

    Args:
        covariances: of the inputs of keys and values, by attention module.
    """

    def __init__(self, covariances: dict[Any, Tensor]):
        self.covariances = covariances

    def decomposed(self, attention: PricedAttention) -> tuple[Tensor, Tensor, Tensor]:
        """Singular values, ``C^-1/2 U`` and ``U^T C^1/2``."""
        maps = attention.maps
        squares, vectors = torch.linalg.eigh(ridged(self.covariances[attention.module]))
        roots = squares.clamp_min(1e-12).sqrt()
        moment = maps.queries.mT @ attention.statistics.query_moment @ maps.queries
        parts = [maps.keys @ _root(moment), maps.values[:, :-1] @ _root(maps.out.mT @ maps.out)]
        both = torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)
        u, values, _ = torch.linalg.svd(roots.unsqueeze(1) * (vectors.T @ both))
        return values, vectors @ (u / roots.unsqueeze(1)), (u.T * roots) @ vectors.T

    def convert(self, attention: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        maps, (_, down, up) = attention.maps, self.decomposed(attention)
        down, up = down[:, :size], up[:size]
        key_up, value_up = up @ maps.keys, up @ maps.values[:, :-1]  # (H, r, .)
        weights = {
            "latent_proj.weight": down.T,
            "latent_proj.bias": down.new_zeros(size),
            "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
            "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
            "out_proj.bias": attention.out_bias(down @ value_up, maps.out),
        }
        return attention.copied("q_proj", "out_proj.weight") | attention.state(weights), 0.0


def _root(metric: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(metric)
    return vectors * values.clamp_min(0).sqrt().unsqueeze(-2) @ vectors.mT


@torch.no_grad()
def covariances(trained: Trained, batches: Any) -> dict[Any, Tensor]:
    """Of the inputs of keys and values, ``(d_y, d_y)``, by attention module."""
    rows: dict[Any, list[Tensor]] = {}
    padding = trained.task.source_dictionary.pad()

    def hook(attention: Attention) -> Any:
        def see(module: Any, args: Any, kwargs: Any) -> None:
            words = read_by_decoder(batch) if attention.type == "decoder" else source
            y = inputs_of(module, args, kwargs)[1]
            rows.setdefault(module, []).append(y[words.ne(padding).T].double())

        return attention.module.register_forward_pre_hook(see, with_kwargs=True)

    with hooked(trained.model, hook):
        for batch in batches:
            source = batch["net_input"]["src_tokens"]
            trained.model(**batch["net_input"])
    return {module: torch.cat(some).T.cov(correction=0) for module, some in rows.items()}


# ---- rounded caches ------------------------------------------------------------------------------


def uniform(bits: int) -> Rounding:
    """As a rounded cache of ours, with any number of bits."""
    levels = 2**bits - 1

    def change(x: Tensor) -> Tensor:
        groups, _ = group_sizes(x.size(-1))
        parts = x.unflatten(-1, (groups, -1))
        low, high = parts.aminmax(dim=-1, keepdim=True)
        low, scale = low.half().float(), ((high - low) / levels).clamp(min=2.0**-24).half().float()
        codes = ((parts - low) / scale).round().clamp(0, levels)
        return (codes * scale + low).flatten(-2)

    return change


def rotated(bits: int) -> Rounding:
    """A random rotation, then the best codebook of normal numbers; the norm is kept in 16 bits."""
    book = lloyd_max(2**bits)

    @functools.cache
    def rotation(width: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]

    def change(x: Tensor) -> Tensor:
        turn = rotation(x.size(-1))
        size = (x.square().mean(-1, keepdim=True).sqrt() + 1e-12).half().float()
        nearest = torch.bucketize(x @ turn / size, (book[1:] + book[:-1]) / 2)
        return (book[nearest] * size) @ turn.T

    return change


def lloyd_max(levels: int) -> Tensor:
    """The codebook of least squared error for a standard normal number."""
    grid = torch.linspace(-6, 6, 24001, dtype=torch.float64)
    weight = torch.exp(-grid.square() / 2)
    book = torch.linspace(-2, 2, levels, dtype=torch.float64)
    for _ in range(500):
        cell = torch.bucketize(grid, (book[1:] + book[:-1]) / 2)
        total = torch.zeros(levels, dtype=torch.float64).index_add(0, cell, weight)
        book = torch.zeros_like(total).index_add(0, cell, weight * grid) / total
    return book.float()
