"""The folder of a run: verdicts, the lock, what is refused, its record and its origin."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from data.text_tools import is_running, wait_for
from fairseq_cli import score as fairseq_score
from omegaconf import DictConfig, OmegaConf
from refusals import refusing
from run_folders import some_record, start_run

from collab_common import provenance
from collab_common.errors import UserError
from collab_common.files import read_json, write_json
from collab_common.folder import build_folder
from collab_lab.metrics.generate import Translations
from collab_lab.runs import config_folder, scheduler, training
from collab_lab.runs.checks import NO_TRANSLATION, check_generation, check_test_set
from collab_lab.runs.inputs import manifest_hash
from collab_lab.runs.record import Failure, Record, Started, Training, read
from collab_lab.runs.run import PLUGIN, Run, data_folder, is_ours, runs_under, task_of
from collab_lab.runs.scheduler import Scheduler
from collab_lab.runs.score import method_of, score_translations, translation
from collab_lab.runs.sweep import Job, combinations, complete, plan
from collab_lab.runs.train_and_score import failure_of, train_command
from collab_lab.runs.training import (
    choose_checkpoints,
    losses,
    rule_of,
    train_seconds,
    training_numbers,
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("common: {seed: 1}\n")
    return Run(tmp_path / "run")


JOB = Job("run", {}, OmegaConf.create({"common": {"cpu": True}}))


def begun(run: Run, **options: Any) -> Scheduler:
    """A scheduler that trains a run."""
    ours = Scheduler({run: JOB}, 1, [], **options)
    ours.step()
    return ours


def test_a_run_that_cannot_start_leaves_the_others(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    impossible = Run(tmp_path / "file")
    ours = Scheduler({impossible: JOB, run: JOB}, 2, [])
    ours.step()
    assert [child.run for child in ours.processes] == [run]
    ours.stop()
    assert "file: cannot start" in capsys.readouterr().out


def test_names_of_files_that_are_not_utf8_can_be_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"r\xfcn")
    write_json(tmp_path / "a.json", {"command": name})
    assert read_json(tmp_path / "a.json") == {"command": name}


def test_states(run: Run) -> None:
    assert Run(run.folder / "other").state() == "not started"
    assert run.state() == "incomplete"
    run.fail(Failure("diverged", "loss is nan"))
    assert run.state() == "diverged (loss is nan)"
    record = some_record()
    run.finish(record)
    assert run.state() == "finished"
    assert run.record() == record
    assert not run.failed_file.exists()


def test_a_training_that_resumes_at_another_commit_has_both(run: Run) -> None:
    """Once it is trained, it was trained where it was."""
    config = OmegaConf.create({"task": {"data": "data"}})
    for commit in ("a1", "a1", "b2-dirty"):
        run.start(Started({}, ["sweep"], commit), config)
    assert run.started().commit == "a1, b2-dirty"
    run.trained_file.write_text("{}")
    run.start(Started({}, ["sweep"], "c3"), config)
    assert run.started().commit == "a1, b2-dirty"
    assert run.started().command == ["sweep"]


@pytest.mark.parametrize("commit", ["a1", None])
def test_finished_runs_of_another_commit_are_said(
    commit: str | None, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.start(Started({}, ["sweep"], commit or provenance.commit()), run.config())
    run.finish(some_record())
    assert scheduler.run_all({run: JOB}, 1, ["sweep"]) == 0
    assert ("other commits: a1" in capsys.readouterr().out) == bool(commit)


def test_changed_files_show_in_the_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "file").write_text("1")
    for words in (["init"], ["add", "."], ["commit", "-m", "one"], ["tag", "-a", "v1", "-m", "v1"]):
        git(*words)
    clean = provenance.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12}", clean)
    (tmp_path / "notes").write_text("of no commit")
    assert provenance.commit(tmp_path) == clean, "no code"
    (tmp_path / "collab_lab").mkdir()
    (tmp_path / "collab_lab" / "new.py").write_text("of no commit")
    assert re.fullmatch(rf"{clean}-dirty-[0-9a-f]{{8}}", provenance.commit(tmp_path))
    (tmp_path / "collab_lab" / "new.py").unlink()
    (tmp_path / "file").write_text("2")
    dirty = provenance.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12}-dirty-[0-9a-f]{8}", dirty)
    (tmp_path / "file").write_text("3")
    assert provenance.commit(tmp_path) == dirty, "no code"
    for content in ("1", "2"):
        (tmp_path / "collab_lab" / "a.py").write_text(content)
        assert provenance.commit(tmp_path) != dirty
        dirty = provenance.commit(tmp_path)


def test_code_without_git_is_named_by_its_content(tmp_path: Path) -> None:
    """As in a ZIP: other code in the same folder has another name."""
    (tmp_path / "fairseq_collab" / "attention").mkdir(parents=True)
    names = []
    for content in ("1", "2", "1"):
        (tmp_path / "fairseq_collab" / "attention" / "a.py").write_text(content)
        names.append(provenance.commit(tmp_path))
    assert re.fullmatch(r"code-[0-9a-f]{12}", names[0])
    assert names[0] == names[2] != names[1]


def test_a_file_system_without_locks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EOPNOTSUPP, "Operation not supported")
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=error))
    with refusing("lock", "Operation not supported"):
        run.locked().__enter__()


def test_a_stopped_worker_leaves_nothing_running(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training on several GPUs has processes below it."""
    pids = run.folder / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {pids}; wait"]
    monkeypatch.setattr(scheduler, "child_command", lambda _: command)
    ours = begun(run)
    assert wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"))
    ours.stop()
    assert wait_for(lambda: not is_running(int(pids.read_text())), 5)
    assert not run.is_finished()
    run.locked().__enter__()


