"""Changes of a trained model, by the names that rows have: see :mod:`.rows`.

A change is a function of a :class:`.work.Text`, on which it is calibrated, and of the arguments of
the row; it returns the changed model.  UserError: the model cannot have it.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import fairseq_collab  # noqa: F401 (registers all architectures)
from collab_common.errors import UserError
from collab_lab import convert, open_model, prune, shrink
from collab_lab.shrinking.apply import apply_cuts, apply_plan
from collab_lab.shrinking.by_hand import conversion, keeping, random_order
from collab_lab.shrinking.cut import Cut, NewHeads, Offer
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.narrower_heads import NarrowerHeads
from collab_lab.shrinking.cuts.one_copy import OneCopy
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.plan import Allowed, Plan
from collab_lab.shrinking.planner import Planner, propose
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.shrinking.shape import Shape, Site, as_it_is, model_costs, sites_of, whole_costs
from collab_lab.shrinking.smaller import Smaller
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.feed_forward import FeedForward
from collab_lab.trained.rebuilt import options_for
from collab_lab.trained.sentences import samples
from results import rivals
from results.ladder import Ladder, Orders, by_importance, by_pairs, by_price, without
from results.masks import fisher, masked
from results.weightings import weightings
from results.work import Made, Text

#: Kinds of heads of prices.json, and of the ladder of cache.json.
KINDS: dict[str, NewHeads] = {
    "latent": Latent(),
    "shared key, own queries": SharedKey(),
    "full": SharedKey("full"),
    "diagonal": SharedKey("diagonal"),
    "separate keys": NarrowerHeads(),
    "grouped query": GroupedQuery(),
}
#: Of a block's units, between all and none.
STEPS = 256
LAYERS, HEADS = 6, 8


# ---- this project's own --------------------------------------------------------------------------


def itself(text: Text) -> Made:
    """The model as it is."""
    return Made(text.model)


def another_seed(text: Text) -> Made:
    """The next model of the command line."""
    if text.next == text.checkpoint:
        raise UserError("needs a second --model")
    return Made(open_model(text.next, text.data))


def smaller(text: Text, **arguments: Any) -> Smaller:
    """What ``shrink`` makes."""
    return shrink(text.model, evidence=text.found, **arguments)


def removed(text: Text, share: float) -> Smaller:
    """A share of all heads removed by ``prune``."""
    number = round(share * sum(map(sum, text.model.heads.values())))
    return prune(text.model, number, statistics=text.found.attentions, sentences=text.number)


def converted(text: Text, to: str, parts: float, bits: int | None = None) -> Smaller:
    """All KV caches converted by ``convert``.

    Args:
        parts: of the width, or of the heads, that are a size.
    """
    model = text.model
    whole = text.width if to == "latent" else model.heads["decoder"][0]
    kinds = model.attentions.items()
    sizes: Any = {t: int(whole * parts) if t != "encoder" else 0 for t, of in kinds if of}
    known: Any = {"statistics": text.found.attentions, "sentences": text.number}
    return convert(model, to, by_type=sizes, cache_bits=bits, **known)


def equal_shares(text: Text, share: float) -> Smaller:
    """The largest model with equal shares of heads in all attentions, and of units in all blocks.

    The number of heads is the nearest to the share; units make up for what its rounding adds or
    takes away.  Of each attention and block the cheapest go first; what a layer loses does not
    depend on its prices.
    """
    found, whole = text.found, whole_costs(text.model)

    def at(step: int) -> Plan:
        return even_plan(found, share, 1 - step / STEPS)

    def fits(step: int) -> bool:
        small, _ = apply_cuts(found, at(step))
        return model_costs(small).parameters <= share * whole.parameters

    step = bisect_left(range(STEPS), True, key=fits)
    if step == STEPS:
        raise UserError(f"even one unit a block leaves more than {share}")
    return apply_plan(found, at(step))


def even_plan(found: Evidence, heads: float, units: float) -> Plan:
    """A plan that keeps shares of each attention's heads and of each block's units."""
    model, prices = found.trained, {"heads": 0.0, "units": 0.0}
    fewer = dict[FeedForward, list[int]]()
    retained = all_heads(model)
    for site in sites_of(model):
        removals = found.removals(site)
        left = heads if isinstance(site, Attention) else units
        number = max(1, round(left * len(removals.order)))
        gone = removals.prices[len(removals.order) - number]
        if isinstance(site, Attention):
            retained[site.type][site.layer] = removals.retained(number)
            prices["heads"] += gone
        elif number < len(removals.order):
            fewer[site] = removals.retained(number)
            prices["units"] += gone
    return keeping(model, retained, fewer, prices)


def latents(
    text: Text, one: bool, bits: int | None = None, share: float | None = None
) -> Made | Smaller:
    """Latents as wide as the inputs, or the cheapest plan with a share of the KV cache.

    Args:
        one: whether all cross-attentions share one latent.
    """
    found = text.found
    if share is None:
        sizes = {a: Latent().exact_size(a.module) for a in cached(text)}
        crossing = {a: size for a, size in sizes.items() if one and a.type == "cross"}
        given: dict[NewHeads, dict[Attention, int]] = {
            Latent(): {a: size for a, size in sizes.items() if a not in crossing}
        }
        given |= {OneCopy(): crossing} if crossing else {}
        return Made(
            *apply_cuts(found, conversion(text.model, given, dict.fromkeys(sizes, bits or 0)))
        )
    planner = Planner(found, "latent", [Bits(), Latent(), OneCopy()])
    for site, options in planner.options.items():
        if isinstance(site, Attention) and site.type == "cross":
            planner.options[site] = [o for o in options if bool(o.shape.shared) == one]
    return apply_plan(found, planner.solve({"cache": share}))


def cached(text: Text) -> list[Attention]:
    """The attentions that have a KV cache."""
    return [a for a in attentions(text.model.model) if a.type != "encoder"]


def untrained(text: Text, d: int, layers: int = LAYERS) -> Made:
    """A model with random weights, and with the dictionaries of the trained one."""
    like, sizes = text.model, dict[str, Any]()
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_embed_dim": d, f"{side}_ffn_embed_dim": 4 * d}
        sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": HEADS}
    sizes |= {"decoder_input_dim": d, "decoder_output_dim": d}
    result = like.with_model(like.model, options_for(like, "transformer_headsize_n", sizes))
    return Made(result.with_model(like.task.build_model(result.cfg.model).eval()))


# ---- others': see rivals.py, masks.py ------------------------------------------------------------


def pooled(text: Text, share: float) -> Made:
    """Pooled groups in the decoder and in cross-attention; the encoder has no KV cache."""
    sizes = {a: max(1, round(share * a.module.num_heads)) for a in cached(text)}
    return Made(*apply_cuts(text.found, conversion(text.model, {rivals.Pooled(): sizes})))


def svd_latents(text: Text, share: float, bits: int | None = None) -> Smaller:
    """Latents with a share of the numbers of the KV cache, rounded to ``bits``, and the refit."""
    found = text.found
    cut = rivals.Svd(rivals.covariances(text.model, found.batches))
    known = {a: found.whole_attention(a) for a in cached(text)}
    values = [(float(v), a) for a, of in known.items() for v in cut.decomposed(of)[0]]
    number = int(share * sum(2 * a.module.embed_dim for a in known))
    chosen = [a for _, a in sorted(values, key=lambda pair: -pair[0])[:number]]
    sizes = {a: max(1, chosen.count(a)) for a in known}
    rounded = dict.fromkeys(known, bits) if bits else {}
    return apply_plan(found, conversion(text.model, {cut: sizes}, rounded))


def masks(text: Text, share: float) -> Smaller:
    """Masks of heads and units, with a share of the layers' parameters, and the refit."""
    return apply_plan(text.found, masked(text.model, fisher_of(text), share))


