"""Plans: choices, budgets, smaller models, and their exactness where nothing is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
import toy_heads
from parity.test_prune_parity import trained as in_memory
from refusals import refusing
from torch import Tensor, nn
from toy_checkpoints import COPY
from toy_reparametrize import Conversions

from collab_common.errors import UserError
from collab_lab import convert, open_model, prune, validation_loss
from collab_lab.cli.main import main
from collab_lab.clock import parts
from collab_lab.mathematics import removal
from collab_lab.runs.score import model_numbers
from collab_lab.shrinking import apply, draft
from collab_lab.shrinking import shrink as shrinking
from collab_lab.shrinking.apply import apply_cuts, apply_plan
from collab_lab.shrinking.by_hand import keeping
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.narrower_heads import NarrowerHeads
from collab_lab.shrinking.cuts.one_copy import OneCopy
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.cuts.units import Units
from collab_lab.shrinking.cuttable import cuttable
from collab_lab.shrinking.evidence import Evidence, Removals
from collab_lab.shrinking.plan import Allowed, Plan
from collab_lab.shrinking.planner import Option, OutOfReachError, Planner, propose, undominated
from collab_lab.shrinking.price_list import Prices
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.shrinking.shape import (
    GROUPS,
    LATENTS,
    NARROWER_KEYS,
    ONE_LATENT,
    Kind,
    Shape,
    as_it_is,
    costs,
    model_costs,
    shared_keys_kind,
    shares_left,
    sites_of,
    whole_costs,
    width_of,
)
from collab_lab.shrinking.shrink import shrink
from collab_lab.shrinking.smaller import Smaller
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards
from collab_lab.trained.rebuilt import rebuilt
from fairseq_collab.attention import SeparateAttention


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("shrink")
    return open_model(toy_checkpoints.write(folder / "c.pt"), COPY)


@pytest.fixture(scope="module")
def found(model: Trained) -> Evidence:
    return Evidence.of(model, sentences=20)


# ---- removal -------------------------------------------------------------------------------------


def covariance(n: int) -> Tensor:
    return torch.randn(3 * n, n).double().T.cov() + 0.1 * torch.eye(n).double()


@pytest.mark.parametrize(
    ("inputs", "size"), [(12, 1), (12, 3), (12, 4), (180, 1), (150, 5), (140, 70)]
)
def test_prices_of_removed_blocks_add_up_to_the_closed_form(inputs: int, size: int) -> None:
    """``tr(W_R (C_RR - C_RK C_KK^-1 C_KR) W_R^T Delta) / 2``, in bits; the cheapest goes first."""
    torch.manual_seed(3)
    weight, c, fisher = torch.randn(8, inputs).double(), covariance(inputs), covariance(8)
    total, gone = 0.0, list[int]()
    alone = removal.prices(weight, c, fisher, size)
    for step, (rise, block) in enumerate(removal.group_removals(weight, c, fisher, size)):
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
    two, one = Shape(heads=(0, 1)), Shape(heads=(0,))
    cheap, dear = Option(two, 0.1, 8, 8, 2), Option(two, 0.2, 8, 9, 2)
    smaller = Option(one, 0.3, 4, 4, 1)
    assert undominated([dear, smaller, cheap]) == [cheap, smaller]
    equal = cheap._replace(parameters=9)  # which costs more, at the same price
    assert undominated([equal, cheap]) == [cheap]
    # Where sites have to agree in something, the best of each value is left.
    worse = Option(one, 0.4, 9, 9, 2)
    assert undominated([worse, cheap], [lambda shape: len(shape.heads)]) == [cheap, worse]
    assert undominated([dear, cheap], [lambda shape: len(shape.heads)]) == [cheap]


@pytest.mark.parametrize("cost", ["cache", "parameters", "heads", "time"])
def test_a_choice_that_has_the_least_of_a_single_cost_is_left(cost: str) -> None:
    """A budget of this cost may need it, whatever else it takes."""
    cheap = Option(Shape(heads=(0, 1)), 0.1, 8, 8, 2, 8)
    dear = Option(Shape(heads=(0, 1, 2)), 0.2, 9, 9, 3, 9)
    assert undominated([dear, cheap]) == [cheap]
    dear = dear._replace(**{cost: 1})
    assert undominated([dear, cheap]) == [cheap, dear]


def test_costs_of_sites_are_those_of_the_weights(model: Trained) -> None:
    for attention in attentions(model.model):
        weights = attention.module.parameters()
        whole = costs(attention, as_it_is(attention))
        assert whole.parameters == sum(w.numel() for w in weights)
    for block in feed_forwards(model.model):
        maps = (block.module.fc1, block.module.fc2)
        fixed = sum(w.numel() for m in maps for w in m.parameters())
        assert costs(block, as_it_is(block)).parameters == fixed


@pytest.mark.parametrize("source", [16, 24])
@pytest.mark.parametrize("kind", [*toy_heads.MODELS])
def test_costs_of_all_kinds_of_heads_are_those_of_the_weights(kind: str, source: int) -> None:
    """Whatever they share; a cache is one of numbers that are not rounded, and one that is."""
    arch, options = toy_heads.MODELS[kind]
    sizes = {"encoder_embed_dim": source, "encoder_attention_heads": 4}
    whole = toy.model(arch, **{"heads_in_encoder": None} | options | sizes)
    for attention in attentions(whole):
        module = attention.module
        parts_of = module.named_parameters()
        known = sum(w.numel() for name, w in parts_of if name not in ("theta", "mixing_gate"))
        shape = as_it_is(attention)
        assert costs(attention, shape).parameters == known
        assert costs(attention, shape).heads == module.num_heads
        numbers = getattr(module, "cached_floats_per_token", lambda: (16, 16))()
        cached = attention.type != "encoder"
        assert costs(attention, shape).cache == 16 * sum(numbers) * cached
        rounded = [32 * -(-n // 64) + 8 * -(-n * 4 // 8) for n in numbers]
        assert costs(attention, replace(shape, bits=4)).cache == sum(rounded) * cached


@pytest.mark.parametrize(
    "kind", [GROUPS, LATENTS, ONE_LATENT, NARROWER_KEYS, shared_keys_kind("full")]
)
def test_counting_draws_no_random_numbers(kind: Kind, model: Trained) -> None:
    """Modules are built without numbers: seeds of a caller give what they gave."""
    site = model.attentions["cross"][0]
    before = torch.get_rng_state()
    counted = costs(site, Shape((0, 1, 3, 2), kind=kind, size=4, bits=8))
    assert counted.parameters > 0 < counted.cache
    assert torch.equal(torch.get_rng_state(), before)


def test_the_cheapest_heads_and_units_go(model: Trained, found: Evidence) -> None:
    """A plan keeps the others, and its price is the sum of its choices' prices."""
    work = Planner(found, "latent", Allowed(kinds=("latent",)).candidates()["latent"])
    plan = work.solve({"parameters": 0.6, "cache": 0.2})
    chosen = []
    for site, shape in plan.shapes.items():
        removals, is_block = found.removals(site), not isinstance(site, Attention)
        number, kept = len(removals.order), shape.units if is_block else shape.heads
        gone = removals.order[: number - len(kept)]
        assert {*kept} == {*range(number)} - {*gone}
        [price] = [option.price for option in work.options[site] if option.shape == shape]
        chosen.append(price)
    assert plan.prices["heads"] > 0 < plan.prices["units"]
    assert plan.price == pytest.approx(sum(chosen))


