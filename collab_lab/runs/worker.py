"""Does the runs of a sweep: trainings in separate processes, scores in this one.

``jobs`` trainings run at a time, each as ``fairseq-hydra-train`` on the run's configuration.  When
one ends, the next starts, and then it is scored.  A failed run is reported, and the others
continue.  Ctrl-C ends the trainings, which resume; SIGKILL leaves them running, and the next sweep
waits for them (they hold their run's lock).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from omegaconf import OmegaConf

from collab_common import files
from collab_common.errors import UserError, first_line
from collab_common.files import Busy
from collab_common.progress import bar
from collab_common.provenance import commit, hardware, today
from collab_lab.runs import devices
from collab_lab.runs.record import Outcome, Record, Started, read
from collab_lab.runs.run import Run
from collab_lab.runs.score import score_run
from collab_lab.runs.sweep import OURS, Job
from collab_lab.runs.training import Diverged

_POLL = 0.2  # seconds between looks at the trainings
BAR_FORMAT = "{n} of {total} runs, {elapsed} elapsed, {remaining} left"


class Training(NamedTuple):
    """A process that trains a run on some GPUs, and the lock of the run."""

    run: Run
    job: Job
    process: subprocess.Popen[bytes]
    gpus: list[str]
    lock: ExitStack

    def outcome(self) -> Outcome | None:
        """How the training ended; None before."""
        status = self.process.poll()
        if status is None:
            return None
        return read(Outcome, self.run.outcome_file) or Outcome("failed", f"status {status}")

    def end(self) -> None:
        """End the session that the process leads: on several GPUs it has processes below it."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        self.lock.close()


class Worker:
    """Trains runs, at most ``jobs`` at a time, and scores them.

    Args:
        runs: those that are not finished.
        gpus: those that the trainings share, by the names of :func:`.devices.visible`.
    """

    def __init__(
        self,
        runs: Mapping[Run, Job],
        jobs: int,
        command: list[str],
        say: Callable[[str], None],
        gpus: Sequence[str] = (),
    ):
        self.waiting, self.jobs, self.command = dict(runs), jobs, command
        self.say, self.gpus = say, gpus
        self.trainings: list[Training] = []
        self.trained: list[tuple[Run, ExitStack]] = []
        self.busy: set[Run] = set()

    def step(self) -> bool:
        """See what has ended, start what can start, score one run; False when all is done.

        With one training at a time, scoring ends before the next starts: both speeds are right.
        """
        for training in list(self.trainings):
            if outcome := training.outcome():
                self.trainings.remove(training)
                if outcome.verdict == "trained":
                    self.trained.append((training.run, training.lock))
                else:
                    self.fail(training.run, outcome)
                    training.lock.close()
        for run in list(self.waiting):
            if len(self.trainings) < self.jobs and (self.jobs > 1 or not self.trained):
                self.start(run)
        if self.trained:
            self.score(*self.trained.pop(0))
        return bool(self.waiting or self.trainings or self.trained)

    def start(self, run: Run) -> None:
        """Start the training of a run, unless another process works on it: then it waits."""
        with ExitStack() as lock:
            try:
                descriptor = lock.enter_context(run.locked())
            except Busy:
                if run not in self.busy:
                    self.say(f"{run.name}: waits for the process that works on it")
                self.busy.add(run)
                return
            job = self.waiting.pop(run)
            if run.verdict() == "finished":
                return
            self.say(f"{run.name}: {'resumes' if run.config_file.exists() else 'starts'}")
            run.failed_file.unlink(missing_ok=True)
            num_gpus = devices.num_gpus(job.config)
            machine = hardware(bool(job.config.common.cpu), num_gpus)
            started = Started(
                *(job.overrides, self.command, commit(), today()),
                hardware=machine,
                alone=self.jobs == 1,
            )
            run.start(started, job.config)
            if run.is_trained():
                self.trained.append((run, lock.pop_all()))
                return
            gpus = self.least_used(num_gpus)
            process = child(run, descriptor, gpus)
            self.trainings.append(Training(run, job, process, gpus, lock.pop_all()))

    def least_used(self, num_gpus: int) -> list[str]:
        """``num_gpus`` GPUs, or all there are, those with the fewest trainings first."""
        used = Counter(name for training in self.trainings for name in training.gpus)
        return sorted(self.gpus, key=used.__getitem__)[:num_gpus]

    def score(self, run: Run, lock: ExitStack) -> None:
        """Score a run whose training has ended well, and release its lock."""
        with lock:
            result = scored(run)
            if isinstance(result, Outcome):
                self.fail(run, result)
            else:
                self.say(f"{run.name}: {summary(result)}")

    def fail(self, run: Run, failure: Outcome) -> None:
        """Record and report a failure."""
        run.fail(failure)
        self.say(f"{run.name}: {failure.verdict}: {failure.reason} (log: {run.log})")

    def stop(self) -> None:
        """End all trainings."""
        for training in self.trainings:
            training.end()
            self.say(f"{training.run.name}: stopped")


