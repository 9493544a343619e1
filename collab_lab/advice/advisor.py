"""Find the smaller model that loses least: prices propose, the validation set decides.

One pass over training sentences (:func:`.statistics.collect`) prices every kind of heads that the
model allows, at every width.  For each kind, the widths are spread over attentions so that all
targets hold at the least predicted loss (:func:`.bits.cheapest`); heads are removed in the order of
:func:`.choices.removals`.  Costs are exact before a model is built.  The best :data:`MEASURED`
candidates are built, and their losses measured on the whole validation set.

A model has one kind of heads.  A mixture of kinds would not lower the cache: a latent of r = K + V
numbers contains every shared key of width K next to values of width V, and all grouped-query heads
that cache r numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.conversion.base import Conversion, point
from collab_lab.conversion.converter import Converter, spelled
from collab_lab.metrics.cost import totals
from collab_lab.metrics.loss import sentence_losses
from collab_lab.metrics.significance import Gain, gain_per_unit
from collab_lab.pricing.bits import Point
from collab_lab.pricing.statistics import Statistics, collect
from collab_lab.pruning.choices import removals, without, without_gates
from collab_lab.pruning.surgery import check_heads, pruned
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained, samples

#: Candidates that are built and measured.
MEASURED = 3
#: Differences of exact models, in bits of a sentence, stay below it.
ROUNDING = 1e-3
#: Shares of the given model's costs that must not be exceeded, by the names of ``cost.totals``.
Shares = Mapping[str, float]
Priced = Mapping[Attention, Statistics]


class Candidate(NamedTuple):
    """A smaller model that meets all targets.

    Attributes:
        price: predicted loss in bits per target token.
        command: of ``fairseq-collab``, with its options, that makes the model.
        make: builds it.
    """

    name: str
    price: float
    command: tuple[str, list[str]]
    make: Callable[[], tuple[Trained, float]]


class Final(NamedTuple):
    """A candidate on the validation set.

    Attributes:
        price: predicted loss in bits per target token; ``lost``: measured, with its 95% interval.
        shares: of the given model's costs.
        bits: losses of the sentences.
    """

    name: str
    command: tuple[str, list[str]]
    model: Trained
    price: float
    lost: Gain
    shares: dict[str, float]
    bits: Any


class Advice(NamedTuple):
    """The measured candidates, the best prediction first.

    Attributes:
        bits: loss of the given model.
        sentences: numbers that were read, for prices and for losses.
        rejected: by kind of heads, why there is no candidate.
        answer: None if all lose too much.
    """

    bits: float
    sentences: tuple[int, int]
    finals: list[Final]
    rejected: dict[str, str]
    answer: Final | None


def advise(trained: Trained, shares: Shares, most: float, subset: str, sentences: int) -> Advice:
    """Price, build, measure, choose.

    Args:
        most: largest loss allowed, in bits per target token.
        subset, sentences: of the pass.

    Raises:
        UserError: no candidate meets the targets.
    """
    trained = without_gates(trained)
    valid = samples(trained, "valid")  # before the pass: a set that is missing fails at once
    batches = samples(trained, subset, sentences)
    proposed, rejected = candidates(trained, collect(trained, batches), shares)
    if not proposed:
        reasons = "; ".join(f"{name}: {why}" for name, why in rejected.items())
        raise UserError(f"no candidate has {spelled(shares)}", trained.path, reasons)
    before, tokens = _bits(trained, valid)
    whole, finals = totals(trained.model), []
    for one in bar("candidates", sorted(proposed, key=lambda one: one.price)[:MEASURED]):
        model, price = one.make()
        bits, _ = _bits(model, valid)
        ratios = {of: cost / whole[of] for of, cost in totals(model.model).items()}
        rise = increase(bits, before, tokens)
        finals.append(Final(one.name, one.command, model, price, rise, ratios, bits))
    read = sum(len(batch["target"]) for batch in batches), len(before)
    answer = chosen(finals, shares, most, tokens)
    return Advice(before.sum() / tokens.sum(), read, finals, rejected, answer)


def _bits(trained: Trained, batches: list[dict[str, Any]]) -> tuple[Any, Any]:
    """For each sentence, the sum of its loss in bits and its number of tokens."""
    nats, tokens = sentence_losses(trained.model, batches)
    return nats.numpy() / np.log(2), tokens.numpy()


def increase(after: Any, before: Any, tokens: Any) -> Gain:
    """By how many bits per token sentences lose more; exact conversions differ by rounding."""
    change = after - before
    return gain_per_unit(change * (np.abs(change).max() > ROUNDING), tokens)


def chosen(finals: list[Final], shares: Shares, most: float, tokens: Any) -> Final | None:
    """The candidate to take: the cheapest of those that lose no more than the best one.

    Two candidates differ if the 95% interval of their difference excludes 0.  The cheapest has the
    smallest costs of the targets, to one per cent of the given model's, and then the fewest
    parameters.
    """
    allowed = [one for one in finals if one.lost.mean <= most]
    if not allowed:
        return None
    best = min(allowed, key=lambda one: one.lost.mean)
    equal = [one for one in allowed if not increase(one.bits, best.bits, tokens).significant]
    return min(
        equal,
        key=lambda one: ([round(one.shares[of], 2) for of in shares], one.shares["parameters"]),
    )


# ---- candidates ----------------------------------------------------------------------------------


def candidates(
    trained: Trained, statistics: Priced, shares: Shares
) -> tuple[list[Candidate], dict[str, str]]:
    """A candidate of each kind of heads; and why other kinds have none."""
    proposed: list[Candidate] = []
    rejected: dict[str, str] = {}
    for name, how in kinds(trained).items():
        about = name, trained, statistics, shares
        try:
            proposed.append(converted(how, *about) if how else fewer_heads(*about))
        except UserError as error:
            rejected[name] = "; ".join(filter(None, (error.what, error.todo)))
    return proposed, rejected


def kinds(trained: Trained) -> dict[str, Conversion | None]:
    """All that heads can be converted to, by name; None: some are removed."""
    heads = math.gcd(*(one.module.num_heads for one in attentions(trained.model)))
    groups = [number for number in range(1, heads) if heads % number == 0]
    return {
        "latent heads": Conversion("latent"),
        "grouped-query heads": Conversion("grouped-query"),
        "shared keys": Conversion(),
        **{f"shared keys, value heads: {one}": Conversion(value_heads=one) for one in groups},
        "fewer heads": None,
    }


def converted(
    how: Conversion, name: str, trained: Trained, statistics: Priced, shares: Shares
) -> Candidate:
    """The conversion with its widths spread over attentions; UserError if it is impossible."""
    converter = Converter(trained, how, statistics)
    target, sizes = converter.target, converter.spread(shares)
    price = sum(p.price for one in sizes for p in converter.curve(one) if p.size == sizes[one])
    words = ["--to", how.to]
    if how.value_heads:
        words += ["--value-heads", str(how.value_heads)]
    for type_, layers in trained.attentions.items():
        if layers:
            widths = ",".join(str(sizes.get(one, 0)) for one in layers)
            words += [f"--{target.size.replace('_', '-')}-in-{type_}", widths]

    def make() -> tuple[Trained, float]:
        result, prices = converter.convert(sizes)
        return result, sum(prices.values())

    return Candidate(name, price, ("reparametrize", words), make)


def fewer_heads(name: str, trained: Trained, statistics: Priced, shares: Shares) -> Candidate:
    """The model without its cheapest heads: for the cache alone, those of the decoder."""
    check_heads(trained)
    types = ("decoder", "cross") if shares.keys() == {"cache"} else ATTENTION_TYPES
    order = removals({one: it.head_fisher for one, it in statistics.items() if one.type in types})
    left, number = totals(trained.model), 0
    most = {of: int(share * left[of]) for of, share in shares.items()}
    while any(left[of] > most[of] for of in most):
        if number == len(order):
            raise UserError(f"even without heads it does not have {spelled(shares)}")
        one = order[number].attention
        saved, heads = costs_of_heads(one), one.module.num_heads
        left = {of: cost - saved.cost(of) // heads for of, cost in left.items()}
        number += 1
    retained, price = without(trained.heads, order[:number])
    words = ["--remove-share", f"{number / len(order):.6g}"]
    words += [] if types == ATTENTION_TYPES else ["--types", *types]
    return Candidate(
        name, price, ("prune", words), lambda: (pruned(trained, retained, statistics), price)
    )


def costs_of_heads(attention: Attention) -> Point:
    """The cost of all heads of an attention together."""
    weights = attention.module.state_dict().items()
    heads = {name: w for name, w in weights if "_proj." in name and name != "out_proj.bias"}
    return point(attention, 0, heads, 0.0)