@pytest.mark.parametrize(
    ("engine", "even", "multiple", "kinds"),
    [
        ("fairseq", False, 16, ["latent", "unchanged"]),
        ("onnx", False, 16, ["latent", "unchanged"]),
        ("ct2", True, 64, ["grouped-query"]),
    ],
)
def test_what_is_tried_is_what_the_engine_keeps(
    engine: str, even: bool, multiple: int, kinds: list[str]
) -> None:
    for which in (("heads", "units", "cache"), ("heads",), ("units", "cache")):
        cuts = Allowed(which, engine=engine).candidates()
        assert [*cuts] == (kinds if "cache" in which else ["unchanged"])
        for of_kind in cuts.values():
            assert {cut.part for cut in of_kind} == {*which}
            assert all(cut.even == even for cut in of_kind if isinstance(cut, Heads))
            assert all(cut.multiple == multiple for cut in of_kind if isinstance(cut, Units))


def test_a_model_has_one_kind_of_new_heads(model: Trained) -> None:
    first, second = model.attentions["decoder"]
    mixed = draft.Draft(model)
    mixed.convert_heads(first, LATENTS, 8, {})
    with pytest.raises(ValueError, match="one kind"):
        mixed.convert_heads(second, GROUPS, 2, {})


def test_new_heads_fit_those_that_stay(model: Trained, found: Evidence) -> None:
    """Groups divide them; and all new heads are smaller than what is there."""
    site = model.attentions["cross"][0]  # four heads of four numbers
    expected = {4: ([1, 2], range(1, 16)), 3: ([1], range(1, 12)), 2: ([1], range(1, 8))}
    for heads, of_kinds in expected.items():
        for cut, sizes in zip((GroupedQuery(), SharedKey()), of_kinds, strict=True):
            every = [Shape((*range(heads),), kind=cut.kind, size=size) for size in range(1, 20)]
            assert [shape.size for shape in every if cut.fits(site, shape)] == [*sizes]
    work = Planner(found, "grouped-query", [Heads(), GroupedQuery()])
    shapes = [one.shape for site, of in work.options.items() for one in of]
    grouped = [shape for shape in shapes if shape.kind is not None]
    assert {len(shape.heads) for shape in grouped} > {2, 4}
    assert all(len(s.heads) % s.size == 0 and s.size < len(s.heads) for s in grouped)


@pytest.mark.parametrize("bits", [(0,), (8,), (8, 4)])
def test_numbers_have_the_bits_that_are_allowed(bits: tuple[int, ...], found: Evidence) -> None:
    allowed = Allowed(("cache",), ("latent",), bits)
    work = Planner(found, "latent", allowed.candidates()["latent"], allowed)
    of_caches = {
        one.shape.bits
        for site, of in work.options.items()
        if isinstance(site, Attention) and site.type != "encoder"
        for one in of
    }
    assert of_caches == {*bits}
    encoders = (of for site, of in work.options.items() if site.name.startswith("encoder"))
    assert all(one.shape.kind is None for of in encoders for one in of)  # nothing is cached there
    for name in ("cache", "parameters"):
        least = work.fewest(name)
        assert work.solve({}, exactly={name: least}).costs[name] == least


@pytest.mark.parametrize(
    ("cut", "exact"),
    [
        (Latent(), 16),
        (GroupedQuery(), 4),
        (SharedKey(), 17),  # the bias of a query is one more
        (SharedKey("full"), 17),
        (SharedKey("diagonal"), 24),
        (NarrowerHeads(), 24),
    ],
)
def test_sizes_that_are_tried(cut: NewHeads, exact: int) -> None:
    """Sixteenths of the one that is exact for four heads of six numbers, and that one."""
    module = SeparateAttention(16, 4, qk_head_size=6)
    assert cut.exact_size(module) == exact
    assert cut.out_of_range(module, exact) is None
    assert cut.out_of_range(module, exact + 1)
    assert cut.out_of_range(module, 0)
    if isinstance(cut, GroupedQuery):
        assert cut.grid(module) == [1, 2, 4]
        assert cut.out_of_range(module, 3)
    elif isinstance(cut, NarrowerHeads):
        assert cut.grid(module) == [24]
        assert cut.out_of_range(module, 23)
    else:
        assert cut.grid(module) == [*range(1, 17)] if exact == 16 else len(cut.grid(module)) == 16
        assert cut.grid(module)[-1] == exact


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_a_rounding_of_groups_is_priced_at_their_own_scale(bits: int, tmp_path: Path) -> None:
    """``h_qk^-0.5``, next to ``(d/H)^-0.5`` of other new heads."""
    options = {"qk_head_size": 9, "v_head_size": 3}
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", **options)
    wide = open_model(checkpoint, COPY)
    evidence, cut = Evidence.of(wide, sentences=9), GroupedQuery()
    site = wide.attentions["cross"][0]
    trained = evidence.whole_attention(site)
    weights, price = cut.convert(trained, 2, 0)
    expected = price + trained.rounding_price(weights, bits, 1 / 3)
    if bits:
        assert expected != pytest.approx(price + trained.rounding_price(weights, bits, 1 / 2))
    shape = Shape((0, 1, 2, 3), kind=GROUPS, size=2, bits=bits)
    offered = [o.price for o in cut.offers(site, evidence) if o.shape == shape]
    assert offered == [pytest.approx(expected)]
    draft_ = draft.Draft(wide, evidence.attentions)
    draft_.use_own_heads()
    assert cut.put(draft_, site, shape, trained, (weights, price)) == pytest.approx(expected)
    assert draft_.bits[site] == bits


