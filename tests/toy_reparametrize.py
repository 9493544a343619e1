"""Trained models to convert, built in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import toy
from parity.test_prune_parity import trained as in_memory

from collab_lab.cli.reparametrize import build_parser
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.shrinking.apply import apply_cuts
from collab_lab.shrinking.by_hand import CONVERSIONS, conversion
from collab_lab.shrinking.cut import NewHeads, reject
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.one_copy import OneCopy, with_cross_attention
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.price_list import Point
from collab_lab.shrinking.shape import costs
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained

HERE = Path("model.pt")


def target_of(*options: str) -> NewHeads:
    """What the command's options ask for."""
    args = build_parser().parse_args(["x", "--out=y", *options])
    if args.to == "collab":
        return SharedKey(args.query_mixing or "own")
    return CONVERSIONS[args.to]()


TARGET = SharedKey()


def trained(arch: str, target: NewHeads | None = TARGET, **options: Any) -> Trained:
    """A model of ``arch`` in double precision, all of whose weights are random."""
    found = in_memory(arch, separate=False, **options)
    with torch.no_grad():  # layer norms, too, which are zeros and ones at first
        for parameter in found.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    if target is not None:
        check(found, target)
    return found


def check(found: Trained, target: NewHeads) -> None:
    """Reject a model that cannot be converted."""
    reject(found, [target], f"cannot be converted to {target.kind.heads_name}")


class Conversions:
    """Conversions of one model by a cut.

    Args:
        statistics: of all its attentions; without them all directions of the weights count equally.
    """

    def __init__(
        self, found: Trained, cut: NewHeads, statistics: Mapping[Attention, Statistics] | None
    ):
        check(found, cut)
        self.model, self.cut = found, cut
        self.evidence = Evidence(found, attentions=statistics or {})
        self.evidence.check_caches()
        heads = [a for a in attentions(found.model) if a.module.num_heads]
        self.attentions: dict[Attention, PricedAttention] = {
            a: self.evidence.whole_attention(a) for a in heads
        }
        self.crossing = with_cross_attention(heads)

    def convert(
        self,
        sizes: Mapping[Attention, int],
        bits: Mapping[Attention, int] | None = None,
        shared: bool = False,
    ) -> tuple[Trained, dict[Attention, float]]:
        """The model with new heads, and the prices of what changed.

        Args:
            shared: whether all cross-attentions have one latent.
        """
        crossing = {a: size for a, size in sizes.items() if shared and a.type == "cross"}
        given: dict[NewHeads, dict[Attention, int]] = {
            self.cut: {a: size for a, size in sizes.items() if a not in crossing}
        }
        given |= {OneCopy(): crossing} if crossing else {}
        model, plan = apply_cuts(self.evidence, conversion(self.model, given, bits or {}))
        changed = {*sizes, *(bits or {})}
        return model, {a: price for a, price in plan.of_sites.items() if a in changed}

    def curve(self, attention: Attention) -> list[Point]:
        """An attention as it is, and at all sizes, with all bits."""
        offers = [*Bits().offers(attention, self.evidence)]
        offers += self.cut.offers(attention, self.evidence)
        return [
            Point(shape.size, *costs(attention, shape)[:2], price, shape.bits)
            for shape, price in offers
        ]


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
    result, prices = Conversions(found, target_of(*options), None).convert(sizes)
    return result.model, prices
