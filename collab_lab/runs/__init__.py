"""Runs: a folder for each training of a sweep, with its configuration, log and scores.

sweep            composes the runs of a sweep
checks           finds faults in a run before any run trains; ``scorable`` checks how it is scored
worker, child    train and score the runs, each in a process
run              a run's folder: one training or (``from_checkpoint``) one existing checkpoint
training         reads the results of a training; ``progress`` reports how far it is
score, record    measure a trained run, and write ``score.json``
translations     reads translations of runs and other systems; ``lines`` compares them to references
inputs, lengths  hash what a run reads; limit how long its translations may be
"""

from __future__ import annotations

from pathlib import Path


def config_folder() -> Path:
    """The folder of Hydra configurations (``--config-dir``), in the wheel or in the checkout."""
    installed = Path(__file__).resolve().parents[1] / "configs"
    return installed if installed.is_dir() else installed.parents[1] / "configs"
