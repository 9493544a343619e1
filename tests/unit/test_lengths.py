"""Decoding by length: seconds, memory, bytes of caches, the command; no test looks at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from refusals import refusing, wrong_usage

from collab_lab.cli import bench as command
from collab_lab.clock import bench, lengths
from collab_lab.clock.lengths import Case
from fairseq_collab.attention import cache
from fairseq_collab.decoding import fixed_steps
from fairseq_collab.decoding.fixed_steps import BUFFERS, FIXED_STEPS_ENV

CPU = torch.device("cpu")


TINY = Case("tiny", [4, 9], CPU)


@pytest.mark.slow
def test_memory_is_of_one_model() -> None:
    """The parent's peak, and those of other models, do not count."""
    waste = torch.ones(2**26)  # 256 MiB
    del waste
    records = [*lengths.time_lengths(TINY, [1], ["multi-query"])]
    some = (lengths.STOCK, "multi-query")
    assert [(r["kind"], r["length"]) for r in records] == [(k, n) for k in some for n in (4, 9)]
    assert all(0 < record["memory"] < 200 for record in records)


@pytest.fixture
def toy_model() -> Any:
    """A model, its task and a batch of two sentences."""
    task = bench.random_task("tiny", 2)
    (batch,) = bench.batches(task, CPU, max_sentences=2)
    return bench.random_model("transformer_headsize_n", "tiny", task).model, task, batch


def test_in_fixed_steps(toy_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is captured in the translation that is timed; the cache is all buffers."""
    monkeypatch.setenv(FIXED_STEPS_ENV, "1")
    now, captured = [0.0], list[float]()

    class FixedStep(fixed_steps.FixedStep):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            captured.append(now[0])

    def clock() -> float:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(fixed_steps, "FixedStep", FixedStep)
    monkeypatch.setattr(lengths, "clock", clock)
    model, task, batch = toy_model
    found = lengths.replay(model, task, batch, 5, [9, 140], CPU, 0)
    numbers = [[one[name] for name in ("beam", "length", "first", "seconds")] for one in found]
    assert numbers == [[5, 9, 1 / 9, 1 / 9], [5, 140, 1 / 140, 1 / 140]]
    assert {1, 7, 9} <= {*captured}, "of the first length; of the other one, twice"
    assert not {5, 11} & {*captured}
    buffers = sum(memory.nbytes for memory in BUFFERS[model].memory.values())
    assert found[1]["cache"] == buffers / 2**20
    model.decoder.layers[0].register_forward_hook(lambda *_: None)
    with refusing(FIXED_STEPS_ENV):
        lengths.replay(model, task, batch, 2, [4], CPU, 0)


def test_a_process_that_is_killed() -> None:
    with refusing("killed"):
        lengths.in_new_process(signal.raise_signal, signal.SIGKILL)


def test_a_process_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the parent is killed: else it would compute on, and disturb the next times."""
    end, of_parent = os.pipe()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: Namespace(sentinel=end))
    ended = Mock()
    monkeypatch.setattr(os, "_exit", ended)
    os.close(of_parent)
    lengths._end_with_parent()
    ended.assert_called_once()


def test_a_temporary_folder_of_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Mock(side_effect=OSError("AF_UNIX path too long"))
    monkeypatch.setattr(lengths, "ProcessPoolExecutor", pool)
    with refusing("TMPDIR", "short path"):
        lengths.in_new_process(int)


@pytest.mark.slow
def test_processes_after_an_import_have_threads() -> None:
    """The import starts none, for which a forked process would wait for ever."""
    forked = """
    import os, signal, sys, torch
    import fairseq_collab, collab_lab.clock.lengths
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    signal.alarm(60)
    torch.set_num_threads(2)
    torch.randn(1000, 1000).sin()
    os._exit(0)
    """
    two = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(forked)], check=True, env=two)


