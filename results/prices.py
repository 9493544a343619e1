"""How well prices predict, and what the weighting of errors is worth: writes prices.json.

    python results/prices.py results/prices.json --data data/multi30k --model m30k128_1=average.pt --group "Multi30k, d = 128"

A trained model is converted in many ways without training, refit or rounding, and each is measured
on the validation set, in bits per target token: whole models with even widths and with widths
spread by price; heads removed by price, by importance and at random; every attention alone; and a
ladder of weightings with which narrow maps are chosen:

    weights   errors of the weights                  all metrics are identities
    inputs    of keys and values                     Cov y
    both      of scores and values                   E [x 1]^T [x 1]; Cov y (keys: in a sentence)
    read      the same, values as heads read them    Cov z_i
    fisher    prices                                 collab_lab.statistics.moments
"""  # noqa: E501

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab import open_model
from collab_lab.heads.importance import importance
from collab_lab.mathematics.head_prices import head_prices
from collab_lab.metrics.loss import mean_bits, read_by_decoder
from collab_lab.shrinking.by_hand import conversion, random_order
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.narrower_heads import NarrowerHeads
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.making import unfitted
from collab_lab.shrinking.plan import Allowed
from collab_lab.shrinking.programme import Programme
from collab_lab.shrinking.pruning import pruned
from collab_lab.statistics.moments import Statistics, collect
from collab_lab.trained.attentions import Attention, HeadMaps, hooked, inputs_of
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples
from results.ladder import Orders, by_price, without
from results.measured import File, origin

OWN = "shared key, own queries"
KINDS: dict[str, NewHeads] = {
    "latent": Latent(),
    OWN: SharedKey(),
    "full": SharedKey("full"),
    "diagonal": SharedKey("diagonal"),
    "separate keys": NarrowerHeads(),
    "grouped query": GroupedQuery(),
}
#: Shares of the KV cache of decoder and cross-attention, by kind: keys are half of it.
SHARES = {
    "latent": (0.5, 0.25, 0.1875, 0.125),
    OWN: (0.75, 0.625, 0.5625),
    "separate keys": (0.75, 0.625, 0.5625),
    "grouped query": (0.5, 0.25),
}
REMOVED = (1 / 6, 1 / 3, 1 / 2, 2 / 3)
#: Of the ladder of weightings: kinds, and parts of the width.
LADDER, DIVISORS = ("latent", OWN, "full", "diagonal"), (4, 8)
#: Prices of exact conversions are below this.
EXACT = 1e-6
Found = Mapping[Attention, Statistics]


class Measured:
    """A trained model, what one pass over sentences shows of it, and its loss."""

    def __init__(self, trained: Trained, sentences: int):
        self.trained = trained
        self.batches = samples(trained, "train", sentences)
        self.found = collect(trained, self.batches)
        self.evidence = Evidence(trained, self.batches, self.found)
        self.valid = samples(trained, "valid")
        self.before = mean_bits(trained.model, self.valid)

    def row(self, changed: Trained, price: float | None, **row: Any) -> dict[str, Any]:
        """A change, its price and its loss."""
        lost = mean_bits(changed.model, self.valid) - self.before
        print({**row, "price": price, "lost": lost}, flush=True)
        return {**row, "price": price, "lost": lost}

    def converted(
        self,
        cut: NewHeads,
        sizes: Mapping[Attention, int],
        evidence: Evidence | None = None,
        **row: Any,
    ) -> dict[str, Any]:
        """A conversion."""
        plan = conversion(self.trained, {cut: sizes})
        changed, plan = unfitted(evidence or self.evidence, plan)
        listed = {str(one): size for one, size in sizes.items()}
        return self.row(changed, plan.price, **row, sizes=listed)

    def sizes(self, cut: NewHeads, share: float) -> Mapping[Attention, int]:
        """Widths of least price at a share of the KV cache, not rounded."""
        programme = Programme(self.evidence, cut.name, [Bits(), cut], Allowed(bits=(0,)))
        return programme.solve({"cache": share}).sizes

    def removed(self, orders: Orders, number: int, priced: bool, **row: Any) -> dict[str, Any]:
        """Heads removed, without a refit."""
        retained, price = without(self.trained, orders, number), 0.0
        for one, order in orders.items():
            gone = one.module.num_heads - len(retained[one.type][one.layer])
            price += sum(rise for rise, _ in order[:gone])
        changed = pruned(self.trained, retained)
        return self.row(changed, price if priced else None, **row)


