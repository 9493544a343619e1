"""What the options of ``fairseq-collab reparametrize`` ask for: which attentions of a model become
collaborative, with how many dimensions; and the work itself, of the whole model.
"""

from __future__ import annotations

import time
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import bar, say
from fairseq_collab.checkpoints.attentions import Attention, attentions
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.reparametrize import calibrate, convert
from fairseq_collab.checkpoints.reparametrize.factorise import (
    Factors,
    Problem,
    factorise,
    relative_error_of,
)
from fairseq_collab.checkpoints.reparametrize.tensorly_reference import tensorly_factors
from fairseq_collab.metrics.model_bleu import bleu
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import named_sites, one_a_layer

# ---- what the options say ------------------------------------------------------------------------


def chosen_dims(args: Namespace, trained: Trained) -> dict[Attention, int]:
    """The key dimension of every attention as the options give them, without those left alone.

    Empty where the options give a budget instead.

    Raises:
        UserError: one is out of range, or fits no layer.
    """
    lists = {site: _listed(site, args, len(found)) for site, found in trained.attentions.items()}
    if args.key_dim is None and not any(lists.values()):
        return {}
    dims = {}
    for place in chosen_places(args, trained):
        listed = lists[place.site]
        given = listed[place.layer] if listed else args.key_dim
        if given is None:
            todo = f"give --key-dim-in-{place.site} or --key-dim"
            raise UserError(f"no key dimension for {place}", trained.path, todo)
        if listed and given == 0:
            continue
        # More dimensions than all heads have would buy nothing.
        largest = place.module.q_proj.out_features
        if not 1 <= given <= largest:
            todo = f"give one from 1 to {largest}, which is exact"
            raise UserError(f"{place}: key dimension {given} is out of range", trained.path, todo)
        dims[place] = given
    if not dims:
        raise UserError("no attention is left to re-parametrise", trained.path, "choose some")
    for place in attentions(trained.model):
        size = place.module.q_proj.out_features
        if place not in dims and size != place.module.embed_dim:  # the only size that fits there
            size //= place.module.num_heads
            what = f"{place}: heads of size {size} cannot be left as they are"
            raise UserError(what, trained.path, "give a key dimension for them, too")
    return dims


def chosen_places(args: Namespace, trained: Trained) -> list[Attention]:
    """The attentions of the chosen sites."""
    try:
        sites = named_sites("--sites", args.sites, or_none=True)
    except ValueError as error:
        raise UserError(str(error)) from error
    found = trained.attentions
    places = [place for site in sites for place in found[site]]
    if not places:
        has = f"it has {', '.join(site for site in SITES if found[site])}"
        raise UserError("the model has no such attention", f"--sites {args.sites}", has)
    return places


def _listed(site: Site, args: Namespace, layers: int) -> list[int] | None:
    option, text = f"--key-dim-in-{site}", getattr(args, f"key_dim_in_{site}")
    if text is not None and not layers:
        raise UserError("the model has no such attention", option, "leave the option out")
    try:
        return one_a_layer(option, text, layers, least=0)
    except ValueError as error:
        raise UserError(str(error)) from error


# ---- the work ------------------------------------------------------------------------------------


def smallest(largest: int, good: Callable[[int], bool]) -> int:
    """The smallest ``K`` in ``1 .. largest`` with ``good(K)``, if goodness grows with ``K``.

    ``largest`` is taken to be good (``K = H h`` is exact) and never asked for.  Where goodness does
    not quite grow with ``K``, the result is still good, and ``K - 1`` was not, or is 0.
    """
    return 1 + bisect_left(range(1, largest), True, key=good)


@dataclass(frozen=True)
class Part:
    """One attention to factorise, as a problem in two metrics.

    Attributes:
        scores: the problem in the metric of the logits; None without calibration sentences.
        query_mean: ``(d)``, of the queries' inputs; likewise.
    """

    problem: Problem
    scores: Problem | None = None
    query_mean: Tensor | None = None

    def logit_error(self, factors: Factors) -> float | None:
        """Root mean square of what the centred logits lose on the calibration sentences, over that
        of the logits; None without any."""
        return None if self.scores is None else relative_error_of(self.scores, factors)


