"""``transformer_lm_grouped_heads`` and its criterion: numbers of groups and the loss of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from toy_language_models import language_model, task
from unit.test_groups import naive_loss

from fairseq_collab.attention.head_groups import FEATURES, head_group_attentions
from fairseq_collab.criterions.head_groups import watched
from fairseq_collab.criterions.with_head_groups import AdaptiveLossWithHeadGroups

GROUPED = "transformer_lm_grouped_heads"
ADAPTIVE: dict[str, Any] = {
    "adaptive_input": True,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
    "adaptive_input_cutoff": "8,16",
    "adaptive_softmax_cutoff": "8,16",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "adaptive_softmax_dropout": 0.0,
}
ALPHA, BETA = 0.7, 0.3


def test_one_number_of_groups_or_the_second_of_three() -> None:
    for text, groups in ((None, 1), ("3", 3), ("1,2,4", 2)):
        net = language_model(GROUPED, head_groups=text)
        found = [(one.site, one.groups) for one in head_group_attentions(net)]
        assert found == [("decoder", groups)] * 2


def batch() -> dict[str, Any]:
    """As the task's: no ``prev_output_tokens``, padded right."""
    pad = task().source_dictionary.pad()
    tokens = torch.tensor([[2, 5, 6, 7, 8], [2, 9, 5, pad, pad], [2, 11, 6, 22, pad]])
    target = torch.tensor([[5, 6, 7, 8, 2], [9, 5, 2, pad, pad], [11, 6, 22, 2, pad]])
    lengths = torch.tensor([5, 3, 4])
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": lengths},
        "target": target,
        "ntokens": 12,
        "nsentences": 3,
    }


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.usefixtures("float64")
def test_training_adds_the_constraint(feature: str) -> None:
    """Of the positions that are not padded, to the loss of adaptive softmax."""
    torch.manual_seed(5)
    net = language_model(GROUPED, head_groups="2", group_feature=feature, **ADAPTIVE).double()
    symbols = SimpleNamespace(target_dictionary=task().target_dictionary)
    ours = AdaptiveLossWithHeadGroups(symbols, False, ALPHA, BETA, "paper")
    stock = AdaptiveLoss(symbols, False)
    total, size, _ = ours(net.train(), batch())
    expected, _, _ = stock(net, batch())
    with watched(net) as attentions:
        net(**batch()["net_input"])
    real = batch()["net_input"]["src_tokens"].ne(task().source_dictionary.pad())
    for attention in attentions:
        maps = attention.features  # (B, H, T, e)
        flat = torch.stack([maps[:, head][real].flatten() for head in range(4)])
        labels = [attention.membership.argmax(dim=1).tolist()]
        expected = expected + 12 / 2 * naive_loss(flat[None], labels, 2, ALPHA, BETA)
    assert size == 12
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-10)
    total.backward()
    assert all(p.grad is not None for p in net.decoder.layers.parameters())
    validation, _, _ = ours(net.eval(), batch())
    torch.testing.assert_close(validation, stock(net, batch())[0], rtol=0, atol=0)
