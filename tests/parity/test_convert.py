"""Conversion in closed form: exact at full size, and optimal below it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from toy_reparametrize import Conversions, batch, converted, inputs, target_of, trained

from collab_lab.mathematics import low_rank
from collab_lab.mathematics.low_rank import BY_MIXING, separate_keys
from collab_lab.mathematics.new_heads import (
    groups_of_neighbours,
    narrower_keys,
    own_latent,
    shared_keys,
)
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import (
    Shared,
    WeightedMaps,
    all_directions,
    balanced,
    best_shared_key,
    first_projection,
    grouped,
    latents,
    one_latent,
    rounding_basis,
    shared_projection,
)
from collab_lab.metrics.cost import totals
from collab_lab.shrinking.by_hand import chosen_sizes
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.plan import Allowed
from collab_lab.shrinking.planner import propose
from collab_lab.statistics.gram import ridged
from collab_lab.statistics.moments import Sums, collect
from collab_lab.trained.attentions import attentions
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.latent import LatentAttention

pytestmark = pytest.mark.usefixtures("float64")

D, H, h = 16, 4, 4
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    ("transformer", {"encoder_attention_heads": 2}),
    ("transformer_headsize_n", {}),
    ("transformer_headsize_n", {"attention_scale": "embed", "heads_in_encoder": "8"}),
    ("transformer_lm", {}),
    ("transformer_lm", {"scale_fc": True}),  # which it ignores
    ("transformer_lm_headsize_n", {}),
]
NARROW = [
    ("transformer_headsize_n", {"qk_head_size": 6}),
    ("transformer_headsize_n", {"qk_head_size": 3, "attention_scale": "embed"}),
    ("transformer_lm_headsize_n", {"qk_head_size": 6}),
]
#: Equally many heads in all attentions of a type, but not of the decoder.
BY_TYPE = [("transformer_headsize_n", {"heads_in_cross": "2", "head_size": 4})]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "models"),
    [
        (["--query-mixing=own"], [*MODELS, *NARROW, *BY_TYPE]),
        (["--query-mixing=full"], [*MODELS, *NARROW]),
        (["--query-mixing=diagonal"], [*MODELS, *NARROW]),
        (["--to=separate"], [*MODELS, *NARROW]),
        (["--to=grouped-query"], [*MODELS, *BY_TYPE]),
        (["--to=latent"], [*MODELS, *NARROW, *BY_TYPE]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_full_size_is_exact(options: list[str], models: list) -> None:
    """Logits of the whole model, with padding and causal masks."""
    for arch, given in models:
        found = trained(arch, **given)
        places = attentions(found.model)
        target = target_of(*options)
        sizes = {place: target.exact_size(place.module) for place in places}
        model, prices = converted(found, sizes, *options)
        expected, logits = found.model(**inputs(found))[0], model(**inputs(found))[0]
        real = expected.isfinite()
        assert (logits - expected)[real].abs().max() < 1e-8, (arch, given)
        assert max(prices.values()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "given"),
    [("transformer", {}), ("transformer_headsize_n", {"qk_head_size": 6, "v_head_size": 3})],
)
def test_latents_leave_other_attentions_alone(arch: str, given: dict[str, Any]) -> None:
    """With the heads that these have, of any size: by a share of the cache, and by size 0."""
    found = trained(arch, None, **given)
    statistics = collect(found, [batch(found)])
    work = Conversions(found, Latent(), statistics)
    plan = propose(work.evidence, {"cache": 0.25}, Allowed(("cache",), ("latent",), (0,)))
    chosen = {"encoder": 0, "decoder": "0,4", "cross": 4}
    by_hand = chosen_sizes(None, chosen, found, Latent())
    for narrowed, shared in ((plan.sizes, plan.shared), (by_hand, False)):
        assert "encoder" not in {place.type for place in narrowed}
        result, prices = work.convert(narrowed, shared=shared)
        assert {*prices} == {*narrowed}
        for old, new in zip(attentions(found.model), attentions(result.model), strict=True):
            if old in narrowed:
                assert isinstance(new.module, LatentAttention)
                continue
            assert isinstance(new.module, SeparateAttention)
            weights = dict(new.module.named_parameters())
            assert {*weights} == {*dict(old.module.named_parameters())}
            assert all(torch.equal(x, weights[n]) for n, x in old.module.named_parameters())
        assert totals(result.model)["parameters"] < totals(found.model)["parameters"]
        again = found.task.build_model(result.cfg.model)  # from scratch, by its options
        assert totals(again) == totals(result.model)


def attention(seed: int = 1, **sizes: int) -> PricedAttention:
    """Trained heads; inputs and gradients that are correlated and have a mean."""
    torch.manual_seed(seed)
    part = PricedAttention(toy.randomised(SeparateAttention(D, H, **sizes)), None)
    sums = Sums(part.module)

    def drawn() -> torch.Tensor:
        return torch.randn(10, 40, D) @ torch.randn(D, D) / 4 + torch.randn(D)

    sums.add(drawn(), drawn(), torch.ones(10, 40, dtype=torch.bool), drawn())
    part.statistics = sums.result(400).ridged()
    return part


def shared(part: PricedAttention, mixing: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries of each head, and their key."""
    if mixing == "own":
        return best_shared_key(part.maps, part.statistics, size)
    made = BY_MIXING[mixing](part.maps, part.statistics, size)
    return made.queries(), made.key


