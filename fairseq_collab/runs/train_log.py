"""fairseq's log of a training: epochs, validations, speed, and whether the training is over.

With ``common.log_format=json`` it has lines ``... | train | {...}``, one per epoch, and
``... | valid | {...}``, one per validation.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from collab_common.errors import UserError
from fairseq_collab.runs.run import Run

Facts = dict[str, Any]

#: Seconds below which fairseq's rounding of an epoch's time to whole seconds matters.
SHORT = 10
_TAIL = 20_000  # bytes at the end of a log that are read
#: An entry has no braces inside, so a kill that cuts one entry does not hide the next.
_ENTRY = re.compile(r"\| (train|valid) \| (\{[^{}]*\})$", re.MULTILINE)


def entries(log: Path, kind: Literal["train", "valid"]) -> list[Facts]:
    """The log's entries of all epochs, or of all validations; [] if there is no log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=log) from error
    return entries_in(text, kind)


def entries_in(text: str, kind: Literal["train", "valid"]) -> list[Facts]:
    """The entries in a part of a log; those that a kill cut are left out."""
    found = []
    for name, entry in _ENTRY.findall(text):
        if name == kind:
            try:
                found.append(json.loads(entry))
            except ValueError:  # cut, with a brace behind it
                continue
    return found


def tail(log: Path, start: int = 0) -> str:
    """The last part of a log, from byte ``start`` at the earliest; "" if there is no log."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        return file.read().decode(errors="replace")


def is_over(run: Run) -> bool:
    """Whether the training has ended, or there was none: a checkpoint that existed before.

    fairseq would add an update to a training that has ended.
    """
    _, done, rest = tail(run.log).rpartition("done training in ")
    resumed = "| fairseq_collab |" in rest  # its first line
    return (bool(done) and not resumed) or run.started().checkpoint is not None


def last_epoch(run: Run) -> int:
    """The last epoch that a run has finished."""
    epochs = entries_in(tail(run.log), "train")
    return int(epochs[-1]["epoch"]) if epochs else 0


def tokens_per_second(epochs: Sequence[Facts]) -> float:
    """Speed of updates alone: the median over epochs that are not cut short.

    fairseq's ``train_wps`` includes validation and the writing of checkpoints.  It logs the time of
    updates in whole seconds, too coarse below :data:`SHORT`, and after a resumption it adds the
    epoch before to the first one.  ``train_wps`` then stands in.
    """
    found, before = [], 0
    for entry in epochs:
        updates = int(entry["train_num_updates"]) - before
        speed, seconds = float(entry["train_wps"]), float(entry["train_train_wall"])
        if seconds >= SHORT:
            speed = max(speed, float(entry["train_wpb"]) * updates / seconds)
        found.append((updates, speed))
        before += updates
    most = max(updates for updates, _ in found)
    return statistics.median(speed for updates, speed in found if 2 * updates >= most)
