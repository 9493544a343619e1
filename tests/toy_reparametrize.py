"""Trained models to convert, built in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import toy
from parity.test_prune_parity import trained as in_memory

from collab_lab.cli.reparametrize import build_parser
from collab_lab.shrinking.converter import Converter, check
from collab_lab.shrinking.kinds import HEAD_KINDS, Collaborative, HeadKind
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained

HERE = Path("model.pt")


def target_of(*options: str) -> HeadKind:
    """What the command's options ask for."""
    args = build_parser().parse_args(["x", "--out=y", *options])
    if args.to == "collab":
        return Collaborative(args.query_mixing or "own")
    return HEAD_KINDS[args.to]()


TARGET = Collaborative()


def trained(arch: str, target: HeadKind | None = TARGET, **options: Any) -> Trained:
    """A model of ``arch`` in double precision, all of whose weights are random."""
    found = in_memory(arch, separate=False, **options)
    with torch.no_grad():  # layer norms, too, which are zeros and ones at first
        for parameter in found.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    if target is not None:
        check(found, target)
    return found


def inputs(found: Trained) -> dict[str, torch.Tensor]:
    """A batch with padding for the model's kind."""
    batch = toy.batch(found.task)
    if found.attentions["cross"]:
        return batch
    return {"src_tokens": batch["prev_output_tokens"]}


def batch(found: Trained) -> dict[str, Any]:
    """:func:`inputs` with targets; only the padding of the targets matters."""
    net_input = inputs(found)
    previous = net_input.get("prev_output_tokens", net_input["src_tokens"])
    return {"net_input": net_input, "target": previous.roll(-1, 1).where(previous.ne(1), 1)}


def converted(
    found: Trained, sizes: dict[Attention, int], *options: str
) -> tuple[Any, dict[Attention, float]]:
    """The model that the command's ``options`` make, and its prices: all directions count."""
    result, prices = Converter(found, target_of(*options), None).convert(sizes)
    return result.model, prices
