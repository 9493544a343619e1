"""Works off the runs of a sweep: several at a time, each in processes of its own.

A failed run is reported and the rest goes on.  Ctrl-C ends the trainings, which resume; SIGKILL
leaves them running, and whoever comes next waits for them (they hold their run's lock).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

from omegaconf import OmegaConf
from tqdm import tqdm

from collab_common import files
from collab_common.files import Busy
from collab_common.provenance import commit, today
from fairseq_collab.runs import devices
from fairseq_collab.runs.fairseq_output import entries_in, last_line
from fairseq_collab.runs.record import Failure, Record, Started
from fairseq_collab.runs.run import OWN_CHECKPOINT, Run, started_from
from fairseq_collab.runs.sweep import Job

#: How fairseq ends a training whose numbers are no longer finite, or whose loss scale ran out.
_DIVERGED = re.compile(r"FloatingPointError|Minimum loss scale reached|gradients are Nan/Inf")
_TAIL = 20_000  # bytes of a log that are looked at
#: What a run's configuration says of how it is called, not how it is trained.
OURS = ("method", "units")
_POLL = 2.0  # seconds between looks at the logs


class Worker:
    """Does runs, and can be told to stop.

    Args:
        gpus: those that the runs share, by the names of :func:`.devices.visible`.
    """

    def __init__(self, command: list[str], say: Callable[[str], None], gpus: Sequence[str] = ()):
        self.command = command
        self.say = say
        self.gpus = devices.Gpus(gpus)
        self.stopping = threading.Event()
        self.children: set[subprocess.Popen[bytes]] = set()
        self.current: set[Run] = set()

    def do(self, run: Run, job: Job, wait: bool = False) -> None:
        """Bring one run to its end; Busy where another process works on it, unless ``wait``."""
        while not self.stopping.is_set():
            try:
                return self._do(run, job)
            except Busy:
                if not wait:
                    raise
            self.stopping.wait(_POLL)

    def _do(self, run: Run, job: Job) -> None:
        with run.locked() as lock:
            if self.stopping.is_set() or run.verdict() == "finished":
                return
            self.current.add(run)
            self.say(f"{run.name}: {'goes on' if run.config_file.exists() else 'starts'}")
            run.failed_file.unlink(missing_ok=True)
            run.start(Started(job.overrides, self.command, commit(), today()), job.config)
            with self.gpus.taken(devices.wanted(run.config())) as gpus:
                failure = self._train_and_evaluate(run, lock, gpus)
            self.current.discard(run)
            if self.stopping.is_set():
                self.say(f"{run.name}: stopped")
            elif failure:
                run.fail(failure)
                self.say(f"{run.name}: {failure.verdict}: {failure.reason} (log: {run.log})")
            else:
                self.say(f"{run.name}: {in_short(Record.read(run.score_file))}")

    def _train_and_evaluate(self, run: Run, lock: int, gpus: list[str]) -> Failure | None:
        # fairseq would add an update to a finished one
        if not run.trained_file.exists() and not is_over(run):
            if absent := absent_start(run):
                return Failure("failed", absent)
            failure = self._child(run, train_command(run), lock, gpus)
            if failure:
                return failure
        run.trained_file.touch()
        evaluate = [sys.executable, "-m", "fairseq_collab.runs.evaluate", str(run.folder)]
        return self._child(run, evaluate, lock, gpus)

    def _child(
        self, run: Run, command: list[str], lock: int, gpus: Sequence[str] = ()
    ) -> Failure | None:
        """Run a command, its output appended to the log; why it ended badly, if it did."""
        with run.log.open("a") as log:
            start = log.tell()
            # In a session of its own: Ctrl-C in a terminal reaches us alone, and we end the child.
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=run.folder,
                env=os.environ | ({devices.VISIBLE: ",".join(gpus)} if gpus else {}),
                pass_fds=[lock],
                start_new_session=True,
            )
            self.children.add(child)
            if self.stopping.is_set():
                _end(child)
            status = child.wait()
            self.children.discard(child)
        return why(run.log, start, status) if status else None

    def stop(self) -> None:
        """End what is running, and what that has started; nothing new starts."""
        self.stopping.set()
        for child in list(self.children):
            _end(child)

    def progress(self) -> str:
        """``NAME: epoch N``, for the runs that are being trained."""
        runs = sorted(self.current, key=lambda run: run.name)
        return ", ".join(f"{run.name}: epoch {last_epoch(run)}" for run in runs)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Tell the whole session that a child leads: an evaluation has fairseq's commands below it."""
    # PermissionError: macOS says so of a session that has ended and is not waited for yet.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGTERM)


def absent_start(run: Run) -> str:
    """What weights to start from are not there: fairseq would train from scratch without a word.

    Once there is a checkpoint, fairseq goes on from that, whatever it was to begin with; but for
    ``restore_file``.
    """
    begun = (run.checkpoints / OWN_CHECKPOINT).exists()
    for option, path in started_from(run.config()).items():
        read = option == "restore_file" or not begun
        if read and "://" not in path and not Path(path).is_file():
            return f"{path}: there is no such file; see checkpoint.{option}"
    return ""