def test_all_trainings_are_stopped_though_nothing_can_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C, which also ends the `tee` that the sweep prints to."""
    monkeypatch.setattr(scheduler, "child_command", lambda _: ["sleep", "60"])
    both = []
    for name in "ab":
        (tmp_path / name).mkdir()
        both += begun(Run(tmp_path / name)).processes
    ours = Scheduler({}, 1, [])
    ours.processes = both
    monkeypatch.setattr(scheduler, "say", Mock(side_effect=BrokenPipeError))
    ours.stop()
    assert all(child.process.poll() is not None for child in both)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_trainings(
    number: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGHUP comes from a terminal that closes."""
    stopped = Mock()
    monkeypatch.setattr(Scheduler, "stop", stopped)
    monkeypatch.setattr(Scheduler, "step", lambda self: signal.raise_signal(number))
    # Within nohup it is ignored.
    handlers = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert scheduler.run_all({run: JOB}, 1, ["sweep"]) == 130
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
    stopped.assert_called_once()


def test_a_training_holds_the_lock_of_its_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it outlives its killed sweep, the next sweep waits for it."""
    monkeypatch.setattr(scheduler, "child_command", lambda _: ["sleep", "60"])
    orphan = begun(run).processes[0]
    orphan.lock.close()
    waiting = begun(run)
    assert (waiting.processes, [*waiting.waiting]) == ([], [run])
    orphan.end()
    waiting.step()
    assert len(waiting.processes) == 1
    waiting.stop()


def test_gpus_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA leaves out names of what is not there, and what follows."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert scheduler.visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7,8")
    assert scheduler.visible_gpus() == ["6", "7"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert scheduler.visible_gpus() == []


def test_runs_side_by_side_have_gpus_of_their_own(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    monkeypatch.setattr(scheduler, "child_command", lambda _: command)
    ours = begun(run, gpus=["a", "b", "c"])
    ours.processes[0].process.wait()
    assert run.log.read_text() == "a\n"
    assert (ours.least_used(2), ours.least_used(4)) == (["b", "c"], ["b", "c", "a"])
    ours.processes.clear()
    assert ours.least_used(1) == ["a"], "what was taken is given back"
    assert Scheduler({}, 1, []).least_used(2) == []


def test_a_run_goes_on_where_there_are_other_gpus(run: Run) -> None:
    def config(gpus: int, size: int = 1) -> DictConfig:
        distributed = {"distributed_num_procs": gpus, "nprocs_per_node": gpus}
        sizes = {"distributed_world_size": size}
        return OmegaConf.create({"distributed_training": distributed | sizes, "bmuf": sizes})

    OmegaConf.save(config(8), run.config_file)
    run.check_same(config(1))
    with refusing("distributed_world_size=1", "2"):
        run.check_same(config(8, 2))


@pytest.mark.parametrize("other", [{"lr": [0.2]}, {"lr": [0.1], "clip_norm": 1.0}, {}])
def test_a_run_does_not_resume_with_other_options(run: Run, other: dict[str, Any]) -> None:
    """Changed, added or left out; the file of the run stays."""
    OmegaConf.save(OmegaConf.create({"optimization": {"lr": [0.1]}}), run.config_file)
    before = run.config_file.read_bytes()
    with refusing(str(run.folder), "optimization."):
        run.check_same(OmegaConf.create({"optimization": other}))
    assert run.config_file.read_bytes() == before


def test_weights_to_start_from_are_found_wherever_a_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("given.pt").touch()
    there = {"restore_file": "checkpoint_last.pt", "finetune_from_model": "given.pt"}
    there["continue_once"] = "s3://bucket/a.pt"
    config = {"task": {"data": "data"}, "common": {"user_dir": None}, "checkpoint": there}
    found = complete(OmegaConf.create(config)).checkpoint
    assert found.restore_file == "checkpoint_last.pt"
    assert found.finetune_from_model == str(tmp_path / "given.pt")
    assert found.continue_once == "s3://bucket/a.pt"


def test_the_plug_in_is_known_in_any_checkout() -> None:
    assert is_ours(None)
    assert is_ours("/elsewhere/fairseq_collab")
    assert not is_ours("/mine/heads")
    assert (PLUGIN / "criterions").is_dir()


def test_runs_under(run: Run, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    assert [found.name for found in runs_under(tmp_path)] == ["run"]
    assert [found.name for found in runs_under(run.folder)] == ["run"]
    with pytest.raises(UserError, match="table"):
        runs_under(tmp_path / "table")
    with pytest.raises(UserError, match="nowhere"):
        runs_under(tmp_path / "nowhere")


def test_combinations_of_a_sweep() -> None:
    overrides = ["a=1,2", "b=x", "c=3,4", "a=5,6", "c=7", "d.e=[1,2]"]
    assert list(combinations(overrides)) == [
        ({"a": "5"}, ["b=x", "c=7", "d.e=[1,2]", "a=5"]),
        ({"a": "6"}, ["b=x", "c=7", "d.e=[1,2]", "a=6"]),
    ]
    assert list(combinations(["a.b=1,2", "++a.b=3", "+c=x"])) == [({}, ["++a.b=3", "+c=x"])]
    assert [*combinations(["+c=x,y"])] == [({"c": one}, [f"+c={one}"]) for one in "xy"]
    assert list(combinations(["b=x"])) == [({}, ["b=x"])]


def in_place(training: str, scoring: str = "pass") -> list[str]:
    """The start of a run's process, whose training and scoring are these statements."""
    modules = "{'fairseq_cli.hydra_train': 'cli_main', 'collab_lab.runs.score': 'score_run'}"
    code = f"import sys, types\ndef cli_main(): {training}\ndef score_run(run): {scoring}\n"
    code += f"for name, f in {modules}.items():\n    m = sys.modules[name] = types.ModuleType(name)"
    code += "\n    setattr(m, f, globals()[f])"
    code += "\nfrom collab_lab.runs.train_and_score import main; main()"
    return [sys.executable, "-c", code]


