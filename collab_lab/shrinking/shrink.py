"""``shrink``: find and build a smaller model that meets targets, or a limit on its loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from collab_common.errors import UserError, reject_unused
from collab_common.progress import bar
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.apply import apply_plan
from collab_lab.shrinking.cut import ANY_BITS, Cut
from collab_lab.shrinking.cuttable import cuttable
from collab_lab.shrinking.engine import ENGINES
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.plan import CACHE_CUTS, RESOURCES, Allowed, Times
from collab_lab.shrinking.planner import OutOfReachError, propose
from collab_lab.shrinking.shape import PARTS
from collab_lab.shrinking.smaller import Smaller
from collab_lab.trained.checkpoint import Trained, check_model, plan_of
from collab_lab.trained.sentences import sentences_of
from fairseq_collab.attention.rounding import BITS

#: The parts that a target cuts, unless ``only`` chooses them.
CUT_BY = {
    "cache": ("cache",),
    "parameters": ("heads", "units"),
    "heads": ("heads",),
    "time": ("heads", "units"),
}
#: Why an argument of a smaller cache has no effect.
NOT_CUT = "has an effect only on a smaller cache, and the cache is not cut here"
#: Rounding errors of shares.
ROUNDING = 1e-6
#: Models that ``lose`` builds and measures.
TRIES = 6


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
    with_cuts: Sequence[Cut] = (),
    evidence: Evidence | None = None,
) -> Smaller:
    """Make a trained model smaller at the least predicted loss; nothing is trained.

    Each cut (fewer heads or feed-forward units, a narrower or rounded KV cache) has a price: the
    predicted loss in bits per target token.  ``shrink`` searches for the cheapest plan that meets
    all targets, applies it, and refits all blocks.

    Args:
        cache: share of the KV cache's bytes to keep (0 to 1), relative to 16-bit numbers.
        parameters: share of the parameters of all layers to keep, without embeddings.
        heads: share of the heads to keep.
        time: share of the seconds per translation to keep, as predicted from ``times``.
        lose: largest accepted rise of the loss on the validation set, in bits per target token:
            ``shrink`` measures several models and returns the smallest that loses no more.  It
            makes ``parameters`` as small as it can, or ``cache`` if ``only`` names just the cache.
        only: what may be cut: heads, units, cache; default: heads and units for ``parameters``,
            ``time`` and ``lose``, heads for ``heads``, the cache for ``cache``.
        kinds: kinds of heads to try for a smaller cache; the cheapest kind is taken.  They are
            latent, unchanged (the heads as they are, rounded), grouped-query, and collab (a shared
            key); default: the first two, for CTranslate2 grouped-query.
        cache_bits: bits per number in a smaller cache: 8, 4, or none; default: the cheapest ones.
        engine: engine that will run the model: fairseq; onnx for ONNX Runtime, which runs all cuts
            that fairseq runs; or ct2 for CTranslate2, for which equally many heads stay on each
            side, widths are multiples of 64, and no cache is rounded; with ``times``, theirs.
        times: measured times of the parts of the model, from :func:`collab_lab.time_parts`.
        subset, sentences: set, and number of sentences, for prices and the refit; default: 1,000
            of the training set.
        with_cuts: cuts of your own (see docs/own_cuts.md), in place of this project's of the same
            part: heads, units, or kinds of heads for the cache.
        evidence: evidence about ``cuttable(model)`` (:mod:`.cuttable`), which saves the pass.

    Raises:
        UserError: no plan meets the targets, or an argument is out of range or has no effect.
    """
    check_model(model)
    given = {"cache": cache, "parameters": parameters, "heads": heads, "time": time}
    if time is None:
        reject_unused("has an effect only with `time`", times=times)
    elif times is None:
        raise UserError("needs measured `times`", "`time`", "see collab_lab.time_parts")
    else:
        times.check(model)
        engine = times.engine
    shares = {name: share for name, share in given.items() if share is not None}
    allowed = allowed_cuts(shares, lose, only, kinds, cache_bits, engine, with_cuts)
    allowed = allowed._replace(times=times)
    model = cuttable(model)
    if evidence is not None:
        reject_unused("has no effect with `evidence`", subset=subset, sentences=sentences)
        evidence.check_of(model)
    # A missing set fails at once.
    valid = None if lose is None else sentences_of(model, "valid", None)
    sentences = 1000 if sentences is None else sentences
    found = evidence or Evidence.of(model, subset or "train", sentences, parts=allowed.parts)
    if valid is None:
        return cheapest_model(found, shares, allowed)
    return smallest(found, shares, smallest_in(allowed.parts), allowed, lose or 0.0, valid)


def cheapest_model(evidence: Evidence, shares: Mapping[str, float], allowed: Allowed) -> Smaller:
    """The smaller model of the cheapest plan."""
    smaller, model = apply_plan(evidence, propose(evidence, shares, allowed)), evidence.trained
    for name, share in shares.items():
        if smaller.shares[name] > share + ROUNDING:
            problem = f"the smaller model has {smaller.shares[name]:.1%} of the {name}"
            todo = "this is a fault of shrink: please report it"
            raise UserError(f"{problem}, not {share:.1%}", model.path, todo)
    plan = smaller.plan.to_json()
    plan["original"] = costs_of_original(model) or dict(smaller.plan.whole)
    return smaller._replace(model=smaller.model.with_plan(plan))


def costs_of_original(model: Trained) -> dict[str, int] | None:
    """The costs of the first original, if this model is itself the result of ``shrink``."""
    plan = plan_of(model.state)
    return None if plan is None else dict(plan.get("original", plan["whole"]))


def smallest(
    evidence: Evidence,
    shares: Mapping[str, float],
    resource: str,
    allowed: Allowed,
    lose: float,
    valid: Sequence[Mapping[str, Any]],
) -> Smaller:
    """Search by bisection, with :data:`TRIES` models, for the smallest that loses at most ``lose``.

    Args:
        resource: the cost to make small: parameters or cache.
        lose: largest rise of the loss, in bits per target token.
        valid: batches of the validation set, on which the loss is measured.
    """
    model = evidence.trained
    before, low, high = mean_bits(model.model, valid), 0.0, 1.0
    best: Smaller | None = None
    impossible = list[OutOfReachError]()
    for _ in bar("models", list(range(TRIES))):
        share = (low + high) / 2
        try:
            result = cheapest_model(evidence, {**shares, resource: share}, allowed)
        except OutOfReachError as error:  # no plan is so small
            impossible.append(error)
            low = share
            continue
        lost = mean_bits(result.model.model, valid) - before
        if lost <= lose:
            best, high = result._replace(lost=lost), share
        else:
            low = share
    if best is None:
        if len(impossible) == TRIES:  # whatever the share: another target cannot be met
            raise impossible[-1]
        problem = f"every smaller model that was measured loses more than {lose:g} bits"
        raise UserError(problem, model.path, "accept a larger loss")
    return best


# ---- arguments -----------------------------------------------------------------------------------


def allowed_cuts(
    shares: Mapping[str, float],
    lose: float | None,
    only: Sequence[str] | None,
    kinds: Sequence[str] | None,
    cache_bits: str | int | None,
    engine: str,
    own: Sequence[Cut] = (),
) -> Allowed:
    """What a plan may cut, according to the arguments of :func:`shrink`.

    It does not read the model, so that errors appear before the calibration pass.

    Raises:
        UserError: an argument is out of range or has no effect.
    """
    parts = chosen_parts(shares, lose, only)
    if engine not in ENGINES:
        raise UserError(f"{engine!r} must be one of {', '.join(ENGINES)}", "`engine`")
    check_own(own, parts, engine)
    kinds = chosen_kinds(kinds, parts, engine, own)
    if "cache" not in parts:
        reject_unused(NOT_CUT, cache_bits=cache_bits)
    if not ENGINES[engine].rounds:
        reject_unused(
            f"{ENGINES[engine].title} rounds no cache: leave it out", cache_bits=cache_bits
        )
    check(shares, lose, parts)
    if lose is not None and (resource := smallest_in(parts)) in shares:
        raise UserError(f"is what lose makes smallest: leave `{resource}` out", f"`{resource}`")
    bits = bits_of(cache_bits) if ENGINES[engine].rounds else (0,)
    return Allowed(parts, kinds, bits, engine, own=tuple(own))


def smallest_in(parts: Sequence[str]) -> str:
    """The resource that ``lose`` makes as small as possible."""
    return "cache" if tuple(parts) == ("cache",) else "parameters"


def chosen_parts(
    shares: Mapping[str, float], lose: float | None, only: Sequence[str] | None
) -> tuple[str, ...]:
    """The parts that may be cut, a selection of :data:`.shape.PARTS`."""
    asked = {part for name in shares for part in CUT_BY[name]}
    if lose is not None:
        asked |= {*CUT_BY["parameters"]}
    if only is not None:
        if unknown := sorted({*only} - {*PARTS}):
            raise UserError(f"{unknown[0]!r} must be one of {', '.join(PARTS)}", "`only`")
        asked = {*only}
    return tuple(part for part in PARTS if part in asked)


def bits_of(cache_bits: str | int | None) -> tuple[int, ...]:
    """The allowed bits per number in a smaller cache; 0: no rounding."""
    if cache_bits in (None, "auto"):
        return ANY_BITS
    allowed = {"none": 0, **{str(bits): bits for bits in BITS}}
    if str(cache_bits) not in allowed:
        problem = f"{cache_bits!r} must be one of auto, {', '.join(allowed)}"
        raise UserError(problem, "`cache_bits`")
    return (allowed[str(cache_bits)],)


def chosen_kinds(
    kinds: Sequence[str] | None, parts: Sequence[str], engine: str, own: Sequence[Cut] = ()
) -> tuple[str, ...] | None:
    """The kinds of heads to try for a smaller cache: ``plan.CACHE_CUTS`` and the user's."""
    if "cache" not in parts:
        reject_unused(NOT_CUT, kinds=kinds)
        return None
    of_own = {cut.name for cut in own if cut.part == "cache"}
    known = {*CACHE_CUTS, *of_own}
    if kinds is None:
        return None
    if not kinds:
        raise UserError("names no kind of heads", "`kinds`", "name one, or leave it out")
    if of_own and not of_own & {*kinds}:
        problem = "is not used, because `kinds` names others"
        raise UserError(problem, f"`with_cuts` {min(of_own)}", "name it there, or leave one out")
    if unknown := sorted({*kinds} - known):
        raise UserError(f"{unknown[0]!r} must be one of {', '.join(sorted(known))}", "`kinds`")
    for kind in kinds:
        if not all(engine in cut.engines for cut in CACHE_CUTS.get(kind, ())):
            usual = " or ".join(ENGINES[engine].kinds)
            raise UserError(f"{engine} does not support {kind} heads: give {usual}", "`kinds`")
    return tuple(kinds)


