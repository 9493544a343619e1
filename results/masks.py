"""Masks of heads and units by their Fisher information (Kwon et al. 2022, arXiv 2204.09656).

A mask m has a number for each head and unit: 1 where it stays, 0 where it goes.  To second order,
and without the gradient itself, which they take as 0, a mask raises the loss by

    1/2 (1 - m)^T I (1 - m),      I = sum_s g_s^T g_s,      g_s = dL_s/dm at m = 1

``L_s`` is the loss of a sentence pair, of its own target.

    search       I is a diagonal.  For each number of heads: the heads of the largest numbers on it,
                 of all attentions, and the units, chosen alike, that the budget then has room for;
                 of these the mask that keeps most
    rearranged   I is of blocks, an attention or a feed-forward block each: a head or unit that
                 stays changes places with one that goes where this lowers the rise

Their third step, a factor for each head and unit by least squares, is left to the refit
(:mod:`collab_lab.refitting.refit`), which fits all weights of the same maps.  Budgets are of
parameters, where theirs are of multiply-adds or seconds; each feed-forward block keeps a unit.
Where heads alone exceed the budget there is no mask: the released code counts units from the end
then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.heads.attention_weights import head_outputs, per_head
from collab_lab.metrics.loss import summed_loss
from collab_lab.shrinking.by_hand import keeping
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.shape import Site, as_it_is, whole_costs
from collab_lab.shrinking.shape import costs as costs_of
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation
from collab_lab.trained.feed_forward import FeedForward, recorded

#: ``I`` of each attention ``(H, H)``, and of each feed-forward block ``(F, F)``.
Fisher = Mapping[Site, Tensor]


def fisher(trained: Trained, batches: Iterable[Mapping[str, Any]]) -> dict[Site, Tensor]:
    """The Fisher information of the masks, by blocks, in one pass."""
    model, sums = trained.model, dict[Site, Tensor]()
    for batch in batches:
        with (
            torch.enable_grad(),
            in_evaluation(model),
            head_outputs(model) as heads,
            recorded(model) as units,
        ):
            loss = summed_loss(model, batch)
            read = [*heads.values(), *(output for _, output in units.values())]
            gradients = iter(torch.autograd.grad(loss, read))
        parts: dict[Site, Tensor] = {}  # of the gradients, by word: (T, B, H) or (T, B, F)
        for a, h in heads.items():
            parts[a] = per_head(h.detach() * next(gradients), a.module.num_heads)
        for block, (h, _) in units.items():
            parts[block] = h * (next(gradients) @ block.module.fc2.weight.detach())
        for site, part in parts.items():
            g = part.double().sum(0)  # a row for each sentence
            sums[site] = sums.get(site, 0.0) + g.T @ g
    return sums


def masked(trained: Trained, information: Fisher, share: float) -> Plan:
    """What stays with a share of the layers' parameters; the plan has no price.

    Raises:
        UserError: no mask has so few, or heads have different numbers of parameters.
    """
    stay = searched(information, *costs(trained, information, share))
    stay = {site: rearranged(information[site], of) for site, of in stay.items()}
    units = {b: of for b, of in stay.items() if isinstance(b, FeedForward) and len(of) < b.width}
    retained: Any = {t: [stay[a] for a in layers] for t, layers in trained.attentions.items()}
    return keeping(trained, retained, units)


def costs(trained: Trained, sites: Iterable[Site], share: float) -> tuple[int, int, int]:
    """Parameters of a head, of a unit, and of all that may stay, with a share of the layers'."""
    whole = whole_costs(trained).parameters
    budget, of_heads, of_units = int(share * whole + 1e-6) - whole, set[int](), set[int]()
    for site in sites:
        if isinstance(site, FeedForward):
            one = 2 * site.module.fc2.out_features + 1
            of_units.add(one)
            budget += site.width * one
        else:
            single = replace(as_it_is(site), heads=(0,))
            one = costs_of(site, single).parameters - site.module.embed_dim  # the bias stays
            of_heads.add(one)
            budget += site.module.num_heads * one
    if len(of_heads) > 1 or len(of_units) > 1:
        raise UserError("its heads, or units, have different numbers of parameters", trained.path)
    [head], [unit] = of_heads, of_units
    return head, unit, budget


def searched(information: Fisher, head: int, unit: int, budget: int) -> dict[Site, list[int]]:
    """The heads and units that stay in the mask that keeps most of the diagonal.

    Args:
        head, unit: their parameters.
        budget: parameters of all that stay.
    """
    heads = ranked({s: of for s, of in information.items() if isinstance(s, Attention)})
    units = ranked({s: of for s, of in information.items() if isinstance(s, FeedForward)})
    least = sum(one.is_first for one in units)  # one of each block
    of_heads, of_units = (
        [0.0, *itertools.accumulate(one.information for one in ranks)] for ranks in (heads, units)
    )
    pairs = [(number, (budget - number * head) // unit) for number in range(len(heads) + 1)]
    pairs = [(number, min(room, len(units))) for number, room in pairs if room >= least]
    if not pairs:
        raise UserError(f"no mask has {budget} parameters")
    number, room = max(pairs, key=lambda pair: of_heads[pair[0]] + of_units[pair[1]])
    stay: dict[Site, list[int]] = {site: [] for site in information}
    for one in [*heads[:number], *units[:room]]:
        stay[one.site].append(one.number)
    return stay


class Ranked(NamedTuple):
    """A head or unit: whether it is a block's first unit, its number on the diagonal, its place."""

    is_first: bool
    information: float
    site: Site
    number: int


def ranked(information: Fisher) -> list[Ranked]:
    """Heads or units of all sites; the first of each feed-forward block, then the largest."""
    every = list[Ranked]()
    for site, block in information.items():
        values = block.diagonal().tolist()
        first = values.index(max(values)) if isinstance(site, FeedForward) else None
        every += [Ranked(i == first, value, site, i) for i, value in enumerate(values)]
    return sorted(every, key=lambda one: (one.is_first, one.information), reverse=True)


def rearranged(block: Tensor, stay: Sequence[int]) -> list[int]:
    """Heads or units of a site, the number that stay, with a lower rise by ``I (n, n)`` if found.

    Each that stays, the least first, goes, and of all that are gone the one comes back without
    which the rise is least.
    """
    gone = [i for i in range(len(block)) if i not in {*stay}]
    if not gone:
        return sorted(stay)
    diagonal, of_gone = block.diagonal(), block[gone].sum(0)  # I (1 - m)
    for i in sorted(stay, key=lambda i: float(diagonal[i])):
        gone.append(i)
        of_gone = of_gone + block[i]
        falls = 2 * of_gone[gone] - diagonal[gone]  # of (1 - m)^T I (1 - m)
        back = gone.pop(int(falls.argmax()))
        of_gone = of_gone - block[back]
    return sorted({*range(len(block))} - {*gone})
