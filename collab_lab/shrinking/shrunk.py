"""A smaller model that meets targets, or that loses at most so much: what ``shrink`` does."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

from collab_common.errors import UserError, reject_unused
from collab_common.progress import bar
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.choices import Times
from collab_lab.shrinking.head_choices import all_heads, without_gates
from collab_lab.shrinking.plan import (
    ANY_BITS,
    CUTS,
    ENGINES,
    KINDS,
    RESOURCES,
    USUAL_KINDS,
    Known,
    Plan,
    costs,
    propose,
    whole_costs,
)
from collab_lab.shrinking.statistics import Statistics, collect_all
from collab_lab.shrinking.surgery import pruned
from collab_lab.shrinking.unit_statistics import UnitStatistics
from collab_lab.trained.arguments import check_model, sentences_of
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import GATED, HEAD_GROUPS

#: What a budget cuts, unless ``only`` says it.
CUT_BY = {
    "cache": ("cache",),
    "parameters": ("heads", "units"),
    "heads": ("heads",),
    "time": ("heads", "units"),
}
#: Why an argument of a smaller cache has no effect.
NOT_CUT = "is of a smaller cache, which is not cut here"
#: Shares of the front: of the layers' parameters, of the KV cache, of both.
FRONT: tuple[dict[str, float], ...] = (
    *({"parameters": share} for share in (0.9, 0.8, 0.7, 0.6, 0.5)),
    *({"cache": share} for share in (0.53125, 0.25, 0.125, 0.0625)),
    {"cache": 0.125, "parameters": 0.7},
)
#: By resource, series of a figure: what a plan may cut, and how.
RIVALS: dict[str, dict[str, tuple[tuple[str, ...], str, tuple[int, ...]]]] = {
    "parameters": {
        "heads and units": (("heads", "units"), "headsize", (0,)),
        "heads removed, alone": (("heads",), "headsize", (0,)),
        "units removed, alone": (("units",), "headsize", (0,)),
    },
    "cache": {
        "latent, widths and bits": (("cache",), "latent", ANY_BITS),
        "grouped query": (("cache",), "grouped-query", (0,)),
        "standard heads, bits alone": (("cache",), "headsize", ANY_BITS),
    },
}
#: Models that ``lose`` measures.
MEASURED = 6


class Shrunk(NamedTuple):
    """A smaller model.

    Attributes:
        plan: what it keeps, with the predicted loss.
        rise: measured on the calibration sentences, in bits per target token.
        shares: of the given model's cache (16-bit numbers), layers' parameters and heads; of its
            time as predicted, where times were measured.
    """

    model: Trained
    plan: Plan
    rise: float
    shares: dict[str, float]

    @property
    def price(self) -> float:
        """The predicted loss in bits per target token."""
        return self.plan.price

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        price, kept = repr(self.plan).splitlines()
        return f"{self.model.arch}, {shares}; {price}, rise: {self.rise:.4f}\n{kept}"


class Calibration(NamedTuple):
    """What one pass over calibration sentences shows of a model.

    Attributes:
        bits: its loss on these sentences, per target token.
        known: prices that several plans share.
    """

    batches: list[dict[str, Any]]
    attentions: Mapping[Attention, Statistics]
    units: Mapping[FeedForward, UnitStatistics]
    bits: float
    known: Known

    @classmethod
    def of(
        cls,
        model: Trained,
        subset: str = "train",
        sentences: int = 1000,
        statistics: tuple[Any, Any] | None = None,
        cuts: Collection[str] = CUTS,
    ) -> Calibration:
        """Read the sentences, spread evenly over the subset.

        Args:
            statistics: of the model's attentions and blocks, in place of a pass for prices.
            cuts: what may be cut of it.
        """
        batches = sentences_of(model, subset, sentences)
        if statistics is None:
            return cls(batches, *collect_all(model, batches, cuts=cuts), Known())
        return cls(batches, *statistics, mean_bits(model.model, batches), Known())


class How(NamedTuple):
    """What a plan may choose: see :func:`.plan.propose`."""

    cuts: tuple[str, ...]
    kinds: tuple[str, ...]
    bits: tuple[int, ...] = ANY_BITS
    engine: str = "fairseq"
    times: Times | None = None


def shrink(
    model: Trained,
    *,
    cache: float | None = None,
    parameters: float | None = None,
    heads: float | None = None,
    time: float | None = None,
    lose: float | None = None,
    only: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    cache_bits: str | int | None = None,
    engine: str = "fairseq",
    times: Times | None = None,
    subset: str | None = None,
    sentences: int | None = None,
    calibration: Calibration | None = None,
) -> Shrunk:
    """Make a trained model smaller at the least predicted loss; nothing is trained.

    Heads, feed-forward units, widths and bits of the KV cache have one price, in bits of loss per
    target token.  The cheapest plan that meets all targets is applied, and all blocks are refitted.

    Args:
        cache: share to leave of the bytes of the KV cache in 16-bit numbers (0 to 1).
        parameters: share to leave of the parameters of all layers, without embeddings.
        heads: share to leave of the heads.
        time: share to leave of the seconds of a translation, by ``times``.
        lose: largest loss to accept, in bits per target token, as measured on the validation set:
            the smallest of some models that lose no more.  It is smaller in ``parameters``, or in
            ``cache`` if ``only`` that is cut.
        only: what may be cut: heads, units, cache; default: heads and units for ``parameters``,
            ``time`` and ``lose``, heads for ``heads``, the cache for ``cache``.
        kinds: of heads for a smaller cache, of which the cheapest is taken: latent, headsize (as
            they are, rounded), grouped-query, collab (a shared key); default: the first two, for
            CTranslate2 grouped-query.
        cache_bits: of a number in a smaller cache: 8, 4, or none; default: the cheapest ones.
        engine: that the model is for: fairseq, onnx for ONNX Runtime, or ct2 for CTranslate2, where
            equally many heads stay on each side, widths are multiples of 64, and no cache is
            rounded; with ``times``, theirs.
        times: what parts of the model take: :func:`collab_lab.time_parts` measures it.
        subset, sentences: set, and number of sentences, for prices and the refit; default: 1,000
            of the training set.
        calibration: of :func:`source_of` this model, in place of a pass.

    Raises:
        UserError: no plan meets the targets, or an argument is out of range or has no effect.
    """
    check_model(model)
    given = {"cache": cache, "parameters": parameters, "heads": heads, "time": time}
    if time is None:
        reject_unused("goes with `time`", times=times)
    elif times is None:
        raise UserError("needs measured `times`", "`time`", "see collab_lab.time_parts")
    else:
        engine = times.engine
    shares = {name: share for name, share in given.items() if share is not None}
    how = chosen(shares, lose, only, kinds, cache_bits, engine)._replace(times=times)
    if calibration is not None:
        reject_unused("goes without `calibration`", subset=subset, sentences=sentences)
    model = source_of(model)
    # A missing set fails at once.
    valid = None if lose is None else sentences_of(model, "valid", None)
    sentences = 1000 if sentences is None else sentences
    found = calibration or Calibration.of(model, subset or "train", sentences, cuts=how.cuts)
    if valid is None:
        return made(model, found, shares, how)
    return least(model, found, shares, smallest_in(how.cuts), how, lose or 0.0, valid)


def chosen(
    shares: Mapping[str, float],
    lose: float | None,
    only: Sequence[str] | None,
    kinds: Sequence[str] | None,
    cache_bits: str | int | None,
    engine: str,
) -> How:
    """What a plan may choose; UserError for arguments out of range, or without effect.

    It reads no model, so that errors come before a pass over sentences.
    """
    cuts = chosen_cuts(shares, lose, only)
    if engine not in ENGINES:
        raise UserError(f"{engine!r} is none of {', '.join(ENGINES)}", "`engine`")
    kinds = chosen_kinds(kinds, cuts, engine)
    if "cache" not in cuts:
        reject_unused(NOT_CUT, cache_bits=cache_bits)
    if engine == "ct2":
        reject_unused("CTranslate2 rounds no cache: leave it out", cache_bits=cache_bits)
    check(shares, lose, cuts)
    if lose is not None and (resource := smallest_in(cuts)) in shares:
        raise UserError(f"is what lose makes smallest: leave `{resource}` out", f"`{resource}`")
    return How(cuts, kinds, bits_of(cache_bits), engine)


def smallest_in(cuts: Sequence[str]) -> str:
    """The resource that ``lose`` makes as small as it can."""
    return "cache" if tuple(cuts) == ("cache",) else "parameters"


def source_of(model: Trained) -> Trained:
    """The model with heads that plans are of: gates in its weights, and no groups."""
    if isinstance(model.model, HeadModel) and model.model.variant in (GATED, HEAD_GROUPS):
        return pruned(without_gates(model), all_heads(model.heads))
    return model


def chosen_cuts(
    shares: Mapping[str, float], lose: float | None, only: Sequence[str] | None
) -> tuple[str, ...]:
    """What may be cut, in the order of :data:`.plan.CUTS`."""
    asked = {cut for name in shares for cut in CUT_BY[name]}
    if lose is not None:
        asked |= {*CUT_BY["parameters"]}
    if only is not None:
        if unknown := sorted({*only} - {*CUTS}):
            raise UserError(f"{unknown[0]!r} is none of {', '.join(CUTS)}", "`only`")
        asked = {*only}
    return tuple(cut for cut in CUTS if cut in asked)


def bits_of(cache_bits: str | int | None) -> tuple[int, ...]:
    """Bits that a number of a smaller cache may have; 0: no rounding."""
    if cache_bits in (None, "auto"):
        return ANY_BITS
    allowed = {"none": 0, **{str(bits): bits for bits in BITS}}
    if str(cache_bits) not in allowed:
        raise UserError(f"{cache_bits!r} is none of auto, {', '.join(allowed)}", "`cache_bits`")
    return (allowed[str(cache_bits)],)


def chosen_kinds(kinds: Sequence[str] | None, cuts: Sequence[str], engine: str) -> tuple[str, ...]:
    """Kinds of heads for a smaller cache, of :data:`.plan.KINDS`."""
    if "cache" not in cuts:
        reject_unused(NOT_CUT, kinds=kinds)
    kinds = USUAL_KINDS[engine] if kinds is None else kinds
    if unknown := sorted({*kinds} - {*KINDS}):
        raise UserError(f"{unknown[0]!r} is none of {', '.join(KINDS)}", "`kinds`")
    if engine == "ct2" and (other := sorted({*kinds} - {*USUAL_KINDS["ct2"]})):
        raise UserError(f"CTranslate2 expands {other[0]} heads: give grouped-query", "`kinds`")
    return tuple(kinds)


def check(shares: Mapping[str, float], lose: float | None, cuts: Sequence[str]) -> None:
    """Raise UserError for targets out of range, or that nothing that may be cut can meet."""
    if not shares and lose is None:
        raise UserError(f"no target: give one of {', '.join(RESOURCES)}, or lose")
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
            raise UserError(f"must be a number from 0 to 1, not {share!r}", f"`{name}`")
    is_number = isinstance(lose, Real) and not isinstance(lose, bool)
    if lose is not None and not (is_number and 0 < lose < math.inf):
        raise UserError(f"must be a number of bits above 0, not {lose!r}", "`lose`")
    helps = {name: {*cut} for name, cut in CUT_BY.items()}
    helps["cache"] |= {"heads"}
    helps["time"] |= {"cache"}
    for name in shares:
        if not helps[name] & {*cuts}:
            problem = f"nothing that may be cut ({', '.join(cuts)}) makes it smaller"
            raise UserError(problem, f"`{name}`")
    asked = {*shares} | ({smallest_in(cuts)} if lose is not None else set())
    useless = {*cuts}.difference(*(helps[name] for name in asked))
    for cut in sorted(useless):
        problem = f"no target makes use of cutting {cut}"
        raise UserError(problem, "`only`", f"leave {cut} out, or give another target")


def made(model: Trained, found: Calibration, shares: Mapping[str, float], how: How) -> Shrunk:
    """The cheapest plan, applied."""
    choices = {**how._asdict(), "known": found.known}
    plan = propose(model, found.attentions, found.units, shares, **choices)
    smaller, plan, rise = plan.apply(model, found.attentions, found.batches, found.bits)
    whole, now = whole_costs(model), costs(smaller)
    shares = {name: now[name] / whole[name] for name in whole}
    if plan.time is not None:
        shares["time"] = plan.time
    return Shrunk(smaller.with_plan(plan.to_json()), plan, rise, shares)


def rivals(model: Trained, found: Calibration) -> dict[str, dict[str, dict[float, list[float]]]]:
    """By resource and series of :data:`RIVALS`: prices at those shares of :data:`FRONT` that go."""
    result: dict[str, dict[str, dict[float, list[float]]]] = {}
    for resource, series in RIVALS.items():
        shares = [one[resource] for one in FRONT if one.keys() == {resource}]
        for name, (cuts, kind, bits) in series.items():
            prices = dict[float, list[float]]()
            for share in shares:
                with suppress(UserError):  # no plan is so small
                    how = {**How(cuts, (kind,), bits)._asdict(), "known": found.known}
                    plan = propose(model, found.attentions, found.units, {resource: share}, **how)
                    prices[share] = [plan.price]
            if prices:
                result.setdefault(resource, {})[name] = prices
    return result


def least(
    model: Trained,
    found: Calibration,
    shares: Mapping[str, float],
    resource: str,
    how: How,
    lose: float,
    valid: Sequence[Mapping[str, Any]],
) -> Shrunk:
    """The smallest of :data:`MEASURED` models, by bisection, that loses at most ``lose`` bits."""
    before, low, high = mean_bits(model.model, valid), 0.0, 1.0
    best: Shrunk | None = None
    impossible = list[UserError]()
    for _ in bar("models", list(range(MEASURED))):
        share = (low + high) / 2
        try:
            result = made(model, found, {**shares, resource: share}, how)
        except UserError as error:  # no plan is so small
            impossible.append(error)
            low = share
            continue
        if mean_bits(result.model.model, valid) - before <= lose:
            best, high = result, share
        else:
            low = share
    if best is None:
        if len(impossible) == MEASURED:  # whatever the share: another target cannot be met
            raise impossible[-1]
        problem = f"every smaller model that was measured loses more than {lose:g} bits"
        raise UserError(problem, model.path, "accept a larger loss")
    return best