@pytest.mark.parametrize("arch", ["transformer_collab", "transformer_latent"])
def test_heads_that_share_are_not_converted(arch: str, tmp_path: Path) -> None:
    sharing = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch), COPY)
    for cut in (Latent(), SharedKey(), GroupedQuery(), NarrowerHeads()):
        assert any("neither" in reason for reason in cut.refuses(sharing))


def test_shares_are_of_the_standard_cache(tmp_path: Path) -> None:
    """Of 16-bit numbers as wide as the model; a converted model may have more parameters."""
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", cache_bits=8)
    rounded = open_model(path, COPY)
    assert whole_costs(rounded).cache == 4 * 2 * 16 * 16  # four attentions, keys and values
    assert model_costs(rounded).cache == 4 * 2 * (16 * 8 + 32)
    smaller = prune(rounded, keep=2, sentences=9, refit=False).model
    whole, now = whole_costs(smaller), model_costs(rounded)
    assert shares_left(rounded, smaller) == {
        name: getattr(now, name) / getattr(whole, name) for name in whole._fields
    }
    assert shares_left(rounded, smaller)["heads"] == 2


def test_steps_of_widths() -> None:
    """Multiples below the width, and at most 32 of them or so; prices are of what goes."""
    for width, multiple, step in ((100, 16, 16), (128, 16, 16), (1000, 16, 32), (4096, 64, 128)):
        removals = Removals([*range(width)], [*map(float, range(width + 1))])
        work: Any = SimpleNamespace(removals=lambda _, found=removals: found)
        block = FeedForward("encoder", 0, SimpleNamespace(fc2=nn.Linear(width, 1)), "")
        offers = Units(multiple).offers(block, work)
        numbers = [len(offer.shape.units) for offer in offers]
        assert numbers[0] == width
        assert sorted(numbers[1:]) == [n for n in range(1, width) if n % step == 0]
        assert [offer.price for offer in offers] == [width - n for n in numbers]
        assert all([*o.shape.units] == [*range(width)][-len(o.shape.units) :] for o in offers)


# ---- plans ---------------------------------------------------------------------------------------


def test_what_a_plan_says(model: Trained) -> None:
    """Only of sites that lose something."""
    shapes: dict[Any, Shape] = {site: as_it_is(site) for site in sites_of(model)}
    encoder, decoder = model.attentions["encoder"][0], model.attentions["decoder"][0]
    first, second = model.attentions["cross"]
    block = feed_forwards(model.model)[0]
    assert Plan("unchanged", shapes).table() == []
    shapes[encoder] = replace(shapes[encoder], heads=(0, 3))
    shapes[decoder] = replace(shapes[decoder], bits=8)
    shapes[block] = Shape(units=(1, 2, 5))
    prices = {"heads": 0.1, "units": 0.2, "cache": 0.4}
    plan = Plan("latent", shapes, prices=prices, costs={"heads": 22}, whole={"heads": 24})
    assert plan.units == {block: [1, 2, 5]}
    assert plan.bits == {decoder: 8}
    assert plan.price == pytest.approx(0.7)
    rows = {
        str(encoder): ["2 of 4 heads", None, None],
        str(decoder): ["4 of 4 heads", None, 8],
        str(block): [f"3 of {block.width} units", None, None],
    }
    assert plan.table() == [[str(s), *rows[str(s)]] for s in shapes if str(s) in rows]
    # A copy that is there already is no new one.
    shapes[first], shapes[second] = (
        replace(shapes[site], copy=copy) for site, copy in ((first, "kept"), (second, "read"))
    )
    assert not Plan("unchanged", shapes).shared
    for site in (first, second):
        shapes[site] = replace(shapes[site], kind=ONE_LATENT, size=6, bits=4)
    assert Plan("latent", shapes).shared
    rows |= {str(site): ["4 of 4 heads", "6, shared", 4] for site in (first, second)}
    assert plan.table() == [[str(s), *rows[str(s)]] for s in shapes if str(s) in rows]
    assert plan.sizes == {first: 6, second: 6}
    line = repr(plan).replace("\n", " ")
    for part in ("0.7000", "22 heads", f"{block}: 3 units", f"{second}: latent width 6"):
        assert part in line
    assert "..." not in line  # but for more than four
    more = replace(plan, shapes={**shapes, feed_forwards(model.model)[1]: Shape(units=(1,))})
    assert "..." in repr(more)
    assert plan.to_json() == {
        "kind": "latent",
        "heads": {t: [[*shapes[a].heads] for a in of] for t, of in model.attentions.items()},
        "units": {str(block): [1, 2, 5]},
        "sizes": {str(first): 6, str(second): 6},
        "bits": {str(decoder): 8, str(first): 4, str(second): 4},
        "prices": prices,
        "costs": {"heads": 22},
        "whole": {"heads": 24},
        "time": None,
        "shared": True,
    }


def test_the_cheapest_kind_is_taken(found: Evidence) -> None:
    shares, kinds = {"cache": 0.3}, ("grouped-query", "latent")
    alone = {kind: propose(found, shares, Allowed(kinds=(kind,))).price for kind in kinds}
    assert alone["latent"] < alone["grouped-query"]
    for order in (kinds, kinds[::-1]):
        assert propose(found, shares, Allowed(kinds=order)).price == alone["latent"]


def test_new_heads_that_are_built_are_better_than_those_that_are_tried(found: Evidence) -> None:
    """A search only prices the first maps."""
    plan = propose(found, {"cache": 0.6}, Allowed(("cache",), ("collab",), (0,)))
    assert 0 < apply_cuts(found, plan)[1].price < 0.999 * plan.price


def test_offers_of_one_query_mixing_are_not_those_of_another(found: Evidence) -> None:
    site = found.trained.attentions["cross"][0]
    offered = [{o.shape.kind for o in SharedKey(m).offers(site, found)} for m in ("own", "full")]
    assert offered == [{shared_keys_kind("own")}, {shared_keys_kind("full")}]


