"""Groups of heads: k-means of Gram matrices, the loss, and ``transformer_grouped_heads``."""

from __future__ import annotations

import itertools
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
from torch.nn import functional
from toy_heads import sample
from toy_language_models import language_model

from fairseq_collab.attention.head_groups import (
    FEATURES,
    HeadGroupAttention,
    head_group_attentions,
)
from fairseq_collab.attention.scores import FUSE_KEYS
from fairseq_collab.criterions import clusters
from fairseq_collab.criterions.constraint import watched
from fairseq_collab.criterions.losses import (
    AdaptiveLossWithHeadGroups,
    LabelSmoothedCrossEntropyWithHeadGroups,
)

pytestmark = pytest.mark.usefixtures("float64")

TOLERANCE = 1e-10


def features(layers: int, heads: int, size: int = 30) -> Tensor:
    """Random features ``(L, H, D)``, flattened."""
    return torch.randn(layers, heads, size)


def gram_of(flat: Tensor) -> Tensor:
    return flat @ flat.transpose(1, 2)


def one_hot(labels: list[list[int]], classes: int) -> Tensor:
    return functional.one_hot(torch.tensor(labels), classes).double()


def centres(flat: Tensor, labels: list[int], classes: int) -> list[Tensor]:
    """The means of one attention's groups."""
    return [
        torch.stack([f for f, label in zip(flat, labels, strict=True) if label == c]).mean(dim=0)
        for c in range(classes)
    ]


def naive_loss(
    flat: Tensor, labels: list[list[int]], classes: int, alpha: float, beta: float
) -> Tensor:
    """Lz of arXiv 2305.14380 as written, with the sign that its text means, head by head."""
    total = flat.new_zeros(())
    layers, heads, _ = flat.shape
    for layer, own in zip(flat, labels, strict=True):
        middle = centres(layer, own, classes)
        for feature, label in zip(layer, own, strict=True):
            cosine = functional.cosine_similarity(feature, middle[label], dim=0)
            total = total - alpha / (heads * layers) * cosine
        pairs = list(itertools.combinations(middle, 2))
        for one, other in pairs:
            cosine = functional.cosine_similarity(one, other, dim=0)
            total = total + beta / (len(pairs) * layers) * cosine
    return total


def test_a_head_of_zeros_has_no_gradient_and_no_nan() -> None:
    flat = features(1, 3)
    flat[0, 1] = 0
    flat.requires_grad_()
    within, between = clusters.similarity(gram_of(flat), one_hot([[0, 1, 0]], 2))
    (within + between).sum().backward()
    assert within.isfinite().all()
    assert flat.grad.isfinite().all()
    assert flat.grad.abs().max() < 10


def test_zeros_next_to_another_head_of_their_group() -> None:
    """Whose mean has a length: the cosine with the head of zeros is 0, without a gradient of it."""
    flat = features(1, 4)
    flat[0, 1] = 0
    flat.requires_grad_()
    within, between = clusters.similarity(gram_of(flat), one_hot([[0, 0, 1, 1]], 2))
    (within + between).sum().backward()
    assert flat.grad.abs().max() < 10


# ---- features ------------------------------------------------------------------------------------


def test_half_precision_does_not_overflow() -> None:
    maps = torch.full((2, 2, 100, 64), 30.0, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gram = clusters.gram_matrix(maps)
    assert gram.dtype == torch.float32
    assert gram.tolist() == [[2 * 100 * 64 * 900.0] * 2] * 2


# ---- k-means -------------------------------------------------------------------------------------


def test_groups_equal_those_of_naive_k_means() -> None:
    flat = features(20, 8, size=3)
    start = [[i % 3 for i in range(8)]] * 20
    found = clusters.cluster(gram_of(flat), one_hot(start, 3), iterations=4).argmax(dim=2)
    compared = 0
    for layer, labels in zip(flat, found.tolist(), strict=True):
        current = start[0]
        for _ in range(4):
            middle = torch.stack(centres(layer, current, 3))
            current = torch.cdist(layer, middle).argmin(dim=1).tolist()
            if len(set(current)) < 3:
                break
        else:
            compared += 1
            assert labels == current
    assert compared >= 10  # the others met an empty group


def test_clear_groups_are_found_from_nothing() -> None:
    """Three bundles of heads, in another order in each attention."""
    bundles = torch.eye(3).repeat_interleave(3, dim=0)  # (9, 3)
    orders = torch.stack([torch.randperm(9) for _ in range(5)])
    flat = 10 * bundles[orders] + 0.01 * torch.randn(5, 9, 3)
    found = clusters.cluster(gram_of(flat), torch.zeros(5, 9, 3))
    same = found @ found.transpose(1, 2)
    expected = bundles[orders] @ bundles[orders].transpose(1, 2)
    assert torch.equal(same, expected)


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_no_group_is_ever_empty(classes: int) -> None:
    """From a start with all heads in one group, with distinct heads and with equal ones."""
    flat = torch.cat([features(10, 8, size=2), torch.ones(1, 8, 2), torch.zeros(1, 8, 2)])
    start = one_hot([[classes - 1] * 8] * 12, classes)
    found = clusters.cluster(gram_of(flat), start, iterations=10)
    assert found.sum(dim=1).min() >= 1
    assert (found.sum(dim=2) == 1).all()


# ---- the model -----------------------------------------------------------------------------------

GROUPED = "transformer_grouped_heads"
DROPOUTS = ("dropout", "attention_dropout", "adaptive_softmax_dropout")
ALPHA, BETA = 0.7, 0.3


def model(**options: Any) -> nn.Module:
    return toy.model(GROUPED, **{"dropout": 0.0, "head_groups": 2, **options}).train()


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
    net = model(group_feature=feature, heads_in_encoder="4,2", head_size=4)
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


def test_attention_weights_of_long_inputs_are_seen() -> None:
    """No fused kernel hides them, even where nobody else asks for weights."""
    attention = HeadGroupAttention(8, 2, groups=2, feature="attention")
    x = torch.randn(FUSE_KEYS, 1, 8)  # (T, B, d)
    with attention.watch():
        attention(x, x, x, need_weights=False)
    assert attention.features is not None
    assert attention.features.shape == (1, 2, FUSE_KEYS, FUSE_KEYS)


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
    net = model(heads_in_decoder="4,2", heads_in_encoder="0,4", head_size=4)
    found = [(a.attention_type, a.num_heads, a.groups) for a in head_group_attentions(net)]
    assert found == [
        ("encoder", 4, 2),
        *[("decoder", 4, 2), ("cross", 4, 2), ("decoder", 2, 2), ("cross", 4, 2)],
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
    net = language_model(LM_GROUPED, head_groups=2, **options).double()
    symbols = SimpleNamespace(target_dictionary=toy.dictionary())
    ours = AdaptiveLossWithHeadGroups.build_criterion(settings("paper"), symbols)
    stock, batch = AdaptiveLoss(symbols, False), {**sample(lm=True), "nsentences": 3}
    net_input, tokens = batch["net_input"], batch["net_input"]["src_tokens"]
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
        (lambda: model(head_groups=5), "head groups"),
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