def child(run: Run, lock: int, gpus: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the training, its output appended to the log; it inherits the lock."""
    config = {name: section for name, section in run.config().items() if name not in OURS}
    files.write_atomic(run.training_file, OmegaConf.to_yaml(OmegaConf.create(config)))
    run.outcome_file.unlink(missing_ok=True)
    with run.log.open("a") as log:
        # A new session: Ctrl-C in a terminal reaches this process alone.
        return subprocess.Popen(
            child_command(run),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=run.folder,
            env=os.environ | ({devices.VISIBLE: ",".join(gpus)} if gpus else {}),
            pass_fds=[lock],
            start_new_session=True,
        )


def train_command(run: Run) -> list[str]:
    """fairseq's own command on ``training.yaml``."""
    return [
        str(Path(sys.executable).with_name("fairseq-hydra-train")),
        *("--config-path", str(run.folder), "--config-name", run.training_file.stem),
        f"checkpoint.save_dir={quoted(run.checkpoints)}",
        f"hydra.run.dir={quoted(run.folder)}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "common.reset_logging=true",  # fairseq's own log format
    ]


def child_command(run: Run) -> list[str]:
    """The same, in a process that writes ``outcome.json``."""
    module = ("-m", "collab_lab.runs.child")
    return [sys.executable, *module, str(run.outcome_file), *train_command(run)[1:]]


def quoted(path: Path) -> str:
    """A path as a value of a Hydra override."""
    escaped = str(path).replace("'", "\\'")
    return f"'{escaped}'"


def scored(run: Run) -> Record | Outcome:
    """The scores of a trained run, or why they could not be computed; the log has a traceback."""
    try:
        return score_run(run)
    except UserError as error:
        reason = " ".join(str(error).split())
        return Outcome("diverged" if isinstance(error, Diverged) else "failed", reason)
    except Exception as error:  # of fairseq, torch or the system: the other runs continue
        with run.log.open("a") as log:
            traceback.print_exc(file=log)
        return Outcome("failed", f"{type(error).__name__}: {first_line(error)}")


def summary(record: Record) -> str:
    """The score of a run in a few words."""
    if record.perplexity:
        return ", ".join(f"perplexity {x:.2f} ({name})" for name, x in record.perplexity.items())
    return f"BLEU {record.bleu:.2f}"


def run_all(runs: Mapping[Run, Job], jobs: int, command: list[str], log: TextIO) -> int:
    """Do the runs that are not finished, ``jobs`` trainings at a time.

    Returns:
        0 if all runs are finished, 1 if some are not, 130 after Ctrl-C or SIGTERM.
    """
    pending = {run: job for run, job in runs.items() if run.verdict() != "finished"}
    done = len(runs) - len(pending)
    options: Any = {"smoothing": 0, "miniters": 0, "bar_format": BAR_FORMAT}
    progress_bar: Any = bar("runs", total=len(runs), initial=done, **options)

    def say(text: str) -> None:
        progress_bar.write(text, file=log)
        log.flush()

    gpus = devices.visible() if pending else []
    for run, job in pending.items():
        if not run.is_trained():
            devices.check_enough(job.config, gpus)
    say(f"{len(runs)} runs: {done} finished, {len(pending)} to do")
    worker = Worker(pending, jobs, command, say, gpus)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # kill, as Ctrl-C, ends trainings
    try:
        while worker.step():
            progress_bar.update(sum(run.score_file.exists() for run in runs) - progress_bar.n)
            time.sleep(_POLL)
    except BaseException as error:
        worker.stop()
        if not isinstance(error, KeyboardInterrupt):
            raise
        say("interrupted: rerun the command to resume")
        return 130
    finally:
        progress_bar.close()
    unfinished = [run for run in runs if run.verdict() != "finished"]
    say(f"{len(runs) - len(unfinished)} of {len(runs)} runs are finished")
    for run in unfinished:
        say(f"{run.folder}: {run.state()}")
    return 1 if unfinished else 0