def done(run: Run, monkeypatch: pytest.MonkeyPatch, *statements: str) -> Failure | None:
    """Why a run failed whose process runs these statements."""
    command = [*in_place(*statements), str(run.folder)]
    monkeypatch.setattr(scheduler, "child_command", lambda _: command)
    ours = Scheduler({run: JOB}, 1, [])
    while ours.step():
        time.sleep(0.05)
    return run.failure()


@pytest.mark.slow
def test_how_a_training_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the last attempt said; a trained run is scored, and not trained again."""
    run.config_file.write_text("common: {cpu: true}\ncheckpoint: {keep_last_epochs: -1}\n")
    run.fail(Failure("diverged", "the last attempt"))
    assert done(run, monkeypatch, "import os; os.kill(os.getpid(), 9)") == Failure(
        "failed", "status -9"
    )
    assert not run.is_trained()
    run.checkpoints.mkdir()
    (run.checkpoints / "checkpoint_last.pt").touch()
    failure = done(run, monkeypatch, "pass", "raise RuntimeError('no memory\\nof 8')")
    assert failure == Failure("failed", "RuntimeError: no memory")
    assert "Traceback" in run.log.read_text()
    assert run.is_trained()
    training = run.training()
    assert training is not None
    assert "cores" in training.hardware
    assert (training.threads, training.jobs) == (1, 1)
    failure = done(run, monkeypatch, "raise Exception", "raise ValueError('scored')")
    assert failure == Failure("failed", "ValueError: scored")


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


SCALE = FloatingPointError("scale")


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (SCALE, "diverged", "FloatingPointError: scale"),
        (chained(SystemExit(1), SCALE), "diverged", "FloatingPointError: scale"),
        (Exception("Traceback\nFloatingPointError: x"), "diverged", "Exception: FloatingPoint"),
        (chained(RuntimeError("after"), SCALE), "diverged", "RuntimeError: after"),
        (chained(SystemExit(1), UserError("is wrong", "it")), "failed", "it: is wrong"),
    ],
)
def test_why_a_run_failed(error: BaseException, verdict: str, reason: str) -> None:
    failure = failure_of(error)
    assert failure.verdict == verdict
    assert failure.reason.startswith(reason)


def test_at_most_so_many_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "child_command", lambda _: ["sleep", "60"])
    ours = Scheduler(dict.fromkeys((Run(tmp_path / name) for name in "abc"), JOB), 2, [])
    ours.step()
    ours.step()
    assert (len(ours.processes), len(ours.waiting)) == (2, 1)
    ours.stop()


def test_data_of_several_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has the dictionaries and the test set, as in fairseq."""
    monkeypatch.chdir(tmp_path)
    for name in ("test.en-de.en.idx", "raw/test.de"):
        path = tmp_path / "one" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    task = {"data": "one:two", "source_lang": "en", "target_lang": "de"}
    asked = {"task": task, "common": {}, "checkpoint": {}, "dataset": {"gen_subset": "test"}}
    config = complete(OmegaConf.create(asked))
    assert config.task.data == f"{tmp_path}/one:{tmp_path}/two"
    assert data_folder(config) == tmp_path / "one"
    assert check_test_set(config) == "test"
    (tmp_path / "one" / "dict.de.txt").write_text("\u2581ein 9\n<0xD0> 2\n")  # of byte fallback
    with refusing("dict.de.txt", "<0xD0>"):
        check_test_set(config)


