"""A run: one training, or one existing checkpoint, with its scores in one folder.

RUN/config.yaml         the whole configuration for fairseq-hydra-train
RUN/started.json        command, commit, and what the sweep varied
RUN/lock                held by the process that works on the run, and by its children
RUN/train.log           fairseq's log
RUN/checkpoints/
RUN/average.pt          mean of the epochs that checkpoint.keep_last_epochs kept
RUN/translations.txt    translations of dataset.gen_subset, one line per sentence
RUN/attempts.json       hardware, threads and jobs of each attempt at the training
RUN/trained             written once the training has ended well: the same of all attempts
RUN/failed.json         verdict and reason, if the last attempt failed
RUN/score.json          written last and atomically: if it exists, the run is finished
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from collab_common import LAST_CHECKPOINT, files
from collab_common.command import check_folder
from collab_common.errors import UserError
from collab_common.files import locked
from collab_lab.runs import record
from collab_lab.runs.record import Failure, Record, Started, Task, Training

#: This plug-in, which a run may name by its place in another checkout.
PLUGIN = Path(__file__).resolve().parents[2] / "fairseq_collab"
#: Sections of options that may name files, which a training reads; names of those options; and
#: those that are written.
READING = ("model", "task", "criterion", "bpe", "tokenizer", "ema", "common", "scoring")
NAMES_A_FILE = re.compile(
    r"_(path|file|codes|vocab|json|bpe|checkpoint|dict|dicts)$|^(sentencepiece_model|ema_seed_model)$"
)
WRITTEN = ("common.log_file", "common.plasma_path", "task.plasma_path")
#: Options whose default is fairseq's count of the machine's GPUs, and which change no training.
OF_THE_MACHINE = re.compile(
    r"distributed_training\.(distributed_num_procs|nprocs_per_node)$|bmuf\.distributed_world_size$"
)


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
        self.average = folder / "average.pt"
        self.translations = folder / "translations.txt"
        self.trained_file = folder / "trained"
        self.attempts_file = folder / "attempts.json"
        self.failed_file = folder / "failed.json"
        self.score_file = folder / "score.json"

    def config(self) -> DictConfig:
        """The configuration that the run was started with."""
        try:
            config = OmegaConf.load(self.config_file)
        except FileNotFoundError as error:
            todo = "give a folder that fairseq-collab sweep made"
            raise UserError("not a run: it has no config.yaml", self.folder, todo) from error
        except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"cannot be read: {reason}", where=self.config_file) from error
        if not isinstance(config, DictConfig):
            raise UserError("is a list, not a configuration", where=self.config_file)
        return config

    def started(self) -> Started:
        """How the run was started."""
        return record.read(Started, self.started_file) or Started(overrides={})

    def record(self) -> Record | None:
        """What the score file says; None if there is no score file."""
        return record.read(Record, self.score_file, record.AGAIN)

    def training(self) -> Training | None:
        """How the run was trained; None if it is not trained, or was trained elsewhere."""
        return record.read(Training, self.trained_file)

    def add_attempt(self, now: Training) -> Training:
        """Record that an attempt at the training begins; return what holds for all attempts.

        Attempts of which no checkpoint is left do not count.
        """
        resumes = (self.checkpoints / LAST_CHECKPOINT).exists() and self.attempts_file.exists()
        before = files.read_json(self.attempts_file) if resumes else []
        attempts = [Training(**attempt) for attempt in before] + [now]
        files.write_json(self.attempts_file, [*map(asdict, attempts)])
        return Training(
            ", then ".join(dict.fromkeys(one.hardware for one in attempts)),
            now.threads if {one.threads for one in attempts} == {now.threads} else None,
            now.jobs if {one.jobs for one in attempts} == {now.jobs} else None,
        )

    def failure(self) -> Failure | None:
        """Why the last attempt failed; None if it did not fail or the run is finished."""
        return None if self.is_finished() else record.read(Failure, self.failed_file)

    def is_finished(self) -> bool:
        """Whether the run has its scores."""
        return self.score_file.exists()

    def state(self) -> str:
        """The state as text: finished, incomplete, not started; failed or diverged, with reason."""
        if failure := self.failure():
            return f"{failure.verdict} ({failure.reason})"
        if self.is_finished():
            return "finished"
        return "incomplete" if self.config_file.exists() else "not started"

    def fail(self, failure: Failure) -> None:
        """Record that an attempt failed."""
        files.write_json(self.failed_file, asdict(failure))

    def is_trained(self) -> bool:
        """Whether the training has ended, or the run has an existing checkpoint.

        A finished training must not start again, because fairseq would add an update.
        """
        return self.trained_file.exists() or self.started().checkpoint is not None

    def resumes(self) -> bool:
        """Whether the training has saved a checkpoint from which it will resume."""
        return self.is_trained() or (self.checkpoints / LAST_CHECKPOINT).exists()

    def start(self, started: Started, config: DictConfig) -> None:
        """Record how the run was started; existing files do not change.

        Only the commit is extended if a training resumes at another commit.
        """
        former = record.read(Started, self.started_file)
        if former is None:
            files.write_json(self.started_file, asdict(started))
        elif former.commit != started.commit and not self.is_trained():
            commits = ", ".join(dict.fromkeys([*former.commit.split(", "), started.commit]))
            files.write_json(self.started_file, asdict(replace(former, commit=commits)))
        if not self.config_file.exists():
            files.write_atomic(self.config_file, yaml_of(config))

    def finish(self, score: Record) -> None:
        """Record the scores, so that the run is finished."""
        files.write_json(self.score_file, asdict(score))
        self.failed_file.unlink(missing_ok=True)

    def check_same(self, config: DictConfig) -> None:
        """Raise UserError if the run was started with other options; the error names the first."""
        if not self.config_file.exists():
            return
        saved, asked = flat(self.config()), flat(config)
        for key in sorted(saved.keys() | asked.keys()):
            if saved.get(key) != asked.get(key) and not OF_THE_MACHINE.match(key):
                problem = (
                    f"was started with {key}={saved.get(key)}, now {asked.get(key)} is asked for"
                )
                todo = f"give {key}={saved.get(key)}, or another folder, or remove this one"
                raise UserError(problem, self.folder, todo)

    def locked(self) -> AbstractContextManager[int]:
        """Lock the run against other processes; yield a file descriptor that children inherit.

        A training that outlives its parent therefore still holds the lock.

        Raises:
            Busy: another process holds the lock.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        return locked(self.lock_file, keep=True)