class Reparametrizer:
    """Factorises attentions of one model, with the options of the command."""

    def __init__(self, trained: Trained, args: Namespace, places: Sequence[Attention]):
        self.trained, self.args = trained, args
        self.parts: dict[Attention, Part] = {}
        self.inputs: list[dict[str, Any]] = []
        moments: Mapping[Attention, calibrate.Moments] = {}
        if args.calibration:
            self.inputs = calibrate.sentences(trained, args.subset, args.calibration)
            moments = calibrate.moments(trained, self.inputs, places)
        for place in places:
            wq, wk, _ = convert.head_weights(place.module)
            if seen := moments.get(place):
                problem = Problem(wq, wk, *seen.metrics(args.weighting))
                scores = Problem(wq, wk, *seen.metrics("scores"))
                self.parts[place] = Part(problem, scores, seen.query_mean)
            else:
                self.parts[place] = Part(Problem(wq, wk))

    def factors(self, part: Part, key_dim: int) -> Factors:
        """Factors of one attention with the chosen method."""
        args = self.args
        if args.method == "tensorly":
            return tensorly_factors(part.problem, key_dim, seed=args.seed)
        steps = 0 if args.method == "block" else args.steps
        return factorise(
            part.problem, key_dim, max_steps=steps, restarts=args.restarts, seed=args.seed
        )

    def model(self, key_dims: Mapping[Attention, int]) -> tuple[Trained, list[dict[str, Any]]]:
        """The result, and how well each attention was factorised.

        Errors are those of :class:`.Factors`, of the start and of the result, in the metric that
        was minimised, and of :meth:`Part.logit_error`.
        """
        weights, fits = {}, []
        for place, key_dim in bar("attentions", list(key_dims.items())):
            part, began = self.parts[place], time.perf_counter()
            factors = self.factors(part, key_dim)
            weights[place] = convert.collaborative_weights(
                place.module, part.problem, factors, part.query_mean, self.args.exportable
            )
            fits.append(
                {
                    "site": place.site,
                    "layer": place.layer,
                    "key_dim": key_dim,
                    "start_error": factors.start_error,
                    "error": factors.error,
                    "logit_error": part.logit_error(factors),
                    "steps": factors.steps,
                    "seconds": round(time.perf_counter() - began, 3),
                }
            )
        return convert.with_collaborative(self.trained, weights), fits

    def within_error(self, budget: float) -> dict[Attention, int]:
        """The smallest key dimension of each attention whose logit error is at most ``budget``."""

        def good(part: Part, key_dim: int) -> bool:
            error = part.logit_error(self.factors(part, key_dim))
            return error is not None and error <= budget

        return {
            place: smallest(part.problem.largest_key_dim, partial(good, part))
            for place, part in bar("budget", [*self.parts.items()])
        }

    def within_bleu(self, drop: float) -> dict[Attention, int]:
        """One key dimension for all attentions, the smallest that loses at most ``drop`` BLEU."""
        task, subset = self.trained.task, self.args.bleu_subset
        translate = partial(bleu, task=task, subset=subset, progress=partial(bar, "translation"))
        whole = translate(self.trained.model)
        largest = {place: part.problem.largest_key_dim for place, part in self.parts.items()}

        def dims(key_dim: int) -> dict[Attention, int]:
            return {place: min(key_dim, most) for place, most in largest.items()}

        def good(key_dim: int) -> bool:
            found = translate(self.model(dims(key_dim))[0].model.to(self.args.device))
            say(f"key dimension {key_dim}: {found:.2f} BLEU, {found - whole:+.2f}")
            return found >= whole - drop

        say(f"{self.trained.path}: {whole:.2f} BLEU on {subset}")
        return dims(smallest(max(largest.values()), good))
