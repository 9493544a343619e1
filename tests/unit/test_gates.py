"""Hard-concrete gates, ``transformer_gated_heads`` and its criterion: what is drawn, added, logged
and refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import toy
from fairseq.distributed import ModuleProxyWrapper
from fairseq.logging import metrics
from refusals import refusing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from toy import close
from toy_heads import sample
from toy_language_models import language_model

from fairseq_collab.attention import gates
from fairseq_collab.attention.gates import GatedAttention, gated_attentions
from fairseq_collab.criterions.with_head_gates import LabelSmoothedCrossEntropyWithHeadGates

pytestmark = pytest.mark.usefixtures("float64")

GATED = "transformer_gated_heads"
LAMBDA = 0.7


def model(**options: Any) -> nn.Module:
    return toy.model(GATED, **{"dropout": 0.0, **options}).train()


def half_open(net: nn.Module) -> None:
    """Gates around one half."""
    for attention in gated_attentions(net):
        nn.init.uniform_(attention.theta, -0.5, 0.5)


def criterion(penalty: float = LAMBDA) -> Any:
    return LabelSmoothedCrossEntropyWithHeadGates(toy.task(), False, 0.1, penalty)


# ---- the distribution ----------------------------------------------------------------------------


def cumulative(log_alpha: torch.Tensor, x: float) -> torch.Tensor:
    """``P(g <= x)`` for ``x`` from 0 up and below 1, in closed form."""
    return torch.sigmoid(gates.TEMPERATURE * z(x) - log_alpha)


def probability_one(log_alpha: torch.Tensor) -> torch.Tensor:
    """``P(g = 1)``, in closed form."""
    return torch.sigmoid(log_alpha - gates.TEMPERATURE * z(1))


def z(x: float) -> float:
    return math.log((x - gates.LEFT) / (gates.RIGHT - x))


@pytest.mark.parametrize("log_alpha", [-2.0, 0.0, 1.5])
def test_samples_follow_the_closed_forms(log_alpha: float) -> None:
    """A share of 200,000 draws is off by less than five standard deviations."""
    count = 200_000
    drawn = gates.sample(torch.full((count,), log_alpha))
    given = torch.tensor(log_alpha)
    shares = {
        gates.probability_open(given): drawn != 0,
        probability_one(given): drawn == 1,
        cumulative(given, 0.0): drawn == 0,
        cumulative(given, 0.25): drawn <= 0.25,
        cumulative(given, 0.9): drawn <= 0.9,
    }
    for probability, found in shares.items():
        deviation = math.sqrt(float(probability * (1 - probability)) / count)
        assert abs(found.double().mean() - probability) < 5 * deviation


def test_constants_of_the_paper() -> None:
    """P(g = 0) at log_alpha = 0 is 1/(1 + 11^0.33); a gate of evaluation closes at -log 11."""
    zero = torch.zeros(())
    assert float(cumulative(zero, 0.0)) == pytest.approx(1 / (1 + 11**0.33))
    edge = torch.tensor([-math.log(11), 0.0, math.log(11)])
    expected = torch.tensor([0, 0.5, 1.0])
    torch.testing.assert_close(gates.deterministic(edge), expected, rtol=0, atol=1e-12)
    assert gates.deterministic(edge * 1.01)[[0, 2]].tolist() == [0, 1]
    assert gates.deterministic(edge * 0.99)[0] > 0
    assert gates.deterministic(edge * 0.99)[2] < 1


def test_a_rounded_gate_is_its_likelier_end() -> None:
    log_alpha = torch.linspace(-3, 3, 13, dtype=torch.float64)
    closed, open_ = 1 - gates.probability_open(log_alpha), probability_one(log_alpha)
    rounded = gates.deterministic(log_alpha, "rounded")
    assert rounded.tolist() == (open_ >= closed - 1e-12).double().tolist()
    attention = GatedAttention(12, 3, gate_evaluation="mean").eval()
    attention.theta.data.copy_(torch.tensor([-1.0, 0.0, 1.0]))
    assert attention.gates().tolist() == gates.deterministic(attention.log_alpha).tolist()
    attention.gate_evaluation = "rounded"
    assert attention.gates().tolist() == [0, 1, 1]


def test_draws_have_a_gradient() -> None:
    """That of the same draw moved a little, by central differences."""
    log_alpha, step = torch.linspace(-1, 1, 9).requires_grad_(), 1e-6

    def drawn(offset: float) -> torch.Tensor:
        torch.manual_seed(2)
        return gates.sample(log_alpha + offset)

    drawn(0.0).sum().backward()
    expected = (drawn(step) - drawn(-step)) / (2 * step)
    torch.testing.assert_close(log_alpha.grad, expected.detach(), rtol=1e-6, atol=1e-8)
    assert log_alpha.grad.count_nonzero() > 2


# ---- the heads -----------------------------------------------------------------------------------


def test_open_gates_are_one_in_evaluation_and_seldom_closed_in_training() -> None:
    attention = GatedAttention(16, 4)
    assert attention.eval().gates().tolist() == [1] * 4
    log_alpha = attention.log_alpha.detach()
    assert probability_one(log_alpha).min() > 0.95
    assert gates.probability_open(log_alpha).min() > 0.99


def test_a_gate_is_drawn_once_a_batch_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    sample_ = gates.sample
    monkeypatch.setattr(
        gates, "sample", lambda log_alpha: drawn.append(len(log_alpha)) or sample_(log_alpha)
    )
    net = model()
    half_open(net)
    one, other = (net(**toy.batch())[0] for _ in range(2))
    assert drawn == [4] * 6 * 2  # six attentions with four heads, whatever the sentences
    assert not torch.equal(one, other)
    net.eval()
    one, other = (net(**toy.batch())[0] for _ in range(2))
    assert torch.equal(one, other)
    assert len(drawn) == 12


def test_speed_changes_steps_and_not_gates() -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    moved = []
    for speed in (1, 10):
        attention = GatedAttention(16, 4, gate_speed=speed)
        torch.testing.assert_close(attention.log_alpha, torch.full((4,), gates.OPEN))
        optimiser = torch.optim.Adam([attention.theta], lr=0.01)
        gates.probability_open(attention.log_alpha).sum().backward()
        optimiser.step()
        moved.append(float((gates.OPEN - attention.log_alpha.detach()).mean()))
    assert moved == [pytest.approx(0.01, rel=1e-4), pytest.approx(0.1, rel=1e-4)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_draws_in_single(dtype: torch.dtype) -> None:
    """1 - 1e-6 is 1 in half precision, and its logit infinite."""
    attention = GatedAttention(16, 4).to(dtype)
    assert attention.gates().dtype == torch.float32
    x = torch.randn(3, 2, 16, dtype=dtype)
    assert attention(x, x, x)[0].dtype == dtype


def test_chosen_sites_have_gates_and_others_are_plain() -> None:
    net = model(gated_sites="cross,encoder")
    assert [attention.site for attention in gated_attentions(net)] == [
        *["encoder"] * 2,
        *["cross"] * 2,
    ]
    assert not isinstance(net.decoder.layers[0].self_attn, GatedAttention)


# ---- the loss ------------------------------------------------------------------------------------


def test_training_adds_the_penalty() -> None:
    """9 target tokens; loss and gradient."""
    net = model(gate_speed=3)
    half_open(net)
    torch.manual_seed(3)
    total, size, log = criterion()(net, sample())
    total.backward()
    gradient = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    torch.manual_seed(3)
    plain, expected_size, plain_log = toy.criterion()(net, sample())
    theta = torch.cat([attention.theta for attention in gated_attentions(net)])
    expected = plain + 9 * LAMBDA * torch.sigmoid(3 * theta + 0.33 * math.log(11)).sum()
    expected.backward()
    assert size == expected_size == 9
    assert log["loss"] == plain_log["loss"]
    close(total, expected)
    for name, parameter in net.named_parameters():
        close(gradient[name], parameter.grad)


def test_log() -> None:
    """Of six closed, one half open and seventeen open gates."""
    net = model()
    with torch.no_grad():
        net.encoder.layers[0].self_attn.theta[:] = -9.0
        net.decoder.layers[1].encoder_attn.theta[1:] = torch.tensor([-9.0, 0, -9])
    logs = [criterion()(net, sample())[2] for _ in range(2)]
    with metrics.aggregate(new_root=True) as meters:
        criterion().reduce_metrics(logs)
    values = meters.get_smoothed_values()
    assert (values["gates_open"], values["gates_between"]) == (18, 1)
    with torch.no_grad():  # its mean is above 0, but it is closed in evaluation
        net.decoder.layers[1].encoder_attn.theta[2] = -1.0
    log = criterion()(net, sample())[2]
    assert (log["gates_open"], log["gates_between"]) == (17, 1)
    open_, half, closed = (1 / (1 + math.exp(-x - 0.33 * math.log(11))) for x in (4, 0, -9))
    expected = {
        "encoder": 4 * closed + 4 * open_,
        "decoder": 8 * open_,
        "cross": 5 * open_ + half + 2 * closed,
    }
    for site, norm in expected.items():
        assert values[f"gates_l0_{site}"] == pytest.approx(norm, abs=0.01)
    assert values["gates_l0"] == pytest.approx(sum(expected.values()), abs=0.01)


def test_sites_without_gates_are_not_logged() -> None:
    log = criterion()(model(gated_sites="encoder"), sample())[2]
    assert "gates_l0_encoder" in log
    assert "gates_l0_cross" not in log
    with metrics.aggregate(new_root=True) as meters:
        criterion().reduce_metrics([log])
    assert "gates_l0_cross" not in meters.get_smoothed_values()


def test_validation_knows_nothing_of_the_penalty() -> None:
    net = model().eval()
    loss, _, log = criterion()(net, sample())
    expected, _, expected_log = toy.criterion()(net, sample())
    assert loss == expected
    assert log.keys() == expected_log.keys()
    with metrics.aggregate(new_root=True) as meters:
        criterion().reduce_metrics([log])
    assert "gates_open" not in meters.get_smoothed_values()


# ---- frozen parts --------------------------------------------------------------------------------


def trained_names(**options: Any) -> set[str]:
    net = model(**options)
    return {name for name, parameter in net.named_parameters() if parameter.requires_grad}


def test_a_frozen_decoder_leaves_the_encoder() -> None:
    names = trained_names(freeze="decoder", gated_sites="encoder")
    assert names == {name for name in trained_names() if name.startswith("encoder")}
    assert "encoder.embed_tokens.weight" in names


def test_a_matrix_of_both_sides_is_frozen_with_either() -> None:
    shared = {"share_all_embeddings": True, "gated_sites": "encoder"}
    assert "encoder.embed_tokens.weight" in trained_names(**shared)
    assert "encoder.embed_tokens.weight" not in trained_names(freeze="decoder", **shared)


def test_frozen_embeddings() -> None:
    options = {"encoder_learned_pos": True, "decoder_learned_pos": True}
    gone = trained_names(**options) - trained_names(freeze="embeddings", **options)
    assert gone == {
        *(
            f"{side}.embed_{what}.weight"
            for side in ("encoder", "decoder")
            for what in ("tokens", "positions")
        ),
        "decoder.output_projection.weight",
    }
    both = trained_names(freeze="decoder,embeddings", gated_sites="encoder")
    assert both == {name for name in trained_names() if name.startswith("encoder.layers.")}


# ---- weights without gates -----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["transformer", "transformer_headsize_n"])
@pytest.mark.parametrize("sites", ["encoder", "encoder,decoder,cross"])
def test_a_converged_model_stays_what_it_is(source: str, sites: str) -> None:
    """In evaluation the gates are 1, whatever stands in their parameters before."""
    trained = toy.model(source).eval()
    net = model(gated_sites=sites)
    net.load_state_dict(trained.state_dict(), strict=True)
    logits = net.eval()(**toy.batch())[0]
    close(logits, trained(**toy.batch())[0])
    assert len(gated_attentions(net)) == 2 * len(sites.split(","))


def test_loading_a_plain_transformer_says_what_nothing_can_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model().load_state_dict(toy.model("transformer_headsize_n").state_dict())
    assert not caplog.records
    model().load_state_dict(toy.model("transformer").state_dict())
    assert "do not contain the number of heads" in caplog.text


def test_gates_of_a_checkpoint_are_kept() -> None:
    source, net = model(), model()
    half_open(source)
    net.load_state_dict(source.state_dict())
    for one, other in zip(gated_attentions(source), gated_attentions(net), strict=True):
        assert torch.equal(one.theta, other.theta)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        (GATED, {"gate_speed": 2}, "encoder.layers.0.self_attn: gate speed is 2 in it, 1 here"),
        (GATED, {"gated_sites": "cross"}, "is 1 in it, 4 here"),
        ("transformer_headsize_n", {"encoder_attention_heads": 2}, "heads is 2 in it, 4 here"),
        ("transformer_headsize_n", {"attention_scale": "embed"}, "scale (0 key, 1 embed) is 1 in"),
        ("transformer_collab", {"key_dim": 8}, "is 2 in it, 4 here"),
        ("transformer_grouped_heads", {}, "is 3 in it, 4 here"),
        ("transformer", {"encoder_layers": 1}, "encoder.layers.1.self_attn.k_proj.weight is miss"),
    ],
)
def test_other_heads_do_not_load(arch: str, options: dict[str, Any], message: str) -> None:
    with refusing(message):
        model().load_state_dict(toy.model(arch, **options).state_dict())


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gated_sites": "encoder,self"}, "--gated-sites is 'encoder,self'; it must name some of"),
        ({"gated_sites": ""}, "--gated-sites is ''; it must name some of encoder, decoder, cross"),
        ({"gate_speed": 0}, "gate_speed is 0; it must be at least 1"),
        (
            {"gate_evaluation": "median"},
            "gate evaluation is 'median'; it must be one of rounded, mean",
        ),
        ({"freeze": "head"}, "--freeze: is 'head'; it must name some of encoder, decoder, embed"),
        ({"freeze": "decoder"}, "--freeze: freezes the gates of cross and decoder attention, too;"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with refusing(message):
        model(**options)


@pytest.mark.parametrize("penalty", [-1.0, float("nan")])
def test_wrong_penalties(penalty: float) -> None:
    with refusing(f"--gate-penalty: is {penalty}; it must be 0 or more"):
        criterion(penalty)


@pytest.mark.usefixtures("process_group")
def test_models_without_gates() -> None:
    alone = language_model("transformer_lm_collab").train()
    models = toy.model("transformer_headsize_n").train(), alone, on_several_devices(alone)
    for one in models:
        with refusing("give --arch transformer_gated_heads"):
            criterion()(one, sample())


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    "option",
    [{"checkpoint_activations": True}, {"encoder_layerdrop": 0.1}, {"decoder_layerdrop": 0.1}],
)
def test_gradients_that_come_in_parts_are_refused(option: dict[str, Any]) -> None:
    """In place of torch's "Expected to mark a variable ready only once" in the backward pass."""
    with refusing("pytorch_ddp cannot train gates", "give --ddp-backend legacy_ddp"):
        criterion()(on_several_devices(model(**option)), sample())


@pytest.mark.usefixtures("process_group")
def test_gates_train_on_several_devices() -> None:
    trained = on_several_devices(model())
    for _ in range(2):
        criterion()(trained, sample())[0].backward()


def on_several_devices(trained: nn.Module) -> nn.Module:
    """A model as fairseq gives it to criterions with --ddp-backend pytorch_ddp."""
    return ModuleProxyWrapper(DistributedDataParallel(trained))
