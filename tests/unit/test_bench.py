"""The benchmark's models, statistics and checks; no test looks at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy import close

from collab_common.errors import UserError
from collab_lab.bench import train, translate
from collab_lab.bench.models import architectures, batches, random_pair, random_task
from collab_lab.bench.timing import speedups, time_interleaved
from collab_lab.bench.translate import count_ties

CPU = torch.device("cpu")


@pytest.fixture
def task() -> Any:
    return random_task("tiny", 4)


def changed_pair(*arguments: Any) -> Any:
    """Two models that compute different functions."""
    pair = random_pair(*arguments)
    with torch.no_grad():
        pair.ours.model.decoder.layers[0].fc1.weight.mul_(3)
    return pair


@pytest.mark.parametrize("arch", architectures())
def test_pairs_compute_one_function(arch: str, task: Any, float64: None) -> None:
    pair = random_pair(arch, "tiny", task)
    (batch,) = batches(task, "test", CPU, max_sentences=4)
    (found, _), (expected, _) = (one(**batch["net_input"]) for one in (pair.ours.model, pair.stock))
    assert type(pair.ours.model) is not type(pair.stock)
    close(found, expected)


@pytest.mark.parametrize(
    ("module", "message"),
    [(translate, "our model and fairseq's translate it differently"), (train, "that of ours")],
)
def test_different_models_are_not_timed(
    module: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "random_pair", changed_pair)
    monkeypatch.setattr(
        module, "time_interleaved", lambda *a, **k: pytest.fail("something was timed")
    )
    more = (1,) if module is translate else ()
    with pytest.raises(UserError, match=message):
        next(module.run("transformer_collab", "tiny", True, CPU, *more))


def test_ties_are_counted() -> None:
    def found(word: int, score: float) -> Any:
        return [[{"tokens": torch.tensor([word, 2]), "score": torch.tensor(score)}]]

    assert count_ties(found(6, -1.0), found(6, -1.0)) == 0
    assert count_ties(found(6, -1.0), found(7, -1.00005)) == 1
    with pytest.raises(UserError, match="sentence 0: our model and fairseq's"):
        count_ties(found(6, -1.0), found(7, -1.001))
    with pytest.raises(UserError, match="that of ours nan"):
        train.check_losses(5.0, float("nan"))


def test_statistics() -> None:
    first, other = speedups({"fairseq": [2.0, 3.0, 8.0], "ours": [1.0, 1.0, 2.0]})
    assert (first["engine"], first["ratio"]) == ("fairseq", 1)
    assert (other["engine"], other["ratio"], other["turns"]) == ("ours", 3, 3)
    assert other["seconds"] == 1
    assert (other["low"], other["high"]) == pytest.approx((2.1, 3.9))


def test_programs_take_turns() -> None:
    """Each item once before any comes again; every other turn in reverse order."""
    calls: list[str] = []
    programs = {name: lambda item, name=name: calls.append(f"{name}{item}") for name in "AB"}
    times = time_interleaved(programs, [0, 1, 2], min_turns=6, pause=0)
    assert {name: len(found) for name, found in times.items()} == {"A": 6, "B": 6}
    pairs = [calls[i : i + 2] for i in range(0, 12, 2)]
    assert [first[0] for first, _ in pairs] == [*"ABA", *"BAB"]
    assert all(first[1] == second[1] for first, second in pairs)
    assert sorted(first[1] for first, _ in pairs[:3]) == ["0", "1", "2"]
