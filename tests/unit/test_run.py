"""The folder of a run: verdicts, the lock, and what is refused."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import succeed
from data.processes import is_running, wait_for
from omegaconf import DictConfig, OmegaConf
from refusals import refusing
from run_folders import some_record

from collab_common.errors import UserError
from collab_common.files import Busy
from collab_common.folder import build_folder
from fairseq_collab.runs import devices, existing, fairseq_output
from fairseq_collab.runs.evaluate import kept, manifest_hash, method_of, task_of, translation_scores
from fairseq_collab.runs.record import Failure
from fairseq_collab.runs.run import Run, runs_under
from fairseq_collab.runs.sweep import Job, combinations, complete, folder_of, plan, run_name
from fairseq_collab.runs.trained import choose_checkpoints, tokens_per_second, training_figures
from fairseq_collab.runs.worker import Worker, absent_start, is_over, train_command, why


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("common: {seed: 1}\n")
    return Run(tmp_path / "run")


def test_fairseq_gets_the_sections_that_it_knows(run: Run) -> None:
    """It refuses others; what is said there stays in the run's own configuration."""
    assert "config" in train_command(run)
    text = "common: {seed: 1}\nmethod: tuned\n"
    run.config_file.write_text(text)
    command = train_command(run)
    assert command[command.index("--config-name") + 1] == "training"
    assert OmegaConf.load(run.folder / "training.yaml") == {"common": {"seed": 1}}
    assert run.config_file.read_text() == text


def test_a_run_of_an_earlier_version_is_the_same_without_its_task(run: Run) -> None:
    scoring = {"_name": "rouge"}
    run.check_same(OmegaConf.create({"common": {"seed": 1}, "scoring": scoring}))
    with pytest.raises(UserError, match=r"scoring.other=None, now 1 is asked for"):
        run.check_same(OmegaConf.create({"common": {"seed": 1}, "scoring": {"other": 1}}))


def test_a_run_of_an_earlier_version_had_the_defaults_of_later_options(run: Run) -> None:
    model = {"_name": "transformer_collab", "key_dim": 8}
    run.config_file.write_text(json.dumps({"model": model}))
    run.check_same(OmegaConf.create({"model": {**model, "mixing_speed": 1}}))
    with pytest.raises(UserError, match=r"model.mixing_speed=None, now 10 is asked for"):
        run.check_same(OmegaConf.create({"model": {**model, "mixing_speed": 10}}))
    run.config_file.write_text(json.dumps({"model": {**model, "mixing_speed": 10}}))
    with pytest.raises(UserError, match=r"model.mixing_speed=10, now 1 is asked for"):
        run.check_same(OmegaConf.create({"model": {**model, "mixing_speed": 1}}))


def test_verdicts(run: Run) -> None:
    assert (run.verdict(), run.reason()) == ("incomplete", None)
    run.fail(Failure("diverged", "loss is nan"))
    assert (run.verdict(), run.reason()) == ("diverged", "loss is nan")
    record = some_record()
    run.finish(record)
    assert (run.verdict(), run.reason()) == ("finished", None)
    assert run.score() == record
    assert not run.failed_file.exists()


def test_a_second_process_is_kept_off(run: Run) -> None:
    busy = r"run/lock: another process \(pid \d+\) is at work here; wait for it"
    with run.locked(), pytest.raises(Busy, match=busy):
        run.locked().__enter__()
    with run.locked():
        pass


def test_a_file_system_without_locks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with refusing("lock: the file system has no locks (Operation not supported)"):
        run.locked().__enter__()


def test_a_child_that_outlives_its_parent_keeps_the_lock(run: Run) -> None:
    with run.locked() as lock:
        sleep = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(sleep, stdin=subprocess.PIPE, pass_fds=[lock])
    try:
        with pytest.raises(Busy):
            run.locked().__enter__()
    finally:
        child.communicate(b"\n")
    with run.locked():
        pass


