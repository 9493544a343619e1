"""What an advice wishes for, expects of combinations, and keeps of its numbers."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from parity.test_prune_parity import trained
from sacrebleu.metrics import BLEU
from toy_heads import sample

from collab_common.errors import UserError
from fairseq_collab.advice.candidates import FFN, HEADS, Heads, candidate, ways
from fairseq_collab.advice.ledger import Ledger
from fairseq_collab.advice.plan import Measured, Predicted, best, chosen, combinations, nearest
from fairseq_collab.advice.wishes import COUNTED, Wish, counts, parse, ratios
from fairseq_collab.metrics.significance import drawn_gains

WHOLE = {"cache": 100, "parameters": 1000, "multiply_adds": 10}


def predicted(name: str, loss: float, cache: float, parameters: float = 1.0) -> Predicted:
    costs = {"cache": cache, "parameters": parameters, "multiply_adds": 1.0}
    sizes = {"cross": round(1000 * cache), "ffn": round(1000 * parameters)}  # one candidate each
    return Predicted(candidate(name, sizes), loss, costs)


# ---- wishes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("beauty=0.5", "'beauty=0.5' names none of cache, parameters, multiply_adds, speed"),
        ("cache", "the share wished for must be above 0 and below 1"),
        ("cache=1", "the share wished for must be above 0 and below 1"),
        ("parameters=0", "the share wished for must be above 0 and below 1"),
        ("speed=1", "the speed wished for must be above 1"),
    ],
)
def test_what_is_no_wish(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


def test_wishes_are_at_most_or_for_speed_at_least() -> None:
    assert parse("multiply-adds=0.7") == Wish("multiply_adds", 0.7)
    assert parse("cache=0.5").met({"cache": 0.5})
    assert not parse("cache=0.5").met({"cache": 0.51})
    assert parse("speed=1.5").met({"speed": 1.5})
    assert not parse("speed=1.5").met({"speed": 1.49})


# ---- combinations --------------------------------------------------------------------------------


def test_costs_of_places_add_up() -> None:
    """What is expected of a combination is what the model costs that is made of it."""
    source = trained("transformer", max_source_positions=40, max_target_positions=40)
    way = Heads(HEADS, source, [], seed=1)
    way._importance = lambda units: {  # any order of the heads will do
        site: [[1.0] * n for n in layers] for site, layers in source.heads.items()
    }
    whole = counts(source.model)
    alone = [("encoder", 6), ("cross", 4), (FFN, 12)]
    singles = [
        Measured({place: size}, 0.5, counts(way.make(candidate("heads", {place: size})).model))
        for place, size in alone
    ]
    found = list(combinations("heads", Measured({}, 0.0, whole), singles, whole))
    assert len(found) == 7
    for one in found:
        assert one.loss == 0.5 * len(one.candidate.sizes)
        made = counts(way.make(one.candidate).model)
        assert one.ratios == pytest.approx(ratios(made, whole))


def test_heads_go_of_a_model_with_a_layer_that_has_none() -> None:
    source = trained("transformer_headsize_n", heads_in_encoder="0,4", head_size=4)
    way = Heads(HEADS, source, [sample()], seed=1)
    left = way.make(candidate("heads", {"encoder": 2, "cross": 4})).heads
    assert left["encoder"] == [0, 2]
    assert sum(left["cross"]) == 4


def test_ways_share_the_models_with_narrower_layers() -> None:
    found, _ = ways(trained("transformer"), [], seed=1)
    assert len(found) > 2
    assert len({id(way.narrowed(12)) for way in found.values()}) == 1


def test_what_is_expected_starts_from_the_base_of_a_way() -> None:
    base = Measured({"cross": 8, "decoder": 8}, 0.1, {**WHOLE, "cache": 50})
    singles = [Measured({"cross": 4}, 0.3, {**WHOLE, "cache": 40})]
    whole, smaller = combinations("latent", base, singles, WHOLE)
    assert (whole.candidate.name, whole.loss) == ("latent decoder=8 cross=8", 0.1)
    assert smaller.candidate.name == "latent decoder=8 cross=4"
    assert smaller.loss == pytest.approx(0.3)
    assert smaller.ratios["cache"] == 0.4


def test_the_best_meet_the_wishes_and_are_of_several_ways() -> None:
    found = [predicted("collab", 0.01 * i, 0.3 + 0.001 * i) for i in range(10)]
    found += [predicted("heads", 1.0, 0.2), predicted("latent", 0.0, 0.9)]
    kept = best(found, [Wish("cache", 0.5)], 12)
    assert [one.way for one in kept] == ["collab"] * 6 + ["heads"]
    twice = [*found, *found]  # what is made twice counts once
    assert best(twice, [Wish("cache", 0.5)], 12) == kept
    assert chosen(found, [Wish("cache", 0.1)], speed=False) == []
    near = nearest(found, [Wish("cache", 0.1)])
    assert near.candidate.way == "heads"


def test_without_wishes_there_is_a_group_for_each_budget() -> None:
    found = [predicted("heads", c + p, c, p) for c, p in product((0.2, 0.6), (0.5, 0.8))]
    groups = chosen(found, [], speed=False)
    assert len(groups) == 6
    assert all(1 <= len(group) <= 2 for group in groups)


# ---- numbers -------------------------------------------------------------------------------------


def test_a_ledger_goes_on_and_refuses_other_settings(tmp_path: Path) -> None:
    first = Ledger(tmp_path, {"seed": 1}, {})
    assert first.get("loss", lambda: 1.5) == 1.5
    again = Ledger(tmp_path, {"seed": 1}, {})
    assert again.get("loss", lambda: pytest.fail("it is there already")) == 1.5
    assert again.seconds >= first._before
    with pytest.raises(UserError, match="holds an advice with seed 1, not 2; give another --out"):
        Ledger(tmp_path, {"seed": 2}, {})
    (tmp_path / "advice.json").write_text('{"version": 1}')
    with pytest.raises(UserError, match="its numbers are damaged"):
        Ledger(tmp_path, {"seed": 1}, {})


def test_another_wish_takes_over_what_does_not_depend_on_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    before = Ledger(first, {"seed": 1, "wishes": ["cache=0.5"], "tune": 9}, {})
    for name in ("alone collab cross=8", "loss 64 whole", "loss 64 collab cross=8", "in time x"):
        before.get(name, lambda: 1.5)
    after = Ledger(second, {"seed": 1, "wishes": ["speed=2"], "tune": 0}, {}, first)
    assert [*after.found] == ["alone collab cross=8", "loss 64 whole"]
    assert after.seconds < before.seconds
    with pytest.raises(UserError, match="with seed 1, not 2; give another --after"):
        Ledger(second, {"seed": 2}, {}, first)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        Ledger(second, {"seed": 1}, {}, tmp_path / "none")


def test_bootstrap_differences_are_sacrebleus_scores() -> None:
    chance = random.Random(1)
    words = [f"Wort{i}" for i in range(9)]
    references = [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(40)]
    worse = [" ".join([*line.split()[:-1], "falsch"]) for line in references]
    found = drawn_gains(references, worse, references, np.random.default_rng(3))
    rows = np.random.default_rng(3).integers(40, size=40)
    of_worse = BLEU().corpus_score([worse[i] for i in rows], [[references[i] for i in rows]])
    assert found[0] == pytest.approx(of_worse.score - 100)
    assert (found < 0).all()
    assert not drawn_gains(worse, worse, references, np.random.default_rng(3)).any()


def test_all_costs_have_a_share() -> None:
    assert ratios({"cache": 50, "parameters": 500, "multiply_adds": 5}, WHOLE) == dict.fromkeys(
        COUNTED, 0.5
    )
