"""Trained models to convert, built in memory."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import toy
import toy_language_models
from fairseq.models import build_model
from omegaconf import OmegaConf

from fairseq_collab.commands.reparametrize import build_parser
from fairseq_collab.convert import calibrate, conversion
from fairseq_collab.convert.base import Part, Target
from fairseq_collab.convert.conversion import Reparametrizer
from fairseq_collab.convert.kinds import TARGETS, Collaborative
from fairseq_collab.trained.attentions import Attention
from fairseq_collab.trained.opener import Trained

HERE = Path("model.pt")


def arguments(*options: str) -> Namespace:
    """Of the command, without calibration unless told otherwise."""
    return build_parser().parse_args(["x", "--out=y", "--calibration=0", *options])


TARGET = Collaborative(arguments())


def trained(arch: str, target: Target = TARGET, **options: Any) -> Trained:
    """A model of ``arch`` in double precision, all of whose weights are random."""
    symbols = toy_language_models.task()
    if "_lm" in arch:
        given = toy_language_models.language_model_options(arch, **options)
    else:
        given, symbols = {**toy.SIZES, **options}, toy.task()
    torch.manual_seed(1)
    model: Any = toy.build(arch, symbols, given).double().eval()
    with torch.no_grad():  # biases and layer norms, too, which are zeros and ones at first
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    symbols.build_model = lambda cfg: build_model(cfg, symbols)
    cfg = {"model": Namespace(_name=arch, **given)}
    state = {"cfg": OmegaConf.create(cfg, flags={"allow_objects": True})}
    found = Trained(HERE, state, model, symbols)
    conversion.check(found, target)
    return found


def inputs(found: Trained) -> dict[str, torch.Tensor]:
    """A batch with padding for the model's kind."""
    batch = toy.batch(found.task)
    if found.attentions["cross"]:
        return batch
    return {"src_tokens": batch["prev_output_tokens"]}


def converted(
    found: Trained, sizes: dict[Attention, int], *options: str, seen: bool = False
) -> tuple[Any, list[dict[str, Any]]]:
    """The model that the command's ``options`` make, and its errors.

    Args:
        seen: errors are weighted by what the attentions read of :func:`inputs`.
    """
    work = Reparametrizer(found, arguments(*options), list(sizes))
    if seen:
        moments = calibrate.moments(found, [inputs(found)], list(work.parts))
        work.parts = {place: Part(place.module, one) for place, one in moments.items()}
    result, fits = work.model(sizes)
    return result.model, fits


def target_of(*options: str) -> Target:
    args = arguments(*options)
    return TARGETS[args.to](args)