def test_a_rise_is_compared_with_the_price_of_the_model_that_is_built(
    found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not that of the plan, where some heads go and others are converted."""
    compared = []

    def measured(_: Any, __: Any, ___: Any, price: float, **____: Any) -> float:
        compared.append(price)
        return 0.0

    monkeypatch.setattr(apply, "measured_rise", measured)
    plan = propose(found, {"cache": 0.2, "heads": 0.6})
    applied = apply_plan(found, plan).plan
    assert compared == [applied.price]
    assert applied.price != pytest.approx(plan.price)
    parts = {name: applied.prices[name] for name in ("heads", "units")}
    assert parts == {name: plan.prices[name] for name in parts}
    assert applied.prices["cache"] == pytest.approx(sum(applied.of_sites.values()))


def test_the_least_of_several_kinds_is_the_least_of_any() -> None:
    leasts = [{"cache": 0.3, "heads": 0.1}, {"cache": 0.2, "heads": 0.4}]
    error = OutOfReachError.of({"cache": 0.01, "heads": 0.01}, leasts, ["cache", "heads"])
    assert error.least == {"cache": 0.2, "heads": 0.1}
    assert "with only heads and cache cut" in str(error)


def test_the_time_of_a_plan_is_that_of_the_uncut_model_and_what_it_changes(
    found: Evidence,
) -> None:
    """Of the given model, which fairseq's own attention makes faster or slower than the uncut."""

    class Times:
        engine, uncut = "fairseq", 1.2

        def change(self, site: Any, shape: Shape) -> float:
            gone = width_of(site) - shape.width
            return -0.0223 * gone if isinstance(site, Attention) else -0.00345 * gone

    times = Times()
    plan = propose(found, {"time": 0.8}, Allowed(("heads", "units"), times=times))
    added = sum(times.change(site, shape) for site, shape in plan.shapes.items())
    assert plan.time == pytest.approx(1.2 + added, abs=1e-4)
    assert plan.time <= 0.8 + 1e-6
    with pytest.raises(OutOfReachError) as caught:
        propose(found, {"time": 0.0}, Allowed(("heads",), times=times))
    gone = sum(width_of(a) - (a.type == "cross") for a in plan.attentions)
    assert caught.value.least["time"] == pytest.approx(1.2 - 0.0223 * gone, abs=1e-3)


def test_statistics_that_are_given_are_those_of_a_pass(model: Trained, found: Evidence) -> None:
    again = Evidence.of(model, sentences=20, statistics=(found.attentions, found.units))
    assert again.bits == pytest.approx(found.bits)
    shares = {"parameters": 0.7, "cache": 0.3}
    assert propose(again, shares).to_json() == propose(found, shares).to_json()


def test_prices_in_a_line(model: Trained, found: Evidence) -> None:
    """The cheapest and the dearest head of all, and where they are."""
    made = Prices(found, {"collab": "no"}, 20)
    every = {(a, h): price for a in found.attentions for h, price in enumerate(made.heads(a))}
    ordered = sorted(every, key=lambda one: every[one])
    (least, _), (most, _) = ordered[0], ordered[-1]
    kinds, line = repr(made).splitlines()
    assert "no collab" in kinds
    assert "no latent" not in kinds
    assert f"{every[ordered[0]]:.2g} bits ({least}) to {every[ordered[-1]]:.2g} ({most})" in line
    assert made.model is model
    for attention in found.attentions:
        assert min(made.heads(attention)) == pytest.approx(found.removals(attention).prices[1])


def test_prices_in_points(model: Trained, found: Evidence) -> None:
    """Bits a token, parameters, price: each of the shape that it is of."""
    made, site = Prices(found, {}, 20), model.attentions["cross"][1]
    of_encoder = made.sizes(model.attentions["encoder"][0], 8)
    assert not any(of_encoder.values())  # nothing is cached there
    assert "unchanged" not in made.sizes(site)
    for bits in (0, 8, 4):
        for kind, points in made.sizes(site, bits).items():
            assert [p.size for p in points] == sorted(p.size for p in points)
            assert {p.bits for p in points} == {bits}
            numbers = {"latent": 1, "collab": 1, "grouped-query": 8}.get(kind)
            values = 16 if kind == "collab" else 0
            if not bits and numbers:  # of 16 bits each
                cached = [16 * (numbers * point.size + values) for point in points]
                assert [point.cache for point in points] == cached
            assert points[-1].price == pytest.approx(0, abs=1e-6) or bits


def test_prices_of_narrower_blocks_are_by_what_stays(found: Evidence) -> None:
    for block in found.units:
        of_removed = found.removals(block).prices
        assert of_removed == sorted(of_removed)
        gone = [0, block.width // 4, block.width // 2]
        prices = Prices(found, {}, 20).narrower(block, [1, 0.75, 0.5])
        assert prices == [of_removed[number] for number in gone]


def test_a_plan_without_cuts_is_the_identity(model: Trained, found: Evidence) -> None:
    plan = propose(found, {"cache": 1.0, "parameters": 1.0})
    assert plan.price == pytest.approx(0, abs=1e-9)
    smaller, _, rise, *_ = apply_plan(found, plan)
    assert rise == pytest.approx(0, abs=1e-4)
    assert validation_loss(smaller) == pytest.approx(validation_loss(model), abs=1e-5)


@pytest.mark.parametrize(
    "shares",
    [
        {"parameters": 0.4},
        {"heads": 0.5},
        {"cache": 0.25},
        {"cache": 0.2, "parameters": 0.7},
        {"cache": 0.5, "heads": 0.6},
    ],
)
def test_plans_meet_their_targets(
    model: Trained, found: Evidence, shares: dict[str, float]
) -> None:
    """Their costs are those of the model that is built."""
    result = shrink(model, **shares, evidence=found)
    whole, now = whole_costs(model)._asdict(), model_costs(result.model)._asdict()
    assert dict(result.plan.costs) == now
    for name, share in shares.items():
        assert now[name] <= share * whole[name] + 1e-9
        assert result.shares[name] == now[name] / whole[name]
    assert result.plan.price > 0
    assert result.plan.table()


@pytest.mark.parametrize("shares", [{"parameters": 0.6}, {"heads": 0.5}, {"cache": 0.5}])
def test_a_model_for_ctranslate2(model: Trained, found: Evidence, shares: dict[str, float]) -> None:
    """Equally many heads on each side, grouped queries, no rounding; the free choice costs less."""
    result = shrink(model, **shares, engine="ct2", evidence=found)
    heads = result.model.heads
    assert len({*heads["encoder"]}) == 1 == len({*heads["decoder"], *heads["cross"]})
    assert bool(result.plan.sizes) == ("cache" in shares)
    assert not result.plan.bits
    assert all(result.shares[name] <= share for name, share in shares.items())
    free = {"kinds": ["grouped-query"]} if "cache" in shares else {}
    assert shrink(model, **shares, **free, evidence=found).plan.price <= result.plan.price


def test_a_rounded_cache_stays_rounded(tmp_path: Path) -> None:
    """Where the cache is not cut."""
    checkpoint = toy_checkpoints.write(
        tmp_path / "c.pt", "transformer_headsize_n", cache_bits_in_cross="4,8"
    )
    rounded = open_model(checkpoint, COPY)
    result = shrink(rounded, parameters=0.8, sentences=20)
    bits = {str(a): a.module.cache_bits for a in attentions(result.model.model)}
    assert [bits[f"cross {layer}"] for layer in (0, 1)] == [4, 8]
    assert result.shares["cache"] == model_costs(result.model).cache / whole_costs(rounded).cache


def test_a_rounded_cache_gets_smaller(tmp_path: Path) -> None:
    """From 40 of 64 bytes: the budget is one of what is cached without rounding."""
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", cache_bits=8)
    result = shrink(open_model(checkpoint, COPY), cache=0.3, sentences=20)
    assert result.shares["cache"] <= 0.3
    assert dict(result.plan.costs) == model_costs(result.model)._asdict()


def test_a_rounded_cache_that_stays_rounded_has_no_price(tmp_path: Path) -> None:
    """Of the heads that are left, too: the loss of the given model has it already."""
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", cache_bits=8)
    found = Evidence.of(open_model(checkpoint, COPY), sentences=9, parts=("heads", "cache"))
    for bits in (8, 4):
        allowed = Allowed(("heads", "cache"), ("unchanged",), (bits,))
        plan = propose(found, {"cache": 0.7, "heads": 0.8}, allowed)
        assert {*plan.bits.values()} == {bits}
        assert any(len(heads) < 4 for layers in plan.retained.values() for heads in layers)
        assert (apply_cuts(found, plan)[1].prices["cache"] > 0) == (bits == 4)


def of_heads(statistics: Statistics, heads: Sequence[int]) -> Statistics:
    """Those of some heads alone, number by number; the halves are not looked at."""
    number, d = len(statistics.value_mean), statistics.output_fisher.size(0)
    assert d == 16  # four heads of four numbers, of keys and of values
    values = [4 * head + i for head in heads for i in range(4)]
    cached = [*values, *(4 * number + place for place in values)]
    index = list(heads)
    return replace(
        statistics,
        key_fisher=statistics.key_fisher[index],
        value_covariance=statistics.value_covariance[index],
        value_mean=statistics.value_mean[index],
        head_covariance=statistics.head_covariance[values][:, values],
        cache_fisher=statistics.cache_fisher[cached][:, cached],
    )


def test_pruned_then_converted_is_both_at_once(model: Trained, found: Evidence) -> None:
    """To rounding: a plan without a refit, in one step and in two."""
    both = propose(found, {"cache": 0.2, "heads": 0.6})
    assert both.sizes
    at_once, plan = apply_cuts(found, both)
    fewer = pruned(model, both.retained)
    left = {
        a: of_heads(found.attentions[a], both.retained[a.type][a.layer])
        for a in attentions(fewer.model)
        if a.module.num_heads
    }
    in_two_steps, prices = Conversions(fewer, Latent(), left).convert(
        both.sizes, both.bits, both.shared
    )
    # The price of a latent of all heads is not that of a latent of some.
    assert plan.prices["cache"] == pytest.approx(sum(prices.values()))
    assert plan.prices["cache"] != pytest.approx(both.prices["cache"])
    weights = in_two_steps.model.state_dict()
    for name, weight in at_once.model.state_dict().items():
        torch.testing.assert_close(weight, weights[name], msg=name)
    assert [len(at_once.attentions[t]) for t in ("encoder", "decoder", "cross")] == [2, 2, 2]
    assert at_once.heads == {t: [*map(len, of)] for t, of in both.retained.items()}


def test_a_plan_builds_one_model(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it cuts."""
    plan = propose(found, {"cache": 0.2, "heads": 0.6, "parameters": 0.6})
    assert plan.sizes
    assert plan.units
    models = list[Trained]()

    def noted(*given: Any) -> Trained:
        models.append(rebuilt(*given))
        return models[-1]

    monkeypatch.setattr(draft, "rebuilt", noted)
    assert apply_cuts(found, plan)[0].heads == models[0].heads
    assert len(models) == 1


@pytest.mark.parametrize("arch", ["transformer_gated_heads", "transformer_grouped_heads"])
def test_heads_with_gates_and_groups(arch: str, tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch), COPY)
    assert shrink(model, cache=0.3, sentences=20).plan.sizes


def test_the_smallest_model_that_loses_little(model: Trained, found: Evidence) -> None:
    before = validation_loss(model)
    result = shrink(model, lose=0.05, evidence=found)
    assert isinstance(result, Smaller)
    assert result.lost == pytest.approx(validation_loss(result.model) - before, abs=1e-6)
    assert result.lost <= 0.05
    assert result.shares["parameters"] < 1
    assert shrink(model, cache=0.3, evidence=found).lost is None


def test_what_lose_accepts_is_the_loss_on_the_validation_set(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invented: what a model loses there is its missing share, and nothing on calibration text."""
    valid: list[Any] = []

    def invented(_: Evidence, shares: dict[str, float], __: Any) -> Smaller:
        of_share: Any = SimpleNamespace(model=shares["parameters"])
        plan: Any = None
        return Smaller(of_share, plan, 0.0, shares)

    def bits(model: Any, batches: Any) -> float:
        return 4 - model if batches is valid and isinstance(model, float) else 3

    monkeypatch.setattr(shrinking, "cheapest_model", invented)
    monkeypatch.setattr(shrinking, "mean_bits", bits)
    allowed = Allowed(("heads", "units"))
    result = shrinking.smallest(found, {}, "parameters", allowed, 0.3, valid)
    assert result.shares == {"parameters": 0.703125}  # of halvings, the first above 0.7


@pytest.mark.parametrize("possible", [True, False])
def test_no_model_loses_so_little(
    possible: bool, model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reason where none can be built, another where some can, and each loses more."""

    def invented(_: Evidence, shares: dict[str, float], __: Any) -> Smaller:
        if not possible or shares["parameters"] < 0.8:
            raise OutOfReachError("cannot have so little")
        return Smaller(model, Plan("unchanged", {}), 0.0, shares)

    lost = iter([3.0, *[3.2] * 9])
    monkeypatch.setattr(shrinking, "cheapest_model", invented)
    monkeypatch.setattr(shrinking, "mean_bits", lambda *_: next(lost))
    with refusing("loses more than 0.1" if possible else "cannot have"):
        shrinking.smallest(found, {}, "parameters", Allowed(("heads",)), 0.1, [])


def test_a_target_that_is_missed_is_an_error(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left, is_missed in ((0.5, False), (0.501, True)):
        made = Smaller(model, Plan("unchanged", {}), 0.0, {"heads": left})
        monkeypatch.setattr(shrinking, "apply_plan", lambda *_, made=made: made)
        with refusing("50.1%", "not 50.0%") if is_missed else nullcontext():
            shrinking.cheapest_model(found, {"heads": 0.5}, Allowed(("heads",)))


def test_shares_are_of_the_model_that_was_shrunk_first(model: Trained) -> None:
    assert shrinking.costs_of_original(model) is None
    once = model.with_plan({"whole": {"cache": 8}})
    assert shrinking.costs_of_original(once) == {"cache": 8}
    twice = model.with_plan({"whole": {"cache": 6}, "original": {"cache": 8}})
    assert shrinking.costs_of_original(twice) == {"cache": 8}


def test_what_a_cut_makes_smaller() -> None:
    """Heads have a cache; a cache takes time; units have none, and take no heads."""
    for target, useful in {
        "cache": {"heads", "cache"},
        "heads": {"heads"},
        "parameters": {"heads", "units"},
        "time": {"heads", "units", "cache"},
    }.items():
        for part in ("heads", "units", "cache"):
            with nullcontext() if part in useful else refusing(f"`{target}`"):
                shrinking.check({target: 0.5}, None, [part])
    assert shrinking.smallest_in(["cache"]) == "cache"
    assert shrinking.smallest_in(["heads", "cache"]) == "parameters"
    for kind in ("latent", "collab", "grouped-query"):  # ONNX Runtime runs them all
        assert shrinking.chosen_kinds([kind], ["cache"], "onnx") == (kind,)
    own: Any = SimpleNamespace(part="cache", name="latent", engines=("fairseq",))
    with refusing("latent", "name"):
        shrinking.check_own([own], ["cache"], "fairseq")


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
        pytest.param({"lose": 5.0, "cache": 0.001}, "cache=0.001", marks=pytest.mark.slow),
        ({"lose": True}, "lose"),
        ({"cache": 0.5, "engine": "ct2", "kinds": ["latent"]}, "grouped-query"),
        ({"cache": 0.5, "engine": "ct2", "cache_bits": 8}, "cache_bits"),
        ({"cache": 0.5, "cache_bits": 5}, "cache_bits"),
        ({"heads": 0.5, "cache_bits": 8}, "cache_bits"),
        ({"heads": 0.0}, "heads=0"),
        ({"lose": 0.1, "parameters": 0.5}, "`parameters`"),
        ({"heads": 0.5, "only": ["heads", "cache"]}, "`only`"),  # no target asks for a cut
        ({"heads": 0.5, "only": ["heads", "units"]}, "`only`"),
        ({"lose": 0.1, "only": ["units", "cache"]}, "`only`"),
    ],
)
def test_targets_that_make_no_sense(
    wrong: dict[str, Any], place: str, model: Trained, found: Evidence
) -> None:
    with refusing(place):
        shrink(model, **wrong, evidence=found)


def test_parameters_of_latents(model: Trained, found: Evidence) -> None:
    """As counted before a model is built."""
    result, counted = shrink(model, cache=0.2, evidence=found), set[Tensor]()
    assert any(shape.copy for shape in result.plan.shapes.values())
    for attention in attentions(result.model.model):
        source = next(a for a in attentions(model.model) if a == attention)
        expected = costs(source, result.plan.shapes[attention])
        used = {*attention.module.parameters()} - counted  # what is shared counts once
        assert sum(w.numel() for w in used) == expected.parameters, attention
        counted |= used


def test_all_layers_share_the_encoders_output(
    model: Trained, found: Evidence, tmp_path: Path
) -> None:
    """Without loss, at 3 d numbers for 8 d of two layers; then rounded, all of them alike."""
    result = shrink(model, cache=3 / 8, cache_bits="none", evidence=found)
    assert result.plan.shared
    assert result.plan.price == pytest.approx(0, abs=1e-9)
    assert result.plan.to_json()["shared"]
    assert any("shared" in str(row) for row in result.plan.table())
    assert result.shares["cache"] == 3 / 8
    before = validation_loss(model)
    assert validation_loss(result.model) == pytest.approx(before, abs=1e-5)
    result.model.save(tmp_path / "s.pt")
    again = open_model(tmp_path / "s.pt", COPY)
    assert validation_loss(again) == pytest.approx(before, abs=1e-5)
    numbers = model_numbers(again)
    assert numbers["cache_share"] == 3 / 8
    assert numbers["key_bytes_per_source_token"] == 2 * 16
    smaller = shrink(again, cache=0.2, heads=0.8, sentences=20)
    assert smaller.shares["cache"] <= 0.2
    assert len({a.module.cache_bits for a in smaller.model.attentions["cross"]}) == 1
    with refusing("is cache="):
        shrink(again, cache=0.01, sentences=20)


def test_a_single_layer_has_nothing_to_share(tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", decoder_layers=1), COPY)
    [site] = model.attentions["cross"]
    assert Latent().offers(site, Evidence(model))
    assert not OneCopy().offers(site, Evidence(model))


def test_a_copy_of_all_layers_is_cheaper_than_latents_of_each(
    model: Trained, found: Evidence
) -> None:
    """Wherever that is so, and within the same budget."""
    shares = {"cache": 0.1}
    work = Planner(found, "latent", [Bits(), Latent(), OneCopy()])
    both = work.solve(shares)
    work.options = {
        site: [option for option in of if not option.shape.copy]
        for site, of in work.options.items()
    }
    own = work.solve(shares)
    assert both.shared
    assert not own.shared
    assert both.price < own.price


@pytest.mark.parametrize("kind", ["grouped-query", "collab", "latent", "unchanged"])
def test_a_cache_of_each_kind(kind: str, model: Trained, found: Evidence) -> None:
    """Costs are those of the model that is built, whatever shares the heads."""
    bits = None if kind == "unchanged" else "none"
    result = shrink(model, cache=0.6, kinds=[kind], cache_bits=bits, evidence=found)
    assert result.plan.kind == kind
    assert bool(result.plan.sizes) == (kind != "unchanged") != bool(result.plan.bits)
    assert dict(result.plan.costs) == model_costs(result.model)._asdict()
    assert 0.25 < result.shares["cache"] <= 0.6


def test_a_share_of_heads_that_is_a_whole_number(model: Trained) -> None:
    """Whatever its rounding error: 15/22 of 22 heads is 14.999... in floating point."""
    retained: Any = {type_: [[0, 1, 2, 3]] * 2 for type_ in model.heads}
    few = pruned(model, retained | {"encoder": [[0, 1], [0, 1, 2, 3]]})
    found, total = Evidence.of(few, sentences=9, parts=("heads",)), 22
    assert int(15 / total * total) == 14
    for number in range(total // 2, total):
        plan = propose(found, {"heads": number / total}, Allowed(("heads",)))
        assert sum(len(of) for layers in plan.retained.values() for of in layers) == number


# ---- all compose ---------------------------------------------------------------------------------

SHARED = {
    "transformer_collab": {"key_dim": 6, "query_mixing": "own"},
    "transformer_collab full": {"key_dim": 6, "query_mixing": "full"},
    "transformer_collab scaled by the key": {"key_dim": 6, "attention_scale": "key"},
    "transformer_grouped_query": {"key_value_heads": 2},
    "transformer_latent": {"latent_dim": 6},
    "transformer_latent source": {"latent_dim": 6, "shared_latent_in_cross": 16},
    "transformer_latent shared": {"latent_dim": 6, "shared_latent_in_cross": 5},
}


#: One of each family.
FAMILIES = ("transformer_collab", "transformer_grouped_query", "transformer_latent")


@pytest.mark.parametrize("name", SHARED)
def test_heads_that_share_are_removed_exactly(name: str, tmp_path: Path) -> None:
    """As if their outputs were 0: a head, a group, and all heads of the encoder's first layer."""
    arch = name.split()[0]
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch, **SHARED[name]), COPY)
    retained: Any = {t: [[0, 1], [2, 3]] for t in ("encoder", "decoder", "cross")}
    retained["encoder"][0] = []
    if "grouped" not in name:
        retained["cross"] = [[3], [0, 2, 3]]
    for attention in attentions(model.model):
        out = attention.module.out_proj.weight.data.unflatten(1, (attention.module.num_heads, -1))
        stay = retained[attention.type][attention.layer]
        out[:, [head for head in range(out.size(1)) if head not in stay]] = 0
    smaller = pruned(model, retained)
    assert smaller.arch == model.arch
    assert smaller.heads == {type_: [*map(len, of)] for type_, of in retained.items()}
    assert validation_loss(smaller) == pytest.approx(validation_loss(model), abs=1e-6)
    smaller.save(tmp_path / "s.pt")
    again = open_model(tmp_path / "s.pt", COPY)
    assert validation_loss(again) == pytest.approx(validation_loss(model), abs=1e-6)
    for old, new in zip(attentions(model.model), attentions(smaller.model), strict=True):
        heads = tuple(range(new.module.num_heads))
        of_some = costs(old, Shape(heads))  # of a copy: as if it were the attention's own
        assert of_some.parameters == sum(p.numel() for p in new.module.parameters())
        if old.type != "encoder" and getattr(new.module, "keeps_cache", True):
            assert of_some.cache == 16 * sum(new.module.cached_floats_per_token())


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer_grouped_query", {"key_value_heads": 2}),
        ("transformer_collab", {"value_heads": 2}),
    ],
)
def test_equally_many_heads_of_each_group(arch: str, options: dict[str, int]) -> None:
    """All groups stay: their costs are those of the model that is built."""
    model = in_memory(arch, separate=False, **options)
    attention = attentions(model.model)[2]
    changed = draft.Draft(model)
    changed.keep_heads(attention, [2, 0])
    left = changed.attention_left(attention)
    assert left.module.num_heads == 2
    built = changed.build().attentions["decoder"][0]
    assert costs(attention, Shape((0, 2))) == costs(built, as_it_is(built))


