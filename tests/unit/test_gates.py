"""Hard-concrete gates, ``transformer_gated_heads`` and its criterion; a closed gate is no head."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any

import pytest
import torch
import toy
from parity.test_prune_parity import built, masked, trained, translations
from refusals import refusing
from torch import Tensor, nn
from toy import close
from toy_heads import sample

from collab_lab.shrinking.gates import open_heads, without_gates
from collab_lab.shrinking.retained import heads_by_attention, pruned
from collab_lab.trained.attentions import Retained
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import GatedAttention, gated_attentions
from fairseq_collab.criterions.losses import LabelSmoothedCrossEntropyWithHeadGates

pytestmark = pytest.mark.usefixtures("float64")

GATED = "transformer_gated_heads"
LAMBDA = 0.7


def model(half_open: bool = False, **options: Any) -> nn.Module:
    """A model in training; gates are open, or around one half."""
    net = toy.model(GATED, **{"dropout": 0.0, **options}).train()
    for attention in gated_attentions(net) if half_open else []:
        nn.init.uniform_(attention.theta, -0.5, 0.5)
    return net


def criterion(penalty: float = LAMBDA) -> Any:
    cfg = Namespace(sentence_avg=False, label_smoothing=0.1, gate_penalty=penalty)
    return LabelSmoothedCrossEntropyWithHeadGates.build_criterion(cfg, toy.task())


# ---- the distribution ----------------------------------------------------------------------------


def z(x: float) -> float:
    return math.log((x - gates.LEFT) / (gates.RIGHT - x))


def cumulative(log_alpha: torch.Tensor, x: float) -> torch.Tensor:
    """``P(g <= x)`` for ``0 <= x < 1``."""
    return torch.sigmoid(gates.TEMPERATURE * z(x) - log_alpha)


def probability_one(log_alpha: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(log_alpha - gates.TEMPERATURE * z(1))


@pytest.mark.parametrize("log_alpha", [-2.0, 0.0, 1.5])
def test_samples_follow_the_closed_forms(log_alpha: float) -> None:
    """A share of 200,000 samples is off by less than five standard deviations."""
    count, given = 200_000, torch.tensor(log_alpha)
    drawn = gates.sample(torch.full((count,), log_alpha))
    shares = {
        gates.probability_open(given): drawn != 0,
        probability_one(given): drawn == 1,
        **{cumulative(given, x): drawn <= x for x in (0.0, 0.25, 0.9)},
    }
    for probability, found in shares.items():
        deviation = math.sqrt(float(probability * (1 - probability)) / count)
        assert abs(found.double().mean() - probability) < 5 * deviation


def test_constants_of_the_released_code() -> None:
    """P(g = 0) at log_alpha = 0 is 1/(1 + 11^0.33)."""
    assert float(cumulative(torch.zeros(()), 0.0)) == pytest.approx(1 / (1 + 11**0.33))


def test_gates_start_open() -> None:
    """A model that has converged loses next to nothing."""
    start = GatedAttention(16, 4).log_alpha.detach()[0]
    assert float(probability_one(start)) == pytest.approx(0.961, abs=1e-3)
    assert float(cumulative(start, 0.0)) == pytest.approx(0.008, abs=1e-3)


def test_a_rounded_gate_is_its_likelier_end() -> None:
    log_alpha = torch.linspace(-3, 3, 13)
    closed, open_ = 1 - gates.probability_open(log_alpha), probability_one(log_alpha)
    assert gates.rounded(log_alpha).tolist() == (open_ >= closed - 1e-12).double().tolist()


# ---- the heads -----------------------------------------------------------------------------------


def test_a_gate_is_sampled_once_per_batch_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    sampled = gates.sample
    monkeypatch.setattr(
        gates, "sample", lambda log_alpha: drawn.append(len(log_alpha)) or sampled(log_alpha)
    )
    net = model(half_open=True)
    one, other = (net(**toy.batch())[0] for _ in range(2))
    assert drawn == [4] * 6 * 2  # six attentions with four heads, whatever the sentences
    assert not torch.equal(one, other)
    net.eval()
    one, other = (net(**toy.batch())[0] for _ in range(2))
    assert torch.equal(one, other)
    assert len(drawn) == 12


def test_speed_changes_steps_and_not_gates() -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    for speed in (1, 10):
        attention = GatedAttention(16, 4, gate_speed=speed)
        close(attention.log_alpha, torch.full((4,), gates.OPEN))
        optimiser = torch.optim.Adam([attention.theta], lr=0.01)
        gates.probability_open(attention.log_alpha).sum().backward()
        optimiser.step()
        moved = float((gates.OPEN - attention.log_alpha.detach()).mean())
        assert moved == pytest.approx(0.01 * speed, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_samples_in_single(dtype: torch.dtype) -> None:
    """1 - 1e-6 is 1 in half precision, and its logit infinite."""
    attention = GatedAttention(16, 4).to(dtype)
    assert attention.gates().dtype == torch.float32
    x = torch.randn(3, 2, 16, dtype=dtype)
    assert attention(x, x, x)[0].dtype == dtype


# ---- the loss ------------------------------------------------------------------------------------


def test_training_adds_the_penalty() -> None:
    """Loss and gradient, for 9 target tokens; the log has fairseq's loss and the gates."""
    net = model(half_open=True, gate_speed=3)
    torch.manual_seed(3)
    total, size, log = criterion()(net, sample())
    total.backward()
    gradient = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    torch.manual_seed(3)
    plain, expected_size, plain_log = toy.criterion()(net, sample())
    theta = torch.cat([attention.theta for attention in gated_attentions(net)])
    norm = torch.sigmoid(3 * theta + 0.33 * math.log(11)).sum()
    expected = plain + 9 * LAMBDA * norm
    expected.backward()
    assert size == expected_size == 9
    assert log["loss"] == plain_log["loss"]
    close(log["gates_l0"], norm.detach())
    assert log["gates_open"] == (theta >= 0).sum()
    close(total, expected)
    for name, parameter in net.named_parameters():
        close(gradient[name], parameter.grad)


