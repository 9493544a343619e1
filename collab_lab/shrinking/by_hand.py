"""Plans written by hand: the user says which heads to remove or convert, as in papers.

:func:`prune` and :func:`convert` set the shape of every site themselves, whereas :func:`.shrink`
searches for the best shapes.  All three apply the plan in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any

import torch

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError, check_whole, reject_unused
from collab_lab.shrinking.apply import apply_plan
from collab_lab.shrinking.cut import Cut, NewHeads, reject
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.narrower_heads import NarrowerHeads
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.cuts.units import Units
from collab_lab.shrinking.cuttable import cuttable
from collab_lab.shrinking.draft import check_left_alone
from collab_lab.shrinking.evidence import Evidence, Removals, in_order
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.planner import OutOfReachError, Planner
from collab_lab.shrinking.retained import check_retained, check_units, heads_by_attention
from collab_lab.shrinking.shape import Shape, Site, as_it_is, sites_of
from collab_lab.shrinking.smaller import Smaller
from collab_lab.statistics.moments import Statistics, collect_all, matched
from collab_lab.trained.attentions import Attention, Retained, attentions, removed_together
from collab_lab.trained.checkpoint import Trained, check_model
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.sentences import sentences_of
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.options import listed_values

#: By the values of ``--to``.
CONVERSIONS: dict[str, type[NewHeads]] = {
    cut.name: cut for cut in (SharedKey, NarrowerHeads, GroupedQuery, Latent)
}


# ---- other heads ---------------------------------------------------------------------------------


def convert(
    model: Trained,
    to: str = "collab",
    size: int | None = None,
    *,
    by_type: Mapping[AttentionType, int | str | None] | None = None,
    query_mixing: str | None = None,
    cache_bits: str | int | None = "auto",
    refit: bool = True,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str = "train",
    sentences: int = 1000,
) -> Smaller:
    """Convert a trained model's heads to another kind of given size, at the least predicted loss.

    Nothing is trained.  Use :func:`.shrink` to let a search choose kinds, sizes and bits.

    Args:
        to: ``collab`` (shared keys), ``separate`` (narrower separate keys), ``grouped-query`` or
            ``latent``.
        size: size in all attentions: total key width, number of key/value heads, latent width.
        by_type: sizes by attention type: a number, or one per layer (``"64,32"``); 0 leaves the
            heads as they are.
        query_mixing: how heads with shared keys make queries: ``own`` (default), ``full`` or
            ``diagonal``.
        cache_bits: bits per number in the KV cache: 8, 4, or None for no rounding; or a text with
            one for each cache (``"4,8"``: decoder layers, then cross-attention; 0 for no rounding).
            ``auto`` leaves them.
        refit: whether to fit the new heads' outputs (:mod:`collab_lab.refitting.refit`), where
            that lowers the loss on the calibration sentences.
        statistics: of :func:`prices` of this model, which may have been opened again; default: a
            pass over the sentences.
        subset, sentences: calibration sentences, for prices, the refit and the measured rise: set,
            and number of them evenly spread over it.

    Raises:
        UserError: the model cannot be converted, a size is out of range, the statistics belong to
            another model, or an argument has no effect.
    """
    if to not in [*CONVERSIONS]:  # whatever is given
        raise UserError(f"{to!r} must be one of {', '.join(CONVERSIONS)}", "`to`")
    if query_mixing not in (None, *QUERY_MIXINGS):
        problem = f"{query_mixing!r} must be one of {', '.join(QUERY_MIXINGS)}"
        raise UserError(problem, "`query_mixing`")
    if to != SharedKey.name:
        reject_unused("needs `to` collab", query_mixing=query_mixing)
    cut = SharedKey(query_mixing or "own") if to == SharedKey.name else CONVERSIONS[to]()
    named = sizes_by_type(by_type)
    if cut.kind.one_size:
        given = {f"`by_type[{type_}]`": value for type_, value in named.items()}
        reject_unused("does not go with `to` separate: give `size`", **given)
    if size is None and not named:
        raise UserError("give sizes: `size` or `by_type`")
    check_whole(size=size)
    check_model(model)
    reject(model, [cut], f"cannot be converted to {cut.kind.heads_name}")
    bits = None if cache_bits == "auto" else chosen_bits(cache_bits, model)
    sizes = chosen_sizes(size, named, model, cut)
    if not (sizes or bits):
        todo = "every size is 0: give a size above 0 for at least one attention"
        raise UserError("no attention would be converted", model.path, todo)
    evidence = evidence_of_heads(model, statistics, subset, sentences, ("heads", "cache"))
    evidence.check_caches()
    return apply_plan(evidence, conversion(model, {cut: sizes}, bits), fit=refit)


def conversion(
    model: Trained,
    given: Mapping[NewHeads, Mapping[Attention, int]],
    bits: Mapping[Attention, int] | None = None,
) -> Plan:
    """The plan that converts some attentions to given sizes, and leaves the others as they are.

    Args:
        given: the size of each attention, by the cut that converts it; all cuts are of one kind.
        bits: bits of each KV cache to round, others are not rounded; default: as in the model.
    """
    shapes, cuts = dict[Site, Shape](), list[tuple[Cut, list[Site]]]()
    for site in sites_of(model):
        shape = as_it_is(site)
        if isinstance(site, Attention) and site.type != "encoder" and bits is not None:
            shape = replace(shape, bits=bits.get(site, 0))
        shapes[site] = shape
    for cut, sizes in given.items():
        own = [site for site in shapes if isinstance(site, Attention) and site in sizes]
        new = {a: replace(shapes[a], kind=cut.kind, size=sizes[a], copy="") for a in own}
        shapes |= dict[Site, Shape](cut.arranged(new).items())
        cuts.append((cut, [*own]))
    cached = [a for a in attentions(model.model) if a.type != "encoder"]
    cuts.append((Bits(), [a for a in cached if not shapes[a].size]))
    return Plan(next(iter(given)).name, shapes, cuts)


def evidence_of_heads(
    model: Trained,
    statistics: Mapping[Attention, Statistics] | None,
    subset: str,
    sentences: int,
    parts: Sequence[str],
) -> Evidence:
    """The evidence about a model's attentions, from given statistics or from a new pass."""
    batches = sentences_of(model, subset, sentences)
    if statistics is not None:
        return Evidence(model, batches, matched(statistics, model))
    found, _, bits = collect_all(model, batches, parts=parts)
    return Evidence(model, batches, found, {}, bits)