def test_a_key_narrower_than_the_number_of_heads(tmp_path: Path) -> None:
    """A site may lose all heads, of which no key has a size."""
    model = open_model(
        toy_checkpoints.write(
            tmp_path / "c.pt", "transformer_collab", key_dim=3, query_mixing="diagonal"
        ),
        COPY,
    )
    assert shrink(model, heads=0.7, sentences=9).shares["heads"] <= 0.7


def test_a_plan_without_prices_says_so() -> None:
    model = in_memory("transformer", separate=False)
    retained = {type_: [*of] for type_, of in all_heads(model).items()}
    retained["encoder"][0] = [0]
    text = repr(Smaller(model, keeping(model, retained), 0.5, {"heads": 0.9}))
    assert "no price" in text
    assert "price: 0" not in text


@pytest.mark.parametrize("arch", ["transformer_gated_heads", "transformer_grouped_heads"])
def test_gates_and_groups_of_unequal_heads(arch: str) -> None:
    """No options describe them without gates and groups."""
    model = in_memory(arch, separate=False, heads_in_encoder="2,4")
    with refusing("different sizes"):
        cuttable(model)


def test_groups_stay_whole_in_any_order_of_heads(tmp_path: Path) -> None:
    model = open_model(
        toy_checkpoints.write(tmp_path / "c.pt", "transformer_grouped_query", key_value_heads=2),
        COPY,
    )
    given: dict[Any, Any] = {type_: [[3, 0], [0, 2, 1, 3]] for type_ in model.heads}
    in_order = {type_: [sorted(heads) for heads in of] for type_, of in given.items()}
    expected = validation_loss(pruned(model, in_order))
    assert validation_loss(pruned(model, given)) == pytest.approx(expected, abs=1e-6)


