"""Gates at 1 change nothing, and a gate at 0 is a head that is gone, in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from parity.test_prune_parity import built, masked, trained, translations
from torch import Tensor, nn
from toy import close

from collab_lab.pruning.choices import open_heads, without_gates
from collab_lab.pruning.surgery import Retained, heads_by_attention, pruned
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.gates import GatedAttention, gated_attentions

pytestmark = pytest.mark.usefixtures("float64")

GATED, HEADSIZE = "transformer_gated_heads", "transformer_headsize_n"
#: The third encoder layer has lost all of its heads.
OPEN: Retained = {
    "encoder": [[0, 2], [1, 2, 3], []],
    "decoder": [[3], [0, 1, 2, 3]],
    "cross": [[0, 1, 3], [2]],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "head sizes": {"qk_head_size": 3, "v_head_size": 6, "attention_scale": "embed"},
    "speed": {"gate_speed": 10},
}


def gated(kept: Retained = OPEN, **options: Any) -> Trained:
    """A trained model whose gates are 1 for the heads of ``kept``, and 0 for others."""
    source = trained(GATED, encoder_layers=3, **options)
    for one, heads in heads_by_attention(source, kept):
        if isinstance(one.module, GatedAttention):
            one.module.theta.data.fill_(-5.0)
            one.module.theta.data[list(heads)] = 5.0
    return source


def logits(model: nn.Module) -> Tensor:
    return model(**toy.batch())[0]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_gates_at_one_change_nothing(training: bool) -> None:
    """Forward and gradients; in training, gates that are 1 in every draw."""
    found = []
    for arch in (HEADSIZE, GATED):
        torch.manual_seed(3)
        net = toy.model(arch, dropout=0.0).train(training)
        for attention in gated_attentions(net):
            attention.theta.data.fill_(50.0)
        output = logits(net)
        output.square().sum().backward()
        gradients = {name: p.grad for name, p in net.named_parameters() if "theta" not in name}
        found.append((output, gradients))
    (one, its), (other, others) = found
    close(one, other)
    assert its.keys() == others.keys()
    for name in its:
        close(its[name], others[name])


@pytest.mark.parametrize("options", OPTIONS)
def test_closed_gates_equal_masked_heads_and_pruned_ones(options: str) -> None:
    """Logits, and translations token for token."""
    whole = gated(**OPTIONS[options])
    kept = open_heads(whole)
    assert kept == OPEN
    plain = without_gates(whole)
    smaller = built(pruned(plain, kept))
    assert not gated_attentions(smaller)
    assert [layer.self_attn.num_heads for layer in smaller.encoder.layers] == [2, 3, 0]
    expected = logits(whole.model)
    close(logits(smaller), expected)
    close(logits(masked(plain, OPEN)), expected)
    assert all(map(torch.equal, translations(smaller), translations(whole.model)))


def test_closed_gates_stay_closed_where_heads_are_chosen_by_other_means() -> None:
    whole = gated(gated_types="encoder,cross")
    plain = without_gates(whole)
    same = pruned(plain, {s: [[0, 1, 2, 3]] * len(h) for s, h in plain.heads.items()})
    close(logits(built(same)), logits(whole.model))
