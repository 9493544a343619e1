"""The configurations of ``configs/``: each trains; folders of ``fairseq-hydra-train``; Slurm."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from commands import REPOSITORY, refuse, succeed
from fairseq import tasks
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from collab_lab.runs import sweep

CONFIGS = REPOSITORY / "configs"
#: Those that are run by name; the other files are parts of them.
PRIMARY = sorted(f"experiment/{path.stem}" for path in CONFIGS.glob("experiment/*.yaml"))
#: Of these, that of language models, which have no encoder and need text of one language.
LANGUAGE_MODEL = "experiment/language_model"
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


def command(config: str, *overrides: str, sweep: bool = False) -> list[str]:
    """``config`` with ``overrides``, which hydra wants in one block."""
    multirun = ["-m"] if sweep else []
    names = ["--config-dir", str(CONFIGS), "--config-name", config]
    return ["fairseq-hydra-train", *names, *multirun, *overrides]


def tiny(config: str, data: Path, *overrides: str, sweep: bool = False) -> list[str]:
    """``config``, made small, on the corpus in ``data``; run N of a sweep in folder N."""
    folders = ["hydra.sweep.dir=.", "hydra.sweep.subdir=${hydra:job.num}", "hydra.run.dir=."]
    return command(config, f"task.data={data}", *TINY, *folders, *overrides, sweep=sweep)


def train_each(config: str, data: Path, *overrides: str) -> int:
    """Train each run of a sweep for one update, in this process; return the number of runs."""
    small = TINY_LANGUAGE_MODEL if config == LANGUAGE_MODEL else TINY
    words = [f"task.data={data}", *small, "checkpoint.no_save=true", *overrides]
    jobs = sweep.plan(CONFIGS / f"{config}.yaml", words)
    for cfg in (job.config for job in jobs):
        task = tasks.setup_task(cfg.task)
        task.load_dataset("valid")
        batches = task.get_batch_iterator(task.dataset("valid"), max_tokens=200, seed=1)
        trainer = Trainer(
            cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion)
        )
        trainer.begin_epoch(1)
        trainer.train_step([next(batches.next_epoch_itr(shuffle=False))])
        assert trainer.get_num_updates() == 1
    return len(jobs)


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


@pytest.mark.slow
@pytest.mark.parametrize("config", PRIMARY)
def test_primary_config_trains(config: str, data: Path, monolingual: Path) -> None:
    """An experiment with all of its methods, and one small value of all else."""
    content = OmegaConf.load(CONFIGS / f"{config}.yaml")
    params = OmegaConf.select(content, "hydra.sweeper.params") or {}
    values = {"model.key_dim": 8, "model.head_size": 8, "common.seed": 1}
    fixed = [f"{key}={value}" for key, value in values.items() if key in params]
    assert params.keys() <= {*values, "model", "~criterion.label_smoothing"}
    corpus = monolingual if config == LANGUAGE_MODEL else data
    assert train_each(config, corpus, *fixed) == len(params.get("model", "one").split(","))


@pytest.mark.slow
def test_every_model_trains(data: Path) -> None:
    """Those of translation; experiments have all other choices of a group."""
    models = sorted(path.stem for path in (CONFIGS / "model").glob("[!l]*.yaml"))
    chosen = f"model=choice({','.join([*models, 'latent'])})"
    assert train_each("experiment/multi30k", data, chosen) == len(models) + 1


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


@pytest.mark.slow
def test_an_option_that_the_model_lacks(data: Path, tmp_path: Path) -> None:
    """fairseq's own model would be trained without a word."""
    wrong = [f"task.data={data}", *QUICK, "model=vanilla", "+model.key_dim=8"]
    line = refuse(*command("experiment/demo", *wrong), cwd=tmp_path)
    assert "model.key_dim: " in line
    assert not [*tmp_path.rglob("*.pt")]


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
