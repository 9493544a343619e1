"""Checkpoints, data and options that do not fit: one clear line, non-zero exit, nothing lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import MODEL, SHORT
from commands import USER_DIR, refuse, succeed

pytestmark = pytest.mark.slow

OTHER_HEADS = ["--encoder-attention-heads=2", "--decoder-attention-heads=2"]
HEADS = "encoder.layers.0.self_attn: heads is 4 in the checkpoint, 2 in the model"


def train(data: Path, *options: object) -> list[object]:
    return ["fairseq-train", data, *USER_DIR, *MODEL, *SHORT, *options]


def test_resuming_with_other_heads(trained: Path, data: Path) -> None:
    before = trained.read_bytes()
    line = refuse(*train(data, *OTHER_HEADS, "--max-update=6", "--save-dir", trained.parent))
    assert HEADS in line
    assert str(trained) in line
    assert trained.read_bytes() == before


@pytest.mark.parametrize("options", [
    [*OTHER_HEADS, "--finetune-from-model"],
    ["--activation-fn=gelu", "--reset-optimizer", "--restore-file"],
])  # fmt: skip
@pytest.mark.parametrize("model", ["trained", "stock"])
def test_starting_from_another_model(
    model: str, options: list[str], data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)
    line = refuse(*train(data, *options, path, "--save-dir", tmp_path))
    assert line.startswith("fairseq-train: error: ")
    assert str(path) in line


@pytest.mark.parametrize("command", ["generate", "validate"])
def test_without_the_plug_in(command: str, trained: Path, data: Path) -> None:
    """In an interpreter of its own, which the variable starts: others have the plug-in."""
    words = [f"fairseq-{command}", data, "--path", trained, "--cpu"]
    line = refuse(*words, PYTHONHASHSEED="1")
    assert f"{trained}: there is no architecture transformer_collab" in line
    assert "--user-dir" in line


def test_the_wrong_direction(trained: Path, data: Path) -> None:
    words = [data, *USER_DIR, "--path", trained, "--cpu", "--source-lang=de", "--target-lang=en"]
    assert f"{trained}: translates en to de" in refuse("fairseq-generate", *words)


def test_validating_with_the_task_of_the_checkpoint(
    trained: Path, data: Path, ordinary_lm: Path, monolingual: Path
) -> None:
    for path, folder in ((trained, data), (ordinary_lm, monolingual)):
        words = [folder, *USER_DIR, "--path", path, "--cpu"]
        assert "valid on 'valid' subset | loss" in succeed("fairseq-validate", *words)


def test_overriding_heads_when_generating(trained: Path, data: Path) -> None:
    line = refuse(
        "fairseq-generate", data, *USER_DIR, "--path", trained, "--cpu",
        "--model-overrides", "{'encoder_attention_heads': 2}",
    )  # fmt: skip
    assert line.startswith("fairseq-generate: error: ")
    assert HEADS in line


def test_rounding_the_cache_when_generating(trained: Path, data: Path) -> None:
    """The whole pass of fairseq-validate rounds, too."""
    words = [data, *USER_DIR, "--path", trained, "--cpu"]
    losses = [
        re.findall(r"loss ([\d.]+)", succeed("fairseq-validate", *words, *options))
        for options in ([], ["--model-overrides", "{'cache_bits': 4}"])
    ]
    assert losses[0] != losses[1]
    output = succeed("fairseq-generate", *words, "--model-overrides", "{'cache_bits_in_cross': 8}")
    assert "Generate test with beam=5" in output
    for value in ("3", "-1", "'x'"):
        line = refuse("fairseq-generate", *words, "--model-overrides", f"{{'cache_bits': {value}}}")
        assert "cache bits is" in line


@pytest.fixture
def reordered(data: Path, tmp_path: Path) -> Path:
    """The same data with its dictionary's lines in another order: same size, other words."""
    folder = tmp_path / "reordered"
    folder.mkdir()
    for file in data.iterdir():
        if file.name.startswith("dict."):
            lines = file.read_text().splitlines(keepends=True)
            (folder / file.name).write_text("".join(lines[::-1]))
        else:
            (folder / file.name).symlink_to(file)
    return folder


def test_another_dictionary_of_the_same_size(trained: Path, reordered: Path) -> None:
    generate = ["fairseq-generate", reordered, *USER_DIR, "--path", trained, "--cpu"]
    for words in (generate, train(reordered, "--max-update=6", "--save-dir", trained.parent)):
        assert "dictionary" in refuse(*words)