def price(part: PricedAttention, shared: tuple[torch.Tensor, torch.Tensor]) -> float:
    return part.key_price(shared[0], shared[1].unsqueeze(0))


@pytest.mark.parametrize("size", [1, 3, 8, 15])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_freer_query_never_loses_more(seed: int, size: int) -> None:
    part = attention(seed)
    prices = {mixing: price(part, shared(part, mixing, size)) for mixing in ("own", *BY_MIXING)}
    assert prices["own"] < prices["full"] < prices["diagonal"]
    if size % H == 0:
        alone = part.key_price(*separate_keys(part.maps, part.statistics, size // H))
        assert alone == pytest.approx(prices["separate"])
        assert prices["own"] < alone


def test_heads_that_are_equal_have_a_diagonal() -> None:
    """Their directions are equal, so that no system of equations has one solution."""
    part = attention()
    first = (maps[:1].expand(H, -1, -1) for maps in (part.maps.queries, part.maps.keys))
    part.maps = part.maps._replace(**dict(zip(("queries", "keys"), first, strict=True)))
    assert price(part, shared(part, "diagonal", D - 1)) < 1e-9


def squared_error(parts: list[WeightedMaps], common: torch.Tensor) -> float:
    """With the best maps after ``common``, by least squares in each metric."""
    total = 0.0
    for part in parts:
        whole = torch.linalg.cholesky(part.metric).mT
        fitted = torch.linalg.lstsq(whole @ common, whole @ part.maps).solution
        lost = part.maps - common @ fitted
        total += float((lost.mT @ part.metric @ lost * part.output_metric).sum())
    return total


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("kinds", [("keys",), ("values",), ("keys", "values")])
def test_no_other_shared_projection_has_a_smaller_error(kinds: tuple[str, ...], size: int) -> None:
    """Random maps, those of the start, and the best ones disturbed."""
    part = attention()
    parts = [getattr(WeightedMaps, kind)(part.maps, part.statistics) for kind in kinds]
    best = shared_projection(parts, size, 200)
    least = squared_error(parts, best)
    assert least < squared_error(parts, first_projection(parts, size))
    generator = torch.Generator().manual_seed(3)
    for noise in (0.001, 0.01, 0.1, 100.0):
        change = noise * best.std() * torch.randn(best.shape, generator=generator)
        assert squared_error(parts, best + change) > least


def test_one_reading_is_enough() -> None:
    """A metric of rank one: a step of the search may leave the maps of full rank."""
    for seed in range(20):
        part = attention(seed)
        one = torch.randn(H, D, 1)
        part.statistics = replace(part.statistics, value_covariance=one @ one.mT).ridged()
        parts = [WeightedMaps.values(part.maps, part.statistics)]
        best = shared_projection(parts, 3, 60)
        first = squared_error(parts, first_projection(parts, 3))
        assert squared_error(parts, best) <= first * (1 + 1e-9)


def test_the_error_of_a_shared_projection_is_its_price() -> None:
    """Own queries, a latent, and the values of two groups."""
    part = attention()
    keys, values = (
        kind(part.maps, part.statistics) for kind in (WeightedMaps.keys, WeightedMaps.values)
    )
    bits = 2 * math.log(2)
    made = best_shared_key(part.maps, part.statistics, 5)
    assert price(part, made) == pytest.approx(squared_error([keys], made[1]) / bits)
    down, key_up, value_up = latents(part.maps, part.statistics, 9)
    found = part.key_price(part.maps.queries, down @ key_up)
    found += part.value_price(down @ value_up, part.maps.out)
    assert found == pytest.approx(squared_error([keys, values], down) / bits)
    out, shared_values = grouped(values, part.maps.out, 2)
    found = part.value_price(shared_values.repeat_interleave(2, 0), out)
    expected = sum(
        squared_error([group], one)
        for group, one in zip(values.groups(2), shared_values, strict=True)
    )
    assert found == pytest.approx(expected / bits)


def test_the_price_of_new_heads_is_that_of_their_keys_and_values() -> None:
    part = attention()
    keys, values = (
        kind(part.maps, part.statistics) for kind in (WeightedMaps.keys, WeightedMaps.values)
    )
    bits, expected = 2 * math.log(2), 0.0
    for heads, others in ((keys, part.maps.queries), (values, part.maps.out)):
        for group, one in zip(heads.groups(2), grouped(heads, others, 2)[1], strict=True):
            expected += squared_error([group], one) / bits
    assert groups_of_neighbours(part, 2)[1] == pytest.approx(expected)
    key = best_shared_key(part.maps, part.statistics, 5)[1]
    expected = squared_error([keys], key) / bits
    assert shared_keys(part, 5, "own")[1] == pytest.approx(expected)
    down = latents(part.maps, part.statistics, 9)[0]
    assert own_latent(part, 9)[1] == pytest.approx(squared_error([keys, values], down) / bits)


def bilinear_maps(
    weights: dict[str, torch.Tensor], scale: float, heads: int, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What weights compute, head by head: scores ``(H, d + 1, d_y)``, outputs ``(H, d_y, d)``.

    The third is the constant that an output has beside ``sum_i z_i F_i``.
    """
    inputs = weights.get("latent_proj.weight", torch.eye(D))
    q = torch.cat([weights["q_proj.weight"], weights["q_proj.bias"].unsqueeze(1)], 1)
    out, h_v = weights["out_proj.weight"], weights["out_proj.weight"].size(1) // heads
    keys, values = len(weights["k_proj.weight"]) // size, len(weights["v_proj.weight"]) // h_v
    scores, outputs, constant = [], [], weights["out_proj.bias"].clone()
    for head in range(heads):
        if "mixing" in weights:
            mixing = weights["mixing"][head]
            query = (mixing.diag() if mixing.dim() == 1 else mixing).T @ q
        else:
            query = q[head * size : (head + 1) * size]
        group = head * keys // heads
        key = weights["k_proj.weight"][group * size : (group + 1) * size] @ inputs
        scores.append(scale * query.T @ key)
        group = head * values // heads
        rows, mine = slice(group * h_v, (group + 1) * h_v), out[:, head * h_v : (head + 1) * h_v]
        outputs.append((mine @ weights["v_proj.weight"][rows] @ inputs).T)
        if "v_proj.bias" in weights:
            constant += mine @ weights["v_proj.bias"][rows]
    return torch.stack(scores), torch.stack(outputs), constant


@pytest.mark.parametrize(
    ("kind", "size"),
    [("own", 7), ("full", 7), ("diagonal", 7), ("narrower", 8), ("groups", 2), ("latent", 9)],
)
def test_new_heads_cost_what_their_weights_change(kind: str, size: int) -> None:
    """Number by number: ``tr(D^T X D Gamma)`` and ``tr(F^T Z F Delta)`` of what heads compute.

    Queries and keys have six numbers and values five, so that no scale is another one; the mean of
    what a head reads is made up for.
    """
    part = attention(qk_head_size=6, v_head_size=5)
    new_scale, width = (D / H) ** -0.5, size
    if kind == "groups":
        weights, found = groups_of_neighbours(part, size)
        new_scale, width = 6**-0.5, 6
    elif kind == "latent":
        weights, found = own_latent(part, size)
        new_scale, width = 6**-0.5, 6  # those of the trained heads
    elif kind == "narrower":
        weights, found = narrower_keys(part, size)
        width = size // H
    else:
        weights, found = shared_keys(part, size, kind)
        weights = weights | part.copied("v_proj", "out_proj")
    statistics, before = part.statistics, part.module.state_dict()
    old = bilinear_maps(before, 6**-0.5, H, 6)
    new = bilinear_maps(weights, new_scale, H, width)
    expected = 0.0
    for head in range(H):
        change, gamma = old[0][head] - new[0][head], statistics.key_fisher[head]
        expected += float((change.T @ statistics.query_moment @ change @ gamma).trace())
        change, z = old[1][head] - new[1][head], statistics.value_covariance[head]
        expected += float((change.T @ z @ change @ statistics.output_fisher).trace())
    assert found == pytest.approx(expected / 2 / math.log(2))
    assert found > 1e-3
    means = torch.einsum("hy,hyd->d", statistics.value_mean, old[1] - new[1])
    toy.close(new[2], old[2] + means)


def test_narrower_keys_lose_the_least_singular_values() -> None:
    """``1/2 sum sigma^2 / ln 2`` of ``X^1/2 A_i B_i^T Gamma_i^1/2``: none is lower."""
    part, lost = attention(qk_head_size=6), 0.0
    x = torch.linalg.cholesky(part.statistics.query_moment)  # any root will do
    for head in range(H):
        gamma = torch.linalg.cholesky(part.statistics.key_fisher[head])
        scores = part.maps.queries[head] @ part.maps.keys[head].T
        lost += float(torch.linalg.svdvals(x.T @ scores @ gamma)[2:].square().sum())
    assert narrower_keys(part, 2 * H)[1] == pytest.approx(lost / 2 / math.log(2))


def test_heads_that_are_wider_than_the_model() -> None:
    """They have no more directions than it: what is beyond them is zeros, and loses nothing."""
    part = attention(qk_head_size=20)
    queries, keys = separate_keys(part.maps, part.statistics, 18)
    assert (queries.shape, keys.shape) == ((H, D + 1, 18), (H, D, 18))
    assert part.key_price(queries, keys) == pytest.approx(0, abs=1e-9)
    made = BY_MIXING["diagonal"](part.maps, part.statistics, 4 * 20 - 1)
    assert made.key.shape == (D, 79)
    assert made.mixing.shape == (H, 79)
    assert price(part, (made.queries(), made.key)) < 1


@pytest.mark.parametrize("mixing", ["full", "diagonal"])
def test_sweeps_lose_less_than_a_single_one(mixing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a metric that all heads have in common, which is that of the sweeps."""
    part, prices = attention(), []
    gamma = part.statistics.key_fisher.mean(0).expand(H, -1, -1)
    part.statistics = replace(part.statistics, key_fisher=gamma)
    for full, diagonal in ((1, 1), (2, 5), (4, 30)):
        monkeypatch.setattr(low_rank, "SWEEPS", full)
        monkeypatch.setattr(low_rank, "DIAGONAL_SWEEPS", diagonal)
        prices.append(price(part, shared(part, mixing, 6)))
    assert prices[0] > prices[1] > prices[2]


def test_maps_after_a_singular_projection_are_those_without_its_copies() -> None:
    """A column twice, and one of zeros, give nothing that the others do not."""
    part = attention()
    heads = WeightedMaps.keys(part.maps, part.statistics)
    common = torch.randn(D, 3)
    twice = torch.cat([common, common[:, :1], torch.zeros(D, 1)], 1)
    nearly = torch.cat([common, common[:, :1] + 1e-8 * torch.randn(D, 1)], 1)
    for more, tolerance in ((twice, 1e-9), (nearly, 1e-5)):
        found, expected = more @ heads.refitted(more), common @ heads.refitted(common)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_a_latent_is_rounded_in_a_balanced_basis() -> None:
    """Its second moment and its Fisher information are equal there, but for a factor."""
    torch.manual_seed(2)
    moment, fisher = (x @ x.mT for x in torch.randn(2, 7, 20))
    basis, inverse = rounding_basis(moment, fisher)
    toy.close(basis @ inverse, torch.eye(7))
    left, right = basis.mT @ ridged(moment) @ basis, inverse @ ridged(fisher) @ inverse.mT
    toy.close(left / left.trace(), right / right.trace())


def test_numbers_of_a_latent_have_equal_shares() -> None:
    """Of what is cached, and of what an error costs: they get one scale."""
    torch.manual_seed(2)
    sides = [torch.linalg.qr(torch.randn(12, 12)).Q for _ in range(2)]
    moment, fisher = (side @ torch.logspace(0, 4, 12).diag() @ side.T for side in sides)
    basis, inverse = rounding_basis(moment, fisher)
    toy.close(basis.norm(), inverse.norm())
    for made in (basis.T @ moment @ basis, inverse @ fisher @ inverse.T):
        shares = made.diagonal() / made.trace() * len(made)
        assert shares.max() < 2
        assert shares.min() > 0.1


def test_the_basis_of_a_common_latent_is_of_all_that_read_it() -> None:
    """The errors of one are those of both: their Fisher informations add up."""
    parts = [attention(seed) for seed in (1, 2)]
    down, ups = one_latent([(part.maps, part.statistics) for part in parts], 7, steps=0)
    made = parts[0].statistics.inputs @ down
    moment, fisher = made.T @ made / len(made), torch.zeros(7, 7)
    for part, pair in zip(parts, ups, strict=True):
        up = torch.cat([u.transpose(0, 1).flatten(1) for u in pair], 1)
        fisher += up @ part.statistics.cache_fisher @ up.T
    shares = [x / x.trace() for x in (moment, fisher)]
    torch.testing.assert_close(*shares, rtol=0.05, atol=2e-3)


def test_directions_are_those_of_what_heads_use_in_a_common_metric() -> None:
    """``N P c = lambda c``: N sums what heads write along c, P what inputs there weigh."""
    part = attention()
    both = [kind(part.maps, part.statistics) for kind in (WeightedMaps.keys, WeightedMaps.values)]
    for kinds in (both[:1], both[1:], both):
        p = sum(one.metric.mean(0) / one.metric.mean(0).trace() for one in kinds)
        used = torch.zeros(D, D)
        for one in kinds:
            of_kind = torch.einsum("hne,hef,hmf->nm", one.maps, one.output_metric, one.maps)
            used += of_kind / (of_kind @ p).trace()
        directions = all_directions(kinds)
        turned = used @ p @ directions
        factors = (turned * directions).sum(0) / directions.square().sum(0)
        torch.testing.assert_close(turned, factors * directions, rtol=1e-6, atol=1e-8)
        assert torch.equal(factors, factors.sort(descending=True).values)


@pytest.mark.parametrize("dims", [1, 2])
def test_balancing_changes_no_score(dims: int) -> None:
    """The mixing is as large as blocks of ones, query and key are equally large."""
    torch.manual_seed(dims)
    mixing = 9 * torch.randn(H, *[5] * dims)
    before = Shared(torch.randn(D + 1, 5), mixing, 50 * torch.randn(D, 5))
    after = balanced(before)
    toy.close(after.queries() @ after.key.T, before.queries() @ before.key.T)
    check_balance(*after)


def check_balance(query: torch.Tensor, mixing: torch.Tensor, key: torch.Tensor) -> None:
    """A diagonal in each dimension of the key ``(., K)``, matrices as a whole."""
    whole = mixing.dim() == 3
    sides = [side.square().mean(None if whole else 0) for side in (query, key)]
    toy.close(*sides)
    size = mixing.square().sum() / mixing.size(1) if whole else mixing.square().sum(0)
    toy.close(size, torch.ones_like(size))


def test_a_latent_starts_from_equal_shares_of_keys_and_values() -> None:
    """Keys and their gradients that are 100 times as large do not crowd out values."""
    part, spans = attention(), []
    for factor in (1, 100):
        maps = part.maps._replace(keys=factor * part.maps.keys)
        statistics = replace(part.statistics, key_fisher=factor * part.statistics.key_fisher)
        start = torch.linalg.qr(latents(maps, statistics, 7, steps=0)[0]).Q
        spans.append(start @ start.T)
    toy.close(*spans)


@pytest.mark.parametrize(("size", "bits"), [(3, 171.618), (6, 60.543), (9, 23.140)])
def test_the_diagonal_starts_from_the_largest_directions(size: int, bits: float) -> None:
    """Other starts end in worse optima."""
    part = attention()
    assert price(part, shared(part, "diagonal", size)) == pytest.approx(bits, rel=1e-3)


def test_the_start_of_training_is_balanced() -> None:
    """Equal mean squares on both sides of every product; of separate keys, in their metrics."""
    part = attention()
    queries, keys = separate_keys(part.maps, part.statistics, 2)
    sides = ((queries, part.statistics.query_moment), (keys, part.statistics.key_fisher))
    toy.close(*((side.mT @ metric @ side).diagonal(dim1=1, dim2=2) for side, metric in sides))
    for mixing in ("own", "full", "diagonal"):
        weights, _ = shared_keys(part, 5, mixing)
        query = torch.cat([weights["q_proj.weight"], weights["q_proj.bias"].unsqueeze(1)], 1).T
        key = weights["k_proj.weight"].T
        if mixing == "own":
            queries = query.unflatten(1, (H, 5))  # (d + 1, H, K)
            toy.close(queries.square().mean((0, 1)), key.square().mean(0))
        else:
            check_balance(query, weights["mixing"], key)
    heads = WeightedMaps.values(part.maps, part.statistics)
    out, values = grouped(heads, part.maps.out, 2)
    toy.close(values.square().mean(1), out.unflatten(0, (2, -1)).square().mean((1, 2)))


def test_the_means_that_heads_read_lose_nothing() -> None:
    part = attention()
    maps, means = part.maps, part.statistics.value_mean
    values, out, read = 0.7 * maps.values[:, :-1], 1.2 * maps.out, "hn,hnv,hdv->d"
    one = torch.cat([means, torch.ones(H, 1)], 1)
    exact = maps.out_bias + torch.einsum(read, one, maps.values, maps.out)
    toy.close(part.out_bias(values, out) + torch.einsum(read, means, values, out), exact)


def test_heads_without_effect_have_no_price() -> None:
    """Queries, or gradients, of zeros: no key is better than another."""
    part = attention()
    silent = replace(
        part.statistics, key_fisher=torch.zeros_like(part.statistics.key_fisher)
    ).ridged()
    zeros = part.maps._replace(queries=torch.zeros_like(part.maps.queries))
    for maps, statistics in ((zeros, part.statistics), (part.maps, silent)):
        part.maps, part.statistics = maps, statistics
        for mixing in ("own", *BY_MIXING):
            assert all(one.isfinite().all() for one in shared(part, mixing, 4))
        assert all(one.isfinite().all() for one in latents(maps, statistics, 4))
