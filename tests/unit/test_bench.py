"""The benchmark's models, turns and checks, and its command; no test looks at a time."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from device_checks.models import ARCHITECTURES
from refusals import refusing, wrong_usage
from toy import close

from collab_common.errors import UserError
from collab_lab.cli import bench as command
from collab_lab.clock import bench, turns
from collab_lab.clock.bench import CTRANSLATE2, ONNX
from collab_lab.export.plain import plain
from fairseq_collab.attention import cache
from fairseq_collab.decoding.fixed_steps import FIXED_STEPS_ENV

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


def test_no_lengths_in_fixed_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIXED_STEPS_ENV, "1")
    with pytest.raises(UserError, match=FIXED_STEPS_ENV):
        next(bench.time_lengths("tiny", [4], CPU))


@pytest.mark.slow
def test_memory_is_of_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's peak, and those of other models, do not count."""
    waste = torch.ones(2**26)  # 256 MiB
    del waste
    some = ("stock fairseq", "multi-query")
    monkeypatch.setattr(bench, "BEAMS", (1,))
    kinds = bench.kinds
    monkeypatch.setattr(bench, "kinds", lambda d: {name: kinds(d)[name] for name in some})
    records = [*bench.time_lengths("tiny", [4, 9], CPU)]
    assert [(r["kind"], r["length"]) for r in records] == [(k, n) for k in some for n in (4, 9)]
    assert all(0 < record["memory"] < 200 for record in records)


def test_seconds_and_memory_of_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """By token of each hypothesis, from the start; in MiB, of what the model adds."""
    times, peaks = iter([100.0, 104.0, 118.0]), iter([3 * 2**20, 5 * 2**20])
    monkeypatch.setattr(bench, "clock", lambda: next(times))
    monkeypatch.setattr(bench, "peak_memory", lambda _: next(peaks))
    task = bench.random_task("tiny", 2)
    (batch,) = bench.batches(task, CPU, max_sentences=2)
    model = bench.random_model("transformer_headsize_n", "tiny", task).model
    found = bench.watch(model, task, batch, 2, [4, 9], CPU, 2**20)
    names = ("beam", "length", "seconds", "memory")
    assert [[one[name] for name in names] for one in found] == [[2, 4, 1, 2], [2, 9, 2, 4]]


def test_peak_memory_is_in_bytes() -> None:
    """A process that has torch takes some hundred MiB."""
    assert 2**26 < bench.peak_memory(CPU) < 2**38


def test_a_model_is_in_training_after_its_loss_was_looked_at() -> None:
    """The loss has no dropout; the updates that are timed have."""
    task = bench.random_task("tiny", 4)
    (batch,) = bench.batches(task, CPU, max_sentences=4)
    model = bench.random_model("transformer_headsize_n", "tiny", task, dropout=0.5).model
    trainer = bench.trainer(model, task, CPU)
    assert bench.loss(trainer, batch) == bench.loss(trainer, batch)
    assert trainer.model.training


def test_bytes_of_dropped_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept and what was dropped are the bytes of a search that keeps all."""
    task = bench.random_task("tiny", 4)
    (batch,) = bench.batches(task, CPU, max_sentences=4)
    found = {}
    for every in (cache.DROP_EVERY, 2**62):
        monkeypatch.setattr(cache, "DROP_EVERY", every)
        model = bench.random_model("transformer_headsize_n", "tiny", task).model
        (found[every],) = bench.watch(model, task, batch, 5, [40], CPU, 0)
    live, whole = found.values()
    assert whole["all_slots"] == whole["cache"] > live["cache"]
    # Buffers have some room for more steps.
    assert live["all_slots"] == pytest.approx(whole["cache"], rel=0.25)


def test_dropped_bytes_are_of_tokens_that_were_written() -> None:
    """Of keys and values of two beams that become one; those of a source are never dropped."""
    state: Any = {}
    history = cache.start_beam_history(state, 1, 2, torch.zeros(()))
    for _ in range(cache.DROP_EVERY):
        history.extend(torch.zeros(2, 1))
    written = cache.Cache(*torch.zeros(2, 1, 1, 2 * cache.DROP_EVERY, 4))
    state["self"], state["cross"] = (
        {"cache": one}
        for one in (written, cache.Cache(*torch.zeros(2, 1, 1, 99, 4), is_source=True))
    )
    assert bench.dropped_bytes(state) == 0
    history.reorder(torch.tensor([0, 0]), None)
    for one in (state["self"], state["cross"]):
        one["cache"].follow(history)
    assert bench.dropped_bytes(state) == 2 * cache.DROP_EVERY * 4 * 4  # of 4 numbers of 4 bytes


@pytest.mark.slow
def test_own_heads_are_timed_by_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Next to stock fairseq and standard heads; keys that are values take half of the cache."""
    monkeypatch.setattr(bench, "BEAMS", (1,))
    timed = bench.time_lengths
    monkeypatch.setattr(bench, "time_lengths", lambda _, *given: timed("tiny", *given))
    plugin = Path(__file__).parents[1] / "examples" / "tied_heads"
    own = ["--arch", "transformer_tied_heads", "--user-dir", str(plugin)]
    out = tmp_path / "bench.json"
    options = ["--lengths", "5", *own, "--threads", "1", "--cpu", "--out", str(out)]
    assert command.main(options) == 0
    stock, standard, tied = json.loads(out.read_text())["records"]
    assert [r["kind"] for r in (stock, standard, tied)] == [*bench.STANDARD, own[1]]
    assert tied["cache"] < 0.6 * standard["cache"]
    assert own[1] in capsys.readouterr().out


def test_own_heads_have_no_twin_in_stock_fairseq(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--user-dir", "heads"], ["--arch", "transformer_latent"]):
        with wrong_usage(capsys, "--lengths"):
            command.main(options)
    with wrong_usage(capsys, "--arch"):
        command.main(["--lengths", "5", "--user-dir", "heads"])


@pytest.mark.parametrize("arch", ["transformer_tide_heads", "transformer_lm_collab", "transformer"])
def test_other_models_are_not_timed_by_length(arch: str) -> None:
    with refusing(f"--arch {arch}"):
        next(bench.time_lengths("tiny", [4], CPU, arch))


# ---- the command ---------------------------------------------------------------------------------


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
    assert content["commit"]
    assert content["hardware"].endswith("1 thread a training")
    assert capsys.readouterr().out.count("| tiny ") == 2 * len(bench.ARCHITECTURES)
