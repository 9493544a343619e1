"""``transformer_grouped_heads`` and its criterion: what is compared, added, logged and refused."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from parity.test_prune_parity import ADAPTIVE, LM_GROUPED
from refusals import refusing
from torch import Tensor, nn
from toy_heads import sample
from toy_language_models import language_model
from unit.test_groups import naive_loss

from fairseq_collab.attention.head_groups import FEATURES, head_group_attentions
from fairseq_collab.criterions import clusters
from fairseq_collab.criterions.constraint import watched
from fairseq_collab.criterions.losses import (
    AdaptiveLossWithHeadGroups,
    LabelSmoothedCrossEntropyWithHeadGroups,
)

pytestmark = pytest.mark.usefixtures("float64")

GROUPED = "transformer_grouped_heads"
DROPOUTS = ("dropout", "attention_dropout", "adaptive_softmax_dropout")
ALPHA, BETA = 0.7, 0.3


def model(**options: Any) -> nn.Module:
    return toy.model(GROUPED, **{"dropout": 0.0, "head_groups": "2", **options}).train()


def criterion(normalisation: str = "paper", alpha: float = ALPHA, beta: float = BETA) -> Any:
    cfg = settings(normalisation, alpha, beta)
    return LabelSmoothedCrossEntropyWithHeadGroups.build_criterion(cfg, toy.task())


def settings(normalisation: str, alpha: float = ALPHA, beta: float = BETA) -> Namespace:
    """Of the criterions: fairseq's own and the constraint's."""
    groups = {"group_alpha": alpha, "group_beta": beta, "group_normalisation": normalisation}
    return Namespace(sentence_avg=False, label_smoothing=0.1, ddp_backend="legacy_ddp", **groups)


def flat_features(net: nn.Module, net_input: dict[str, Tensor]) -> list[Tensor]:
    """The features of each attention without its padding, flattened: ``(H, D)`` each."""
    pad = toy.dictionary().pad()
    source, target = (net_input[name].eq(pad) for name in ("src_tokens", "prev_output_tokens"))
    with watched(net) as attentions:
        net(**net_input)
    found = []
    for attention in attentions:
        along_keys = attention.feature == "value"
        type_ = attention.attention_type
        of_source = type_ == "encoder" or (type_ == "cross" and along_keys)
        padding = source if of_source else target
        maps = attention.features  # (B, H, N, e)
        heads = [maps[:, head][~padding].flatten() for head in range(maps.size(1))]
        found.append(torch.stack(heads))
        attention.features = None
    return found


# ---- the loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize(("normalisation", "scale"), [("paper", 9), ("released", 6)])
def test_training_adds_the_constraint(feature: str, normalisation: str, scale: int) -> None:
    """9 target tokens and 6 attentions: the paper's mean, or the released code's sum."""
    net = model(group_feature=feature, head_groups="2,2,1", heads_in_encoder="4,2", head_size=4)
    total, size, _ = criterion(normalisation)(net, sample())
    total.backward()
    gradient = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    expected, expected_size, _ = toy.criterion()(net, sample())
    for attention, flat in zip(
        head_group_attentions(net), flat_features(net, sample()["net_input"]), strict=True
    ):
        labels = [attention.membership.argmax(dim=1).tolist()]
        expected = expected + scale / 6 * naive_loss(
            flat[None], labels, attention.groups, ALPHA, BETA
        )
    expected.backward()
    assert size == expected_size == 9
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-10)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_heads_in_groups_compute_what_separate_keys_compute(feature: str, training: bool) -> None:
    """Outputs and gradients, also while features are kept."""
    found = []
    for arch in ("transformer_headsize_n", GROUPED):
        torch.manual_seed(3)
        options = {"group_feature": feature} if arch == GROUPED else {}
        net = toy.model(arch, **options).train(training)
        handles = [attention.watch() for attention in head_group_attentions(net)]
        torch.manual_seed(4)
        logits = net(**toy.batch())[0]
        logits.square().sum().backward()
        found.append([logits, *(p.grad for p in net.parameters())])
        assert len(handles) == (6 if arch == GROUPED else 0)
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("feature", FEATURES)
def test_features_are_what_they_are_called(feature: str) -> None:
    """Values and attention weights are those before dropout; outputs are ``out_proj``'s inputs."""
    attention = model(group_feature=feature, attention_dropout=0.5).encoder.layers[0].self_attn
    x = torch.randn(5, 3, 16)
    _, weights = attention.eval()(x, x, x, need_head_weights=True)  # (H, B, T, S)
    value = attention.project_value(x)  # (B, H, S, h_v)
    expected = {"value": value, "attention": weights.transpose(0, 1)}
    expected["output"] = expected["attention"] @ value
    handle = attention.train(feature != "output").watch()
    attention(x, x, x)
    handle.remove()
    torch.testing.assert_close(attention.features, expected[feature])


