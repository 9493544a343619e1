"""Gradient importance of heads: against finite differences of a mask of their outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from torch import Tensor
from torch.nn import functional

from fairseq_collab.analysis.heads.importance import (
    Importance,
    mask_derivatives,
    normalised,
)
from fairseq_collab.analysis.heads.weights import head_outputs
from fairseq_collab.checkpoints.attentions import Attention, attentions
from fairseq_collab.models.layers import SITES

ARCHITECTURES = {
    "transformer": {},
    "transformer_headsize_n": {"head_size": 3, "heads_in_encoder": "2,5"},
    "transformer_collab": {"key_dim": 8},
    "transformer_grouped_heads": {"head_groups": "2"},
    "transformer_gated_heads": {},
}
#: fairseq's own attention has its softmax in single precision, too coarse for small differences.
STEPS = {"transformer": 1e-2}
STEP = 1e-5


def model_of(arch: str) -> Any:
    torch.manual_seed(1)
    return toy.model(arch, **ARCHITECTURES[arch]).double().eval()


def sample(sentence: int | None = None) -> dict[str, Any]:
    """The toy batch with targets, or one sentence of it."""
    net_input = toy.batch()
    target = net_input["prev_output_tokens"].roll(-1, dims=1)
    target[:, -1] = toy.dictionary().pad()
    target[0, -1] = toy.dictionary().eos()
    if sentence is not None:
        net_input = {name: x[sentence : sentence + 1] for name, x in net_input.items()}
        target = target[sentence : sentence + 1]
    return {"net_input": net_input, "target": target}


def double(numbers: list) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


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


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_finite_differences(arch: str) -> None:
    model, batch, size = model_of(arch), sample(1), STEPS.get(arch, STEP)
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
    model = model_of("transformer_headsize_n")
    importance = Importance(model)
    importance.add(sample())
    source_tokens, target_tokens = 12, 9
    assert (importance.source_tokens, importance.target_tokens) == (source_tokens, target_tokens)
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
    model = model_of("transformer_collab")
    together, apart = Importance(model), Importance(model)
    together.add(sample())
    for i in range(3):
        apart.add(sample(i))
    for site in SITES:
        for form in ("per_token", "per_sample"):
            found = [double(getattr(x, form)()[site]) for x in (together, apart)]
            torch.testing.assert_close(*found)


def test_padding_counts_for_nothing() -> None:
    model, batch = model_of("transformer"), sample()
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
    model = model_of("transformer")
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
