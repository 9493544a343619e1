"""The benchmark's models, turns and checks, and its command; no test looks at a time."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks.models import ARCHITECTURES
from refusals import refusing
from toy import close

from collab_common.errors import UserError
from collab_lab.cli import bench as command
from collab_lab.clock import bench, turns
from collab_lab.clock.bench import CTRANSLATE2, ONNX
from collab_lab.export.plain import plain

CPU = torch.device("cpu")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_twins_compute_one_function(arch: str, float64: None) -> None:
    ours = bench.random_model(arch, "tiny", task := bench.random_task("tiny", 4))
    stock = plain(ours)
    (batch,) = bench.batches(task, CPU, max_sentences=4)
    (found, _), (expected, _) = (one.model(**batch["net_input"]) for one in (ours, stock))
    assert type(ours.model) is not type(stock.model)
    close(found, expected)


@pytest.mark.parametrize("timed", [bench.time_translation, bench.time_training])
def test_different_models_are_not_timed(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(ours: Any) -> Any:
        stock = plain(ours)
        with torch.no_grad():
            ours.model.decoder.layers[0].fc1.weight.mul_(3)
        return stock

    monkeypatch.setattr(bench, "plain", changed)
    for other in ("ctranslate2", "onnx_runtime"):  # whose exports take seconds
        monkeypatch.setattr(bench, other, lambda *_: {})
    monkeypatch.setattr(bench, "take_turns", lambda *a, **k: pytest.fail("something was timed"))
    more = (1,) if timed is bench.time_translation else ()
    with pytest.raises(UserError):
        next(timed("transformer_collab", "tiny", CPU, *more))


def test_ties_are_counted() -> None:
    def found(word: int, score: float) -> Any:
        return [[{"tokens": torch.tensor([word, 2]), "score": torch.tensor(score)}]]

    assert bench.count_ties(found(6, -1.0), found(6, -1.0)) == 0
    assert bench.count_ties(found(6, -1.0), found(7, -1.00005)) == 1
    for score in (-1.001, float("nan")):
        with pytest.raises(UserError):
            bench.count_ties(found(6, -1.0), found(7, score))


def test_programs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch once before any comes again; every other turn in reverse order."""
    calls: list[str] = []
    monkeypatch.setattr(turns, "LEAST", (6, 0))
    programs = {name: lambda item, name=name: calls.append(f"{name}{item}") for name in "AB"}
    records = [*turns.take_turns(programs, [0, 1, 2], pause=0)]
    assert [(r["engine"], r["turns"]) for r in records] == [("A", 6), ("B", 6)]
    pairs = [calls[i : i + 2] for i in range(0, 12, 2)]
    assert [first[0] for first, _ in pairs] == [*"ABA", *"BAB"]
    assert all(first[1] == second[1] for first, second in pairs)
    assert sorted(first[1] for first, _ in pairs[:3]) == ["0", "1", "2"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_batch_is_taken_in_both_orders(number: int) -> None:
    """From epoch to epoch, so that no batch is always the first program's to warm up."""
    calls: list[tuple[int, str]] = []
    programs = {name: lambda item, name=name: calls.append((item, name)) for name in "AB"}
    taken = turns.turns(programs, [*range(number)], pause=0)
    for _ in range(2 * number):
        next(taken)
    assert sorted(calls[::2]) == [*product(range(number), "AB")]


def test_ratios_are_of_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now, seconds = [0.0], {"fairseq": iter([2.0, 3.0, 8.0]), "ours": iter([1.0, 1.0, 2.0])}
    monkeypatch.setattr(turns, "clock", lambda: now[0])

    def spend(name: str) -> None:
        now[0] += next(seconds[name])

    monkeypatch.setattr(turns, "LEAST", (2, 8))  # two turns take 7 seconds
    programs = {name: lambda _, name=name: spend(name) for name in seconds}
    first, other = turns.take_turns(programs, [0], pause=0)
    assert (first["ratio"], first["seconds"]) == (1, 3)
    assert (other["ratio"], other["seconds"], other["turns"]) == (3, 1, 3)
    assert (other["low"], other["high"]) == pytest.approx((2.1, 3.9))


def test_a_ratio_as_it_is_printed() -> None:
    assert [str(turns.Ratio(2.0)), str(turns.Ratio(2.0, 1.5, 2.6))] == ["2.00", "2.00 ± 0.55"]


def test_a_model_is_in_training_after_its_loss_was_looked_at() -> None:
    """The loss has no dropout; the updates that are timed have."""
    task = bench.random_task("tiny", 4)
    (batch,) = bench.batches(task, CPU, max_sentences=4)
    model = bench.random_model("transformer_headsize_n", "tiny", task, dropout=0.5).model
    trainer = bench.trainer(model, task, CPU)
    assert bench.loss(trainer, batch) == bench.loss(trainer, batch)
    assert trainer.model.training


# ---- the command ---------------------------------------------------------------------------------


def test_the_longest_sentence_fits_a_batch() -> None:
    with refusing("--max-tokens 6"):
        next(bench.time_training("transformer_collab", "tiny", CPU, max_tokens=6))


@pytest.mark.parametrize("timed", [bench.time_translation, bench.time_training])
def test_models_of_a_type(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models' weights are of it, after they were compared in float32; no other engine."""
    seen, models = [], list[Any]()

    def take_turns(programs: Any, *_: Any, **how: Any) -> Any:
        assert how.get("least", _[-1]) == 0.5
        seen.append([*programs])
        seen.append([next(model.parameters()).dtype for model in models])
        return iter(())

    def compared(given: Any, *_: Any) -> Any:
        return {next(model.parameters()).dtype for model in models} == {torch.float32} and 1.0

    def random_model(*arguments: Any) -> Any:
        models.append((found := made(*arguments)).model)
        return found

    made = bench.random_model
    monkeypatch.setattr(bench, "random_model", random_model)
    monkeypatch.setattr(bench, "take_turns", take_turns)
    monkeypatch.setattr(bench, "loss", compared)
    monkeypatch.setattr(bench, "count_ties", lambda *_: compared(None) or pytest.fail("too late"))
    threads = (1,) if timed is bench.time_translation else ()
    [*timed("transformer_collab", "tiny", CPU, *threads, dtype=torch.bfloat16, least=0.5)]
    assert seen == [["fairseq", "ours"], [torch.bfloat16]]


def test_least_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LEAST", (2, 1e9))
    (record,) = turns.take_turns({"A": lambda _: None}, [0], pause=0, least=0)
    assert record["turns"] == 2


def test_records_are_on_the_disk_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "bench.json"

    def timed(*_: Any) -> Any:
        yield {"task": "training"}
        assert [r["task"] for r in json.loads(out.read_text())["records"]] == ["training"]
        raise UserError("ended", "here")

    monkeypatch.setattr(bench, "time_training", timed)
    with refusing("ended"):
        command.main(["--only", "training", "--cpu", "--threads", "1", "--out", str(out)])
    assert json.loads(out.read_text())["commit"]


@pytest.mark.slow
def test_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translation by all engines; training by fairseq's model and ours, of one kind of heads."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("onnxruntime")
    engines = ["fairseq", "ours", *CTRANSLATE2, *ONNX]
    monkeypatch.setattr(turns, "LEAST", (2, 0.1))
    monkeypatch.setattr(bench, "ARCHITECTURES", dict([*bench.ARCHITECTURES.items()][-1:]))
    out = tmp_path / "bench.json"
    options = ["--presets", "tiny", "--threads", "1", "--cpu", "--out", str(out)]
    options += ["--max-tokens", "60"]
    assert command.main(options) == 0
    content = json.loads(out.read_text())
    found = [tuple(r[name] for name in ("heads", "task", "engine")) for r in content["records"]]
    tasks = {"translation": engines, "training": engines[:2]}
    assert found == [
        (heads, t, engine) for heads in bench.ARCHITECTURES for t in tasks for engine in tasks[t]
    ]
    for record in content["records"]:
        assert 0 < record["low"] <= record["ratio"] <= record["high"]
        assert record["turns"] >= 2
        assert record["work"] / record["seconds"] > 0
    cases = {r["task"]: r["case"] for r in content["records"]}
    assert "60 tokens" in cases["training"]
    assert content["numbers"] == "float32"
    assert content["commit"]
    assert content["hardware"].endswith("1 thread a training")
    assert capsys.readouterr().out.count("| tiny ") == 2 * len(bench.ARCHITECTURES)