def test_data_is_known_by_its_manifest(tmp_path: Path) -> None:
    def fill(folder: Path) -> dict:
        (folder / "train.bin").write_text("text")
        (folder / "preprocess.log").write_text(folder.name)
        return {}

    for name in ("one", "other"):
        build_folder(tmp_path / name, {"made for": name}, fill)
    assert len(manifest_hash(tmp_path / "one")) == 64
    assert manifest_hash(tmp_path / "one") == manifest_hash(tmp_path / "other")
    assert manifest_hash(tmp_path) is None


def test_a_task_without_an_evaluation_is_refused(run: Run) -> None:
    with pytest.raises(UserError, match="masked_lm"):
        task_of(OmegaConf.create({"task": {"_name": "masked_lm"}}))


def test_entries_that_a_kill_has_cut_do_not_count(run: Run) -> None:
    """What comes next, once the training has been resumed, is in the same line."""
    train = '| train | {{"epoch": {0}, "train_wall": "{0}9", "train_num_updates": "{0}0"}}\n'
    cut = train.format(2)[:25]
    run.log.write_text(train.format(1) + cut + train.format(2) + cut + "}\n")
    write_json(run.trained_file, {"hardware": "a processor", "threads": 2, "jobs": 3})
    times = {"train_seconds": 29.5, "train_threads": 2, "train_jobs": 3}
    write_json(run.config_file, {"checkpoint": {}})
    time = {"previous_training_time": 29.51}
    assert training_numbers(run, time) == {"train_updates": 20, "epochs": 2, **times}
    run.log.write_text(cut)
    with pytest.raises(UserError, match=r"train\.log"):
        training_numbers(run, time)


