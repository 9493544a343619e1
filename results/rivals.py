"""What others lose: latents by SVD, pooled heads, masks, steps of the refit, choices of heads.

    python results/rivals.py results/cache.json results/at_size.json results/shrink.json --data data/multi30k --model m30k128-1=average.pt

Writes ``ladder`` and ``pooled`` of cache.json, the rows "latents by SVD" and ``choices`` of
at_size.json, the row "masks by Fisher" of shrink.json; ``--only "and fc2"`` chooses some.  Nothing
is trained.

- Latents by SVD (SVD-LLM, Palu, CARE): the singular values of ``C^1/2 [B_i M_i^1/2, V_i N_i^1/2]``,
  C the covariance of the inputs, M the second moments of a head's queries, N those of its output
  map; the largest of all attentions give the widths.  Then the refit.
- Pooled heads (Ainslie et al. 2023, arXiv 2305.13245): neighbouring heads share the mean of their
  keys and values; no refit.
- Masks of heads and units (Kwon et al. 2022): :mod:`.masks`.  Then the refit.
- The steps and choices are those of :mod:`.ladder`.
"""  # noqa: E501

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from collab_lab.mathematics.new_heads import PricedWeights, separate_queries
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.metrics.loss import read_by_decoder
from collab_lab.shrinking.by_hand import conversion
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.making import make, unfitted
from collab_lab.shrinking.plan import Allowed
from collab_lab.shrinking.programme import propose
from collab_lab.shrinking.smaller import Smaller
from collab_lab.statistics.gram import ridged
from collab_lab.trained.attentions import Attention, hooked, inputs_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples
from results.cuts import PARAMETERS, listed
from results.ladder import (
    A_WORD,
    STEPS,
    Ladder,
    Orders,
    by_importance,
    by_pairs,
    by_price,
    without,
)
from results.masks import fisher, masked
from results.measured import Wanted, Work, run

SHARES = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
CHOICES = {
    "obs": STEPS["and fc2"],
    "pairs": "pairs instead of prices",
    "importance": "importance instead of prices",
}
KINDS = {"grouped-query": GroupedQuery, "latent": Latent, "own": SharedKey}
#: Shares of the KV cache, by kind.
CACHES = {"grouped-query": (1 / 2, 1 / 4), "latent": (1 / 4, 1 / 8), "own": (0.625, 0.5625)}
CONVERTED = ("plain", "target of the trained model", "with the residual", "and fc2")
SENTENCES = (30, 100, 300, 1000, 3000)
RIDGES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 1.0, A_WORD)


# ---- conversions ---------------------------------------------------------------------------------


class Pooled(GroupedQuery):
    """Groups of neighbours that share the mean of their keys and of their values."""

    def convert(self, trained: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        maps = trained.maps
        keys, values = (x.unflatten(0, (size, -1)).mean(1) for x in (maps.keys, maps.values))
        weights, _ = separate_queries(trained, maps.queries, keys)
        rows = values.transpose(1, 2).flatten(0, 1)  # (G h_v, d_y + 1)
        value = {"v_proj.weight": rows[:, :-1], "v_proj.bias": rows[:, -1]}
        return weights | trained.state(value) | trained.copied("out_proj"), 0.0


class Svd(Latent):
    """Latents by the singular value decomposition of keys and values, weighted by activations.

    Args:
        covariances: of the inputs of keys and values, by attention module.
    """

    def __init__(self, covariances: dict[Any, Tensor]):
        self.covariances = covariances

    def decomposed(self, trained: PricedAttention) -> tuple[Tensor, Tensor, Tensor]:
        """Singular values, ``C^-1/2 U`` and ``U^T C^1/2``."""
        maps = trained.maps
        squares, vectors = torch.linalg.eigh(ridged(self.covariances[trained.module]))
        roots = squares.clamp_min(1e-12).sqrt()
        moment = maps.queries.mT @ trained.statistics.query_moment @ maps.queries
        parts = [maps.keys @ _root(moment), maps.values[:, :-1] @ _root(maps.out.mT @ maps.out)]
        both = torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)
        u, values, _ = torch.linalg.svd(roots.unsqueeze(1) * (vectors.T @ both))
        return values, vectors @ (u / roots.unsqueeze(1)), (u.T * roots) @ vectors.T

    def convert(self, trained: PricedAttention, size: int, steps: int = 0) -> PricedWeights:
        maps, (_, down, up) = trained.maps, self.decomposed(trained)
        down, up = down[:, :size], up[:size]
        key_up, value_up = up @ maps.keys, up @ maps.values[:, :-1]  # (H, r, .)
        weights = {
            "latent_proj.weight": down.T,
            "latent_proj.bias": down.new_zeros(size),
            "k_proj.weight": key_up.transpose(1, 2).flatten(0, 1),
            "v_proj.weight": value_up.transpose(1, 2).flatten(0, 1),
            "out_proj.bias": trained.out_bias(down @ value_up, maps.out),
        }
        return trained.copied("q_proj", "out_proj.weight") | trained.state(weights), 0.0


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