def test_seconds_and_memory_of_lengths(toy_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per token of each hypothesis, after a translation that does not count; in MiB."""
    times = iter([100.0, 200.0, 300.0, 304.0, 400.0, 418.0])
    peaks = iter([2 * 2**20, 3 * 2**20, 5 * 2**20])
    monkeypatch.setattr(lengths, "clock", lambda: next(times))
    monkeypatch.setattr(lengths, "peak_memory", lambda _: next(peaks))
    found = lengths.watch(*toy_model, 2, [4, 9], CPU, 2**20)
    names = ("beam", "length", "seconds", "memory")
    assert [[one[name] for name in names] for one in found] == [[2, 4, 1, 2], [2, 9, 2, 4]]
    short, long = found
    assert 0 < short["cache"] <= long["cache"]


def test_peak_memory_is_in_bytes() -> None:
    """A process that has torch takes some hundred MiB."""
    assert 2**26 < lengths.peak_memory(CPU) < 2**38


def test_bytes_of_dropped_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept and what was dropped are the bytes of a search that keeps all."""
    task = bench.random_task("tiny", 4)
    (batch,) = bench.batches(task, CPU, max_sentences=4)
    found = {}
    for every in (cache.DROP_EVERY, 2**62):
        monkeypatch.setattr(cache, "DROP_EVERY", every)
        model = bench.random_model("transformer_headsize_n", "tiny", task).model
        (found[every],) = lengths.watch(model, task, batch, 5, [40], CPU, 0)
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
    assert lengths.dropped_bytes(state) == 0
    history.reorder(torch.tensor([0, 0]), None)
    for one in (state["self"], state["cross"]):
        one["cache"].follow(history)
    assert lengths.dropped_bytes(state) == 2 * cache.DROP_EVERY * 4 * 4  # of 4 numbers of 4 bytes


@pytest.mark.parametrize("kind", lengths.STANDARD)
def test_numbers_of_a_type(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of bfloat16 take half of the bytes."""
    monkeypatch.setenv(FIXED_STEPS_ENV, "0")  # which it sets
    whole, half = (
        lengths.decode(kind, TINY._replace(dtype=dtype), 1)[-1]["cache"]
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert half == pytest.approx(whole / 2, rel=0.1)


@pytest.mark.slow
def test_own_heads_are_timed_by_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Next to stock fairseq and standard heads; keys that are values take half of the cache."""
    plugin = Path(__file__).parents[1] / "examples" / "tied_heads"
    own = ["--arch", "transformer_tied_heads", "--user-dir", str(plugin)]
    out = tmp_path / "bench.json"
    options = ["--lengths", "5", "--presets", "tiny", "--beam", "1", *own, "--bf16"]
    assert command.main([*options, "--threads", "1", "--cpu", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert (content["numbers"], content["fixed_steps"]) == ("bfloat16", False)
    stock, standard, tied = content["records"]
    assert [r["kind"] for r in (stock, standard, tied)] == [*lengths.STANDARD, own[1]]
    assert tied["cache"] < 0.6 * standard["cache"]
    assert own[1] in capsys.readouterr().out


def test_options_that_do_not_act(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        ["--user-dir", "heads"],  # no twin in stock fairseq
        ["--arch", "transformer_latent"],
        ["--beam", "5"],
        ["--only", "multi-query"],
        ["--max-tokens", "500", "--only", "translation"],
    ):
        with wrong_usage(capsys, "" if "--max-tokens" in options else "--lengths"):
            command.main(options)
    with wrong_usage(capsys, "--arch"):
        command.main(["--lengths", "5", "--user-dir", "heads"])
    with wrong_usage(capsys, "--max-tokens"):
        command.main(["--lengths", "5", "--max-tokens", "500"])


def test_half_precision_takes_a_gpu(tmp_path: Path) -> None:
    with refusing("--fp16", "GPU"):
        command.main(["--fp16", "--cpu", "--out", str(tmp_path / "bench.json")])


@pytest.mark.parametrize("arch", ["transformer_tide_heads", "transformer_lm_collab", "transformer"])
def test_other_models_are_not_timed_by_length(arch: str) -> None:
    with refusing(f"--arch {arch}"):
        next(lengths.time_lengths(TINY, arch=arch))


def test_unknown_kinds() -> None:
    with refusing("--only 'latent'", "latent, a quarter"):
        next(lengths.time_lengths(TINY, only=["latent"]))