def test_only_the_start_of_a_training_resets_anything(run: Run) -> None:
    """fairseq obeys these options whenever it loads a checkpoint, that of a kill also."""
    given = {"restore_file": "checkpoint_last.pt", "reset_optimizer": True, "reset_meters": False}
    config = OmegaConf.create({"checkpoint": given})
    words = train_command(run, config)
    assert not any("reset_" in word for word in words if word.startswith("checkpoint."))
    run.checkpoints.mkdir()
    (run.checkpoints / "checkpoint_last.pt").touch()
    assert [*words, "checkpoint.reset_optimizer=false"] == train_command(run, config)
    config.checkpoint.restore_file = "/other/model.pt"  # from which fairseq would start each time
    assert train_command(run, config)[-1] == "checkpoint.restore_file=checkpoint_last.pt"
    (run.checkpoints / "checkpoint_last.pt").unlink()
    assert train_command(run, config) == words


def test_seconds_of_all_attempts(run: Run) -> None:
    """fairseq adds them up in its checkpoints, from those of the weights that it starts from."""
    now, start = {"previous_training_time": 100.0}, run.folder / "start.pt"
    checkpoint: dict[str, str] = {}
    for before, expected in ((None, 100.0), (60.0, 40.0), (0.0, 100.0)):
        if before is not None:
            state = {"model": {}, "cfg": {}, "optimizer_history": []}
            torch.save({**state, "extra_state": {"previous_training_time": before}}, start)
            checkpoint["finetune_from_model"] = str(start)
        write_json(run.config_file, {"checkpoint": checkpoint})
        assert train_seconds(run, now) == expected
    start.unlink()
    assert train_seconds(run, now) is None, "nothing says how long the first training was"
    assert train_seconds(run, {}) is None, "another program's checkpoint"


def test_the_machines_of_all_attempts(run: Run) -> None:
    """Of those that left a checkpoint; seconds are summed over them."""
    first, second = Training("a", 1, 2), Training("b", 2, 2)
    assert run.add_attempt(first) == first
    assert run.add_attempt(second) == second, "the first left nothing"
    run.checkpoints.mkdir()
    (run.checkpoints / "checkpoint_last.pt").touch()
    assert run.add_attempt(second) == second
    assert run.add_attempt(first) == Training("b, then a", None, 2)


