"""Wishes, predictions of combinations, and the numbers that a rerun finds again."""

from __future__ import annotations

import random
from argparse import ArgumentTypeError
from pathlib import Path

import numpy as np
import pytest
from parity.test_prune_parity import trained
from refusals import refusing
from sacrebleu.metrics import BLEU
from toy_heads import sample

from fairseq_collab.advice.candidates import methods
from fairseq_collab.advice.measure import Ledger, counts, drawn_gains
from fairseq_collab.advice.plan import (
    NAMES,
    Measured,
    Predicted,
    Wish,
    best,
    candidate,
    combinations,
    met,
    nearest,
    parse,
    ratios,
)

WHOLE = {"cache": 100, "parameters": 1000, "multiply_adds": 10}


def predicted(name: str, loss: float, cache: float) -> Predicted:
    costs = {"cache": cache, "parameters": 1.0, "multiply_adds": 1.0}
    return Predicted(candidate(name, {"cross": round(1000 * cache)}), loss, costs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("beauty=0.5", "'beauty=0.5' names none of cache, parameters, multiply_adds"),
        *((text, "must be above 0 and below 1") for text in ("cache", "cache=1", "parameters=0")),
    ],
)
def test_what_is_no_wish(text: str, said: str) -> None:
    with pytest.raises(ArgumentTypeError, match=said):
        parse(text)


def test_wishes() -> None:
    wish = parse("multiply-adds=0.7")
    assert wish == Wish("multiply_adds", 0.7)
    assert met([wish], {"multiply_adds": 0.7})
    assert not met([wish, Wish("cache", 0.5)], {"multiply_adds": 0.7, "cache": 0.51})
    half = {what: number // 2 for what, number in WHOLE.items()}
    assert ratios(half, WHOLE) == dict.fromkeys(NAMES, 0.5)


def test_costs_of_places_add_up() -> None:
    """The predicted costs of a combination are those of the model made of it."""
    source = trained("transformer", max_source_positions=40, max_target_positions=40)
    way = methods(source, [sample()])[0]["heads"]
    whole = counts(source.model)
    alone = [("encoder", 6), ("cross", 4), ("decoder", 4)]
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


def test_predictions_start_from_the_base_of_a_method() -> None:
    base = Measured({"cross": 8, "decoder": 8}, 0.1, {**WHOLE, "cache": 50})
    singles = [Measured({"cross": 4}, 0.3, {**WHOLE, "cache": 40})]
    whole, smaller = combinations("latent", base, singles, WHOLE)
    assert (whole.candidate.name, whole.loss) == ("latent decoder=8 cross=8", 0.1)
    assert smaller.candidate.name == "latent decoder=8 cross=4"
    assert smaller.loss == pytest.approx(0.3)
    assert smaller.ratios["cache"] == 0.4


def test_the_best_meet_the_wishes_and_are_of_several_methods() -> None:
    found = [predicted("collab", 0.01 * i, 0.3 + 0.001 * i) for i in range(10)]
    found += [predicted("heads", 1.0, 0.2), predicted("latent", 0.0, 0.9)]
    kept = best(found, [Wish("cache", 0.5)])
    assert [one.method for one in kept] == ["collab"] * 6 + ["heads"]
    assert best(found, [Wish("cache", 0.1)]) == []
    assert nearest(found, [Wish("cache", 0.1)]).candidate.method == "heads"


def test_a_ledger_resumes_and_rejects_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    first = Ledger(path, {"seed": 1})
    assert first.get("loss", lambda: 1.5) == 1.5
    again = Ledger(path, {"seed": 1})
    assert again.get("loss", lambda: pytest.fail("it is there already")) == 1.5
    with refusing("numbers of another model", "give another --out"):
        Ledger(path, {"seed": 2})
    path.write_text("{")
    with refusing("not JSON", "give another --out"):
        Ledger(path, {"seed": 1})


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
