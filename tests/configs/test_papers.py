"""docs/papers.md: runs, tokens and hours are those of configs/."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from data.recipe_runs import environment
from documents import commands_of
from omegaconf import OmegaConf
from recipe_recorder import Command, record

from collab_lab.runs.sweep import plan

PAGE = REPOSITORY / "docs" / "papers.md"
#: As on the page: corpora that end after epochs are counted by pairs and tokens of a pair.
PAIRS = {"iwslt14": (160_000, 25), "wmt14_en_fr": (36_000_000, 30)}
WORDS = {"wmt14": 32_768, "iwslt14": 10_000, "wmt14_en_fr": 40_000}
PEAK, USE = 312e12, (0.4, 0.3)  # operations per second of an A100, and the share of them in use


def cells(page: Path) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in page.read_text().splitlines()]


ROWS = {row[0]: row[1:] for row in cells(PAGE) if re.fullmatch(r"\d+", row[0])}


def commands_asked_for(cell: str, folder: Path) -> list[Command]:
    """Commands that the recipe of a cell would run, without ``fairseq-collab``."""
    ((_, (_, recipe, *arguments)),) = commands_of(cell.strip("`"))
    if "stages.sh" not in (REPOSITORY / recipe).read_text():
        paths = {"FROM": "/archives", "DATA": "/data", "OUT": "/o"}
        return record(folder, Path(recipe).name, *arguments, **paths)
    dry = ["bash", recipe, "--dry-run", "--out", "/o", *arguments]
    variables = environment(VIRTUAL_ENV="/nowhere")
    told = subprocess.check_output(dry, cwd=REPOSITORY, text=True, env=variables)
    lines = map(shlex.split, told.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words[:1] == ["fairseq-collab"]]


def trainings(commands: list[Command]) -> list[tuple[str, Any]]:
    """Name of the corpus and configuration of every run."""
    runs = []
    for name, *words in commands:
        if name == "sweep":
            # A model that `prune` would write: its sizes do not matter here.
            words = [re.sub(r"^model=choice\(model-.*", "model=concatenated", one) for one in words]
            overrides = [one for one in words[1:] if "=" in one and not one.startswith("hydra.")]
            corpus = Path(words[0]).stem.removeprefix("key_dim_")
            runs += [(corpus, job.config) for job in plan(REPOSITORY / words[0], overrides)]
    return runs


def tokens(corpus: str, config: Any) -> float:
    """Target tokens of a training, at most."""
    if not config.optimization.max_update:
        pairs, length = PAIRS[corpus]
        return config.optimization.max_epoch * pairs * length
    (batches,) = config.optimization.update_freq
    gpus = config.distributed_training.distributed_world_size
    return config.optimization.max_update * config.dataset.max_tokens * batches * gpus


def hours(corpus: str, config: Any) -> list[float]:
    """Of one GPU: three passes, each two operations per multiply-add of standard heads."""
    model = config.model
    d, units, layers = model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_layers
    multiply_adds = layers * (12 * d * d + 4 * d * units) + d * WORDS[corpus]
    return [tokens(corpus, config) * 6 * multiply_adds / (PEAK * use) / 3600 for use in USE]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_runs_tokens_and_hours(row: str, tmp_path: Path) -> None:
    _, _, one, *said = ROWS[row]
    runs = trainings(commands_asked_for(one, tmp_path))
    low, high = (round(sum(both)) for both in zip(*(hours(*run) for run in runs), strict=True))
    total = sum(tokens(*run) for run in runs) / 1e9
    billions = f"{total:.0f} billion" if total >= 10 else f"{total:.1f} billion"
    time = f"{low} to {high}" if low < high else str(max(low, 1))
    assert said[:3] == [str(len(runs)), billions, time]
    if row not in "14":  # on eight GPUs the same tokens in each update
        same = trainings(commands_asked_for(f"{one.strip('`')} --gpus 8", tmp_path))
        assert [tokens(*run) for run in same] == [tokens(*run) for run in runs]


def test_settings_by_size_of_corpus() -> None:
    """The table of docs/train.md is that of configs/."""
    rows = [
        row
        for row in cells(PAGE.with_name("train.md"))
        if re.match(r"[\d,]+ \| `_", " | ".join(row))
    ]
    names = ("train/multi30k", "experiment/iwslt14", "experiment/wmt14")
    for name, row in zip(names, rows, strict=True):
        config = OmegaConf.load(REPOSITORY / f"configs/{name}.yaml")
        per_update = config.dataset.max_tokens * config.optimization.get("update_freq", [1])[0]
        expected = [config.model.dropout, *config.optimization.lr]
        expected += [config.lr_scheduler.warmup_updates, per_update]
        assert [float(one.replace(",", "")) for one in row[2:6]] == expected, name
