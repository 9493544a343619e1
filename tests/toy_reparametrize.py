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

from fairseq_collab.reparametrize import convert, source
from fairseq_collab.reparametrize.factorise import Factors, Problem, factorise
from fairseq_collab.reparametrize.source import Place, Source

HERE = Path("model.pt")


def trained(arch: str, **options: Any) -> Source:
    """A model of ``arch`` in double precision, all of whose weights are random."""
    if "roberta" in arch:
        build, sizes = toy_language_models.roberta, {"max_positions": toy_language_models.LENGTH}
        sizes |= {f"encoder_{name}": value for name, value in toy_language_models.SIZES.items()}
        symbols = toy_language_models.task()
    elif "_lm" in arch:
        build, symbols = toy_language_models.language_model, toy_language_models.task()
        sizes = {f"decoder_{name}": value for name, value in toy_language_models.SIZES.items()}
        sizes |= {
            "decoder_input_dim": 16,
            "decoder_output_dim": 16,
            "tokens_per_sample": toy_language_models.LENGTH,
            "max_target_positions": toy_language_models.LENGTH,
            "add_bos_token": False,
            "tpu": False,
        }
    else:
        build, sizes, symbols = toy.model, dict(toy.SIZES), toy.task()
    torch.manual_seed(1)
    model: Any = build(arch, symbols, **options).double().eval()
    randomise(model)
    symbols.build_model = lambda cfg: build_model(cfg, symbols)
    cfg = {"model": Namespace(_name=arch, **{**sizes, **options})}
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
