"""The benchmark of heads in groups: what is timed, and not before it is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from collab_common.errors import UserError
from fairseq_collab.bench import grouped
from fairseq_collab.bench.generate import Case
from fairseq_collab.bench.models import STOCK, Pair, random_pair
from fairseq_collab.bench.run import run
from fairseq_collab.bench.settings import Settings
from fairseq_collab.commands.bench import build_parser

SETTINGS = Settings(presets=("tiny",), quick=True, threads=1)


@pytest.fixture(scope="module")
def whole() -> tuple[Pair, Case]:
    """A tiny model with all heads, fairseq's of the same weights, and what they translate."""
    return grouped.whole_model("tiny", SETTINGS)


def test_pruned_models_are_timed_after_a_check(whole: tuple[Pair, Case]) -> None:
    """One of 4 heads stays: against all heads, and against fairseq's model."""
    pair, case = whole
    before = {name: weight.clone() for name, weight in pair.ours.model.state_dict().items()}
    records = list(grouped.pruned(pair, 1, case, SETTINGS))
    assert [record["against"] for record in records] == [grouped.WHOLE, STOCK]
    gone = 3 * 3 * (4 * 32 * 8 + 3 * 8)  # heads, attentions; four projections, three biases
    for record in records:
        assert record["model"] == "transformer_headsize_n, 1 of 4 heads"
        assert record["whole_parameters"] - record["parameters"] == gone
        assert record["pairs"] >= 2
        assert record["ties"] == 0
    for name, weight in pair.ours.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_pruned_models_that_translate_otherwise_are_not_timed(
    whole: tuple[Pair, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the masked model keeps the heads beside those that the pruned one keeps."""
    masked = grouped.masked

    def other(trained: Any, kept: Any) -> Any:
        beside = {
            site: [[(head + 1) % 4 for head in heads] for heads in layers]
            for site, layers in kept.items()
        }
        return masked(trained, beside)

    monkeypatch.setattr(grouped, "masked", other)
    pair, case = whole
    with pytest.raises(UserError, match="than by the model whose other heads are masked"):
        next(grouped.pruned(pair, 2, case, SETTINGS))


def test_the_third_papers_protocol() -> None:
    """Beam 5, batches of 256 sentences, translations of length 10; a quarter of the heads."""
    assert "paper3" not in build_parser().parse_args([]).only
    found = run(replace(SETTINGS, threads=torch.get_num_threads()), ["paper3"], "bench")["records"]
    assert [(record["against"], record["model"]) for record in found] == [
        (against, "transformer_headsize_n, 1 of 4 heads") for against in (grouped.WHOLE, STOCK)
    ]
    for record in found:
        assert (record["beam"], record["batch"], record["sentences"]) == (5, 256, 256)
        assert record["case"] == "fixed length 10, beam 5, batch 256"
        assert record["column"] == "default"


def test_updates_with_the_constraint_are_timed() -> None:
    """By three models: fairseq's, and ours with the ordinary and with the grouping criterion."""
    records = list(grouped.constrained("tiny", SETTINGS))
    assert {(r["part"], r["preset"], r["measure"]) for r in records} == {
        ("grouped", "tiny", "update")
    }
    assert [record["against"] for record in records] == [grouped.WITHOUT, STOCK]
    assert {record["model"] for record in records} == {"transformer_grouped_heads C=1"}
    assert records[0]["second_seconds"] == records[1]["second_seconds"]


def test_models_with_other_losses_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*arguments: Any) -> Pair:
        pair = random_pair(*arguments)
        with torch.no_grad():
            pair.ours.model.decoder.layers[0].fc1.weight.mul_(2)
        return pair

    monkeypatch.setattr(grouped, "random_pair", other)
    with pytest.raises(UserError, match="these two models do not compute the same function"):
        next(grouped.constrained("tiny", SETTINGS))
