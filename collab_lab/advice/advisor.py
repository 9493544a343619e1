"""Find the smaller model that loses least: prices propose, the validation set decides.

One pass over training sentences (:func:`.statistics.collect`) prices every kind of heads that the
model allows, at every width, and with 16, 8 or 4 bits of a cached number.  For each kind, widths
and bits are spread over attentions so that all targets hold at the least predicted loss
(:func:`.bits.cheapest`); heads are removed in the order of
:func:`.choices.removals`.  Costs are exact before a model is built.  The best :data:`MEASURED`
candidates are built and refitted, and their losses measured on the whole validation set.

A model has one kind of heads.  A mixture of kinds would not lower the cache: a latent of r = K + V
numbers contains every shared key of width K next to values of width V, and all grouped-query heads
that cache r numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_common.progress import bar
from collab_lab.advice import RESOURCES
from collab_lab.conversion.converter import Converter, joined, spelled
from collab_lab.conversion.kinds import TARGETS, Target
from collab_lab.metrics.cost import totals
from collab_lab.metrics.loss import mean_bits, sentence_losses
from collab_lab.metrics.significance import Gain, gain_per_unit
from collab_lab.pricing.bits import Point, own_bits, point
from collab_lab.pricing.statistics import Statistics, collect
from collab_lab.pruning.choices import removals, without, without_gates
from collab_lab.pruning.surgery import check_heads, check_retained, pruned
from collab_lab.rise import measured_rise
from collab_lab.trained.attentions import Attention
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
        make: builds it, before :func:`.measured_rise`, which refits it.
    """

    name: str
    price: float
    command: tuple[str, list[str]]
    make: Callable[[], tuple[Trained, float]]


class Final(NamedTuple):
    """A candidate on the validation set.

    Attributes:
        price: predicted loss in bits per target token; ``lost``: measured, with its 95% interval.
        rise: of the loss on the calibration sentences, measured.
        shares: of the given model's costs.
        bits: losses of the sentences.
    """

    name: str
    command: tuple[str, list[str]]
    model: Trained
    price: float
    rise: float
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


def advise(
    trained: Trained,
    shares: Shares,
    most: float = 0.05,
    subset: str = "train",
    sentences: int = 1000,
) -> Advice:
    """Price, build, measure, choose.

    Args:
        shares: of the costs cache and parameters, each above 0 and below 1.
        most: largest loss allowed, in bits per target token.
        subset, sentences: of the pass.

    Raises:
        UserError: no candidate meets the targets, or one is out of range.
    """
    fits = {*shares} <= {*RESOURCES} and all(0 < share < 1 for share in shares.values())
    if not (shares and fits and most >= 0):
        problem = f"{dict(shares)} with at most {most} bits lost is no target"
        todo = f"give shares of {', '.join(RESOURCES)} above 0 and below 1, and bits from 0 up"
        raise UserError(problem, todo=todo)
    trained = without_gates(trained)
    model_costs, now = totals(trained.model, rounded=False), totals(trained.model)
    if all(now[name] <= share * model_costs[name] for name, share in shares.items()):
        raise UserError(f"has {spelled(shares)} already", trained.path, "give smaller shares")
    valid = samples(trained, "valid")  # before the pass: a set that is missing fails at once
    batches = samples(trained, subset, sentences)
    proposed, rejected = candidates(trained, collect(trained, batches), shares)
    (before, tokens), calibration = _bits(trained, valid), mean_bits(trained.model, batches)
    finals = list[Final]()
    for candidate in bar("candidates", sorted(proposed, key=lambda c: c.price)):
        if len(finals) == MEASURED:
            break
        try:
            model, price = candidate.make()
        except UserError as error:
            rejected[candidate.name] = reason_of(error)
            continue
        rise = measured_rise(model, trained, batches, price, before=calibration)
        bits, _ = _bits(model, valid)
        ratios = {name: cost / model_costs[name] for name, cost in totals(model.model).items()}
        losses = price, rise, increase(bits, before, tokens)
        finals.append(Final(candidate.name, candidate.command, model, *losses, ratios, bits))
    if not finals:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in rejected.items())
        raise UserError(f"no candidate has {spelled(shares)}", trained.path, reasons)
    sentences_read = sum(len(batch["target"]) for batch in batches), len(before)
    answer = chosen(finals, shares, most, tokens)
    return Advice(before.sum() / tokens.sum(), sentences_read, finals, rejected, answer)


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
    allowed = [final for final in finals if final.lost.mean <= most]
    if not allowed:
        return None
    best = min(allowed, key=lambda final: final.lost.mean)
    equal = [f for f in allowed if not increase(f.bits, best.bits, tokens).significant]
    return min(
        equal,
        key=lambda f: ([round(f.shares[name], 2) for name in shares], f.shares["parameters"]),
    )