@pytest.mark.parametrize(
    ("logged", "every", "there", "last", "chosen"),
    [
        (5, 1, "345", "5", ["3", "4", "5"]),
        (1, 1, "1", "1", ["1"]),
        (9, 2, "468", "8", ["4", "6", "8"]),
        # max_update has ended the training within an epoch, which the last checkpoint alone has
        (4, 1, "123", "part of 4", ["2", "3", "_last"]),
        (2, 1, "1", "part of 2", ["1", "_last"]),
        (1, 1, "", "part of 1", ["_last"]),
        (0, 1, "345", "5", ["3", "4", "5"]),  # the log is gone
        (5, 1, "1", None, "holds 1 checkpoints of epochs or updates, not 3"),
        (2, 1, "", "2", "holds 0 checkpoints of epochs or updates, not 1"),
        (0, 1, "", None, "holds 0 checkpoints of epochs or updates, not 3"),
    ],
)
def test_epochs_to_average(
    run: Run, logged: int, every: int, there: str, last: str | None, chosen: list[str] | str
) -> None:
    """As many as are kept, or all of a training that is shorter; not where one is gone."""
    run.checkpoints.mkdir()
    for name in there:
        (run.checkpoints / f"checkpoint{name}.pt").write_text(name)
    if last:
        (run.checkpoints / "checkpoint_last.pt").write_text(last)
    lines = [f'| INFO | train | {{"epoch": {epoch}}}\n' for epoch in range(1, logged + 1)]
    run.log.write_text("".join(lines))
    config = OmegaConf.create({"checkpoint": {"keep_last_epochs": 3, "save_interval": every}})
    if isinstance(chosen, str):
        with pytest.raises(UserError, match=chosen):
            choose_checkpoints(run, config)
    else:
        found = [Path(path).name for path in choose_checkpoints(run, config)]
        assert found == [f"checkpoint{name}.pt" for name in chosen]


def test_the_last_checkpoint_may_lie_within_the_first_epoch(run: Run) -> None:
    run.checkpoints.mkdir()
    (run.checkpoints / "checkpoint_last.pt").touch()
    checkpoint = {"keep_last_epochs": 1}
    config = OmegaConf.create({"checkpoint": checkpoint, "optimization": {"max_epoch": 0}})
    assert choose_checkpoints(run, config) == [str(run.checkpoints / "checkpoint_last.pt")]


@pytest.mark.parametrize(
    ("log", "over"),
    [
        ("| INFO | train | {}\n| INFO | fairseq_cli.train | done training in 1.5 seconds\n", True),
        ("| INFO | fairseq_cli.train | done training in 1.5 seconds\nleaked semaphores\n", True),
        ("done training in 1.5 seconds\n2026 | INFO | fairseq.trainer | loading\n", False),
        ("| INFO | train | {}\n", False),
        ("", False),
    ],
)
def test_a_training_that_outlived_its_sweep_is_over(run: Run, log: str, over: bool) -> None:
    assert not is_over(run)
    run.log.write_text(log)
    assert is_over(run) == over