def svd_latents(found: Evidence, share: float, bits: int | None = None) -> Smaller:
    """Latents with a share of the numbers of the KV cache, rounded to ``bits``, and the refit."""
    model = found.trained
    cut = Svd(covariances(model, found.batches))
    cached = {a: found.whole_attention(a) for a in found.attentions if a.type != "encoder"}
    values = [(float(v), a) for a, of in cached.items() for v in cut.decomposed(of)[0]]
    number = int(share * sum(2 * a.module.embed_dim for a in cached))
    chosen = [a for _, a in sorted(values, key=lambda pair: -pair[0])[:number]]
    sizes = {a: max(1, chosen.count(a)) for a in cached}
    rounded = dict.fromkeys(cached, bits) if bits else {}
    return make(found, conversion(model, {cut: sizes}, rounded))


def by_svd(work: Work, share: float) -> dict[str, Any]:
    """What they lose, without rounding."""
    made = svd_latents(work.found, share)
    listed = {str(a): size for a, size in made.plan.sizes.items()}
    return {"price": None, **work.lost(made.model), "sizes": listed}


def pooled(work: Work, share: float) -> dict[str, Any]:
    """Groups in the decoder and in cross-attention; the encoder has no KV cache."""
    cached = [a for a in work.found.attentions if a.type != "encoder"]
    sizes = {a: max(1, round(share * a.module.num_heads)) for a in cached}
    return work.lost(unfitted(work.found, conversion(work.model, {Pooled(): sizes}))[0])


def by_masks(work: Work, share: float) -> dict[str, Any]:
    """Masks of heads and units, with a share of the layers' parameters."""
    model, found = work.model, work.found
    plan = masked(model, fisher_of(work), share)
    return {"price": None, **listed(work, make(found, plan))}


@functools.lru_cache(1)
def fisher_of(work: Work) -> dict[Any, Tensor]:
    """The Fisher information of a model's masks."""
    return fisher(work.model, work.found.batches)


# ---- rows ----------------------------------------------------------------------------------------


def rows_of(file: str) -> Iterator[Wanted]:
    """The rows of a file of data."""
    base = {"ridge": 0.01, "sentences": 1000}
    if file == "at_size":
        for share in (1 / 4, 1 / 8):
            names = {"what": "svd", "name": "latents by SVD", "bits_option": "none"}
            yield Wanted("rows", {**names, "share": share})
        for share, choice in product(SHARES, CHOICES):
            names = {"kind": "heads", "what": "and fc2", "choice": choice}
            yield Wanted("choices", {**names, "share": round(share, 6), **base})
    elif file == "shrink":
        for share in PARAMETERS:
            names = {"what": "parameters", "name": "masks by Fisher"}
            yield Wanted("rows", {**names, "share": share, "bits_option": None})
    elif file == "cache":
        for share in (1 / 2, 1 / 4, 1 / 8):
            yield Wanted("pooled", {"kind": "mean-pooled grouped query", "share": share})
        yield from (Wanted("ladder", keys) for keys in steps(base))


def steps(base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of ``ladder``; those that the page's table has are called by a name."""
    ways = [(step, "obs", name) for step, name in STEPS.items() if step != "and fc2"]
    ways += [("and fc2", choice, name) for choice, name in CHOICES.items()]
    for (step, choice, name), share in product(ways, SHARES):
        names = {"kind": "heads", "what": step, "name": name, "choice": choice}
        yield {**names, "share": round(share, 6), **base}
    for kind, shares in CACHES.items():
        for share, step in product(shares, CONVERTED):
            yield {"kind": kind, "what": step, "choice": None, "share": share, **base}
    for sentences, ridge in product(SENTENCES, RIDGES):
        if ridge in (0.001, 0.1, A_WORD) or (sentences == 1000) != (ridge == 0.01):
            names = {"kind": "heads", "what": "and fc2", "choice": "obs"}
            yield {**names, "share": 0.5, "ridge": ridge, "sentences": sentences}


def measure(work: Work, wanted: Wanted) -> dict[str, Any]:
    """What a rival, or a step, loses."""
    keys = wanted.keys
    if keys.get("what") == "parameters":
        return by_masks(work, keys["share"])
    if wanted.part == "rows":
        about = work.about()
        size = f"d = {about['d']}" + ", 2+2 layers" * (about["layers"] == "2+2")
        return {"size": size, **by_svd(work, keys["share"])}
    if wanted.part == "pooled":
        return pooled(work, keys["share"])
    ladder = ladder_of(work, min(keys["sentences"], work.sentences))
    if keys["kind"] == "heads":
        number = round(keys["share"] * sum(map(sum, work.model.heads.values())))
        orders = orders_of(work, keys["choice"])
        changed, columns = ladder.masked(without(work.model, orders, number))
        return work.lost(ladder.climb(changed, keys["what"], keys["ridge"], columns))
    allowed = Allowed(("cache",), (KINDS[keys["kind"]].name,), (0,))
    plan = propose(work.found, {"cache": keys["share"]}, allowed)
    changed, _ = unfitted(work.found, plan)
    return work.lost(ladder.climb(changed, keys["what"], keys["ridge"]))


@functools.lru_cache(1)
def ladder_of(work: Work, sentences: int) -> Ladder:
    """What blocks read of some sentences; of the last number asked for."""
    same = sentences == work.sentences
    return Ladder(
        work.model, work.found.batches if same else samples(work.model, "train", sentences)
    )


@functools.lru_cache(4)
def orders_of(work: Work, choice: str) -> Orders:
    """The order in which heads go."""
    if choice == "obs":
        return by_price(work.found.attentions)
    if choice == "importance":
        return by_importance(work.model, work.found.batches)
    return by_pairs(ladder_of(work, work.sentences))


def main(argv: list[str]) -> int:
    return run("rivals.py", __doc__, argv, rows_of, measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
