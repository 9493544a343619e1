"""Predicted against measured loss of conversions, and what the weighting of errors is worth.

    python examples/weightings.py MODEL DATA --out FILE

Converts a trained model in many ways without training, and measures each on the validation set, in
bits per target token: every attention alone; whole models with even widths and with widths spread
by price; and a ladder of weightings with which the narrow maps are chosen:

    weights   errors of the weights                  all metrics are identities
    inputs    of keys and values                     Cov y
    both      of scores and values                   E [x 1]^T [x 1]; Cov y (keys: in a sentence)
    read      the same, values as heads read them    Cov z_i
    fisher    prices                                 collab_lab.pricing.statistics

FILE is JSON: the rows, and how they were made.  results/prices.md shows them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from collab_common.files import sha256, write_json
from collab_common.provenance import circumstances
from collab_lab.analysis.importance import importance, normalised
from collab_lab.conversion.base import Conversion
from collab_lab.conversion.converter import Converter
from collab_lab.metrics.loss import mean_bits, read_by_decoder
from collab_lab.pricing.statistics import Statistics, collect
from collab_lab.pruning import choices, surgery
from collab_lab.trained.attentions import Attention, HeadMaps, hooked, inputs_of
from collab_lab.trained.checkpoint import Trained, open_model, samples

Found = Mapping[Attention, Statistics]
KINDS = {
    "latent": Conversion("latent"),
    "own": Conversion("collab"),
    "full": Conversion("collab", "full"),
    "diagonal": Conversion("collab", "diagonal"),
    "separate": Conversion("headsize"),
    "grouped-query": Conversion("grouped-query"),
}
#: Shares of the KV cache of decoder and cross-attention, by kind: keys are half of it.
SHARES = {
    "latent": (0.5, 0.25, 0.1875, 0.125),
    "own": (0.75, 0.625, 0.5625),
    "separate": (0.75, 0.625, 0.5625),
    "grouped-query": (0.5, 0.25),
}


#: Prices of exact conversions are below this.
EXACT = 1e-6


class Measured:
    """Loss of changed models on the validation set."""

    def __init__(self, trained: Trained):
        self.trained, self.batches = trained, samples(trained, "valid")
        self.before = mean_bits(trained.model, self.batches)
        self.rows: list[dict[str, Any]] = []

    def add(self, changed: Trained, price: float | None, **row: Any) -> None:
        lost = mean_bits(changed.model, self.batches) - self.before
        self.rows.append({**row, "price": price, "lost": lost})
        print(self.rows[-1], flush=True)

    def convert(self, work: Converter, sizes: Mapping[Attention, int], **row: Any) -> None:
        changed, prices = work.convert(sizes)
        listed = {str(one): size for one, size in sizes.items()}
        self.add(changed, sum(prices.values()), **row, sizes=listed)


def alone(measured: Measured, found: Found, batches: list[dict[str, Any]]) -> None:
    """Every attention by itself, at a half, a quarter and an eighth; every fourth head."""
    trained = measured.trained
    for kind in ("latent", "own", "grouped-query"):
        work = Converter(trained, KINDS[kind], found)
        for one in found:
            for divisor in (2, 4, 8):
                size = max(1, work.target.largest(one.module) // divisor)
                measured.convert(work, {one: size}, what="alone", kind=kind, type=one.type)
    for one, statistics in found.items():
        for head in range(0, one.module.num_heads, 3):
            kept = choices.all_heads(trained.heads)
            kept[one.type][one.layer].remove(head)
            price = float(statistics.head_fisher[head, head]) / 2 / math.log(2)
            changed = surgery.pruned(trained, kept, found)
            measured.add(changed, price, what="alone", kind="heads", type=one.type)


def spread(measured: Measured, found: Found, batches: list[dict[str, Any]]) -> None:
    """Whole models with even widths and with widths spread, at shares of the KV cache."""
    for kind, shares in SHARES.items():
        work = Converter(measured.trained, KINDS[kind], found)
        for share in shares:
            narrowed = [one for one in found if one.type != "encoder"]
            size = even_size(work, narrowed[0], share)
            if kind == "separate":  # which has one size in all layers
                narrowed = [*found]
            else:
                sizes = work.spread({"cache": share})
                measured.convert(work, sizes, what="spread", kind=kind, cache=share)
            even = dict.fromkeys(narrowed, size)
            measured.convert(work, even, what="even", kind=kind, cache=share)


def heads(measured: Measured, found: Found, batches: list[dict[str, Any]]) -> None:
    """A share of all heads removed: by price, by importance with its norm or not, at random."""
    trained = measured.trained
    raw = importance(trained.model, batches)
    pairs = {
        "price": {one: each.head_fisher for one, each in found.items()},
        "importance": choices.on_diagonals(raw, trained),
        "normalised": choices.on_diagonals(normalised(raw), trained),
    }
    for seed in (1, 2, 3):
        chance = torch.Generator().manual_seed(seed)
        pairs[f"random {seed}"] = {
            one: torch.rand(one.module.num_heads, generator=chance).diag() for one in found
        }
    number = sum(map(sum, trained.heads.values()))
    for share in (1 / 6, 1 / 3, 1 / 2, 2 / 3):
        for choice, given in pairs.items():
            kept, price = choices.cheapest(trained.heads, given, number=round(share * number))
            changed = surgery.pruned(trained, kept, found)
            row = {"what": "heads", "kind": "heads", "choice": choice, "removed": share}
            measured.add(changed, price if choice == "price" else None, **row)


def even_size(work: Converter, one: Attention, share: float) -> int:
    """The size at which an attention has this share of its cached numbers."""
    numbers = 2 * one.module.embed_dim
    points = [point for point in work.curve(one) if point.cache <= share * numbers and point.size]
    return max(points, key=lambda point: point.size).size


# ---- the ladder ----------------------------------------------------------------------------------


def ladder(measured: Measured, found: Found, batches: list[dict[str, Any]]) -> None:
    """Even widths at a quarter and an eighth, with each weighting."""
    for name, weighting in weightings(measured.trained, found, batches).items():
        for kind in ("latent", "own", "full", "diagonal"):
            work = Converter(measured.trained, KINDS[kind], weighting)
            for divisor in (4, 8):
                sizes = {
                    one: (2 if kind == "latent" else 1) * one.module.embed_dim // divisor
                    for one in found
                    if kind != "latent" or one.type != "encoder"
                }
                measured.convert(
                    work, sizes, what="ladder", kind=kind, weighting=name, share=1 / divisor
                )


def weightings(
    trained: Trained, found: Found, batches: list[dict[str, Any]]
) -> dict[str, dict[Attention, Statistics]]:
    """The statistics of each step of the ladder.

    Keys and values have equal energies in all but the last.
    """
    inputs = covariances(trained, batches)
    steps: dict[str, dict[Attention, Statistics]] = {
        name: {} for name in ("weights", "inputs", "both", "read")
    }
    for one, fisher in found.items():
        maps = HeadMaps.of(one.module)
        heads, (whole, within) = len(maps.keys), inputs[one]
        plain = replace(
            Statistics.unweighted(maps),
            value_mean=fisher.value_mean,
            head_fisher=fisher.head_fisher,
        )
        whole, within = (each.repeat(heads, 1, 1) for each in (whole, within))
        one_side = replace(plain, key_fisher=whole, value_covariance=whole)
        both = replace(one_side, query_moment=fisher.query_moment, key_fisher=within)
        read = replace(both, value_covariance=fisher.value_covariance)
        for name, each in zip(steps, (plain, one_side, both, read), strict=True):
            steps[name][one] = balanced(maps, each)
    return {**steps, "fisher": dict(found)}


def balanced(maps: HeadMaps, statistics: Statistics) -> Statistics:
    """With metrics of keys and values scaled so that all of each has price 1."""
    read = maps.queries.mT @ statistics.query_moment @ maps.queries
    keys = (maps.keys.mT @ statistics.key_fisher @ maps.keys * read).sum()
    read, values = maps.out.mT @ statistics.output_fisher @ maps.out, maps.values[:, :-1]
    energy = (values.mT @ statistics.value_covariance @ values * read).sum()
    return replace(
        statistics,
        key_fisher=statistics.key_fisher / keys,
        value_covariance=statistics.value_covariance / energy,
    )


def covariances(
    trained: Trained, batches: list[dict[str, Any]]
) -> dict[Attention, tuple[Tensor, Tensor]]:
    """Of the inputs of keys, over all tokens and within sentences: ``(d_y, d_y)`` each."""
    rows: dict[Attention, list[Tensor]] = {}
    centred: dict[Attention, list[Tensor]] = {}
    pad = trained.task.source_dictionary.pad()

    def hook(one: Attention) -> Any:
        def see(module: Any, args: Any, kwargs: Any) -> None:
            _, y = inputs_of(module, args, kwargs)  # (S, B, d_y)
            tokens = read_by_decoder(batch) if one.type == "decoder" else source
            for sentence, real in zip(y.unbind(1), tokens.ne(pad), strict=True):
                read = sentence[real].double()
                rows.setdefault(one, []).append(read)
                centred.setdefault(one, []).append(read - read.mean(0))

        return one.module.register_forward_pre_hook(see, with_kwargs=True)

    with torch.inference_mode(), hooked(trained.model, hook):
        for batch in batches:
            source = batch["net_input"]["src_tokens"]
            trained.model(**batch["net_input"])
    found = {}
    for one, each in rows.items():
        whole, within = torch.cat(each), torch.cat(centred[one])
        found[one] = whole.T.cov(correction=0), within.T @ within / len(within)
    return found


# ---- how well prices predict ---------------------------------------------------------------------


def agreement(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind: rank correlation of price and measured loss, and quartiles of the factor between."""
    found = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=STEPS, help="these parts")
    args = parser.parse_args()
    trained = open_model(args.model, args.data)
    batches = samples(trained, "train", args.sentences)
    found = collect(trained, batches)
    measured = Measured(trained)
    for name in args.only:
        STEPS[name](measured, found, batches)
    made = {"command": " ".join(sys.argv), **circumstances(cpu=True)}
    content = {
        **made,
        "model": args.out.stem,
        "checkpoint_sha256": sha256(args.model),
        "valid_bits": measured.before,
        "agreement": agreement(measured.rows),
        "rows": measured.rows,
    }
    write_json(args.out, content)


if __name__ == "__main__":
    main()