def chosen_sizes(
    default: int | None,
    by_type: Mapping[AttentionType, str | int | None],
    trained: Trained,
    cut: NewHeads,
) -> dict[Attention, int]:
    """The size of every attention that options change.

    Args:
        default: size in all attention types that ``by_type`` does not name.
        by_type: one number, or one per layer: ``64,32``; 0 leaves the attention unchanged.
    """
    sizes, size_name = dict[Attention, int](), cut.kind.size_name
    named = {type_ for type_, text in by_type.items() if text is not None}
    if named >= {type_ for type_, layers in trained.attentions.items() if layers}:
        reject_unused("has no effect where every attention type has sizes", size=default)
    for type_, layers in trained.attentions.items():
        of_type, listed = f"`by_type[{type_}]`", [default] * len(layers)
        if type_ in named:
            if not layers:
                raise UserError("the model lacks this attention", of_type, "leave it out")
            listed = _listed(of_type, by_type[type_], len(layers), 0)
        for attention, size in zip(layers, listed, strict=True):
            if size is None:
                todo = f"give {of_type} or `size`"
                raise UserError(f"no {size_name} for {attention}", trained.path, todo)
            has_heads = attention.module.num_heads or cut.kind.one_size
            if (type_ in named and size == 0) or not has_heads:
                continue
            if allowed := cut.out_of_range(attention.module, size):
                problem = f"{attention}: {size_name} {size} is out of range"
                raise UserError(problem, trained.path, allowed)
            sizes[attention] = size
    check_left_alone(trained, sizes, cut.kind)
    return sizes


def _listed(option: str, text: Any, number: int, allowed: int | tuple[str, ...]) -> list[Any]:
    try:
        return listed_values(option, str(text), number, allowed)
    except ValueError as error:
        raise UserError(str(error)) from error


def chosen_bits(cache_bits: str | int | None, trained: Trained) -> dict[Attention, int]:
    """The bits of each attention whose KV cache is rounded.

    Args:
        cache_bits: one number for all caches, or one per cache (``4,8,0``; 0: no rounding); None
            or ``none``: no rounding anywhere.
    """
    cached = [attention for attention in attentions(trained.model) if attention.type != "encoder"]
    allowed, text = ("0", *map(str, BITS)), "0" if cache_bits in (None, "none") else str(cache_bits)
    numbers = _listed("`cache_bits`", text, len(cached), allowed)
    return {
        a: int(number)
        for a, number in zip(cached, numbers, strict=True)
        if int(number) and a.module.num_heads
    }


