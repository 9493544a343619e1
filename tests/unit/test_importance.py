"""Gradient importance of heads: against finite differences of a mask of their outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor
from torch.nn import functional
from toy_heads import build, double, sample
from toy_language_models import language_model

from collab_lab.analysis.attention_weights import head_outputs
from collab_lab.analysis.importance import importance, mask_derivatives
from collab_lab.metrics.loss import cross_entropy, predicted, summed_loss
from collab_lab.trained.attentions import Attention, attentions

#: fairseq's own attention has its softmax in single precision, too coarse for small differences.
STEPS = {"stock": 1e-2}
STEP = 1e-5


def test_the_loss_of_an_adaptive_softmax_is_that_of_its_probabilities() -> None:
    """Also where a cluster has no word, at padding, and of a cluster's second word."""
    options = {"adaptive_softmax_cutoff": "8,16", "dropout": 0.0}
    model = language_model("transformer_lm_headsize_n", **options).eval()
    tokens = torch.tensor([[2, 5, 6, 7], [2, 9, 1, 1]])
    for target in ([[5, 6, 19, 2], [9, 2, 1, 1]], [[5, 6, 7, 2], [6, 2, 1, 1]]):
        batch = {"net_input": {"src_tokens": tokens}, "target": torch.tensor(target)}
        with torch.inference_mode():
            output, found = model(tokens), cross_entropy(model, batch).sum(1)
        log_probabilities = model.get_normalized_probs(output, log_probs=True)  # of all words
        flat = log_probabilities.flatten(0, 1), batch["target"].flatten()
        expected = functional.nll_loss(*flat, ignore_index=1, reduction="none").view(2, 4).sum(1)
        torch.testing.assert_close(found, expected.detach())
        torch.testing.assert_close(summed_loss(model, batch).detach(), expected.sum().detach())


@pytest.mark.parametrize("options", [{}, {"adaptive_softmax_cutoff": "8,16"}])
def test_the_beginning_of_a_block_is_not_predicted(options: dict[str, Any]) -> None:
    """``--add-bos-token`` makes it a target; ``fairseq-eval-lm`` leaves it out."""
    model = language_model("transformer_lm_headsize_n", dropout=0.0, **options).eval()
    net_input = {"src_tokens": torch.tensor([[2, 0, 5, 6], [2, 0, 9, 1]])}
    target = torch.tensor([[0, 5, 6, 2], [0, 9, 2, 1]])
    assert predicted(model.decoder, target).sum(1).tolist() == [3, 2]
    without = {"net_input": net_input, "target": target.masked_fill(target.eq(0), 1)}
    found, expected = (
        cross_entropy(model, batch)
        for batch in ({"net_input": net_input, "target": target}, without)
    )
    torch.testing.assert_close(found, expected)


def masked_loss(model: Any, batch: dict[str, Any], attention: Attention, mask: Tensor) -> float:
    """The loss with the heads of one attention multiplied by ``mask (H,)``."""
    with head_outputs(model), torch.no_grad():  # fairseq's own attention calls out_proj, too
        handle = attention.module.out_proj.register_forward_pre_hook(
            lambda module, inputs: (
                (inputs[0].unflatten(2, (len(mask), -1)) * mask[:, None]).flatten(2),
            )
        )
        logits = model(**batch["net_input"])[0].flatten(0, 1)
        handle.remove()
    # fairseq's log_softmax is in single precision, too coarse for differences.
    padding = toy.dictionary().pad()
    target = batch["target"].flatten()
    return float(functional.cross_entropy(logits, target, ignore_index=padding, reduction="sum"))


@pytest.mark.parametrize("kind", ["stock", "collaborative", "grouped", "gated", "sizes"])
def test_finite_differences(kind: str) -> None:
    model, batch, size = build(kind, noise=0), sample(1), STEPS.get(kind, STEP)
    derivatives = mask_derivatives(model, batch)
    for attention in attentions(model):
        heads = attention.module.num_heads
        for head in range(heads):
            losses = []
            for step in (size, -size):
                mask = torch.ones(heads).double()
                mask[head] += step
                losses.append(masked_loss(model, batch, attention, mask))
            expected = (losses[0] - losses[1]) / (2 * size)
            assert float(derivatives[attention][..., head].sum()) == pytest.approx(
                expected, rel=1e-5, abs=1e-7 + 2 * size**2
            )


def test_an_encoder_without_effect_has_no_importance() -> None:
    model = toy.model("transformer", no_cross_attention=True).eval()
    assert importance(model, [sample()])["encoder"] == [[0.0] * 4] * 2


def test_importance_is_a_mean_over_positions() -> None:
    """Of absolute values; a batch is the sum of its sentences."""
    model = build("sizes")
    of_heads = importance(model, [sample()])
    source_tokens, target_tokens = 12, 9
    apart = [mask_derivatives(model, sample(i)) for i in range(3)]
    for attention in attentions(model):
        tokens = source_tokens if attention.type == "encoder" else target_tokens
        expected = sum(found[attention][:, 0].abs().sum(0) for found in apart) / tokens
        found = of_heads[attention.type][attention.layer]
        torch.testing.assert_close(double(found), expected)