def test_a_group_is_not_torn(tmp_path: Path) -> None:
    checkpoint = toy_checkpoints.write(
        tmp_path / "c.pt", "transformer_grouped_query", key_value_heads=2
    )
    model = open_model(checkpoint, COPY)
    retained: Any = {t: [[0, 1, 2], [0]] for t in ("encoder", "decoder", "cross")}
    with refusing("encoder 0"):
        pruned(model, retained)
    result = shrink(model, parameters=0.7, sentences=20)
    assert {count % 2 for layers in result.model.heads.values() for count in layers} == {0}


@pytest.mark.parametrize("name", [*FAMILIES, "transformer_latent shared"])
def test_a_converted_model_is_cut_further(name: str, tmp_path: Path) -> None:
    """Heads, units, and the bits of its cache."""
    arch = name.split()[0]
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch, **SHARED[name]), COPY)
    before = model_costs(model)
    result = shrink(model, parameters=0.6, cache=0.4, sentences=20, kinds=["unchanged"])
    assert result.model.arch == arch
    now = model_costs(result.model)
    assert now.parameters <= 0.6 * before.parameters
    assert now.heads < before.heads or result.plan.units
    assert result.shares["cache"] <= 0.4


@pytest.mark.parametrize("kind", ["grouped-query", "collab"])
def test_a_pruned_model_gets_heads_that_share(kind: str, model: Trained, found: Evidence) -> None:
    """In one plan, and one after the other."""
    result = shrink(model, cache=0.4, heads=0.7, kinds=[kind], evidence=found)
    assert result.plan.kind == kind
    assert result.shares["cache"] <= 0.4
    assert result.shares["heads"] <= 0.7
    fewer = shrink(model, heads=0.7, evidence=found).model
    again = shrink(fewer, cache=0.5, kinds=[kind], cache_bits="none", sentences=20)
    assert again.model.heads == fewer.heads
    assert again.plan.sizes


