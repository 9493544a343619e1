"""Trained models to re-parametrise, built in memory."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import toy
import toy_language_models
from fairseq.models import build_model
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_collab.commands.reparametrize import build_parser
from fairseq_collab.convert import calibrate, convert, source
from fairseq_collab.convert.collaborative import Collaborative, own_factors
from fairseq_collab.convert.factorise import Factors, Problem, factorise
from fairseq_collab.convert.heads import Heads
from fairseq_collab.convert.target import Target
from fairseq_collab.convert.work import Reparametrizer
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

HERE = Path("model.pt")
#: Collaborative heads, as the command makes them without further options.
TARGET = Collaborative(build_parser().parse_args(["x", "--out=y"]))


def trained(arch: str, target: type[Target] = Collaborative, **options: Any) -> Trained:
    """A model of ``arch`` in double precision, all of whose weights are random."""
    symbols = toy_language_models.task()
    if "roberta" in arch:
        given = toy_language_models.roberta_options(**options)
    elif "_lm" in arch:
        given = toy_language_models.language_model_options(arch, **options)
    else:
        given, symbols = {**toy.SIZES, **options}, toy.task()
    torch.manual_seed(1)
    model: Any = toy.build(arch, symbols, given).double().eval()
    randomise(model)
    symbols.build_model = lambda cfg: build_model(cfg, symbols)
    cfg = {"model": Namespace(_name=arch, **given)}
    state = {"cfg": OmegaConf.create(cfg, flags={"allow_objects": True})}
    found = Trained(HERE, state, model, symbols)
    source.check(found, target(build_parser().parse_args(["x", "--out=y"])))
    return found


def randomise(model: nn.Module) -> None:
    """Biases and layer norms, too, which are zeros and ones at first."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def converted(
    found: Trained, key_dims: dict[Attention, int], mean: torch.Tensor | None = None
) -> tuple[Any, dict[Attention, Factors]]:
    """The collaborative model in place of ``found``, and the factors of each attention."""
    weights, factors = {}, {}
    for place, key_dim in key_dims.items():
        heads = Heads.of(place.module)
        problem = Problem(heads.wq, heads.wk, own=own_factors(place.module))
        factors[place] = factorise(problem, key_dim, max_steps=3)
        content = convert.content_biases(heads, problem, factors[place], mean)
        weights[place] = convert.collaborative_weights(place.module, factors[place], content)
    return convert.with_heads(found, TARGET, weights, key_dims).model, factors


def full(found: Trained) -> dict[Attention, int]:
    """The key dimensions that are exact."""
    return {place: place.module.q_proj.out_features for place in attentions(found.model)}


def inputs(found: Trained) -> dict[str, torch.Tensor]:
    """A batch with padding for the model's kind."""
    batch = toy.batch(found.task)
    if found.attentions["cross"]:
        return batch
    if found.attentions["encoder"]:
        return {"src_tokens": batch["src_tokens"]}
    return {"src_tokens": batch["prev_output_tokens"]}


def shared(
    found: Trained,
    sizes: dict[Attention, int],
    *options: str,
    seen: bool = False,
    read: Tensor | None = None,
) -> tuple[Any, list[dict[str, Any]]]:
    """The model that the command's ``options`` (``--to ...``) make, and how well it fits.

    Args:
        seen: errors are weighted by what the attentions read of :func:`inputs`.
        read: ``(N, d)``; by these inputs of queries, keys and values.
    """
    args = build_parser().parse_args(["x", "--out=y", "--calibration=0", *options])
    work = Reparametrizer(found, args, list(sizes))
    moments: dict[Attention, calibrate.Moments] = {}
    if seen:
        moments = calibrate.moments(found, [inputs(found)], list(sizes))
    if read is not None:
        sums = calibrate.Sums()
        sums.add(read)
        mean, covariance = sums.mean(), sums.covariance()
        all_of_it = calibrate.Moments(mean, covariance, covariance, mean, covariance)
        moments = dict.fromkeys(sizes, all_of_it)
    for place, one in moments.items():
        work.parts[place] = work.target.part(place.module, one)
    result, fits = work.model(sizes)
    return result.model, fits
