"""Does the runs of a sweep, each in a separate process (:mod:`collab_lab.runs.train_and_score`).

``jobs`` processes run at a time; when one ends, the next starts.  Once a minute a line says how far
each is.  If there are fewer GPUs than processes, some share a GPU.  A failed run is reported, and
the others continue.  Ctrl-C ends the processes; a later sweep resumes their trainings.  SIGKILL
leaves them running, and the next sweep waits for them, because they hold the locks of their runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import NamedTuple

import torch

from collab_common.files import Busy
from collab_common.provenance import commit
from collab_lab.runs.inputs import inputs_of
from collab_lab.runs.progress import Progress
from collab_lab.runs.record import JOBS, Failure, Record, Started, doubts
from collab_lab.runs.run import Run, num_gpus
from collab_lab.runs.sweep import Job

#: Environment variable that limits CUDA to these GPUs.
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Environment variables that give a process a place among the processes of a job (torchrun, Slurm,
#: MPI), or a run of Weights & Biases to go on with.
OF_ANOTHER_JOB = re.compile(
    r"(MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(WORLD_SIZE|RANK)|NODE_RANK|ROLE_NAME|TORCHELASTIC_\w+"
    r"|SLURM_\w+|OMPI_\w+|PMI_\w+|PMIX_\w+|WANDB_(RUN_ID|RESUME|NAME))$"
)
_POLL = 0.2  # seconds between looks at the processes


class RunProcess(NamedTuple):
    """A process that trains and scores a run on some GPUs, and the lock of the run."""

    run: Run
    progress: Progress
    process: subprocess.Popen[bytes]
    gpus: list[str]
    lock: ExitStack

    def terminate(self) -> None:
        """Ask the process and its children (on several GPUs it has some) to end: its session."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGTERM)

    def end(self) -> None:
        """End the process and its children."""
        self.terminate()
        self.process.wait()
        self.lock.close()


class Scheduler:
    """Does runs, at most ``jobs`` at a time.

    Args:
        runs: runs that are not finished.
        gpus: GPUs that the runs share, by the names of :func:`visible_gpus`.
    """

    def __init__(
        self, runs: Mapping[Run, Job], jobs: int, command: list[str], gpus: Sequence[str] = ()
    ):
        self.waiting, self.command, self.gpus = dict(runs), command, gpus
        self.jobs = min(jobs, len(runs))
        self.processes: list[RunProcess] = []
        self.busy: set[Run] = set()

    def step(self) -> bool:
        """Report runs that have ended, and start others; return False when all are done."""
        for child in [one for one in self.processes if one.process.poll() is not None]:
            self.processes.remove(child)
            with child.lock:
                report(child.run, child.process.returncode)
        for child in self.processes:
            if news := child.progress.news():
                say(f"{child.run.name}: {news}")
        for run in list(self.waiting):
            if len(self.processes) < self.jobs:
                try:
                    self.start(run)
                except OSError as error:  # of this run's folder: the others continue
                    self.waiting.pop(run, None)
                    say(f"{run.name}: cannot start: {error}")
        return bool(self.waiting or self.processes)

    def start(self, run: Run) -> None:
        """Start a run; if another process works on it, wait."""
        with ExitStack() as lock:
            try:
                descriptor = lock.enter_context(run.locked())
            except Busy:
                if run not in self.busy:
                    say(f"{run.name}: waits for the process that works on it")
                self.busy.add(run)
                return
            job = self.waiting.pop(run)
            if run.is_finished():
                return
            say(f"{run.name}: {'resumes' if run.resumes() else 'starts'}")
            run.failed_file.unlink(missing_ok=True)
            inputs = inputs_of(job.config)
            run.start(Started(job.overrides, self.command, commit(), inputs=inputs), job.config)
            gpus, progress = self.least_used(num_gpus(job.config)), Progress(run, job.config)
            process = start_process(run, descriptor, gpus, self.jobs)
            self.processes.append(RunProcess(run, progress, process, gpus, lock.pop_all()))

    def least_used(self, number: int) -> list[str]:
        """``number`` GPUs, or all there are, those with the fewest runs first."""
        used = Counter(name for child in self.processes for name in child.gpus)
        return sorted(self.gpus, key=used.__getitem__)[:number]

    def stop(self) -> None:
        """End all processes; whatever then fails, such as a closed terminal, none goes on."""
        for child in self.processes:
            child.terminate()
        for child in self.processes:
            child.end()
        with contextlib.suppress(OSError):
            for child in self.processes:
                say(f"{child.run.name}: stopped")


