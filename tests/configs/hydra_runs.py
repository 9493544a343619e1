"""The configurations of ``configs/``, run through ``fairseq-hydra-train`` in seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

from commands import REPOSITORY

CONFIGS = REPOSITORY / "configs"
#: Those that are run by name; the other files are parts of them.
PRIMARY = sorted(f"experiment/{path.stem}" for path in CONFIGS.glob("experiment/*.yaml"))
#: Of these, that of language models, which have no encoder and need text of one language.
LANGUAGE_MODEL = "experiment/language_model"
#: Groups of choices for any configuration; the experiments train with the schedule.
GROUPS = ("data", "model", "size", "train")
#: Everything that costs time, made small; the decoder's sizes follow the encoder's.
TINY = (
    "task.source_lang=en",
    "task.target_lang=de",
    "common.cpu=true",
    "common.fp16=false",
    "model.encoder_embed_dim=16",
    "model.encoder_ffn_embed_dim=32",
    "model.encoder_layers=1",
    "model.encoder_attention_heads=2",
    "dataset.max_tokens=200",
    "dataset.num_workers=0",
    "optimization.update_freq=[1]",
)
TINY_LANGUAGE_MODEL = (
    "common.cpu=true",
    "model.decoder_embed_dim=16",
    "model.decoder_ffn_embed_dim=32",
    "model.decoder_layers=1",
    "model.decoder_attention_heads=4",
    "model.adaptive_input_cutoff='6'",
    "model.adaptive_softmax_cutoff='6'",
    "task.tokens_per_sample=16",
    "dataset.max_tokens=200",
)
TWO_UPDATES = (
    "optimization.max_update=2",
    "dataset.disable_validation=true",
    "checkpoint.no_save=true",
)


def options(group: str) -> list[str]:
    """The choices of one of the :data:`GROUPS`."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def command(config: str, *overrides: str, sweep: bool = False) -> list[str]:
    """``config`` with ``overrides``, which hydra wants in one block."""
    multirun = ["-m"] if sweep else []
    names = ["--config-dir", str(CONFIGS), "--config-name", config]
    return ["fairseq-hydra-train", *names, *multirun, *overrides]


def tiny(config: str, data: Path, *overrides: str, sweep: bool = False) -> list[str]:
    """``config``, made small, on the corpus in ``data``; run N of a sweep in folder N."""
    folders = ["hydra.sweep.dir=.", "hydra.sweep.subdir=${hydra:job.num}", "hydra.run.dir=."]
    small = TINY_LANGUAGE_MODEL if config == LANGUAGE_MODEL else TINY
    return command(config, f"task.data={data}", *small, *folders, *overrides, sweep=sweep)


def trained_jobs(log: str) -> int:
    """How many jobs have ended after two updates."""
    return log.count("Stopping training due to num_updates: 2 >= max_update: 2")


def logged(log: Path, kind: str) -> list[dict[str, str]]:
    """The entries of ``common.log_format=json`` whose logger is ``kind``, without the times."""
    found = re.findall(rf"\[{kind}\]\[INFO\] - (\{{.*\}})$", log.read_text(), re.M)
    times = ("wall", "wps", "ups")
    return [{k: v for k, v in json.loads(e).items() if not k.endswith(times)} for e in found]
