"""A run: one training with its scores, or an existing checkpoint with its scores, in one folder.

    RUN/config.yaml         everything that fairseq-hydra-train was given
    RUN/training.yaml       what fairseq knows of it, where it has a method
    RUN/started.json        by which command, at which commit, and what the sweep varied
    RUN/lock                held by the process that works on the run, and by its children
    RUN/train.log           fairseq's log
    RUN/checkpoints/
    RUN/trained             there once the training has come to its end
    RUN/average.pt          mean of the epochs that checkpoint.keep_last_epochs kept
    RUN/valid.log           what fairseq-validate says of it, where the training has not validated
    RUN/perplexity.SUBSET.txt    what fairseq-eval-lm says of a language model
    RUN/generation.txt      translations of dataset.gen_subset, as fairseq-generate prints them
    RUN/failed.json         verdict and reason, if the last attempt failed
    RUN/score.json          written last and as a whole: where it is, the run is finished

So an interrupted run is never taken for a finished one.  The same model may be scored on other test
sets of its data folder (``fairseq-collab score RUN --gen-subset SUBSET``), which adds

    RUN/generation.SUBSET.txt
    RUN/score.SUBSET.json
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from collab_common import files
from collab_common.command import check_folder
from collab_common.errors import UserError
from collab_common.files import locked
from fairseq_collab.runs import record
from fairseq_collab.runs.record import Failure, Record, Started

#: "unscored": the run has its own scores, but none on the other test set that is asked for.
Verdict = Literal["finished", "failed", "diverged", "incomplete", "unscored"]
#: What scores say of the model that they are of.
MODEL = ("averaged", "train_updates", "valid_loss")
#: Where fairseq looks for weights by default: in the run's own checkpoints.
OWN_CHECKPOINT = "checkpoint_last.pt"
#: Options whose default is fairseq's count of the machine's GPUs, and which change no training.
OF_THE_MACHINE = re.compile(
    r"distributed_training\.(distributed_num_procs|nprocs_per_node)$|bmuf\.distributed_world_size$"
)
#: A test set is part of files' names.
_SUBSET = re.compile(r"\w[\w.-]*")


class Run:
    """The folder of a run, whether it exists yet or not.

    Attributes:
        subset: the test set that translations and scores are of; None for the run's own,
            ``dataset.gen_subset``.  All else is shared.
    """

    def __init__(self, folder: Path, subset: str | None = None):
        self.folder = folder
        self.subset = subset
        of_subset = f".{subset}" if subset else ""
        self.name = folder.name
        self.config_file = folder / "config.yaml"
        self.started_file = folder / "started.json"
        self.lock_file = folder / "lock"
        self.log = folder / "train.log"
        self.checkpoints = folder / "checkpoints"
        self.trained_file = folder / "trained"
        self.average = folder / "average.pt"
        self.generation = folder / f"generation{of_subset}.txt"
        self.failed_file = folder / "failed.json"
        self.score_file = folder / f"score{of_subset}.json"

    def for_subset(self, subset: str | None) -> Run:
        """The same run with the scores of another test set; itself for None, and for its own."""
        if subset is None:
            return self
        if not _SUBSET.fullmatch(subset):
            todo = "give one of the data folder, such as test1"
            raise UserError(f"{subset!r} is no name of a test set", "--gen-subset", todo)
        own = OmegaConf.select(self.config(), "dataset.gen_subset")
        return Run(self.folder, None if subset == own else subset)

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

    def score(self) -> Record | None:
        """What the score file says, or None where there is none.

        Scores on another test set count only while the run's own, if it has any, are of the same
        model.
        """
        if not self.score_file.exists():
            return None
        found = Record.read(self.score_file)
        own = Run(self.folder).score() if self.subset else None
        same = own is None or all(getattr(found, x) == getattr(own, x) for x in MODEL)
        return found if same else None

    def reference(self) -> Path:
        """The untouched text that a finished run was scored against.

        ``score.json`` names it relative to the data folder (``raw/test.de``), or to the run's own
        folder, if it is kept there; runs scored by earlier versions have its absolute path.
        """
        score = self.score()
        if score is None or score.reference is None:
            on_subset = f" on {self.subset}" if self.subset else ""
            raise UserError(f"is not scored{on_subset}", where=self.folder)
        recorded = Path(score.reference)
        own = self.folder / recorded  # an absolute path stays what it is
        if recorded.is_absolute() or own.exists():
            return own
        data = OmegaConf.select(self.config(), "task.data")
        return own if data is None else Path(data) / recorded

    def verdict(self) -> Verdict:
        """How far the run is."""
        scored = self.score_file.exists() if self.subset is None else self.score() is not None
        if scored:
            return "finished"
        if self.subset and Run(self.folder).score_file.exists():
            return "unscored"
        failure = record.read(Failure, self.failed_file)
        return failure.verdict if failure else "incomplete"

    def reason(self) -> str | None:
        """Why the last attempt failed, in a line; None if it did not."""
        failure = None if self.score_file.exists() else record.read(Failure, self.failed_file)
        return failure.reason if failure else None

    def state(self) -> str:
        """The verdict with its reason, in a few words."""
        verdict, reason = self.verdict(), self.reason()
        if verdict == "unscored":
            return f"not scored on {self.subset}"
        return f"{verdict} ({reason})" if reason else verdict

    def fail(self, failure: Failure) -> None:
        """Record that an attempt of the training, or of its own scores, failed."""
        files.write_json(self.failed_file, asdict(failure))

    def start(self, started: Started, config: DictConfig) -> None:
        """Record what the run is; what is recorded already stays."""
        if not self.started_file.exists():
            files.write_json(self.started_file, asdict(started))
        if not self.config_file.exists():
            files.write_atomic(self.config_file, OmegaConf.to_yaml(config))

    def finish(self, score: Record) -> None:
        """Record the scores: the run is finished from here on, with this test set."""
        score.write(self.score_file)
        if self.subset is None:  # scores on another set mend no failure of the run's own
            self.failed_file.unlink(missing_ok=True)

    def check_same(self, config: DictConfig) -> None:
        """Refuse to go on with a run that was started with other options; names the first."""
        check_name(self.folder)
        if not self.config_file.exists():
            return
        saved, asked = flat(self.config()), flat(config)
        of_later_versions = ({"scoring._name"} | default_options(asked)) - saved.keys()
        for key in sorted((saved.keys() | asked.keys()) - of_later_versions):
            if saved.get(key) != asked.get(key) and not OF_THE_MACHINE.match(key):
                what = f"was started with {key}={saved.get(key)}, now {asked.get(key)} is asked for"
                todo = f"give {key}={saved.get(key)}, or another folder, or remove this one"
                raise UserError(what, self.folder, todo)

    def locked(self) -> AbstractContextManager[int]:
        """Keep all others off the run; gives a file descriptor for children to inherit.

        So a training that outlives its killed parent still holds the run.  Raises Busy.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        return locked(self.lock_file, keep=True)