def is_over(run: Run) -> bool:
    """Whether the training's log ends with its end: of one that has outlived its killed sweep."""
    text = tail(run.log) if run.log.exists() else ""
    _, done, rest = text.rpartition("done training in ")
    return bool(done) and " | INFO | " not in rest


def in_short(record: Record) -> str:
    """The score of a run in a few words."""
    if record.perplexity:
        return ", ".join(f"perplexity {x:.2f} ({name})" for name, x in record.perplexity.items())
    return f"BLEU {record.bleu:.2f}"


def train_command(run: Run) -> list[str]:
    """fairseq's own command on the run's own configuration; it resumes by itself.

    fairseq refuses sections that it does not know: then it gets a file without them.
    """
    config, file = run.config(), run.config_file
    if any(name in config for name in OURS):
        file = run.folder / "training.yaml"
        training = {name: part for name, part in config.items() if name not in OURS}
        files.write_atomic(file, OmegaConf.to_yaml(OmegaConf.create(training)))
    return [
        str(Path(sys.executable).with_name("fairseq-hydra-train")),
        *("--config-path", str(run.folder), "--config-name", file.stem),
        f"checkpoint.save_dir={quoted(run.checkpoints)}",
        f"hydra.run.dir={quoted(run.folder)}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "common.reset_logging=true",  # fairseq's own log format
    ]


def quoted(path: Path) -> str:
    """A path as a value of a Hydra override."""
    escaped = str(path).replace("'", "\\'")
    return f"'{escaped}'"


def why(log: Path, start: int, status: int) -> Failure:
    """Verdict and reason of a command that ended badly, from what it wrote after ``start``."""
    text = tail(log, start)
    reason = last_line(text)
    if status < 0:
        reason = f"killed by signal {-status} ({signal.Signals(-status).name})"
    return Failure("diverged" if _DIVERGED.search(text) else "failed", reason)


def tail(log: Path, start: int = 0) -> str:
    """The last part of a log, from byte ``start`` on at the earliest."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        return file.read().decode(errors="replace")


def last_epoch(run: Run) -> int:
    """The last epoch that a run has finished."""
    epochs = entries_in(tail(run.log), "train") if run.log.exists() else []
    return int(epochs[-1]["epoch"]) if epochs else 0


def work_off(runs: Mapping[Run, Job], jobs: int, command: list[str], log: TextIO) -> int:
    """Do the runs that are not finished, ``jobs`` at a time.

    Returns:
        0 if all runs are finished, 1 if some are not, 130 after Ctrl-C or SIGTERM.
    """
    todo = {run: job for run, job in runs.items() if run.verdict() != "finished"}
    done = len(runs) - len(todo)
    bar = tqdm(total=len(runs), initial=done, unit="run", disable=None)

    def say(text: str) -> None:
        tqdm.write(text, file=log)
        log.flush()

    gpus = devices.visible() if todo else []
    for run, job in todo.items():
        if not run.trained_file.exists():  # one GPU translates
            devices.check_enough(job.config, gpus)
    say(f"{len(runs)} runs: {done} finished, {len(todo)} to do")
    worker = Worker(command, say, gpus)
    # kill asks politely: as Ctrl-C does, and the trainings are told, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _work(worker, todo, jobs, bar)
    except KeyboardInterrupt:
        say("interrupted: the same command goes on from here")
        return 130
    finally:
        bar.close()
    return report(list(runs), say)


def _work(worker: Worker, runs: Mapping[Run, Job], jobs: int, bar: Any) -> None:
    """Do ``runs``; those that another process works on come last, and are waited for."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        left = {pool.submit(worker.do, run, job): run for run, job in runs.items()}
        try:
            while left:
                bar.set_postfix_str(worker.progress())
                for future in concurrent.futures.wait(left, _POLL, FIRST_COMPLETED).done:
                    run = left.pop(future)
                    if isinstance(future.exception(), Busy):
                        worker.say(f"{run.name}: waits for the process that works on it")
                        left[pool.submit(worker.do, run, runs[run], wait=True)] = run
                    else:
                        future.result()
                        bar.update(run.verdict() == "finished")
        except BaseException:
            worker.stop()
            pool.shutdown(cancel_futures=True)
            raise


def report(runs: list[Run], say: Callable[[str], None]) -> int:
    """Say which runs are finished, and which are not and why."""
    unfinished = [run for run in runs if run.verdict() != "finished"]
    say(f"{len(runs) - len(unfinished)} of {len(runs)} runs are finished")
    for run in unfinished:
        say(f"{run.verdict()}: {run.folder}: {run.reason() or 'not worked off'}")
    return 1 if unfinished else 0