def check_own(own: Sequence[Cut], parts: Sequence[str], engine: str) -> None:
    """Raise UserError for a cut of the user that has no effect or that the engine lacks."""
    names = [cut.name for cut in own]
    for cut in own:
        if names.count(cut.name) > 1:
            problem = "is the name of several cuts: give each another one"
            raise UserError(problem, f"`with_cuts` {cut.name}")
        if cut.part not in parts:
            problem = f"cuts {cut.part}, and only {', '.join(parts)} may be cut"
            raise UserError(problem, f"`with_cuts` {cut.name}", "change the target or `only`")
        if cut.part == "cache" and cut.name in CACHE_CUTS:
            problem = "has the name of a kind of this project: give it another name"
            raise UserError(problem, f"`with_cuts` {cut.name}")
        if engine not in cut.engines:
            raise UserError(f"{engine} does not support this cut", f"`with_cuts` {cut.name}")


def check(shares: Mapping[str, float], lose: float | None, parts: Sequence[str]) -> None:
    """Raise UserError for a target that is out of range or that no allowed cut can change."""
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
        if not helps[name] & {*parts}:
            problem = f"no part that may be cut ({', '.join(parts)}) makes it smaller"
            raise UserError(problem, f"`{name}`")
    asked = {*shares} | ({smallest_in(parts)} if lose is not None else set())
    useless = {*parts}.difference(*(helps[name] for name in asked))
    for cut in sorted(useless):
        problem = f"no target needs {cut} to be cut"
        raise UserError(problem, "`only`", f"leave {cut} out, or give another target")