def test_a_stopped_worker_leaves_nothing_running(run: Run) -> None:
    """An evaluation has fairseq's commands below it."""
    worker, pids = Worker([], print), run.folder / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! > {pids}; wait"]
    with run.locked() as lock, ThreadPoolExecutor() as pool:
        done = pool.submit(worker._child, run, command, lock)
        assert wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"))
        worker.stop()
        failure = done.result(10)
    assert failure is not None
    assert "SIGTERM" in failure.reason
    assert wait_for(lambda: not is_running(int(pids.read_text())), 5)


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_what_has_ended_by_itself_is_not_stopped(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before we have waited for it; macOS has the second error for that."""
    worker = Worker([], print)
    worker.children.add(subprocess.Popen(["true"]))

    def killpg(*_: int) -> None:
        raise error

    monkeypatch.setattr("os.killpg", killpg)
    worker.stop()
    assert worker.children.pop().wait() == 0


def test_gpus_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA leaves out names of what is not there, and what follows."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices.visible() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7,8")
    assert devices.visible() == ["6", "7"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert devices.visible() == []


def test_runs_side_by_side_have_gpus_of_their_own(run: Run) -> None:
    gpus = devices.Gpus(["a", "b", "c"])
    with gpus.taken(2) as one, gpus.taken(1) as other, gpus.taken(2) as shared:
        assert (one, other, shared) == (["a", "b"], ["c"], ["a", "b"])
    with gpus.taken(1) as one, gpus.taken(2) as other:
        assert (one, other) == (["a"], ["b", "c"])  # what was taken is given back
    with devices.Gpus([]).taken(2) as none:
        assert none == []
    with run.locked() as lock:
        command = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
        assert Worker([], print)._child(run, command, lock, ["6", "7"]) is None
    assert run.log.read_text() == "6,7\n"


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_of_a_sweep_have_gpus_of_their_own(
    run: Run, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    given, all_at_work = [], threading.Barrier(jobs)

    def train(self: Worker, run: Run, lock: int, gpus: list[str]) -> Failure:
        all_at_work.wait(10)
        given.extend(gpus)
        return Failure("failed", "not trained")

    monkeypatch.setattr(Worker, "_train_and_evaluate", train)
    worker = Worker([], print, ["0", "1"])
    job = Job("run", {}, OmegaConf.create({"common": {"seed": 1}}))
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda name: worker.do(Run(run.folder / name), job), ("one", "two")))
    assert sorted(given) == (["0", "1"] if jobs == 2 else ["0", "0"])


def test_more_gpus_than_there_are() -> None:
    config = OmegaConf.create({"distributed_training": {"distributed_world_size": 4}})
    devices.check_enough(config, ["0", "1", "2", "3"])
    size = "distributed_training.distributed_world_size"
    with refusing(f"{size}: a run wants 4 GPUs; there are 2; go on where there are"):
        devices.check_enough(config, ["0", "1"])
    with refusing(f"give a new run {size}=1"):
        devices.check_enough(config, [])


def test_a_run_goes_on_where_there_are_other_gpus(run: Run) -> None:
    def config(gpus: int, size: int = 1) -> DictConfig:
        distributed = {"distributed_num_procs": gpus, "nprocs_per_node": gpus}
        sizes = {"distributed_world_size": size}
        return OmegaConf.create({"distributed_training": distributed | sizes, "bmuf": sizes})

    OmegaConf.save(config(8), run.config_file)
    run.check_same(config(1))
    with refusing("was started with distributed_training.distributed_world_size=1, now 2 is asked"):
        run.check_same(config(8, 2))


def test_waiting_for_another_process_can_be_stopped(run: Run) -> None:
    worker = Worker([], print)
    job = Job("run", {}, OmegaConf.create({}))
    with run.locked(), ThreadPoolExecutor() as pool:
        with pytest.raises(Busy):
            worker.do(run, job)
        waiting = pool.submit(worker.do, run, job, wait=True)
        worker.stop()
        assert waiting.result(10) is None


def test_hardware_of_a_record_that_is_made_again_is_that_of_the_training() -> None:
    own = some_record(hardware="a GPU")
    assert kept(own) == {"hardware": "a GPU"}
    assert kept(replace(own, train_tokens_per_second=None)) == {}


@pytest.mark.parametrize(
    ("varied", "named", "expected"),
    [
        ({"method": "a", "model": "b"}, "c", "a"),
        ({"model": "b"}, "c", "b"),
        ({}, "c", "c"),
        ({}, None, "transformer_collab"),
    ],
)
def test_what_a_table_calls_a_run(varied: dict[str, str], named: str | None, expected: str) -> None:
    config = {"model": {"_name": "transformer_collab"}} | ({"method": named} if named else {})
    assert method_of(OmegaConf.create(config), varied) == expected


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


@pytest.mark.parametrize(
    ("option", "begun", "told"),
    [
        ("restore_file", True, True),
        ("finetune_from_model", False, True),
        ("finetune_from_model", True, False),  # fairseq reads it once
        ("continue_once", False, True),
    ],
)
def test_weights_that_are_not_there(run: Run, option: str, begun: bool, told: bool) -> None:
    run.config_file.write_text(f"checkpoint: {{{option}: /no/a.pt}}\n")
    run.checkpoints.mkdir()
    if begun:
        (run.checkpoints / "checkpoint_last.pt").touch()
    expected = f"/no/a.pt: there is no such file; see checkpoint.{option}" if told else ""
    assert absent_start(run) == expected


def test_runs_under(run: Run, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    assert [found.name for found in runs_under(tmp_path)] == ["run"]
    assert [found.name for found in runs_under(run.folder)] == ["run"]
    with pytest.raises(UserError, match="no runs in it; give the --out folder"):
        runs_under(tmp_path / "table")
    with pytest.raises(UserError, match="there is no such folder"):
        runs_under(tmp_path / "nowhere")


def test_combinations_of_a_sweep() -> None:
    overrides = ["a=1,2", "b=x", "c=3,4", "a=5,6", "c=7", "d.e=[1,2]"]
    assert list(combinations(overrides)) == [
        ({"a": "5"}, ["b=x", "c=7", "d.e=[1,2]"]),
        ({"a": "6"}, ["b=x", "c=7", "d.e=[1,2]"]),
    ]
    assert list(combinations(["b=x"])) == [({}, ["b=x"])]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nowhere.yaml", "configs/nowhere.yaml: there is no such file"),
        ("../outside.yaml", "outside.yaml: not under the configuration folder"),
    ],
)
def test_a_sweep_needs_its_configuration(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "outside.yaml").touch()
    (tmp_path / "configs").mkdir()
    with pytest.raises(UserError, match=message):
        plan(tmp_path / "configs" / config, tmp_path / "configs", [])


def test_names_that_hydra_takes_for_variables(tmp_path: Path) -> None:
    """Such as one that the shell has not expanded."""
    told = r"\$\{HOME\}: has '\$\{' in its name, which Hydra takes for a variable; rename it"
    with pytest.raises(UserError, match=told):
        Run(tmp_path / "${HOME}").check_same(OmegaConf.create())
    (tmp_path / "model.pt").touch()
    with pytest.raises(UserError, match=told):
        existing.configuration(tmp_path / "model.pt", tmp_path / "${HOME}", {}, cpu=True)


def test_an_old_hydra_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydra.__version__", "1.0.7")
    with pytest.raises(UserError, match=r"need Hydra 1\.2 or later; this is 1\.0\.7"):
        plan(tmp_path / "sweep.yaml", tmp_path, [])


def test_names_of_runs() -> None:
    assert run_name({"model": "collab", "model.key_dim": "16"}) == "model-collab_key_dim-16"
    assert run_name({"optimization.lr": "[0.1]"}) == "lr--0.1-"
    assert run_name({}) == "run"


def test_a_run_begun_with_its_overrides_in_another_order(tmp_path: Path) -> None:
    job = Job("seed-1_key_dim-8", {"common.seed": "1", "model.key_dim": "8"}, OmegaConf.create())
    assert folder_of(job, tmp_path) == tmp_path / "seed-1_key_dim-8"
    (tmp_path / "key_dim-8_seed-1_lr-1").mkdir()
    assert folder_of(job, tmp_path) == tmp_path / "seed-1_key_dim-8"
    (tmp_path / "key_dim-8_seed-1").mkdir()
    assert folder_of(job, tmp_path) == tmp_path / "key_dim-8_seed-1"
    (tmp_path / "seed-1_key_dim-8").mkdir()
    assert folder_of(job, tmp_path) == tmp_path / "seed-1_key_dim-8"


def test_a_run_of_many_overrides_is_found_without_trying_all_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten have 3,628,800."""
    varied = {f"model.option_{i}": str(i % 3) for i in range(10)}
    job, asked = Job(run_name(varied), varied, OmegaConf.create()), 0
    begun = tmp_path / run_name(dict(reversed(varied.items())))
    begun.mkdir()
    exists = Path.exists

    def counted(path: Path) -> bool:
        nonlocal asked
        asked += 1
        assert asked < 100
        return exists(path)

    monkeypatch.setattr(Path, "exists", counted)
    assert folder_of(job, tmp_path) == begun


@pytest.mark.parametrize(
    ("log", "status", "verdict", "reason"),
    [
        ("FloatingPointError: gradients are Nan/Inf\n", 1, "diverged", "FloatingPointError: grad"),
        ("Minimum loss scale reached (0.0001).\nbye\n", 1, "diverged", "bye"),
        ("ValueError: no\n\n", 1, "failed", "ValueError: no"),
        ("half a li", -9, "failed", "killed by signal 9 (SIGKILL)"),
        ("", 1, "failed", "it said nothing"),
    ],
)
def test_why_a_command_failed(
    tmp_path: Path, log: str, status: int, verdict: str, reason: str
) -> None:
    earlier = "FloatingPointError of an earlier attempt\n"
    (tmp_path / "log").write_text(earlier + log)
    found = why(tmp_path / "log", len(earlier), status)
    assert found.verdict == verdict
    assert found.reason.startswith(reason)


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


def test_data_in_moses_tokens_have_a_further_score(tmp_path: Path) -> None:
    """BLEU of tokens, against the reference that fairseq has; and what the recipe says."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "test.de").write_text("Ein Hund schläft, sagt sie.\n")
    form = {"moses": True, "hyphens": None, "lowercased": False}
    options = {"corpus": "iwslt14", "variant": "fairseq", "languages": ["en", "de"]}
    (tmp_path / "manifest.json").write_text(json.dumps({"form": form, "options": options}))
    generation = tmp_path / "generation.txt"
    tokens = "Ein Hund schläft , sagt sie ."
    generation.write_text(f"T-0\t{tokens}\nH-0\t-1\t{tokens}\nD-0\t-1\t{tokens}\n")
    found = translation_scores(generation, tmp_path, "test", {"target_lang": "de"})
    assert found["bleu"] == found["tokenised_bleu"] == pytest.approx(100)
    assert "tok:none" in found["tokenised_signature"]
    assert (found["corpus"], found["lowercased"], found["note"]) == ("iwslt14", False, None)


SCRIPT = r"""
grep ^H {gen} | cut -f3- | sed -E 's/(\S)-(\S)/\1 ##AT##-##AT## \2/g' > {gen}.sys
grep ^T {gen} | cut -f2- | sed -E 's/(\S)-(\S)/\1 ##AT##-##AT## \2/g' > {gen}.ref
"""


def test_compound_split_bleu_is_that_of_fairseqs_script(tmp_path: Path) -> None:
    """scripts/compound_split_bleu.sh, sed for perl, on tokens that do not survive a way back."""
    pairs = [
        (
            "Ein rot-weiß-blaues Haus am See , 10 - 12 m .",
            "Ein rot-weißes Haus am See , 10 - 12 m .",
        ),
        ("Der E-Mail-Dienst des Hauses ist &quot; neu &quot; .",) * 2,
        ("Sie kam um 8 : 30 Uhr , sagt er .", "Sie kam um 8 : 30 Uhr an , sagt <<unk>> ."),
    ]
    gen = tmp_path / "generation.txt"
    lines = [
        f"T-{i}\t{theirs}\nH-{i}\t-1\t{ours}\nD-{i}\t-1\t{ours}\n"
        for i, (ours, theirs) in enumerate(pairs)
    ]
    gen.write_text("".join(reversed(lines)))  # in no order, as fairseq-generate prints them
    (tmp_path / "raw").mkdir()
    references = "Ein rot-weißes Haus.\nDer E-Mail-Dienst.\nSie kam um 8:30 Uhr.\n"
    (tmp_path / "raw" / "test.de").write_text(references)
    form = {"moses": True, "hyphens": None, "lowercased": False}
    (tmp_path / "manifest.json").write_text(json.dumps({"form": form}))
    found = translation_scores(gen, tmp_path, "test", {"target_lang": "de"})
    subprocess.run(["sh", "-ec", SCRIPT.format(gen=gen)], check=True)
    printed = succeed("fairseq-score", "--sys", f"{gen}.sys", "--ref", f"{gen}.ref")
    assert f"BLEU4 = {found['compound_split_bleu']:.2f}," in printed
    assert 20 < found["compound_split_bleu"] < 99
    assert found["compound_split_signature"].startswith("moses:data|compounds:split|")


def test_a_task_without_an_evaluation_is_refused(run: Run) -> None:
    with pytest.raises(UserError, match=r"task\._name: there is no evaluation of 'masked_lm'; "):
        task_of(OmegaConf.create({"task": {"_name": "masked_lm"}}))


def test_entries_that_a_kill_has_cut_do_not_count(run: Run) -> None:
    """What comes next, once the training has been resumed, is in the same line."""
    speed = '"train_wps": "{0}00", "train_wpb": "9", "train_train_wall": "0"'
    train = f'| train | {{{{"epoch": {{0}}, {speed}, "train_num_updates": "{{0}}0"}}}}\n'
    valid = '| valid | {"epoch": 2, "valid_loss": "4.5"}\n'
    cut = train.format(2)[:25]
    run.log.write_text(train.format(1) + cut + train.format(2) + cut + "}\n" + valid)
    figures = training_figures(run, run.config())
    assert figures["train_tokens_per_second"] == 150
    assert (figures["train_updates"], figures["epochs"], figures["valid_loss"]) == (20, 2, 4.5)
    run.log.write_text(valid)
    with pytest.raises(UserError, match=r"train\.log: no finished epoch in it"):
        training_figures(run, run.config())


def test_the_speed_of_a_training_is_that_of_its_updates() -> None:
    """Not of validation, nor of the few updates of an epoch that is cut short; after a resumption
    fairseq's time of updates has that of the epoch before in it."""
    names = ("train_num_updates", "train_train_wall", "train_wps", "train_wpb")
    epochs = [("100", "10", "400", "50.0"), ("200", "20", "450", "50.0"), ("202", "1", "9", "50.0")]
    logged = [dict(zip(names, epoch, strict=True)) for epoch in epochs]
    assert tokens_per_second(logged) == (500 + 450) / 2
    assert tokens_per_second([{**logged[0], "train_train_wall": "9"}]) == 400  # too coarse


SECTIONS: dict[str, Any] = {
    "dataset": {"max_tokens": 100, "max_tokens_valid": None, "batch_size": None, "num_workers": 0},
    "task": {"data": "data"},
    "common": {"user_dir": "plugin", "cpu": True, "fp16": False},
}


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_tokens": 100, "batch_size": 8}, "--max-tokens 100"),
        ({"max_tokens": None, "batch_size": 8}, "--batch-size 8"),
        ({"max_tokens": None, "batch_size": None}, "--max-tokens 4096"),
    ],
)
def test_batches_are_those_of_the_training(
    run: Run, limits: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def called(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        said.extend(command)
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(fairseq_output.subprocess, "run", called)
    config = OmegaConf.create({**SECTIONS, "dataset": {**SECTIONS["dataset"], **limits}})
    fairseq_output.fairseq("generate", run, config, None, run.folder / "generation.txt", [])
    assert f"{words} --num-workers" in " ".join(said)


def test_what_a_killed_call_left_writing_does_not_mix_in(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that outlives its parent goes on with the file that it has."""
    output = run.folder / "generation.txt"
    with output.with_name("generation.txt.part").open("w") as left:

        def called(command: list[str], stdout: Any, **_: Any) -> subprocess.CompletedProcess[str]:
            print("ours", file=stdout, flush=True)
            print("theirs", file=left, flush=True)
            return subprocess.CompletedProcess(command, 0, stderr="")

        monkeypatch.setattr(fairseq_output.subprocess, "run", called)
        fairseq_output.fairseq("generate", run, OmegaConf.create(SECTIONS), None, output, [])
    assert output.read_text() == "ours\n"
