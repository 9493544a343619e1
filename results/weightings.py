"""Weightings of errors with which narrow maps are chosen, from plain to prices.

    weights   errors of the weights                  all metrics are identities
    inputs    of keys and values                     Cov y
    both      of scores and values                   E [x 1]^T [x 1]; Cov y (keys: in a sentence)
    read      the same, values as heads read them    Cov z_i
    fisher    prices                                 collab_lab.statistics.moments

In all but the last, all of the keys and all of the values have one price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from collab_lab.metrics.loss import read_by_decoder
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import Attention, HeadMaps, hooked, inputs_of
from collab_lab.trained.checkpoint import Trained

Found = Mapping[Attention, Statistics]


def weightings(trained: Trained, batches: Any, found: Found) -> dict[str, Found]:
    """The statistics of each step; keys and values have equal energies in all but the last."""
    inputs = covariances(trained, batches)
    steps: dict[str, dict[Attention, Statistics]] = {
        name: {} for name in ("weights", "inputs", "both", "read")
    }
    for one, fisher in found.items():
        maps = HeadMaps.of(one.module)
        whole, within = (each.repeat(len(maps.keys), 1, 1) for each in inputs[one])
        plain = replace(Statistics.unweighted(maps), value_mean=fisher.value_mean)
        one_side = replace(plain, key_fisher=whole, value_covariance=whole)
        both = replace(one_side, query_moment=fisher.query_moment, key_fisher=within)
        read = replace(both, value_covariance=fisher.value_covariance)
        for name, each in zip(steps, (plain, one_side, both, read), strict=True):
            steps[name][one] = balanced(maps, each)
    return {**steps, "fisher": dict(found)}


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
