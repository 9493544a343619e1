"""Plans: choices, budgets, smaller models, and their exactness where nothing is cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from refusals import refusing
from torch import Tensor

from collab_lab import open_model, validation_loss
from collab_lab.cli.main import main
from collab_lab.pricing import removal
from collab_lab.shrinking.choices import Choice, attention_parameters, uncut, undominated
from collab_lab.shrinking.plan import costs, propose, whole_costs
from collab_lab.shrinking.shrunk import Calibration, Shrunk, shrink
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import feed_forwards


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("shrink")
    return open_model(toy_checkpoints.write(folder / "c.pt"), toy_checkpoints.COPY)


@pytest.fixture(scope="module")
def found(model: Trained) -> Calibration:
    return Calibration.of(model, sentences=20)


# ---- removal -------------------------------------------------------------------------------------


def covariance(n: int) -> Tensor:
    return torch.randn(3 * n, n).double().T.cov() + 0.1 * torch.eye(n).double()


@pytest.mark.parametrize(("inputs", "size"), [(12, 1), (12, 3), (12, 4)])
def test_prices_of_removed_blocks_add_up_to_the_closed_form(inputs: int, size: int) -> None:
    """``tr(W_R (C_RR - C_RK C_KK^-1 C_KR) W_R^T Delta) / 2``, in bits; the cheapest goes first."""
    torch.manual_seed(3)
    weight, c, fisher = torch.randn(8, inputs).double(), covariance(inputs), covariance(8)
    total, gone = 0.0, list[int]()
    alone = removal.prices(weight, c, fisher, size)
    for step, (rise, block) in enumerate(removal.removal_order(weight, c, fisher, size)):
        if not step:
            assert (rise, block) == (pytest.approx(min(alone)), alone.index(min(alone)))
        total, gone = total + rise, [*gone, *range(block * size, (block + 1) * size)]
        left = [i for i in range(inputs) if i not in gone]
        known = c[gone][:, left] @ torch.linalg.solve(c[left][:, left], c[left][:, gone])
        bracket = c[gone][:, gone] - known
        expected = torch.trace(weight[:, gone] @ bracket @ weight[:, gone].T @ fisher)
        assert total == pytest.approx(float(expected) / 2 / math.log(2))
    assert len(gone) == inputs


# ---- choices -------------------------------------------------------------------------------------


def test_a_choice_that_another_one_beats_is_left_out() -> None:
    cheap, dear = Choice(2, 0, 0, 0.1, 8, 8, 2), Choice(2, 0, 0, 0.2, 8, 9, 2)
    smaller = Choice(1, 0, 0, 0.3, 4, 4, 1)
    assert undominated([dear, smaller, cheap]) == [cheap, smaller]


def test_costs_of_sites_are_those_of_the_weights(model: Trained) -> None:
    for attention in attentions(model.model):
        weights = attention.module.parameters()
        assert uncut(attention).parameters == sum(w.numel() for w in weights)
    for block in feed_forwards(model.model):
        maps = (block.module.fc1, block.module.fc2)
        fixed = sum(w.numel() for m in maps for w in m.parameters())
        assert uncut(block).parameters == fixed


# ---- plans ---------------------------------------------------------------------------------------


def test_a_plan_without_cuts_is_the_identity(model: Trained, found: Calibration) -> None:
    plan = propose(model, found.attentions, found.units, {"cache": 1.0, "parameters": 1.0})
    assert plan.price == pytest.approx(0, abs=1e-9)
    smaller, _, rise = plan.apply(model, found.attentions, found.batches)
    assert rise == pytest.approx(0, abs=1e-4)
    assert validation_loss(smaller) == pytest.approx(validation_loss(model), abs=1e-5)


@pytest.mark.parametrize(
    "shares",
    [
        {"parameters": 0.7},
        {"parameters": 0.4},
        {"heads": 0.5},
        {"cache": 0.25},
        {"cache": 0.2, "parameters": 0.7},
        {"cache": 0.5, "heads": 0.6},
    ],
)
def test_plans_meet_their_targets(
    model: Trained, found: Calibration, shares: dict[str, float]
) -> None:
    """The costs of the model that is built, which opens again with equal losses."""
    result = shrink(model, **shares, calibration=found)
    whole, now = whole_costs(model), costs(result.model)
    for name, share in shares.items():
        assert now[name] <= share * whole[name] + 1e-9
        assert result.shares[name] == now[name] / whole[name]
    assert result.plan.price > 0
    assert len(repr(result).splitlines()) == 2


@pytest.mark.parametrize("shares", [{"parameters": 0.6}, {"heads": 0.5}, {"cache": 0.5}])
def test_a_model_for_ctranslate2(
    model: Trained, found: Calibration, shares: dict[str, float]
) -> None:
    """Equally many heads on each side, no latents, no rounding; the free choice costs less."""
    result = shrink(model, **shares, engine="ct2", calibration=found)
    heads = result.model.heads
    assert len({*heads["encoder"]}) == 1 == len({*heads["decoder"], *heads["cross"]})
    assert not result.plan.sizes
    assert not result.plan.bits
    assert all(result.shares[name] <= share for name, share in shares.items())
    only = ["heads", "units"] if "parameters" in shares else ["heads"]
    assert shrink(model, **shares, only=only, calibration=found).plan.price <= result.plan.price


def test_a_shrunk_model_is_saved_and_shrunk_again(
    model: Trained, found: Calibration, tmp_path: Path
) -> None:
    first = shrink(model, parameters=0.7, calibration=found)
    first.model.with_plan(first.plan.to_json()).save(tmp_path / "first.pt")
    again = open_model(tmp_path / "first.pt", toy_checkpoints.COPY)
    assert validation_loss(again) == pytest.approx(validation_loss(first.model))
    assert again.state["extra_state"]["plan"]["kind"] == "headsize"
    second = shrink(again, cache=0.2, parameters=0.8, sentences=20)
    assert costs(second.model)["cache"] < costs(first.model)["cache"]
    assert costs(second.model)["parameters"] < costs(first.model)["parameters"]


def test_a_rounded_cache_stays_rounded(tmp_path: Path) -> None:
    """Where the cache is not cut."""
    checkpoint = toy_checkpoints.write(
        tmp_path / "c.pt", "transformer_headsize_n", cache_bits_in_cross="4,8"
    )
    rounded = open_model(checkpoint, toy_checkpoints.COPY)
    result = shrink(rounded, parameters=0.8, sentences=20)
    bits = {str(a): a.module.cache_bits for a in attentions(result.model.model)}
    assert [bits[f"cross {layer}"] for layer in (0, 1)] == [4, 8]
    assert result.shares["cache"] == costs(result.model)["cache"] / whole_costs(rounded)["cache"]


def test_pruned_then_converted_is_both_at_once(model: Trained, found: Calibration) -> None:
    """To rounding: a plan without a refit, in one step and in two."""
    both = propose(model, found.attentions, found.units, {"cache": 0.2, "heads": 0.6})
    assert both.sizes
    at_once, _ = both.build(model, found.attentions)
    assert [len(at_once.attentions[t]) for t in ("encoder", "decoder", "cross")] == [2, 2, 2]
    assert at_once.heads == {t: [*map(len, of)] for t, of in both.retained.items()}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["transformer_gated_heads", "transformer_grouped_heads"])
def test_heads_with_gates_and_groups(arch: str, tmp_path: Path) -> None:
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", arch)
    out = [str(checkpoint), str(toy_checkpoints.COPY), "--cpu", "--sentences=20"]
    assert main(["shrink", *out, "--parameters=0.8", "--out", str(tmp_path / "o.pt")]) == 0
    model = open_model(checkpoint, toy_checkpoints.COPY)
    assert shrink(model, cache=0.3, sentences=20).plan.sizes


def test_the_smallest_model_that_loses_little(model: Trained, found: Calibration) -> None:
    before = validation_loss(model)
    result = shrink(model, lose=0.05, calibration=found)
    assert isinstance(result, Shrunk)
    assert validation_loss(result.model) - before <= 0.05
    assert result.shares["parameters"] < 1


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({}, "no target"),
        ({"cache": 1.5}, "cache"),
        ({"lose": 0.0}, "lose"),
        ({"cache": 0.5, "only": ["units"]}, "cache"),
        ({"parameters": 0.5, "only": ["bits"]}, "only"),
        ({"cache": 0.5, "kinds": ["none"]}, "kinds"),
        ({"cache": 0.5, "engine": "none"}, "engine"),
        ({"parameters": 0.5, "kinds": ["latent"]}, "kinds"),
        ({"cache": 0.5, "sentences": 9}, "sentences"),  # next to a calibration
        pytest.param({"lose": 5.0, "cache": 0.001}, "the least is", marks=pytest.mark.slow),
        ({"lose": True}, "lose"),
        ({"cache": 0.5, "engine": "ct2", "only": ["cache"]}, "grouped query"),
        ({"heads": 0.0}, "the least is"),
        ({"lose": 0.1, "parameters": 0.5}, "leave `parameters` out"),
    ],
)
def test_targets_that_make_no_sense(
    wrong: dict[str, Any], place: str, model: Trained, found: Calibration
) -> None:
    with refusing(place):
        shrink(model, **wrong, calibration=found)


def test_parameters_of_latents(model: Trained, found: Calibration) -> None:
    """As counted before a model is built."""
    result = shrink(model, cache=0.2, calibration=found)
    for attention in attentions(result.model.model):
        source = next(a for a in attentions(model.model) if a == attention)
        size = getattr(attention.module, "latent_dim", 0)
        expected = attention_parameters(source.module, attention.module.num_heads, size)
        used = attention.module.parameters()
        assert sum(w.numel() for w in used) == expected, attention
