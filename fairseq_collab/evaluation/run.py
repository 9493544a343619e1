"""A run: one training with its scores, in one folder.

    RUN/config.yaml         everything that fairseq-hydra-train was given
    RUN/started.json        by which command, at which commit, and what the sweep varied
    RUN/lock                held by the process that works on the run, and by its children
    RUN/train.log           fairseq's log
    RUN/checkpoints/
    RUN/trained             there once the training has come to its end
    RUN/average.pt          mean of the epochs that checkpoint.keep_last_epochs kept
    RUN/generation.txt      translations of dataset.gen_subset, as fairseq-generate prints them
    RUN/failed.json         verdict and reason, if the last attempt failed
    RUN/score.json          written last and as a whole: where it is, the run is finished

So an interrupted run is never taken for a finished one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from data_prep import files
from fairseq_compat.errors import UserError

Verdict = Literal["finished", "failed", "diverged", "incomplete"]


class Busy(UserError):
    """Another process works on the run."""


class Run:
    """The folder of a run, whether it exists yet or not."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = folder.name
        self.config_file = folder / "config.yaml"
        self.started_file = folder / "started.json"
        self.lock_file = folder / "lock"
        self.log = folder / "train.log"
        self.checkpoints = folder / "checkpoints"
        self.trained_file = folder / "trained"
        self.average = folder / "average.pt"
        self.generation = folder / "generation.txt"
        self.failed_file = folder / "failed.json"
        self.score_file = folder / "score.json"

    def config(self) -> DictConfig:
        """The configuration that the run was started with.

        Raises:
            UserError: there is none, or it is not YAML.
        """
        try:
            config = OmegaConf.load(self.config_file)
        except FileNotFoundError as error:
            raise UserError(
                "not a run: it has no config.yaml",
                where=self.folder,
                todo="give a folder that fairseq-collab sweep made",
            ) from error
        except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"cannot be read: {reason}", where=self.config_file) from error
        if not isinstance(config, DictConfig):
            raise UserError("is a list, not a configuration", where=self.config_file)
        return config

    def started(self) -> dict[str, Any]:
        """How the run was started: ``overrides`` (what the sweep varied), command, commit, date."""
        return read_json(self.started_file) or {"overrides": {}}

    def score(self) -> dict[str, Any] | None:
        """What ``score.json`` says, or None where the run is not finished."""
        return read_json(self.score_file)

    def reference(self) -> Path:
        """The untouched text that a finished run was scored against.

        ``score.json`` names it relative to the data folder (``raw/test.de``), or to the run's own
        folder, if it is kept there; runs scored by earlier versions have its absolute path.

        Raises:
            UserError: the run is not finished, or its configuration cannot be read.
        """
        score = self.score()
        if score is None:
            raise UserError("is not scored", where=self.folder)
        recorded = Path(score["reference"])
        own = self.folder / recorded  # an absolute path stays what it is
        if recorded.is_absolute() or own.exists():
            return own
        data = OmegaConf.select(self.config(), "task.data")
        return own if data is None else Path(data) / recorded

    def verdict(self) -> Verdict:
        """How far the run is."""
        if self.score_file.exists():
            return "finished"
        failure = read_json(self.failed_file)
        return failure["verdict"] if failure else "incomplete"

    def reason(self) -> str | None:
        """Why the last attempt failed, in a line; None if it did not."""
        failure = None if self.score_file.exists() else read_json(self.failed_file)
        return failure["reason"] if failure else None

    def fail(self, verdict: Verdict, reason: str) -> None:
        """Record that an attempt failed."""
        files.write_json(self.failed_file, {"verdict": verdict, "reason": reason})

    def finish(self, score: dict[str, Any]) -> None:
        """Record the scores: the run is finished from here on."""
        files.write_json(self.score_file, score)
        self.failed_file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, wait: bool = False) -> Iterator[int]:
        """Keep all others off the run; yields a file descriptor for children to inherit.

        The lock is the kernel's: it is gone when the last process that has the descriptor is, even
        if that was killed.  So a training that outlives its killed parent still holds it.

        Raises:
            Busy: someone else has it, and ``wait`` is false.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.lock_file, "a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                lock.seek(0)
                raise Busy(
                    f"process {lock.read().strip() or 'unknown'} works on it",
                    where=self.folder,
                    todo="wait for it, or end it",
                ) from error
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield lock.fileno()


def runs_under(folder: Path) -> list[Run]:
    """The runs in ``folder``, by name; the folder itself, if it is a run.

    Raises:
        UserError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder", where=folder)
    if Run(folder).config_file.exists():
        return [Run(folder)]
    found = [Run(path) for path in sorted(folder.iterdir()) if Run(path).config_file.exists()]
    if not found:
        raise UserError(
            "no runs in it", where=folder, todo="give the --out folder of fairseq-collab sweep"
        )
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if there is none.

    Raises:
        UserError: it is not JSON.
    """
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return None