@functools.lru_cache(1)
def fisher_of(text: Text) -> Any:
    """The Fisher information of a model's masks."""
    return fisher(text.model, text.found.batches)


class Simulated(Cut):
    """What is cached, changed by functions of keys and of values; the model cannot be saved."""

    name, part = "simulated", "cache"

    def __init__(self, keys: rivals.Rounding, values: rivals.Rounding):
        self.keys, self.values = keys, values

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        return [Offer(as_it_is(site), math.nan)]  # no price is known

    def apply(self, draft: Draft, site: Site, shape: Shape) -> None:
        assert isinstance(site, Attention)
        draft.simulate(site, "k_proj", self.keys)
        draft.simulate(site, "v_proj", self.values)


def simulated(text: Text, how: str, keys: int, values: int) -> Smaller:
    """The heads as they are, keys and values rounded to these bits in the pass, and a refit."""
    rounding = {"uniform": rivals.uniform, "rotated": rivals.rotated}[how]
    cut = Simulated(rounding(keys), rounding(values))
    shapes = {site: as_it_is(site) for site in sites_of(text.model)}
    return apply_plan(text.found, Plan(cut.name, shapes, [(cut, cached(text))]))


# ---- steps of the refit: see ladder.py -----------------------------------------------------------


def step(
    text: Text, step: str, ridge: float | str, sentences: int, share: float,
    choice: str | None = None, kind: str | None = None,
) -> Made:  # fmt: skip
    """A model at a step of the refit: a share of its heads removed, or a share of the cache left.

    Args:
        choice: how heads are chosen, a function of :data:`ORDERS`.
        kind: heads that it is converted to.
    """
    ladder = ladder_of(text, min(sentences, text.number))
    if kind is None:
        assert choice is not None
        number = round(share * sum(map(sum, text.model.heads.values())))
        changed, columns = ladder.masked(without(text.model, orders_of(text, choice), number))
        return Made(ladder.climb(changed, step, ridge, columns))
    plan = propose(text.found, {"cache": share}, Allowed(("cache",), (kind,), (0,)))
    changed, _ = apply_cuts(text.found, plan)
    return Made(ladder.climb(changed, step, ridge))


