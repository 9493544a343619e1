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
from torch import nn

from fairseq_collab.checkpoints.reparametrize import convert, source
from fairseq_collab.checkpoints.reparametrize.factorise import Factors, Problem, factorise
from fairseq_collab.checkpoints.reparametrize.source import Place, Source

HERE = Path("model.pt")


def trained(arch: str, **options: Any) -> Source:
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
    attentions = source.find_attentions(model)
    for place, module in attentions.items():
        source.check_attention(place, module, HERE)
    source.check_head_counts(attentions, HERE)
    return Source(HERE, state, model, symbols, source.target_arch(model, HERE), attentions)


def randomise(model: nn.Module) -> None:
    """Biases and layer norms, too, which are zeros and ones at first."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def converted(
    found: Source, key_dims: dict[Place, int], mean: torch.Tensor | None = None
) -> tuple[Any, dict[Place, Factors]]:
    """The collaborative model in place of ``found``, and the factors of each attention."""
    weights, factors = {}, {}
    for place, key_dim in key_dims.items():
        module = found.attentions[place]
        wq, wk, _ = convert.head_weights(module)
        problem = Problem(wq, wk)
        factors[place] = factorise(problem, key_dim, max_steps=3)
        weights[place] = convert.collaborative_weights(module, problem, factors[place], mean)
    cfg = convert.target_config(found, key_dims)
    return convert.target_model(found, cfg, weights), factors


def full(found: Source) -> dict[Place, int]:
    """The key dimensions that are exact."""
    return {place: module.q_proj.out_features for place, module in found.attentions.items()}


def inputs(found: Source) -> dict[str, torch.Tensor]:
    """A batch with padding for the model's kind."""
    batch = toy.batch(found.task)
    if any(place.site == "cross" for place in found.attentions):
        return batch
    if found.arch == "roberta_collab":
        return {"src_tokens": batch["src_tokens"]}
    return {"src_tokens": batch["prev_output_tokens"]}
