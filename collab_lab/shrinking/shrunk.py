"""A smaller model that meets targets, or that loses at most so much: what ``shrink`` does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

from collab_common.errors import UserError, reject_unused
from collab_common.progress import bar
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.choices import Times
from collab_lab.shrinking.head_choices import all_heads, without_gates
from collab_lab.shrinking.plan import (
    CUTS,
    ENGINES,
    KINDS,
    RESOURCES,
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
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import GATED, HEAD_GROUPS

#: What a budget cuts, unless ``only`` says it.
CUT_BY = {
    "cache": ("cache",),
    "parameters": ("heads", "units"),
    "heads": ("heads",),
    "time": ("heads", "units"),
}
#: Shares of the front: of the layers' parameters, of the KV cache, of both.
FRONT: tuple[dict[str, float], ...] = (
    *({"parameters": share} for share in (0.9, 0.8, 0.7, 0.6, 0.5)),
    *({"cache": share} for share in (0.53125, 0.25, 0.125, 0.0625)),
    {"cache": 0.125, "parameters": 0.7},
)
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
        kinds: of heads for a smaller cache: latent, headsize (as they are, rounded); default: the
            cheaper one.
        engine: that the model is for: fairseq, or ct2 for CTranslate2, where equally many heads
            stay on each side, and the cache is cut by heads alone; with ``times``, theirs.
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
    cuts = chosen_cuts(shares, lose, only)
    if engine not in ENGINES:
        raise UserError(f"{engine!r} is none of {', '.join(ENGINES)}", "`engine`")
    if engine == "ct2":
        cuts = ct2_cuts(cuts, only)
    if "cache" not in cuts:
        reject_unused("is of a smaller cache, which is not cut here", kinds=kinds)
    if calibration is not None:
        reject_unused("goes without `calibration`", subset=subset, sentences=sentences)
    kinds = tuple(KINDS) if kinds is None else kinds
    check(shares, lose, kinds, cuts)
    model = source_of(model)
    # A missing set fails at once.
    valid = None if lose is None else sentences_of(model, "valid", None)
    sentences = 1000 if sentences is None else sentences
    found = calibration or Calibration.of(model, subset or "train", sentences, cuts=cuts)
    if valid is None:
        return made(model, found, shares, cuts, kinds, engine, times)
    resource = "cache" if cuts == ("cache",) else "parameters"
    return least(model, found, shares, resource, (cuts, kinds, engine, times), lose or 0.0, valid)


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


def ct2_cuts(cuts: Sequence[str], only: Sequence[str] | None) -> tuple[str, ...]:
    """What may be cut for CTranslate2: heads in place of the cache; UserError if only that is."""
    if only is not None and "cache" in only:
        problem = "CTranslate2 expands latents, and rounds no cache: cut heads"
        raise UserError(problem, "`only`", "leave `cache` out of it, or convert to grouped query")
    asked = {"heads" if cut == "cache" else cut for cut in cuts}
    return tuple(cut for cut in CUTS if cut in asked)


def check(
    shares: Mapping[str, float], lose: float | None, kinds: Sequence[str], cuts: Sequence[str]
) -> None:
    """Raise UserError for targets out of range, or that nothing that may be cut can meet."""
    if not shares and lose is None:
        raise UserError(f"no target: give one of {', '.join(RESOURCES)}, or lose")
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
            raise UserError(f"must be a number from 0 to 1, not {share!r}", f"`{name}`")
    if lose is not None and (isinstance(lose, bool) or not isinstance(lose, Real) or lose <= 0):
        raise UserError(f"must be a number of bits above 0, not {lose!r}", "`lose`")
    if unknown := sorted({*kinds} - {*KINDS}):
        raise UserError(f"{unknown[0]!r} is none of {', '.join(KINDS)}", "`kinds`")
    helps = {name: {*cut} for name, cut in CUT_BY.items()}
    helps["cache"] |= {"heads"}
    helps["time"] |= {"cache"}
    for name in shares:
        if not helps[name] & {*cuts}:
            problem = f"nothing that may be cut ({', '.join(cuts)}) makes it smaller"
            raise UserError(problem, f"`{name}`")


def made(
    model: Trained,
    found: Calibration,
    shares: Mapping[str, float],
    cuts: Sequence[str],
    kinds: Sequence[str] = tuple(KINDS),
    engine: str = "fairseq",
    times: Times | None = None,
) -> Shrunk:
    """The cheapest plan, applied."""
    choices: dict[str, Any] = {"cuts": cuts, "kinds": kinds, "engine": engine, "times": times}
    choices["known"] = found.known
    plan = propose(model, found.attentions, found.units, shares, **choices)
    smaller, plan, rise = plan.apply(model, found.attentions, found.batches, found.bits)
    whole, now = whole_costs(model), costs(smaller)
    shares = {name: now[name] / whole[name] for name in whole}
    return Shrunk(
        smaller, plan, rise, shares if plan.time is None else shares | {"time": plan.time}
    )


def least(
    model: Trained,
    found: Calibration,
    shares: Mapping[str, float],
    resource: str,
    choices: tuple[Sequence[str], Sequence[str], str, Times | None],
    lose: float,
    valid: Sequence[Mapping[str, Any]],
) -> Shrunk:
    """The smallest of :data:`MEASURED` models, by bisection, that loses at most ``lose`` bits."""
    if resource in shares:
        raise UserError(f"is what lose makes smallest: leave `{resource}` out", f"`{resource}`")
    before, low, high = mean_bits(model.model, valid), 0.0, 1.0
    best: Shrunk | None = None
    impossible = list[UserError]()
    for _ in bar("models", list(range(MEASURED))):
        share = (low + high) / 2
        try:
            result = made(model, found, {**shares, resource: share}, *choices)
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
