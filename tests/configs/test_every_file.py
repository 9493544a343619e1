"""Every file of ``configs/`` is composed and trained for two updates by the real command."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from commands import succeed
from hydra_runs import (
    CONFIGS,
    GROUPS,
    LANGUAGE_MODEL,
    PRIMARY,
    TWO_UPDATES,
    options,
    tiny,
    trained_jobs,
)

pytestmark = pytest.mark.slow


def sweep_of(config: str) -> dict[str, str]:
    """The parameters that an experiment sweeps over."""
    settings = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())
    return settings.get("hydra", {}).get("sweeper", {}).get("params", {})


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


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_trains(group: str, data: Path, tmp_path: Path) -> None:
    choices = [choice for choice in options(group) if not choice.startswith("lm_")]
    sweep = f"{group}={','.join(choices)}"
    log = succeed(*tiny("experiment/multi30k", data, *TWO_UPDATES, sweep, sweep=True), cwd=tmp_path)
    assert trained_jobs(log) == len(choices)
