"""What ``recipes/head_size_table.sh`` trains: models of three kinds, two of them equally large."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import build_model
from omegaconf import DictConfig, OmegaConf
from recipe_recorder import Command, jobs, record

from fairseq_collab.metrics.cost import used_parameters
from fairseq_collab.trained.untrained import placeholder


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    return record(tmp_path_factory.mktemp("recorder"), "head_size_table.sh", "multi30k")


def parameters(model: DictConfig, **changed: Any) -> int:
    """How many parameters a model has, with other options where ``changed`` says so."""
    names = ("dictionary", "source_dictionary", "target_dictionary", "output_dictionary")
    task = SimpleNamespace(**dict.fromkeys(names, placeholder(4000)))
    with torch.device("meta"):  # nothing is drawn
        built = build_model(OmegaConf.merge(model, changed), task)
    return sum(parameter.numel() for parameter in used_parameters(built))


@pytest.mark.slow
def test_as_many_parameters_with_either_size(commands: list[Command]) -> None:
    """No narrow feed-forward layer would do."""
    runs = dict(jobs(commands, "."))
    for heads in (8, 16, 32):
        wide, fixed = (
            runs[f"method-{method}_encoder_attention_heads-{heads}_seed-7"].model
            for method in ("size-d-H-wide", "size-32")
        )
        assert parameters(wide) == pytest.approx(parameters(fixed), rel=0.01)
        narrow = dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"), 256)
        assert parameters(wide) != pytest.approx(parameters(wide, **narrow), rel=0.01)


def test_the_runs(commands: list[Command]) -> None:
    """Names of folders, by which a sweep resumes."""
    table, by_heads = commands[-2:]
    heads = {"size-d-H": (1, 2, 4, 8, 16, 32)} | dict.fromkeys(
        ("size-32", "size-d-H-wide"), (8, 16, 32)
    )
    assert [name for name, _ in jobs(commands, ".")] == [
        f"method-{method}_encoder_attention_heads-{number}_seed-7"
        for method, numbers in heads.items()
        for number in numbers
    ]
    assert table == ["table", "/out", "--x", "none", "--against", "none", "--out", "/out/table"]
    against = ["--against", "size-d/H-wide", "--out", "/out/by_heads"]
    assert by_heads == ["table", "/out", "--x", "heads", *against]
