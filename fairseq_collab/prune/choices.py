"""Which heads stay: as a user names them, by chance, by a measure, or by their gates.

A gate (Voita et al. 2019, arXiv 1905.09418) multiplies a head's output, and so does a factor of the
head's columns of ``out_proj``: with the gates in there, the model computes what it did.  A head
whose gate is 0 can then go, and its columns, which are zero, go with it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

import torch

from collab_common.errors import UserError
from fairseq_collab.analysis.heads.importance import normalised
from fairseq_collab.attention.gates import GatedAttention, deterministic, gated_attentions
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune.surgery import Kept
from fairseq_collab.trained.opener import Trained

Heads = Mapping[Site, Sequence[int]]  # how many each layer has, by site
#: A number for each head of each layer, by site: the larger, the sooner a head stays.
Measure = Mapping[Site, Sequence[Sequence[float]]]
#: The gate of each head of each layer, by site.
Gates = Measure
#: What of an analysis counts unless told otherwise.
MEASURE = "importance_token_normalised"
#: What stands for the heads of a layer that keeps none.
NO_HEADS = "-"
#: So many gates are named where some are not decided.
_NAMED = 5


def all_heads(heads: Heads) -> Kept:
    """Nothing goes."""
    return {site: [list(range(count)) for count in counts] for site, counts in heads.items()}


def named_heads(parts: Sequence[str], heads: Heads) -> Kept:
    """Parse ``SITE:HEADS/HEADS/...``: the heads of each layer, joined by commas, or ``-`` for none.

    One layer stands for all; a site that is not named keeps all of its heads.

    Raises:
        UserError: not that, an unknown site, one that is named twice, or one that the model lacks.
    """
    kept = dict(all_heads(heads))
    named: set[str] = set()
    for part in parts:
        site, _, text = part.partition(":")
        try:
            layers = [
                [] if layer == NO_HEADS else [int(head) for head in layer.split(",")]
                for layer in text.split("/")
            ]
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
        kept[site] = layers * len(heads[site]) if len(layers) == 1 else layers
    return kept


def random_heads(heads: Heads, keep: Mapping[Site, int], seed: int) -> Kept:
    """``keep`` heads of each attention by chance, the same for the same ``seed``."""
    check_enough(heads, keep)
    chance = torch.Generator().manual_seed(seed)
    return {
        site: [sorted(torch.randperm(n, generator=chance)[: keep[site]].tolist()) for n in counts]
        for site, counts in heads.items()
    }


def check_enough(heads: Heads, keep: Mapping[Site, int]) -> None:
    """Refuse to keep more heads than there are."""
    for site, counts in heads.items():
        if min(counts, default=keep[site]) < keep[site]:
            what = f"{keep[site]} heads cannot stay in {site} attention, which has {min(counts)}"
            raise UserError(what, "--keep")


# ---- by a measure --------------------------------------------------------------------------------


def largest(values: Sequence[float], keep: int) -> list[int]:
    """The places of the ``keep`` largest, in their order; of equals the first."""
    return sorted(sorted(range(len(values)), key=lambda place: -values[place])[:keep])


def most_important(
    measure: Measure, heads: Heads, keep: Mapping[Site, int], sites: Sequence[Site] = SITES
) -> Kept:
    """The ``keep`` most important heads of each attention of ``sites``; elsewhere all."""
    check_enough({site: heads[site] for site in sites}, keep)
    chosen = {site: [largest(values, keep[site]) for values in measure[site]] for site in sites}
    return {**all_heads(heads), **chosen}


def importance_kept(
    measure: Measure,
    heads: Heads,
    remove_share: float,
    sites: Sequence[Site] = SITES,
    stay: int | None = None,
) -> Kept:
    """All but the least important heads of ``sites``, which compete; every layer keeps its best.

    Args:
        heads: how many heads the model has; those of other sites all stay.
        remove_share: of the heads of ``sites``, from 0 up and below 1; rounded to whole heads.
        stay: so many heads of ``sites`` stay, whatever the share.

    Raises:
        UserError: there are fewer, the share is none, or a layer would lose all of its heads.
    """
    counts = [count for site in sites for count in heads[site]]
    total, layers = sum(counts), len(counts)
    if stay is None:
        where = "--remove-share"
        if not 0 <= remove_share < 1:
            raise UserError(f"is {remove_share}; it must be from 0 up and below 1", where=where)
        gone = round(remove_share * total)
        todo = f"give {math.floor(100 * (total - layers) / max(total, 1)) / 100} at most"
    else:
        where, todo = "--as-many-as", f"give a checkpoint with {layers} to {total} heads there"
        gone = total - stay
    if not 0 <= gone <= total - layers:
        what = f"{total - gone} of {total} heads cannot stay: each of {layers} layers keeps one"
        raise UserError(what, where=where, todo=todo)
    return without_least(all_heads(heads), measure, sites, gone, least=1)


def without_least(
    kept: Kept, measure: Measure, sites: Sequence[Site], number: int, least: int = 0
) -> Kept:
    """What stays when ``number`` more heads of ``sites`` go, the least important.

    Importances are comparable between layers once they have length 1 in each (l2), as in Michel et
    al. 2019 (arXiv 1905.10650).  Of equals the last goes first.

    Args:
        kept: the heads that are there, of which a layer may have none.
        measure: a number for each of these heads, in their order; normalised or not.
        least: so many heads of a layer stay.
    """
    comparable = normalised(measure)
    places = [
        (value, site, layer, head)
        for site in sites
        for layer, values in enumerate(comparable[site])
        for value, head in zip(values, kept[site][layer], strict=True)
    ]
    left = {site: [set(heads) for heads in layers] for site, layers in kept.items()}
    for i in sorted(range(len(places)), key=lambda i: (places[i][0], -i)):
        _, site, layer, head = places[i]
        if number and len(left[site][layer]) > least:
            left[site][layer].remove(head)
            number -= 1
    return {site: [sorted(heads) for heads in layers] for site, layers in left.items()}


# ---- by gates ------------------------------------------------------------------------------------


def gates_of(trained: Trained) -> Gates:
    """The gates of evaluation; 1 for heads that have none."""
    return {
        site: [
            deterministic(one.module.log_alpha.detach(), one.module.gate_evaluation).tolist()
            if isinstance(one.module, GatedAttention)
            else [1.0] * one.module.num_heads
            for one in found
        ]
        for site, found in trained.attentions.items()
    }


def decided_gates(trained: Trained, rounding: bool) -> Gates:
    """The gates of evaluation, each of them 0 or 1.

    Args:
        rounding: take gates from one half up for 1, and others for 0.

    Raises:
        UserError: the model has no gates; or, without ``rounding``, some are between 0 and 1.
    """
    if not gated_attentions(trained.model):
        todo = "give a transformer_gated_heads, or say otherwise which heads stay"
        raise UserError("its heads have no gates", trained.path, todo)
    gates = gates_of(trained)
    undecided = [
        f"{site} layer {layer} head {head} ({gate:.3g})"
        for site, layers in gates.items()
        for layer, values in enumerate(layers)
        for head, gate in enumerate(values)
        if 0 < gate < 1
    ]
    if undecided and not rounding:
        more = f" and {len(undecided) - _NAMED} more" if len(undecided) > _NAMED else ""
        what = f"gates are neither 0 nor 1: {', '.join(undecided[:_NAMED])}{more}"
        todo = "train on, or give --round (the model then computes something else)"
        raise UserError(what, trained.path, todo)
    return {
        site: [[float(gate >= 0.5) for gate in values] for values in layers]
        for site, layers in gates.items()
    }


def open_heads(gates: Gates) -> Kept:
    """The heads whose gates are above 0; of a layer perhaps none."""
    return {
        site: [[head for head, gate in enumerate(values) if gate > 0] for values in layers]
        for site, layers in gates.items()
    }


def without_gates(trained: Trained, gates: Gates | None = None) -> Trained:
    """A copy of the model whose heads are multiplied by ``gates`` for ever, and have no others.

    A model without gates stays as it is.

    Args:
        gates: those of evaluation unless given.
    """
    if not gated_attentions(trained.model):
        return trained
    gates = gates or gates_of(trained)
    result = trained.with_model(copy.deepcopy(trained.model))
    for site, found in result.attentions.items():
        for one, values in zip(found, gates[site], strict=True):
            if isinstance(one.module, GatedAttention):
                result.model.set_submodule(one.name, one.module.ungated(torch.tensor(values)))
    return result
