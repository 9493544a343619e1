"""Does the runs of a sweep: trainings in processes of their own, scores in this one.

``jobs`` trainings run at a time, each as ``fairseq-hydra-train`` on the run's configuration.  As
each ends, the main thread scores it.  A failed run is reported, and the others continue.  Ctrl-C
ends the trainings, which resume; SIGKILL leaves them running, and the next sweep waits for them
(they hold their run's lock).
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
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from omegaconf import OmegaConf

from collab_common import files
from collab_common.errors import UserError, first_line
from collab_common.files import Busy
from collab_common.progress import bar
from collab_common.provenance import commit, hardware, today
from collab_lab.runs import devices
from collab_lab.runs.record import Failure, Record, Started
from collab_lab.runs.run import Run
from collab_lab.runs.score import score_run
from collab_lab.runs.sweep import OURS, Job
from collab_lab.runs.training import Diverged, is_over, progress, tail

#: How fairseq ends a training whose numbers are no longer finite, or whose loss scale ran out.
_DIVERGED = re.compile(r"FloatingPointError|Minimum loss scale reached|gradients are Nan/Inf")
_POLL = 2.0  # seconds between looks at the logs
METER = "{n:.1f} of {total} runs, {elapsed} elapsed, {remaining} left{postfix}"


class Worker:
    """Trains runs in threads, and can be stopped.

    Args:
        gpus: those that the runs share, by the names of :func:`.devices.visible`.
    """

    def __init__(self, command: list[str], say: Callable[[str], None], gpus: Sequence[str] = ()):
        self.command = command
        self.say = say
        self.gpus = devices.Gpus(gpus)
        self.stopping = threading.Event()
        self.children: set[subprocess.Popen[bytes]] = set()
        self.current: dict[Run, Job] = {}

    def train(self, run: Run, job: Job, wait: bool = False) -> ExitStack | None:
        """Train one run; Busy if another process works on it, unless ``wait``.

        Returns:
            The run's lock, if the run is trained and not scored.
        """
        while not self.stopping.is_set():
            try:
                return self._train(run, job)
            except Busy:
                if not wait:
                    raise
            self.stopping.wait(_POLL)
        return None

    def _train(self, run: Run, job: Job) -> ExitStack | None:
        with ExitStack() as held:
            lock = held.enter_context(run.locked())
            if self.stopping.is_set() or run.verdict() == "finished":
                return None
            self.say(f"{run.name}: {'resumes' if run.config_file.exists() else 'starts'}")
            run.failed_file.unlink(missing_ok=True)
            gpus = devices.wanted(job.config)
            where = hardware(bool(job.config.common.cpu), gpus)
            started = Started(job.overrides, self.command, commit(), today(), hardware=where)
            run.start(started, job.config)
            failure = None
            if not is_over(run):
                with self.gpus.taken(gpus) as names, self._at_work(run, job):
                    failure = self._child(run, lock, names)
            if self.stopping.is_set():
                self.say(f"{run.name}: stopped")
            elif failure:
                self.fail(run, failure)
            else:
                return held.pop_all()
        return None

    def fail(self, run: Run, failure: Failure) -> None:
        """Record and report a failure."""
        run.fail(failure)
        self.say(f"{run.name}: {failure.verdict}: {failure.reason} (log: {run.log})")

    @contextlib.contextmanager
    def _at_work(self, run: Run, job: Job) -> Iterator[None]:
        self.current[run] = job
        yield
        del self.current[run]

    def _child(self, run: Run, lock: int, gpus: Sequence[str]) -> Failure | None:
        """Run the training, its output appended to the log; why it failed, if it did."""
        training = {name: part for name, part in run.config().items() if name not in OURS}
        files.write_atomic(run.training_file, OmegaConf.to_yaml(OmegaConf.create(training)))
        with run.log.open("a") as log:
            start = log.tell()
            # A session of its own: Ctrl-C in a terminal reaches this process alone.
            child = subprocess.Popen(
                train_command(run),
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
        """End the trainings with all their processes; no other starts."""
        self.stopping.set()
        for child in list(self.children):
            _end(child)

    def show(self, shown: Any, finished: int) -> None:
        """Move the bar to the ``finished`` runs and the shares of those that are being trained."""
        now = {run.name: progress(run, job.config) for run, job in [*self.current.items()]}
        names = ", ".join(f"{name}: epoch {epochs:.1f}" for name, (epochs, _) in now.items())
        shown.set_postfix_str(names, refresh=False)
        shown.update(finished + sum(share for _, share in now.values()) - shown.n)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the session that a child leads: a training on several GPUs has processes below it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(child.pid, signal.SIGTERM)


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


def quoted(path: Path) -> str:
    """A path as a value of a Hydra override."""
    escaped = str(path).replace("'", "\\'")
    return f"'{escaped}'"


def why(log: Path, start: int, status: int) -> Failure:
    """Verdict and reason of a failed training, from what it wrote after ``start``."""
    text = tail(log, start)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[-1] if lines else "no output"
    if status < 0:
        reason = f"killed by signal {-status} ({signal.Signals(-status).name})"
    return Failure("diverged" if _DIVERGED.search(text) else "failed", reason)


def scored(run: Run) -> Record | Failure:
    """The scores of a trained run, or why they could not be computed; the log has a traceback."""
    try:
        return score_run(run)
    except UserError as error:
        reason = " ".join(str(error).split())
        return Failure("diverged" if isinstance(error, Diverged) else "failed", reason)
    except Exception as error:  # of fairseq, torch or the system: the other runs continue
        with run.log.open("a") as log:
            traceback.print_exc(file=log)
        return Failure("failed", f"{type(error).__name__}: {first_line(error)}")


def in_short(record: Record) -> str:
    """The score of a run in a few words."""
    if record.perplexity:
        return ", ".join(f"perplexity {x:.2f} ({name})" for name, x in record.perplexity.items())
    return f"BLEU {record.bleu:.2f}"


def work_off(runs: Mapping[Run, Job], jobs: int, command: list[str], log: TextIO) -> int:
    """Do the runs that are not finished, ``jobs`` trainings at a time.

    Returns:
        0 if all runs are finished, 1 if some are not, 130 after Ctrl-C or SIGTERM.
    """
    todo = {run: job for run, job in runs.items() if run.verdict() != "finished"}
    done = len(runs) - len(todo)
    shown: Any = bar(
        "runs", total=len(runs), initial=done, smoothing=0, miniters=0, bar_format=METER
    )

    def say(text: str) -> None:
        shown.write(text, file=log)
        log.flush()

    gpus = devices.visible() if todo else []
    for run, job in todo.items():
        if not is_over(run):
            devices.check_enough(job.config, gpus)
    say(f"{len(runs)} runs: {done} finished, {len(todo)} to do")
    worker = Worker(command, say, gpus)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # kill, as Ctrl-C, ends trainings
    try:
        _work(worker, todo, jobs, shown)
    except KeyboardInterrupt:
        say("interrupted: rerun the command to resume")
        return 130
    finally:
        shown.close()
    return report(list(runs), say)


def _work(worker: Worker, runs: Mapping[Run, Job], jobs: int, shown: Any) -> None:
    """Do ``runs``; those that another process works on come last."""
    finished = shown.n
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        left: dict[Future[ExitStack | None], Run]
        left = {pool.submit(worker.train, run, job): run for run, job in runs.items()}
        try:
            while left:
                worker.show(shown, finished)
                for future in concurrent.futures.wait(left, _POLL, FIRST_COMPLETED).done:
                    run = left.pop(future)
                    if isinstance(future.exception(), Busy):
                        worker.say(f"{run.name}: waits for the process that works on it")
                        left[pool.submit(worker.train, run, runs[run], wait=True)] = run
                    else:
                        _score(worker, run, future.result())
                        finished += run.verdict() == "finished"
        except BaseException:
            worker.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _score(worker: Worker, run: Run, lock: ExitStack | None) -> None:
    """Score a run whose training has ended well, and release its lock."""
    if lock is None:
        return
    with lock:
        found = scored(run)
        if isinstance(found, Failure):
            worker.fail(run, found)
        else:
            worker.say(f"{run.name}: {in_short(found)}")


def report(runs: list[Run], say: Callable[[str], None]) -> int:
    """Say which runs are finished, and why the others are not; the exit status."""
    unfinished = [run for run in runs if run.verdict() != "finished"]
    say(f"{len(runs) - len(unfinished)} of {len(runs)} runs are finished")
    for run in unfinished:
        say(f"{run.folder}: {run.state()}")
    return 1 if unfinished else 0
