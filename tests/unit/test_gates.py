"""Hard-concrete gates, ``transformer_gated_heads`` and its criterion."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from torch import nn
from toy import close
from toy_heads import sample

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


def test_a_rounded_gate_is_its_likelier_end() -> None:
    log_alpha = torch.linspace(-3, 3, 13)
    closed, open_ = 1 - gates.probability_open(log_alpha), probability_one(log_alpha)
    assert gates.rounded(log_alpha).tolist() == (open_ >= closed - 1e-12).double().tolist()


def test_samples_have_a_gradient() -> None:
    """That of the same sample moved a little, by central differences."""
    log_alpha, step = torch.linspace(-1, 1, 9).requires_grad_(), 1e-6

    def drawn(offset: float) -> torch.Tensor:
        torch.manual_seed(2)
        return gates.sample(log_alpha + offset)

    drawn(0.0).sum().backward()
    expected = (drawn(step) - drawn(-step)) / (2 * step)
    torch.testing.assert_close(log_alpha.grad, expected.detach(), rtol=1e-6, atol=1e-8)
    assert log_alpha.grad.count_nonzero() > 2


# ---- the heads -----------------------------------------------------------------------------------


def test_gates_in_evaluation() -> None:
    """Gates start open."""
    attention = GatedAttention(16, 4).eval()
    assert attention.gates().tolist() == [1] * 4
    attention.theta.data[0] = -0.1
    assert attention.gates().tolist() == [0, 1, 1, 1]


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
    assert ("do not contain the number of heads" in caplog.text) == (source == "transformer")


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
