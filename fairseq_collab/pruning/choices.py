"""Which heads stay: as a user names them, by chance, or by the votes for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.pruning.surgery import Kept
from fairseq_compat.errors import UserError

Heads = Mapping[Site, Sequence[int]]  # how many each layer has, by site
#: ``group``: the most voted head of each group (arXiv 2305.14380).  ``top``: the heads with most
#: votes in all, whatever their groups (the paper's released code).
RULES = ("group", "top")


def all_heads(heads: Heads) -> Kept:
    """Nothing goes."""
    return {site: [list(range(count)) for count in counts] for site, counts in heads.items()}


def named_heads(parts: Sequence[str], heads: Heads) -> Kept:
    """Parse ``SITE:HEADS/HEADS/...``: the heads of each layer, joined by commas.

    One layer stands for all; a site that is not named keeps all of its heads.

    Raises:
        UserError: not that, an unknown site, or one that is named twice.
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
        return sorted(sorted(range(len(totals)), key=lambda head: -totals[head])[:keep])
    ballots = sorted(
        (-count, group, head) for group, row in enumerate(votes) for head, count in enumerate(row)
    )
    chosen: dict[int, int] = {}
    for _, group, head in ballots:
        if group not in chosen and head not in chosen.values():
            chosen[group] = head
    return sorted(chosen.values())
