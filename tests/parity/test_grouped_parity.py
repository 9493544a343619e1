"""Heads in groups compute what concatenated heads compute, in double precision."""

from __future__ import annotations

import pytest
import torch
import toy

from fairseq_collab.attention.head_groups import FEATURES, head_group_attentions

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_same_seed_same_model(feature: str, training: bool) -> None:
    """Also while its features are kept."""
    outputs = []
    for arch, options in (
        ("transformer_headsize_n", {}),
        ("transformer_grouped_heads", {"group_feature": feature}),
    ):
        torch.manual_seed(3)
        model = toy.model(arch, **options).train(training)
        handles = [attention.watch() for attention in head_group_attentions(model)]
        torch.manual_seed(4)
        logits = model(**toy.batch())[0]
        logits.square().sum().backward()
        gradients = [p.grad for p in model.parameters()]
        outputs.append((logits, gradients))
        for handle in handles:
            handle.remove()
    assert torch.equal(outputs[0][0], outputs[1][0])
    for one, other in zip(outputs[0][1], outputs[1][1], strict=True):
        assert torch.equal(one, other)