# ---- GPUs ----------------------------------------------------------------------------------------


def visible_gpus() -> list[str]:
    """The names of the GPUs that this process may use, as in :data:`VISIBLE`."""
    number = torch.cuda.device_count()
    limited = os.environ.get(VISIBLE)
    names = [*map(str, range(number))] if limited is None else limited.split(",")
    return names[:number]


# ---- processes -----------------------------------------------------------------------------------


def say(line: str) -> None:
    """Print a line without buffering."""
    print(line, flush=True)


def start_process(
    run: Run, lock: int, gpus: Sequence[str], jobs: int = 1
) -> subprocess.Popen[bytes]:
    """Start a run's process, which appends its output to the log and inherits the lock.

    Args:
        jobs: number of runs at a time, for the record.
    """
    with run.log.open("a") as log:
        # A new session: Ctrl-C in a terminal reaches this process alone.
        return subprocess.Popen(
            child_command(run),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=run.folder,
            env=environment(run, gpus, jobs),
            pass_fds=[lock],
            start_new_session=True,
        )


def environment(run: Run, gpus: Sequence[str], jobs: int) -> dict[str, str]:
    """The environment of a run's process, which uses these GPUs and belongs to no other job.

    Variables of a job with several processes are removed, because fairseq would wait for the
    others.  In Weights & Biases the run has its own name; a hash of its folder tells it from a run
    of another sweep whose folder has the same last name.
    """
    place = hashlib.sha256(str(run.folder.resolve()).encode()).hexdigest()[:6]
    own = {name: value for name, value in os.environ.items() if not OF_ANOTHER_JOB.match(name)}
    named = {JOBS: str(jobs), "WANDB_NAME": f"{run.folder.parent.name}/{run.name} {place}"}
    return own | named | ({VISIBLE: ",".join(gpus)} if gpus else {})


def child_command(run: Run) -> list[str]:
    """The command line of a run's process."""
    return [sys.executable, "-m", "collab_lab.runs.train_and_score", str(run.folder)]


def report(run: Run, status: int) -> None:
    """Report how a run has ended.

    Args:
        status: exit status of its process, which is recorded if the process recorded no failure.
    """
    if record := run.record():
        say(f"{run.name}: {summary(record)}")
        return
    if not run.failed_file.exists():
        run.fail(Failure("failed", f"status {status}"))
    say(f"{run.name}: {run.state()} (log: {run.log})")


def summary(record: Record) -> str:
    """The score of a run in a few words."""
    scores = [f"perplexity {x:.2f} ({name})" for name, x in (record.perplexity or {}).items()]
    found = ", ".join(scores) or f"BLEU {record.bleu:.2f}"
    return "; ".join([found, *doubts(asdict(record))])


def run_all(runs: Mapping[Run, Job], jobs: int, command: list[str]) -> int:
    """Do the runs that are not finished, ``jobs`` at a time.

    Returns:
        0 if all runs are finished, 1 if some are not, 130 after Ctrl-C, SIGTERM or SIGHUP.
    """
    pending = {run: job for run, job in runs.items() if not run.is_finished()}
    say(f"{len(runs)} runs: {len(runs) - len(pending)} finished, {len(pending)} to do")
    others = {run.started().commit for run in runs if run not in pending} - {commit()}
    if others:
        say(f"finished runs were trained at other commits: {', '.join(sorted(others))}")
    scheduler = Scheduler(pending, jobs, command, visible_gpus())
    # What ends this program ends the trainings, as Ctrl-C does: kill, and a terminal that closes.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    try:
        while scheduler.step():
            time.sleep(_POLL)
    except BaseException as error:
        scheduler.stop()
        if not isinstance(error, KeyboardInterrupt):
            raise
        with contextlib.suppress(OSError):
            say("interrupted: rerun the command to resume")
        return 130
    unfinished = [run for run in runs if not run.is_finished()]
    say(f"{len(runs) - len(unfinished)} of {len(runs)} runs are finished")
    for run in unfinished:
        say(f"{run.folder}: {run.state()}")
    return 1 if unfinished else 0
