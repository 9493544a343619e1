"""The target ``collab``: heads share ``K`` dimensions of queries and keys, by Cordonnier et al.

With ``--value-heads`` groups of heads share their values, too, as grouped-query heads do.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.convert import convert
from fairseq_collab.convert.calibrate import Moments
from fairseq_collab.convert.factorise import (
    Factors,
    Problem,
    factorise,
    relative_error_of,
    whiten,
    within_keys,
)
from fairseq_collab.convert.grouped import grouped_values, uneven
from fairseq_collab.convert.heads import Heads, Weighed, mixing_of
from fairseq_collab.convert.target import Converted, Target
from fairseq_collab.convert.tensorly_reference import tensorly_factors
from fairseq_collab.models.layers import SITES
from fairseq_collab.models.variants import COLLABORATIVE
from fairseq_collab.trained.attentions import Attention

#: Options of single sites end like this.
IN_SITES = tuple(f"_in_{site}" for site in SITES)


def own_factors(module: Any) -> tuple[Tensor, Tensor, Tensor] | None:
    """Shared queries, keys and mixing of collaborative heads; None of others, which have none."""
    if not isinstance(module, CollaborativeAttention):
        return None
    query, key = (part.weight.detach().double() for part in (module.q_proj, module.k_proj))
    return query, key, mixing_of(module)


@dataclass(frozen=True)
class Part:
    """One attention to factorise, as a problem in two metrics.

    Attributes:
        scores: the problem in the metric of the logits; None without calibration sentences.
        logits: root mean square of the centred logits, over all heads; likewise.
        query_mean: ``(d)``, of the queries' inputs; likewise.
        shared: the heads whose values are to be shared; None if none are.
    """

    problem: Problem
    scores: Problem | None = None
    logits: float | None = None
    query_mean: Tensor | None = None
    shared: Weighed | None = None

    def logit_error(self, factors: Factors, gone: Tensor) -> float | None:
        """Root mean square of what the centred logits lose on the calibration sentences, over that
        of the logits; None without any.

        Factors lose what varies with the query, content biases that are ``gone (H, d_y)`` the rest.
        """
        if self.scores is None or self.logits is None:
            return None
        energy = float(self.scores.slices.energy())
        lost = energy * relative_error_of(self.scores, factors) ** 2 if energy else 0.0
        lost += float(whiten(gone, self.scores.key_root).square().sum())
        return lost**0.5 / self.logits if self.logits else 0.0


class Collaborative(Target):
    """Collaborative heads; their scale is exact whatever that of the trained heads is."""

    variant = COLLABORATIVE
    heads = "collaborative heads"
    size, what = "key_dim", "key dimension"
    even = ("values",)

    def __init__(self, args: Namespace):
        super().__init__(args)
        self.options = {"attention_scale": "embed", "attention_bias": "content"}
        if args.value_heads is None:
            self.changed = ("q_proj.weight", "k_proj.weight")
            self.inherited = tuple(f"value_heads{site}" for site in ("", *IN_SITES))
        else:
            self.options["value_heads"] = args.value_heads

    def check(self, place: Attention, path: Path) -> None:
        groups, module = self.args.value_heads, place.module
        if groups is None:
            return
        if todo := uneven(module.num_heads, groups):
            what = f"{place}: number of value heads {groups} is out of range"
            raise UserError(what, path, todo)
        own = getattr(module, "value_heads", module.num_heads)
        if own < module.num_heads:
            what = f"{place}: its heads share {own} values already"
            raise UserError(what, path, "leave --value-heads out: they stay")

    @staticmethod
    def largest(module: Any) -> int:
        # More dimensions than all heads have would buy nothing.
        return int(module.q_proj.out_features)

    @classmethod
    def kept(cls, module: Any) -> int:
        return cls.largest(module) if cls.converts(module) else 0

    @staticmethod
    def converts(module: Any) -> bool:
        # Scale and kind of bias are those of all attentions of a model.
        return isinstance(module, CollaborativeAttention)

    def part(self, module: Any, seen: Moments | None) -> Part:
        heads = Heads.of(module)
        weighting, shares = self.args.weighting, self.args.value_heads is not None
        shared = Weighed.of(module, seen, weighting) if shares else None

        def problem(seen_by: str) -> Problem:
            metrics = (None, None) if seen is None else seen.metrics(seen_by)
            return Problem(heads.wq, heads.wk, *metrics, own_factors(module))

        if seen is None:
            return Part(problem(weighting), shared=shared)
        keys, _ = heads.projections(seen, "scores")
        logits = float(torch.linalg.vector_norm(keys.rows()))
        return Part(problem(weighting), problem("scores"), logits, seen.query_mean, shared)

    def factors(self, problem: Problem, key_dim: int) -> Factors:
        """Factors of one attention with the chosen method."""
        args = self.args
        if args.method == "tensorly":
            return tensorly_factors(problem, key_dim, seed=args.seed)
        if args.method == "block":
            return factorise(problem, key_dim, max_steps=0, blocks=True)
        return factorise(
            problem, key_dim, max_steps=args.steps, restarts=args.restarts, seed=args.seed
        )

    def convert(self, module: Any, part: Part, size: int) -> Converted:
        """Errors are those of :class:`.Factors`, of the start and of the result, in the metric that
        was minimised, and of :meth:`Part.logit_error`."""
        problem, heads = part.problem, Heads.of(module)
        factors = self.factors(problem, size)
        wanted = content = convert.content_biases(heads, problem, factors, part.query_mean)
        if self.args.exportable:  # those that ordinary heads can have at K = d/H
            content = within_keys(problem, factors, wanted)
        weights = convert.collaborative_weights(module, factors, content)
        fit = {
            "start_error": factors.start_error,
            "error": factors.error,
            "logit_error": part.logit_error(factors, wanted - content),
            "steps": factors.steps,
        }
        if part.shared is not None:
            heads, values = grouped_values(part.shared, self.args.value_heads, self.args.pooling)
            state = heads.state(module.q_proj.weight)
            weights |= {name: state[name] for name in state if name.startswith(("v_", "out_"))}
            fit["value_error"] = part.shared.values.relative_error(values)
        return weights, fit