def check_name(path: Path) -> None:
    """Raises UserError for a name that means another thing in a configuration."""
    if "${" in str(path):
        todo = "rename it, or give another one"
        raise UserError("has '${' in its name, which Hydra takes for a variable", path, todo)


def started_from(config: DictConfig) -> dict[str, str]:
    """What weights a training starts from, by option of the section ``checkpoint``: file or URL."""
    options = ("restore_file", "finetune_from_model", "continue_once")
    given = {option: OmegaConf.select(config, f"checkpoint.{option}") for option in options}
    return {option: path for option, path in given.items() if path and path != OWN_CHECKPOINT}


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Nested options under dotted names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, (dict, DictConfig)):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def default_options(config: dict[str, Any]) -> set[str]:
    """Names of the model's options that have the value they have unless given.

    A run of a version without such an option was trained as if it had that value.
    """
    from fairseq.models import MODEL_DATACLASS_REGISTRY  # here: a table has no use for models

    kind = MODEL_DATACLASS_REGISTRY.get(config.get("model._name"))
    options = {} if kind is None else {f"model.{one.name}": one.default for one in fields(kind)}
    return {name for name, value in options.items() if name in config and config[name] == value}


def runs_under(folder: Path) -> list[Run]:
    """The runs in ``folder``, by name; the folder itself, if it is a run; UserError for none."""
    check_folder(folder)
    if Run(folder).config_file.exists():
        return [Run(folder)]
    found = [Run(path) for path in sorted(folder.iterdir()) if Run(path).config_file.exists()]
    if not found:
        raise UserError("no runs in it", folder, "give the --out folder of fairseq-collab sweep")
    return found


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Every run in the folders once, sorted by name."""
    runs = {run.folder.resolve(): run for folder in folders for run in runs_under(folder)}
    return [runs[path] for path in sorted(runs, key=lambda path: (path.name, path))]