def test_all_reasons_at_once(tmp_path: Path) -> None:
    """Sizes of heads that differ, their numbers, and an option of the training."""
    options = {"heads_in_encoder": "4,0", "heads_in_decoder": "2,1", "head_size": 3}
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", **options)
    with pytest.raises(UserError) as raised:
        convert(open_model(checkpoint, COPY), "separate", 4)
    for reason in ("encoder 0", "encoder 1", "decoder 0", "decoder 1"):
        assert reason in str(raised.value)


def test_ctranslate2_has_one_number_of_heads_that_share(tmp_path: Path) -> None:
    options = {"key_value_heads": 1, "heads_in_decoder": "4,2", "head_size": 4}
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt", "transformer_grouped_query", **options)
    words = ["export", str(checkpoint), str(COPY), "--format=ct2", "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert not (tmp_path / "out").exists()


# ---- what a plan says ----------------------------------------------------------------------------


def test_a_shrunk_checkpoint_says_so(
    model: Trained, found: Evidence, tmp_path: Path, capsys: Any
) -> None:
    """To ``cost`` and to scores; not after a further change."""
    result = shrink(model, heads=0.5, evidence=found)
    result.model.save(tmp_path / "s.pt")
    again = open_model(tmp_path / "s.pt", COPY)
    assert "12 of 24 heads" in str(again.shrunk)
    assert model_numbers(again)["shrunk"] == again.shrunk
    assert main(["cost", str(tmp_path / "s.pt")]) == 0
    assert str(again.shrunk) in capsys.readouterr().out
    assert model.shrunk is None
    assert prune(again, 1, random=1, sentences=9).model.shrunk is None


def test_the_model_of_the_caller_stays_as_it_is(model: Trained, found: Evidence) -> None:
    """Weights, modes, options, hooks."""
    model.model.train()
    before = {name: weight.clone() for name, weight in model.model.state_dict().items()}
    options, extra = dict(model.options), dict(model.state["extra_state"])
    for targets in ({"parameters": 0.5}, {"cache": 0.2}, {"cache": 0.4, "kinds": ["unchanged"]}):
        shrink(model, **targets, evidence=found)
    after = model.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(module.training for module in model.model.modules())
    assert (model.options, model.state["extra_state"]) == (options, extra)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())
    model.model.eval()


