"""Pairs of heads: against derivatives of factors of their outputs, in double precision."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from toy_heads import build, sample
from toy_language_models import language_model

from collab_lab.analysis.attention_weights import head_outputs
from collab_lab.metrics.loss import predicted, read_by_decoder, summed_loss
from collab_lab.pricing.bits import head_prices
from collab_lab.pricing.statistics import collect
from collab_lab.pruning.choices import removals
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained

pytestmark = pytest.mark.usefixtures("float64")

PAD = toy.dictionary().pad()


def batches(is_language_model: bool = False) -> list[dict[str, Any]]:
    """Two batches with padding; sources are longer than targets."""
    found = [sample(), sample(0)]
    for one in found if is_language_model else []:
        one["net_input"] = {"src_tokens": one["net_input"]["prev_output_tokens"]}
    return found


def factor(attention: Attention, mean: Any, factors: dict[Attention, Any]) -> Any:
    """Multiply outputs of heads less their ``mean`` by ``factors (T, B, H, 1)``, which are 1."""

    def before(module: Any, args: Any) -> Any:
        heads = args[0].unflatten(2, (attention.module.num_heads, -1))
        factors[attention] = torch.ones_like(heads[..., :1], requires_grad=True)
        average = mean.view(attention.module.num_heads, -1)
        return ((average + factors[attention] * (heads - average)).flatten(2),)

    return attention.module.out_proj.register_forward_pre_hook(before)


def naive_pairs(model: Any, samples: list[dict[str, Any]]) -> dict[Attention, Any]:
    """``M``: second moments of derivatives, one query after another, and the same labels."""
    outputs: dict[Attention, list[Any]] = {one: [] for one in attentions(model)}
    for batch in samples:
        with torch.no_grad(), head_outputs(model) as seen:
            model(**batch["net_input"])
        for one, output in seen.items():
            source = one.type == "encoder"
            tokens = batch["net_input"]["src_tokens"] if source else read_by_decoder(batch)
            outputs[one].append(output.detach()[tokens.ne(PAD).T])
    means = {one: torch.cat(parts).mean(0) for one, parts in outputs.items()}
    chance, targets = torch.Generator().manual_seed(1), 0
    pairs = {one: torch.zeros(one.module.num_heads, one.module.num_heads) for one in means}
    for batch in samples:
        factors: dict[Attention, Any] = {}
        with torch.enable_grad(), head_outputs(model), ExitStack() as hooks:
            for one, mean in means.items():
                hooks.enter_context(factor(one, mean, factors))
            loss = summed_loss(model, batch, chance)
        for one, gradient in zip(
            factors, torch.autograd.grad(loss, [*factors.values()]), strict=True
        ):
            for derivative in gradient.flatten(0, 1)[..., 0]:  # (H)
                pairs[one] += torch.outer(derivative, derivative)
        targets += int(predicted(model.decoder, batch["target"]).sum())
    return {one: sums / targets for one, sums in pairs.items()}


@pytest.mark.parametrize("kind", ["stock", "sizes", "gated", "shared keys", "latent", "lm"])
def test_pairs_are_second_moments_of_derivatives(kind: str) -> None:
    """Sums per target token, in the encoder, too; the sampled labels are fixed by the seed."""
    if kind == "lm":
        torch.manual_seed(1)
        model: Any = toy.randomised(language_model("transformer_lm_headsize_n").eval(), 0.3)
    else:
        model = build(kind)
    samples = batches(kind == "lm")
    trained = Trained(Path("model.pt"), {}, model, Namespace(source_dictionary=toy.dictionary()))
    found, expected = collect(trained, samples), naive_pairs(model, samples)
    assert {*found} == {*expected}
    for one, statistics in found.items():
        torch.testing.assert_close(statistics.head_fisher, expected[one], rtol=1e-7, atol=1e-12)
        assert (head_prices(expected[one]) > 0).all()
    pairs = {one: statistics.head_fisher for one, statistics in found.items()}
    alone = sorted(price for of in pairs.values() for price in head_prices(of).tolist())
    chosen, price = removals(pairs), 0.0
    for number, (rise, *_) in enumerate(chosen, 1):
        price += rise
        least = sorted(
            (float(price), one, head)
            for one, of in pairs.items()
            for head, price in enumerate(head_prices(of))
        )[:number]
        together = 0.0
        for one in pairs:
            gone = [head for _, other, head in least if other is one]
            together += float(head_prices(pairs[one][gone][:, gone].sum()[None, None]))
        assert price <= together + 1e-12
    assert chosen[0].rise == pytest.approx(alone[0])