def sizes_by_type(given: Any) -> dict[AttentionType, int | str]:
    """Check sizes by attention type, and return them; UserError if one is not a size."""
    if not isinstance(given, Mapping | None):
        raise UserError(f'must look like {{"cross": 64}}, not {given!r}', "`by_type`")
    named = {type_: value for type_, value in (given or {}).items() if value is not None}
    for type_, value in named.items():
        if type_ not in ATTENTION_TYPES:
            raise UserError(f"{type_!r} must be one of {', '.join(ATTENTION_TYPES)}", "`by_type`")
        if isinstance(value, bool) or not isinstance(value, Integral | str):
            problem = f'must be a number, or one per layer in a text ("64,32"), not {value!r}'
            raise UserError(problem, f"`by_type[{type_}]`")
    return named


# ---- fewer heads ---------------------------------------------------------------------------------


def prune(
    model: Trained,
    number: int | None = None,
    *,
    keep: int | None = None,
    same_on_each_side: bool = False,
    retained: Retained | None = None,
    types: Sequence[AttentionType] | None = None,
    random: int | None = None,
    refit: bool = True,
    statistics: Mapping[Attention, Statistics] | None = None,
    subset: str = "train",
    sentences: int = 1000,
) -> Smaller:
    """Remove heads from a trained model: the cheapest ones, unless other arguments choose.

    By price, they are the heads that :func:`.shrink` removes for this number.  Gates are multiplied
    into the weights first.  In the end maps are fitted to what the heads that are left compute
    (:mod:`collab_lab.refitting.refit`), whatever chose them.

    Args:
        number: number of heads to remove from the whole model.  Heads that share a key or a value
            are removed together, and each cross-attention keeps at least one.
        keep: number of heads that each attention keeps, instead of ``number``.
        same_on_each_side: remove at least ``number`` heads so that all attentions of the encoder
            keep equally many, and all attentions of the decoder keep equally many.
        retained: heads to keep, by attention type and layer, instead of ``number``.
        types: attention types that lose heads; default: all.
        random: seed; remove random heads instead of the cheapest.
        refit: whether to refit; a refit that raises the loss on the calibration sentences is
            undone.
        statistics: what :func:`prices` returned for this model, to save a pass over the sentences;
            the model may have been opened again since.
        subset: set of the calibration sentences, used for prices, refit and measured rise.
        sentences: number of calibration sentences, spread evenly over the set.

    Returns:
        The smaller model with its plan, its predicted loss and its measured rise.

    Raises:
        UserError: the model has too few heads, a group would keep only a part of its heads, the
            statistics belong to another model, or an argument has no effect.
    """
    if [number, keep, retained].count(None) != 2:
        problem = "give exactly one of `number`, `keep` and `retained`"
        raise UserError(problem)
    same = same_on_each_side or None
    if retained is not None:
        reason = "has no effect if `retained` lists the heads"
        reject_unused(reason, types=types, random=random, same_on_each_side=same)
    if same:
        reject_unused("contradicts `same_on_each_side`", keep=keep, types=types)
    if retained is not None or random is not None:
        reject_unused("has an effect only if heads are chosen by price", statistics=statistics)
    check_whole(number=number, keep=keep, random=random)
    check_model(model)
    reject(model, [Heads()], "its heads cannot be removed")
    if retained is not None:
        check_lists(retained)
    named = named_types(model, types)
    check_number(model, number, keep, named)
    whole = cuttable(model)
    if retained is None and random is None:
        evidence = evidence_of_heads(whole, statistics, subset, sentences, ("heads",))
    else:
        evidence = Evidence(whole, sentences_of(model, subset, sentences))
    if retained is not None:
        return apply_plan(evidence, keeping(whole, retained), fit=refit)
    if random is not None:
        random_order(evidence, random)
    plan = fewer(evidence, Heads(same_on_each_side, named, keep, counted=True), number)
    return apply_plan(evidence, plan if random is None else replace(plan, prices={}), fit=refit)


