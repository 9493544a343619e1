"""Which heads stay: as a user names them, by chance, by the votes for them or by a measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.importance import normalised
from fairseq_collab.checkpoints.prune.surgery import Kept
from fairseq_collab.models.layers import SITES, Site

Heads = Mapping[Site, Sequence[int]]  # how many each layer has, by site
#: A number for each head of each layer, by site: the larger, the sooner a head stays.
Measure = Mapping[Site, Sequence[Sequence[float]]]
#: ``group``: the most voted head of each group (arXiv 2305.14380).  ``top``: the heads with most
#: votes in all, whatever their groups (the paper's released code).
RULES = ("group", "top")
#: What of an analysis counts unless told otherwise.
MEASURE = "importance_token_normalised"


def all_heads(heads: Heads) -> Kept:
    """Nothing goes."""
    return {site: [list(range(count)) for count in counts] for site, counts in heads.items()}


def named_heads(parts: Sequence[str], heads: Heads) -> Kept:
    """Parse ``SITE:HEADS/HEADS/...``: the heads of each layer, joined by commas.

    One layer stands for all; a site that is not named keeps all of its heads.

    Raises:
        UserError: not that, an unknown site, one that is named twice, or one that the model lacks.
    """
    kept = dict(all_heads(heads))
    named: set[str] = set()
    for part in parts:
        site, _, text = part.partition(":")
        try:
            layers = [[int(head) for head in layer.split(",")] for layer in text.split("/")]
        except ValueError:
            layers = []
        if site not in SITES or not layers or site in named:
            raise UserError(
                f"{part!r} is not understood",
                where="--keep-heads",
                todo=f"give each of {', '.join(SITES)} once at most, as in encoder:0,3/1,2 (heads "
                "0 and 3 of the first layer, 1 and 2 of the second)",
            )
        if not heads[site]:
            raise UserError(f"the model has no {site} attention", where="--keep-heads")
        named.add(site)
        if len(layers) == 1:
            layers *= len(heads[site])
        kept[site] = layers
    return kept


def random_heads(heads: Heads, keep: Mapping[Site, int], seed: int) -> Kept:
    """``keep`` heads of each attention by chance, the same for the same ``seed``.

    Raises:
        UserError: there are not as many.
    """
    check_enough(heads, keep)
    chance = torch.Generator().manual_seed(seed)
    return {
        site: [sorted(torch.randperm(n, generator=chance)[: keep[site]].tolist()) for n in counts]
        for site, counts in heads.items()
    }


def check_enough(heads: Heads, keep: Mapping[Site, int]) -> None:
    """Refuse to keep more heads than there are.

    Raises:
        UserError: names the site.
    """
    for site, counts in heads.items():
        if min(counts, default=keep[site]) < keep[site]:
            raise UserError(
                f"{keep[site]} heads cannot stay in {site} attention, which has {min(counts)}",
                where="--keep",
            )


def elected(votes: Sequence[Sequence[int]], rule: str, keep: int) -> list[int]:
    """The heads of one attention that ``votes (C, H)``, by group and head, leave.

    With ``group``, two groups that vote most for the same head leave it to the one with more
    votes; the other takes its next.  Of equals the first head stays.
    """
    if rule == "top":
        totals = [sum(column) for column in zip(*votes, strict=True)]
        return largest(totals, keep)
    ballots = sorted(
        (-count, group, head) for group, row in enumerate(votes) for head, count in enumerate(row)
    )
    chosen: dict[int, int] = {}
    for _, group, head in ballots:
        if group not in chosen and head not in chosen.values():
            chosen[group] = head
    return sorted(chosen.values())


def largest(values: Sequence[float], keep: int) -> list[int]:
    """The places of the ``keep`` largest, in their order; of equals the first."""
    return sorted(sorted(range(len(values)), key=lambda place: -values[place])[:keep])


# ---- by a measure --------------------------------------------------------------------------------


def importance_kept(
    measure: Measure, heads: Heads, remove_share: float, sites: Sequence[Site] = SITES
) -> Kept:
    """All but the least important ``remove_share`` of the heads of ``sites``, which compete.

    Importances are comparable between layers once they have length 1 in each (l2), as in Michel et
    al. 2019 (arXiv 1905.10650).  Every layer keeps its best head: a layer without heads is none.
    Of equals the first head stays.

    Args:
        measure: importances, normalised or not.
        heads: how many heads the model has; those of other sites all stay.
        remove_share: of the heads of ``sites``, from 0 up and below 1; rounded to whole heads.

    Raises:
        UserError: the share is none, or so large that a layer would lose all of its heads.
    """
    if not 0 <= remove_share < 1:
        raise UserError(
            f"is {remove_share}; it must be from 0 up and below 1", where="--remove-share"
        )
    total, layers = sum(sum(heads[site]) for site in sites), sum(len(heads[site]) for site in sites)
    gone = round(remove_share * total)
    if gone > total - layers:
        raise UserError(
            f"{gone} of {total} heads cannot go: each of {layers} layers keeps one",
            where="--remove-share",
            todo=f"give {math.floor(100 * (total - layers) / total) / 100} at most",
        )
    kept = {site: [set(range(count)) for count in counts] for site, counts in heads.items()}
    for site, layer, head in reversed(_ranking(normalised(measure), sites)):
        if gone and len(kept[site][layer]) > 1:
            kept[site][layer].remove(head)
            gone -= 1
    return {site: [sorted(layer) for layer in layers] for site, layers in kept.items()}


def most_important(
    measure: Measure, heads: Heads, keep: Mapping[Site, int], sites: Sequence[Site] = SITES
) -> Kept:
    """The ``keep`` most important heads of each attention of ``sites``; elsewhere all.

    Of equals the first head stays.

    Raises:
        UserError: there are not as many.
    """
    check_enough({site: heads[site] for site in sites}, keep)
    kept = dict(all_heads(heads))
    for site in sites:
        kept[site] = [largest(values, keep[site]) for values in measure[site]]
    return kept


def _ranking(measure: Measure, sites: Sequence[Site]) -> list[tuple[Site, int, int]]:
    """Site, layer and head of all heads of ``sites``, the largest first; of equals the first."""
    heads = [
        (site, layer, head)
        for site in sites
        for layer, values in enumerate(measure[site])
        for head in range(len(values))
    ]
    return sorted(heads, key=lambda place: measure[place[0]][place[1]][place[2]], reverse=True)
