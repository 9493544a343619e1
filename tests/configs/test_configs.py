"""The configurations of ``configs/``, run through ``fairseq-hydra-train`` in seconds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from commands import REPOSITORY, succeed
from omegaconf import OmegaConf

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


# ---- docs/train.md -------------------------------------------------------------------------------


def test_settings_by_size_of_corpus() -> None:
    """The table of docs/train.md is that of configs/."""
    page = (REPOSITORY / "docs" / "train.md").read_text()
    rows = [row.split(" | ") for row in re.findall(r"^\| ([\d,]+ \| `_.*) \|$", page, re.M)]
    names = ("train/multi30k", "experiment/iwslt14", "experiment/wmt14")
    for name, row in zip(names, rows, strict=True):
        config = OmegaConf.load(REPOSITORY / f"configs/{name}.yaml")
        per_update = config.dataset.max_tokens * config.optimization.get("update_freq", [1])[0]
        expected = [config.model.dropout, *config.optimization.lr]
        expected += [config.lr_scheduler.warmup_updates, per_update]
        assert [float(one.replace(",", "")) for one in row[2:6]] == expected, name


# ---- every file ----------------------------------------------------------------------------------


def sweep_of(config: str) -> dict[str, str]:
    """The parameters that an experiment sweeps over."""
    settings = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())
    return settings.get("hydra", {}).get("sweeper", {}).get("params", {})


@pytest.mark.slow
@pytest.mark.parametrize("config", PRIMARY)
def test_primary_config_trains(config: str, data: Path, monolingual: Path, tmp_path: Path) -> None:
    """An experiment with all of its methods, and one small value of all else."""
    params = sweep_of(config)
    values = {"model.encoder_attention_heads": 2, "model.key_dim": 8, "model.head_size": 8}
    values["model.decoder_attention_heads"] = 4
    values["common.seed"] = 1
    fixed = [f"{key}={value}" for key, value in values.items() if key in params]
    fixed += [f"model={params['model']}"] if "model" in params else []
    assert params.keys() <= {*values, "model", "~criterion.label_smoothing"}
    corpus = monolingual if config == LANGUAGE_MODEL else data
    log = succeed(*tiny(config, corpus, *TWO_UPDATES, *fixed, sweep=bool(params)), cwd=tmp_path)
    assert trained_jobs(log) == len(params.get("model", "one").split(","))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_trains(group: str, data: Path, tmp_path: Path) -> None:
    choices = [choice for choice in options(group) if not choice.startswith("lm_")]
    sweep = f"{group}={','.join(choices)}"
    log = succeed(*tiny("experiment/multi30k", data, *TWO_UPDATES, sweep, sweep=True), cwd=tmp_path)
    assert trained_jobs(log) == len(choices)


# ---- folders of runs -----------------------------------------------------------------------------

QUICK = ("common.cpu=true", "dataset.num_workers=0", "optimization.max_update=1")


@pytest.mark.slow
def test_a_run_has_the_same_folder_alone_and_in_a_sweep(data: Path, tmp_path: Path) -> None:
    """So that the same command resumes from its own checkpoints, and no other's."""
    overrides = [f"task.data={data}", *QUICK]
    succeed(*command("experiment/demo", *overrides, "model.key_dim=8,16", sweep=True), cwd=tmp_path)
    folders = {path.parent.parent.name for path in tmp_path.rglob("checkpoint_last.pt")}
    assert folders == {f"model.key_dim={n},optimization.max_update=1" for n in (8, 16)}
    log = succeed(*command("experiment/demo", *overrides, "model.key_dim=16"), cwd=tmp_path)
    again = tmp_path / "runs/experiment/demo/model.key_dim=16,optimization.max_update=1/checkpoints"
    assert f"Loaded checkpoint {again / 'checkpoint_last.pt'} (epoch 1 @ 1 updates)" in log


# ---- slurm ---------------------------------------------------------------------------------------

STAND_IN = Path(__file__).parent / "slurm_stand_in"
PATH = f"{STAND_IN}{os.pathsep}{os.environ['PATH']}"
SLURM = ("hydra/launcher=slurm", "hydra.launcher.partition=long", "hydra.launcher.timeout_min=90")


@pytest.mark.slow
def test_a_job_that_is_stopped_resumes(data: Path, tmp_path: Path) -> None:
    """Submitted again by itself, it finds the checkpoint that it has left."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    last = tmp_path / "0" / "checkpoints" / "checkpoint_last.pt"
    overrides = [
        "optimization.max_epoch=4",
        "dataset.max_tokens=1000",
        *SLURM,
        "checkpoint.keep_last_epochs=4",
    ]
    environment = {"SLURM_STAND_IN": str(tmp_path), "SLURM_TIME_IS_UP": str(last)}
    command = tiny("experiment/multi30k", data, *overrides, sweep=True)
    succeed(*command, cwd=tmp_path, PATH=PATH, **environment)
    log = (tmp_path / "log").read_text()
    assert "Exiting gracefully after preemption/timeout" in log
    assert re.search(r"Loaded checkpoint \S+checkpoint_last.pt \(epoch [23] @", log)
    assert (last.parent / "checkpoint4.pt").exists()
