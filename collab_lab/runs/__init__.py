"""Runs: a folder for each training of a sweep, with its configuration, log and scores.

sweep            composes the runs of a sweep
checks           checks the configuration of a run
scheduler        runs several processes at a time: ``train_and_score``, each for one run
run              a run's folder: one training or (``from_checkpoint``) one existing checkpoint
training         reads the results of a training; ``progress`` reports how far it is
score, record    measure a trained run, and write ``score.json``
translations     reads translations of runs and other systems
pairing          whether lines of translations belong to those of the reference
writing          whether both are written alike: case, tokens, subwords, words that were given
inputs           hashes of the files that a run reads
length_limit     how long the translations of a run may be

What is wrong with a run is found in these places:

before any run trains    ``checks``: an option, the data, a file, the search or the test set
...                      ``run``: the folder has a run of other options
...                      ``inputs``: a file has changed since the run was started
before a run is scored   ``checks`` again: the search and the test set
...                      ``from_checkpoint``: an option of ``score --set``
while it is scored       ``training``: no checkpoint, or a loss above that of a guess
...                      ``score``: dropout to retain that the model lacks, a sentence too long
...                      ``translations``, ``pairing``, ``writing``: a reference that does not fit
when its process ends    ``train_and_score``: which exception ended it
whenever a file is read  ``record``: it is damaged
"""

from __future__ import annotations

from pathlib import Path


def config_folder() -> Path:
    """The folder of Hydra configurations (``--config-dir``), in the wheel or in the checkout."""
    installed = Path(__file__).resolve().parents[1] / "configs"
    return installed if installed.is_dir() else installed.parents[1] / "configs"
