"""What ``recipes/head_size_table.sh`` trains: models of three kinds, two of them equally large."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import REPOSITORY
from fairseq.models import build_model
from omegaconf import DictConfig, OmegaConf
from recipe_recorder import record
from warm.composing import compose_faster

from fairseq_collab.metrics.cost import used_parameters
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.sweep import plan
from fairseq_collab.runs.worker import train_command
from fairseq_collab.trained.opener import placeholder

RECIPE = "head_size_table.sh"
CONFIGS = REPOSITORY / "configs"


def parameters(model: DictConfig, words: int, **changed: Any) -> int:
    """How many parameters a model has, with other options where ``changed`` says so."""
    names = ("dictionary", "source_dictionary", "target_dictionary", "output_dictionary")
    task = SimpleNamespace(**dict.fromkeys(names, placeholder(words)))
    with torch.device("meta"):  # nothing is drawn
        built = build_model(OmegaConf.merge(model, changed), task)
    return sum(parameter.numel() for parameter in used_parameters(built))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "sides", "words"),
    [("multi30k", ("encoder", "decoder"), 4000), ("lm_wikitext2", ("decoder",), 33278)],
)
def test_as_many_parameters_with_either_size(
    experiment: str, sides: tuple[str, ...], words: int
) -> None:
    """As with as many heads of size 32 and 256 units, and no narrow feed-forward layer would do."""
    compose_faster()
    file = CONFIGS / f"experiment/head_size_table_wide_{experiment}.yaml"
    narrow = {f"{side}_ffn_embed_dim": 256 for side in sides}
    jobs = plan(file, CONFIGS, ["common.seed=1"])
    assert len(jobs) == 3
    for job in jobs:
        wide = parameters(job.config.model, words)
        size_32 = parameters(job.config.model, words, head_size=32, **narrow)
        assert wide == pytest.approx(size_32, rel=0.01)
        assert wide != pytest.approx(parameters(job.config.model, words, **narrow), rel=0.01)


@pytest.mark.parametrize(
    ("dataset", "heads", "larger", "of_table"),
    [
        ("multi30k", "encoder", "8,16,32", ["--against", "size-d/H-wide"]),
        (
            "wikitext2",
            "decoder",
            "2,8,32",
            ["--columns", "perplexity.valid,perplexity.test,parameters,multiply_adds"],
        ),
    ],
)
def test_the_runs(
    dataset: str, heads: str, larger: str, of_table: list[str], tmp_path: Path
) -> None:
    """What folders are named after, by which an experiment that was begun goes on."""
    *sweeps, table, by_heads = record(tmp_path, RECIPE, dataset)
    seed = "common.seed=choice(7)"
    sizes = ["model.head_size=32", f"model.{heads}_attention_heads=choice({larger})"]
    asked = [sweep[sweep.index("common.cpu=true") + 1 :] for sweep in sweeps]
    assert asked == [
        ["method=choice(size-d/H)", seed],
        ["method=choice(size-32)", *sizes, seed],
        ["method=choice(size-d/H-wide)", seed],
    ]
    assert ["_wide_" in sweep[1] for sweep in sweeps] == [False, False, True]
    assert table == ["table", "/out", "--x", "none", "--against", "none", "--out", "/out/table"]
    assert by_heads == ["table", "/out", "--x", "heads", *of_table, "--out", "/out/by_heads"]


def test_what_the_widths_are_is_no_option_of_a_training(tmp_path: Path) -> None:
    config = OmegaConf.create({"units": {"8": 640}, "method": "wide", "model": {"x": 640}})
    run = Run(tmp_path)
    OmegaConf.save(config, run.config_file)
    train_command(run)
    assert list(OmegaConf.load(tmp_path / "training.yaml")) == ["model"]