@pytest.mark.slow
def test_lose_prints_the_loss_that_it_limits(tmp_path: Path, capsys: Any) -> None:
    """That of the written model on the validation set, next to that of the calibration."""
    checkpoint, out = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "o.pt"
    words = ["shrink", str(checkpoint), str(COPY), "--cpu", "--sentences=20", "--lose=0.05"]
    assert main([*words, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "--lose" in line)
    lost = validation_loss(open_model(out, COPY)) - validation_loss(open_model(checkpoint, COPY))
    assert f"{lost:+.4f}" in line
    assert "validation" in line


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--kinds=lattent"], "lattent"),
        (["--out=o.pt", "--time=0.8", "--time-in=ct2-int8", "--only=cache", "--cache-bits=8"],
         "--cache-bits"),
        (["--out=o.pt", "--time=0.8", "--only=chache"], "chache"),
        (["--out=o.pt", "--lose=0.1", "--cache=0.5", "--only=cache"], "--cache"),
        (["--out=o.pt", "--cache=0.5", "--for=ct2", "--kinds=latent"], "--kinds"),
    ],
)  # fmt: skip
def test_wrong_options_fail_before_anything_is_read_or_timed(
    options: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the pass, or a measurement, has begun")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Evidence, "of", never)
    monkeypatch.setattr(parts, "time_parts", never)
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt")
    assert main(["shrink", str(checkpoint), str(COPY), *options]) == 1
    assert named in capsys.readouterr().err


@pytest.mark.slow
def test_the_front_is_drawn(tmp_path: Path, capsys: Any) -> None:
    """Plans and their rivals; a name of another format, or one that is taken, fails at once."""
    checkpoint, out = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "front.svg"
    words = ["shrink", str(checkpoint), str(COPY), "--cpu", "--sentences=9", "--figure"]
    assert main([*words, str(tmp_path / "front.png")]) == 1
    assert main([*words, str(out)]) == 0
    assert out.read_bytes().startswith(b"<?xml")
    assert main([*words, str(out)]) == 1
    assert "front.svg" in capsys.readouterr().err
