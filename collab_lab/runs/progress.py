"""How far a training is, read from the end of its log."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from omegaconf import DictConfig, OmegaConf

from collab_lab.runs.run import Run

#: Seconds between two lines of a run.
EVERY = 60
#: An entry of ``common.log_interval`` updates, with ``common.log_format=json``.
_ENTRY = re.compile(r"\| train_inner \| (\{[^{}]*\})$", re.MULTILINE)
_TAIL = 1 << 16  # bytes of the log that are looked at


class Progress:
    """Follows a training that starts now; log entries of earlier attempts do not count."""

    def __init__(self, run: Run, config: DictConfig):
        self.run, self.config = run, config
        self.start = run.log.stat().st_size if run.log.exists() else 0
        self.next_look = 0.0
        self.said = ""

    def news(self) -> str | None:
        """How far the run is, at most every :data:`EVERY` seconds; None if nothing is new."""
        if time.monotonic() < self.next_look:
            return None
        scored = "is trained, and being scored" if self.run.trained_file.exists() else None
        now = scored or self._training()
        is_news = now not in (None, self.said)
        self.next_look = time.monotonic() + (EVERY if is_news else 1)
        if not is_news:
            return None
        self.said = str(now)
        return f"{now} (log: {self.run.log})"

    def _training(self) -> str | None:
        with self.run.log.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(self.start, log.tell() - _TAIL))
            entries = _ENTRY.findall(log.read().decode(errors="replace"))
        return told(json.loads(entries[-1]), self.config) if entries else None


def told(entry: dict[str, Any], config: DictConfig) -> str:
    """An entry of fairseq's log as text: ``update 400 of 3,400, loss 5.31, 12 min left``."""
    updates, speed = int(entry["num_updates"]), float(entry["ups"])
    total = last_update(updates, float(entry["update"]), config)
    words = [f"update {updates:,}" + (f" of {total:,}" if total else "")]
    words += [f"loss {float(entry['loss']):.2f}"]
    if total and speed:
        minutes = (total - updates) / speed / 60
        left = f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
        at_most = "at most " * (OmegaConf.select(config, "checkpoint.patience", default=-1) > 0)
        words.append(f"{at_most}{left} left")
    return ", ".join(words)


def last_update(updates: int, epochs: float, config: DictConfig) -> int:
    """The number of the last update; 0 if the training has no end.

    Args:
        updates: number of updates so far.
        epochs: number of epochs so far.
    """
    limits = OmegaConf.select(config, "optimization.max_update", default=0), 0
    max_epoch = OmegaConf.select(config, "optimization.max_epoch", default=0)
    if max_epoch and epochs:
        limits = limits[0], round(updates / epochs * max_epoch)
    return min((limit for limit in limits if limit), default=0)
