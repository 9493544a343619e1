"""Targets, exact costs of candidates, and the choice among measured ones."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import numpy as np
import pytest
from parity.test_prune_parity import trained
from refusals import refusing
from toy_heads import sample

from collab_common.errors import UserError
from collab_lab.advice.advisor import Final, advise, candidates, chosen, increase
from collab_lab.cli.advise import parse
from collab_lab.conversion.converter import Converter
from collab_lab.conversion.kinds import TARGETS, Latent
from collab_lab.metrics.cost import totals
from collab_lab.metrics.significance import Gain, gain_per_unit
from collab_lab.pricing.bits import point
from collab_lab.pricing.statistics import collect
from collab_lab.trained.checkpoint import Trained

COSTS = ("cache", "parameters")
POSITIONS = {"max_source_positions": 40, "max_target_positions": 40}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", POSITIONS),
    "language model": ("transformer_lm", {"tokens_per_sample": 40, "max_target_positions": 40}),
}


def source(name: str) -> Trained:
    arch, options = SOURCES[name]
    return trained(arch, separate=False, **options)


@pytest.mark.parametrize("text", ["beauty=0.5", "cache", "cache=1", "parameters=0"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse(text)


def test_targets() -> None:
    assert parse("parameters=0.7") == ("parameters", 0.7)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "name", ["stock", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SOURCES][1:])]
)
def test_costs_are_known_before_a_model_is_built(name: str) -> None:
    model = source(name)
    statistics, whole = collect(model, [sample(lm=model.is_language_model)]), totals(model.model)
    for kind, conversion in TARGETS.items():
        try:
            converter = Converter(model, conversion(), statistics)
        except UserError:
            continue
        points = {one: converter.curve(one) for one in converter.attentions}
        sizes = {one: next(p.size for p in curve if p.size) for one, curve in points.items()}
        made = totals(converter.convert(sizes)[0].model)
        for of in COSTS:
            expected = whole[of]
            for one in converter.attentions:
                now = point(one, 0, one.module.state_dict(), 0.0)
                after = next(p for p in converter.curve(one) if p.size == sizes[one])
                expected += getattr(after, of) - getattr(now, of)
            assert made[of] == expected, (kind, of)


ALL = {"cache": 0.7, "parameters": 0.97}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("stock", {"parameters": 0.9}),
        *(
            pytest.param(name, shares, marks=pytest.mark.slow)
            for name, shares in (("stock", {"cache": 0.5}), ("language model", ALL))
        ),
    ],
)
def test_candidates_meet_all_targets(name: str, shares: dict[str, float]) -> None:
    model = source(name)
    whole = totals(model.model)
    found, rejected = candidates(
        model, collect(model, [sample(lm=model.is_language_model)]), shares
    )
    assert found
    kinds = {kind.heads_name for kind in TARGETS.values()} | {"fewer heads"}
    assert {one.name for one in found} | {*rejected} == kinds
    for one in found:
        made, price = one.make()
        assert 0 <= price <= 1.01 * one.price
        for of, share in shares.items():
            assert totals(made.model)[of] <= share * whole[of], one.name


@pytest.mark.usefixtures("float64")
def test_shares_of_a_rounded_model_are_of_its_numbers_at_16_bits() -> None:
    model = trained("transformer_headsize_n", cache_bits="8", **POSITIONS)
    costs, now = totals(model.model, rounded=False)["cache"], totals(model.model)["cache"]
    converter = Converter(model, Latent(), collect(model, [sample()]))
    assert {*converter.spread({"parameters": 1.0})[1].values()} == {8}  # as it is
    share = 0.7 * now / costs
    (found,) = [
        one
        for one in candidates(model, collect(model, [sample()]), {"cache": share})[0]
        if one.name == "fewer heads"
    ]
    assert 0.5 * share * costs < totals(found.make()[0].model)["cache"] <= share * costs
    with refusing():
        advise(model, {"cache": 1.01 * now / costs})


# ---- the choice ----------------------------------------------------------------------------------

TOKENS = np.full(200, 10)


def final(name: str, lost: float, cache: float, parameters: int = 5, noise: float = 0.1) -> Final:
    """A candidate that loses ``lost`` bits per token, with noise of its own in every sentence."""
    noises = np.random.default_rng(len(name)).normal(0, noise, len(TOKENS))
    bits = TOKENS * (lost + noises - noises.mean())
    shares = {"cache": cache, "parameters": parameters / 5}
    gain = gain_per_unit(bits, TOKENS)
    return Final(name, ("", []), None, 0.1, 0.1, gain, shares, bits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finals", "answer"),
    [
        # Inside the interval the cheaper one wins, even against a gain.
        ([final("a", -0.001, 0.5), final("bb", 0.001, 0.4)], "bb"),
        ([final("a", 0.001, 0.4), final("bb", 0.002, 0.4, parameters=4)], "bb"),
        ([final("a", 0.001, 0.401), final("bb", 0.002, 0.399, parameters=6)], "a"),
        # Outside it, the better one.
        ([final("a", 0.0, 0.5, noise=0.001), final("bb", 0.04, 0.4, noise=0.001)], "a"),
        # A cheap one that loses too much is none.
        ([final("a", 0.045, 0.5), final("bb", 0.055, 0.4)], "a"),
        ([final("a", 0.06, 0.5)], None),
    ],
)
def test_the_interval_decides(finals: list[Final], answer: str | None) -> None:
    found = chosen(finals, {"cache": 0.5}, 0.05, TOKENS)
    assert (found and found.name) == answer


def test_rounding_is_no_difference() -> None:
    noise = np.random.default_rng(1).normal(1e-5, 1e-5, len(TOKENS))
    assert increase(TOKENS + noise, TOKENS, TOKENS) == Gain(0.0)
    assert increase(TOKENS + 1e3 * noise, TOKENS, TOKENS).significant


def test_the_interval_of_a_mean_per_token_is_the_bootstraps() -> None:
    chance = np.random.default_rng(1)
    tokens = chance.integers(1, 40, 500)
    gains = tokens * chance.normal(0.02, 0.3, len(tokens))
    found = gain_per_unit(gains, tokens)
    drawn = chance.integers(len(tokens), size=(4000, len(tokens)))
    means = gains[drawn].sum(1) / tokens[drawn].sum(1)
    assert found.mean == pytest.approx(gains.sum() / tokens.sum())
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=2e-3)
    assert gain_per_unit(0 * gains, tokens).low is None
    half = 4.302653 * (7 / 3 / 3) ** 0.5  # Student's t of two degrees, sd / sqrt(n) of 1, 2, 4
    assert gain_per_unit([1, 2, 4], [1, 1, 1]).low == pytest.approx(7 / 3 - half, abs=1e-5)