@functools.lru_cache(1)
def ladder_of(text: Text, sentences: int) -> Ladder:
    """What blocks read of some sentences; of the last number asked for."""
    same = sentences == text.number
    batches = text.found.batches if same else samples(text.model, "train", sentences)
    return Ladder(text.model, batches)


def random_orders(text: Text, seed: int) -> Orders:
    """A random order of all heads."""
    evidence = Evidence(text.model, attentions=text.found.attentions)
    random_order(evidence, seed)
    removals = {one: evidence.removals(one) for one in text.found.attentions}
    return {
        one: [(b - a, head) for head, (a, b) in zip(of.order, pairwise(of.prices), strict=True)]
        for one, of in removals.items()
    }


ORDERS: dict[str, Callable[[Text], Orders]] = {
    "obs": lambda text: by_price(text.found.attentions),
    "importance": lambda text: by_importance(text.model, text.found.batches),
    "pairs": lambda text: by_pairs(ladder_of(text, text.number)),
    **{f"random {seed}": functools.partial(random_orders, seed=seed) for seed in (1, 2, 3)},
}


@functools.lru_cache(4)
def orders_of(text: Text, choice: str) -> Orders:
    """The order in which heads go."""
    return ORDERS[choice](text)


# ---- without training, refit or rounding: prices.json --------------------------------------------


def spread(text: Text, kind: str, share: float) -> Made:
    """Widths of least price at a share of the KV cache."""
    cut = KINDS[kind]
    if cut.kind.one_size:
        raise UserError("has one size in all layers", kind)
    planner = Planner(text.found, cut.name, [Bits(), cut], Allowed(bits=(0,)))
    sizes = planner.solve({"cache": share}).sizes
    return Made(*apply_cuts(text.found, conversion(text.model, {cut: sizes})))


def even(text: Text, kind: str, share: float) -> Made:
    """Even widths at a share of the KV cache."""
    cut = KINDS[kind]
    narrowed = attentions(text.model.model) if cut.kind.one_size else cached(text)
    sizes = {one: even_size(kind, one, share) for one in narrowed}
    return Made(*apply_cuts(text.found, conversion(text.model, {cut: sizes})))


def even_size(kind: str, one: Attention, share: float) -> int:
    """The size at which an attention has this share of its cached numbers."""
    width, heads = one.module.embed_dim, one.module.num_heads
    if kind == "latent":
        return int(share * 2 * width)
    if kind == "grouped query":
        return int(share * heads)
    size = round((2 * share - 1) * width)
    return max(heads, size - size % heads) if kind == "separate keys" else size


def weighted(text: Text, kind: str, weighting: str, part: int) -> Made:
    """Even widths, the narrow maps chosen by a weighting of errors."""
    is_latent = kind == "latent"
    every = cached(text) if is_latent else attentions(text.model.model)
    sizes = {one: (2 if is_latent else 1) * one.module.embed_dim // part for one in every}
    evidence = Evidence(text.model, attentions=weightings_of(text)[weighting])
    return Made(*apply_cuts(evidence, conversion(text.model, {KINDS[kind]: sizes})))


@functools.lru_cache(1)
def weightings_of(text: Text) -> Any:
    """The statistics of each weighting."""
    return weightings(text.model, text.found.batches, text.found.attentions)


def unfitted(text: Text, choice: str, share: float) -> Made:
    """A share of all heads removed, without a refit; the plan has a price if prices chose them."""
    orders = orders_of(text, choice)
    number = round(share * sum(map(sum, text.model.heads.values())))
    return taken(text, orders, number, choice == "obs")


def taken(text: Text, orders: Orders, number: int, priced: bool) -> Made:
    """Heads removed in an order, without a refit."""
    retained, price = without(text.model, orders, number), 0.0
    for one, order in orders.items():
        gone = one.module.num_heads - len(retained[one.type][one.layer])
        price += sum(rise for rise, _ in order[:gone])
    prices: Mapping[str, float] = {"heads": price} if priced else {}
    return Made(pruned(text.model, retained), keeping(text.model, retained, {}, prices))


CHANGES: dict[str, Callable[..., Made | Smaller]] = {
    change.__name__: change
    for change in (
        itself, another_seed, smaller, removed, converted, equal_shares, latents, untrained,
        pooled, svd_latents, masks, simulated, step, spread, even, weighted, unfitted,
    )
}  # fmt: skip
