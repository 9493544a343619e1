"""A run of a classifier on a GLUE task: loaded, perhaps swapped, perhaps trained, scored.

The folder is that of any run (:mod:`fairseq_collab.runs.run`), with these of its own:

    RUN/train.log     a line of JSON now and then
    RUN/model/        the classifier, in Hugging Face's form; another run may start from it

A run that is finished is not done again; one that was interrupted starts over.
"""

from __future__ import annotations

import hashlib
import json
import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_common.provenance import circumstances, commit, today, versions
from fairseq_collab.adapters.glue import classifier, tasks, training
from fairseq_collab.adapters.glue.classifier import Classifier
from fairseq_collab.adapters.glue.tasks import TASKS, Examples
from fairseq_collab.adapters.glue.training import Diverged, Settings
from fairseq_collab.runs.record import Failure, Record, Started
from fairseq_collab.runs.run import Run

#: Where a run keeps its model.
MODEL = "model"
#: Of the libraries that a score depends on.
PACKAGES = ("transformers", "tokenizers", "torchmetrics")


class Options(Namespace):
    """What a run is: the options of ``fairseq-collab glue``.

    Attributes:
        model: the folder of the model to start from; ``data``: of GLUE's task folders.
        task: a key of :data:`TASKS`.
        key_dim: K of the swap; None to leave the heads as they are.
        method: its row in tables; None for ``concatenated`` or ``collab``.
        no_model: keep none in the run's folder.
    """

    model: Path
    data: Path
    task: str
    key_dim: int | None
    method: str | None
    seed: int
    no_model: bool
    cpu: bool

    @property
    def settings(self) -> Settings:
        """Of the training."""
        return Settings(self.epochs, self.batch_size, self.lr, self.max_length)

    def overrides(self) -> dict[str, str]:
        """What sets the run apart, as the choices of a sweep do."""
        chosen = {"task": self.task, "key_dim": self.key_dim, "method": self.method}
        chosen["epochs"] = self.epochs
        return {name: str(value) for name, value in chosen.items() if value is not None}

    def configuration(self) -> Mapping[str, Any]:
        """All that another run in the same folder must share."""
        return {
            "task": {"_name": "glue", "name": self.task, "data": str(self.data.resolve())},
            "model": {"start": str(self.model.resolve()), "key_dim": self.key_dim},
            "method": self.method,
            "training": asdict(self.settings),
            "dataset": {"gen_subset": "dev"},
            "common": {"seed": self.seed, "cpu": self.cpu},
        }


def glue_run(run: Run, options: Options, command: list[str]) -> tuple[Record, bool]:
    """Do what is missing of a run; its record, and whether it was there already."""
    config = OmegaConf.create(dict(options.configuration()))
    with run.locked():
        run.check_same(config)
        if found := run.score():
            if not options.no_model and not (run.folder / MODEL).exists():
                todo = "give --no-model, as it was made, or another folder"
                raise UserError("is finished and keeps no model", run.folder, todo)
            return found, True
        task = TASKS[options.task]
        names = ("train.tsv", *task.dev.values())
        files = {name: options.data / task.folder / name for name in names}
        examples = {name: tasks.read(path, task) for name, path in files.items()}
        torch.manual_seed(options.seed)  # of what the task adds to the model
        model = classifier.load(options.model, task)
        training.check_length(model, options.settings)
        run.start(Started(options.overrides(), command, commit(), today()), config)
        try:
            found = _record(run, options, model, examples)
        except Diverged as error:
            run.fail(Failure("diverged", str(error)))
            raise
        hashes = json.dumps({name: sha256(path) for name, path in files.items()}, sort_keys=True)
        data_sha256 = hashlib.sha256(hashes.encode()).hexdigest()
        found = replace(found, command=command, data_sha256=data_sha256)
        if not options.no_model:
            model.save(run.folder / MODEL)
        run.finish(found)
    return found, False


def _record(
    run: Run, options: Options, model: Classifier, examples: Mapping[str, Examples]
) -> Record:
    """Swap, train, predict, and say what was found."""
    task, settings = TASKS[options.task], options.settings
    if options.key_dim is not None:
        model.swap(options.key_dim, options.seed)
    cuda = torch.cuda.is_available() and not options.cpu
    model.model.to("cuda" if cuda else "cpu")
    with run.log.open("w", encoding="utf-8") as log:
        trained = training.fit(
            model, examples["train.tsv"], settings, options.seed,
            lambda entry: print(json.dumps(entry), file=log, flush=True),
        )  # fmt: skip
    glue: dict[str, float] = {}
    losses = []
    for ending, name in task.dev.items():
        predictions, loss = training.predict(model, examples[name], settings)
        found = tasks.scores(task, predictions, examples[name].labels)
        glue |= {f"{metric}{ending}": value for metric, value in found.items()}
        losses.append(loss / math.log(2) if task.classes else loss)
    first, *_ = task.dev.values()
    heads = model.heads_by_layer
    facts = circumstances(options.cpu)
    facts["versions"] |= versions(*PACKAGES)
    return Record(
        task="classification",
        run=run.name,
        method=options.method or ("collab" if model.is_swapped else "concatenated"),
        arch=type(model.model).__name__,
        seed=options.seed,
        overrides=options.overrides(),
        trained_at_commit=facts["commit"],
        data=task.folder,
        data_sha256=None,
        subset="dev",
        sentences=len(examples[first]),
        glue=glue,
        glue_signature=tasks.signature(),
        key_dim=model.key_dim,
        heads=heads[0],
        heads_by_site={"encoder": heads},
        parameters=sum(one.numel() for one in model.model.parameters()),
        attention_parameters=classifier.attention_parameters(model.model),
        key_bytes_per_target_token=0,
        value_bytes_per_target_token=0,
        multiply_adds=None,
        multiply_adds_length=settings.max_length,
        train_tokens_per_second=trained.tokens_per_second,
        train_updates=trained.updates,
        epochs=settings.epochs,
        valid_loss=losses[0],
        averaged=[],
        **facts,
    )