@pytest.mark.parametrize("loss", [8.01, 84.0, math.nan, math.inf])
def test_a_model_that_is_worse_than_guessing_has_diverged(
    run: Run, loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 words a guess has 4 bits; an untrained model has a little more."""
    model = Mock(**{"task.target_dictionary.__len__": lambda _: 16})
    found = {"valid_loss": 9.5, "valid_nll_loss": 7.99}
    monkeypatch.setattr(training, "validate", lambda _: found)
    assert losses(model, run) == {"valid_loss": 9.5, "valid_nats": 5.53825}
    only = {"valid_loss": 7.99}
    monkeypatch.setattr(training, "validate", lambda _: only)
    assert losses(model, run) == {"valid_loss": 7.99, "valid_nats": None}
    model.cfg.criterion._name = "cross_entropy"  # whose loss fairseq logs under one name
    assert losses(model, run) == {"valid_loss": 7.99, "valid_nats": 5.53825}
    monkeypatch.setattr(training, "validate", lambda _: found)
    found["valid_nll_loss"] = loss
    with refusing("4.0") as diverged:
        losses(model, run)
    assert failure_of(diverged.value).verdict == "diverged"


COLLAB = "defaults: [/base, {/model: collab}, _self_]\n"


@pytest.mark.slow
def test_a_sweep_of_own_heads(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    text = "# @package _global_\ndefaults: [/base, /size: tiny, _self_]\nmodel: {_name: %s}\n"
    mine.write_text(text % "transformer_tied_heads")
    plugin = Path(__file__).parents[1] / "examples" / "tied_heads"
    task = ["task.data=d", "task.source_lang=en", "task.target_lang=de"]
    with refusing("none"):
        plan(mine, [*task, "common.user_dir=none"])
    (job,) = plan(mine, [*task, f"common.user_dir={plugin}"])
    assert job.config.common.user_dir == str(plugin)
    assert job.config.model.encoder_embed_dim == 64


WRONG = [
    # A wrong key in the file, where fairseq would ignore it.
    (COLLAB + "model: {encoder_layer: 1}", "common.seed=1", "model.encoder_layer"),
    (COLLAB + "hydra: {sweeper: {parms: {}}}\n", "common.seed=1", "hydra.sweeper.parms"),
    # What Hydra says of a faulty file takes one line.
    ("model:\n\tkey_dim: 8\n", "common.seed=1", ""),
    ("defaults: [mine]\n", "common.seed=1", ""),
    # A wrong value.
    (COLLAB, "optimization.lr=???", "optimization.lr"),
    (COLLAB, "lr_scheduler.warmup_updates=0", "lr_scheduler.warmup_updates"),  # a rate of 0
    # Runs that would not translate, before anything is trained.
    (COLLAB, "generation.score_reference=false,true", "generation.score_reference"),
]


@pytest.mark.parametrize(
    ("text", "override", "said"),
    [
        one if number % 4 == 0 else pytest.param(*one, marks=pytest.mark.slow)
        for number, one in enumerate(WRONG)
    ],
)
def test_wrong_configurations_of_a_sweep(
    text: str, override: str, said: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"# @package _global_\n{text}")
    with refusing(said):
        plan(mine, [override])


def test_a_model_is_not_taken_for_another(tmp_path: Path) -> None:
    """Where ``prune`` or ``reparametrize`` wrote a model of the name of a configuration."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "latent.yaml").write_text("# @package _global_\n")
    overrides = [f"hydra.searchpath=['file://{tmp_path}']", "model=choice(latent)"]
    with refusing("latent.yaml"):
        plan(config_folder() / "experiment" / "decide.yaml", overrides)


@pytest.mark.slow
def test_the_limit_of_a_length_in_a_sweep(tmp_path: Path) -> None:
    """By the source, unless the file or the command line has one: fairseq's own, perhaps."""
    mine = tmp_path / "mine.yaml"
    limits, given = [], "generation: {max_len_b: 200}\n"
    ours = (("", "common.seed=1"), ("", "generation.max_len_b=200"))
    for text, override in (*ours, (given, "generation.max_len_a=0.5")):
        mine.write_text(f"# @package _global_\n{COLLAB}{text}")
        (job,) = plan(mine, [override])
        generation = job.config.generation
        limits.append((generation.max_len_a, generation.max_len_b))
    assert limits == [(2.0, 20), (0, 200), (0.5, 200)]


@pytest.mark.parametrize("choice", ["model=concatenated", "model=choice(concatenated)"])
def test_a_kind_has_one_name(choice: str) -> None:
    """Whether the sweep varies the model or not; a name that is given stays."""
    experiment, seed = config_folder() / "experiment", "common.seed=choice(1)"
    (job,) = plan(experiment / "multi30k.yaml", [choice, seed, "model.key_dim=choice(32)"])
    assert method_of(job.config, job.overrides) == "concatenated"
    assert "hydra" not in job.config


def test_options_with_which_a_run_would_not_translate(run: Run) -> None:
    search = {"beam": 2, "nbest": 2, "sampling": True, "temperature": 0.5, "lenpen": 0.6}
    check_generation(OmegaConf.create({"generation": search}))
    refused = {f"generation.{option}": "other" for option in NO_TRANSLATION}
    for option, value in (refused | {"common_eval.model_overrides": "{'dropout': 0}"}).items():
        config = OmegaConf.create({"generation": search, "task": {}})
        OmegaConf.update(config, option, value)
        with refusing(option):
            translation(run, config, Mock(), "test")


@pytest.mark.parametrize(
    "search",
    [
        {"sampling_topk": 5}, {"sampling_topp": 0.9}, {"diverse_beam_strength": 2.0},
        {"retain_dropout_modules": ["a"]}, {"lenpen": 0.6, "unnormalized": True},
        {"diverse_beam_groups": 5, "sampling": True}, {"beam": 0}, {"temperature": 0.0},
        {"no_early_stop": True}, {"no_repeat_ngram_size": -2},
        {"beam": 5, "diverse_beam_groups": 2},
        {"sampling_topk": 5, "sampling_topp": 0.9, "sampling": True},
        {"sampling_topp": 1.5, "sampling": True},
        {"max_len_b": 0}, {"max_len_b": 9, "min_len": 10},
    ],
)  # fmt: skip
def test_options_of_the_search_without_effect(search: dict[str, Any]) -> None:
    with refusing(f"generation.{next(iter(search))}"):
        check_generation(OmegaConf.create({"generation": search}))


def test_options_of_the_search_that_go_together() -> None:
    for search in (
        {"sampling": True, "sampling_topk": 5, "sampling_topp": -1.0},
        {"diverse_beam_groups": 5, "diverse_beam_strength": 2.0, "lenpen": 0.6},
        {"retain_dropout": True, "retain_dropout_modules": ["a"], "unnormalized": True},
    ):
        check_generation(OmegaConf.create({"generation": search}))


def test_fine_tuning_by_a_configuration_of_ones_own(tmp_path: Path) -> None:
    """Its models are found next to those of this project."""
    (tmp_path / "models" / "model").mkdir(parents=True)
    small = "# @package _global_\nmodel: {_name: transformer_collab, key_dim: 7}\n"
    small += "checkpoint: {finetune_from_model: /small.pt}\n"
    (tmp_path / "models" / "model" / "small.yaml").write_text(small)
    mine = tmp_path / "mine" / "my.yaml"
    mine.parent.mkdir()
    defaults = "[/base, {/data: multi30k}, {/model: collab}, {/train: multi30k}, _self_]"
    mine.write_text(f"# @package _global_\ndefaults: {defaults}\n")
    models = f"hydra.searchpath=['file://{tmp_path / 'models'}']"
    more = ["+schedule=falling", "optimization.max_update=250", "lr_scheduler.warmup_updates=0"]
    (job,) = plan(mine, [models, "model=choice(small)", *more])
    config = job.config
    assert (config.model._name, config.model.key_dim) == ("transformer_collab", 7)
    assert config.checkpoint.finetune_from_model == "/small.pt"
    assert (config.lr_scheduler._name, config.lr_scheduler.total_num_update) == (
        "polynomial_decay", 250,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("there", "last", "chosen"),
    [
        ("345", "5", ["3", "4", "5"]),
        ("2345", "5", ["3", "4", "5"]),
        ("1", "1", ["1"]),
        ("12", "part of 3", ["1", "2", "_last"]),
        # max_update ended the training within an epoch, which the last checkpoint alone has
        ("123", "part of 4", ["2", "3", "_last"]),
        ("", "part of 1", ["_last"]),
    ],
)
def test_epochs_to_average(run: Run, there: str, last: str, chosen: list[str]) -> None:
    """Those that are kept, or all of a training that is shorter."""

    def save(name: str, epoch: str) -> None:
        updates = 10 * int(epoch[-1]) - 5 * epoch.startswith("part")
        state = {"model": {}, "cfg": {}, "extra_state": {"epoch": epoch}}
        state["optimizer_history"] = [{"num_updates": updates}]
        content = io.BytesIO()  # torch.save writes a file's name into it
        torch.save(state, content)
        (run.folder / f"checkpoint{name}.pt").write_bytes(content.getvalue())

    for name in there:
        save(name, name)
    save("_best", "1")
    save("_last", last)
    config = OmegaConf.create({"checkpoint": {"keep_last_epochs": 3}})
    found = [Path(path).name for path in choose_checkpoints(run.folder, config)]
    assert found == [f"checkpoint{name}.pt" for name in chosen]


def test_where_no_epochs_are_kept(run: Run) -> None:
    """The last: the best would be chosen on the set whose loss the record has."""
    config = OmegaConf.create({"checkpoint": {"keep_last_epochs": -1}})
    (run.folder / "checkpoint_best.pt").touch()
    with refusing("checkpoint_last.pt"):
        choose_checkpoints(run.folder, config)
    (run.folder / "checkpoint_last.pt").touch()
    assert choose_checkpoints(run.folder, config) == [f"{run.folder}/checkpoint_last.pt"]


def test_the_rule_is_that_of_what_was_found(run: Run) -> None:
    """With no_epoch_checkpoints there are no epochs to keep."""
    (run.folder / "checkpoint_last.pt").touch()
    config = OmegaConf.create({"checkpoint": {"keep_last_epochs": 5}})
    assert rule_of([Path(path).name for path in choose_checkpoints(run.folder, config)]) == "last"
    assert rule_of(["checkpoint1.pt", "checkpoint_last.pt"]) == "mean of last epochs"


#: Tokens, and the data's target side.
TOKENS = [
    ("Ein rot-weiß-blaues Haus am See , 10 - 12 m .", "Ein rot-weißes Haus am See , 10 - 12 m ."),
    ("Der E-Mail-Dienst des Hauses ist &quot; neu &quot; .",) * 2,
    ("Sie kam um 8 : 30 Uhr , sagt er .", "Sie kam um 8 : 30 Uhr an , sagt <<unk>> ."),
]
SCRIPT = r"sed -E 's/(\S)-(\S)/\1 ##AT##-##AT## \2/g'"


def test_moses_tokens_have_two_further_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compound-split BLEU is that of fairseq's scripts/compound_split_bleu.sh, sed for perl."""
    ours, theirs = (list(side) for side in zip(*TOKENS, strict=True))
    (tmp_path / "raw").mkdir()
    references = "Ein rot-weißes Haus am See, 10-12 m.\nDer E-Mail-Dienst des Hauses ist „neu“.\n"
    last = "Sie kam um 8:30 Uhr an, sagt Anna.\n"
    (tmp_path / "raw" / "test.de").write_text(references + last)
    form = {"moses": True, "hyphens": None, "lowercased": False}
    (tmp_path / "manifest.json").write_text(json.dumps({"form": form}))
    facts, text = score_translations(Translations(ours, theirs), tmp_path, "test", "de")
    assert text[1] == 'Der E-Mail-Dienst des Hauses ist "neu".'
    for name, side in (("sys", ours), ("ref", theirs)):
        (tmp_path / "tokens").write_text("".join(f"{line}\n" for line in side))
        split = f"{SCRIPT} {tmp_path}/tokens > {tmp_path}/{name}"
        subprocess.run(["sh", "-ec", split], check=True)
    command = ["fairseq-score", "--sys", str(tmp_path / "sys"), "--ref", str(tmp_path / "ref")]
    monkeypatch.setattr("sys.argv", command)
    fairseq_score.cli_main()
    assert f"BLEU4 = {facts['compound_split_bleu']:.2f}," in capsys.readouterr().out
    assert 20 < facts["compound_split_bleu"] < 99
    assert "tok:none" in facts["tokenised_signature"]
    (tmp_path / "raw" / "test.de").write_text("Ein Hund.\n" + references)
    with refusing("raw/test.de", "line 1"):
        score_translations(Translations(ours, theirs), tmp_path, "test", "de")


# ---- records -------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Unknown fields are left out, and missing ones have their default."""
    record = replace(some_record(seed=3), heads_by_type={"encoder": [4, 2]}, key_dim=None)
    write_json(tmp_path / "score.json", {**asdict(record), "unknown": "field"})
    assert read(Record, tmp_path / "score.json") == record
    assert (record.seed, record.command) == (3, None)


@pytest.mark.parametrize(
    ("content", "said"), [('{"verdict": "failed"}', "'reason'"), ("[]", "object"), ("{", "JSON")]
)
def test_what_is_no_record_is_named(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read(Failure, path) is None
    path.write_text(content)
    with refusing("file.json", said):
        read(Failure, path)


# ---- origins -------------------------------------------------------------------------------------


def test_no_commit_of_a_repository_that_we_are_installed_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    for folder, known in (("collab_common", True), ("env/collab_common", False)):
        (tmp_path / folder).mkdir(parents=True)
        monkeypatch.setattr(provenance, "__file__", str(tmp_path / folder / "provenance.py"))
        assert provenance.commit().startswith("code-") != known
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))  # as hooks of git have it
    assert provenance.commit().startswith("code-")


@pytest.mark.parametrize("content", [b"a: [1", b"- 1"])
def test_a_faulty_configuration_is_one_line(tmp_path: Path, content: bytes) -> None:
    run = Run(start_run(tmp_path, "run"))
    run.config_file.write_bytes(content)
    with refusing(str(run.config_file)):
        run.config()
