"""The benchmark of heads in groups: what is timed, and not before it is checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from collab_common.errors import UserError
from fairseq_collab.bench import grouped, report
from fairseq_collab.bench.models import STOCK, random_pair
from fairseq_collab.bench.settings import GenerateCase, Settings

SETTINGS = Settings(presets=("tiny",), quick=True, threads=1)


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Any, GenerateCase]:
    """A tiny model with all heads, fairseq's of the same weights, and what they translate."""
    (found,) = grouped.whole_models("tiny", SETTINGS)
    return found


def test_pruned_models_are_timed_after_a_check(whole: tuple[Any, Any, GenerateCase]) -> None:
    """One of 4 heads stays: against all heads, and against fairseq's model."""
    trained, stock, case = whole
    before = {name: weight.clone() for name, weight in trained.model.state_dict().items()}
    records = list(grouped.pruned(trained, stock, 1, case, SETTINGS))
    assert [record["against"] for record in records] == [grouped.WHOLE, STOCK]
    gone = 3 * 3 * (4 * 32 * 8 + 3 * 8)  # heads, attentions; four projections, three biases
    for record in records:
        assert record["model"] == "transformer_headsize_n, 1 of 4 heads"
        assert record["whole_parameters"] - record["parameters"] == gone
        assert record["pairs"] >= 2
        assert record["ties"] == 0
    for name, weight in trained.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_pruned_models_that_translate_otherwise_are_not_timed(
    whole: tuple[Any, Any, GenerateCase], monkeypatch: pytest.MonkeyPatch
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
    trained, stock, case = whole
    with pytest.raises(UserError, match="than by the model whose other heads are masked"):
        next(grouped.pruned(trained, stock, 2, case, SETTINGS))


def test_updates_with_the_constraint_are_timed() -> None:
    """By three models: fairseq's, and ours with the ordinary and with the grouping criterion."""
    records = list(grouped.constrained("tiny", SETTINGS))
    assert [record["against"] for record in records] == [grouped.WITHOUT, STOCK]
    assert {record["model"] for record in records} == {"transformer_grouped_heads C=1"}
    assert records[0]["second_seconds"] == records[1]["second_seconds"]


def test_models_with_other_losses_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*arguments: Any) -> tuple[Any, Any]:
        stock, ours = random_pair(*arguments)
        with torch.no_grad():
            ours.decoder.layers[0].fc1.weight.mul_(2)
        return stock, ours

    monkeypatch.setattr(grouped, "random_pair", other)
    with pytest.raises(UserError, match="these two models do not compute the same function"):
        next(grouped.constrained("tiny", SETTINGS))


def test_report_of_heads_in_groups() -> None:
    common = {"part": "grouped", "preset": "p", "column": "default", "pairs": 9, "ratio": 0.8}
    common |= {"low": 0.5, "high": 1.0, "whole_parameters": 2000, "work": 64}
    common |= {"first_seconds": 0.4, "second_seconds": 0.5, "unit": "sentences"}
    update = {"measure": "update", "case": "u", "model": "m", "against": grouped.WITHOUT}
    translation = {"measure": "translation", "case": "t", "model": "n", "against": STOCK}
    records = [
        {**common, **update, "parameters": 2000},
        {**common, **translation, "parameters": 1500},
    ]
    lines = report.terminal({"records": records, "libraries": {"default": "torch"}}).splitlines()
    rows = {line.split()[1]: line for line in lines if line.startswith("p ")}
    assert "100.0% of 2,000" in rows["u"]
    assert "+25.0% (+0.0% to +100.0%; 9 pairs); 0.400 and 0.500 s an update" in rows["u"]
    assert "75.0% of 2,000" in rows["t"]
    assert "0.80 (0.50 to 1.00; 9 pairs); 160 and 128 sentences/s" in rows["t"]
    (target,) = (line for line in lines if "without head groups" in line)
    assert target.split()[-3:] == ["0.80", "NOT", "reached"]
