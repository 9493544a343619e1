"""docs/papers.md and its excerpt in the README: commands, runs, tokens and hours, from configs/."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_checks import check
from commands import REPOSITORY
from data.recipe_runs import environment
from documents import README, commands_of
from omegaconf import OmegaConf
from recipe_recorder import Command, record

from collab_lab.results.pages import pick
from collab_lab.runs.sweep import plan

PAGE = REPOSITORY / "docs" / "papers.md"
#: As on the page: corpora that end after epochs are counted by pairs and tokens of a pair.
PAIRS = {"iwslt14": (160_000, 25), "wmt14_en_fr": (36_000_000, 30)}
WORDS = {"wmt14": 32_768, "iwslt14": 10_000, "wmt14_en_fr": 40_000}
PEAK, USE = 312e12, (0.4, 0.3)  # operations per second of an A100, and the share of them in use


def rows(page: Path) -> dict[str, list[str]]:
    """Cells of the table of commands, by number."""
    found = (line.strip("| ").split(" | ") for line in page.read_text().splitlines())
    return {cells[0]: cells[1:] for cells in found if re.fullmatch(r"\d+", cells[0])}


ROWS = rows(PAGE)


def asked(cell: str, folder: Path) -> list[Command]:
    """What the recipe of a cell asks for, without ``fairseq-collab``; nothing of it runs."""
    (command,) = commands_of(cell.strip("`"), folder)
    check(command)
    _, recipe, *arguments = command.words
    if "stages.sh" not in (REPOSITORY / recipe).read_text():
        return record(
            folder, Path(recipe).name, *arguments, FROM="/archives", DATA="/data", OUT="/o"
        )
    done = subprocess.run(
        ["bash", recipe, "--dry-run", "--out", "/o", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        env=environment(VIRTUAL_ENV="/nowhere"),
    )
    lines = map(shlex.split, done.stdout.replace("\\\n", " ").splitlines())
    return [words[1:] for words in lines if words[:1] == ["fairseq-collab"]]


@functools.cache
def configurations(config: str, overrides: tuple[str, ...]) -> list[Any]:
    """The configuration of every run of a sweep."""
    return [job.config for job in plan(REPOSITORY / config, [*overrides])]


def trainings(commands: list[Command]) -> list[tuple[str, Any]]:
    """Name of the configuration and whole configuration of every run."""
    found = []
    for name, *words in commands:
        if name == "sweep":
            # A model that `prune` would write: its sizes do not matter here.
            given = [re.sub(r"^model=choice\(model-.*", "model=concatenated", one) for one in words]
            given = [one for one in given if not one.startswith("hydra.")]
            overrides = tuple(one for one in given[1:] if "=" in one)
            corpus = Path(given[0]).stem.removeprefix("key_dim_")
            found += [(corpus, config) for config in configurations(given[0], overrides)]
    return found


def tokens(corpus: str, config: Any) -> float:
    """Target tokens of a training, at most."""
    if not config.optimization.max_update:
        pairs, length = PAIRS[corpus]
        return config.optimization.max_epoch * pairs * length
    gpus, (batches,) = (
        config.distributed_training.distributed_world_size,
        config.optimization.update_freq,
    )
    return config.optimization.max_update * config.dataset.max_tokens * batches * gpus


def hours(corpus: str, config: Any) -> list[float]:
    """Of one GPU: three passes, each two operations per multiply-add of standard heads."""
    model = config.model
    d, units, layers = model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_layers
    multiply_adds = layers * (12 * d * d + 4 * d * units) + d * WORDS[corpus]
    return [tokens(corpus, config) * 6 * multiply_adds / (PEAK * use) / 3600 for use in USE]


def billions(number: float) -> str:
    return f"{number / 1e9:.0f} billion" if number >= 1e10 else f"{number / 1e9:.1f} billion"


def core_hours(name: str) -> float:
    """Core-hours of all trainings behind a page, at most: batches are not full."""
    runs = json.loads((REPOSITORY / "results" / f"{name}.json").read_text())["runs"]
    trained = [run for run in runs if run.get("train_tokens_per_second")]
    full = [1024 if run["parameters"] < 3e6 else 2048 for run in trained]  # size=small, multi30k
    rates = [run["train_updates"] / run["train_tokens_per_second"] for run in trained]
    return sum(size * rate for size, rate in zip(full, rates, strict=True)) / 3600


def test_hours_of_what_ran() -> None:
    links = re.findall(r"\| (\d+) \| \[\w+\]\(\.\./results/(\w+)\.md\) \|", PAGE.read_text())
    assert len(links) >= 5
    assert links == [(f"{core_hours(name):.0f}", name) for _, name in links]


def test_what_the_first_table_would_take_here() -> None:
    """Measured: base model, standard heads, of the two runs of ``bench``."""
    runs = json.loads((REPOSITORY / "results" / "speed.json").read_text())["runs"][:2]
    chosen = {
        "preset": "wmt_en_de",
        "heads": "standard heads",
        "task": "training",
        "engine": "ours",
    }
    found = [pick(run["records"], **chosen) for run in runs]
    rate = max(one["work"] / one["seconds"] for one in found)
    years = 16 * 100_000 * 28_672 / rate / 3600 / 24 / 365
    assert f"{rate:.0f} target tokens a second" in PAGE.read_text()
    assert f"{years:.1f} years" in PAGE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_runs_tokens_and_hours(row: str, tmp_path: Path) -> None:
    _, _, one, eight, *said = ROWS[row]
    found = trainings(asked(one, tmp_path))
    low, high = (round(sum(both)) for both in zip(*(hours(*each) for each in found), strict=True))
    time = f"{low} to {high}" if low < high else str(max(low, 1))
    total = sum(tokens(*each) for each in found)
    assert said[:3] == [str(len(found)), billions(total), time]
    if eight.startswith("`"):  # the same tokens in each update
        same = trainings(asked(eight, tmp_path))
        assert [tokens(*each) for each in same] == [tokens(*each) for each in found]


def test_the_readme_says_the_same() -> None:
    rows = [line.strip("| ").split(" | ") for line in README.read_text().splitlines()]
    shown = [cells for cells in rows if cells[-1] in ("tested", "ran")]
    assert len(shown) >= 3
    for cells in shown:
        assert any(set(cells[1:]) <= set(row) for row in ROWS.values()), cells


def test_settings_by_size_of_corpus() -> None:
    """The table of docs/train.md is that of configs/train/."""
    lines = (PAGE.parent / "train.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| [\d,]+ \| `_", line)]
    for name, cells in zip(("multi30k", "iwslt14", "wmt14"), rows, strict=True):
        found = OmegaConf.load(REPOSITORY / f"configs/train/{name}.yaml")
        tokens = found.dataset.max_tokens * found.optimization.get("update_freq", [1])[0]
        expected = [found.model.dropout, *found.optimization.lr, found.lr_scheduler.warmup_updates]
        assert [float(one.replace(",", "")) for one in cells[2:6]] == [*expected, tokens], name