def alone(measured: Measured) -> Iterator[dict[str, Any]]:
    """Every attention by itself, at a half, a quarter and an eighth; every third head."""
    found = measured.found
    for kind in ("latent", OWN, "grouped query"):
        cut = KINDS[kind]
        for one in found:
            for divisor in (2, 4, 8):
                size = max(1, cut.exact_size(one.module) // divisor)
                yield measured.converted(cut, {one: size}, what="alone", kind=kind, type=one.type)
    for one, statistics in found.items():
        prices = head_prices(one.module, statistics)
        for head in range(0, one.module.num_heads, 3):
            row = {"what": "alone", "kind": "heads removed", "type": one.type}
            yield measured.removed({one: [(prices[head], head)]}, 1, True, **row)


def spread(measured: Measured) -> Iterator[dict[str, Any]]:
    """Whole models with even widths and with widths spread, at shares of the KV cache."""
    for kind, shares in SHARES.items():
        cut = KINDS[kind]
        cached = [one for one in measured.found if one.type != "encoder"]
        for share in shares:
            row: dict[str, Any] = {"kind": kind, "cache": share}
            if not cut.kind.one_size:  # which has one size in all layers, the encoder's, too
                yield measured.converted(cut, measured.sizes(cut, share), what="spread", **row)
            narrowed = [*measured.found] if cut.kind.one_size else cached
            even = {one: even_size(kind, one, share) for one in narrowed}
            yield measured.converted(cut, even, what="even", **row)


def even_size(kind: str, one: Attention, share: float) -> int:
    """The size at which an attention has this share of its cached numbers."""
    width, heads = one.module.embed_dim, one.module.num_heads
    if kind == "latent":
        return int(share * 2 * width)
    if kind == "grouped query":
        return int(share * heads)
    size = round((2 * share - 1) * width)
    return max(heads, size - size % heads) if kind == "separate keys" else size


def heads(measured: Measured) -> Iterator[dict[str, Any]]:
    """A share of all heads removed: by price, by importance, at random."""
    trained = measured.trained
    values = importance(trained.model, measured.batches)
    ways: dict[str, Orders] = {"price": by_price(measured.found), "importance": {}}
    for one in measured.found:
        of_heads = enumerate(values[one.type][one.layer])
        ways["importance"][one] = sorted((x, i) for i, x in of_heads)
    for seed in (1, 2, 3):
        evidence = Evidence(trained, attentions=measured.found)
        random_order(evidence, seed)
        removals = {one: evidence.removals(one) for one in measured.found}
        ways[f"random {seed}"] = {
            one: [(b - a, head) for head, (a, b) in zip(of.order, pairwise(of.prices), strict=True)]
            for one, of in removals.items()
        }
    every = sum(map(sum, trained.heads.values()))
    for share in REMOVED:
        for choice, orders in ways.items():
            row: dict[str, Any] = {"what": "heads", "kind": "heads removed", "choice": choice}
            row["removed"] = round(share, 6)
            try:
                yield measured.removed(orders, round(share * every), choice == "price", **row)
            except UserError as error:  # such as no head of cross-attention
                print(f"{row}: {error}", flush=True)


# ---- the ladder of weightings --------------------------------------------------------------------


def ladder(measured: Measured) -> Iterator[dict[str, Any]]:
    """Even widths at a quarter and an eighth, with each weighting."""
    for name, weighting in weightings(measured).items():
        evidence = Evidence(measured.trained, attentions=weighting)
        for kind in LADDER:
            for divisor in DIVISORS:
                sizes = {
                    one: (2 if kind == "latent" else 1) * one.module.embed_dim // divisor
                    for one in measured.found
                    if kind != "latent" or one.type != "encoder"
                }
                row = {"what": "ladder", "kind": kind, "weighting": name, "share": 1 / divisor}
                yield measured.converted(KINDS[kind], sizes, evidence, **row)


def weightings(measured: Measured) -> dict[str, dict[Attention, Statistics]]:
    """The statistics of each step; keys and values have equal energies in all but the last."""
    inputs = covariances(measured.trained, measured.batches)
    steps: dict[str, dict[Attention, Statistics]] = {
        name: {} for name in ("weights", "inputs", "both", "read")
    }
    for one, fisher in measured.found.items():
        maps = HeadMaps.of(one.module)
        whole, within = (each.repeat(len(maps.keys), 1, 1) for each in inputs[one])
        plain = replace(Statistics.unweighted(maps), value_mean=fisher.value_mean)
        one_side = replace(plain, key_fisher=whole, value_covariance=whole)
        both = replace(one_side, query_moment=fisher.query_moment, key_fisher=within)
        read = replace(both, value_covariance=fisher.value_covariance)
        for name, each in zip(steps, (plain, one_side, both, read), strict=True):
            steps[name][one] = balanced(maps, each)
    return {**steps, "fisher": dict(measured.found)}


def balanced(maps: HeadMaps, statistics: Statistics) -> Statistics:
    """With metrics of keys and values scaled so that all of each has price 1."""
    asked = maps.queries.mT @ statistics.query_moment @ maps.queries
    keys = (maps.keys.mT @ statistics.key_fisher @ maps.keys * asked).sum()
    written, values = maps.out.mT @ statistics.output_fisher @ maps.out, maps.values[:, :-1]
    energy = (values.mT @ statistics.value_covariance @ values * written).sum()
    covariance = statistics.value_covariance / energy
    return replace(statistics, key_fisher=statistics.key_fisher / keys, value_covariance=covariance)


@torch.no_grad()
def covariances(trained: Trained, batches: Any) -> dict[Attention, tuple[Tensor, Tensor]]:
    """Of the inputs of keys, over all tokens and within sentences: ``(d_y, d_y)`` each."""
    rows: dict[Attention, list[Tensor]] = {}
    padding = trained.task.source_dictionary.pad()

    def hook(one: Attention) -> Any:
        def see(module: Any, args: Any, kwargs: Any) -> None:
            _, y = inputs_of(module, args, kwargs)  # (S, B, d_y)
            tokens = read_by_decoder(batch) if one.type == "decoder" else source
            for sentence, is_word in zip(y.unbind(1), tokens.ne(padding), strict=True):
                rows.setdefault(one, []).append(sentence[is_word].double())

        return one.module.register_forward_pre_hook(see, with_kwargs=True)

    with hooked(trained.model, hook):
        for batch in batches:
            source = batch["net_input"]["src_tokens"]
            trained.model(**batch["net_input"])
    found = {}
    for one, each in rows.items():
        centred = torch.cat([sentence - sentence.mean(0) for sentence in each])
        found[one] = torch.cat(each).T.cov(correction=0), centred.T @ centred / len(centred)
    return found


# ---- how well prices predict ---------------------------------------------------------------------


def agreement(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind: rank correlation of price and loss, and quartiles of the factor between them."""
    found = {}
    for kind in dict.fromkeys(row["kind"] for row in rows if row["what"] != "ladder"):
        priced = [
            (row["price"], row["lost"])
            for row in rows
            if row["kind"] == kind and row["what"] != "ladder" and (row["price"] or 0) > EXACT
        ]
        if len(priced) > 2:
            prices, lost = np.array(priced).T
            found[kind] = {
                "changes": len(priced),
                "spearman": float(spearmanr(prices, lost).statistic),
                "factor": np.percentile(lost / prices, [25, 50, 75]).tolist(),
            }
    return found


STEPS = {"spread": spread, "heads": heads, "alone": alone, "ladder": ladder}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/prices.json")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--model", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--group", required=True, help="models of one group are averaged")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=[*STEPS])
    args = parser.parse_args(argv)
    name, _, checkpoint = args.model.partition("=")
    trained = open_model(Path(checkpoint), args.data)
    measured = Measured(trained, args.sentences)
    rows = [row for step in args.steps for row in STEPS[step](measured)]
    about = {
        **{"model": name, "group": args.group, "data": args.data.name},
        **{"seed": int(trained.cfg.common.seed), "valid_bits": round(measured.before, 5)},
        "checkpoint_sha256": sha256(Path(checkpoint)),
        **origin("prices.py", argv),
        **{"agreement": agreement(rows), "rows": rows},
    }
    File(args.file).put("models", {"model": name}, about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