# ---- candidates ----------------------------------------------------------------------------------


def candidates(
    trained: Trained, statistics: Priced, shares: Shares
) -> tuple[list[Candidate], dict[str, str]]:
    """A candidate of each kind of heads; and why other kinds have none."""
    proposed: list[Candidate] = []
    rejected: dict[str, str] = {}
    ways: dict[str, Callable[..., Candidate]] = {
        **{kind.heads_name: partial(converted, kind()) for kind in TARGETS.values()},
        "fewer heads": fewer_heads,
    }
    for name, propose in ways.items():
        try:
            proposed.append(propose(name, trained, statistics, shares))
        except UserError as error:
            rejected[name] = reason_of(error)
    return proposed, rejected


def reason_of(error: UserError) -> str:
    """Why there is no candidate, without the path of the model."""
    return "; ".join(filter(None, (error.problem, error.todo)))


def converted(
    target: Target, name: str, trained: Trained, statistics: Priced, shares: Shares
) -> Candidate:
    """The conversion with its widths spread over attentions; UserError if it is impossible."""
    converter = Converter(trained, target, statistics)
    sizes, bits, price = converter.spread(shares)
    words = ["--to", target.to]
    option = f"--{target.size_option.replace('_', '-')}"
    if target.one_size:
        words += [option, str(max(sizes.values()))]
    for type_, layers in trained.attentions.items():
        if layers and not target.one_size:
            words += [f"{option}-in-{type_}", joined(sizes.get(a, 0) for a in layers)]
    if bits:
        cached = (a for a in converter.attentions if a.type != "encoder")
        words += ["--cache-bits", joined(bits.get(a, 0) for a in cached)]

    def make() -> tuple[Trained, float]:
        result, prices = converter.convert(sizes, bits)
        return result, sum(prices.values())

    return Candidate(name, price, ("reparametrize", words), make)


def fewer_heads(name: str, trained: Trained, statistics: Priced, shares: Shares) -> Candidate:
    """The model without its cheapest heads: for the cache alone, those of the decoder."""
    check_heads(trained)
    types = ("decoder", "cross") if shares.keys() == {"cache"} else ATTENTION_TYPES
    order = removals({a: of_it for a, of_it in statistics.items() if a.type in types})
    costs, costs_left, removed = totals(trained.model, rounded=False), totals(trained.model), 0
    numbers = {attention: attention.module.num_heads for attention in statistics}
    budgets = {resource: int(share * costs[resource]) for resource, share in shares.items()}
    while any(costs_left[resource] > budgets[resource] for resource in budgets):
        if removed == len(order):
            raise UserError(f"even without heads it does not have {spelled(shares)}")
        attention = order[removed].attention
        before = costs_of_heads(attention, numbers[attention])
        numbers[attention] -= 1
        after = costs_of_heads(attention, numbers[attention])
        for resource in costs_left:
            costs_left[resource] -= getattr(before, resource) - getattr(after, resource)
        removed += 1
    retained, price = without(trained.heads, order[:removed])
    check_retained(trained, retained)
    words = ["--remove-share", f"{removed / len(order):.6g}"]
    words += (
        [] if types == ATTENTION_TYPES else ["--types", *(t for t in types if trained.heads[t])]
    )
    return Candidate(name, price, ("prune", words), lambda: (pruned(trained, retained), price))


def costs_of_heads(attention: Attention, number: int) -> Point:
    """The cost of some heads of an attention together, with the bits of its cache."""
    weights = attention.module.state_dict().items()
    heads = {name: w for name, w in weights if "_proj." in name and name != "out_proj.bias"}
    for name, w in heads.items():
        axis = int(name.startswith("out"))  # heads are rows, of the output's map columns
        heads[name] = w.narrow(axis, 0, w.size(axis) * number // attention.module.num_heads)
    return point(attention, 0, heads, 0.0, own_bits(attention.module))
