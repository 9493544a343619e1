"""What a Hydra user does with ``configs/``: choose, override, sweep, mistype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from commands import refuse, succeed
from hydra import compose, initialize_config_dir
from hydra_runs import CONFIGS, TWO_UPDATES, command, logged, tiny
from omegaconf import DictConfig

from fairseq_collab.models.collaborative import CollabOptions
from fairseq_collab.models.concatenated import ConcatenatedOptions
from fairseq_collab.models.config import TransformerOptions

Compose = Callable[..., DictConfig]

# Of Hydra, about fairseq; its command leaves it out.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*against ConfigStore schema")


@pytest.fixture
def composed() -> Compose:
    """Compose a configuration in this process, as ``fairseq-hydra-train`` does in its own.

    Hydra remembers ``version_base`` for the whole process, and fairseq's way of calling it is an
    error from 1.2 on: tests that run later in this process need 1.1.
    """
    from fairseq.dataclass.initialize import hydra_init

    def run(config: str, *overrides: str) -> DictConfig:
        hydra_init(config)
        with initialize_config_dir(str(CONFIGS), version_base="1.1"):
            return compose(config, overrides=list(overrides))

    return run


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
@pytest.mark.parametrize("model", ["collab", "fork_concatenated"])
def test_method_and_size_are_chosen_apart(size: str, model: str, composed: Compose) -> None:
    cfg = composed("embedded", f"size={size}", f"model={model}", "model.key_dim=8")
    expected = yaml.safe_load((CONFIGS / "size" / f"{size}.yaml").read_text())
    assert cfg.model.decoder_embed_dim == expected["encoder_embed_dim"]
    assert cfg.model.value_init == ("fork" if model.startswith("fork") else "constant")
    assert cfg.model.key_dim == 8


@pytest.mark.parametrize("name", ["collab", "fork_collab", "concatenated", "fork_concatenated"])
def test_all_options_of_a_method_can_be_overridden(name: str, composed: Compose) -> None:
    """Without a plus sign, since the file or the one that it builds on lists them."""
    listed = composed(f"model/{name}").model
    options = CollabOptions if "collab" in name else ConcatenatedOptions
    added = {f.name for f in fields(options)} - {f.name for f in fields(TransformerOptions)}
    assert listed.keys() == added | {"_name"}


def test_both_methods_start_as_the_same_model(data: Path, tmp_path: Path) -> None:
    overrides = [*TWO_UPDATES, "common.log_format=json", "common.log_interval=1", "model.key_dim=8"]
    methods = ("model=collab,concatenated", "model.attention_scale=embed")
    succeed(*tiny("multi30k", data, *overrides, *methods, sweep=True), cwd=tmp_path)
    first = [logged(tmp_path / job / "hydra_train.log", "train_inner")[0] for job in ("0", "1")]
    assert first[0]["loss"] == first[1]["loss"]


# Folders

QUICK = ("common.cpu=true", "dataset.num_workers=0", "optimization.max_update=1")


def test_a_run_has_the_same_folder_alone_and_in_a_sweep(data: Path, tmp_path: Path) -> None:
    """So that the same command goes on with its own checkpoints, and no other's."""
    overrides = [f"task.data={data}", *QUICK]
    succeed(*command("embedded", *overrides, "model.key_dim=8,16", sweep=True), cwd=tmp_path)
    folders = {path.parent.parent.name for path in tmp_path.rglob("checkpoint_last.pt")}
    assert folders == {f"model.key_dim={n},optimization.max_update=1" for n in (8, 16)}
    log = succeed(*command("embedded", *overrides, "model.key_dim=16"), cwd=tmp_path)
    again = tmp_path / "runs/embedded/model.key_dim=16,optimization.max_update=1/checkpoints"
    assert f"Loaded checkpoint {again / 'checkpoint_last.pt'} (epoch 1 @ 1 updates)" in log


# Mistakes

MISTAKES: dict[str, tuple[str, str]] = {
    "model.kee_dim=3": ("Could not override 'model.kee_dim'", "Key 'kee_dim' is not in struct"),
    "common.sead=1": ("Could not override 'common.sead'", "Key 'sead' not in 'CommonConfig'"),
    "modle=collab": ("Could not override 'modle'", "Key 'modle' not in 'FairseqConfig'"),
    "model=colab": ("Could not find 'model/colab'", "collab concatenated fork_collab"),
    "+model.kee_dim=3": ("there is no option 'kee_dim' in transformer_collab_options", ""),
    "model.mixing_init=blok": ("mixing", "'blok'; it must be one of "),
    "model.key_dim=-1": ("key_dim is -1; it must be at least", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str, data: Path, tmp_path: Path) -> None:
    line = refuse(*tiny("multi30k", data, *TWO_UPDATES, mistake), cwd=tmp_path)
    for words in MISTAKES[mistake]:
        assert words in line


def test_an_unknown_configuration_is_one_line(tmp_path: Path) -> None:
    """fairseq stores its options under any name that it is given, known or not."""
    line = refuse(*command("multi31k"), cwd=tmp_path)
    assert line.endswith(f"error: {CONFIGS / 'multi31k.yaml'}: there is no such configuration")