def test_validation_ignores_the_penalty() -> None:
    net = model().eval()
    loss, _, log = criterion()(net, sample())
    assert loss == toy.criterion()(net, sample())[0]
    assert "gates_open" not in log


# ---- frozen parts --------------------------------------------------------------------------------


def trained_names(**options: Any) -> set[str]:
    net = model(**options)
    return {name for name, parameter in net.named_parameters() if parameter.requires_grad}


def test_the_decoder_can_be_frozen() -> None:
    """A matrix of both sides is frozen with either."""
    encoder = {name for name in trained_names() if name.startswith("encoder")}
    assert trained_names(freeze_decoder=True, gated_types="encoder") == encoder
    shared = {"share_all_embeddings": True, "gated_types": "encoder"}
    assert "encoder.embed_tokens.weight" in trained_names(**shared)
    assert "encoder.embed_tokens.weight" not in trained_names(freeze_decoder=True, **shared)


# ---- weights without gates, other weights, wrong options -----------------------------------------


@pytest.mark.parametrize("source", ["transformer", "transformer_headsize_n"])
@pytest.mark.parametrize("types", ["encoder", "encoder,decoder,cross"])
def test_a_converged_model_keeps_its_function(
    source: str, types: str, caplog: pytest.LogCaptureFixture
) -> None:
    trained = toy.model(source).eval()
    net = model(gated_types=types)
    net.load_state_dict(trained.state_dict(), strict=True)
    close(net.eval()(**toy.batch())[0], trained(**toy.batch())[0])
    assert len(gated_attentions(net)) == 2 * len(types.split(","))
    assert ("how many heads" in caplog.text) == (source == "transformer")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"gated_types": "encoder,self"}, "--gated-types"),
        ({"gated_types": ""}, "--gated-types"),
        ({"gate_speed": 0}, "gate_speed"),
        ({"freeze_decoder": True}, "--freeze-decoder"),
    ],
)
def test_wrong_options(options: dict[str, Any], place: str) -> None:
    with refusing(place):
        model(**options)


def test_what_the_criterion_rejects() -> None:
    for penalty in (-1.0, float("nan")):
        with refusing("--gate-penalty"):
            criterion(penalty)
    with refusing("--arch"):
        criterion()(toy.model("transformer_headsize_n").train(), sample())


# ---- gates and heads that are gone ---------------------------------------------------------------

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


@pytest.mark.parametrize("bits", [4, 8])
def test_gates_in_the_weights_of_a_rounded_cache(bits: int) -> None:
    """Which rounds values after their gates."""
    whole = gated(cache_bits=bits)
    for one in gated_attentions(whole.model):
        one.theta.data[0] = 0.3  # half open
    close(logits(without_gates(whole).model), logits(whole.model))


def test_closed_gates_stay_closed_where_heads_are_chosen_by_other_means() -> None:
    whole = gated(gated_types="encoder,cross")
    plain = without_gates(whole)
    same = pruned(plain, {s: [[0, 1, 2, 3]] * len(h) for s, h in plain.heads.items()})
    close(logits(built(same)), logits(whole.model))
