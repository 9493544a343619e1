"""Factorises all attentions of one model, and puts the result together."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from collab_common.progress import bar, say
from fairseq_collab.checkpoints.reparametrize import calibrate, convert
from fairseq_collab.checkpoints.reparametrize.factorise import (
    Factors,
    Problem,
    factorise,
    relative_error_of,
)
from fairseq_collab.checkpoints.reparametrize.search import smallest
from fairseq_collab.checkpoints.reparametrize.source import Place, Source
from fairseq_collab.checkpoints.reparametrize.tensorly_reference import tensorly_factors
from fairseq_collab.metrics.model_bleu import bleu


@dataclass(frozen=True)
class Fit:
    """How well one attention was factorised.

    Attributes:
        start_error, error: relative errors of the block start and of the result, in the metric
            that was minimised.
        logit_error: root mean square of what the centred logits lose, over that of the logits, on
            the calibration sentences; None without any.
    """

    site: str
    layer: int
    key_dim: int
    start_error: float | None
    error: float
    logit_error: float | None
    steps: int
    seconds: float


@dataclass(frozen=True)
class Part:
    """One attention to factorise: the module, and its problem in two metrics.

    Attributes:
        scores: the problem in the metric of the logits; None without calibration sentences.
        query_mean: ``(d)``, of the queries' inputs; likewise.
    """

    module: Any
    problem: Problem
    scores: Problem | None
    query_mean: Tensor | None


class Reparametrizer:
    """Factorises the attentions of one model, with the options of the command."""

    def __init__(self, found: Source, args: Namespace, places: Sequence[Place]):
        self.source, self.args = found, args
        self.parts: dict[Place, Part] = {}
        self.inputs: list[dict[str, Any]] = []
        moments: Mapping[Place, calibrate.Moments] = {}
        if args.calibration:
            self.inputs = calibrate.sentences(found, args.subset, args.calibration)
            moments = calibrate.moments(found, self.inputs, partial(bar, "calibration"))
        for place in places:
            module = found.attentions[place]
            wq, wk, _ = convert.head_weights(module)
            if place in moments:
                seen = moments[place]
                problem = Problem(wq, wk, *seen.metrics(args.weighting))
                scores = Problem(wq, wk, *seen.metrics("scores"))
                self.parts[place] = Part(module, problem, scores, seen.query_mean)
            else:
                self.parts[place] = Part(module, Problem(wq, wk), None, None)

    @property
    def places(self) -> list[Place]:
        return list(self.parts)

    def factors(self, place: Place, key_dim: int) -> Factors:
        """Factors of one attention with the chosen method."""
        problem, args = self.parts[place].problem, self.args
        if args.method == "tensorly":
            return tensorly_factors(problem, key_dim, seed=args.seed)
        steps = 0 if args.method == "block" else args.steps
        return factorise(problem, key_dim, max_steps=steps, restarts=args.restarts, seed=args.seed)

    def logit_error(self, place: Place, factors: Factors) -> float | None:
        scores = self.parts[place].scores
        return None if scores is None else relative_error_of(scores, factors)

    def within(self, place: Place, budget: float) -> int:
        """The smallest key dimension whose logit error is at most ``budget``."""

        def good(key_dim: int) -> bool:
            error = self.logit_error(place, self.factors(place, key_dim))
            return error is not None and error <= budget

        return smallest(1, self.parts[place].problem.largest_key_dim, good)

    def model(self, key_dims: Mapping[Place, int]) -> tuple[Any, Any, list[Fit]]:
        """The result's configuration, the model, and the fit of each attention."""
        weights, fits = {}, []
        for place, key_dim in bar("attentions", list(key_dims.items())):
            part, began = self.parts[place], time.perf_counter()
            factors = self.factors(place, key_dim)
            weights[place] = convert.collaborative_weights(
                part.module, part.problem, factors, part.query_mean, self.args.exportable
            )
            fits.append(
                Fit(
                    place.site,
                    place.layer,
                    key_dim,
                    factors.start_error,
                    factors.error,
                    self.logit_error(place, factors),
                    factors.steps,
                    round(time.perf_counter() - began, 3),
                )
            )
        cfg = convert.target_config(self.source, key_dims)
        return cfg, convert.target_model(self.source, cfg, weights), fits

    def within_bleu(self, drop: float) -> dict[Place, int]:
        """One key dimension for all attentions, the smallest that loses at most ``drop`` BLEU."""
        task, subset = self.source.task, self.args.bleu_subset
        translate = partial(bleu, task=task, subset=subset, progress=partial(bar, "translation"))
        whole = translate(self.source.model)
        largest = max(part.problem.largest_key_dim for part in self.parts.values())

        def dims(key_dim: int) -> dict[Place, int]:
            return {p: min(key_dim, x.problem.largest_key_dim) for p, x in self.parts.items()}

        def good(key_dim: int) -> bool:
            found = translate(self.model(dims(key_dim))[1].to(self.args.device))
            say(f"key dimension {key_dim}: {found:.2f} BLEU, {found - whole:+.2f}")
            return found >= whole - drop

        say(f"{self.source.path}: {whole:.2f} BLEU on {subset}")
        return dims(smallest(1, largest, good))
