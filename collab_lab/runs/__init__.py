"""Runs: a folder for each training of a sweep, with its configuration, log and scores.

sweep            the runs of a sweep
checks           what is wrong with a run, before any of them trains; ``scorable``: with its score
worker, child    do them, each in a process
run              one training, or (``from_checkpoint``) one checkpoint that exists
training         what a training left; ``progress``: how far it is
score, record    from a trained run to ``score.json``
translations     of a run or of another system; ``lines``: whether references stand next to them
inputs, lengths  what a run reads, by hash, and how long its translations may be
"""

from __future__ import annotations

from pathlib import Path


def config_folder() -> Path:
    """Find the folder of Hydra configurations (--config-dir): in the wheel, or the checkout's."""
    installed = Path(__file__).resolve().parents[1] / "configs"
    return installed if installed.is_dir() else installed.parents[1] / "configs"