# ---- validation and decoding ---------------------------------------------------------------------


def test_validation_ignores_the_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model().eval()
    monkeypatch.setattr(clusters, "gram_matrix", pytest.fail)
    loss, _, log = criterion()(net, sample())
    expected, _, expected_log = toy.criterion()(net, sample())
    assert loss == expected
    assert log.keys() == expected_log.keys()
    assert not any(attention.membership.any() for attention in head_group_attentions(net))


def test_groups_start_where_the_last_update_left_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update no features and no hooks are left."""
    net, starts = model(), []
    cluster = clusters.cluster
    monkeypatch.setattr(
        clusters, "cluster", lambda gram, start: starts.append(start) or cluster(gram, start)
    )
    constraint = criterion()
    constraint(net, sample())
    found = head_group_attentions(net)
    left = torch.stack([attention.membership.clone() for attention in found])
    assert not any(m._forward_hooks or m._forward_pre_hooks for one in found for m in one.modules())
    assert all(attention.features is None for attention in found)
    constraint(net, sample())
    assert not starts[0].any()
    assert left.sum(2).min() == 1
    assert torch.equal(starts[1], left)


def test_numbers_of_heads_and_groups_by_attention_type_and_layer() -> None:
    """A layer without heads has no groups; by default a group has four heads."""
    net = model(head_groups="4,2,1", heads_in_decoder="4,2", heads_in_encoder="0,4", head_size=4)
    found = [(a.attention_type, a.num_heads, a.groups) for a in head_group_attentions(net)]
    assert found == [
        ("encoder", 4, 4),
        *[("decoder", 4, 2), ("cross", 4, 1), ("decoder", 2, 2), ("cross", 4, 1)],
    ]
    loss, _, log = criterion()(net, sample())
    loss.backward()
    assert log["group_within"].isfinite()
    net = toy.model(GROUPED, encoder_attention_heads=8, decoder_attention_heads=2)
    assert {a.num_heads: a.groups for a in head_group_attentions(net)} == {8: 2, 2: 1}


# ---- language models -----------------------------------------------------------------------------


def test_the_constraint_beside_adaptive_softmax() -> None:
    """Of the positions that are not padded; validation ignores it."""
    torch.manual_seed(5)
    options = {**ADAPTIVE, **dict.fromkeys(DROPOUTS, 0.0)}
    net = language_model(LM_GROUPED, head_groups="1,2,4", **options).double()
    symbols = SimpleNamespace(target_dictionary=toy.dictionary())
    ours = AdaptiveLossWithHeadGroups.build_criterion(settings("paper"), symbols)
    stock, tokens = AdaptiveLoss(symbols, False), sample()["net_input"]["prev_output_tokens"]
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(1).sum(1)}
    batch = {**sample(), "net_input": net_input, "nsentences": 3}
    total, size, _ = ours(net.train(), batch)
    expected, _, _ = stock(net, batch)
    with watched(net) as attentions:
        net(**net_input)
    assert [(one.attention_type, one.groups) for one in attentions] == [("decoder", 2)] * 2
    for attention in attentions:
        maps = attention.features.transpose(0, 1)  # (H, B, T, e)
        flat = maps[:, tokens.ne(1)].flatten(1)
        labels = [attention.membership.argmax(dim=1).tolist()]
        expected = expected + size / 2 * naive_loss(flat[None], labels, 2, ALPHA, BETA)
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-10)
    validation, _, _ = ours(net.eval(), batch)
    torch.testing.assert_close(validation, stock(net, batch)[0], rtol=0, atol=0)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: model(head_groups="5"), "head groups"),
        (lambda: model(head_groups="2,2"), "--head-groups"),
        (lambda: model(group_feature="key"), "group feature"),
        (lambda: criterion(alpha=-1.0), "--group-alpha"),
        (lambda: criterion(beta=float("nan")), "--group-beta"),
        (lambda: criterion("mean"), "--group-normalisation"),
    ],
)
def test_wrong_options(make: Any, place: str) -> None:
    with refusing(place):
        make()


@pytest.mark.parametrize(
    ("net", "option"),
    [
        (lambda: toy.model("transformer_headsize_n").train(), "--arch"),
        (lambda: model(encoder_layerdrop=1.0), "--encoder-layerdrop"),
        (lambda: model(checkpoint_activations=True), "--checkpoint-activations"),
    ],
)
def test_models_that_cannot_be_grouped(net: Any, option: str) -> None:
    with refusing(option):
        criterion()(net(), sample())