def fewer(evidence: Evidence, cut: Heads, number: int | None) -> Plan:
    """The cheapest plan that removes ``number`` heads or, if None, does what the cut demands."""
    planner = Planner(evidence, "unchanged", [cut])
    heads = planner.whole["heads"]
    if number is None:
        return planner.solve({})
    left = heads - number
    try:
        if cut.even:
            return planner.solve({"heads": left / max(heads, 1)})
        return planner.solve({}, exactly={"heads": left})
    except OutOfReachError as error:
        most = heads - planner.fewest("heads")
        problem = f"cannot remove {number} heads"
        todo = (
            f"remove at most {most}: a model keeps a head, and so does every cross-attention, and "
            "heads that share keys or values go together"
        )
        raise UserError(problem, evidence.trained.path, todo) from error


def keeping(
    model: Trained,
    retained: Retained,
    units: Mapping[FeedForward, Sequence[int]] | None = None,
    prices: Mapping[str, float] | None = None,
) -> Plan:
    """The plan that keeps exactly these heads and units.

    Args:
        retained: heads to keep, by attention type and layer.
        units: units to keep of each feed-forward block that loses some.
        prices: predicted loss of each part in bits per target token, if it is known.
    """
    check_retained(model, retained)
    check_units(model, units or {})
    heads: dict[Site, Shape] = {
        a: replace(as_it_is(a), heads=tuple(of)) for a, of in heads_by_attention(model, retained)
    }
    blocks: dict[Site, Shape] = {site: as_it_is(site) for site in feed_forwards(model.model)}
    narrower: dict[Site, Shape] = {b: Shape(units=tuple(of)) for b, of in (units or {}).items()}
    cuts: list[tuple[Cut, list[Site]]] = [(Heads(), [*heads]), (Units(), [*narrower])]
    return Plan("unchanged", {**heads, **blocks, **narrower}, cuts, prices or {})


def random_order(evidence: Evidence, seed: int) -> None:
    """Give evidence that has no prices of heads yet a random order of removal, by ``seed``.

    Heads that are removed together get the same number.
    """
    generator = torch.Generator().manual_seed(seed)
    every = attentions(evidence.trained.model)
    drawn = torch.rand(sum(a.module.num_heads for a in every), generator=generator).tolist()
    numbers = iter(drawn)
    for attention in every:
        together = removed_together(attention.module)
        own = [next(numbers) for _ in range(attention.module.num_heads)]
        groups = sorted(
            (own[i], [*range(i, i + together)]) for i in range(0, len(own), together or 1)
        )
        removals = in_order(iter(groups))
        evidence.once(("removals", attention), partial(Removals, *removals))


def named_types(model: Trained, types: Sequence[AttentionType] | None) -> tuple[AttentionType, ...]:
    """The attention types that lose heads; UserError for a type that the model does not have."""
    named = ATTENTION_TYPES if types is None else types
    if isinstance(named, str) or not {*named} <= {*ATTENTION_TYPES}:
        problem = f"must be a list of some of {', '.join(ATTENTION_TYPES)}, not {types!r}"
        raise UserError(problem, "`types`")
    for type_ in types or ():
        if not model.heads[type_]:
            raise UserError(f"the model has no {type_} attention", model.path, "change `types`")
    return tuple(named)


def check_number(
    model: Trained, number: int | None, keep: int | None, types: Sequence[AttentionType]
) -> None:
    """Raise UserError for a number of heads that the model cannot lose or keep."""
    heads = {type_: model.heads.get(type_, []) for type_ in types}
    counts = [*chain.from_iterable(heads.values())]
    few = keep is not None and not 1 <= keep <= min(counts, default=0)
    if few or not 0 <= (number or 0) <= sum(counts):
        asked = f"remove {number} heads" if keep is None else f"keep {keep} heads of each"
        has = ", ".join(f"{type_} {' '.join(map(str, of))}" for type_, of in heads.items() if of)
        raise UserError(f"cannot {asked}: it has by layer {has}", model.path)
    of_types = (a for a in attentions(model.model) if a.type in types)
    together = math.lcm(*(removed_together(a.module) for a in of_types if a.module.num_heads))
    if keep is not None and keep % together:
        todo = f"keep a multiple of {together}: heads that share keys or values go together"
        raise UserError(f"cannot keep {keep} heads in each attention", model.path, todo)


def check_lists(retained: Any) -> None:
    """Raise UserError unless these are numbers by attention type and layer."""
    try:
        numbers = [head for layers in retained.values() for layer in layers for head in layer]
    except (AttributeError, TypeError):
        numbers = [None]
    if not all(isinstance(number, Integral) for number in numbers):
        wanted = 'numbers by type and layer, such as {"cross": [[0, 2], [1]]}'
        raise UserError(f"must be {wanted}, not {retained!r}", "`retained`")
