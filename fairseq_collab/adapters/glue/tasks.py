"""GLUE's tasks: where their text and labels stand, and what they are scored by.

Wang et al. 2019 (arXiv 1804.07461).  A task is a folder of GLUE's own archive with ``train.tsv``
and ``dev.tsv``: tab-separated, never quoted, the names of the columns in the first line (CoLA has
none).  The test sets have no labels: scores are of ``dev.tsv``, as in the paper's table.

    matthews   (TP TN - FP FN) / sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN))
    f1         2 TP / (2 TP + FP + FN), of the class "1"
    pearson    cov(x, y) / (sd(x) sd(y));   spearman: the same of ranks

They are TorchMetrics', but for the accuracy, times 100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import say

#: Behind the point of a score: what is beyond is single precision's.
DIGITS = 4
LAYOUT = "give GLUE's own folders, such as SST-2 with train.tsv and dev.tsv"


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        folder: its name in GLUE's archive.
        text: the columns of its one or two sentences.
        label: the column of the answer.
        classes: the answers that there are; none where the answer is a number.
        metrics: in the order in which they are printed.
        dev: file names of its development sets, by what is appended to the names of their metrics.
        columns: their names, where the first line does not say.
        ragged: whether some lines of GLUE's own file are cut short; they are left out.
    """

    folder: str
    text: tuple[str, ...]
    label: str = "label"
    classes: tuple[str, ...] = ("0", "1")
    metrics: tuple[str, ...] = ("accuracy",)
    dev: Mapping[str, str] = field(default_factory=lambda: {"": "dev.tsv"})
    columns: tuple[str, ...] = ()
    ragged: bool = False


_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
#: In the order of the paper's table.
TASKS = {
    "cola": Task(
        "CoLA", ("sentence",), metrics=("matthews",),
        columns=("source", "label", "mark", "sentence"),
    ),
    "sst2": Task("SST-2", ("sentence",)),
    "mrpc": Task("MRPC", ("#1 String", "#2 String"), "Quality", metrics=("f1", "accuracy")),
    "stsb": Task("STS-B", _PAIR, "score", (), ("pearson", "spearman")),
    "qqp": Task(
        "QQP", ("question1", "question2"), "is_duplicate", metrics=("f1", "accuracy"), ragged=True
    ),
    "mnli": Task(
        "MNLI", _PAIR, "gold_label", ("contradiction", "entailment", "neutral"),
        dev={"": "dev_matched.tsv", "_mismatched": "dev_mismatched.tsv"},
    ),
    "qnli": Task("QNLI", ("question", "sentence"), classes=_ENTAILMENT),
    "rte": Task("RTE", _PAIR, classes=_ENTAILMENT),
    "wnli": Task("WNLI", _PAIR),
}  # fmt: skip


@dataclass(frozen=True)
class Examples:
    """Sentences (one or two an example) and labels ``(N)``: numbers of classes, or numbers."""

    text: list[tuple[str, ...]]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.text)


def read(path: Path, task: Task) -> Examples:
    """The examples of a file; UserError names the line that is none of the task."""
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", path, LAYOUT) from error
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 ({error.reason})", path, LAYOUT) from error
    rows = [line.rstrip("\r").split("\t") for line in lines]
    columns, first = (task.columns, 1) if task.columns else (tuple(rows.pop(0)), 2)
    for name in (*task.text, task.label):
        if name not in columns:
            raise UserError(f"has no column {name!r}", path, LAYOUT)
    text, labels, short = [], [], 0
    for number, row in enumerate(rows, first):
        if len(row) < len(columns):
            if not task.ragged:
                what = f"has {len(row)} columns, not {len(columns)}"
                raise UserError(what, f"{path}:{number}", LAYOUT)
            short += 1
            continue
        example = dict(zip(columns, row, strict=False))
        text.append(tuple(example[name] for name in task.text))
        labels.append(_label(example[task.label], task, f"{path}:{number}"))
    if short:
        say(f"{path}: {short} lines lack columns and are left out")
    if not text:
        raise UserError("holds no example", path, LAYOUT)
    return Examples(text, torch.tensor(labels))


def _label(text: str, task: Task, where: str) -> int | float:
    if task.classes:
        if text not in task.classes:
            raise UserError(f"label {text!r} is none of {', '.join(task.classes)}", where, LAYOUT)
        return task.classes.index(text)
    try:
        return float(text)
    except ValueError:
        raise UserError(f"label {text!r} is no number", where, LAYOUT) from None


def scores(task: Task, predictions: Tensor, labels: Tensor) -> dict[str, float]:
    """The task's metrics by name, from -100 or 0 to 100.

    Args:
        predictions, labels: ``(N)``, as in :class:`Examples`.

    Raises:
        UserError: a correlation is undefined, since all predictions are the same; or TorchMetrics
            is not installed.
    """
    of = _library()
    found = {n: round(100 * float(of[n](predictions, labels)), DIGITS) for n in task.metrics}
    for name, value in found.items():
        if value != value:
            what = f"all predictions of {task.folder} are the same: {name} is undefined"
            raise UserError(what, todo="train with another --lr or --seed")
    return found


def signature() -> str:
    """What has computed the scores."""
    return f"torchmetrics:{version('torchmetrics')}"


def _library() -> Mapping[str, Callable[[Tensor, Tensor], Tensor]]:
    try:
        # Here: it takes seconds, and reading files does without.
        from torchmetrics.functional import classification, regression
    except ModuleNotFoundError as error:
        todo = "pip install -c constraints.txt '.[glue]'"
        raise UserError("GLUE's scores need the package torchmetrics", todo=todo) from error

    def numbers(correlation: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
        return lambda predictions, labels: correlation(predictions.double(), labels.double())

    return {
        "accuracy": lambda predictions, labels: predictions.eq(labels).double().mean(),
        "f1": classification.binary_f1_score,
        "matthews": classification.binary_matthews_corrcoef,
        "pearson": numbers(regression.pearson_corrcoef),
        "spearman": numbers(regression.spearman_corrcoef),
    }