def yaml_of(config: DictConfig) -> str:
    """A run's whole configuration as YAML that ``sweep`` and ``fairseq-hydra-train`` read.

    ``fairseq-hydra-train`` needs a name with a folder; with a bare name it rejects ``method``.
    """
    # Hydra takes a file in a folder for a part; the header says that it is the whole.
    return f"# @package _global_\n{OmegaConf.to_yaml(config)}"


def task_of(config: DictConfig) -> Task:
    """The measure of a run's task; UserError for a task without a measure."""
    if "source_lang" in config.task and "target_lang" in config.task:
        return "translation"
    name = config.task.get("_name")
    if name != "language_modeling":
        todo = "train translation models or language models"
        raise UserError(f"runs of the task {name!r} have no score", "task._name", todo)
    return "language_modeling"


def data_folder(config: Any) -> Path:
    """The data folder of a run; as in fairseq, the first of several that are joined by colons.

    The other folders only have text for training.
    """
    return data_folders(config)[0]


def data_folders(config: Any) -> list[Path]:
    """All data folders of a run."""
    return [*map(Path, str(config.task.data).split(os.pathsep))]


def num_gpus(config: DictConfig) -> int:
    """How many GPUs a run uses, if there are any."""
    size = "distributed_training.distributed_world_size"
    return int(OmegaConf.select(config, size, default=1))


def is_ours(user_dir: str | None) -> bool:
    """Whether ``common.user_dir`` is this plug-in, which is already loaded."""
    return user_dir is None or Path(user_dir).name == PLUGIN.name


def started_from(config: DictConfig) -> dict[str, str]:
    """The weights that a training starts from, as files or URLs by option of ``checkpoint``."""
    options = ("restore_file", "finetune_from_model", "continue_once")
    weights = {option: OmegaConf.select(config, f"checkpoint.{option}") for option in options}
    return {option: path for option, path in weights.items() if path and path != LAST_CHECKPOINT}


def files_read(config: DictConfig) -> dict[str, str]:
    """The files and folders that a training reads besides its data and weights, by option.

    Examples are embeddings, a vocabulary or BPE codes, in the sections of :data:`READING`.
    """
    sections = {name: config.get(name) for name in READING}
    named = {
        f"{section}.{name}": value
        for section, options in sections.items()
        for name, value in (options or {}).items()
        if NAMES_A_FILE.search(str(name)) and f"{section}.{name}" not in WRITTEN
    }
    return {
        name: value
        for name, value in named.items()
        if value and isinstance(value, str) and "://" not in value
    }


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Nested options under dotted names."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, (dict, DictConfig)):
            options |= flat(value, f"{prefix}{key}.")
        else:
            options[f"{prefix}{key}"] = value
    return options


def runs_under(folder: Path) -> list[Run]:
    """The runs in ``folder`` by name, or ``folder`` if it is a run; UserError without runs."""
    todo = "give the --out folder of fairseq-collab sweep"
    check_folder(folder, todo)
    runs = [Run(path) for path in [folder, *sorted(folder.iterdir())]]
    runs = [run for run in runs if run.config_file.exists()]
    if not runs:
        raise UserError("the folder contains no runs", folder, todo)
    return runs[:1] if runs[0].folder == folder else runs


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Every run in the folders once, sorted by name."""
    runs = {run.folder.resolve(): run for folder in folders for run in runs_under(folder)}
    return [runs[path] for path in sorted(runs, key=lambda path: (path.name, path))]
