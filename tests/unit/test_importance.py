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

from fairseq_collab.advice import judge
from fairseq_collab.analysis.heads.importance import (
    Importance,
    cross_entropy,
    loss_increases,
    mask_derivatives,
    normalised,
    rank_correlations,
)
from fairseq_collab.analysis.heads.weights import head_outputs
from fairseq_collab.models.layers import SITES
from fairseq_collab.trained.attentions import Attention, attentions

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
            output, found = model(tokens), cross_entropy(model, batch).sum()
            each = judge.loss(model, [batch])
        log_probabilities = model.get_normalized_probs(output, log_probs=True)  # of all words
        flat = log_probabilities.flatten(0, 1), batch["target"].flatten()
        expected = functional.nll_loss(*flat, ignore_index=1, reduction="none").view(2, 4).sum(1)
        assert float(found) == pytest.approx(float(expected.sum()), rel=1e-5)
        assert each.nats == pytest.approx(expected.detach().numpy(), rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"adaptive_softmax_cutoff": "8,16"}])
def test_the_beginning_of_a_block_is_not_predicted(options: dict[str, Any]) -> None:
    """``--add-bos-token`` makes it a target; ``fairseq-eval-lm`` leaves it out."""
    model = language_model("transformer_lm_headsize_n", dropout=0.0, **options).eval()
    net_input = {"src_tokens": torch.tensor([[2, 0, 5, 6], [2, 0, 9, 1]])}
    target = torch.tensor([[0, 5, 6, 2], [0, 9, 2, 1]])
    found = judge.loss(model, [{"net_input": net_input, "target": target}])
    assert found.tokens.tolist() == [3, 2]
    without = {"net_input": net_input, "target": target.masked_fill(target.eq(0), 1)}
    assert found.nats == pytest.approx(judge.loss(model, [without]).nats)


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


def test_the_two_forms() -> None:
    """A mean over positions of absolute values; a mean over sentences of those of sums."""
    model = build("sizes")
    importance = Importance(model)
    importance.add(sample())
    source_tokens, target_tokens = 12, 9
    apart = [mask_derivatives(model, sample(i)) for i in range(3)]
    for attention in attentions(model):
        site, layer = attention.site, attention.layer
        each = [found[attention][:, 0] for found in apart]  # (T, H)
        tokens = source_tokens if site == "encoder" else target_tokens
        by_token = sum(one.abs().sum(0) for one in each) / tokens
        by_sample = sum(one.sum(0).abs() for one in each) / 3
        torch.testing.assert_close(double(importance.per_token()[site][layer]), by_token)
        torch.testing.assert_close(double(importance.per_sample()[site][layer]), by_sample)


def test_batches_add_up() -> None:
    model = build("collaborative")
    together, apart = Importance(model), Importance(model)
    together.add(sample())
    for i in range(3):
        apart.add(sample(i))
    for site in SITES:
        for form in ("per_token", "per_sample"):
            found = [double(getattr(x, form)()[site]) for x in (together, apart)]
            torch.testing.assert_close(*found)


def test_padding_counts_for_nothing() -> None:
    model, batch = build("stock"), sample()
    net_input = batch["net_input"]
    padding = toy.dictionary().pad()
    for attention, derivative in mask_derivatives(model, batch).items():  # (T, B, H)
        tokens = "src_tokens" if attention.site == "encoder" else "prev_output_tokens"
        absent = net_input[tokens].eq(padding).T
        assert absent.any()
        assert not derivative[absent].any()


def test_an_encoder_without_effect_has_no_importance() -> None:
    importance = Importance(toy.model("transformer", no_cross_attention=True).eval())
    importance.add(sample())
    assert importance.per_token()["encoder"] == [[0.0] * 4] * 2


def test_the_model_is_left_as_it_was() -> None:
    model = build("stock")
    before = model(**toy.batch())[0]
    Importance(model).add(sample())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(**toy.batch())[0], before)


def test_a_layer_has_length_one() -> None:
    found = normalised({"encoder": [[3.0, 4.0], [0.0, 0.0]], "decoder": [], "cross": [[2.0]]})
    assert found == {
        "encoder": [pytest.approx([0.6, 0.8]), [0.0, 0.0]],
        "decoder": [],
        "cross": [[1.0]],
    }


@pytest.mark.parametrize("kind", ["stock", "sizes"])
def test_the_loss_without_a_head_is_that_of_a_mask(kind: str) -> None:
    model, batches = build(kind), [sample(0), sample(1)]
    found = loss_increases(model, batches)
    tokens = sum(int(batch["target"].ne(toy.dictionary().pad()).sum()) for batch in batches)
    for attention in attentions(model):
        heads = attention.module.num_heads
        for head in range(heads):
            mask = torch.ones(2, heads).double()
            mask[1, head] = 0
            whole, without = (
                sum(masked_loss(model, batch, attention, row) for batch in batches) / tokens
                for row in mask
            )
            increase = found[attention.site][attention.layer][head]
            assert increase == pytest.approx(without - whole, abs=1e-6)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_rank_correlations() -> None:
    """Spearman's, of all heads of a site; equal numbers share a rank."""
    increase = {"encoder": [[1.0, 2.0], [4.0, 8.0]], "decoder": [[1.0, 2.0, 3.0]], "cross": [[5.0]]}
    holes = {"encoder": [[None, 1.0], [3.0, 0.0]]}
    assert rank_correlations(holes, increase)["encoder"] is None
    measure = {"encoder": [[-8.0, 1.0], [3.0, 0.0]], "decoder": [[2.0, 2.0, 9.0]], "cross": None}
    assert rank_correlations(measure, increase) == {
        "encoder": pytest.approx(0.4),  # 1 - 6 (0 + 1 + 1 + 4) / (4 * 15)
        "decoder": pytest.approx(0.8660254),
        "cross": None,
    }
